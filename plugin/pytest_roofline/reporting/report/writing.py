"""The four files of a report, written whole or not at all, each by itself."""

from collections.abc import Callable, Sequence
from pathlib import Path

from ...core.errors import CannotStore, RooflineError
from ...judging.runs import Run
from ...judging.writing import write_atomically
from .folder import FILES
from .results_csv import results_csv
from .run_json import run_json
from .summary import MOST_BYTES, summary


def write_report(runs: Sequence[Run], folder: Path) -> list[Path]:
    """Write the report of some runs, over one that is there; the paths of its files.

    Raises:
        CannotStore: a file could not be written; the others have been.
    """
    makers: tuple[Callable[[Sequence[Run]], str], ...] = (run_json, results_csv, summary, _page)
    troubles = []
    for name, make in zip(FILES, makers, strict=True):
        try:
            write_atomically(folder / name, make(runs))
        except RooflineError as error:
            # What is wrong with one file, or with a record that one of them shows, takes no other along.
            troubles.append(str(error))
    if troubles:
        raise CannotStore("; ".join(troubles))
    return [folder / name for name in FILES]


def _page(runs: Sequence[Run]) -> str:
    from .page import page

    return page(runs)


def append_summary(runs: Sequence[Run], path: Path) -> None:
    """Append the summary to the file that GitHub shows, which stays below a mebibyte with what is in it.

    Raises:
        CannotStore: it cannot be written, or has no room left.
    """
    try:
        before = path.read_bytes() if path.exists() else b""
        start = "\n" if before and not before.endswith(b"\n") else ""
        text = summary(runs, MOST_BYTES - len(before) - len(start))
        if not text:
            raise CannotStore(f"{path} holds {len(before)} bytes and has no room for a summary; GitHub takes 1 MiB")
        with path.open("ab") as file:
            file.write((start + text).encode())
    except OSError as error:
        raise CannotStore(f"{path} cannot be written: {error.strerror or error}") from None
