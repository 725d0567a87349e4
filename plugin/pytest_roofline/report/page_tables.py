"""Tables of the page before they are markup: cells with the value that they are sorted by, headings, what is folded."""

import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

# So many rows stand in the page at once; more are drawn when somebody asks, so that ten thousand open quickly.
SHOWN_ROWS = 200


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell: its text, what it is sorted by where that is not the text, and a sentence to fold out below it.

    Args:
        text: as people read it; shown as text, whatever is in it.
        value: a number to sort by, in SI units; None sorts by the text.
        why: a sentence behind the text; empty where there is none.
        word: the verdict that the text is, for its shape and colour; empty where it is none.
        full: what the text is short for, shown when pointed at and found by the filter; empty where it is for nothing.
    """

    text: str
    value: float | None = None
    why: str = ""
    word: str = ""
    full: str = ""


@dataclass(frozen=True, slots=True)
class Column:
    """A heading, whether its cells are numbers, and what it means where the heading alone does not tell."""

    name: str
    number: bool = True
    means: str = ""


@dataclass(frozen=True, slots=True)
class Table:
    """A table with a caption, which names it for who cannot see where it stands."""

    caption: str
    columns: Sequence[Column]
    rows: Sequence[Sequence[Cell]]

    @property
    def first(self) -> Sequence[Sequence[Cell]]:
        """The rows that stand in the page from the start."""
        return self.rows[:SHOWN_ROWS]

    @property
    def rest(self) -> Sequence[Sequence[Cell]]:
        """Those that are drawn when somebody asks; without JavaScript the page has them at once."""
        return self.rows[SHOWN_ROWS:]


def number(text: str, value: float | None) -> Cell:
    """A number as people read it, sorted by what it is in SI units."""
    return Cell(text, value if value is not None and math.isfinite(value) else None)


def plain_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> Table:
    """A table of texts; a column in which all of them are amounts is one of numbers, and sorted by these."""
    cells = [[Cell(text, quantity(text)) for text in row] for row in rows]
    numbers = [all(row[i].value is not None for row in cells if row[i].text) for i in range(len(columns))]
    headings = [Column(name, is_number) for name, is_number in zip(columns, numbers, strict=True)]
    kept = [[cell if column.number else Cell(cell.text) for cell, column in zip(row, headings, strict=True)]
            for row in cells]  # fmt: skip
    return Table(caption, headings, kept)


def quantity(text: str) -> float | None:
    """The first number of a text as `core.units` writes it, in SI units: `1.5 ms` is 0.0015; None where none begins it.

    A unit that is not known counts as one, so that `3 processes` comes before `10 processes`.
    """
    match = _AMOUNT.match(text)
    if match is None:
        return None
    return float(match[1].replace(",", "")) * _UNITS.get(match[2] or "", 1.0)


_AMOUNT = re.compile(r"[<>≤≥]?([+-]?[0-9][0-9,]*(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?)(?![0-9A-Za-z_]) ?([A-Za-zµ]+)?")
_UNITS = {"ns": 1e-9, "µs": 1e-6, "ms": 1e-3, "KiB": 2.0**10, "MiB": 2.0**20, "GiB": 2.0**30, "TiB": 2.0**40}
_UNITS |= {f"{prefix}{unit}": factor for unit in ("B", "FLOP")
           for prefix, factor in (("k", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("P", 1e15))}  # fmt: skip


def without_empty(table: Table) -> Table:
    """The same without columns that hold nothing."""
    kept = [i for i in range(len(table.columns)) if not table.rows or any(row[i].text for row in table.rows)]
    columns = [table.columns[i] for i in kept]
    return Table(table.caption, columns, [[row[i] for i in kept] for row in table.rows])
