"""Ranks past one node: an existing launcher as a child process, with its output in a file."""

import contextlib
import operator
import os
import re
import secrets
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

from ..core.errors import BadInput, RanksFailed
from ..engine.host import numbers_of
from . import engines
from .engines import Wanted
from .identity import identify, without_launch
from .listener import own_addresses, store_server
from .processes import FATE_S, REAP_S, descendants, ending, kill_each, last_words, loopback, text_of

# What ranks did, or an address that is none, says itself where it lies; our own frames do not help.
__tracebackhide__ = operator.methodcaller("errisinstance", RanksFailed)

POLL_S = 0.05
# For a launcher to clear away; its ranks end before, when their controller hangs up, and a report waits for this.
TERMINATE_S = 1.0
PROBE_S = 20.0
# How each launcher labels what ranks print, as it is asked to: the rank is the group.
_LABELS = {
    "openmpi": re.compile(r"\[(?:\d+|[^\s\[\],]+@\d+),(\d+)\]<std(?:out|err)>:"),
    "mpich": re.compile(r"^\[(\d+)\] ", re.MULTILINE),
    "intel": re.compile(r"^\[(\d+)\] ", re.MULTILINE),
    "srun": re.compile(r"^(\d+): ?", re.MULTILINE),
    "torchrun": re.compile(r"^\[default(\d+)\]:", re.MULTILINE),
}
_OPENMPI_SIGNAL = re.compile(r"process rank (\d+) with PID \d+ on node \S+ exited on signal (\d+)")
# Since its version 5, Open MPI names a process by its daemon.
_OPENMPI_EXIT = re.compile(r"Process name: \[(?:\[\d+,\d+\]|\S+@\d+),(\d+)\]\s+Exit code:\s+(\d+)")
_TORCHRUN = re.compile(r"^\s*rank\s*: (\d+) \(local_rank: \d+\)\s+exitcode\s*: (-?\d+)", re.MULTILINE)
_SRUN = re.compile(r"^srun: error: \S+: tasks? ([\d,-]+): (.+?)\s*$", re.MULTILINE)
_SIGNALS = {signal.strsignal(number): number for number in signal.valid_signals()}


class Launched:
    """Ranks under `torchrun`, `mpirun` or `srun`."""

    def __init__(self, name: str, arguments: tuple[str, ...] = (), *, mpi: bool = False, address: str = "") -> None:
        self.name = name
        # Alone on its node, nothing of a launch need be reachable from elsewhere.
        here = name == "torchrun" and Wanted(1, environ=os.environ).nodes == 1
        self.bind = address or ("127.0.0.1" if here else "")
        self._arguments = arguments
        self._mpi = mpi
        self._dialect = name
        self._tried = True
        self._several = False
        self._folder = ""
        self._process: subprocess.Popen[bytes] | None = None
        self._store: Any = None

    def start(self, size: int, variables: dict[str, str]) -> None:
        """Start the launcher."""
        launched = identify(os.environ) is not None
        if self.bind == "127.0.0.1":
            variables = variables | loopback()
        environ = (without_launch(os.environ) if launched else dict(os.environ)) | variables
        folder = tempfile.mkdtemp(prefix="roofline-launch-")
        try:
            command = self._command(
                Wanted(size, self._arguments, tuple(variables), environ, as_root=os.geteuid() == 0, folder=folder)
            )
            if shutil.which(command[0]) is None:
                raise _not_found(command[0])
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        self._folder = folder
        try:
            self._run(command, environ)
        except BaseException:
            self._forget()
            raise

    def _run(self, command: list[str], environ: dict[str, str]) -> None:
        try:
            with self._output.open("wb") as output:
                self._process = subprocess.Popen(
                    command,
                    env=environ,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
        except OSError as error:
            raise RanksFailed(f"{self.name} could not be started: {error}") from None

    def trouble(self) -> str:
        """Why ranks will not come: the launcher has ended; with its last words."""
        if self._process is None or self._process.poll() is None:
            return ""
        words = self._words()
        ranks = [last_words(text) for rank, text in sorted(_of_ranks(words).items())]
        said = "\n".join(filter(None, [*ranks[:1], last_words(words.get(None, ""))]))
        return f"{self.name} has ended: {ending(self._process.returncode)}\n{said}".rstrip()

    def fate(self, rank: int) -> str:
        """How a rank ended, where its launcher tells."""
        until_s = time.monotonic() + FATE_S
        while self._process is not None:
            ended = self._process.poll() is not None
            known = fates(text_of(self._output), self._dialect)
            if rank in known or self._dialect in ("mpich", "intel"):
                return known.get(rank, "")
            if ended and self._process.returncode:
                return ""
            if ended or time.monotonic() > until_s:
                # Launchers tell of every failure, and of nothing that ends as if it had done its work. Of a version
                # that nobody has tried, what it tells may not be known when it is seen.
                return f"{ending(0)}, as {self.name} tells of no failure" if ended or self._tried else ""
            time.sleep(POLL_S)
        return ""

    def signal(self, rank: int, number: int) -> bool:  # noqa: ARG002 - the seam's signature
        """Never: launchers hand a signal to all ranks or to none."""
        return False

    def tail(self, rank: int) -> str:
        """The last words of a rank; of all together where it has none of its own, or they cannot be told apart."""
        words = self._words()
        said = _of_ranks(words)
        # The agents of several nodes label by the number on the node.
        own = "\n".join(said.values()) if self._several else said.get(rank, "")
        return last_words(own) or last_words(text_of(self._output))

    def kill(self) -> None:
        """End the launcher, and with it all that it started; ranks also end when their controller hangs up."""
        process = self._process
        if process is None:
            return
        ours = descendants(process.pid)
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(TERMINATE_S)
        ours |= descendants(process.pid)
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        kill_each(ours)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(REAP_S)
        self._forget()

    def wait(self, seconds: float) -> bool:
        """Whether the launcher has ended by itself within so many seconds."""
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return False
        self._forget()
        return True

    @property
    def _output(self) -> Path:
        return Path(self._folder) / "output"

    def _command(self, wanted: Wanted) -> list[str]:
        if self.name == "mpirun":
            version = _probe("mpirun", "--version")
            self._dialect, self._tried = engines.mpi_family(version), engines.is_tried(version)
            return engines.mpirun(wanted, self._dialect)
        if self.name == "srun":
            return engines.srun(wanted, engines.mpi_plugin(_probe("srun", "--mpi=list")) if self._mpi else "none")
        self._several = min(wanted.nodes, wanted.size) > 1
        if not self._several:
            return engines.torchrun(wanted)
        return engines.torchrun(wanted, self._endpoint(), secrets.token_hex(8))

    def _endpoint(self) -> str:
        """Of a store for torchrun's agents on other nodes."""
        self._store = self._store or store_server(self.bind)
        host = own_addresses(self.bind)[0]
        return f"[{host}]:{self._store.port}" if ":" in host else f"{host}:{self._store.port}"

    def _words(self) -> dict[int | None, str]:
        return by_rank(text_of(self._output), self._dialect)

    def _forget(self) -> None:
        self._process = None
        self._store = None
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)


