"""What pytest-benchmark is told of a measurement beside its times: what an exported file says of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .core.records import Measurement
    from .judging.report_rows import ReportRow
    from .judging.runs import Run
    from .reporting.results import Result
    from .session import RooflineSession


def facts(state: "RooflineSession", measurement: "Measurement", results: "Sequence[Result]") -> dict[str, Any]:
    """By name, units in the names; what is not known is not there.

    Args:
        state: the run.
        measurement: the one that is replayed, of the first process.
        results: all that was said of its test in the end, of this measurement first.
    """
    from .exchange.export.facts import facts as told_of
    from .exchange.export.facts import origin

    run = _run(state)
    others = [told_of(_row(run, other), other.measurement, [other.measurement]) for other in results[1:]]
    told = told_of(_row(run, results[0]), results[0].measurement, [measurement]) | origin(run.header)
    return told | ({"others": others} if others else {})


def _run(state: "RooflineSession") -> "Run":
    """The run as far as it is told of each of its measurements."""
    from .judging.runs import Run

    return Run(path=Path(f"{state.run_name}.jsonl"), header=state.header, measurements=(), outcomes=(), footer=None)


def _row(run: "Run", result: "Result") -> "ReportRow":
    """What the run file will say of a measurement."""
    from .judging.report_rows import ReportRow
    from .reporting.records import judgement_of

    measurement = result.measurement
    return ReportRow(
        run=run,
        what="time",
        test_id=measurement.test_id,
        label=measurement.label,
        word=result.word,
        measurement=measurement,
        judgement=judgement_of(result) if result.verdict is not None else None,
    )
