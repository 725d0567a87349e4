"""What was read of run files, kept beside the runs, so that ten thousand of them are read once and not every time.

A file counts as the same while its path, size and time of change are. The index holds arrays and JSON, never code, is
replaced whole, and may be thrown away at any time: whatever is wrong with it, the files are read anew.
"""

import contextlib
import io
import json
from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import CannotStore
from ..core.records import SCHEMA
from ..core.writing import write_atomically
from ..version import __version__

if TYPE_CHECKING:
    from pandas import DataFrame

NAME = "runs.npz"
# Of the layout below; another one is read anew.
FORMAT = 3
# Files that nobody asked for stay in the index up to so many, or it would grow for ever.
MOST_FILES = 100_000
# A file that changed this short a time ago may change again without its time of change showing it, as clocks of file
# systems are coarse: it is read, but not remembered.
SETTLED_NS = 2_000_000_000
TEXTS = ("path", "test", "unfit", "hosts")

# `path`, `test` (JSON), `unfit`, `hosts` (JSON), and seconds per call: the median of a process.
MeasuredRow = tuple[str, str, str, str, float]
# A row a file as `FileFacts` has it, and a row a measurement; texts of the second are categories.
Frames = tuple["DataFrame", "DataFrame"]


@dataclass(frozen=True, slots=True)
class FileFacts:
    """One file as it was read: what tells that it has changed since, its header, or why it is left out."""

    path: str
    size: int
    mtime_ns: int
    broken: str = ""
    run_id: str = ""
    started: str = ""
    tool: str = ""
    environment: str = ""
    cut: bool = False


FILE = [member.name for member in fields(FileFacts)]


def frames(files: Sequence[FileFacts], rows: Sequence[MeasuredRow]) -> Frames:
    """What was read, as tables."""
    from pandas import DataFrame

    # Not `asdict`, which copies each of ten thousand.
    facts = DataFrame([[getattr(one, name) for name in FILE] for one in files], columns=FILE)
    table = DataFrame(rows, columns=[*TEXTS, "seconds"])
    return facts.astype({"cut": bool}), _compact(table)


def _compact(rows: "DataFrame") -> "DataFrame":
    return rows.astype(dict.fromkeys(TEXTS, "category") | {"seconds": float})


def joined(known: Frames, new: Frames) -> Frames:
    """Both together; of what is in both, the new one."""
    from pandas import concat

    stays = [table[~table["path"].isin(new[0]["path"])] for table in known]
    if not len(new[0]):
        return known
    if not len(stays[0]):
        return new
    files, rows = (concat([old, fresh], ignore_index=True) for old, fresh in zip(stays, new, strict=True))
    return files, _compact(rows)


def load(folder: Path) -> tuple[Frames, list[str]]:
    """What is known from before, empty where nothing is; and a note where an index was there and cannot be used."""
    path = folder / NAME
    try:
        return _load(path), []
    except (FileNotFoundError, _OtherVersion):
        return frames([], []), []
    except Exception as error:
        # A damaged archive ends in a dozen of them: zipfile asks for passwords and for versions of the format to come.
        why = getattr(error, "strerror", None) or type(error).__name__
        return frames([], []), [f"the index {path} cannot be used ({why}), so the run files are read anew"]


class _OtherVersion(Exception):
    """An index of another version of this program."""


def _load(path: Path) -> Frames:
    import numpy
    from pandas import Categorical, DataFrame

    with path.open("rb") as file, numpy.load(file, allow_pickle=False) as arrays:
        told = json.loads(bytes(arrays["told"]))
        if told["made_by"] != _made_by():
            raise _OtherVersion
        codes = {name: arrays[name].astype("int32") for name in TEXTS}
        seconds = arrays["seconds"].astype("float64")
    if any((values < 0).any() for values in codes.values()):
        raise ValueError("a number points at nothing")
    texts: dict[str, Any] = {name: Categorical.from_codes(codes[name], told[name]) for name in TEXTS}
    files = DataFrame(told["files"], columns=FILE)
    rows = DataFrame(texts | {"seconds": seconds})
    if not set(told["path"]) <= set(files["path"]):
        raise ValueError("a file is missing")
    return files.astype({"cut": bool}), rows


def save(folder: Path, tables: Frames, asked: set[str], begun_ns: int) -> list[str]:
    """Keep what is known; returns a note where it cannot be written.

    Args:
        folder: of the index.
        tables: all that is known.
        asked: paths of this call. Others stay while their files exist and are not too many.
        begun_ns: when reading began: what changed shortly before may have changed again.
    """
    import numpy

    files, rows = tables
    mine = files["path"].isin(asked)
    others = [path for path in files["path"][~mine] if Path(path).exists()] if (~mine).sum() <= MOST_FILES else []
    settled = mine & (files["mtime_ns"] >= 0) & (files["mtime_ns"] < begun_ns - SETTLED_NS)
    files = files[settled | files["path"].isin(others)]
    rows = rows[rows["path"].isin(files["path"])]
    texts = {name: rows[name].cat.remove_unused_categories().cat for name in TEXTS}
    told: dict[str, Any] = {name: list(text.categories) for name, text in texts.items()}
    told |= {"made_by": _made_by(), "files": files.values.tolist()}
    arrays: dict[str, Any] = {name: text.codes.to_numpy("int32") for name, text in texts.items()}
    arrays["told"] = numpy.frombuffer(json.dumps(told).encode(), dtype="uint8")
    buffer = io.BytesIO()
    numpy.savez(buffer, seconds=rows["seconds"].to_numpy(), **arrays)
    try:
        write_atomically(folder / NAME, buffer.getvalue())
        with contextlib.suppress(FileExistsError), (folder / ".gitignore").open("x", encoding="utf-8") as ignore:
            ignore.write("*\n")
    except (CannotStore, OSError) as error:
        return [f"the index cannot be written, so the next time reads anew: {error}"]
    return []


def _made_by() -> list[object]:
    return [FORMAT, SCHEMA, __version__]
