"""Rows sorted into series: tests alike but for their size, in one run on one kind of hardware."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from ....core.facts import HardwareKey
from ....core.keys import Scalar
from ....core.rows import Row
from ....core.units import size_label
from .axes import drawable

FEWEST_SIZES = 3
SIZE = "size_bytes"


@dataclass(frozen=True, slots=True)
class Series:
    """Points to be joined by a line, by size.

    Args:
        name: what tells it from the others of its figure.
        points: size in bytes and row.
        unresolved: how many sizes have no rate to be drawn, as where they took less than the clock can tell.
    """

    name: str
    points: tuple[tuple[int, Row], ...]
    unresolved: int = 0

    @property
    def rows(self) -> list[Row]:
        return [row for _, row in self.points]

    @property
    def red(self) -> bool:
        return any(row.red for row in self.rows)

    @property
    def sizes(self) -> list[int]:
        return [size for size, _ in self.points]


def series_of(rows: Sequence[Row], fewest: int = FEWEST_SIZES) -> list[Series]:
    """The series of one benchmark by name, each of at least so many sizes; none where no parameter is the size.

    Args:
        rows: measurements of one benchmark.
        fewest: sizes that make a line.
    """
    parameter = size_parameter(rows)
    if parameter is None:
        return []
    found: dict[tuple[str, ...], dict[int, Row]] = {}
    unresolved: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        size = _size(row, parameter)
        if size is None:
            continue
        parts = _parts(row, parameter)
        if not drawable(row.rate):
            unresolved[parts] += 1
        else:
            found.setdefault(parts, {})[size] = row
    names = _names([*found, *unresolved])
    made = [
        Series(names[parts], tuple(sorted(points.items(), key=lambda pair: pair[0])), unresolved[parts])
        for parts, points in found.items()
        if len(points) >= fewest
    ]
    return sorted(made, key=lambda one: natural(one.name))


def natural(name: str) -> list[tuple[str, int]]:
    """A key that sorts `2 ranks` before `16 ranks`, so that an order does not depend on what failed."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]{0,18})", name)]


def size_parameter(rows: Iterable[Row]) -> str | None:
    """The parameter that is the size: `size_bytes`, else a whole number that the work's size is a multiple of."""
    factors: dict[str, set[float]] = {}
    values: dict[str, set[int]] = {}
    for row in rows:
        one = row.measurement
        if one is None:
            continue
        for name, value in one.key.parameters.items():
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                factors.setdefault(name, set()).add(one.work.size_bytes / value)
                values.setdefault(name, set()).add(value)
    if SIZE in values:
        return SIZE
    fixed = (name for name in factors if len(factors[name]) == 1 and 0 not in factors[name] and len(values[name]) > 1)
    return next(fixed, None)


def _size(row: Row, parameter: str) -> int | None:
    one = row.measurement
    if one is None:
        return None
    value = one.key.parameters.get(parameter)
    if parameter != SIZE:
        return one.work.size_bytes or None
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def _parts(row: Row, size_parameter: str) -> tuple[str, ...]:
    """What may tell a row's series from the others of its benchmark."""
    one = row.measurement
    assert one is not None
    key = one.key
    parameters = ", ".join(told(name, value) for name, value in key.parameters.items() if name != size_parameter)
    hardware = _without_count(key.hardware)
    return parameters, key.name, key.metric, key.cache, key.timing, hardware, f"run {row.run}"


@lru_cache(maxsize=256)
def _without_count(hardware: HardwareKey) -> str:
    """How many devices there are, the size of the world says already."""
    return str(replace(hardware, devices=1))


def _names(found: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """The parameters, and whatever else differs between any two."""
    differs = [len(set(values)) > 1 for values in zip(*found, strict=True)]
    return {
        parts: ", ".join(part for index, part in enumerate(parts) if part and (index == 0 or differs[index]))
        or "this run"
        for parts in found
    }


def told(name: str, value: Scalar) -> str:
    """The value of a parameter as it stands in the name of a series."""
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{value}"
    if name.endswith("_bytes"):
        return size_label(value)
    # A bare number would say nothing.
    return f"{value} ranks" if name == "world_size" else f"{name} {value}"
