"""Numbers for dashboards: Bencher's metric format, version 0, and the lists of github-action-benchmark.

The latter are `customSmallerIsBetter` for times and `customBiggerIsBetter` for rates: it compares a value with the last
one of the same name and never looks at units, so each is always the same one.
"""

from collections.abc import Sequence
from typing import Any

from ..core.units import slug, three_digits
from .exportable import Exportable, inverse, rate_of, sentence

_NS = 1e9


def write_bencher(found: Sequence[Exportable]) -> dict[str, dict[str, Any]]:
    """Measures by name. Bencher itself knows `latency` (ns) and `throughput` (calls per second); the others are ours.

    `traffic-gbps`, `busbw-gbps`, `tflops` and so on are the rate under its metric, `roofline-share` is in percent,
    `peak-memory` and `held-memory` in bytes.
    """
    return {one.row.label: _measures(one) for one in found}


def _measures(one: Exportable) -> dict[str, Any]:
    per_second, bounds_s = 1 / one.seconds, one.bounds_s
    measures = {
        "latency": _metric(one.seconds * _NS, (bounds_s[0] * _NS, bounds_s[1] * _NS) if bounds_s else None),
        "throughput": _metric(per_second, inverse(one, per_second)),
    }
    rate, share = rate_of(one), one.row.roofline_share
    if rate is not None:
        measures[slug(rate.metric)] = _metric(rate.value, rate.bounds)
    if share is not None:
        measures["roofline-share"] = _metric(100 * share, inverse(one, 100 * share))
    for name, size_bytes in (("peak-memory", one.measurement.peak_bytes), ("held-memory", one.measurement.held_bytes)):
        if size_bytes is not None:
            measures[name] = _metric(float(size_bytes), None)
    return measures


def _metric(value: float, bounds: tuple[float, float] | None) -> dict[str, float]:
    return {"value": value} | ({"lower_value": bounds[0], "upper_value": bounds[1]} if bounds else {})


def why_no_rate(one: Exportable) -> str:
    """Why a measurement is no rate; empty where it is one."""
    return "" if rate_of(one) else "it is a time without a rate; take `--to github-action-benchmark` for times"


def write_times(found: Sequence[Exportable]) -> list[dict[str, Any]]:
    """Nanoseconds per call, for `tool: customSmallerIsBetter`."""
    return [_entry(one, "ns", one.seconds * _NS, _in_ns(one.bounds_s)) for one in found]


def write_rates(found: Sequence[Exportable]) -> list[dict[str, Any]]:
    """GB/s and TFLOP/s, for `tool: customBiggerIsBetter`; the name says how bytes are counted."""
    rates = ((one, rate_of(one)) for one in found)
    return [_entry(one, rate.unit, rate.value, rate.bounds, f"{rate.metric}\n") for one, rate in rates if rate]


def _in_ns(bounds_s: tuple[float, float] | None) -> tuple[float, float] | None:
    return (bounds_s[0] * _NS, bounds_s[1] * _NS) if bounds_s else None


def _entry(
    one: Exportable, unit: str, value: float, bounds: tuple[float, float] | None, start: str = ""
) -> dict[str, Any]:
    entry = {"name": one.row.label, "unit": unit, "value": value, "extra": start + sentence(one)}
    if bounds is not None:
        entry["range"] = " … ".join(map(three_digits, bounds))
    return entry
