"""Where run files lie: which files a user means, what each is called, and the writer that appends to one."""

import contextlib
import glob
import itertools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from ..core.errors import BadFile, BadInput, CannotStore
from ..core.facts import HardwareKey
from ..core.records import Footer, Header
from ..core.storage import check_name
from ..core.units import printable
from ..hardware import key_of
from .runs import FOREIGN, Line, Run, assemble, encode_line, ends_of, read_line, read_run

# Of the runs that are saved, in a sentence about one that is not.
MOST_NAMED = 5


def run_path(name: str, folder: Path, what: str = "run name") -> Path:
    """The path that a user's NAME|PATH means: a path if it has a `/` or ends in .json or .jsonl, else a saved name."""
    if "/" in name or os.sep in name or name.endswith((".json", ".jsonl")):
        return Path(name)
    return folder / "runs" / f"{check_name(name, what)}.jsonl"


def resolve_run(name: str, folder: Path, what: str = "run name") -> Path:
    """As `run_path`, of a run that is to be read: a name has to be one of those that are saved."""
    path = run_path(name, folder, what)
    if path != Path(name) and not path.exists():
        raise BadInput(f"run file {path} does not exist; {saved_runs(folder)}")
    return path


def saved_runs(folder: Path) -> str:
    """The newest of the runs that are saved there, in words."""
    known = sorted((folder / "runs").glob("*.jsonl"), key=lambda path: path.lstat().st_mtime)
    if not known:
        return f"no run is saved in {folder} yet, save one with --roofline-save=NAME"
    older = f" and {len(known) - MOST_NAMED} older" if len(known) > MOST_NAMED else ""
    return f"saved runs: {', '.join(path.stem for path in known[-MOST_NAMED:])}{older}"


class RunWriter:
    """Appends records to a run file, each on disk before the next test starts."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder = folder
        self.name = name
        self.path: Path | None = None
        self.trouble = ""
        # Where an INVALID run is kept that had the name.
        self.aside: Path | None = None
        self._lines: list[str] = []
        self._file: TextIO | None = None

    def write(self, record: Line) -> None:
        """Append one record."""
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
        """Everything that was written, as it is read from a file, also where it could not be saved; None of nothing."""
        path = self.path or Path(f"{self.name}.jsonl")
        records = [
            read_line(line.encode(), number, path) for number, line in enumerate(self._lines, 1)
        ]
        return assemble(path, records, cut=False) if records else None

    def close(self) -> None:
        """Close the file; a full disk may speak up only now."""
        if self._file is not None:
            try:
                self._file.close()
            except OSError as error:
                self._fall_back(error)
                if self._file is not None:
                    self._file.close()

    def _open_first(self) -> None:
        try:
            make_run_folder(self.folder)
            path = self.folder / "runs" / f"{self.name}.jsonl"
            if path.exists() and _is_spoiled(path):
                self.aside = _set_aside(path)
            self._start(path)
        except OSError as error:
            self._fall_back(error)

    def _start(self, path: Path) -> None:
        # "x": an existing run is never overwritten, whatever happened between the first look and now.
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
        wanted = self.folder / "runs" / f"{self.name}.jsonl"
        first, begun = not self.trouble, self.path
        self._abandon()
        self.trouble = f"the run could not be saved as {wanted}: {error.strerror or error}"
        if first and self._start_elsewhere():
            if begun is not None:
                # Everything is in the new file; half a run must not keep its name taken.
                begun.unlink(missing_ok=True)
            self.trouble += f"; saved as {self.path} instead"
        elif begun is not None:
            kept = "that file" if begun == wanted else begun
            self.trouble += f"; {kept} has what was measured until then, the rest is printed here and nowhere else"
        else:
            self.trouble += "; its measurements are printed here and nowhere else"
        self.trouble += ", choose another place with --roofline-dir"

    def _start_elsewhere(self) -> bool:
        folder = ""
        try:
            folder = tempfile.mkdtemp(prefix="roofline-")
            self._start(Path(folder, f"{self.name}.jsonl"))
        except OSError:
            shutil.rmtree(folder, ignore_errors=True)
            return False
        return True

    def _abandon(self) -> None:
        """Let go of a file that takes no more."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
        self._file = self.path = None


def make_run_folder(folder: Path) -> None:
    """Make `folder`/runs, which ignores itself in git; a folder that was there already is left as it is."""
    runs = folder / "runs"
    if not runs.is_dir():
        runs.mkdir(parents=True)
        (runs / ".gitignore").write_text("*\n", encoding="utf-8")


def runs_of_child(folder: Path, tell: Callable[[BadFile], None]) -> Iterator[Run]:
    """What a fresh process wrote into its folder; of a file that cannot be read `tell` gets the error."""
    for path in sorted((folder / "runs").glob("*.jsonl")):
        try:
            yield read_run(path)
        except BadFile as error:
            tell(error)


def refuse_existing(folder: Path, name: str) -> None:
    """Raise where a run of that name is already saved, unless all that it measured is INVALID."""
    path = folder / "runs" / f"{name}.jsonl"
    if path.exists() and not _is_spoiled(path):
        raise CannotStore(
            f"a run named {name!r} is already saved as {path}; choose another name or remove that file"
        )


def _is_spoiled(path: Path) -> bool:
    """Return whether a file can be read and makes way."""
    try:
        return makes_way(read_run(path))
    except (BadFile, OSError):
        return False


