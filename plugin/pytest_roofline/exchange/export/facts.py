"""What all formats say of a measurement beside its time: rate, share of the roofline, verdict, and on what it ran."""

from dataclasses import dataclass
from typing import Any

from ...core.units import format_share, format_tolerance
from ...core.work import RATE_UNITS, rate_suffix
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
    suffix = rate_suffix(metric)
    value = one.row.rate_of(one.seconds)
    if value is None or suffix is None:
        return None
    scale = RATE_UNITS[suffix]
    return Rate(value / scale, inverse(one, value / scale), "TFLOP/s" if suffix == "TFLOPS" else "GB/s", metric)


def inverse(one: Standing, value: float) -> tuple[float, float] | None:
    """The bounds of a value that falls as the time rises: the fastest process has the highest rate."""
    if one.bounds_s is None:
        return None
    fastest, slowest = one.bounds_s
    return value * one.seconds / slowest, value * one.seconds / fastest


def facts(one: Standing) -> dict[str, Any]:
    """By name, units in the names; what is not known is not there."""
    measurement, row, header = one.measurement, one.row, one.row.run.header
    rate, ceiling, device = rate_of(one), one.measurement.ceiling, header.environment.device
    known: dict[str, Any] = {
        "label": one.label,
        "seconds": one.seconds,
        "processes": len(one.processes),
        "metric": measurement.key.metric,
        "rate": rate.value if rate else None,
        "rate_unit": rate.unit if rate else None,
        "share_of_roofline": row.share_of_ceiling,
        "roofline_source": ceiling.source if ceiling else None,
        "verdict": row.word,
        "change": row.change,
        "tolerance": row.judgement.tolerance if row.judgement else None,
        "cache": measurement.key.cache,
        "timing": measurement.key.timing,
        "labels": list(measurement.samples.labels) or None,
        "peak_bytes": measurement.peak_bytes,
        "held_bytes": measurement.held_bytes,
        "hardware": str(measurement.key.hardware),
        "device": device.product,
        "device_uuid": device.uuid,
        "driver": device.driver,
        "host": header.environment.host.name,
        "run_id": header.run_id,
        "started": header.started,
        "tool": header.tool,
    }
    return {name: value for name, value in known.items() if value is not None}


def sentence(one: Standing) -> str:
    """What stands beside a number on a dashboard, a line each: verdict, roofline, hardware, driver, run."""
    told, row = facts(one), one.row
    lines = [f"verdict: {row.word}"]
    if row.judgement is not None:
        lines[0] += f" (tolerance {format_tolerance(row.judgement.tolerance)})"
    if row.share_of_ceiling is not None:
        lines.append(f"roofline: {format_share(row.share_of_ceiling)} ({told['roofline_source']})")
    lines += [f"{name}: {told[name]}" for name in ("hardware", "driver", "processes", "run_id") if told.get(name)]
    return "\n".join(lines)
