"""Values in a table of CSV by the name of a column. The columns of text tell the rows apart."""

import csv
from collections.abc import Sequence

from ..core.errors import BadFile
from ..core.groups import group_by
from .placed_values import PlacedValues

_SEPARATORS = (",", ";", "\t")


def values_at(text: str, path: str) -> list[PlacedValues]:
    """Return the values of a column, by row. Rows of one name are samples of one figure."""
    header, rows = _table(text, path)
    if path not in header:
        return []
    column = header.index(path)
    naming = _naming_columns(header, rows, column)
    rows_by_name = group_by(rows, lambda row: tuple(row[place] for place in naming))
    return [
        PlacedValues(
            path,
            {header[place]: name for place, name in zip(naming, names, strict=True)},
            tuple(row[column] for row in rows_of_name),
        )
        for names, rows_of_name in rows_by_name.items()
    ]


def places(text: str) -> list[str]:
    """Return the names of the columns."""
    return _table(text, "")[0]


def _table(text: str, path: str) -> tuple[list[str], list[list[str]]]:
    """Return the header and the rows below it, up to a line of another length.

    The header is the first line that names the column, or else the first of the most cells.

    Raises:
        BadFile: no line has several cells and none is the column, or a cell is too long.
    """
    lines = [line.strip() for line in text.splitlines()]
    try:
        tables = [
            [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator)]
            for separator in _SEPARATORS
        ]
    except csv.Error as error:
        raise BadFile(f"the program printed no table that can be read: {error}") from None
    heads = [(table, number) for table in tables for number, row in enumerate(table) if path in row]
    table, start = next(iter(heads), None) or max(
        ((table, number) for table in tables for number in range(len(table))),
        key=lambda head: len(head[0][head[1]]),
    )
    if not heads and len(table[start]) < 2:
        raise BadFile(
            "the program printed no table; expected a line of column names, separated by commas"
        )
    header, rows = table[start], list[list[str]]()
    for row in table[start + 1 :]:
        if len(row) != len(header):
            break
        rows.append(row)
    return header, rows


def _naming_columns(header: Sequence[str], rows: Sequence[Sequence[str]], column: int) -> list[int]:
    """Return the columns whose text differs between the rows; without one, the first column."""
    differing = [
        place
        for place in range(len(header))
        if place != column and len({row[place] for row in rows}) > 1
    ]
    of_text = [place for place in differing if not all(_is_number(row[place]) for row in rows)]
    return of_text or [place for place in differing if place == 0]


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
