"""What is red, one by one: the message, the difference, why, what changed, every process, and how to look closer."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ...core.records import Judgement, Measurement
from ...core.rows import Row
from ...core.units import count, format_seconds, printable
from ...judging.rows import rows_of_run
from ...judging.runs import Run
from ...kernel_gate.text import changes_text
from ..details import chance_text, difference_text, sides_text, spread_text
from ..ladder import ladder_lines, ladder_of
from .page_results import reason
from .page_tables import Cell, Column, Table, number

# Of so many tests, and of so many measurements of each, everything is told; the others stand among all results.
MOST_DETAILED = 40
MOST_OF_A_TEST = 5
# The item that looks at the device, which has no file to run it from.
DEVICE = "device health"


@dataclass(frozen=True, slots=True)
class Red:
    """A failed test as the page tells it.

    Args:
        row: with its label, word and test id.
        message: why it failed, in a sentence.
        difference: how much slower, with its interval and tolerance; empty where nothing was compared.
        grounds: what that rests on, a sentence each.
        changed: what else is not as it was behind the baseline.
        processes: every new process, and the sessions that it was compared with; None where nothing was timed.
        commands: that show more of it or try it again.
    """

    row: Row
    message: str
    difference: str
    grounds: tuple[str, ...]
    changed: tuple[str, ...]
    processes: Table | None
    commands: tuple[str, ...]


def reds(rows: Sequence[Row]) -> list[Red]:
    """The measurements of failed tests, in the order given, up to the number that anybody reads."""
    return [_red(row) for test in list(_by_test(rows).values())[:MOST_DETAILED] for row in test[:MOST_OF_A_TEST]]


def not_told(rows: Sequence[Row]) -> str:
    """How many failed tests, and measurements of those that are told, stand in the table of all results alone."""
    tests = list(_by_test(rows).values())
    measured = sum(len(test[MOST_OF_A_TEST:]) for test in tests[:MOST_DETAILED])
    parts = [count(len(tests) - MOST_DETAILED, "more failed test")] if len(tests) > MOST_DETAILED else []
    parts += [f"{count(measured, 'more measurement')} of the tests above"] if measured else []
    return f"… and {' and '.join(parts)}, in the table of all results." if parts else ""


def _by_test(rows: Sequence[Row]) -> dict[tuple[str, str], list[Row]]:
    tests: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.red:
            tests.setdefault((row.run or "", row.test), []).append(row)
    return tests


def ladders(runs: Sequence[Run]) -> list[str]:
    """Which part of the machine is sick, as far as what regressed tells."""
    return [line for run in runs for line in ladder_lines(ladder_of(rows_of_run(run)))]


def _red(row: Row) -> Red:
    told = row.judgement
    compared = told is not None and told.estimate is not None and told.interval is not None
    return Red(
        row=row,
        message=_message(row),
        difference=difference_text(told) if told is not None and compared else "",
        grounds=_grounds(told),
        changed=_changed(row),
        processes=_processes(row) if row.measurements else None,
        commands=_commands(row),
    )


def _message(row: Row) -> str:
    ended = row.ended.reason if row.ended is not None else ""
    # The message of a verdict begins with the name, which stands above it already.
    return ended.removeprefix(f"{row.label}: ") or reason(row)


def _grounds(told: Judgement | None) -> tuple[str, ...]:
    """The centres of both sides, the spreads and the chances of error; of a limit none of these exists."""
    if told is None or told.error is None or told.new_s is None or told.reference_s is None:
        return (told.reason,) if told is not None and told.reason else ()
    return (sides_text(told), spread_text(told), chance_text(told), *([told.reason] if told.reason else []))


def _changed(row: Row) -> tuple[str, ...]:
    if row.exact is not None:
        return (changes_text(row.exact.changes, None), *row.exact.remarks) if row.exact.changes else row.exact.remarks
    return row.judgement.remarks if row.judgement is not None else ()


def _commands(row: Row) -> tuple[str, ...]:
    again = _again(row)
    if row.what == "time":
        again = [f"{command} --roofline-rounds=auto" for command in again]
    # What holds no number explains nothing, and a run that could not be saved is told of by its report alone.
    explained = row.what in ("time", "kernel") and row.path.is_file()
    closer = [["roofline", "explain", str(row.path), row.label]] if explained else []
    return (*_typed(closer), *again)


def _again(row: Row) -> list[str]:
    """How to run its test once more; of the device the whole run, since its tests are the load."""
    if row.test != DEVICE:
        return _typed([["python", "-m", "pytest", row.test]])
    # A name that a run was saved under is not given twice.
    save, arguments = "--roofline-save", row.header.command[1:] if row.header is not None else ()
    pairs = zip(("", *arguments), arguments, strict=False)
    kept = [one for before, one in pairs if save not in (before, one) and not one.startswith(f"{save}=")]
    return _typed([["python", "-m", "pytest", *kept]])


def _typed(commands: Sequence[Sequence[str]]) -> list[str]:
    """Commands for a shell, without those that nobody can type: written otherwise, a name is another one."""
    return [shlex.join(words) for words in commands if all(word == printable(word) for word in words)]


def _processes(row: Row) -> Table:
    columns = (
        Column("process", number=False),
        Column("time", means="median, seconds per call"),
        Column("fastest", means="of its blocks' medians"),
        Column("slowest", means="of its blocks' medians"),
        Column("samples", means="processes, of a session behind the baseline"),
        Column("does not count", number=False),
    )
    table = [_new(measurement) for measurement in row.measurements] + _known(row.judgement)
    return Table(f"{row.label} by process", columns, table)


def _new(measurement: Measurement) -> list[Cell]:
    samples = measurement.samples
    left_out = [f"{count(blocks, 'block')} by {cause}" for cause, blocks in samples.excluded.items()]
    return [
        Cell(f"round {measurement.round}, process {measurement.process[:6]}"),
        *_times(samples.median_s, samples.block_medians),
        number(f"{len(samples.seconds)}", len(samples.seconds)),
        Cell("; ".join([measurement.invalid] * bool(measurement.invalid) + left_out)),
    ]


def _known(told: Judgement | None) -> list[list[Cell]]:
    """The sessions behind the baseline, each in a row."""
    found = []
    for session in told.reference if told is not None else ():
        values = session.process_medians
        device = f" on {session.device}" if session.device else ""
        name = Cell(f"baseline, session of {session.started or 'an unknown time'}{device}")
        processes = number(count(len(values), "process", "es"), len(values))
        found.append([name, *_times(median(values), values), processes, Cell("")])
    return found


def _times(centre: float, values: Sequence[float]) -> list[Cell]:
    return [number(format_seconds(value), value) for value in (centre, min(values), max(values))]
