"""The records that pass from measuring to judging and into files. Frozen: once made, a record says what happened.

Each class checks its own values, so that a record made in code and one read from a file obey the same rules.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from statistics import median
from typing import Literal

from .errors import BadInput
from .units import size_label
from .work import RATE_UNITS, Work, rate_suffix

Scalar = str | int | float | bool | None
Cache = Literal["warm", "rotate", "flush"]
Timing = Literal["device", "wall"]
Kind = Literal["measured", "threshold", "reference"]
CACHES: tuple[Cache, ...] = ("warm", "rotate", "flush")
TIMINGS: tuple[Timing, ...] = ("device", "wall")

SCHEMA = 1
OUT_OF_MEMORY = "out of memory"

# No time in seconds and no published figure lies outside of these; beyond them, ratios overflow.
SMALLEST, LARGEST = 1e-18, 1e18


@dataclass(frozen=True, slots=True)
class HardwareKey:
    """The rated facts that must agree before two times may be compared. In an entry's pattern, None means any.

    Args:
        product: exact product, `a100-sxm4` or `amd-epyc-f26m2`.
        memory: rated memory, `80gb`; of a CPU the memory that this process may use, in whole GiB.
        partition: MIG or CPX mode; of a CPU the cores and quota that this process may use.
        devices: how many devices the test uses.
        link: class of the link between them.
    """

    product: str | None = None
    memory: str | None = None
    partition: str | None = None
    devices: int | None = None
    link: str | None = None

    def covers(self, other: "HardwareKey") -> bool:
        """Whether every fact that this key names agrees with `other`."""
        return all(getattr(self, f.name) in (None, getattr(other, f.name)) for f in fields(self))

    @property
    def complete(self) -> bool:
        """Whether no fact is left open."""
        return all(getattr(self, f.name) is not None for f in fields(self))

    def __str__(self) -> str:
        parts = [self.product or "any product", self.memory or "any memory"]
        parts += [part for part in (self.partition, self.link) if part is not None and part != "none"]
        if self.devices not in (None, 1):
            parts.append(f"{self.devices} devices")
        return ", ".join(parts)


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """What a device says of itself, as running. None is unknown, never "fine"."""

    type: str
    product: str
    index: int = 0
    uuid: str | None = None
    memory_bytes: int | None = None
    architecture: str | None = None
    units: int | None = None
    last_level_cache_bytes: int | None = None
    partition: str | None = None
    driver: str | None = None
    firmware: str | None = None
    clock_mhz: float | None = None
    memory_clock_mhz: float | None = None
    power_limit_w: float | None = None
    pcie_generation: int | None = None
    pcie_width: int | None = None


@dataclass(frozen=True, slots=True)
class HostFacts:
    """The machine around the device: what it has, and how much of it this process may use."""

    name: str
    cpu_model: str
    cores: int
    usable_cores: int
    memory_bytes: int
    usable_memory_bytes: int
    kernel: str
    threads: int | None = None
    numa_nodes: int | None = None
    cgroup_cpus: float | None = None
    cgroup_memory_bytes: int | None = None
    governor: str | None = None


@dataclass(frozen=True, slots=True)
class Environment:
    """Everything beside the code that may move a number; what differs from the baseline is named in the verdict."""

    device: DeviceFacts
    host: HostFacts
    software: dict[str, str]

    def comparable(self) -> dict[str, str]:
        """The facts worth naming when they changed, as text by name: driver, kernel, power limit, versions."""
        facts = {
            "driver": self.device.driver,
            "firmware": self.device.firmware,
            "power limit": _text(self.device.power_limit_w, " W"),
            "PCIe generation": _text(self.device.pcie_generation),
            "PCIe width": _text(self.device.pcie_width),
            "kernel": self.host.kernel,
            "threads": _text(self.host.threads),
            "governor": self.host.governor,
        }
        return {name: value for name, value in (facts | self.software).items() if value is not None}


def _text(value: float | None, unit: str = "") -> str | None:
    return None if value is None else f"{value:g}{unit}"


def _require_positive(values: tuple[float, ...], what: str) -> None:
    for index, value in enumerate(values):
        if not (math.isfinite(value) and value > 0):
            raise BadInput(f"{what}[{index}] is {value!r}; expected a finite number above zero")
        if not SMALLEST <= value <= LARGEST:
            raise BadInput(f"{what}[{index}] is {value!r}; expected something between {SMALLEST:g} and {LARGEST:g}")


def _check_tolerance(tolerance: float | None) -> None:
    if tolerance is not None and not (math.isfinite(tolerance) and tolerance > 0):
        raise BadInput(f"tolerance is {tolerance!r}; expected a share above zero, such as 0.05")


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The roofline of a metric: `value` in bytes (or FLOP) per second, from a datasheet or measured on this machine."""

    metric: str
    value: float
    source: Literal["datasheet", "measured"]
    origin: str

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and self.value > 0):
            raise BadInput(f"ceiling is {self.value!r}; expected a finite number above zero")


