"""One measurement with what was said of it, and the number that stands for it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.entries import Entry
from ..core.records import Measurement
from ..core.units import MIB, format_flops, format_rate, format_seconds, printable
from ..core.work import rate_suffix, rate_unit
from ..judging.limits import IdleLimit
from ..judging.stats import change_bounds
from ..judging.verdicts import Verdict

# Below this a link's rate says more about its latency; the time is shown instead.
RATE_FROM_BYTES = 16 * MIB


@dataclass(frozen=True, slots=True)
class Result:
    """A measurement with what was said of it; no verdict where its test failed for itself.

    `measurement` is the one of the process in the middle where several were judged together; `published` holds figures
    from elsewhere that are shown beside it and never gate, `idle` limits that could gate and cannot here; `left_out`
    says why processes do not count.
    """

    measurement: Measurement
    verdict: Verdict | None
    environment: Mapping[str, str]
    published: tuple[Entry, ...] = ()
    ended: str = "FAILED"
    left_out: tuple[str, ...] = ()
    idle: tuple[IdleLimit, ...] = ()

    @property
    def label(self) -> str:
        """The measurement as people call it."""
        return self.measurement.label

    @property
    def word(self) -> str:
        """The verdict in a word, that on the memory where it is worse, or how the test ended that has none."""
        return self.verdict.overall.value if self.verdict else self.ended


def rate_text(measurement: Measurement, seconds: float | None = None) -> str:
    """The rate, in the metric's unit; of another time than the measurement's own where `seconds` is given."""
    amount = measurement.work.amount(measurement.key.metric)
    if amount is None or measurement.rate is None:
        return format_seconds(seconds or measurement.median_s)
    per_second = amount / (seconds or measurement.median_s)
    return format_flops(per_second) if rate_suffix(measurement.key.metric) == "TFLOPS" else format_rate(per_second)


def figure(measurement: Measurement, seconds: float | None = None) -> str:
    """The number that stands for a measurement: its rate, or its time where what crosses links is small."""
    work = measurement.work
    small = (work.wire_bytes or work.algbw_bytes) and work.size_bytes < RATE_FROM_BYTES
    return format_seconds(seconds or measurement.median_s) if small else rate_text(measurement, seconds)


def limit_text(result: Result) -> str:
    """The rate (or time) that a result was held against in place of a baseline, as `235 GB/s`; else empty."""
    limit = result.verdict.limit if result.verdict is not None else None
    return "" if limit is None else rate_text(result.measurement, limit.seconds)


def new_s(result: Result) -> float | None:
    """The centre of the new processes; None where only one measurement stands for it."""
    found = result.verdict.difference if result.verdict is not None else None
    return found.new_s if found is not None and result.verdict is not None and result.verdict.processes > 1 else None


def properties(results: Sequence[Result]) -> list[tuple[str, str]]:
    """The figures of a test as name and text, for JUnit XML and other reports; names are those of `core.rows.Row`."""
    pairs = []
    for result in results:
        name = result.measurement.key.name
        prefix = f"roofline.{name}." if name else "roofline."
        figures = _figures(result.measurement) | (_judged(result.verdict) if result.verdict is not None else {})
        for name, value in figures.items():
            text = f"{value:.6g}" if isinstance(value, float) else str(value)
            pairs += [(printable(prefix + name), text)] if value is not None else []
    return pairs


def _figures(measurement: Measurement) -> dict[str, object]:
    rate = measurement.rate
    return {
        "time_s": measurement.median_s,
        "rate": rate,
        "rate_unit": rate_unit(measurement.key.metric) if rate is not None else None,
        "tokens_per_second": measurement.tokens_per_s,
        "roofline_share": measurement.share_of_ceiling,
        "peak_bytes": measurement.peak_bytes,
    }


def _judged(verdict: Verdict) -> dict[str, object]:
    reference, peak = verdict.reference, verdict.peak
    return {
        "verdict": verdict.overall.value,
        "tolerance": verdict.tolerance,
        "detectable": verdict.reach,
        "change": verdict.change,
        **change_bounds(verdict.interval),
        "baseline_time_s": reference.median_s if reference is not None else None,
        "limit_time_s": verdict.limit.seconds if verdict.limit is not None else None,
        "processes": verdict.processes,
        "peak_bytes.verdict": peak.verdict if peak is not None else None,
        "peak_bytes.baseline_value": peak.reference_bytes if peak is not None else None,
        "peak_bytes.change": peak.change if peak is not None else None,
    }


def count(number: int, noun: str, plural: str = "s") -> str:
    """`1 process`, `3 processes`."""
    return f"{number} {noun}{plural * (number != 1)}"
