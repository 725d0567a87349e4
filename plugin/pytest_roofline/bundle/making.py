"""A bundle from a run: names are taken out first, and all that is in the archive is made of what is left."""

import shlex
from collections.abc import Collection, Mapping, Sequence
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
from ..report.overview import ladder_lines, ladder_of
from ..version import __version__
from .redacting import RUN_FILE, Redactor, redacted_run, summary_lines
from .sources import (
    CARRIED,
    LOCAL,
    Sources,
    kept_settings,
    options_of,
    pytest_settings,
    redacted_source,
    sources_of,
    wheel,
    words_of,
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
class Again:
    """What measures tests again elsewhere: files by their path in the archive, and what must be said of them.

    Args:
        tests: the ids of the tests that can be run, the worst first.
        options: of the run, that change how it is measured.
        wheel: what this package's wheel is called in the archive.
        left_out: why other tests cannot be, a sentence each.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    tests: list[str] = field(default_factory=list)
    options: list[str] = field(default_factory=list)
    wheel: str = ""
    left_out: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def commands(self) -> list[str]:
        """What a shell is to be told, in the archive's folder; nothing where no test can be run."""
        words = shlex.join([*self.tests, "--roofline-rounds=auto", *self.options])
        told = [f"python -m pip install ./{self.wheel}", f"cd {FOLDER} && python -m pytest {words}"]
        return told if self.tests else []


@dataclass(frozen=True, slots=True)
class Bundle:
    """What goes into an archive, by path, and what is to be said of it; names are replaced throughout."""

    files: dict[str, bytes]
    rows: tuple[Row, ...]
    again: Again
    summary: dict[str, tuple[int, int]]


def make_bundle(run: Run, tests: Sequence[str], redactor: Redactor, root: Path) -> Bundle:
    """The bundle of some tests of a run.

    Args:
        run: as it was read.
        tests: parts of labels or ids; without any, the worst test that failed.
        redactor: that may know names already.
        root: of the checkout that the tests are copied from: pytest's root of the run.

    Raises:
        BadInput: nothing failed and no test is named, a name fits nothing, or two tests cannot be told apart.
    """
    before = rows_of_run(run)
    about = chosen(before, tests, str(run.path))
    clean, text = redacted_run(redactor, run)
    after = rows_of_run(clean)
    if len(after) != len(before):
        raise BadInput(
            f"{run.path} has {len(before)} tests, and {len(after)} without names: they differ in a name only; --keep "
            "the category of the names that tell them apart"
        )
    rows = [after[index] for index in about]
    made = again(redactor, clean, rows, [before[index].test for index in about], root)
    files = {"explain.txt": explain_text(clean, rows, after), str(RUN_FILE): text}
    own = [data.decode() for name, data in made.files.items() if name != made.wheel]
    summary = redactor.summary([*files.values(), *own])
    files["README.txt"] = readme(clean, rows, made, summary, redactor.keep)
    return Bundle({name: text.encode() for name, text in files.items()} | made.files, tuple(rows), made, summary)


def chosen(rows: Sequence[Row], tests: Sequence[str], run: str) -> list[int]:
    """The places of the rows that are meant, worst first: those of `tests`, or of the worst test that failed.

    Raises:
        BadInput: nothing failed and no test is named, or a name fits nothing.
    """
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
        raise BadInput(f"no test of {run} failed, so there is nothing to reproduce; name one with --test: {names}")
    return [index for index, row in ordered if row.red and row.test == red[0]]


def _matching(ordered: Sequence[tuple[int, Row]], test: str) -> list[int]:
    exact = [index for index, row in ordered if test in (row.label, row.test)]
    return exact or [index for index, row in ordered if test and (test in row.label or test in row.test)]


def explain_text(run: Run, rows: Sequence[Row], every: Sequence[Row]) -> str:
    """Why each verdict of some rows of a run is what it is, as `roofline explain` shows it."""
    blocks = [_explained(run, row) for row in {(row.label, row.what): row for row in rows}.values()]
    if any(row.verdict == "REGRESSED" for row in rows):
        blocks.append(ladder_lines(ladder_of(every)))
    return "\n".join("\n".join(lines) + "\n" for lines in blocks if lines)


def _explained(run: Run, row: Row) -> list[str]:
    lines = explanation(row, WIDTH) if row.what in ("time", "kernel") else []
    lines += note_lines(run, row.label, WIDTH)
    return lines or [printable(line) for line in (f"{row.label}: {row.verdict}", *_why(row))]


def _why(row: Row) -> list[str]:
    ended = row.ended.reason if row.ended is not None else ""
    return (ended or row.reason).splitlines()


def readme(
    run: Run, rows: Sequence[Row], made: Again, summary: Mapping[str, tuple[int, int]], keep: Collection[str]
) -> str:
    """The first page: what happened, how to measure it again, what was taken out, of a run without names."""
    head = f"A bundle of `roofline bundle` (pytest-roofline {__version__}) of the run {run.header.run_id}, "
    inside = [f"{FOLDER}/       the test, what it imports, and its baseline", f"{made.wheel}  this package"]
    parts = [
        [f"{head}{run.header.started}.", f"It ran on {machine_text(run.header.environment)}."],
        *([f"{row.verdict} {row.label}", f"  {row.test}", *(f"  {line}" for line in _told(row))] for row in rows),
        ["How to measure it again", *_how(made)],
        ["What was redacted", *(f"  {line}" for line in summary_lines(summary, keep))],
        ["What is in it", *(f"  {line}" for line in [*_FILES.splitlines(), *(inside if made.tests else [])])],
    ]
    return "\n\n".join("\n".join(map(printable, lines)) for lines in parts) + "\n"


def _told(row: Row) -> list[str]:
    """The last sentence of what explains it, or what its test raised."""
    return explanation(row, WIDTH)[-1:] if row.judgement is not None else _why(row)[:1]


def machine_text(environment: Environment) -> str:
    """A machine in words, without its name: `NVIDIA H200, driver 570.86, kernel 6.8, torch 2.13.0`."""
    device, torch = environment.device, environment.software.get("torch")
    driver = device.driver and f"driver {device.driver}"
    facts = (device.product, driver, f"kernel {environment.host.kernel}", torch and f"torch {torch}")
    return ", ".join(fact for fact in facts if fact)


def _how(made: Again) -> list[str]:
    lines = []
    if made.tests:
        lines += [
            *made.commands,
            "Use an environment of Python 3.11 or newer; the torch that it has stays. The test is held against the",
            f"baseline of this run (in {FOLDER}/baselines), on the same product. Exit status: 1 it is slow, or",
            "fails, there too; 0 it is not; `NO BASELINE` is another product, or nothing was known to compare with.",
            *(f"Note: {note}." for note in made.notes),
        ]
    if made.left_out:
        lines += [
            "These cannot be measured from this archive:",
            *(f"  {why}" for why in made.left_out),
            f"With pytest-roofline {__version__} installed, run them in a checkout of the tests.",
        ]
    return [f"  {line}" for line in lines]


def again(redactor: Redactor, run: Run, rows: Sequence[Row], original_ids: Sequence[str], root: Path) -> Again:
    """What measures some rows of a run again: files of their tests, the baseline of the run, and this package.

    Args:
        redactor: that knows the names of the run.
        run: without names.
        rows: of it, the worst first.
        original_ids: of each row, the test id as it is called in the checkout.
        root: of the checkout: pytest's root of the run.
    """
    made = Again()
    settings = pytest_settings(root)
    options = options_of(settings, run.header.command)
    sources: list[Sources] = []
    for test_id, original in dict(zip((row.test for row in rows), original_ids, strict=True)).items():
        found = sources_of(original, root, run.header.started, words_of(settings.get("pythonpath", "")))
        why = _copy(redactor, made, found, test_id)
        if why:
            made.left_out.append(f"{test_id}: {redactor.text(why)}")
        else:
            made.tests.append(test_id)
            sources.append(found)
    if not made.tests:
        return Again(left_out=made.left_out)
    texts = {"pytest.ini": kept_settings(settings), **_baseline(run, rows)}
    made.files |= {f"{FOLDER}/{name}": redactor.text(text).encode() for name, text in texts.items()}
    device = ["--roofline-device=cpu"] if run.header.environment.device.type == "cpu" else []
    made.options = device + [redactor.text(f"{name}={text}") for name, text in options.items() if name in CARRIED]
    made.wheel, made.files[made.wheel] = wheel()
    made.notes = list(dict.fromkeys([*made.notes, *_notes(redactor, sources, options)]))
    return made


def _copy(redactor: Redactor, made: Again, found: Sources, test_id: str) -> str:
    """Put the files of a test into the archive; why not, where it cannot be."""
    if found.missing:
        return found.missing
    files: dict[str, bytes] = {}
    changed: list[str] = []
    for name, text in found.files.items():
        redacted = redacted_source(redactor, text)
        if redacted is None:
            return f"the code of {name} names what is redacted; --keep would let it pass"
        files[f"{FOLDER}/{redactor.text(name)}"] = redacted.encode()
        changed += [redactor.text(name)] if redacted != text else []
    if f"{FOLDER}/{test_id.partition('::')[0]}" not in files:
        return "its file is called differently without names"
    made.files |= files
    made.notes += [f"names in strings and comments of {', '.join(changed)} were replaced too"] if changed else []
    return ""


def _baseline(run: Run, rows: Sequence[Row]) -> dict[str, str]:
    """The file of what the rows were held against; none where that was nothing."""
    entries = {entry.identity: entry for row in rows if (entry := _entry(run, row)) is not None}
    family = family_of(run.header.environment.device)
    text = json_text(to_plain(Baseline(family, tuple(entries.values()))))
    return {f"baselines/{family}.json": text} if entries else {}


def _entry(run: Run, row: Row) -> Entry | None:
    judgement, one = row.judgement, row.measurement
    if judgement is None or one is None or (not judgement.reference and judgement.limit_s is None):
        return None
    key = one.key
    named: dict[str, Any] = {"benchmark": key.benchmark, "name": key.name, "parameters": key.parameters}
    named |= {"hardware": key.hardware, "unit": "s"}
    if not judgement.reference:
        named |= {"source": judgement.source or "a limit", "convention": "one call", "confidence": "high"}
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


def _notes(redactor: Redactor, sources: Sequence[Sources], options: Mapping[str, str]) -> list[str]:
    """What whoever runs it should know."""
    newer = redactor.text(", ".join(sorted({name for found in sources for name in found.newer})))
    needs = redactor.text(", ".join(sorted({name for found in sources for name in found.needs})))
    local = ", ".join(name for name in LOCAL if name in options)
    told = {
        newer: f"changed since the run: {newer}; what is copied is how they are now",
        needs: f"its files also import {needs}",
        local: f"the run had {local}, which hold where it ran; add yours",
    }
    return [note for what, note in told.items() if what]
