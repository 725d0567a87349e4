"""The records of a run: frozen, they say what happened and not what was planned.

Each class checks its own values, so that a record made in code and one read from a file obey the same rules.
"""

import math
from dataclasses import dataclass, field
from statistics import median
from typing import Literal

from .checks import check_tolerance, require_positive
from .errors import BadInput
from .facts import Environment
from .keys import Key
from .work import RATE_UNITS, Work

# The version of run and baseline files.
SCHEMA = 1


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
        require_positive(self.seconds, "samples")
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
        check_tolerance(self.tolerance)

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
