"""The four files of a report, written whole or not at all, each by itself."""

import traceback
from collections.abc import Callable, Sequence
from pathlib import Path

from ..baselines.rows import rows_of
from ..baselines.runs import Run
from ..core.errors import CannotStore, RooflineError
from ..core.rows import Row
from ..core.writing import write_atomically
from .folder import FILES
from .results_csv import results_csv
from .run_json import run_json
from .summary import MOST_BYTES, summary


def write_report(runs: Sequence[Run], folder: Path, rows: Sequence[Row] | None = None) -> list[Path]:
    """Write the report of some runs, over one that is there; the paths of its files.

    Args:
        runs: that it is of.
        folder: made where it is missing.
        rows: what `rows_of` makes of them, where that is known already.

    Raises:
        CannotStore: a file could not be made or written; the others have been.
    """
    found = rows_of(runs) if rows is None else rows
    makers: tuple[Callable[[Sequence[Run], Sequence[Row]], str], ...] = (run_json, results_csv, _summary, _page)
    troubles = []
    for name, make in zip(FILES, makers, strict=True):
        try:
            write_atomically(folder / name, make(runs, found))
        except Exception as error:
            # Whatever is wrong with one file, or with a record that one of them shows, takes no other along.
            told = reason(error)
            troubles.append(told if str(folder / name) in told else f"{folder / name}: {told}")
    if troubles:
        raise CannotStore("; ".join(troubles))
    return [folder / name for name in FILES]


def reason(error: Exception) -> str:
    """Why something could not be done: our own sentence, else also where that happened, for those who can mend it."""
    if isinstance(error, RooflineError):
        return str(error)
    *_, last = traceback.extract_tb(error.__traceback__) or [traceback.FrameSummary("?", 0, "?")]
    return (
        f"{type(error).__name__}: {error} ({Path(last.filename).name}, line {last.lineno}); this is a defect, report it"
    )


def _summary(runs: Sequence[Run], rows: Sequence[Row]) -> str:
    text = summary(runs, rows)
    if not text:
        raise CannotStore(f"the summary would be longer than the {MOST_BYTES} bytes that are shown of it")
    return text


def _page(runs: Sequence[Run], rows: Sequence[Row]) -> str:
    from .page import page

    return page(runs, rows)


def append_summary(runs: Sequence[Run], path: Path, rows: Sequence[Row] | None = None) -> None:
    """Append the summary to the file that GitHub shows, which stays below a mebibyte with what is in it.

    Raises:
        CannotStore: it cannot be written, or has no room left.
    """
    try:
        before = path.read_bytes() if path.exists() else b""
        start = "\n" if before and not before.endswith(b"\n") else ""
        text = summary(runs, rows, MOST_BYTES - len(before) - len(start))
        if not text:
            raise CannotStore(f"{path} holds {len(before)} bytes and has no room for a summary; GitHub takes 1 MiB")
        with path.open("ab") as file:
            file.write((start + text).encode())
    except OSError as error:
        raise CannotStore(f"{path} cannot be written: {error.strerror or error}") from None
