"""Verdicts with everything that they rest on.

Statistics fill them, a run file keeps them, every door shows them.
"""

import datetime
import enum
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from .amounts import (
    AboveZero,
    Amount,
    Chance,
    Count,
    FromZero,
    Magnitude,
    ProcessMedians,
    Tolerance,
)
from .directions import more_is_better
from .entries import Entry
from .errors import BadInput, short_repr
from .keys import Scalar
from .reasons import Reason, first_missing
from .records import Ceiling
from .units import format_day, moment


class Kind(enum.StrEnum):
    """The word of a verdict. If several would be right, the first in this order is used."""

    INVALID = "INVALID"
    NO_BASELINE = "NO BASELINE"
    REGRESSED = "REGRESSED"
    SHIFTED = "SHIFTED"
    IMPROVED = "IMPROVED"
    PASSED = "PASSED"
    INCONCLUSIVE = "INCONCLUSIVE"


# The words of an exact verdict.
EXACT_WORDS = (Kind.PASSED, Kind.IMPROVED, Kind.REGRESSED, Kind.INVALID, Kind.NO_BASELINE)


@dataclass(frozen=True, slots=True)
class Group:
    """The medians of one session's processes on one device. They are in seconds.

    Args:
        device: the device's UUID; empty where there is none, as on a CPU, or it is unknown.
        started: when the session began, ISO 8601; empty is unknown.
    """

    medians_s: ProcessMedians
    device: str = ""
    started: str = ""

    @property
    def logs(self) -> list[float]:
        """The natural logarithms of the medians."""
        return [math.log(value) for value in self.medians_s]


@dataclass(frozen=True, slots=True)
class Spread:
    """A standard deviation of log seconds, and its origin.

    Degrees of freedom of None mean that it is known.
    """

    value: FromZero
    origin: str
    freedom: AboveZero | None = None

    @property
    def degrees(self) -> float:
        """The degrees of freedom for arithmetic. They are infinite where the value is known."""
        return finite_or_infinite(self.freedom)


def finite_or_infinite(freedom: float | None) -> float:
    """Return degrees of freedom for arithmetic.

    None, which JSON can hold, stands for infinite ones.
    """
    return math.inf if freedom is None else freedom


@dataclass(frozen=True, slots=True)
class Difference:
    """The slowdown of one side against the other. It is in log seconds; positive is slower.

    Args:
        freedom: of the t distribution that goes with it; None is the normal one.
        process: the spread between processes; of the new ones where the sides differ in it.
        device: the spread between devices; None where the same device is on both sides, or devices are unknown.
        paired: whether the reference holds this very device, and only that part of it was used.
        unequal: whether the new processes spread more than those of a reference from too few days.
        hidden: the spread between sessions that further processes of the same session do not make smaller, and that
            `process` holds as long as there is one of them.
        parts: the parts of its variance that are estimated, each with its degrees of freedom; first that of the new
            processes.
        new_s: centre of the new side, in seconds; `reference_s` that of the part of the reference that was used.
    """

    estimate: float
    error: FromZero
    freedom: AboveZero | None
    process: Spread
    session: Spread
    new_s: Magnitude
    reference_s: Magnitude
    device: Spread | None = None
    paired: bool = False
    unequal: bool = False
    hidden: FromZero = 0.0
    parts: tuple[tuple[float, AboveZero | None], ...] = ()

    @property
    def degrees(self) -> float:
        """The degrees of freedom for arithmetic. They are infinite for a normal distribution."""
        return finite_or_infinite(self.freedom)


@dataclass(frozen=True, slots=True)
class OddSession:
    """A session that is strange in many tests, in one direction.

    Args:
        device: the device's UUID; empty where there is none.
        started: when the session began, ISO 8601.
        strange: how many tests it is strange in.
        measured: how many tests of the session can be compared with other sessions.
        change: of the strange tests, the median share of time by which they differ from the other sessions.
    """

    device: str
    started: str
    strange: Count
    measured: Count
    change: float

    @property
    def text(self) -> str:
        """The session in a sentence.

        It reads `session of 3 Nov: 110 of 221 tests are 20 % slower`.
        """
        time, now = moment(self.started), datetime.datetime.now(datetime.UTC)
        day = format_day(time, now) if time is not None else self.started
        # `change` is positive for a slower session.
        amount, word = f"{abs(self.change) * 100:.0f} %", "slower" if self.change > 0 else "faster"
        return f"session of {day}: {self.strange} of {self.measured} tests are {amount} {word}"


