"""What a run says of each of its tests, one row a measurement: what reports show and other formats carry.

Everything comes from the run file, so that a report made at the end of a run and one made a year later are the same.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ..core.memory import OutOfMemory
from ..core.records import Judgement, Measurement, Outcome, rate
from ..core.resources import ExactJudgement, Resources
from ..core.samples import OVERSUBSCRIBED, PROFILED
from .run_names import run_names
from .runs import Run
from .stats import growth
from .trials import Trial
from .verdicts import Kind

What = Literal["time", "kernel", "memory", "test"]
FAILED, SKIPPED, OUT_OF_MEMORY = "FAILED", "SKIPPED", "OUT OF MEMORY"
# A number that nobody compared, so that it neither passed nor failed.
MEASURED = "MEASURED"
# Worst first; what is not named here comes last.
_ORDER = (
    FAILED,
    Kind.REGRESSED.value,
    OUT_OF_MEMORY,
    Kind.INVALID.value,
    Kind.INCONCLUSIVE.value,
    Kind.NO_BASELINE.value,
)


@dataclass(frozen=True, slots=True)
class ReportRow:
    """One measurement, compiled kernel or test of a run, with all that was said of it.

    Args:
        run: that it is from.
        run_name: what that is called; no other run of the same report is called so.
        what: `time` for a measurement, `kernel` for a compiled one, `memory` where memory ran out before there was a
            number, `test` for a test that failed or was skipped without one, and for the device's health.
        test_id: node id of the test.
        label: as people call it: `memcpy_d2d[64MiB]`.
        word: the verdict, or how the test ended that has none: FAILED, SKIPPED, XFAIL, OVERSUBSCRIBED, PROFILED,
            INTERRUPTED, and MEASURED where a number was compared with nothing, as in a run that was killed.
        reason: why, in a sentence; may be empty.
        red: whether its test failed in the end; one that passed when it was run again did not.
        measurement: the one that stands for all processes; of a `time`.
        processes: every process's measurement, also those that do not count, in the order taken.
        judgement: what was said of them; None where the test failed for itself.
        outcome: how the test ended; None where the run was cut before.
        resources: of a `kernel`.
        exact: what was said of it.
        out_of_memory: of a `memory`.
    """

    run: Run
    what: What
    test_id: str
    label: str
    word: str
    reason: str = ""
    red: bool = False
    measurement: Measurement | None = None
    processes: tuple[Measurement, ...] = ()
    judgement: Judgement | None = None
    outcome: Outcome | None = None
    resources: Resources | None = None
    exact: ExactJudgement | None = None
    out_of_memory: OutOfMemory | None = None
    run_name: str = ""

    @property
    def seconds(self) -> float | None:
        """Seconds per call: the centre of the processes that were judged, else the median of the one that stands."""
        if self.measurement is None:
            return None
        judged = self.judgement is not None and self.judgement.processes > 1
        centre = _time(self.judgement.new_s) if self.judgement is not None and judged else None
        return centre if centre is not None else self.measurement.median_s

    @property
    def rate(self) -> float | None:
        """Bytes (or FLOP) per second of `seconds`, in the counting of the key's metric; None where it has no rate."""
        return self.rate_of(self.seconds)

    @property
    def reference_s(self) -> float | None:
        """Seconds per call that it was compared with; None where it was not, or with a published limit."""
        return _time(self.judgement.reference_s) if self.judgement is not None else None

    @property
    def reference_rate(self) -> float | None:
        """The same as a rate."""
        return self.rate_of(self.reference_s)

    @property
    def reference_medians_s(self) -> tuple[float, ...]:
        """The median of every process behind the baseline, in seconds."""
        sessions = self.judgement.reference if self.judgement is not None else ()
        return tuple(value for session in sessions for value in session.process_medians)

    @property
    def change(self) -> float | None:
        """The difference as a share of the reference's time: +0.25 takes a quarter longer."""
        estimate = self.judgement.estimate if self.judgement is not None else None
        return None if estimate is None else growth(estimate)

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 99 % interval of `change`."""
        interval = self.judgement.interval if self.judgement is not None else None
        return None if interval is None else (growth(interval[0]), growth(interval[1]))

    @property
    def share_of_ceiling(self) -> float | None:
        """The rate of `seconds` as a share of the roofline; None where either is unknown."""
        ceiling = self.measurement.ceiling if self.measurement is not None else None
        achieved = self.rate_of(self.seconds, ceiling.metric) if ceiling is not None else None
        return achieved / ceiling.value if ceiling is not None and achieved is not None else None

    def rate_of(self, seconds: float | None, metric: str | None = None) -> float | None:
        """Bytes (or FLOP) per second of this row's work done in `seconds`; None where there is no such rate.

        Args:
            seconds: per call.
            metric: whose counting; the key's own by default.
        """
        one = self.measurement
        if one is None or seconds is None or not one.has_rate:
            return None
        return rate(one.work, metric or one.key.metric, seconds)


def _time(seconds: float | None) -> float | None:
    # A verdict in a file made by hand may hold what is no time, and no rate can be made of.
    return seconds if seconds is not None and seconds > 0 else None


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
    ended = _outcomes(run)
    rows = [*_timed(run, ended), *_kernels(run, ended), *_without_memory(run, ended)]
    told = {row.test_id for row in rows}
    rows += [_bare(run, outcome) for test_id, outcome in ended.items() if test_id not in told]
    red = {outcome.test_id: _is_red(outcome) for outcome in run.outcomes}
    return [replace(row, red=red.get(row.test_id, False), run_name=name) for row in rows]


def worst_first(rows: Iterable[ReportRow]) -> list[ReportRow]:
    """Failed tests before all others, then by verdict, then by how much slower."""
    return sorted(rows, key=lambda row: (not row.red, _badness(row.word), -(row.change or 0.0)))


def _badness(word: str) -> int:
    return _ORDER.index(word) if word in _ORDER else len(_ORDER)


def _outcomes(run: Run) -> dict[str, Outcome]:
    """How each test ended: a rerun that passed does not undo a failure."""
    return {outcome.test_id: outcome for outcome in run.outcomes} | run.not_passed


def _is_red(outcome: Outcome) -> bool:
    # An expected failure is kept as failed, so that it becomes no baseline, and turns nothing red.
    return outcome.outcome == "failed" and not outcome.reason.startswith("xfail: ")


def _timed(run: Run, ended: dict[str, Outcome]) -> list[ReportRow]:
    judged = {(one.test_id, one.name): one for one in run.judgements}
    exhausted = {(one.test_id, one.name) for one in run.out_of_memory}
    trials: dict[tuple[str, str], list[Measurement]] = {}
    for measurement in run.measurements:
        # What a measurement had taken before memory ran out is no result; that it ran out has a row of its own.
        if not (measurement.invalid and (measurement.test_id, measurement.key.name) in exhausted):
            trials.setdefault((measurement.test_id, measurement.key.identity), []).append(measurement)
    rows = []
    for (test_id, _), measurements in trials.items():
        standing = Trial(list(measurements)).standing(None)
        judgement, outcome = judged.get((test_id, standing.key.name)), ended.get(test_id)
        word, reason = (judgement.verdict, judgement.reason) if judgement is not None else _unjudged(standing, outcome)
        rows.append(
            ReportRow(
                run=run,
                what="time",
                test_id=test_id,
                label=standing.label,
                word=word,
                reason=reason,
                measurement=standing,
                processes=tuple(measurements),
                judgement=judgement,
                outcome=outcome,
            )
        )
    return rows


def _unjudged(measurement: Measurement, outcome: Outcome | None) -> tuple[str, str]:
    """How a test ended that has no verdict, and why."""
    for label in (OVERSUBSCRIBED, PROFILED):
        if label in measurement.samples.labels and (outcome is None or not _is_red(outcome)):
            return label.upper(), ""
    return _uncompared(outcome, measurement.invalid)


def _uncompared(outcome: Outcome | None, invalid: str) -> tuple[str, str]:
    if outcome is None or outcome.outcome != "passed":
        return _ended(outcome)
    return (Kind.INVALID.value, invalid) if invalid else (MEASURED, "")


def _ended(outcome: Outcome | None) -> tuple[str, str]:
    if outcome is None:
        return "INTERRUPTED", "the run was cut before the test had ended"
    if outcome.reason.startswith("xfail: "):
        return "XFAIL", outcome.reason
    words = {"passed": Kind.PASSED.value, "failed": FAILED, "skipped": SKIPPED}
    return words[outcome.outcome], outcome.reason


def _kernels(run: Run, ended: dict[str, Outcome]) -> list[ReportRow]:
    judged = {(one.test_id, one.name, one.target): one for one in run.exact}
    rows = []
    for resources in run.resources:
        exact = judged.get((resources.test_id, resources.key.name, resources.target))
        outcome = ended.get(resources.test_id)
        word, reason = (exact.verdict, exact.reason) if exact is not None else _uncompared(outcome, resources.invalid)
        rows.append(
            ReportRow(
                run=run,
                what="kernel",
                test_id=resources.test_id,
                label=resources.label,
                word=word,
                reason=reason,
                outcome=outcome,
                resources=resources,
                exact=exact,
            )
        )
    return rows


def _without_memory(run: Run, ended: dict[str, Outcome]) -> list[ReportRow]:
    return [
        ReportRow(
            run=run,
            what="memory",
            test_id=one.test_id,
            label=one.label,
            word=OUT_OF_MEMORY,
            reason=one.message,
            outcome=ended.get(one.test_id),
            out_of_memory=one,
        )
        for one in _first_of_each(run)
    ]


def _first_of_each(run: Run) -> list[OutOfMemory]:
    """What ran out first, unless it has a number: what a later round had no room for was measured in the first."""
    measured = {(one.test_id, one.key.name) for one in run.measurements if not one.invalid}
    first: dict[tuple[str, str | None], OutOfMemory] = {}
    for one in run.out_of_memory:
        if one.round == 1 or (one.test_id, one.name) not in measured:
            first.setdefault((one.test_id, one.name), one)
    return list(first.values())


def _bare(run: Run, outcome: Outcome) -> ReportRow:
    word, reason = _ended(outcome)
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
