"""The paths of run files.

The module has the names that a user gives them, and the writer that appends to one.
"""

import contextlib
import glob
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import TextIO

from ..core.errors import BadFile, BadInput, CannotStore
from ..core.storage import check_name
from ..core.units import printable
from ..core.writing import make_ignored_folder
from .runs import FOREIGN, Line, Run, assemble, encode_line, read_line, read_run

# How many saved runs a message names where a run does not exist.
MOST_NAMED = 5


def run_path(name: str, folder: Path, argument: str = "run name") -> Path:
    """Return the path that a user's NAME|PATH means.

    It is a path if it has a `/` or ends in .json or .jsonl, else a saved name.
    """
    if "/" in name or os.sep in name or name.endswith((".json", ".jsonl")):
        return Path(name)
    return folder / "runs" / f"{check_name(name, argument)}.jsonl"


def resolve_run(name: str, folder: Path, argument: str = "run name") -> Path:
    """Return the path of a run that is to be read.

    It is made of a saved name or a path. `argument` names the user's argument in a message. A path need not exist yet;
    a saved name must.

    Raises:
        BadInput: no run is saved under this name.
    """
    path = run_path(name, folder, argument)
    if path != Path(name) and not path.exists():
        raise BadInput(f"run file {path} does not exist; {saved_runs(folder)}")
    return path


def saved_runs(folder: Path) -> str:
    """Return the sentence on the newest saved runs of a folder."""
    paths = sorted((folder / "runs").glob("*.jsonl"), key=lambda path: path.lstat().st_mtime)
    if not paths:
        return f"no run is saved in {folder} yet; save a run with --roofline-save=NAME"
    older = f" and {len(paths) - MOST_NAMED} older" if len(paths) > MOST_NAMED else ""
    return f"saved runs: {', '.join(path.stem for path in paths[-MOST_NAMED:])}{older}"


class RunWriter:
    """Appends records to a run file, each on disk before the next test starts.

    Attributes:
        path: the file; None before the first record, and once nothing can be saved.
        trouble: what went wrong and where the run is saved instead, as a sentence; empty where all is well.
        aside: the new path of an INVALID run that had the same name.
    """

    def __init__(self, folder: Path, name: str) -> None:
        """Prepare to write a run under a name; its file is created with the first record."""
        self.folder = folder
        self.name = name
        # The run's file, while it can be written.
        self.path: Path | None = None
        # Why the run is not saved under its name; empty where it is.
        self.trouble = ""
        # The new path of an INVALID run that had the name before.
        self.aside: Path | None = None
        self._lines: list[str] = []
        self._file: TextIO | None = None

    def write(self, record: Line) -> None:
        """Append one record. The first one creates the file.

        Where the file cannot be written, the run continues in another, or only in memory.
        """
        line = encode_line(record)
        self._lines.append(line)
        if self._file is not None:
            try:
                self._file.write(line)
                self._file.flush()
            except OSError as error:
                self._fall_back(error)
        elif not self.trouble:
            self._open_first()

    def read_back(self) -> Run | None:
        """Return the run as if it had been read from its file.

        It does not matter whether it could be saved. None where nothing was written.
        """
        path = self.path or Path(f"{self.name}.jsonl")
        records = [
            read_line(line.encode(), number, path) for number, line in enumerate(self._lines, 1)
        ]
        return assemble(path, records, cut=False) if records else None

    def close(self) -> None:
        """Close the file; an error of a full disk may appear only now."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._fall_back(error)
                if self._file is not None:
                    self._file.close()

    def _open_first(self) -> None:
        """Open the file for the first record, and rename an INVALID run of that name."""
        try:
            make_run_folder(self.folder)
            path = self.folder / "runs" / f"{self.name}.jsonl"
            if path.exists() and _can_make_way(path):
                self.aside = _rename_aside(path)
            self._start(path)
        except OSError as error:
            self._fall_back(error)

    def _start(self, path: Path) -> None:
        """Create a file and write all records so far.

        Raises:
            OSError: the file cannot be written; it is removed.
        """
        # "x": an existing run is never overwritten, even if it was saved since `_open_first` looked.
        self._file = path.open("x", encoding="utf-8")
        try:
            self._file.writelines(self._lines)
            self._file.flush()
        except OSError:
            self._abandon()
            path.unlink(missing_ok=True)
            raise
        self.path = path

    def _fall_back(self, error: OSError) -> None:
        """Continue in a temporary folder at the first error, else only in memory."""
        intended = self.folder / "runs" / f"{self.name}.jsonl"
        # Only the first error leads to another folder; after a second one the run stays in memory.
        is_first, old_path = not self.trouble, self.path
        self._abandon()
        self.trouble = f"the run could not be saved as {intended}: {error.strerror or error}"
        if is_first and self._start_elsewhere():
            if old_path is not None:
                # Everything is in the new file: half a run must not occupy the name.
                old_path.unlink(missing_ok=True)
            self.trouble += f"; saved as {self.path} instead"
        elif old_path is not None:
            partial = "that file" if old_path == intended else old_path
            self.trouble += f"; {partial} holds the measurements until then; later measurements are only printed here"
        else:
            self.trouble += "; the measurements of this run are only printed here"
        self.trouble += "; choose another folder with --roofline-dir"

    def _start_elsewhere(self) -> bool:
        """Start the file in a temporary folder; return False where that fails, too."""
        folder = ""
        try:
            folder = tempfile.mkdtemp(prefix="roofline-")
            self._start(Path(folder, f"{self.name}.jsonl"))
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            return False
        return True

    def _abandon(self) -> None:
        """Close a file that cannot be written any more, and forget it."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = self.path = None


