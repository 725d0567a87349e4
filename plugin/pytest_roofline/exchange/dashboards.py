"""Numbers for dashboards: Bencher's metric format, version 0, and the lists of github-action-benchmark.

The latter are `customSmallerIsBetter` for times and `customBiggerIsBetter` for rates: it compares a value with the last
one of the same name and never looks at units, so each is always the same one.
"""

from collections.abc import Sequence

from ..core.units import slug, three_digits
from .exportable import Exportable, sentence

_NS = 1e9


def write_bencher(found: Sequence[Exportable]) -> dict[str, dict[str, dict[str, float]]]:
    """Measures by name. Bencher itself knows `latency` (ns) and `throughput` (calls per second); the others are ours.

    `traffic-gbps`, `busbw-gbps`, `tflops` and so on are the rate under its metric, `roofline-share` is in percent,
    `peak-memory` and `held-memory` in bytes.
    """
    return {one.row.label: _measures(one) for one in found}


def _measures(one: Exportable) -> dict[str, dict[str, float]]:
    measures = {"latency": _metric(one.seconds * _NS, _in_ns(one.bounds_s))}
    rates = {"throughput": 1 / one.seconds}
    if one.rate is not None:
        rates[slug(one.measurement.key.metric)] = one.rate[0]
    if one.row.roofline_share is not None:
        rates["roofline-share"] = 100 * one.row.roofline_share
    measures |= {name: _metric(value, one.inverse(value)) for name, value in rates.items()}
    sizes = {
        "peak-memory": one.measurement.peak_bytes,
        "held-memory": one.measurement.held_bytes,
    }
    return measures | {
        name: _metric(float(size_bytes), None)
        for name, size_bytes in sizes.items()
        if size_bytes is not None
    }


def _metric(value: float, bounds: tuple[float, float] | None) -> dict[str, float]:
    return {"value": value} | (
        {"lower_value": bounds[0], "upper_value": bounds[1]} if bounds else {}
    )


def why_no_rate(one: Exportable) -> str:
    """Why a measurement is no rate; empty where it is one."""
    return (
        ""
        if one.rate
        else "it is a time without a rate; take `--to github-action-benchmark` for times"
    )


def write_times(found: Sequence[Exportable]) -> list[dict[str, object]]:
    """Nanoseconds per call, for `tool: customSmallerIsBetter`."""
    return [_point(one, "ns", one.seconds * _NS, _in_ns(one.bounds_s)) for one in found]


def write_rates(found: Sequence[Exportable]) -> list[dict[str, object]]:
    """GB/s and TFLOP/s, for `tool: customBiggerIsBetter`; the name says how bytes are counted."""
    return [
        _point(one, one.rate[1], one.rate[0], one.inverse(one.rate[0]), f"{one.measurement.key.metric}\n")
        for one in found if one.rate
    ]  # fmt: skip


def _in_ns(bounds_s: tuple[float, float] | None) -> tuple[float, float] | None:
    return (bounds_s[0] * _NS, bounds_s[1] * _NS) if bounds_s else None


def _point(
    one: Exportable, unit: str, value: float, bounds: tuple[float, float] | None, start: str = ""
) -> dict[str, object]:
    entry = {"name": one.row.label, "unit": unit, "value": value, "extra": start + sentence(one)}
    if bounds is not None:
        entry["range"] = " … ".join(map(three_digits, bounds))
    return entry