@dataclass(frozen=True, slots=True)
class Reference:
    """The baseline of a measurement: its sessions and their origin.

    Args:
        tolerance: that the baseline itself asks for, as a share of time.
        achieved: the deviations of its sessions from the requested timing, each once: see `Samples.achieved`.
        clock_hz: the median clock of the sessions that know theirs, in cycles per second.
        moved: the groups as they would be in the new session, where all tests of it moved together (`shared`); none
            where they did not.
        shift: by how much that makes this test slower, in log seconds.
        odd: the sessions that were set aside, which `groups` no longer hold.
        commit: of the tests' code in the newest session; empty where it is unknown, as `driver` and `torch` are.
    """

    groups: tuple[Group, ...]
    source: str
    tolerance: Tolerance | None = None
    achieved: tuple[tuple[str, ...], ...] = ()
    clock_hz: AboveZero | None = None
    moved: tuple[Group, ...] = ()
    shift: float = 0.0
    peak_bytes: Amount | None = None
    odd: tuple[OddSession, ...] = ()
    commit: str = ""
    driver: str = ""
    torch: str = ""

    @property
    def day(self) -> str:
        """The UTC day of the newest session: `2026-11-20`. Empty where no session is dated."""
        return max(group.started for group in self.groups)[:10]

    @property
    def medians_s(self) -> tuple[float, ...]:
        """Every process's median, in seconds."""
        return tuple(value for group in self.groups for value in group.medians_s)

    @property
    def devices(self) -> int:
        """The number of devices behind it. Those without a UUID count as one."""
        return len({group.device for group in self.groups})

    @property
    def median_s(self) -> float:
        """The geometric mean of the processes' medians, in seconds.

        It is the centre of the comparison.
        """
        return math.exp(
            math.fsum(math.log(value) for value in self.medians_s) / len(self.medians_s)
        )

    def on(self, devices: Collection[str]) -> Sequence[Group]:
        """Return the sessions on these devices, or all without any."""
        groups = self.moved or self.groups
        return [group for group in groups if group.device in devices] or groups


@dataclass(frozen=True, slots=True)
class TimeLimit:
    """A limit for a time. `baselines.limit_texts` makes the sentences.

    Args:
        seconds: the time of a call that just meets it.
        entry: the published limit or the floor; None of a share of the roofline that the command line asks for.
        peak: of a floor or a share, the peak of the datasheet that it is a share of.
        share: of a floor or a share, the least share of that peak; 0.8 is 80 %.

    Raises:
        BadInput: neither an entry nor a share of a peak, or a share without its peak.
    """

    seconds: AboveZero
    entry: Entry | None = None
    peak: Ceiling | None = None
    share: AboveZero | None = None

    def __post_init__(self) -> None:
        """Refuse fields that make no limit.

        A published limit has an entry only. A share of the roofline has a share and its peak. A floor has all three.
        """
        if (self.peak is None) != (self.share is None) or (self.entry, self.peak) == (None, None):
            raise BadInput(
                "a limit lacks its entry, its share or its peak; expected an entry alone, share and peak together, or "
                "all three for a floor"
            )

    @property
    def kind(self) -> Literal["published", "floor", "roofline"]:
        """The origin of the limit."""
        if self.entry is None:
            return "roofline"
        return "published" if self.peak is None else "floor"


@dataclass(frozen=True, slots=True)
class LastPass:
    """The last run here in which a measurement passed.

    Args:
        run: its id.
        day: on which it began, in UTC: `2026-11-26`.
        changed: what differs from it today: `driver 550.54 → 570.86`.
        now: the name under which the run at hand is saved; empty without one.
    """

    run: str
    day: str
    changed: tuple[str, ...] = ()
    now: str = ""


# A published limit that could gate, and why it does not gate a measurement.
Idle = tuple[Entry, str]


