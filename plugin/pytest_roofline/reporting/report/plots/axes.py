"""Axes of figures, logarithmic ones by far the most, and what has a place on them."""

import math
from collections.abc import Iterable, Sequence
from typing import Any, TypeGuard

from ....core.units import format_bytes

_MOST_TICKS = 6


def axis(title: str, **more: Any) -> dict[str, Any]:
    """An axis with its title, which makes room for its own labels."""
    return {"title": {"text": title, "standoff": 8}, "automargin": True, "zeroline": False, **more}


def drawable(value: float | None) -> TypeGuard[float]:
    """Whether a number has a place on a logarithmic axis. A file may hold times so short that a rate is infinite."""
    return value is not None and 0 < value < math.inf


def median_of(values: Iterable[float]) -> float:
    """The median of numbers of which two may be too large to be added."""
    known = sorted(values)
    below, above = known[(len(known) - 1) // 2], known[len(known) // 2]
    return below + (above - below) / 2


def log_axis(title: str, values: Iterable[float | None], **more: Any) -> dict[str, Any]:
    """A logarithmic axis around those values that have a place, with room above for a label, and round ticks."""
    logs = [math.log10(value) for value in values if drawable(value)] or [0.0]
    low, high = min(logs), max(logs)
    room = max(0.08, 0.05 * (high - low))
    bounds = [low - room, high + 2 * room]
    # Within a decade Plotly's own ticks are plain numbers; beyond it they would be bare digits between tens.
    ticks = _decimal_ticks(*bounds)
    own = {"tickvals": ticks, "ticktext": [f"{tick:,.10g}" for tick in ticks]} if len(ticks) > 1 else {}
    return axis(title, type="log", range=bounds, exponentformat="none", **own, **more)


def _decimal_ticks(low: float, high: float) -> list[float]:
    """At most a dozen numbers between two powers of ten, as round as they can be."""
    # What lies beyond is no number of 64 bits.
    decades = range(max(math.floor(low), -307), min(math.ceil(high), 307) + 1)
    for digits in ((1, 1.5, 2, 3, 4, 5, 6, 8), (1, 2, 5), (1, 3), (1,)):
        ticks = [digit * 10.0**decade for decade in decades for digit in digits]
        inside = [float(f"{tick:.3g}") for tick in ticks if low <= math.log10(tick) <= high]
        if len(inside) <= _MOST_TICKS + 3:
            return inside
    step = math.ceil(len(inside) / _MOST_TICKS)
    return inside[::step]


def size_axis(title: str, sizes: Sequence[int]) -> dict[str, Any]:
    """A logarithmic axis of bytes with a few ticks at powers of two in binary units, number above unit."""
    low, high = math.log2(min(sizes)), math.log2(max(sizes))
    step = max(1, math.ceil((high - low) / _MOST_TICKS))
    exponents = range(math.ceil(low), math.floor(high) + 1, step)
    ticks = [2**exponent for exponent in exponents]
    room = max(0.05, 0.03 * (high - low) * math.log10(2))
    bounds = [math.log10(min(sizes)) - room, math.log10(max(sizes)) + room]
    # In one line they would stand oblique on a phone.
    texts = [format_bytes(tick).replace(" ", "<br>") for tick in ticks]
    return axis(title, type="log", range=bounds, tickvals=ticks, ticktext=texts, tickangle=0)
