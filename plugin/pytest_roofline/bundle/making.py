"""A bundle from a run: names are taken out first, and all that is in the archive is made of what is left."""

import shlex
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..baselines.run_rows import rows_of_run
from ..baselines.runs import Run
from ..core.entries import Baseline, Entry, Session
from ..core.errors import BadInput
from ..core.facts import Environment
from ..core.rows import Row, worst_first
from ..core.storage import to_plain
from ..core.units import listed, printable
from ..core.writing import json_text
from ..hardware import family_of
from ..report.explain import explanation, note_lines
from ..version import __version__
from .redacting import RUN_FILE, Redactor, redacted_run, summary_lines
from .sources import (
    MEASURING,
    Sources,
    kept_settings,
    pytest_settings,
    redacted_source,
    sources_of,
    wheel,
)

FOLDER = "tests"
# Columns of `explain.txt`.
WIDTH = 100
# Of a run of hundreds, so many names are enough to see how tests are called.
SHOWN = 8
_FILES = """README.txt   this page
explain.txt  why the verdicts are what they are, samples by process, step by step
run.jsonl    the whole run, for `roofline explain run.jsonl`, `roofline report` and `roofline compare`"""


@dataclass(slots=True)
class Bundle:
    """What goes into an archive, by path, and what is to be said of it; names are replaced throughout.

    `tests` are the ids of those that can be measured from it, the worst first, and `commands` what does that in the
    archive's folder; `left_out` says why others cannot be, `summary` counts what was replaced.
    """

    rows: tuple[Row, ...]
    files: dict[str, bytes] = field(default_factory=dict)
    tests: list[str] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    summary: dict[str, int] = field(default_factory=dict)


def make_bundle(run: Run, tests: Sequence[str], redactor: Redactor, root: Path) -> Bundle:
    """The bundle of some tests of a run."""
    before = rows_of_run(run)
    about = chosen(before, tests, str(run.path))
    clean, text = redacted_run(redactor, run)
    after = rows_of_run(clean)
    if len(after) != len(before):
        raise BadInput(
            f"{run.path} has {len(before)} tests, and {len(after)} without names: they differ in a name only; --keep "
            "the category of the names that tell them apart"
        )
    made = Bundle(tuple(after[index] for index in about))
    _add_tests(made, redactor, clean, [before[index].test for index in about], root)
    made.summary = redactor.summary()
    blocks = [
        _explained(clean, row) for row in {(row.label, row.what): row for row in made.rows}.values()
    ]
    texts = {
        str(RUN_FILE): text,
        "explain.txt": "\n".join("\n".join(lines) + "\n" for lines in blocks),
        "README.txt": "\n\n".join(
            "\n".join(map(printable, part)) for part in _readme(clean, made, redactor.keep)
        )
        + "\n",
    }
    made.files |= {name: text.encode() for name, text in texts.items()}
    _refuse_secrets(made, redactor)
    return made


def _refuse_secrets(made: Bundle, redactor: Redactor) -> None:
    """Raise where a secret stands in a text as a whole that none of its parts showed."""
    for name, data in made.files.items():
        lines = redactor.left(data.decode()) if not name.endswith(".whl") else []
        if lines:
            raise BadInput(
                f"line {listed(list(map(str, lines)), SHOWN)} of {name} would still hold what looks like a secret, so "
                "nothing was written; take it out there, or let secrets pass by --keep secrets"
            )


def chosen(rows: Sequence[Row], tests: Sequence[str], run: str) -> list[int]:
    """The places of the rows that are meant, worst first: those of `tests`, or of the worst test that failed."""
    places = {id(row): index for index, row in enumerate(rows)}
    ordered = [(places[id(row)], row) for row in worst_first(rows)]
    names = listed(list(dict.fromkeys(row.label for row in rows)), SHOWN) or "none at all"
    if tests:
        matches = {test: _matching(ordered, test) for test in tests}
        for test, found in matches.items():
            if not found:
                raise BadInput(f"{run} has no test whose name holds {test!r}; it has {names}")
        return [index for index, _ in ordered if any(index in found for found in matches.values())]
    red = [row.test for _, row in ordered if row.red]
    if not red:
        raise BadInput(
            f"no test of {run} failed, so there is nothing to reproduce; name one with --test: {names}"
        )
    return [index for index, row in ordered if row.red and row.test == red[0]]


def _matching(ordered: Sequence[tuple[int, Row]], test: str) -> list[int]:
    exact = [index for index, row in ordered if test in (row.label, row.test)]
    return exact or [
        index for index, row in ordered if test and (test in row.label or test in row.test)
    ]


def _explained(run: Run, row: Row) -> list[str]:
    return explanation(row, WIDTH) + note_lines(run, row.label, WIDTH)


def _readme(run: Run, made: Bundle, keep: Collection[str]) -> Iterator[list[str]]:
    """The first page: what happened, how to measure it again, what was taken out, of a run without names."""
    head = f"A bundle of `roofline bundle` (pytest-roofline {__version__}) of the run {run.header.run_id}, "
    yield [f"{head}{run.header.started}.", f"It ran on {_machine_text(run.header.environment)}."]
    for row in made.rows:
        yield [f"{row.verdict} {row.label}", f"  {row.test}", f"  {_explained(run, row)[-1]}"]
    yield ["How to measure it again", *(f"  {line}" for line in _how(made))]
    yield ["What was redacted", *(f"  {line}" for line in summary_lines(made.summary, keep))]
    inside = [
        f"{FOLDER}/       the test, what it imports, and its baseline",
        "*.whl        this package",
    ]
    yield [
        "What is in it",
        *(f"  {line}" for line in [*_FILES.splitlines(), *(inside if made.tests else [])]),
    ]


