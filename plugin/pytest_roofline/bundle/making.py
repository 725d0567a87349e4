"""A bundle from a run: names are taken out first, and all that is in the archive is made of what is left."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..baselines.rows import rows_of_run
from ..baselines.runs import Run
from ..core.errors import BadInput
from ..core.facts import Environment
from ..core.rows import Row
from ..core.units import printable
from ..report.explain import explanation, note_lines
from ..report.ladder import ladder_lines, ladder_of
from ..version import __version__
from .again import FOLDER, Again, again
from .choosing import chosen
from .redacting import Redactor, summary_lines
from .run_lines import RUN_FILE, Plain, learn, plain_lines, redacted_run

# Columns of `explain.txt`.
WIDTH = 100
_FILES = """README.txt   this page
explain.txt  why the verdicts are what they are, samples by process, step by step
run.jsonl    the whole run, for `roofline explain run.jsonl`, `roofline report` and `roofline compare`"""


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
        BadFile: the run cannot be read any more.
    """
    before = rows_of_run(run)
    about = chosen(before, tests, str(run.path))
    lines = plain_lines(run)
    learn(redactor, run, lines)
    clean, text, after = _without_names(redactor, run, lines, len(before))
    rows = [after[index] for index in about]
    made = again(redactor, clean, rows, [before[index].test for index in about], root)
    files = {"explain.txt": explain_text(clean, rows), str(RUN_FILE): text}
    own = [data.decode() for name, data in made.files.items() if name != made.wheel]
    summary = redactor.summary([*files.values(), *own])
    files["README.txt"] = readme(clean, rows, made, summary, redactor.keep)
    return Bundle({name: text.encode() for name, text in files.items()} | made.files, tuple(rows), made, summary)


def _without_names(redactor: Redactor, run: Run, lines: list[Plain], count: int) -> tuple[Run, str, Sequence[Row]]:
    """The run without names, its text and its rows, of which there are as many as before.

    Two tests may differ in how they spell one name (`test[node1]`, `test[node1.corp.internal]`); then each spelling
    is a name of its own.
    """
    for apart in (False, True):
        if apart:
            redactor.tell_apart()
        clean, text = redacted_run(redactor, run, lines)
        rows = rows_of_run(clean)
        if len(rows) == count:
            return clean, text, rows
    raise BadInput(
        f"{run.path} has {count} tests, and {len(rows)} without names: some are called by a placeholder already; "
        "--keep the category of the names that tell them apart"
    )


def explain_text(run: Run, rows: Sequence[Row]) -> str:
    """Why each verdict is what it is, as `roofline explain` shows it."""
    blocks = [_explained(run, row) for row in {(row.label, row.what): row for row in rows}.values()]
    if any(row.verdict == "REGRESSED" for row in rows):
        blocks.append(ladder_lines(ladder_of(rows_of_run(run))))
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
    facts = (
        device.product,
        device.driver and f"driver {device.driver}",
        f"kernel {environment.host.kernel}",
        torch and f"torch {torch}",
    )
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
