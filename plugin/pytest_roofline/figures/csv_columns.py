"""Values in a table of CSV by the name of a column. The columns of text tell the rows apart."""

import csv
import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

from ..core.errors import BadFile
from ..core.groups import group_by
from ..core.units import count
from .figure_units import unit_of
from .place import Place, is_number

_SEPARATORS = (",", ";", "\t")
# The name of a column with its unit, `Triton (GB/s)`.
_WITH_UNIT = re.compile(r"(?P<name>.*\S) \((?P<unit>[^()]+(?:\([^()]*\))?)\)")
# pandas may write a whole number as `4096.0`.
_WHOLE = re.compile(r"\d+(?:\.0+)?")
# A cell that holds no figure.
_UNMEASURED = ("", "nan")


def values_at(text: str, path: str) -> list[Place]:
    """Return the values of the column named `path`, by figure.

    There are none without such a column. The cells of some other columns name a row. Rows of one name are samples of
    one figure.
    """
    header, rows = _table(text, path)
    if path not in header:
        return []
    column = header.index(path)
    naming = _naming_columns(header, rows, column)
    rows_by_name = group_by(rows, lambda row: tuple(row[place] for place in naming))
    return [
        Place(
            path,
            {header[place]: name for place, name in zip(naming, names, strict=True)},
            [row[column] for row in rows_of_name],
        )
        for names, rows_of_name in rows_by_name.items()
    ]


def places(text: str) -> list[str]:
    """Return the names of the columns."""
    header, _ = _table(text, "")
    return header


def document_of(text: str, left_out: Sequence[str] = ()) -> dict[str, list[dict[str, object]]]:
    """Return a text that is one table as JSON would hold it.

    Its `rows` are one for each figure. The columns before the figures are parameters. A last line without an end may be
    cut, and is `skipped`.

    Args:
        text: with the names of the columns in its first line.
        left_out: names of columns that hold no figure.

    Raises:
        BadFile: it is no table, or a line has more or fewer cells than the first.
    """
    (_, header), *rows = _numbered_rows(text)
    is_cut = not text.endswith("\n")
    cut_rows = [rows.pop()] if rows and is_cut else []
    for number, row in rows:
        if len(row) != len(header):
            raise BadFile(f"line {number}: {count(len(row), 'column')}; expected {len(header)}")
    columns = _figure_columns(header, rows)
    parameter_names = header[: columns[0].place] if columns else []
    points: list[dict[str, object]] = [
        {
            "name": f"line {number}, {column.name}",
            # A row goes on behind its parameters, with the figures.
            "parameters": dict(zip(parameter_names, row, strict=False)),
            "line": column.name,
            "unit": column.unit,
            "value": row[column.place],
        }
        for column in columns
        if column.name not in left_out
        for number, row in rows
        if row[column.place] not in _UNMEASURED
    ]
    reason = "it has no line end and may be cut"
    points += [{"name": f"line {number}", "skipped": reason} for number, _ in cut_rows]
    return {"rows": points}


def _numbered_rows(text: str) -> list[tuple[int, list[str]]]:
    """Return the lines that hold something, each with its number and its cells."""
    reader = csv.reader(text.splitlines())
    try:
        rows = [(reader.line_num, [cell.strip() for cell in row]) for row in reader if any(row)]
    except csv.Error as error:
        raise BadFile(f"line {reader.line_num}: no row of a table ({error})") from None
    if not rows:
        raise BadFile("no table; expected a line of names with commas between")
    return rows


@dataclass(frozen=True, slots=True)
class _FigureColumn:
    """A column of figures, with the unit in its name; empty where it names none."""

    place: int
    name: str
    unit: str


def _figure_columns(
    header: Sequence[str], rows: Sequence[tuple[int, list[str]]]
) -> list[_FigureColumn]:
    """Return the columns that hold figures: those with a unit in their name.

    If no column has a unit, the figures begin at the first column that holds other than whole numbers, or at the last
    column. The first column never counts then, since it names the row.
    """
    columns = []
    for place, text in enumerate(header):
        match = _WITH_UNIT.fullmatch(text)
        unit = match["unit"] if match and unit_of(match["unit"]) else ""
        columns.append(_FigureColumn(place, match["name"] if match else text, unit))
    with_unit = [column for column in columns if column.unit]
    if with_unit:
        return with_unit
    are_whole = [all(_WHOLE.fullmatch(row[column.place]) for _, row in rows) for column in columns]
    first = are_whole.index(False) if False in are_whole else len(header) - 1
    return columns[max(1, first) :]


def _table(text: str, path: str) -> tuple[list[str], list[list[str]]]:
    """Return the header of a program's table, and its rows.

    The rows are those below it, up to a line of another length. `path` is the name of the wanted column. The header is
    the first line that names the column, or else the first of the most cells.

    Raises:
        BadFile: no line has several cells and none is the column, or a cell is too long.
    """
    # One table for each separator. The line that names the column, or has the most cells, tells which one is right.
    tables = _split_tables(text)
    lines = [(table, number) for table in tables for number in range(len(table))]
    with_column = [(table, number) for table, number in lines if path in table[number]]

    def cell_count(line: tuple[list[list[str]], int]) -> int:
        table, number = line
        return len(table[number])

    table, start = with_column[0] if with_column else max(lines, key=cell_count)
    header = table[start]
    if not with_column and len(header) < 2:
        raise BadFile(
            "the program printed no table; expected a line of column names, separated by commas"
        )
    rows = itertools.takewhile(lambda row: len(row) == len(header), table[start + 1 :])
    return header, list(rows)


def _split_tables(text: str) -> list[list[list[str]]]:
    """Return the cells of all lines, once for each separator that a table may have."""
    lines = [line.strip() for line in text.splitlines()]
    try:
        return [
            [[cell.strip() for cell in row] for row in csv.reader(lines, delimiter=separator)]
            for separator in _SEPARATORS
        ]
    except csv.Error as error:
        raise BadFile(f"the program printed no table that can be read: {error}") from None


def _naming_columns(header: Sequence[str], rows: Sequence[Sequence[str]], column: int) -> list[int]:
    """Return the columns that tell the rows apart.

    They are those of text that differs between the rows. Without any, that is the first column if its numbers differ,
    else none. `column` holds the figures.
    """
    differing = [
        place
        for place in range(len(header))
        if place != column and len({row[place] for row in rows}) > 1
    ]
    of_text = [place for place in differing if not all(is_number(row[place]) for row in rows)]
    return of_text or [place for place in differing if place == 0]
