"""Which part of a device is sick where tests regressed, and which is fine: read from the verdicts of the run itself.

Every rung stands for one part. Its state comes from the tests that exercise little else; what no test exercised is not
known, and is never called fine.
"""

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ..core.keys import Key
from ..core.machine import BRAKE, HARDWARE, THERMAL
from ..core.records import Measurement
from ..core.samples import MOST_EXCLUDED
from .rungs import Rung, rung_of
from .verdicts import WORTH_REPORTING, Kind

# A clock that fell by less explains no slowdown that a tolerance would find.
CLOCK_FELL = 0.02
# Of a slowdown, what a fallen clock has to make up at least to be its cause.
EXPLAINS = 0.5
# A part is sick where at least so many of its decided tests are: one size alone may have got another algorithm.
SICK_FROM = 1 / 3


class State(enum.Enum):
    """What is known of a rung."""

    SICK = "sick"
    FINE = "fine"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Seen:
    """What a run found of one measurement, as far as the ladder asks.

    Args:
        key: of the measurement.
        word: its verdict, or how its test ended.
        tolerance: of time.
        estimate: how much slower, in log seconds; None where nothing was compared.
        interval: of that.
        clock: how the device's clock moved since the baseline, in logs; negative is slower. None is unknown.
        slowed: the cause that spoiled most of its blocks, or is named for it; empty where none did.
    """

    key: Key
    word: str
    tolerance: float
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    clock: float | None = None
    slowed: str = ""

    @property
    def sick(self) -> bool:
        """Whether it is REGRESSED, or not decided yet surely slower than what is worth reporting."""
        if self.word != Kind.INCONCLUSIVE.value or self.interval is None:
            return self.word == Kind.REGRESSED.value
        return self.interval[0] > math.log1p(WORTH_REPORTING * self.tolerance)

    @property
    def fine(self) -> bool:
        """Whether it was shown not to be slower than before by more than its tolerance."""
        return self.word in (Kind.PASSED.value, Kind.IMPROVED.value)


@dataclass(frozen=True, slots=True)
class Step:
    """One rung with what is known of it.

    Args:
        change: the middle change of what is sick, as log time; the clock's own, also where it is fine, as the log of
            its frequency. None where it is not known; of a sick clock, where only the device says that it slowed down.
        sick: how many measurements are sick, of `seen` that were compared.
        cause: why a clock is slow, where the device tells.
        clocked: whether a clock that fell would explain what is sick, as far as it is known under what clock that ran.
        alone: of a part that is not sick, the tests that are all the same, by name.
    """

    rung: Rung
    state: State
    change: float | None = None
    sick: int = 0
    seen: int = 0
    cause: str = ""
    clocked: bool = False
    alone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Ladder:
    """Every rung, in a fixed order, and how many regressed measurements stand on none."""

    steps: tuple[Step, ...]
    regressed: int
    elsewhere: int

    def of(self, state: State) -> list[Step]:
        """The rungs in a state."""
        return [step for step in self.steps if step.state is state]

    def step(self, rung: Rung) -> Step:
        """What is known of a rung."""
        return next(step for step in self.steps if step.rung is rung)


def slowed_by(measurement: Measurement) -> str:
    """The cause for which the device slowed itself down in most blocks of a measurement; empty where it did not."""
    samples = measurement.samples
    for cause, count in samples.excluded.items():
        if cause in (THERMAL, HARDWARE, BRAKE) and count > MOST_EXCLUDED * len(samples.blocks):
            return cause
    return ""


def climb(found: Iterable[Seen]) -> Ladder | None:
    """The ladder of a run; None where nothing regressed on an accelerator, or nothing tells of a part by itself."""
    everything = [seen for seen in found if "-cores" not in (seen.key.hardware.partition or "")]
    regressed = [seen for seen in everything if seen.word == Kind.REGRESSED.value]
    if not regressed:
        return None
    by_rung: dict[Rung | None, list[Seen]] = {}
    for seen in everything:
        by_rung.setdefault(rung_of(seen.key), []).append(seen)
    clock, parts = _clock(everything), [_step(rung, by_rung.get(rung, [])) for rung in Rung if rung is not Rung.CLOCK]
    if clock.state is not State.SICK and not any(step.state is not State.UNKNOWN or step.alone for step in parts):
        return None
    return Ladder((clock, *parts), len(regressed), sum(rung_of(seen.key) is None for seen in regressed))


def _clock(found: Sequence[Seen]) -> Step:
    """Sick where it fell in enough of the sick tests, or the device slowed itself down; fine where it fell in none.

    A clock under copies tells nothing of that under arithmetic, which draws the power, so sick products are asked
    alone.
    """
    sick = [seen for seen in found if seen.sick]
    asked = [seen for seen in sick if rung_of(seen.key) is Rung.PRODUCT] or sick
    moved = [seen.clock for seen in asked if seen.clock is not None]
    fell = [seen for seen in asked if seen.clock is not None and seen.clock < math.log1p(-CLOCK_FELL)]
    causes = [seen.slowed for seen in found if seen.slowed]
    cause = max(causes, key=causes.count, default="")
    if fell and len(fell) >= SICK_FROM * len(moved):
        change = median(seen.clock for seen in fell if seen.clock is not None)
        return Step(Rung.CLOCK, State.SICK, change, len(fell), len(moved), cause, _clocked(fell))
    if causes:
        return Step(Rung.CLOCK, State.SICK, None, len(causes), len(found), cause)
    state = State.FINE if moved and not fell else State.UNKNOWN
    return Step(Rung.CLOCK, state, median(moved) if moved else None, seen=len(moved))


def _clocked(sick: Sequence[Seen]) -> bool:
    """Whether the clock fell by enough to explain by how much these are slower; where it is not known, it may have."""
    known = [(seen.estimate, seen.clock) for seen in sick if seen.estimate is not None and seen.clock is not None]
    if not known:
        return True
    return -median(clock for _, clock in known) >= EXPLAINS * median(slower for slower, _ in known)


def _step(rung: Rung, found: Sequence[Seen]) -> Step:
    compared = [seen for seen in found if seen.estimate is not None]
    sick = [seen for seen in compared if seen.sick]
    fine = [seen for seen in compared if seen.fine]
    # Every pair of devices is a link of its own, of which one may be sick.
    enough = rung is Rung.PEER_LINK or len(sick) >= SICK_FROM * (len(sick) + len(fine))
    if sick and enough:
        change = median(seen.estimate for seen in sick if seen.estimate is not None)
        return Step(rung, State.SICK, change, len(sick), len(compared), clocked=_clocked(sick))
    # One open test among many that are fine says nothing against a part; as many open ones as fine ones do.
    shown = bool(fine) and 2 * len(fine) > len(compared)
    state = State.FINE if shown else State.UNKNOWN
    return Step(rung, state, seen=len(compared), alone=tuple(seen.key.label for seen in sick))