def make_run_folder(folder: Path) -> None:
    """Make `folder`/runs, which git ignores."""
    make_ignored_folder(folder / "runs")


def runs_of_child(folder: Path, report_error: Callable[[BadFile], None]) -> Iterator[Run]:
    """Yield the runs that a child process saved in a folder.

    `report_error` gets the error for each file that cannot be read.
    """
    for path in sorted((folder / "runs").glob("*.jsonl")):
        try:
            yield read_run(path)
        except BadFile as error:
            report_error(error)


def refuse_existing(folder: Path, name: str) -> None:
    """Raise CannotStore where a run of that name exists.

    A run whose measurements are all INVALID is no obstacle: it will be renamed.
    """
    path = folder / "runs" / f"{name}.jsonl"
    if path.exists() and not _can_make_way(path):
        raise CannotStore(
            f"a run named {name!r} is already saved as {path}; choose another name or remove that file"
        )


def _can_make_way(path: Path) -> bool:
    """Return True where a run file may be renamed to free its name."""
    try:
        return makes_way(read_run(path))
    except (BadFile, OSError):
        return False


def makes_way(run: Run) -> bool:
    """Return True where a complete run has no usable measurement.

    Such a run makes way for a new run of the same name, as no comparison and no baseline could use
    it.
    """
    unusable = [
        bool(measurement.invalid) or measurement.key.identity in run.spoiled_reasons
        for measurement in run.tested
    ]
    return run.footer is not None and bool(unusable) and all(unusable) and not run.resources


def _rename_aside(path: Path) -> Path:
    """Rename a run whose name is needed again; return the new path.

    Its new suffix is `.invalid` or `.invalid-2`, which no command reads as a run of the folder.
    """
    numbered = (f".invalid-{number}" for number in itertools.count(2))
    paths = map(path.with_suffix, itertools.chain([".invalid"], numbered))
    return path.rename(next(new_path for new_path in paths if not new_path.exists()))


SUFFIX = ".jsonl"


