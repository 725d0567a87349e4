"""A row of a report: a measurement, a compiled kernel or a test of a run, with all that was said of it."""

import math
from dataclasses import dataclass
from typing import Literal

from ..core.memory import OutOfMemory
from ..core.records import Judgement, Measurement, Outcome, PeakJudgement, rate
from ..core.resources import ExactJudgement, Resources
from .runs import Run
from .stats import growth

What = Literal["time", "kernel", "memory", "test"]


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
        word: the one that every file of a report says, see `ending.said`: the verdict, FAILED where the test failed for
            itself, else how it ended.
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
        centre = self.judgement.new_s if self.judgement is not None and judged else None
        return centre if centre is not None else self.measurement.median_s

    @property
    def counted(self) -> int | None:
        """So many processes stand behind the number, without those that do not count; None of an invalid one."""
        judged = self.judgement.processes if self.judgement is not None else 0
        return judged or len({one.process for one in self.processes if not one.invalid}) or None

    @property
    def rate(self) -> float | None:
        """Bytes (or FLOP) per second of `seconds`, in the counting of the key's metric; None where it has no rate."""
        return self.rate_of(self.seconds)

    @property
    def reference_s(self) -> float | None:
        """Seconds per call that it was compared with; None where it was not, or with a published limit."""
        return self.judgement.reference_s if self.judgement is not None else None

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
        return None if estimate is None else _finite(growth(estimate))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 99 % interval of `change`."""
        interval = self.judgement.interval if self.judgement is not None else None
        return None if interval is None else (growth(interval[0]), growth(interval[1]))

    @property
    def peak(self) -> PeakJudgement | None:
        """The verdict on its memory; None where there is none."""
        return self.judgement.peak if self.judgement is not None else None

    @property
    def by_peak(self) -> bool:
        """Whether its word is that of its memory, and its time has another."""
        judged, peak = self.judgement, self.peak
        return (
            judged is not None and peak is not None and peak.outweighs and self.word == peak.verdict != judged.verdict
        )

    @property
    def share_of_ceiling(self) -> float | None:
        """The rate of `seconds` as a share of the roofline; None where either is unknown."""
        ceiling = self.measurement.ceiling if self.measurement is not None else None
        achieved = self.rate_of(self.seconds, ceiling.metric) if ceiling is not None else None
        return _positive(achieved / ceiling.value) if ceiling is not None and achieved is not None else None

    @property
    def tokens_per_second(self) -> float | None:
        """The tokens of a call by `seconds`; None where there are none, or no rate means anything."""
        one, seconds = self.measurement, self.seconds
        if one is None or not one.work.tokens or seconds is None or not one.has_rate:
            return None
        return _positive(one.work.tokens / seconds)

    def rate_of(self, seconds: float | None, metric: str | None = None) -> float | None:
        """Bytes (or FLOP) per second of this row's work done in `seconds`; None where no number above zero says it.

        Args:
            seconds: per call.
            metric: whose counting; the key's own by default.
        """
        one = self.measurement
        if one is None or not seconds or not one.has_rate:
            return None
        return _positive(rate(one.work, metric or one.key.metric, seconds))


def _positive(value: float | None) -> float | None:
    # A roofline is not bounded; a file made by hand can have a share of it that no number holds.
    return value if value is not None and 0 < value < math.inf else None


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