def _of_ranks(words: dict[int | None, str]) -> dict[int, str]:
    return {rank: text for rank, text in words.items() if rank is not None}


def _probe(command: str, option: str) -> str:
    """What a launcher says of itself."""
    if shutil.which(command) is None:
        raise _not_found(command)
    try:
        done = subprocess.run(
            [command, option],
            env=without_launch(os.environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PROBE_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise BadInput(f"`{command} {option}`: {error}; expected it to answer") from None
    if done.returncode:
        raise BadInput(f"`{command} {option}` ended with {done.returncode}: {last_words(done.stderr or done.stdout)}")
    return done.stdout + done.stderr


def _not_found(command: str) -> BadInput:
    return BadInput(f"`{command}` is not in PATH; {engines.NOT_FOUND[command]}")


def by_rank(text: str, dialect: str) -> dict[int | None, str]:
    """What each rank printed, and under None what the launcher itself said."""
    label = _LABELS[dialect]
    found: dict[int | None, list[str]] = {}
    for line in text.splitlines():
        # Open MPI may change from one rank to another within a line, so there a label is where a text begins.
        start, owner = 0, None
        for match in label.finditer(line):
            if line[start : match.start()] or owner is not None:
                found.setdefault(owner, []).append(line[start : match.start()])
            start, owner = match.end(), int(match.group(1))
        found.setdefault(owner, []).append(line[start:] + "\n")
    return {owner: "".join(pieces) for owner, pieces in found.items()}


def fates(text: str, dialect: str) -> dict[int, str]:
    """How ranks ended, as far as the launcher tells; of several reports on a rank the first counts."""
    found: dict[int, str] = {}
    if dialect == "openmpi":
        told = [(int(rank), -int(number)) for rank, number in _OPENMPI_SIGNAL.findall(text)]
        told += [(int(rank), int(code)) for rank, code in _OPENMPI_EXIT.findall(text)]
        found = {rank: ending(status) for rank, status in reversed(told)}
    elif dialect == "torchrun":
        found = {int(rank): ending(int(status)) for rank, status in reversed(_TORCHRUN.findall(text))}
    elif dialect == "srun":
        for ranks, how in reversed(_SRUN.findall(text)):
            found |= dict.fromkeys(numbers_of(ranks), _of_slurm(how))
    return found


def _of_slurm(how: str) -> str:
    exited = re.fullmatch(r"Exited with exit code (\d+)", how)
    if exited:
        return ending(int(exited.group(1)))
    plain = how.removesuffix(" (core dumped)")
    return ending(-_SIGNALS[plain]) if plain in _SIGNALS else f"as srun says: {how}"
