"""The verdict on a measurement as a run file keeps it, with all that it rests on."""

import math
from dataclasses import dataclass

from .amounts import AboveZero, Amount, Chance, Count, FromZero, Magnitude, ProcessMedians
from .errors import BadInput
from .verdicts import Kind


@dataclass(frozen=True, slots=True)
class SpreadRecord:
    """A standard deviation of log seconds, where it comes from, and its degrees of freedom; None is taken as known."""

    value: FromZero
    origin: str
    freedom: AboveZero | None = None


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The processes of one session of a reference: medians in seconds, on which device, begun when."""

    process_medians: ProcessMedians
    device: str = ""
    started: str = ""


@dataclass(frozen=True, slots=True)
class PeakJudgement:
    """The verdict on the most memory that one call held, in bytes, less is better: see `stats.key_results`.

    `new_bytes` is None where the baseline has a peak and none was taken, `reference_bytes` where the baseline has none.
    `allowed_bytes` is by how much the two may differ.
    """

    verdict: str
    new_bytes: Amount | None
    reference_bytes: Amount | None = None
    allowed_bytes: Amount | None = None
    reason: str = ""

    @property
    def change(self) -> float | None:
        """The difference as a share of the reference: +0.1 takes a tenth more."""
        if self.new_bytes is None or not self.reference_bytes:
            return None
        return self.new_bytes / self.reference_bytes - 1

    @property
    def tolerance(self) -> float | None:
        """By how much the two may differ, as a share of the reference."""
        if self.allowed_bytes is None or not self.reference_bytes:
            return None
        return self.allowed_bytes / self.reference_bytes

    @property
    def outweighs(self) -> bool:
        """Whether it is worse than any verdict on the time but REGRESSED."""
        return self.verdict in (Kind.REGRESSED, Kind.INVALID)


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one measurement with all that it rests on: see `stats.verdicts.Verdict`. Differences in logs.

    `published` are figures from elsewhere that do not gate, in words.
    `reference_clock_hz` is the median clock behind the reference, in cycles per second, `clock_hz` that of the new
    processes; None where no probe ran.
    `limit_s` is the time of a call that just meets the limit (published, or a share of the roofline) that it was held
    against in place of a reference, in seconds; None where that was none.
    `limit` says what kind of limit that is (`published`, `floor`, `roofline`) and `limit_source` whose.
    `peak` is the verdict on its memory, beside that on its time; None where it has no peak and its reference none.
    `new_medians_s` are the medians of the new processes, in seconds. `shift` is by how much all tests of the run were
    slower together, which is taken out of the estimate; 0 where the estimate is the whole change. `changed` is what
    differs from the reference's environment; `siblings` how many like it, in the same run, it was held against;
    `fewest` how many new processes REGRESSED needs;
    `slower_processes` how many of the `compared_processes` of the reference were faster than the new centre.

    Raises:
        BadInput: an interval that cannot be, or only some of what a comparison with a reference always gives.
    """

    test_id: str
    label: str
    verdict: str
    tolerance: FromZero
    name: str = ""
    reason: str = ""
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    error: FromZero | None = None
    freedom: AboveZero | None = None
    p: Chance | None = None
    p_adjusted: Chance | None = None
    mde: FromZero | None = None
    reach: FromZero | None = None
    processes: Amount = 0
    new_s: Magnitude | None = None
    reference_s: Magnitude | None = None
    source: str = ""
    reference: tuple[SessionRecord, ...] = ()
    process_spread: SpreadRecord | None = None
    session_spread: SpreadRecord | None = None
    device_spread: SpreadRecord | None = None
    paired: bool = False
    unequal: bool = False
    remarks: tuple[str, ...] = ()
    published: tuple[str, ...] = ()
    reference_clock_hz: AboveZero | None = None
    limit_s: AboveZero | None = None
    peak: PeakJudgement | None = None
    new_medians_s: tuple[Magnitude, ...] = ()
    clock_hz: AboveZero | None = None
    shift: float = 0.0
    changed: tuple[str, ...] = ()
    limit: str = ""
    limit_source: str = ""
    siblings: Amount = 0
    fewest: Count = 1
    slower_processes: Amount = 0
    compared_processes: Amount = 0

    def __post_init__(self) -> None:
        if self.interval is not None and self.estimate is None:
            raise BadInput("there is an interval and no estimate; expected both, or no interval")
        compared = ("estimate", "new_s", "reference_s", "process_spread", "session_spread")
        missing = [name for name in compared if getattr(self, name) is None]
        if self.error is not None and missing:
            raise BadInput(
                f"there is an error of the estimate, and no {', '.join(missing)}; expected all or none"
            )
        if self.interval is not None and not self.interval[0] <= self.interval[1]:
            raise BadInput(f"interval is {self.interval}; expected the smaller end first")

    @property
    def compared(self) -> bool:
        """Whether it was held against a reference, and not against a limit or its siblings alone."""
        return self.error is not None

    @property
    def looks_slow(self) -> bool:
        """Return whether the estimate lies beyond the tolerance, or at all beyond a limit."""
        allowed = 0.0 if self.limit else math.log1p(self.tolerance)
        return self.estimate is not None and self.estimate > allowed

    @property
    def overall(self) -> str:
        """The word for the measurement: that on its time, unless that on its memory is worse."""
        outweighed = (
            self.peak is not None and self.peak.outweighs and self.verdict != Kind.REGRESSED
        )
        return self.peak.verdict if self.peak is not None and outweighed else self.verdict

    @property
    def baseline_medians_s(self) -> tuple[float, ...]:
        """The median of every process behind the reference, in seconds."""
        return tuple(value for session in self.reference for value in session.process_medians)
