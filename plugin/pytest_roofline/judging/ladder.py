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
from ..core.units import KIB
from ..core.work import rate_suffix
from .hardware import BOUNDED_FROM_BYTES
from .verdicts import WORTH_REPORTING, Kind

# Up to here a copy's time is nearly all launching, and tells nothing of bandwidth.
LAUNCH_MOST_BYTES = 64 * KIB
# A clock that fell by less explains no slowdown that a tolerance would find.
CLOCK_FELL = 0.02


class Rung(enum.Enum):
    """A part of a device, by the words of a reader."""

    CLOCK = "clock"
    ENGINE = "copy engine"
    MULTIPROCESSORS = "copies by multiprocessors"
    HOST_LINK = "host link"
    PEER_LINK = "peer link"
    PRODUCT = "matrix products"
    LAUNCH = "launching"


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
        """Whether it was shown to be as fast as before."""
        return self.word in (Kind.PASSED.value, Kind.IMPROVED.value)


@dataclass(frozen=True, slots=True)
class Step:
    """One rung with what is known of it.

    Args:
        change: the middle change of what is sick, as log time; the clock's own, also where it is fine, as the log of
            its frequency. None where it is not known.
        sick: how many measurements are sick, of `seen` that were compared.
        cause: why a clock is slow, where the device tells.
    """

    rung: Rung
    state: State
    change: float | None = None
    sick: int = 0
    seen: int = 0
    cause: str = ""


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


# (the metric's beginning, the benchmark's beginning, the rung); the first that fits. Empty fits all.
# `auto` is the engine that the driver chooses: between host and device a copy engine, within a device it may be either.
_RULES: tuple[tuple[str, str, Rung], ...] = (
    ("auto_traffic_", "", Rung.ENGINE),
    ("ce_traffic_", "", Rung.ENGINE),
    ("sdma_traffic_", "", Rung.ENGINE),
    ("sm_traffic_", "", Rung.MULTIPROCESSORS),
    ("blit_traffic_", "", Rung.MULTIPROCESSORS),
    ("", "stream", Rung.MULTIPROCESSORS),
    ("pinned_", "", Rung.HOST_LINK),
    ("", "peer_copy", Rung.PEER_LINK),
)


def rung_of(key: Key) -> Rung | None:
    """The part of a device that a measurement exercises above all; None where it is none, or several.

    Processors have no rungs: their copies, links and arithmetic are one thing. Copies between 64 KiB and 16 MiB are
    neither all launching nor all bandwidth. Copies from pageable memory tell of the host's processor.
    """
    if "-cores" in (key.hardware.partition or ""):
        return None
    if rate_suffix(key.metric) == "TFLOPS":
        return Rung.PRODUCT if key.hardware.devices == 1 else None
    found = next((rung for metric, benchmark, rung in _RULES if _fits(key, metric, benchmark)), None)
    if found is Rung.PEER_LINK and not _between_devices(key):
        return None
    size = key.parameters.get("size_bytes")
    if found is None or not isinstance(size, int):
        return found
    return Rung.LAUNCH if size <= LAUNCH_MOST_BYTES else found if size >= BOUNDED_FROM_BYTES else None


def _fits(key: Key, metric: str, benchmark: str) -> bool:
    return key.metric.startswith(metric) and key.benchmark.startswith(benchmark)


def _between_devices(key: Key) -> bool:
    return key.hardware.devices not in (None, 1) and "auto_payload" in key.metric


def slowed_by(measurement: Measurement) -> str:
    """The cause for which the device slowed itself down in most blocks of a measurement; empty where it did not."""
    samples = measurement.samples
    for cause, count in samples.excluded.items():
        if cause in (THERMAL, HARDWARE, BRAKE) and count > MOST_EXCLUDED * len(samples.blocks):
            return cause
    return ""


def climb(found: Iterable[Seen]) -> Ladder | None:
    """The ladder of a run; None where nothing regressed on an accelerator."""
    everything = [seen for seen in found if "-cores" not in (seen.key.hardware.partition or "")]
    regressed = [seen for seen in everything if seen.word == Kind.REGRESSED.value]
    if not regressed:
        return None
    by_rung: dict[Rung | None, list[Seen]] = {}
    for seen in everything:
        by_rung.setdefault(rung_of(seen.key), []).append(seen)
    steps = [_clock(everything), *(_step(rung, by_rung.get(rung, [])) for rung in Rung if rung is not Rung.CLOCK)]
    return Ladder(tuple(steps), len(regressed), sum(rung_of(seen.key) is None for seen in regressed))


def _clock(found: Sequence[Seen]) -> Step:
    """Sick where the middle clock fell, or the device slowed itself down; a clock that rose is fine."""
    causes = [seen.slowed for seen in found if seen.slowed]
    moved = [seen.clock for seen in found if seen.clock is not None]
    change = median(moved) if moved else None
    fell = change is not None and change < math.log1p(-CLOCK_FELL)
    if not (fell or causes):
        return Step(Rung.CLOCK, State.UNKNOWN if change is None else State.FINE, change, seen=len(moved))
    slow = sum(value < math.log1p(-CLOCK_FELL) for value in moved)
    cause = max(causes, key=causes.count, default="")
    seen = max(len(moved), len(causes))
    return Step(Rung.CLOCK, State.SICK, change, sick=slow or len(causes), seen=seen, cause=cause)


def _step(rung: Rung, found: Sequence[Seen]) -> Step:
    compared = [seen for seen in found if seen.estimate is not None]
    sick = [seen for seen in compared if seen.sick]
    fine = [seen for seen in compared if seen.fine]
    if sick:
        change = median(seen.estimate for seen in sick if seen.estimate is not None)
        return Step(rung, State.SICK, change, sick=len(sick), seen=len(compared))
    # One open test among many that are fine says nothing against a part; as many open ones as fine ones do.
    shown = bool(fine) and 2 * len(fine) > len(compared)
    return Step(rung, State.FINE if shown else State.UNKNOWN, seen=len(compared))
