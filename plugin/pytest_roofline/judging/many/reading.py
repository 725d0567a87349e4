"""Thousands of run files into one table: what is known from before comes from the index, the rest is read."""

import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ...core.errors import BadFile
from . import index
from .columns import ROWS, Columns, FileFacts
from .decoding import RunDecoder

# A file that changed this short a time ago may change again without its time of change showing it, as clocks of file
# systems are coarse: it is read, but not remembered.
SETTLED_NS = 2_000_000_000

Progress = Callable[[int, int], None]


def read_columns(
    paths: Sequence[str], cache: Path | None, progress: Progress | None = None
) -> tuple[Columns, list[str], int]:
    """The columns of these files, in this order and of no others; notes on the index; how many files were read.

    Args:
        paths: absolute, each once.
        cache: folder of the index; None keeps none.
        progress: called now and then with how many files of how many have been read.
    """
    known, note = index.load(cache) if cache is not None else (Columns(), "")
    stats = [_stat(path) for path in paths]
    new = [number for number, (path, seen) in enumerate(zip(paths, stats, strict=True)) if not _same(known, path, seen)]
    stale = [paths[number] for number in new if paths[number] in known.files]
    if stale:
        known = _taken(known, [path for path in known.files if path not in set(stale)])
    begun_ns = time.time_ns()
    decoder = RunDecoder()
    for done, number in enumerate(new):
        _read(known, paths[number], stats[number], decoder)
        if progress is not None and (done % 50 == 49 or done + 1 == len(new)):
            progress(done + 1, len(new))
    notes = [note] if note else []
    if cache is not None and (new or note):
        told = index.save(cache, _worth_keeping(known, paths, begun_ns))
        notes += [told] if told else []
    return _taken(known, paths), notes, len(new)


def _stat(path: str) -> FileFacts:
    try:
        seen = os.stat(path)  # noqa: PTH116
    except (OSError, ValueError):
        return FileFacts(-1, -1)
    return FileFacts(seen.st_size, seen.st_mtime_ns)


def _same(known: Columns, path: str, seen: FileFacts) -> bool:
    before = known.files.get(path)
    return before is not None and (before.size, before.mtime_ns) == (seen.size, seen.mtime_ns) and seen.size >= 0


def _read(columns: Columns, path: str, facts: FileFacts, decoder: RunDecoder) -> None:
    try:
        run = decoder.read(Path(path))
    except BadFile as error:
        columns.add_broken(path, facts, str(error))
    else:
        columns.add(path, facts, run)


def _worth_keeping(columns: Columns, asked: Sequence[str], begun_ns: int) -> Columns:
    mine = set(asked)
    others = [path for path in columns.files if path not in mine]
    kept = [path for path in others if os.path.exists(path)] if len(others) <= index.MOST_FILES else []  # noqa: PTH110
    settled = [path for path in asked if 0 <= columns.files[path].mtime_ns < begun_ns - SETTLED_NS]
    return _taken(columns, [*kept, *settled])


def _taken(columns: Columns, paths: Sequence[str]) -> Columns:
    """The columns of some files alone, in their order. Tables of texts stay whole."""
    import numpy

    if list(columns.files) == list(paths):
        return columns
    position = {path: number for number, path in enumerate(paths)}
    places = numpy.array([position.get(path, -1) for path in columns.files], dtype="int32")
    rows = {name: numpy.frombuffer(columns.rows[name], dtype="int32") for name in ROWS}
    file = places[rows["file"]] if len(places) else rows["file"]
    order = numpy.argsort(file, kind="stable")
    order = order[file[order] >= 0]
    taken = Columns({path: columns.files[path] for path in paths}, columns.tests, columns.environments, columns.texts)
    for name, values in (rows | {"file": file}).items():
        taken.rows[name].frombytes(values[order].astype("int32").tobytes())
    taken.seconds.frombytes(numpy.frombuffer(columns.seconds)[order].tobytes())
    return taken
