"""A program as one process: it is started, waited for, and ended with everything that it started."""

import contextlib
import functools
import hashlib
import os
import re
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from ..core.errors import BadFile, ProgramFailed
from ..core.units import printable
from .system import descendants, end_clause, kill_each, last_words, reason_of, signals_held, text_of

# In a command, a fresh file that is read in place of what the program prints.
OUT = "{out}"
# A process that runs for so long hangs.
TIMEOUT_S = 3600.0
# Of what a program printed last, so many lines stand in the reason of its failure.
LAST_LINES = 3
# Longer output is no table of figures. Larger files are data, and reading them would take the time of a process.
MOST_BYTES = 64 * 2**20
# Of a line that holds a version.
MOST_COLUMNS = 120
_VERSION = re.compile(
    r"^(?:.*\bversion\b.*\d.*|[a-z][\w-]* v?\d+\.\d+[\w.-]*(?: \(.*\))?)$",
    re.IGNORECASE | re.MULTILINE,
)
_INTERPRETER = re.compile(r"python[\d.]*|sh|bash|env|perl|ruby|node|julia|Rscript")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Where a program runs: its folder, its variables, and the seconds after which it is killed."""

    cwd: Path
    environ: Mapping[str, str]
    timeout_s: float = TIMEOUT_S


@dataclass(frozen=True, slots=True)
class Printed:
    """The files of what a program printed: `stem`.stdout and `stem`.stderr.

    What it wrote itself lies in `stem`.out.
    """

    stem: Path

    @property
    def out(self) -> Path:
        """The path that stands for `{out}` in the command."""
        return self._path("out")

    @property
    def text(self) -> str:
        """What it printed, with standard error last."""
        return "\n".join(text_of(self._path(stream)) for stream in ("stdout", "stderr"))

    def _path(self, stream: str) -> Path:
        return self.stem.with_name(f"{self.stem.name}.{stream}")

    def run(
        self, words: Sequence[str], around: Surroundings, subject: str = "the program"
    ) -> float:
        """Run a program to its end, and return the seconds that it took.

        Args:
            words: the program and its arguments.
            subject: what a message calls it.

        Raises:
            ProgramFailed: it did not start, ended with another status than 0, or hung.
        """
        with self._path("stdout").open("wb") as stdout, self._path("stderr").open("wb") as stderr:
            try:
                status, seconds = _time(words, around, stdout, stderr)
            except OSError as error:
                raise ProgramFailed(
                    f"{subject} could not start: {words[0]}: {reason_of(error)}"
                ) from None
        if status is None:
            raise ProgramFailed(f"{subject} ran longer than {around.timeout_s:g} s and was killed")
        if status:
            lines = last_words(self.text).splitlines()[-LAST_LINES:]
            reason = ": ".join([f"{subject} {end_clause(status)}", " | ".join(lines)])
            raise ProgramFailed(reason, status)
        return seconds

    def output(self, *, from_out: bool) -> bytes:
        """Return what the program printed, or with `from_out` what it wrote into its file.

        Raises:
            BadFile: it wrote no file, or too much.
        """
        path = self._path("out" if from_out else "stdout")
        if not path.is_file():
            raise BadFile(f"the program wrote no file {OUT}; expected its figures in that file")
        if path.stat().st_size > MOST_BYTES:
            raise BadFile(
                f"the program wrote {path.stat().st_size} bytes; expected at most {MOST_BYTES}"
            )
        return path.read_bytes()


def _time(
    words: Sequence[str], around: Surroundings, stdout: BinaryIO, stderr: BinaryIO
) -> tuple[int | None, float]:
    """Run a program, and return its exit status and its seconds. The status is None after the time limit.

    Args:
        words: the program and its arguments.
        around: its folder, its variables and its time limit.
        stdout: gets its standard output.
        stderr: gets its standard error.
    """
    process, timer, is_late = None, None, threading.Event()
    began_s = time.perf_counter()
    try:
        with signals_held():
            process = subprocess.Popen(
                words, cwd=around.cwd, env=around.environ, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr,
                start_new_session=True,
            )  # fmt: skip
        # A wait with a time limit polls, so the seconds would be those of a poll. A timer ends a late process instead.
        timer = threading.Timer(around.timeout_s, _end_late, (process.pid, is_late))
        timer.start()
        status = process.wait()
        seconds = time.perf_counter() - began_s
    finally:
        if timer is not None:
            timer.cancel()
        if process is not None:
            _kill_all(process.pid, has_ended=process.returncode is not None)
            process.wait()
    return None if is_late.is_set() else status, seconds


def _end_late(pid: int, is_late: threading.Event) -> None:
    """Note that a process reached its time limit, and end it."""
    is_late.set()
    _kill_all(pid, has_ended=False)


def _kill_all(pid: int, *, has_ended: bool) -> None:
    """End a process and everything that it started. If it has ended, end the processes that are left in its group."""
    # The ranks of mpirun have groups of their own, so they are found as descendants, which only a living process has.
    started_processes = set() if has_ended else descendants(pid)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    kill_each(started_processes)


def program_name(words: Sequence[str], interpreter: str = "") -> str:
    """Return the name of a program: its file without folder and ending.

    An interpreter has the name of the script or module that it runs, if it runs any.

    Args:
        words: the command.
        interpreter: a word that stands for an interpreter, such as `{python}`.
    """
    program = words[0] if words else ""
    if program == interpreter or _INTERPRETER.fullmatch(Path(program).name):
        scripts = [word for word in words[1:] if not word.startswith("-")]
        # Behind -c stands the text of a script, which is no name.
        if scripts and "-c" not in words:
            program = scripts[0]
    return Path(program.strip("'\"")).stem or "command"


def identity_of(
    words: Sequence[str], around: Surroundings, printed: str, version_name: str = "version"
) -> dict[str, str]:
    """Return what tells a program from another, by name.

    That is the hash of the program and of each file that its command names, and the line that states a version.

    Args:
        words: the command.
        around: where it ran.
        printed: the text that may state the version.
        version_name: the name of the version.
    """
    paths = []
    if words:
        program = words[0]
        # A name with a folder is relative to the folder in which it runs.
        name = str(around.cwd / program) if "/" in program else program
        program_path = shutil.which(name, path=around.environ.get("PATH"))
        paths = [Path(program_path)] if program_path else []
    paths += [around.cwd / word for word in words[1:] if _is_file(around.cwd / word)]
    identity = {f"file {printable(path.name)}": _hash(path, _state(path)) for path in paths}
    if match := _VERSION.search(printed):
        identity[version_name] = printable(match[0].strip()[:MOST_COLUMNS])
    return identity


def _is_file(path: Path) -> bool:
    """Return True for the path of a file. False also for a word that cannot be a path."""
    try:
        return path.is_file()
    except (OSError, ValueError):
        return False


def _state(path: Path) -> tuple[int, int]:
    """Return what changes with a file's content: its size and its time."""
    status = path.stat()
    return status.st_size, status.st_mtime_ns


@functools.cache
def _hash(path: Path, state: tuple[int, int]) -> str:
    """Return the hash of a file, or its size where it is large.

    `state` is that of `_state`. While it stays the same, the cache answers, and the file is not read again.
    """
    size_bytes, _ = state
    if size_bytes > MOST_BYTES:
        return f"{size_bytes} bytes"
    try:
        content = path.read_bytes()
    except OSError as error:
        return f"unreadable: {error.strerror}"
    # The first line of a script may name the temporary folder of a side's own environment.
    if content.startswith(b"#!"):
        _, _, content = content.partition(b"\n")
    return hashlib.sha256(content).hexdigest()[:16]
