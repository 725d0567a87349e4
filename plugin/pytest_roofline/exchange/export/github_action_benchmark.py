"""Lists of numbers for github-action-benchmark: `customSmallerIsBetter` for times, `customBiggerIsBetter` for rates.

It compares a value with the last one of the same name and never looks at units, so each is always the same one.
"""

from collections.abc import Sequence
from typing import Any

from ...core.units import three_digits
from .choosing import Exportable
from .facts import rate_of, sentence

_NS = 1e9


def name_of(one: Exportable) -> str:
    """The label: it stays when a file moves, and a chart has room for it."""
    return one.row.label


def never(_: Exportable) -> str:
    """Every time can be written."""
    return ""


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