@dataclass(frozen=True, slots=True)
class Subject:
    """The measurement of a verdict, before its time is compared.

    Args:
        clock_hz: the median clock of the new processes, in cycles per second; None where no probe ran.
        changed: what differs from the environments behind the baseline.
        left_out: of each process that does not count the reason.
        published: figures from elsewhere beside it, which never gate.
        idle: published limits that could gate and do not here, each with the reason.
        last_pass: of a time slower than its baseline; None where no run here holds one.
        metric: of a figure in whose own terms its difference is told; empty of a time.
    """

    test_id: str = ""
    label: str = ""
    name: str = ""
    clock_hz: AboveZero | None = None
    changed: tuple[str, ...] = ()
    left_out: tuple[Reason, ...] = ()
    published: tuple[Entry, ...] = ()
    idle: tuple[Idle, ...] = ()
    last_pass: LastPass | None = None
    metric: str = ""


# The subject of a verdict on something else than a test's measurement.
UNNAMED = Subject()


@dataclass(frozen=True, slots=True)
class FigureChange:
    """One figure that differs from its baseline.

    `verdict` is `worse`, `better`, `slack` (worse, allowed) or empty.
    """

    figure: str
    before: int | None
    after: int | None
    verdict: Literal["worse", "better", "slack", ""] = ""


