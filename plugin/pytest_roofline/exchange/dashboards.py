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

    Bencher defines `latency` (ns) and `throughput` (calls per second). The others are our own: the rate under the name
    of its metric, such as `traffic-gbps` or `tflops`, `roofline-share` in percent, `peak-memory` and `held-memory` in
    bytes.
    """
    return {entry.row.label: _measures(entry) for entry in entries}


def _measures(entry: Exportable) -> dict[str, dict[str, float]]:
    """Return the measures of one entry as Bencher wants them.

    They are by name, each with its value and its bounds, if any. They are the time, its inverse, the rate, the share of
    the roofline, and the memory, as far as they are known.
    """
    measures = {"latency": _metric(entry.seconds * _NS, _in_ns(entry.bounds_s))}
    rates = {"throughput": 1 / entry.seconds}
    if entry.rate is not None:
        rate, _unit = entry.rate
        rates[slug(entry.measurement.key.metric)] = rate
    if entry.row.roofline_share is not None:
        rates["roofline-share"] = 100 * entry.row.roofline_share
    measures |= {name: _metric(value, entry.inverse_bounds(value)) for name, value in rates.items()}
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
    """Return a value of Bencher, with its bounds where there are any."""
    if bounds is None:
        return {"value": value}
    low, high = bounds
    return {"value": value, "lower_value": low, "upper_value": high}


def why_no_rate(entry: Exportable) -> str:
    """Return why a measurement has no rate; empty where it has one."""
    if entry.rate:
        return ""
    return "the measurement has no rate; export times with `--to github-action-benchmark`"


def write_times(entries: Sequence[Exportable]) -> list[dict[str, object]]:
    """Return nanoseconds per call, for `tool: customSmallerIsBetter`."""
    return [_point(entry, "ns", entry.seconds * _NS, _in_ns(entry.bounds_s)) for entry in entries]


def write_rates(entries: Sequence[Exportable]) -> list[dict[str, object]]:
    """Return GB/s and TFLOP/s, for `tool: customBiggerIsBetter`.

    The text beside each begins with the metric, which says how bytes are counted.
    """
    points = []
    for entry in entries:
        if entry.rate is not None:
            rate, unit = entry.rate
            first_line = f"{entry.measurement.key.metric}\n"
            bounds = entry.inverse_bounds(rate)
            points.append(_point(entry, unit, rate, bounds, first_line))
    return points


def _in_ns(bounds_s: tuple[float, float] | None) -> tuple[float, float] | None:
    """Return bounds in nanoseconds."""
    return (bounds_s[0] * _NS, bounds_s[1] * _NS) if bounds_s else None


def _point(
    entry: Exportable,
    unit: str,
    value: float,
    bounds: tuple[float, float] | None,
    first_line: str = "",
) -> dict[str, object]:
    """Return an entry of github-action-benchmark's list. Without bounds it has no range.

    `first_line` comes before the sentence on the measurement.
    """
    point = {
        "name": entry.row.label,
        "unit": unit,
        "value": value,
        "extra": first_line + sentence(entry),
    }
    if bounds is not None:
        point["range"] = " … ".join(map(three_digits, bounds))
    return point
