"""Copies between devices as matrices: source by row, target by column."""

from collections.abc import Iterable, Sequence

from ..core.keys import Key
from ..core.units import printable, size_label, three_digits
from ..core.work import RATE_UNITS, rate_suffix
from .layout import new_table, render
from .results import Result, new_s

# Fewer pairs than this are read as well in the table of all results.
FEWEST_PAIRS = 3
# What a column takes at least: four digits and the space beside them.
_COLUMN = 6
# In place of a rate that must not be believed, or that the clock cannot tell.
INVALID, UNRESOLVED = "invalid", "?"


def matrix_lines(results: Sequence[Result], width: int) -> list[str]:
    """A matrix for every benchmark and size that was measured between three pairs of devices or more.

    Args:
        results: of the run; those count whose parameters have `source` and `target`, both whole numbers.
        width: columns of the terminal; a matrix that is wider goes on below.
    """
    groups: dict[tuple[str, str], list[Result]] = {}
    for result in results:
        key = result.measurement.key
        if pair_of(key) is not None and rate_suffix(key.metric) is not None:
            groups.setdefault((_title(key), key.metric), []).append(result)
    lines = []
    for (title, metric), members in groups.items():
        if len({pair_of(result.measurement.key) for result in members}) >= FEWEST_PAIRS:
            lines.append(f"{title}: {_unit(metric)} ({metric}), {_links(members)}; rows are sources, columns targets")
            lines += _matrix(members, width)
    return lines


def pair_of(key: Key) -> tuple[int, int] | None:
    source, target = index_of(key, "source"), index_of(key, "target")
    return None if source is None or target is None else (source, target)


def index_of(key: Key, name: str) -> int | None:
    value = key.parameters.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _title(key: Key) -> str:
    """The benchmark with its parameters other than the pair."""
    rest = [
        size_label(value) if name.endswith("_bytes") and isinstance(value, int) else f"{value}"
        for name, value in key.parameters.items()
        if name not in ("source", "target")
    ]
    return printable(key.benchmark + (f"[{'-'.join(rest)}]" if rest else "") + (f".{key.name}" if key.name else ""))


def _unit(metric: str) -> str:
    return "TFLOP/s" if rate_suffix(metric) == "TFLOPS" else "GB/s"


def _links(results: Iterable[Result]) -> str:
    """The classes of the links: one of all, or which pairs have which; the most common class is not spelled out."""
    by_kind: dict[str, list[str]] = {}
    for result in results:
        key = result.measurement.key
        pair = "→".join(str(index) for index in pair_of(key) or ())
        pairs = by_kind.setdefault(key.hardware.link or "unknown", [])
        if pair not in pairs:
            pairs.append(pair)
    most, *others = sorted(by_kind, key=lambda kind: -len(by_kind[kind]))
    return "link " + ", ".join([most, *(f"{kind} for {_listed(by_kind[kind])}" for kind in others)])


def _listed(pairs: Sequence[str], at_most: int = 4) -> str:
    return ", ".join(pairs[:at_most]) + " …" * (len(pairs) > at_most)


def _matrix(results: Sequence[Result], width: int) -> list[str]:
    cells = {pair_of(result.measurement.key): _cell(result) for result in results}
    sources = sorted({pair[0] for pair in cells if pair})
    targets = sorted({pair[1] for pair in cells if pair})
    at_once = max(1, (width - _COLUMN) // max(_COLUMN, *(len(cell) + 1 for cell in cells.values())))
    lines: list[str] = []
    for start in range(0, len(targets), at_once):
        shown = targets[start : start + at_once]
        table = new_table(("", "right"), *((f"{target}", "right") for target in shown))
        for source in sources:
            table.add_row(f"{source}", *(cells.get((source, target), "") for target in shown))
        lines += render(table, width, colour=False).split("\n")
    return lines


def _cell(result: Result) -> str:
    if result.measurement.invalid:
        return INVALID
    rate, suffix = rate_of(result), rate_suffix(result.measurement.key.metric)
    return UNRESOLVED if rate is None or suffix is None else three_digits(rate / RATE_UNITS[suffix])


def rate_of(result: Result) -> float | None:
    """Of all processes where several were judged together, in bytes or FLOP per second."""
    measurement, seconds = result.measurement, new_s(result)
    amount = measurement.work.amount(measurement.key.metric)
    if measurement.rate is None or seconds is None or amount is None:
        return measurement.rate
    return amount / seconds
