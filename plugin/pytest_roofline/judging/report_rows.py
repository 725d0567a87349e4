"""What a run says of each of its tests, one row a measurement: what reports show and other formats carry.

Everything comes from the run file, so that a report made at the end of a run and one made a year later are the same.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ..core.memory import OutOfMemory
from ..core.records import Measurement, Outcome
from ..core.rows import badness
from .ending import (
    FAILED,
    MEASURED,
    OUT_OF_MEMORY,
    SKIPPED,
    Ending,
    endings,
    said,
    said_of_memory,
    said_of_test,
)
from .report_row import ReportRow, What
from .run_names import run_names
from .runs import Run
from .trials import Trial

__all__ = [
    "FAILED",
    "MEASURED",
    "OUT_OF_MEMORY",
    "SKIPPED",
    "ReportRow",
    "What",
    "report_rows",
    "rows_of",
    "worst_first",
]


def rows_of(runs: Sequence[Run]) -> list[ReportRow]:
    """Everything that some runs say of their tests, run by run, each called by a name of its own."""
    names = run_names(runs)
    return [row for run in runs for row in report_rows(run, names[run.path])]


def report_rows(run: Run, name: str = "") -> list[ReportRow]:
    """Everything that a run says of its tests, in the order in which it measured them.

    Args:
        run: one of a report.
        name: what it is called there; by default as it is called alone.
    """
    name = name or run_names([run])[run.path]
    ended = endings(run)
    rows = [*_timed(run, ended), *_kernels(run, ended), *_without_memory(run, ended)]
    told = {row.test_id for row in rows}
    rows += [_bare(run, one.outcome) for test_id, one in ended.items() if test_id not in told and one.outcome]
    return [replace(row, red=ended.get(row.test_id, Ending()).red, run_name=name) for row in rows]


def worst_first(rows: Iterable[ReportRow]) -> list[ReportRow]:
    """Failed tests before all others, then by verdict, then by how much slower."""
    return sorted(rows, key=lambda row: (not row.red, badness(row.word, row.change)))


def _timed(run: Run, ended: dict[str, Ending]) -> Iterator[ReportRow]:
    judged = {(one.test_id, one.name): one for one in run.judgements}
    exhausted = {(one.test_id, one.name) for one in run.out_of_memory}
    trials: dict[tuple[str, str], list[Measurement]] = {}
    for measurement in run.tested:
        # What a measurement had taken before memory ran out is no result; that it ran out has a row of its own.
        if not (measurement.invalid and (measurement.test_id, measurement.key.name) in exhausted):
            trials.setdefault((measurement.test_id, measurement.key.identity), []).append(measurement)
    for (test_id, _), measurements in trials.items():
        standing = Trial(list(measurements)).standing(None)
        judgement, ending = judged.get((test_id, standing.key.name)), ended.get(test_id, Ending())
        word, reason = said(ending, judgement, standing, standing.invalid)
        yield ReportRow(
            run=run,
            what="time",
            test_id=test_id,
            label=standing.label,
            word=word,
            reason=reason,
            measurement=standing,
            processes=tuple(measurements),
            judgement=judgement,
            outcome=ending.outcome,
        )


def _kernels(run: Run, ended: dict[str, Ending]) -> Iterator[ReportRow]:
    judged = {(one.test_id, one.name, one.target): one for one in run.exact}
    for resources in run.resources:
        exact = judged.get((resources.test_id, resources.key.name, resources.target))
        ending = ended.get(resources.test_id, Ending())
        word, reason = said(ending, exact, invalid=resources.invalid)
        yield ReportRow(
            run=run,
            what="kernel",
            test_id=resources.test_id,
            label=resources.label,
            word=word,
            reason=reason,
            outcome=ending.outcome,
            resources=resources,
            exact=exact,
        )


def _without_memory(run: Run, ended: dict[str, Ending]) -> Iterator[ReportRow]:
    for one in _first_of_each(run):
        ending = ended.get(one.test_id, Ending())
        yield ReportRow(
            run=run,
            what="memory",
            test_id=one.test_id,
            label=one.label,
            word=said_of_memory(ending, one.recorded),
            reason=one.message,
            outcome=ending.outcome,
            out_of_memory=one,
        )


def _first_of_each(run: Run) -> list[OutOfMemory]:
    """What ran out first, unless it has a number: what a later round had no room for was measured in the first."""
    measured = {(one.test_id, one.key.name) for one in run.measurements if not one.invalid}
    first: dict[tuple[str, str | None], OutOfMemory] = {}
    for one in run.out_of_memory:
        if one.round == 1 or (one.test_id, one.name) not in measured:
            first.setdefault((one.test_id, one.name), one)
    return list(first.values())


def _bare(run: Run, outcome: Outcome) -> ReportRow:
    word, reason = said_of_test(outcome)
    return ReportRow(
        run=run,
        what="test",
        test_id=outcome.test_id,
        label=_name(outcome.test_id),
        word=word,
        reason=reason,
        outcome=outcome,
    )


def _name(test_id: str) -> str:
    """The test without its file and class; what stands in brackets may hold anything."""
    function, bracket, parameters = test_id.partition("::")[2].partition("[")
    return function.rpartition("::")[2] + bracket + parameters or test_id
