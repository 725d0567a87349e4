"""Numbers for dashboards: Bencher and github-action-benchmark.

Bencher reads its metric format, version 0. github-action-benchmark reads the lists
`customSmallerIsBetter` for times and `customBiggerIsBetter` for rates: it compares a value with the
last one of the same name and never looks at units, so each is always the same one.
"""

from collections.abc import Sequence

from ..core.units import slug, three_digits
from .exportable import Exportable, sentence

_NS = 1e9


def write_bencher(entries: Sequence[Exportable]) -> dict[str, dict[str, dict[str, float]]]:
    """Return measures by name, for Bencher.

    It knows `latency` (ns) and `throughput` (calls per second); the others are ours.

    `traffic-gbps`, `busbw-gbps`, `tflops` and so on are the rate under its metric, `roofline-share` is in percent,
    `peak-memory` and `held-memory` in bytes.
    """
    return {entry.row.label: _measures(entry) for entry in entries}


def _measures(entry: Exportable) -> dict[str, dict[str, float]]:
    measures = {"latency": _metric(entry.seconds * _NS, _in_ns(entry.bounds_s))}
    rates = {"throughput": 1 / entry.seconds}
    if entry.rate is not None:
        rates[slug(entry.measurement.key.metric)] = entry.rate[0]
    if entry.row.roofline_share is not None:
        rates["roofline-share"] = 100 * entry.row.roofline_share
    measures |= {name: _metric(value, entry.inverse(value)) for name, value in rates.items()}
    sizes = {
        "peak-memory": entry.measurement.peak_bytes,
        "held-memory": entry.measurement.held_bytes,
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


def why_no_rate(entry: Exportable) -> str:
    """Return why a measurement has no rate; empty where it has one."""
    return (
        ""
        if entry.rate
        else "it is a time without a rate; for times use `--to github-action-benchmark`"
    )


def write_times(entries: Sequence[Exportable]) -> list[dict[str, object]]:
    """Return nanoseconds per call, for `tool: customSmallerIsBetter`."""
    return [_point(entry, "ns", entry.seconds * _NS, _in_ns(entry.bounds_s)) for entry in entries]


def write_rates(entries: Sequence[Exportable]) -> list[dict[str, object]]:
    """Return GB/s and TFLOP/s, for `tool: customBiggerIsBetter`.

    The name says how bytes are counted.
    """
    return [
        _point(entry, entry.rate[1], entry.rate[0], entry.inverse(entry.rate[0]), f"{entry.measurement.key.metric}\n")
        for entry in entries if entry.rate
    ]  # fmt: skip


def _in_ns(bounds_s: tuple[float, float] | None) -> tuple[float, float] | None:
    return (bounds_s[0] * _NS, bounds_s[1] * _NS) if bounds_s else None


def _point(
    entry: Exportable, unit: str, value: float, bounds: tuple[float, float] | None, start: str = ""
) -> dict[str, object]:
    point = {
        "name": entry.row.label,
        "unit": unit,
        "value": value,
        "extra": start + sentence(entry),
    }
    if bounds is not None:
        point["range"] = " … ".join(map(three_digits, bounds))
    return point