def expand(
    arguments: Sequence[str], folder: Path, listed: Iterable[str] = (), *, logs: bool = False
) -> list[str]:
    """Return the absolute paths of the run files that arguments mean.

    They are sorted, each once. `listed` holds the lines to read for the argument `-`. With `logs`,
    folders and patterns give files of any name.

    Raises:
        BadInput: a file that is named does not exist, or there is none at all.
    """
    paths: dict[str, None] = {}
    for argument in _expand_dash(arguments, listed):
        for path in paths_of(argument, folder, logs=logs):
            # A pattern returns only files that exist; a name or path may not.
            if not os.path.exists(path):  # noqa: PTH110
                raise BadInput(
                    f"run file {path} does not exist; expected names, paths, folders or patterns of what is there"
                )
            paths[os.path.abspath(path)] = None  # noqa: PTH100
    if not paths:
        raise BadInput("the list of run files is empty; expected names, paths, folders or patterns")
    return sorted(paths)


def _expand_dash(arguments: Sequence[str], listed: Iterable[str]) -> Iterable[str]:
    """Yield the arguments with the listed lines in place of `-`."""
    for argument in arguments:
        if argument == "-":
            yield from filter(None, (line.strip() for line in listed))
        else:
            yield argument


def paths_of(argument: str, folder: Path, *, logs: bool = False) -> list[str]:
    """Return the files that an argument means, with paths as they were typed.

    The argument is a saved name, a path, a folder or a pattern. A file given by its path may not
    exist. With `logs`, folders and patterns give files of any name.
    """
    if os.path.isdir(argument) and not (folder / "runs" / f"{argument}{SUFFIX}").exists():  # noqa: PTH112
        return _files_below(argument, logs=logs)
    # A file may have brackets in its name: only an argument that is no file is a pattern.
    if any(character in argument for character in "*?[") and not os.path.exists(argument):  # noqa: PTH110
        paths = [
            path
            for path in glob.glob(argument, recursive=True)  # noqa: PTH207
            if path.endswith(SUFFIX) or (logs and os.path.isfile(path))  # noqa: PTH113
        ]
        if not paths:
            raise BadInput(f"no run file matches {argument}; expected {_expected(logs=logs)}")
        return sorted(paths)
    if logs and os.path.isfile(argument):  # noqa: PTH113
        return [argument]
    return [str(resolve_run(argument, folder))]


def _files_below(folder: str, *, logs: bool = False) -> list[str]:
    """Return the run files in a folder and its subfolders, sorted.

    With `logs` they are all files that are not hidden.
    """
    paths = [
        os.path.join(subfolder, name)  # noqa: PTH118
        for subfolder, _, names in os.walk(folder)
        for name in names
        if name.endswith(SUFFIX) or (logs and not name.startswith("."))
    ]
    if not paths:
        raise BadInput(f"{folder} holds no run file; expected {_expected(logs=logs)}")
    return sorted(paths)


def _expected(*, logs: bool) -> str:
    """Return the files that a folder or pattern must give."""
    return "run files or logs" if logs else f"some that end in {SUFFIX}; {FOREIGN}"


def _distinct_depth(path_parts: Sequence[str], others_parts: Sequence[Sequence[str]]) -> int:
    """Return how many last parts tell a path from all others.

    It is 1 if none do.
    """
    for depth in range(1, len(path_parts)):
        if all(path_parts[-depth:] != other_parts[-depth:] for other_parts in others_parts):
            return depth
    return 1


def run_names(runs: Sequence[Run]) -> dict[Path, str]:
    """Return a short name for each run's file, by path.

    It begins with as many folders as are needed to differ from the others: `nightly`, `a/n`.
    """
    paths = list(dict.fromkeys(run.path for run in runs))
    parts = {path: path.absolute().with_name(path.stem).parts for path in paths}
    names: dict[Path, str] = {}
    for path in paths:
        path_parts = parts[path]
        other_parts = [parts[other_path] for other_path in paths if other_path != path]
        depth = _distinct_depth(path_parts, other_parts)
        # Names may still be equal: those of `n.json` and `n.jsonl`, or of files that differ only in characters that are
        # not printed.
        name = printable("/".join(path_parts[-depth:]))
        numbered = (f"{name} ({number})" for number in itertools.count(2))
        names[path] = next(
            candidate
            for candidate in itertools.chain([name], numbered)
            if candidate not in names.values()
        )
    return names
