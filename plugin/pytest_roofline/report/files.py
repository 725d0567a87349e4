"""The four files of a report: `run.json`, `results.csv`, `summary.md` and the page."""

import csv
import io
import math
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from ..baselines.run_files import run_names
from ..baselines.run_rows import rows_of
from ..baselines.runs import Run
from ..core.errors import CannotStore, RooflineError
from ..core.groups import group_by
from ..core.records import Measurement
from ..core.rows import COLUMNS, Row, plain
from ..core.storage import to_plain
from ..core.units import printable
from ..core.writing import json_text, write_atomically
from ..version import __version__
from .folder import FILES
from .sentences import sentence_of
from .summary import MOST_BYTES, summary


def write_report(
    runs: Sequence[Run], folder: Path, rows: Sequence[Row] | None = None
) -> list[Path]:
    """Write the report of some runs, and return its paths.

    Files of an earlier report are overwritten.

    Args:
        runs: the runs to report.
        folder: created if it is missing.
        rows: the result of `rows_of(runs)`, from a caller that has it already.

    Raises:
        CannotStore: a file could not be made or written; the others have been.
    """
    results = rows_of(runs) if rows is None else rows
    makers: tuple[Callable[[Sequence[Run], Sequence[Row]], str], ...] = (
        run_json,
        results_csv,
        _summary,
        _page,
    )
    troubles = []
    for name, make in zip(FILES, makers, strict=True):
        try:
            write_atomically(folder / name, make(runs, results))
        except Exception as error:
            # A fault in one file, or in a record that it shows, must not keep the others from being written.
            text = reason(error)
            # Errors of writing name the file already.
            names_file = str(folder / name) in text
            troubles.append(text if names_file else f"{folder / name}: {text}")
    if troubles:
        raise CannotStore("; ".join(troubles))
    return [folder / name for name in FILES]


def reason(error: Exception) -> str:
    """Return the cause of an error.

    An error of this package is a sentence for the user. Any other error is a defect, so its line
    of code is added for the developer.
    """
    if isinstance(error, RooflineError):
        return str(error)
    # The last frame is the one that raised. An error that was never raised has no frames.
    *_, raising_frame = traceback.extract_tb(error.__traceback__) or [
        traceback.FrameSummary("?", 0, "?")
    ]
    place = f"{Path(raising_frame.filename).name}, line {raising_frame.lineno}"
    return f"{type(error).__name__}: {error} ({place}); this is a defect of pytest-roofline, please report it"


def _summary(runs: Sequence[Run], rows: Sequence[Row]) -> str:
    """Return `summary.md`; raise CannotStore if it does not fit the limit."""
    text = summary(runs, rows)
    if not text:
        raise CannotStore(f"the summary would be longer than the limit of {MOST_BYTES} bytes")
    return text


def _page(runs: Sequence[Run], rows: Sequence[Row]) -> str:
    """Return `index.html`. Its modules are imported only where a page is made."""
    from .page import page

    return page(runs, rows)


def append_summary(runs: Sequence[Run], path: Path, rows: Sequence[Row] | None = None) -> None:
    """Append the summary to the file that GitHub shows.

    The summary is as long as fits: the file stays below 1 MiB, its earlier content included.

    Raises:
        CannotStore: it cannot be written, or has no room left.
    """
    try:
        before = path.read_bytes() if path.exists() else b""
        # Ends the last line of the earlier content, where it has no end.
        start = "\n" if before and not before.endswith(b"\n") else ""
        free_bytes = MOST_BYTES - len(before) - len(start)
        text = summary(runs, rows, free_bytes)
        if not text:
            raise CannotStore(
                f"{path} holds {len(before)} bytes and has no room for a summary; the limit of GitHub is 1 MiB"
            )
        with path.open("ab") as file:
            file.write((start + text).encode())
    except OSError as error:
        raise CannotStore(f"{path} cannot be written: {error.strerror or error}") from None


# Characters that begin a formula in a spreadsheet, the full-width forms included.
_FORMULA = ("=", "+", "-", "@", "＝", "＋", "－", "＠")


def results_csv(runs: Sequence[Run], rows: Sequence[Row] | None = None) -> str:
    """Return `results.csv` as text, in the form of RFC 4180.

    Lines end in CRLF, cells are quoted where they need it, and the first line has the names.

    Args:
        runs: the runs to report.
        rows: the result of `rows_of(runs)`, from a caller that has it already.
    """
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for row in rows_of(runs) if rows is None else rows:
        writer.writerows(map(_csv_cell, plain(columns).values()) for columns in row.columns())
    return text.getvalue()


def _csv_cell(value: object) -> object:
    """Return a value as a cell.

    Text has no control characters. An apostrophe in front of it keeps a spreadsheet from computing it.
    Lists, mappings and booleans are written as JSON; numbers and None stay as they are.
    """
    if isinstance(value, dict | list | bool):
        return json_text(value, ensure_ascii=True, indent=None).rstrip()
    if not isinstance(value, str):
        return value
    text = printable(value)
    return f"'{text}" if text.lstrip().startswith(_FORMULA) else text


# The version of `run.json`. The records of a run have a version of their own, in the run's header.
SCHEMA = 2
# The lists of records in a run. The header and the footer are single records.
_LISTS = (
    "calibrations",
    "measurements",
    "figures",
    "memory_uses",
    "profiles",
    "resources",
    "out_of_memory",
    "outcomes",
    "verdicts",
    "exact",
)


def run_json(runs: Sequence[Run], rows: Sequence[Row] | None = None) -> str:
    """Return `run.json` as text, without NaN or infinities.

    Args:
        runs: the runs to report.
        rows: the result of `rows_of(runs)`, from a caller that has it already.
    """
    names = run_names(runs)
    results = rows_of(runs) if rows is None else rows
    rows_by_path = group_by(results, lambda row: row.path)
    document = {
        "schema": SCHEMA,
        "tool": f"pytest-roofline {__version__}",
        "runs": [
            _run(run, names[run.path], sentence_of(run, rows_by_path.get(run.path, [])))
            for run in runs
        ],
        "results": [plain(columns) for row in results for columns in row.columns()],
    }
    return json_text(document, indent=None)


def _run(run: Run, name: str, sentence: str) -> dict[str, object]:
    """Return a run with all its records as plain data."""
    return {
        "name": name,
        "sentence": sentence,
        "path": printable(str(run.path)),
        "cut": run.cut,
        "header": to_plain(run.header),
        **{field: [_record(record) for record in getattr(run, field)] for field in _LISTS},
        "footer": to_plain(run.footer) if run.footer is not None else None,
    }


def _record(record: object) -> dict[str, object]:
    """Return a record as plain data.

    A measurement also gets its derived figures, such as its rate, as far as they are finite.
    """
    columns = to_plain(record)
    if isinstance(record, Measurement):
        columns["derived"] = {
            name: value for name, value in record.derived().items() if math.isfinite(value)
        }
    return columns
