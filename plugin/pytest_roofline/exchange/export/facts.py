"""What is said of a measurement beside its samples: rate, share of the roofline, verdict, and on what it ran.

All formats say it, and so does the replay into pytest-benchmark while the tests run.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...core.records import Header, Measurement
from ...core.units import format_share, format_tolerance
from ...core.work import RATE_UNITS, rate_suffix
from ...judging.report_rows import ReportRow
from .standing import Standing


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate in the unit that its metric names, GB/s or TFLOP/s, and its bounds; `metric` says how it counts."""

    value: float
    bounds: tuple[float, float] | None
    unit: str
    metric: str


def rate_of(one: Standing) -> Rate | None:
    """The rate under the key's metric; None where a time is all there is."""
    metric = one.measurement.key.metric
    value, unit = _rate(one.row, metric)
    return None if value is None or unit is None else Rate(value, inverse(one, value), unit, metric)


def inverse(one: Standing, value: float) -> tuple[float, float] | None:
    """The bounds of a value that falls as the time rises: the fastest process has the highest rate."""
    if one.bounds_s is None:
        return None
    fastest, slowest = one.bounds_s
    return value * one.seconds / slowest, value * one.seconds / fastest


def facts(row: ReportRow, measurement: Measurement, behind: Sequence[Measurement]) -> dict[str, Any]:
    """By name, units in the names; what is not known is not there.

    Args:
        row: what was said of a measurement. Time, rate, share and verdict are of all processes that were judged.
        measurement: the one that stands for them.
        behind: the processes whose samples the reader is given.
    """
    key, ceiling, judgement = measurement.key, measurement.ceiling, row.judgement
    rate, unit = _rate(row, key.metric)
    return _known(
        {
            "label": row.label,
            "seconds": row.seconds,
            "processes": (judgement.processes if judgement else 0) or len(behind),
            "metric": key.metric,
            "rate": rate,
            "rate_unit": unit,
            "share_of_roofline": row.share_of_ceiling,
            "roofline_source": ceiling.source if ceiling else None,
            "verdict": row.word,
            "change": row.change,
            "tolerance": judgement.tolerance if judgement else None,
            "baseline_s": row.reference_s,
            "work": {name: amount for name, amount in asdict(measurement.work).items() if amount},
            "calls_per_sample": behind[0].samples.iterations,
            "samples": sum(len(one.samples.kept) for one in behind),
            "samples_left_out": sum(len(one.samples.seconds) - len(one.samples.kept) for one in behind),
            "cache": key.cache,
            "timing": key.timing,
            "labels": list(measurement.samples.labels) or None,
            "peak_bytes": measurement.peak_bytes,
            "held_bytes": measurement.held_bytes,
            "compile_s": measurement.compile_s,
            "hardware": str(key.hardware),
        }
    )


def origin(header: Header) -> dict[str, Any]:
    """The run that a measurement is from, and its machine, in the same way."""
    device = header.environment.device
    return _known(
        {
            "device": device.product,
            "device_uuid": device.uuid,
            "driver": device.driver,
            "host": header.environment.host.name,
            "run_id": header.run_id,
            "started": header.started,
            "tool": header.tool,
        }
    )


def sentence(one: Standing) -> str:
    """What stands beside a number on a dashboard, a line each: verdict, roofline, hardware, driver, run."""
    row = one.row
    told = facts(row, one.measurement, one.processes) | origin(row.run.header)
    lines = [f"verdict: {row.word}"]
    if row.judgement is not None:
        lines[0] += f" (tolerance {format_tolerance(row.judgement.tolerance)})"
    if row.share_of_ceiling is not None:
        lines.append(f"roofline: {format_share(row.share_of_ceiling)} ({told['roofline_source']})")
    lines += [f"{name}: {told[name]}" for name in ("hardware", "driver", "processes", "run_id") if told.get(name)]
    return "\n".join(lines)


def _rate(row: ReportRow, metric: str) -> tuple[float, str] | tuple[None, None]:
    """The rate of a row's time, and its unit."""
    suffix, rate = rate_suffix(metric), row.rate
    if suffix is None or rate is None:
        return None, None
    return rate / RATE_UNITS[suffix], "TFLOP/s" if suffix == "TFLOPS" else "GB/s"


def _known(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if value is not None}
