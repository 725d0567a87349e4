"""What is red, one by one: the message, the difference, why, what changed, every process, and how to look closer."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ...core.records import Judgement, Measurement
from ...core.units import format_seconds
from ...judging.report_rows import ReportRow
from ...judging.runs import Run
from ..details import chance_text, difference_text, sides_text, spread_text
from ..ladder import ladder_lines, ladder_of_run
from ..resources import changes_text
from .page_results import reason
from .page_tables import Cell, Column, Table, number

# Of so many everything is told; the others stand in the table of all results.
MOST_DETAILED = 40


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

    row: ReportRow
    message: str
    difference: str
    grounds: tuple[str, ...]
    changed: tuple[str, ...]
    processes: Table | None
    commands: tuple[str, ...]


def reds(rows: Sequence[ReportRow]) -> list[Red]:
    """The failed tests among rows, in the order given, up to the number that anybody reads."""
    return [_red(row) for row in rows if row.red][:MOST_DETAILED]


def ladders(runs: Sequence[Run]) -> list[str]:
    """Which part of the machine is sick, as far as what regressed tells."""
    return [line for run in runs for line in ladder_lines(ladder_of_run(run))]


def _red(row: ReportRow) -> Red:
    told = row.judgement
    compared = told is not None and told.estimate is not None and told.interval is not None
    return Red(
        row=row,
        message=_message(row),
        difference=difference_text(told) if told is not None and compared else "",
        grounds=_grounds(told),
        changed=_changed(row),
        processes=_processes(row) if row.processes else None,
        commands=_commands(row),
    )


def _message(row: ReportRow) -> str:
    ended = row.outcome.reason if row.outcome is not None else ""
    # The message of a verdict begins with the name, which stands above it already.
    return ended.removeprefix(f"{row.label}: ") or reason(row)


def _grounds(told: Judgement | None) -> tuple[str, ...]:
    """The centres of both sides, the spreads and the chances of error; of a limit none of these exists."""
    if told is None or told.error is None or told.new_s is None or told.reference_s is None:
        return (told.reason,) if told is not None and told.reason else ()
    return (sides_text(told), spread_text(told), chance_text(told), *([told.reason] if told.reason else []))


def _changed(row: ReportRow) -> tuple[str, ...]:
    if row.exact is not None:
        return (changes_text(row.exact.changes, None), *row.exact.remarks) if row.exact.changes else row.exact.remarks
    return row.judgement.remarks if row.judgement is not None else ()


def _commands(row: ReportRow) -> tuple[str, ...]:
    again = f"python -m pytest {shlex.quote(row.test_id)}"
    if row.what == "test":
        return (again,)
    closer = f"roofline explain {shlex.quote(str(row.run.path))} {shlex.quote(row.label)}"
    more = f"{again} --roofline-rounds=auto" if row.what == "time" else again
    # A run that could not be saved is told of by its report alone.
    return (closer, more) if row.run.path.is_file() else (more,)


def _processes(row: ReportRow) -> Table:
    columns = (
        Column("process", number=False),
        Column("time", means="median, seconds per call"),
        Column("fastest", means="of its blocks' medians"),
        Column("slowest", means="of its blocks' medians"),
        Column("samples", means="processes, of a session behind the baseline"),
        Column("does not count", number=False),
    )
    table = [_new(measurement) for measurement in row.processes] + _known(row.judgement)
    return Table(f"{row.label} by process", columns, table)


def _new(measurement: Measurement) -> list[Cell]:
    samples = measurement.samples
    left_out = [f"{count} blocks by {cause}" for cause, count in samples.excluded.items()]
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
        told_count = f"{len(values)} process{'es' * (len(values) > 1)}"
        found.append([name, *_times(median(values), values), number(told_count, len(values)), Cell("")])
    return found


def _times(centre: float, values: Sequence[float]) -> list[Cell]:
    return [number(format_seconds(value), value) for value in (centre, min(values), max(values))]