@dataclass(frozen=True, slots=True)
class Key:
    """Which measurement this is: everything that must be equal before two of them are the same one."""

    benchmark: str
    parameters: dict[str, Scalar]
    metric: str
    hardware: HardwareKey
    cache: Cache
    timing: Timing
    name: str = ""

    @property
    def identity(self) -> str:
        """The key as one canonical string, for dictionaries and duplicates."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @property
    def label(self) -> str:
        """The key as people call it, without hardware: `memcpy_d2d[64MiB]`."""
        return label_of(self.benchmark, self.parameters, self.name)


def canonical(parameters: Mapping[str, object]) -> str:
    """Parameters as one string: equal only where type and value agree, since 1, 1.0 and True are three ids."""
    return json.dumps(parameters, sort_keys=True, separators=(",", ":"), default=str)


def label_of(benchmark: str, parameters: dict[str, Scalar], name: str) -> str:
    """A measurement as people call it, without hardware: `memcpy_d2d[64MiB]`."""
    inside = "-".join(
        size_label(value) if parameter.endswith("_bytes") and isinstance(value, int) else f"{value}"
        for parameter, value in parameters.items()
    )
    return benchmark + (f"[{inside}]" if inside else "") + (f".{name}" if name else "")


@dataclass(frozen=True, slots=True)
class Samples:
    """What the timing engine took: seconds per call, each the mean of `iterations` calls between two stamps."""

    seconds: tuple[float, ...]
    iterations: int
    tick_s: float
    warmup_iterations: int = 0
    warmup_s: float = 0.0
    measuring_s: float = 0.0
    argument_sets: int = 1
    labels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.seconds:
            raise BadInput("samples is empty; expected at least one")
        _require_positive(self.seconds, "samples")
        for name in ("iterations", "argument_sets"):
            if getattr(self, name) < 1:
                raise BadInput(f"{name} is {getattr(self, name)}; expected 1 or more")
        for name in ("tick_s", "warmup_s", "measuring_s"):
            if not 0 <= getattr(self, name) < math.inf:
                raise BadInput(f"{name} is {getattr(self, name)!r}; expected a finite number, zero or more")


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured function under one key, in one process.

    `seconds` holds every sample, in seconds per call and in the order taken. `invalid` says why the numbers must not
    be trusted; it is empty for a valid measurement. Rates are derived, never stored alone.
    """

    key: Key
    test_id: str
    label: str
    process: str
    work: Work
    samples: Samples
    round: int = 1
    gate: bool = False
    tolerance: float | None = None
    ceiling: Ceiling | None = None
    verified: bool | None = None
    invalid: str = ""

    def __post_init__(self) -> None:
        _check_tolerance(self.tolerance)

    @property
    def median_s(self) -> float:
        """Median seconds per call."""
        return median(self.samples.seconds)

    @property
    def rate(self) -> float | None:
        """Bytes (or FLOP) per second under the key's metric; None where the work has none of it."""
        return rate(self.work, self.key.metric, self.median_s)

    @property
    def traffic_GBps(self) -> float | None:
        """Bytes read and written, 1e9 per second."""
        return self._scaled("traffic_GBps")

    @property
    def payload_GBps(self) -> float | None:
        """Bytes that arrived, 1e9 per second."""
        return self._scaled("payload_GBps")

    @property
    def flops_per_s(self) -> float | None:
        """Floating-point operations per second."""
        return rate(self.work, "TFLOPS", self.median_s)

    @property
    def share_of_ceiling(self) -> float | None:
        """The rate as a share of the roofline; None where either is unknown."""
        if self.ceiling is None:
            return None
        achieved = rate(self.work, self.ceiling.metric, self.median_s)
        return None if achieved is None else achieved / self.ceiling.value

    def derived(self) -> dict[str, float]:
        """The rates that a reader of the run file would otherwise have to work out."""
        derived = {
            "median_s": self.median_s,
            "traffic_GBps": self.traffic_GBps,
            "payload_GBps": self.payload_GBps,
            "flops_per_s": self.flops_per_s,
            "operational_intensity": self.work.operational_intensity,
            "share_of_ceiling": self.share_of_ceiling,
        }
        return {name: value for name, value in derived.items() if value is not None}

    def _scaled(self, metric: str) -> float | None:
        value = rate(self.work, metric, self.median_s)
        return None if value is None else value / RATE_UNITS[metric]


