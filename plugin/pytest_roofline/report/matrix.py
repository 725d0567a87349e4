"""Copies between devices as matrices: source by row, target by column."""

from collections.abc import Iterable, Sequence

from ..core.rows import Row
from ..core.units import printable, size_label, three_digits
from ..core.work import RATE_UNITS, rate_suffix
from .layout import new_table, render

# Fewer pairs than this are read as well in the table of all rows.
FEWEST_PAIRS = 3
# What a column takes at least: four digits and the space beside them.
_COLUMN = 6
# In place of a rate that must not be believed, or that the clock cannot tell.
INVALID, UNRESOLVED = "invalid", "?"


def matrix_lines(rows: Sequence[Row], width: int) -> list[str]:
    """A matrix for every benchmark and size that was measured between three pairs of devices or more.

    Args:
        rows: of the run; those count whose parameters have `source` and `target`, both whole numbers.
        width: columns of the terminal; a matrix that is wider goes on below.
    """
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.counting is not None and pair_of(row) is not None and rate_suffix(row.counting) is not None:
            groups.setdefault((title_of(row), row.counting), []).append(row)
    lines = []
    for (title, metric), members in groups.items():
        if len({pair_of(row) for row in members}) >= FEWEST_PAIRS:
            lines.append(f"{title}: {_unit(metric)} ({metric}), {_links(members)}; rows are sources, columns targets")
            lines += _matrix(members, width)
    return lines


def pair_of(row: Row) -> tuple[int, int] | None:
    """The indexes of source and target of a copy between two devices; None of anything else."""
    source, target = index_of(row, "source"), index_of(row, "target")
    return None if source is None or target is None else (source, target)


def index_of(row: Row, name: str) -> int | None:
    """A parameter that is a whole number; None where it is none."""
    value = row.parameters.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def title_of(row: Row) -> str:
    """The benchmark with its parameters other than the pair."""
    rest = [
        size_label(value) if name.endswith("_bytes") and isinstance(value, int) else f"{value}"
        for name, value in row.parameters.items()
        if name not in ("source", "target")
    ]
    return printable(row.benchmark + (f"[{'-'.join(rest)}]" if rest else "") + (f".{row.name}" if row.name else ""))


def _unit(metric: str) -> str:
    return "TFLOP/s" if rate_suffix(metric) == "TFLOPS" else "GB/s"


def _links(rows: Iterable[Row]) -> str:
    """The classes of the links: one of all, or which pairs have which; the most common class is not spelled out."""
    by_kind: dict[str, list[str]] = {}
    for row in rows:
        pair = "→".join(str(index) for index in pair_of(row) or ())
        link = row.key.hardware.link if row.key is not None else None
        pairs = by_kind.setdefault(link or "unknown", [])
        if pair not in pairs:
            pairs.append(pair)
    most, *others = sorted(by_kind, key=lambda kind: -len(by_kind[kind]))
    return "link " + ", ".join([most, *(f"{kind} for {_listed(by_kind[kind])}" for kind in others)])


def _listed(pairs: Sequence[str], at_most: int = 4) -> str:
    return ", ".join(pairs[:at_most]) + " …" * (len(pairs) > at_most)


def _matrix(rows: Sequence[Row], width: int) -> list[str]:
    cells = {pair_of(row): _cell(row) for row in rows}
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


def _cell(row: Row) -> str:
    if row.measurement is not None and row.measurement.invalid:
        return INVALID
    rate, suffix = row.rate, rate_suffix(row.counting or "")
    return UNRESOLVED if rate is None or suffix is None else three_digits(rate / RATE_UNITS[suffix])
