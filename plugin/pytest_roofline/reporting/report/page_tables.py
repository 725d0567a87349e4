"""Tables of the page before they are markup: cells with the value that they are sorted by, headings, what is folded."""

import math
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
    """

    text: str
    value: float | None = None
    why: str = ""
    word: str = ""


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


def plain_table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], left: int = 1) -> Table:
    """A table of texts, of which the first `left` columns are words and the others numbers."""
    headings = [Column(name, index >= left) for index, name in enumerate(columns)]
    return Table(caption, headings, [[Cell(text) for text in row] for row in rows])


def without_empty(table: Table) -> Table:
    """The same without columns that hold nothing."""
    kept = [i for i in range(len(table.columns)) if not table.rows or any(row[i].text for row in table.rows)]
    columns = [table.columns[i] for i in kept]
    return Table(table.caption, columns, [[row[i] for i in kept] for row in table.rows])
