"""The records of a run. They are frozen, and say what happened, not what was planned.

Their types hold the ranges of their numbers, which are checked where a file is decoded.
"""

from dataclasses import dataclass, field
from typing import Literal

from .amounts import AboveZero, Amount, Count, FromZero, Tolerance
from .facts import Environment
from .keys import Key, Scalar
from .samples import Ranks, Samples
from .work import RATE_UNITS, Work, rate_suffix

# The version of run and baseline files.
SCHEMA = 1


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The roofline of a metric, in bytes or FLOP per second.

    It comes from a datasheet, or was measured on this machine. `confidence` is that of the
    datasheet's figure: high, medium, low or recalled; None where it is not known. `bounds` is true
    if a rate above it cannot be true, which is not so of a figure that nobody could look up;
    `limit` is the rate up to which one may be true all the same, where that is more than `value`.
    """

    metric: str
    value: AboveZero
    source: Literal["datasheet", "measured"]
    origin: str
    confidence: str | None = None
    bounds: bool = True
    limit: AboveZero | None = None


@dataclass(frozen=True, slots=True)
class Measurement:
    """One measured function under one key, in one process.

    `invalid` says why the numbers must not be trusted; it is empty for a valid measurement. Rates are derived, never
    stored alone. `peak_bytes` is the most memory that one call held above what was allocated before it; None where
    nobody asked or the device does not tell. `held_bytes` is what one call left allocated as long as its result was
    kept, above what was allocated before it: of a forward pass its output and what autograd saved. `ranks` tells of
    those that took part, where there were several. `compile_s` is what the first call of a function that compiles took
    beyond a warm call by itself, in seconds: compiling, and whatever else only a first call pays. It is never judged.
    `device` is what was measured where that need not be the run's own device: the UUID of one of several siblings, or
    two with ` to ` between them; in an import the GPU as host and number, `node7:3`, where the file tells it.
    `siblings_busy` says which other devices were at work while a copy went over the host's link, which they share;
    empty where none was seen. `tier` and `marks`, the keyword arguments of the test's markers by their name, are what
    besides `test_id` a run selects tests by; empty of what no test of pytest measured.
    """

    key: Key
    test_id: str
    label: str
    process: str
    work: Work
    samples: Samples
    round: Count = 1
    gate: bool = False
    tolerance: Tolerance | None = None
    ceiling: Ceiling | None = None
    verified: bool | None = None
    invalid: str = ""
    peak_bytes: Amount | None = None
    held_bytes: Amount | None = None
    ranks: Ranks | None = None
    compile_s: FromZero | None = None
    device: str = ""
    siblings_busy: str = ""
    tier: str = ""
    marks: dict[str, tuple[dict[str, Scalar], ...]] = field(default_factory=dict)

    @property
    def median_s(self) -> float:
        """Seconds per call: the median of the blocks' medians."""
        return self.samples.median_s

    @property
    def rate(self) -> float | None:
        """Bytes or FLOP per second under the key's metric.

        None without such work or below the clock's resolution.
        """
        return self._rate(self.key.metric)

    @property
    def traffic_GBps(self) -> float | None:
        """Bytes read and written, 1e9 per second."""
        return self._scaled("traffic_GBps")

    @property
    def payload_GBps(self) -> float | None:
        """Bytes that arrived, 1e9 per second."""
        return self._scaled("payload_GBps")

    @property
    def algbw_GBps(self) -> float | None:
        """A collective's size by its time, 1e9 bytes per second."""
        return self._scaled("algbw_GBps")

    @property
    def busbw_GBps(self) -> float | None:
        """The bus bandwidth, 1e9 bytes per second.

        It is the algorithm bandwidth times the factor of the operation and the world.
        """
        return self._scaled("busbw_GBps")

    @property
    def wirebw_GBps(self) -> float | None:
        """Bytes that crossed a link, one direction, 1e9 per second."""
        return self._scaled("wirebw_GBps")

    @property
    def flops_per_s(self) -> float | None:
        """Floating-point operations per second."""
        return self._rate("TFLOPS")

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens per second. None without tokens, and where a rate would be an invention."""
        return self.work.tokens / self.median_s if self.work.tokens and self.has_rate else None

    @property
    def mfu(self) -> float | None:
        """Model FLOPs utilization, a share of the dense peak.

        It counts the FLOPs that the model asks for.

        As Chowdhery et al. define it ("PaLM", appendix B): what is computed again to save memory does not count, so
        `Work.flops` must not hold it. None without tokens, or where the metric's roofline is not one of arithmetic.
        Without a datasheet the roofline is a measured one (`ceiling.source`). The share is then of that roofline and
        may exceed 1, and the run file calls it `mfu_of_measured_product`.
        """
        is_arithmetic = self.ceiling is not None and rate_suffix(self.ceiling.metric) == "TFLOPS"
        return self.share_of_ceiling if self.work.tokens and is_arithmetic else None

    @property
    def share_of_ceiling(self) -> float | None:
        """The rate as a share of the roofline. None where either is unknown."""
        if self.ceiling is None:
            return None
        achieved = self._rate(self.ceiling.metric)
        return None if achieved is None else achieved / self.ceiling.value

    def comparable(self) -> dict[str, str]:
        """Return the facts of the method that a verdict compares."""
        return self.samples.comparable() | (
            self.ranks.comparable() if self.ranks is not None else {}
        )

    def derived(self) -> dict[str, float]:
        """Return the median time and all rates that follow from work and time, without unknown ones."""
        # The name of `mfu` depends on it: a share of a rate that was measured here is no utilization of the rated peak.
        has_rated_peak = self.ceiling is None or self.ceiling.source == "datasheet"
        rates = {
            "median_s": self.median_s,
            **{metric: self._scaled(metric) for metric in RATE_UNITS if metric != "TFLOPS"},
            "flops_per_s": self._rate("TFLOPS"),
            "operational_intensity": self.work.operational_intensity,
            "share_of_ceiling": self.share_of_ceiling,
        }
        if self.work.tokens:
            rates["tokens_per_s"] = self.tokens_per_s
            rates["mfu" if has_rated_peak else "mfu_of_measured_product"] = self.mfu
        return {name: value for name, value in rates.items() if value is not None}

    def _scaled(self, metric: str) -> float | None:
        value = self._rate(metric)
        return None if value is None else value / RATE_UNITS[metric]

    def _rate(self, metric: str) -> float | None:
        return rate(self.work, metric, self.median_s) if self.has_rate else None

    @property
    def has_rate(self) -> bool:
        """True if a rate of this time is meaningful."""
        # Below the clock's resolution the time is a bound, and a rate made of it would be an invention; so would one be
        # of a whole program's time, most of which goes into its start.
        return "unresolved" not in self.samples.labels and rate_suffix(self.key.metric) is not None


def rate(work: Work, metric: str, seconds: float) -> float | None:
    """Return bytes or FLOP per second of `work` done in `seconds`.

    `metric` says how they are counted; None where the work has none of it.
    """
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
    """The end of a test. The measurements of a failed one are unfit for a baseline.

    `by_verdict` tells a test that failed only because it was slower from one that failed for itself; `shadow` that it
    would have, and passed since a gate only watched.
    """

    test_id: str
    outcome: Literal["passed", "failed", "skipped"]
    verdicts: tuple[str, ...] = ()
    reason: str = ""
    by_verdict: bool = False
    shadow: bool = False


@dataclass(frozen=True, slots=True)
class Fit:
    """Seconds of a call = latency + size / bandwidth, in the metric's own counting of sizes.

    `bandwidth` is None where the time does not grow. `misfit` is the root mean square of (t_fit − t) / t.
    `latency_error_s` and `bandwidth_error` are standard errors; None where zero is the best.
    """

    latency_s: float
    bandwidth: float | None
    misfit: float
    latency_error_s: float | None = None
    bandwidth_error: float | None = None


@dataclass(frozen=True, slots=True)
class CurveSummary:
    """One sweep over sizes in a line: see `stats.curves`.

    `reached` holds by share of the plateau the size from which on no larger one is below it, `of_roof` the same by
    share of the roofline, where every size has one.
    """

    label: str
    metric: str
    points: int
    plateau: float
    reached: dict[str, int | None]
    fit: Fit
    verdict: str = ""
    of_roof: dict[str, int | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Footer:
    """The last line of a run that came to its end.

    `shadow` says what a gate that only watched would have failed, the worst first; None where none watched. `elsewhere`
    says which settings bore on a gate and did not stand in its command; None of a run that was no gate. `packages`,
    `libraries` and `software` are those of the environment that came after the header was written.
    """

    finished: str
    exit_status: int
    measured: int
    not_measured: dict[str, int] = field(default_factory=dict)
    curves: tuple[CurveSummary, ...] = ()
    compiled: int = 0
    shadow: tuple[str, ...] | None = None
    elsewhere: tuple[str, ...] | None = None
    packages: dict[str, str] = field(default_factory=dict)
    libraries: dict[str, str] = field(default_factory=dict)
    software: dict[str, str] = field(default_factory=dict)
