"""Which parts of a device are slower where tests regressed, and which are fine: read from the run's own verdicts.

Every rung stands for one part. Its state comes from the tests that exercise little else; what no test exercised is not
known, and is never called fine. It says where to look, never what the cause is.
"""

import enum
import math
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from ..core.facts import BRAKE, HARDWARE, THERMAL
from ..core.keys import Key
from ..core.records import Measurement
from ..core.samples import MOST_EXCLUDED
from ..core.units import KIB
from ..core.work import rate_suffix
from ..hardware import BOUNDED_FROM_BYTES
from .outlook import WORTH_REPORTING
from .verdicts import Kind

# Up to here a copy's time is nearly all launching, and tells nothing of bandwidth.
LAUNCH_MOST_BYTES = 64 * KIB


class Rung(enum.Enum):
    """A part of a device, by the words of a reader."""

    CLOCK = "clock"
    ENGINE = "copy engine"
    MULTIPROCESSORS = "copies by multiprocessors"
    HOST_LINK = "host link"
    PEER_LINK = "peer link"
    PRODUCT = "matrix products"
    LAUNCH = "launching"


# By how a metric begins; the first that fits.
# `auto` is the engine that the driver chooses: between host and device a copy engine, within a device it may be either.
_METRICS = {
    "pinned_": Rung.HOST_LINK,
    "auto_traffic_": Rung.ENGINE,
    "ce_traffic_": Rung.ENGINE,
    "sdma_traffic_": Rung.ENGINE,
    "sm_traffic_": Rung.MULTIPROCESSORS,
    "blit_traffic_": Rung.MULTIPROCESSORS,
}
_STREAMS = ("stream", "stream_large")
# STREAM's copy is PyTorch's own, as that of `memcpy_d2d`; its dot product is a library's reduction, and tells neither.
_OPERATIONS = {
    "copy": Rung.ENGINE,
    "scale": Rung.MULTIPROCESSORS,
    "add": Rung.MULTIPROCESSORS,
    "triad": Rung.MULTIPROCESSORS,
}


def rung_of(key: Key) -> Rung | None:
    """The part of a device that a measurement exercises above all; None where it is none, or several."""
    if key.hardware.is_cpu:
        return None
    if rate_suffix(key.metric) == "TFLOPS":
        return Rung.PRODUCT if key.hardware.devices == 1 else None
    found = _moves(key)
    size = key.parameters.get("size_bytes")
    if found is None or not isinstance(size, int):
        return found
    return (
        Rung.LAUNCH if size <= LAUNCH_MOST_BYTES else found if size >= BOUNDED_FROM_BYTES else None
    )


def _moves(key: Key) -> Rung | None:
    """By what a measurement moves bytes, whatever their size."""
    if key.benchmark in _STREAMS and key.metric == "traffic_GBps":
        return _OPERATIONS.get(str(key.parameters.get("operation")))
    if key.benchmark.startswith("peer_copy"):
        between = key.hardware.devices not in (None, 1) and "auto_payload" in key.metric
        return Rung.PEER_LINK if between else None
    return next((rung for metric, rung in _METRICS.items() if key.metric.startswith(metric)), None)


# A clock that fell by less explains no slowdown that a tolerance would find.
CLOCK_FELL = 0.02
# A part is sick where at least so many of its decided tests are: one size alone may have got another algorithm.
SICK_FROM = 1 / 3
# Of so many sick parts the cause is hardly in one of them.
NEARLY_ALL = 4
MEMORY = (
    "memory: ECC errors and row remapping (nvidia-smi -q -d ECC,ROW_REMAPPER, amd-smi bad-pages) and its clock "
    "(nvidia-smi -q -d CLOCK, amd-smi metric --clock)"
)
SHARED = (
    "what all share: the driver, other processes on the device, its power limit and its partition"
)
ITSELF = "the regressed tests themselves: their kernels, their libraries, the host between their launches"
LOOK = {
    Rung.CLOCK: "power limit, temperature and locked clocks (nvidia-smi -q -d POWER,TEMPERATURE,PERFORMANCE,CLOCK, "
    "amd-smi metric)",
    Rung.ENGINE: "what the driver chooses for copies within a device, and the partition (MIG has fewer copy engines)",
    Rung.MULTIPROCESSORS: "the compiler of the kernels that copy (Triton, torch), and other processes",
    Rung.HOST_LINK: "the link's generation and width under load (nvidia-smi -q, lspci -vv), the IOMMU, and whether the "
    "process runs on the socket of the device (nvidia-smi topo -m)",
    Rung.PEER_LINK: "the links that are up (nvidia-smi nvlink --status, amd-smi xgmi), the fabric manager, and access "
    "control on PCIe bridges",
    Rung.PRODUCT: "the clock under load, and the library that multiplies (versions of torch, cuBLAS, Triton; TF32)",
    Rung.LAUNCH: "how the driver submits work, the host's clock and governor, and the kernel's mitigations",
}


