"""`results.csv`: a line a result, for spreadsheets and for pandas."""

import csv
import io
import json
from collections.abc import Sequence

from ..baselines.rows import rows_of
from ..baselines.runs import Run
from ..core.rows import COLUMNS, Row, plain
from ..core.units import printable

# What a spreadsheet takes for the beginning of a formula, also in its wide form.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def results_csv(runs: Sequence[Run], rows: Sequence[Row] | None = None) -> str:
    """The file as text, as RFC 4180 describes it: CRLF, quotes where a cell needs them, the names first.

    Args:
        runs: that it is of.
        rows: what `rows_of` makes of them, where that is known already.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in rows_of(runs) if rows is None else rows:
        writer.writerows(map(_cell, plain(columns).values()) for columns in row.columns())
    return text.getvalue()


def _cell(value: object) -> object:
    """A value as a cell. Text has no control characters, and an apostrophe where a spreadsheet would compute it."""
    if isinstance(value, dict | list | bool):
        return json.dumps(value)
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text