def rate(work: Work, metric: str, seconds: float) -> float | None:
    """Bytes (or FLOP) per second of `work` done in `seconds` under `metric`'s counting; None where it has none."""
    amount = work.amount(metric)
    return None if amount is None else amount / seconds


@dataclass(frozen=True, slots=True)
class Header:
    """The first line of a run file."""

    run_id: str
    started: str
    command: tuple[str, ...]
    tool: str
    environment: Environment
    schema: int = SCHEMA


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a test ended; a failed one marks its measurements as unfit for a baseline.

    `by_verdict` tells a test that failed only because it was slower from one that failed for itself.
    """

    test_id: str
    outcome: Literal["passed", "failed", "skipped"]
    verdicts: tuple[str, ...] = ()
    reason: str = ""
    by_verdict: bool = False


@dataclass(frozen=True, slots=True)
class CurveSummary:
    """One sweep over sizes in a line: see `judging.curves`."""

    label: str
    metric: str
    points: int
    plateau: float
    reached: dict[str, int | None]
    latency_s: float
    bandwidth: float | None


@dataclass(frozen=True, slots=True)
class Footer:
    """The last line of a run that came to its end."""

    finished: str
    exit_status: int
    measured: int
    not_measured: dict[str, int] = field(default_factory=dict)
    curves: tuple[CurveSummary, ...] = ()


@dataclass(frozen=True, slots=True)
class Session:
    """One recorded run as a baseline holds it: the median of every process, in seconds per call."""

    run_id: str
    started: str
    process_medians: tuple[float, ...]
    device_uuid: str | None = None
    environment: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.process_medians:
            raise BadInput("process_medians is empty; expected the median of at least one process")
        _require_positive(self.process_medians, "process_medians")


@dataclass(frozen=True, slots=True)
class Entry:
    """One line of a baseline: what is known of one measurement on one hardware.

    `measured` entries carry sessions, in seconds; `threshold` and `reference` entries carry a value in the unit of
    their metric with its source. In the latter, an omitted part of the key means any.
    """

    benchmark: str
    metric: str
    kind: Kind
    hardware: HardwareKey = HardwareKey()
    name: str = ""
    parameters: dict[str, Scalar] = field(default_factory=dict)
    cache: Cache | None = None
    timing: Timing | None = None
    work: Work | None = None
    tolerance: float | None = None
    provenance: dict[str, str] = field(default_factory=dict)
    sessions: tuple[Session, ...] = ()
    value: float | tuple[float, float] | Literal["out of memory"] | None = None
    unit: str | None = None
    convention: str | None = None
    source: str | None = None
    confidence: Literal["high", "medium", "low", "recalled"] | None = None

    def __post_init__(self) -> None:
        _check_tolerance(self.tolerance)
        if self.kind == "measured":
            self._check_measured()
        else:
            self._check_published()

    def _check_measured(self) -> None:
        missing = [name for name in ("cache", "timing", "work") if getattr(self, name) is None]
        if missing:
            raise BadInput(f"a measured entry lacks {', '.join(missing)}")
        if not self.sessions:
            raise BadInput("a measured entry has no sessions; expected at least one")
        if not self.hardware.complete:
            raise BadInput(f"a measured entry names its hardware only in part ({self.hardware}); expected every field")
        if self.value is not None:
            raise BadInput("a measured entry has a value; expected sessions only")

    def _check_published(self) -> None:
        missing = [n for n in ("value", "unit", "convention", "source", "confidence") if getattr(self, n) is None]
        if missing:
            raise BadInput(f"a {self.kind} entry lacks {', '.join(missing)}")
        if self.sessions:
            raise BadInput(f"a {self.kind} entry has sessions; expected a value only")
        if isinstance(self.value, tuple):
            _require_positive(self.value, "value")
            if self.value[0] > self.value[1]:
                raise BadInput(f"value is the range {self.value}; expected the smaller number first")
        elif isinstance(self.value, float | int):
            _require_positive((self.value,), "value")
        self._check_unit()
        if self.kind == "threshold" and rate_suffix(self.metric) is None and self.metric != "time_s":
            raise BadInput(f"metric is {self.metric!r}; a threshold gates a rate ({', '.join(RATE_UNITS)}) or time_s")

    def _check_unit(self) -> None:
        """A limit of 3 ms must not gate at 3 s."""
        suffix = "time_s" if self.metric == "time_s" else rate_suffix(self.metric)
        expected = None if suffix is None else {"time_s": "s", "TFLOPS": "TFLOP/s"}.get(suffix, "GB/s")
        if expected is not None and self.unit != expected:
            raise BadInput(f"unit is {self.unit!r} under the metric {self.metric!r}; expected {expected!r}")

    @property
    def gates(self) -> bool:
        """Whether a result below this published value may fail a test: a number, from a source that can be trusted."""
        return (
            self.kind == "threshold" and isinstance(self.value, float | int) and self.confidence in ("high", "medium")
        )

    @property
    def identity(self) -> str:
        """What makes two entries the same one; published figures from different sources are different entries."""
        key = (self.benchmark, self.name, self.parameters, self.metric, self.kind, asdict(self.hardware))
        source = None if self.kind == "measured" else self.source
        return json.dumps([*key, self.cache, self.timing, source], sort_keys=True, separators=(",", ":"))

    def matches(self, key: Key) -> bool:
        """Whether this entry speaks of the measurement with `key`."""
        if (self.benchmark, self.name) != (key.benchmark, key.name) or not self.hardware.covers(key.hardware):
            return False
        if self.kind == "measured":
            mine = (canonical(self.parameters), self.metric, self.cache, self.timing)
            return mine == (canonical(key.parameters), key.metric, key.cache, key.timing)
        named = {name: value for name, value in key.parameters.items() if name in self.parameters}
        return (
            self.metric in (key.metric, rate_suffix(key.metric), "time_s")
            and canonical(named) == canonical(self.parameters)
            and self.cache in (None, key.cache)
            and self.timing in (None, key.timing)
        )

    @property
    def label(self) -> str:
        """The entry as people call it: `memcpy_d2d[64MiB]`."""
        return label_of(self.benchmark, self.parameters, self.name)

    @property
    def medians(self) -> tuple[float, ...]:
        """Every process's median, in seconds per call, over all sessions."""
        return tuple(value for session in self.sessions for value in session.process_medians)


@dataclass(frozen=True, slots=True)
class Baseline:
    """One baseline file: the entries of one hardware family."""

    family: str
    entries: tuple[Entry, ...]
    schema: int = SCHEMA