@dataclass(frozen=True, slots=True)
class ExactVerdict:
    """The verdict on a figure with an exact baseline. No round repeats it.

    Args:
        test_id: the test's node id; empty of a peak, as `label` is: the verdict on its time has both.
        label: the result as people call it.
        metric: the kind of result: `kernel` of a compiled kernel, `peak_bytes` of the most memory that a call held.
        verdict: `PASSED`, `IMPROVED`, `REGRESSED`, `INVALID` or `NO BASELINE`.
        name: distinguishes several results of one test.
        target: of a compiled kernel, what it is compiled for.
        reason: why it could not be judged; empty where it could.
        source: the file of the baseline.
        value: the figure; None where the kind has several, as a kernel has, and where none was taken.
        unit: of `value`.
        baseline_value: the figure of the baseline; None where there is none.
        allowed: by how much the two may differ, in `unit`; None where that says nothing.
        changes: of a kind with several figures those that differ.
        remarks: what may explain a difference.
        benchmark: the benchmark that the test is; empty where other records say it.
        parameters: those of the test.

    Raises:
        BadInput: a word that no exact verdict has.
    """

    test_id: str
    label: str
    metric: str
    verdict: str
    name: str = ""
    target: str = ""
    reason: str = ""
    source: str = ""
    # A whole number stays one in a file, and shows all its digits.
    value: int | float | None = None
    unit: str = ""
    baseline_value: int | float | None = None
    allowed: Amount | FromZero | None = None
    changes: tuple[FigureChange, ...] = ()
    remarks: tuple[str, ...] = ()
    benchmark: str = ""
    parameters: dict[str, Scalar] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if self.verdict not in EXACT_WORDS:
            expected = ", ".join(EXACT_WORDS)
            raise BadInput(f"verdict is {short_repr(self.verdict)}; expected one of {expected}")

    @property
    def change(self) -> float | None:
        """The difference as a share of the baseline. +0.1 is a tenth more."""
        if self.value is None or not self.baseline_value:
            return None
        return self.value / self.baseline_value - 1

    @property
    def tolerance(self) -> float | None:
        """The allowed difference, as a share of the baseline."""
        if self.allowed is None or not self.baseline_value:
            return None
        return self.allowed / self.baseline_value


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, with everything needed to explain it.

    Differences are of time, in logs; positive is slower.

    Args:
        reasons: why it is this word, and what would decide it; `baselines.reasons` makes the sentence.
        p: of "no more than the smallest effect worth reporting slower"; `p_spent` pays for the run's interim analyses,
            and `p_adjusted` also for its other tests (None until `settle`).
        mde: the minimum detectable effect, as a share of time: found 80 times in 100 at the 1 % level with the
            processes at hand.
        reach: the slowdown, as a share of time, that this run's rule finds 80 times in 100 once its rounds are used.
        slower_processes: of the reference's processes that were compared (the device's own, where there are any), how
            many were faster than the new ones' centre; `compared_processes` is how many those are.
        new_medians_s: the medians of the new processes, in seconds.
        limit: what it was held against in place of a reference; `estimate` is then by how much it lies beyond.
        siblings: how many like it, in the same run, it was held against in place of a reference.
        processes_for_red: how many new processes REGRESSED needs here.
        hot: by how much the further rounds lie above the first process, in log seconds, where chance is no excuse and
            the reference holds first processes alone; else 0.
        futile: whether more processes of this run would hardly decide, since the baseline's own error leaves it open.
        peak: the verdict on the memory, beside this one on the time; None where no peak was taken or known.

    Raises:
        BadInput: an interval that cannot be, a difference without an estimate, or a reason without its numbers.
    """

    kind: Kind
    tolerance: FromZero
    subject: Subject = UNNAMED
    reasons: tuple[Reason, ...] = ()
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    p: Chance | None = None
    p_spent: Chance | None = None
    p_adjusted: Chance | None = None
    reference: Reference | None = None
    difference: Difference | None = None
    processes: Amount = 0
    mde: FromZero | None = None
    reach: FromZero | None = None
    slower_processes: Amount = 0
    compared_processes: Amount = 0
    new_medians_s: tuple[Magnitude, ...] = ()
    limit: TimeLimit | None = None
    siblings: Amount = 0
    processes_for_red: Count = 1
    hot: float = 0.0
    futile: bool = False
    peak: ExactVerdict | None = None

    def __post_init__(self) -> None:
        """Refuse fields that contradict each other, and reasons that name a missing field."""
        if self.estimate is None and (self.interval is not None or self.difference is not None):
            word = "a difference" if self.interval is None else "an interval"
            raise BadInput(f"a verdict has {word} but no estimate; expected both, or neither")
        if self.interval is not None and not self.interval[0] <= self.interval[1]:
            raise BadInput(f"interval is {self.interval}; expected the smaller end first")
        if missing := first_missing(self.reasons, self):
            raise BadInput(f"{missing}; expected the verdict to hold this field")

    @property
    def bad_peak(self) -> ExactVerdict | None:
        """The verdict on its memory if that is REGRESSED or INVALID; else None."""
        bad = self.peak is not None and self.peak.verdict in (Kind.REGRESSED, Kind.INVALID)
        return self.peak if bad else None

    @property
    def overall(self) -> Kind:
        """The word for the measurement.

        It is the one on its time, or the one on its memory if that is worse.
        """
        peak = self.bad_peak
        return self.kind if peak is None or self.kind is Kind.REGRESSED else Kind(peak.verdict)

    @property
    def compared(self) -> bool:
        """True if it was compared with a reference. A limit or siblings are no reference."""
        return self.difference is not None

    @property
    def decided(self) -> bool:
        """True if further processes would not change it."""
        return self.kind not in (Kind.INCONCLUSIVE, Kind.INVALID)

    @property
    def looks_slow(self) -> bool:
        """True if the estimate lies beyond the tolerance or limit."""
        # Of a limit the estimate is the distance beyond it already.
        tolerance = 0.0 if self.limit is not None else math.log1p(self.tolerance)
        return self.estimate is not None and self.estimate > tolerance

    @property
    def own_estimate(self) -> float | None:
        """The estimate in its subject's terms: in logs of the figure, where more may be better."""
        if self.estimate is None or not more_is_better(self.subject.metric):
            return self.estimate
        return -self.estimate

    @property
    def own_interval(self) -> tuple[float, float] | None:
        """The interval in its subject's terms, as `own_estimate`."""
        if self.interval is None or not more_is_better(self.subject.metric):
            return self.interval
        # The sign turns the order of the ends around.
        low, high = self.interval
        return -high, -low

    @property
    def sessions(self) -> tuple[Group, ...]:
        """The sessions of the reference; none where there is no reference."""
        return self.reference.groups if self.reference is not None else ()

    @property
    def baseline_medians_s(self) -> tuple[float, ...]:
        """The median of every process behind the reference, in seconds."""
        return self.reference.medians_s if self.reference is not None else ()

    @property
    def limit_s(self) -> float | None:
        """The time that just meets the limit, in seconds. None where there is no limit."""
        return self.limit.seconds if self.limit is not None else None