def _machine_text(environment: Environment) -> str:
    """A machine in words, without its name: `NVIDIA H200, driver 570.86, kernel 6.8, torch 2.13.0`."""
    device, torch = environment.device, environment.software.get("torch")
    driver = device.driver and f"driver {device.driver}"
    facts = (
        device.product,
        driver,
        f"kernel {environment.host.kernel}",
        torch and f"torch {torch}",
    )
    return ", ".join(fact for fact in facts if fact)


def _how(made: Bundle) -> Iterator[str]:
    if made.tests:
        yield from made.commands
        yield "Use an environment of Python 3.11 or newer; the torch that it has stays. The test is held against the"
        yield f"baseline of this run (in {FOLDER}/baselines), on the same product. Exit status: 1 it is slow, or"
        yield "fails, there too; 0 it is not; `NO BASELINE` is another product, or nothing was known to compare with."
        yield from (f"Note: {note}." for note in made.notes)
    if made.left_out:
        yield "These cannot be measured from this archive:"
        yield from (f"  {why}" for why in made.left_out)
        yield f"With pytest-roofline {__version__} installed, run them in a checkout of the tests."


def _add_tests(
    made: Bundle, redactor: Redactor, run: Run, original_ids: Sequence[str], root: Path
) -> None:
    """Put in what measures the rows of a run without names again; the files lie under their `original_ids`."""
    settings = pytest_settings(root)
    sources: list[Sources] = []
    for test_id, original in dict(
        zip((row.test for row in made.rows), original_ids, strict=True)
    ).items():
        found = sources_of(
            original, root, run.header.started, settings.get("pythonpath", "").split()
        )
        why = _copy(redactor, made, found, test_id)
        if why:
            made.left_out.append(f"{test_id}: {redactor.text(why)}")
        else:
            made.tests.append(test_id)
            sources.append(found)
    if not made.tests:
        return
    texts = {"pytest.ini": kept_settings(settings), **_baseline(run, made.rows)}
    made.files |= {f"{FOLDER}/{name}": redactor.text(text).encode() for name, text in texts.items()}
    name, data = wheel()
    made.files[name] = data
    typed = tuple(f"--{option.replace('_', '-')}=" for option in MEASURING)
    options = ["--roofline-device=cpu"] * (run.header.environment.device.type == "cpu")
    options += [word for word in run.header.command if word.startswith(typed)]
    words = shlex.join([*made.tests, "--roofline-rounds=auto", *options])
    made.commands = [f"python -m pip install ./{name}", f"cd {FOLDER} && python -m pytest {words}"]
    newer, needs = (
        redactor.text(
            ", ".join(sorted({name for found in sources for name in getattr(found, what)}))
        )
        for what in ("newer", "needs")
    )
    made.notes += [f"changed since the run: {newer}; what is copied is how they are now"] * bool(
        newer
    )
    made.notes += [f"its files also import {needs}"] * bool(needs)


def _copy(redactor: Redactor, made: Bundle, found: Sources, test_id: str) -> str:
    """Put the files of a test into the archive; why not, where it cannot be."""
    if found.missing:
        return found.missing
    files: dict[str, bytes] = {}
    for name, text in found.files.items():
        redacted = redacted_source(redactor, text)
        if redacted is None:
            return f"the code of {name} names what is redacted; --keep would let it pass"
        files[f"{FOLDER}/{redactor.text(name)}"] = redacted.encode()
    if f"{FOLDER}/{test_id.partition('::')[0]}" not in files:
        return "its file is called differently without names"
    made.files |= files
    return ""


def _baseline(run: Run, rows: Sequence[Row]) -> dict[str, str]:
    """The file of what the rows were held against; none where that was nothing."""
    entries = {entry.identity: entry for row in rows if (entry := _entry(run, row)) is not None}
    family = family_of(run.header.environment.device)
    text = json_text(to_plain(Baseline(family, tuple(entries.values()))), sort_keys=True)
    return {f"baselines/{family}.json": text} if entries else {}


def _entry(run: Run, row: Row) -> Entry | None:
    judgement, one = row.judgement, row.measurement
    if judgement is None or one is None or (not judgement.reference and judgement.limit_s is None):
        return None
    key = one.key
    named: dict[str, Any] = {
        "benchmark": key.benchmark,
        "name": key.name,
        "parameters": key.parameters,
    }
    named |= {"hardware": key.hardware, "unit": "s"}
    if not judgement.reference:
        named |= {
            "source": judgement.source or "a limit",
            "convention": "one call",
            "confidence": "high",
        }
        return Entry(**named, metric="time_s", kind="threshold", value=judgement.limit_s)
    sessions = tuple(
        Session(
            f"reference-{number}",
            session.started or run.header.started,
            session.process_medians,
            session.device or None,
            # What differs in how it was timed is never compared.
            achieved=one.samples.achieved,
            clock_hz=judgement.reference_clock_hz,
        )
        for number, session in enumerate(judgement.reference, 1)
    )
    return Entry(
        **named,
        metric=key.metric,
        kind="measured",
        cache=key.cache,
        timing=key.timing,
        work=one.work,
        tolerance=judgement.tolerance,
        provenance={"bundle of": run.header.run_id, "source": judgement.source},
        sessions=sessions,
        peak_bytes=judgement.peak.reference_bytes if judgement.peak is not None else None,
    )
