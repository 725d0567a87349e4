"""What is said of a measurement beside its samples: rate, share of the roofline, verdict, and on what it ran.

All formats say it, and so does the replay into pytest-benchmark while the tests run.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from ...core.records import Header, Measurement
from ...core.rows import Row
from ...core.units import format_share, format_tolerance
from ...core.work import RATE_UNITS, rate_suffix
from .choosing import Exportable


@dataclass(frozen=True, slots=True)
class Rate:
    """A rate in the unit that its metric names, GB/s or TFLOP/s, and its bounds; `metric` says how it counts."""

    value: float
    bounds: tuple[float, float] | None
    unit: str
    metric: str


def rate_of(one: Exportable) -> Rate | None:
    """The rate under the key's metric; None where a time is all there is."""
    metric = one.measurement.key.metric
    value, unit = _rate(one.row)
    return None if value is None or unit is None else Rate(value, inverse(one, value), unit, metric)


def inverse(one: Exportable, value: float) -> tuple[float, float] | None:
    """The bounds of a value that falls as the time rises: the fastest process has the highest rate."""
    if one.bounds_s is None:
        return None
    fastest, slowest = one.bounds_s
    return value * one.seconds / slowest, value * one.seconds / fastest


def facts(row: Row, behind: Sequence[Measurement]) -> dict[str, Any]:
    """By name, units in the names; what is not known is not there.

    Args:
        row: what was said of a measurement. Time, rate, share and verdict are of all processes that were judged.
        behind: the processes whose samples the reader is given.
    """
    one = row.measurement
    assert one is not None
    rate, unit = _rate(row)
    return _known(
        {
            "label": row.label,
            "seconds": row.time_s,
            "processes": (row.judgement.processes if row.judgement is not None else 0) or len(behind),
            "metric": row.counting,
            "rate": rate,
            "rate_unit": unit,
            "share_of_roofline": row.roofline_share,
            "roofline_source": row.roofline_source,
            "verdict": row.verdict,
            "change": row.change,
            "tolerance": row.tolerance,
            "baseline_s": row.baseline_time_s,
            "work": {name: amount for name, amount in asdict(one.work).items() if amount},
            "calls_per_sample": behind[0].samples.iterations,
            "samples": sum(len(each.samples.kept) for each in behind),
            "samples_left_out": sum(len(each.samples.seconds) - len(each.samples.kept) for each in behind),
            "cache": row.cache,
            "timing": row.timing,
            "labels": row.labels,
            "peak_bytes": one.peak_bytes,
            "held_bytes": row.held_bytes,
            "compile_s": row.compile_s,
            "hardware": row.hardware,
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


def sentence(one: Exportable) -> str:
    """What stands beside a number on a dashboard, a line each: verdict, roofline, hardware, driver, run."""
    row = one.row
    told = facts(row, one.processes) | origin(header_of(row))
    lines = [f"verdict: {row.verdict}"]
    if row.tolerance is not None:
        lines[0] += f" (tolerance {format_tolerance(row.tolerance)})"
    if row.roofline_share is not None:
        lines.append(f"roofline: {format_share(row.roofline_share)} ({told['roofline_source']})")
    lines += [f"{name}: {told[name]}" for name in ("hardware", "driver", "processes", "run_id") if told.get(name)]
    return "\n".join(lines)


def _rate(row: Row) -> tuple[float, str] | tuple[None, None]:
    """The rate of a row's time, and its unit."""
    suffix, rate = rate_suffix(row.counting or ""), row.rate
    if suffix is None or rate is None:
        return None, None
    return rate / RATE_UNITS[suffix], "TFLOP/s" if suffix == "TFLOPS" else "GB/s"


def header_of(row: Row) -> Header:
    """The header of the run that a row is from."""
    assert row.header is not None
    return row.header


def _known(told: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in told.items() if value is not None}