def makes_way(run: Run) -> bool:
    """Return whether a run came to its end with nothing that a comparison or a baseline could take."""
    spoiled = [bool(one.invalid) or one.key.identity in run.spoiled for one in run.tested]
    return run.footer is not None and bool(spoiled) and all(spoiled) and not run.resources


def _set_aside(path: Path) -> Path:
    """Keep a run whose name is wanted again, where no command finds it unasked: `one.invalid`, `one.invalid-2`."""
    names = (
        path.with_suffix(".invalid" + (f"-{number}" if number > 1 else ""))
        for number in itertools.count(1)
    )
    return path.rename(next(name for name in names if not name.exists()))


SUFFIX = ".jsonl"


def expand(arguments: Sequence[str], folder: Path, listed: Iterable[str] = ()) -> list[str]:
    """Absolute paths of the run files that arguments name, sorted, each once."""
    found: dict[str, None] = {}
    for argument in _all(arguments, listed):
        for path in paths_of(argument, folder):
            # Of a pattern nobody expects a file in particular; of a name everybody does.
            if not os.path.exists(path):  # noqa: PTH110
                raise BadInput(f"run file {path} does not exist")
            found[os.path.abspath(path)] = None  # noqa: PTH100
    if not found:
        raise BadInput("the list of run files is empty; expected names, paths, folders or patterns")
    return sorted(found)


def _all(arguments: Sequence[str], listed: Iterable[str]) -> Iterable[str]:
    for argument in arguments:
        if argument == "-":
            yield from filter(None, (line.strip() for line in listed))
        else:
            yield argument


def paths_of(argument: str, folder: Path) -> list[str]:
    """The files that a saved name, a path, a folder or a pattern means, as written; one that is named may not exist."""
    if os.path.isdir(argument) and not (folder / "runs" / f"{argument}{SUFFIX}").exists():  # noqa: PTH112
        return _below(argument)
    # A file may have brackets in its name; only what is no file is a pattern.
    if any(sign in argument for sign in "*?[") and not os.path.exists(argument):  # noqa: PTH110
        matched = [path for path in glob.glob(argument, recursive=True) if path.endswith(SUFFIX)]  # noqa: PTH207
        if not matched:
            raise BadInput(
                f"no run file matches {argument}; expected some that end in {SUFFIX}; {FOREIGN}"
            )
        return sorted(matched)
    return [str(resolve_run(argument, folder))]


def _below(folder: str) -> list[str]:
    found = [
        os.path.join(where, name)  # noqa: PTH118
        for where, _, names in os.walk(folder)
        for name in names
        if name.endswith(SUFFIX)
    ]
    if not found:
        raise BadInput(f"{folder} holds no run file; expected some that end in {SUFFIX}; {FOREIGN}")
    return sorted(found)


def run_names(runs: Sequence[Run]) -> dict[Path, str]:
    """By path, the name of each run's file, with as many folders ahead as tell it from the others: `nightly`, `a/n`."""
    paths = list(dict.fromkeys(run.path for run in runs))
    parts = {path: path.absolute().with_name(path.stem).parts for path in paths}
    names: dict[Path, str] = {}
    for path in paths:
        own, others = parts[path], [parts[other] for other in paths if other != path]
        depth = next(
            (n for n in range(1, len(own)) if all(own[-n:] != other[-n:] for other in others)), 1
        )
        # Folders do not tell `n.json` from `n.jsonl`, nor does what can be printed of two names always differ.
        name = printable("/".join(own[-depth:]))
        numbered = (f"{name} ({number})" for number in itertools.count(2))
        names[path] = next(
            one for one in itertools.chain([name], numbered) if one not in names.values()
        )
    return names


# From so many nights on, the rate of alarms is worth a decision.
NIGHTS = 14


@dataclass(frozen=True, slots=True)
class Watched:
    """A run that watched: its night, a date in UTC, and what would have been red, the worst first."""

    night: str
    alarms: tuple[str, ...]
    failed: bool = False

    @property
    def red(self) -> bool:
        """Whether the gate would have been red."""
        return self.failed or bool(self.alarms)

    @property
    def why(self) -> str:
        """The worst of it: what was measured, and how it ended."""
        return self.alarms[0].partition(" (")[0] if self.alarms else "a test failed for itself"


def watched(folder: Path, hardware: HardwareKey) -> list[Watched]:
    """The runs in a folder that watched on this hardware, the oldest first; damaged files are left out."""
    return [
        Watched(header.started[:10], footer.shadow, footer.exit_status != 0)
        for _, header, footer in sorted(ended_runs(folder), key=lambda ends: ends[1].started)
        if footer.shadow is not None and key_of(header.environment).alone == hardware.alone
    ]


def settings_of_last_green(folder: Path, besides: Path | None) -> tuple[str, ...]:
    """The settings from outside the command of the newest green gate in a folder, `besides` left out."""
    settings: tuple[str, ...] = ()
    for path, _, footer in sorted(ended_runs(folder), key=lambda ends: ends[1].started):
        if path == besides:
            continue
        green = footer.exit_status == 0 and footer.shadow is None
        if green and footer.elsewhere is not None:
            settings = footer.elsewhere
    return settings


def ended_runs(folder: Path) -> Iterator[tuple[Path, Header, Footer]]:
    """Yield file, header and footer of every run in a folder that came to its end, damaged files left out."""
    for path in (folder / "runs").glob(f"*{SUFFIX}"):
        ends = None
        with contextlib.suppress(BadFile, OSError):
            ends = ends_of(path)
        if ends is not None:
            yield path, *ends
