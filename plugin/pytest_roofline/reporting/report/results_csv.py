"""`results.csv`: a line a result, for spreadsheets and for pandas."""

import csv
import io
import json
from collections.abc import Sequence
from dataclasses import fields

from ...core.rows import Row
from ...core.units import printable
from ...judging.report_rows import ReportRow, rows_of
from ...judging.runs import Run
from ..rows import rows as plain_rows

COLUMNS = tuple(member.name for member in fields(Row))
# What a spreadsheet takes for the beginning of a formula, also in its wide form.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def results_csv(runs: Sequence[Run], rows: Sequence[ReportRow] | None = None) -> str:
    """The file as text, as RFC 4180 describes it: CRLF, quotes where a cell needs them, the names first.

    Args:
        runs: that it is of.
        rows: what `rows_of` makes of them, where that is known already.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in plain_rows(rows_of(runs) if rows is None else rows):
        writer.writerow([_cell(getattr(row, name)) for name in COLUMNS])
    return text.getvalue()


def _cell(value: object) -> object:
    """A value as a cell. Text has no control characters, and an apostrophe where a spreadsheet would compute it."""
    if isinstance(value, dict | list | bool):
        return json.dumps(value)
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
