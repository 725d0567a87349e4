"""What was read of run files, kept beside the runs, so that ten thousand of them are read once and not every time.

A file counts as the same while its path, size and time of change are. The index holds arrays and JSON, never code, is
replaced whole, and may be thrown away at any time: whatever is wrong with it, the files are read anew.
"""

import contextlib
import dataclasses
import json
import os
import tempfile
from array import array
from pathlib import Path
from typing import Any

from ...core.records import SCHEMA
from ...version import __version__
from .columns import ROWS, Columns, FileFacts, Texts

NAME = "runs.npz"
# Of the layout below; another one is read anew.
FORMAT = 2
# Files that nobody asked for stay in the index up to so many, or it would grow for ever.
MOST_FILES = 100_000


def load(folder: Path) -> tuple[Columns, str]:
    """What is known from before, empty where nothing is; and a note where an index was there and cannot be used."""
    path = folder / NAME
    try:
        return _load(path), ""
    except FileNotFoundError:
        return Columns(), ""
    except _OtherVersion:
        return Columns(), ""
    except Exception as error:
        # A damaged archive ends in a dozen of them: zipfile asks for passwords and for versions of the format to come.
        why = getattr(error, "strerror", None) or type(error).__name__
        return Columns(), f"the index {path} cannot be used ({why}), so the run files are read anew"


class _OtherVersion(Exception):
    """An index of another version of this program."""


def _load(path: Path) -> Columns:
    import numpy

    with path.open("rb") as file, numpy.load(file, allow_pickle=False) as arrays:
        told = json.loads(bytes(arrays["tables"]))
        if told["made_by"] != _made_by():
            raise _OtherVersion
        rows = {name: array("i", arrays[f"row_{name}"].astype("int32").tobytes()) for name in ROWS}
        seconds = array("d", arrays["seconds"].astype("float64").tobytes())
    files = {name: FileFacts(**dict(zip(told["facts"], row, strict=True))) for name, *row in told["files"]}
    tests, environments, texts = (Texts(told[name]) for name in ("tests", "environments", "texts"))
    columns = Columns(files, tests, environments, texts, rows, seconds)
    _check(columns)
    return columns


def _check(columns: Columns) -> None:
    """Raise ValueError where numbers point at nothing."""
    import numpy

    most = {"file": len(columns.files), "test": len(columns.tests.all)}
    for name in ROWS:
        values = numpy.frombuffer(columns.rows[name], dtype="int32")
        if len(values) != len(columns.seconds):
            raise ValueError(f"{name} has another length")
        limit = most.get(name, len(columns.texts.all)) if name != "process" else 2**31
        if len(values) and not (values.min() >= 0 and values.max() < limit):
            raise ValueError(f"{name} points at nothing")
    if not all(-1 <= facts.environment < len(columns.environments.all) for facts in columns.files.values()):
        raise ValueError("an environment is missing")


def save(folder: Path, columns: Columns) -> str:
    """Keep what is known; returns a note where it cannot be written."""
    import numpy

    facts = [member.name for member in dataclasses.fields(FileFacts)]
    # Files come and go, and their environments with them; tests and reasons are few.
    used = sorted({one.environment for one in columns.files.values()} - {-1})
    number = {-1: -1} | {old: new for new, old in enumerate(used)}
    kept = {path: dataclasses.replace(one, environment=number[one.environment]) for path, one in columns.files.items()}
    told = {
        "made_by": _made_by(),
        "facts": facts,
        "files": [[path, *(getattr(one, name) for name in facts)] for path, one in kept.items()],
        "tests": columns.tests.all,
        "environments": [columns.environments.all[old] for old in used],
        "texts": columns.texts.all,
    }
    arrays: dict[str, Any] = {f"row_{name}": numpy.frombuffer(columns.rows[name], dtype="int32") for name in ROWS}
    arrays["seconds"] = numpy.frombuffer(columns.seconds, dtype="float64")
    arrays["tables"] = numpy.frombuffer(json.dumps(told).encode(), dtype="uint8")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with contextlib.suppress(FileExistsError), (folder / ".gitignore").open("x", encoding="utf-8") as ignore:
            ignore.write("*\n")
        _replace(folder / NAME, arrays)
    except OSError as error:
        return f"the index {folder / NAME} cannot be written ({error.strerror or error}), so the next time reads anew"
    return ""


def _replace(path: Path, arrays: dict[str, Any]) -> None:
    """Write beside and rename: two processes at once each leave a whole index, the later one's."""
    import numpy

    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            numpy.savez(file, **arrays)
        # mkstemp makes private files; whoever may read the runs may read what was read of them.
        Path(name).chmod(0o644)
        Path(name).replace(path)
    finally:
        Path(name).unlink(missing_ok=True)


def _made_by() -> list[object]:
    return [FORMAT, SCHEMA, __version__]
