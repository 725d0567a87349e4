"""Bencher's metric format, version 0: name, measure, and a value with its bounds."""

from collections.abc import Sequence
from typing import Any

from ...core.units import slug
from .choosing import Exportable
from .facts import inverse, rate_of

# The most bytes of UTF-8 that Bencher takes as the name of a benchmark.
MOST_NAME = 1024
# A name that ends in one of these is stored without it, and raises no alert.
_IGNORED = ("_bencher_ignore", "BencherIgnore", "-bencher-ignore")
_NS = 1e9


def name_of(one: Exportable) -> str:
    """The label, which says what is measured and not where it is written."""
    return one.row.label


def why_not(one: Exportable) -> str:
    """Why Bencher could not take a measurement under its name; empty where it can."""
    size_bytes = len(one.row.label.encode("utf-8", "surrogatepass"))
    if not 0 < size_bytes <= MOST_NAME:
        return f"its name has {size_bytes} bytes; Bencher takes 1 to {MOST_NAME}"
    ignored = next((end for end in _IGNORED if one.row.label.endswith(end)), "")
    if ignored:
        return f"its name ends in {ignored}, which Bencher takes away, and then never alerts; give it another one"
    return ""


def write(found: Sequence[Exportable]) -> dict[str, dict[str, Any]]:
    """Measures by name. Bencher itself knows `latency` (ns) and `throughput` (calls per second); the others are ours.

    `traffic-gbps`, `busbw-gbps`, `tflops` and so on are the rate under its metric, `roofline-share` is in percent,
    `peak-memory` and `held-memory` in bytes.
    """
    return {name_of(one): _measures(one) for one in found}


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
