"""The verdict on a time with all that it rests on: statistics fill it, a run file keeps it, every door shows it."""

import datetime
import enum
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from .amounts import AboveZero, Amount, Count, FromZero, Magnitude, ProcessMedians, Tolerance
from .units import format_day, moment


class Kind(enum.StrEnum):
    """What can be said of a measurement, in the order in which one finding hides another."""

    INVALID = "INVALID"
    NO_BASELINE = "NO BASELINE"
    REGRESSED = "REGRESSED"
    SHIFTED = "SHIFTED"
    IMPROVED = "IMPROVED"
    PASSED = "PASSED"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class Group:
    """The processes of one session on one device: their medians in seconds.

    Args:
        device: the device's UUID; empty where there is none, as on a CPU, or it is not told.
        started: when the session began, ISO 8601; empty is unknown.
    """

    medians_s: ProcessMedians
    device: str = ""
    started: str = ""

    @property
    def logs(self) -> list[float]:
        """The log-medians."""
        return [math.log(value) for value in self.medians_s]


@dataclass(frozen=True, slots=True)
class Spread:
    """A standard deviation of log seconds, where it comes from, and its degrees of freedom; None is taken as known."""

    value: FromZero
    origin: str
    freedom: AboveZero | None = None

    @property
    def degrees(self) -> float:
        """The degrees of freedom for arithmetic: infinite where the value is known."""
        return finite_or_infinite(self.freedom)


def finite_or_infinite(freedom: float | None) -> float:
    """Return degrees of freedom for arithmetic; None, which JSON can hold, stands for infinite ones."""
    return math.inf if freedom is None else freedom


@dataclass(frozen=True, slots=True)
class Difference:
    """How much slower one side is than the other, in log seconds; positive is slower.

    Args:
        freedom: of the t distribution that goes with it; None is the normal one.
        process: the spread between processes; of the new ones where the sides differ in it.
        device: the spread between devices; None where the same device is on both sides, or nothing tells them apart.
        paired: whether the reference holds this very device, and only that part of it was used.
        unequal: whether the new processes spread more than the reference's of too few sittings.
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
        """The degrees of freedom for arithmetic: infinite of a normal distribution."""
        return finite_or_infinite(self.freedom)


@dataclass(frozen=True, slots=True)
class OddSession:
    """A session that is strange in many tests, all in one direction.

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
        """`session of 3 Nov: 110 of 221 tests 20 % slower`."""
        time, now = moment(self.started), datetime.datetime.now(datetime.UTC)
        day = format_day(time, now) if time is not None else self.started
        by, word = f"{abs(self.change) * 100:.0f} %", "slower" if self.change > 0 else "faster"
        return f"session of {day}: {self.strange} of {self.measured} tests {by} {word}"


@dataclass(frozen=True, slots=True)
class Reference:
    """The baseline of a measurement: the processes of its sessions, and where they come from.

    Args:
        tolerance: that the baseline itself asks for, as a share of time.
        achieved: how its sessions were timed where that was not as asked, each once: see `Samples.achieved`.
        clock_hz: the median clock of the sessions that know theirs, in cycles per second.
        moved: the groups as they would be in the new session, where all tests of it moved together (`shared`); none
            where they did not.
        shift: by how much that makes this test slower, in log seconds.
        odd: the sessions that were set aside, which `groups` no longer hold.
    """

    groups: tuple[Group, ...]
    source: str
    tolerance: Tolerance | None = None
    achieved: frozenset[tuple[str, ...]] = frozenset()
    clock_hz: AboveZero | None = None
    moved: tuple[Group, ...] = ()
    shift: float = 0.0
    peak_bytes: Amount | None = None
    odd: tuple[OddSession, ...] = ()

    @property
    def medians_s(self) -> tuple[float, ...]:
        """Every process's median, in seconds."""
        return tuple(value for group in self.groups for value in group.medians_s)

    @property
    def devices(self) -> int:
        """How many devices stand behind it; those that are not told count as one."""
        return len({group.device for group in self.groups})

    @property
    def median_s(self) -> float:
        """The geometric mean of the processes' medians, in seconds: the centre of the comparison."""
        return math.exp(
            math.fsum(math.log(value) for value in self.medians_s) / len(self.medians_s)
        )

    def on(self, devices: Collection[str]) -> Sequence[Group]:
        """The sessions on these devices, where there are some; else all."""
        groups = self.moved or self.groups
        return [group for group in groups if group.device in devices] or groups
