"""The verdict on a measurement as a run file keeps it, with all that it rests on."""

from dataclasses import dataclass

from .errors import BadInput, require_amounts, require_positive


@dataclass(frozen=True, slots=True)
class SpreadRecord:
    """A standard deviation of log seconds, where it comes from, and its degrees of freedom; None is taken as known."""

    value: float
    origin: str
    freedom: float | None = None

    def __post_init__(self) -> None:
        require_amounts(self, above_zero=("freedom",), from_zero=("value",))


@dataclass(frozen=True, slots=True)
class SessionRecord:
    """The processes of one session of a reference: medians in seconds, on which device, begun when."""

    process_medians: tuple[float, ...]
    device: str = ""
    started: str = ""

    def __post_init__(self) -> None:
        if not self.process_medians:
            raise BadInput("process_medians is empty; expected the median of at least one process")
        require_positive(self.process_medians, "process_medians")


@dataclass(frozen=True, slots=True)
class PeakJudgement:
    """The verdict on the most memory that one call held, in bytes, less is better: see `stats.key_results`.

    `new_bytes` is None where the baseline has a peak and none was taken, `reference_bytes` where the baseline has none.
    `allowed_bytes` is by how much the two may differ.
    """

    verdict: str
    new_bytes: int | None
    reference_bytes: int | None = None
    allowed_bytes: int | None = None
    reason: str = ""

    def __post_init__(self) -> None:
        require_amounts(self, from_zero=("new_bytes", "reference_bytes", "allowed_bytes"))

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
        return self.verdict in ("REGRESSED", "INVALID")


@dataclass(frozen=True, slots=True)
class Judgement:
    """The verdict on one measurement with all that it rests on: see `stats.verdicts.Verdict`. Differences in logs.

    `published` are figures from elsewhere that do not gate, in words.
    `reference_clock_hz` is the median clock behind the reference, in cycles per second, `clock_hz` that of the new
    processes; None where no probe ran.
    `limit_s` is the time of a call that just meets the limit (published, or a share of the roofline) that it was held
    against in place of a reference, in seconds; None where that was none, and in files from before it was kept.
    `limit` says what kind of limit that is (`published`, `floor`, `roofline`) and `limit_source` whose.
    `peak` is the verdict on its memory, beside that on its time; None where it has no peak and its reference none.
    `new_medians_s` are the medians of the new processes, in seconds. `shift` is by how much all tests of the run were
    slower together, which was taken out; `changed` is what differs from the reference's environment; `siblings` how
    many like it, in the same run, it was held against; `fewest` how many new processes REGRESSED needs;
    `slower_processes` how many of the `compared_processes` of the reference were faster than the new centre.
    Files from before these were kept have none of them.

    Raises:
        BadInput: a value that cannot be, or only some of those that a comparison with a reference always gives.
    """

    test_id: str
    label: str
    verdict: str
    tolerance: float
    name: str = ""
    reason: str = ""
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    error: float | None = None
    freedom: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    mde: float | None = None
    reach: float | None = None
    processes: int = 0
    new_s: float | None = None
    reference_s: float | None = None
    source: str = ""
    reference: tuple[SessionRecord, ...] = ()
    process_spread: SpreadRecord | None = None
    session_spread: SpreadRecord | None = None
    device_spread: SpreadRecord | None = None
    paired: bool = False
    unequal: bool = False
    remarks: tuple[str, ...] = ()
    published: tuple[str, ...] = ()
    reference_clock_hz: float | None = None
    limit_s: float | None = None
    peak: PeakJudgement | None = None
    new_medians_s: tuple[float, ...] = ()
    clock_hz: float | None = None
    shift: float = 0.0
    changed: tuple[str, ...] = ()
    limit: str = ""
    limit_source: str = ""
    siblings: int = 0
    fewest: int = 1
    slower_processes: int = 0
    compared_processes: int = 0

    def __post_init__(self) -> None:
        require_amounts(
            self,
            above_zero=("limit_s", "freedom", "reference_clock_hz", "clock_hz", "fewest"),
            from_zero=(
                *("tolerance", "error", "mde", "reach", "processes", "siblings"),
                *("slower_processes", "compared_processes"),
            ),
        )
        require_positive(self.new_medians_s, "new_medians_s")
        for name in ("p", "p_adjusted"):
            value = getattr(self, name)
            if value is not None and not 0 <= value <= 1:
                raise BadInput(f"{name} is {value!r}; expected a chance from 0 to 1")
        if self.interval is not None and self.estimate is None:
            raise BadInput("there is an interval and no estimate; expected both, or no interval")
        for name in ("new_s", "reference_s"):
            if getattr(self, name) is not None:
                require_positive((getattr(self, name),), name)
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
    def overall(self) -> str:
        """The word for the measurement: that on its time, unless that on its memory is worse."""
        outweighed = self.peak is not None and self.peak.outweighs and self.verdict != "REGRESSED"
        return self.peak.verdict if self.peak is not None and outweighed else self.verdict

    @property
    def baseline_medians_s(self) -> tuple[float, ...]:
        """The median of every process behind the reference, in seconds."""
        return tuple(value for session in self.reference for value in session.process_medians)