class RungState(enum.Enum):
    """What is known of a rung."""

    SICK = "slower"
    FINE = "fine"
    UNKNOWN = "not known"


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a run found of one measurement, as far as the ladder asks."""

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
class RungStep:
    """One rung with what is known of it."""

    rung: Rung
    state: RungState
    change: float | None = None
    sick: int = 0
    seen: int = 0
    cause: str = ""


def slowed_by(measurement: Measurement) -> str:
    """The cause for which the device slowed itself down in most blocks of a measurement; empty where it did not."""
    samples = measurement.samples
    for cause, count in samples.excluded.items():
        if cause in (THERMAL, HARDWARE, BRAKE) and count > MOST_EXCLUDED * len(samples.blocks):
            return cause
    return ""


def climb(found: Iterable[Evidence]) -> tuple[RungStep, ...]:
    """Every rung in a fixed order; none where nothing regressed on an accelerator, or nothing tells of a part alone."""
    everything = [seen for seen in found if not seen.key.hardware.is_cpu]
    if not any(seen.word == Kind.REGRESSED.value for seen in everything):
        return ()
    by_rung: dict[Rung | None, list[Evidence]] = {}
    for seen in everything:
        by_rung.setdefault(rung_of(seen.key), []).append(seen)
    clock, parts = (
        _clock(everything),
        [_step(rung, by_rung.get(rung, [])) for rung in Rung if rung is not Rung.CLOCK],
    )
    if clock.state is not RungState.SICK and all(step.state is RungState.UNKNOWN for step in parts):
        return ()
    return clock, *parts


def _clock(found: Sequence[Evidence]) -> RungStep:
    """Sick where it fell in enough of the sick tests, or the device slowed itself down; fine where it fell in none."""
    sick = [seen for seen in found if seen.sick]
    asked = [seen for seen in sick if rung_of(seen.key) is Rung.PRODUCT] or sick
    moved = [seen.clock for seen in asked if seen.clock is not None]
    fell = [clock for clock in moved if clock < math.log1p(-CLOCK_FELL)]
    causes = [seen.slowed for seen in found if seen.slowed]
    cause = max(causes, key=causes.count, default="")
    if fell and len(fell) >= SICK_FROM * len(moved):
        return RungStep(Rung.CLOCK, RungState.SICK, median(fell), len(fell), len(moved), cause)
    if causes:
        return RungStep(Rung.CLOCK, RungState.SICK, None, len(causes), len(found), cause)
    state = RungState.FINE if moved and not fell else RungState.UNKNOWN
    return RungStep(Rung.CLOCK, state, seen=len(moved))


def _step(rung: Rung, found: Sequence[Evidence]) -> RungStep:
    compared = [seen for seen in found if seen.estimate is not None]
    sick = [seen.estimate for seen in compared if seen.sick and seen.estimate is not None]
    fine = sum(seen.fine for seen in compared)
    # Every pair of devices is a link of its own, of which one may be sick.
    if sick and (rung is Rung.PEER_LINK or len(sick) >= SICK_FROM * (len(sick) + fine)):
        return RungStep(rung, RungState.SICK, median(sick), len(sick), len(compared))
    # One open test among many that are fine says nothing against a part; as many open ones as fine ones do.
    shown = not sick and 2 * fine > len(compared)
    return RungStep(rung, RungState.FINE if shown else RungState.UNKNOWN, seen=len(compared))


def look_at(sick: Collection[Rung]) -> str:
    """Where to look, by the rungs that are sick."""
    if not sick:
        return ITSELF
    if len(set(sick) - {Rung.CLOCK}) >= NEARLY_ALL:
        return SHARED
    copies = {Rung.ENGINE, Rung.MULTIPROCESSORS}
    # Copies of both kinds share the memory alone.
    memory = [MEMORY] if copies <= set(sick) else []
    others = [LOOK[rung] for rung in sick if not (memory and rung in copies)]
    return "; then at ".join(
        [*others[:1], *memory, *others[1:]] if Rung.CLOCK in sick else [*memory, *others]
    )
