"""Where ranks come from: the seam between the pool and whatever starts processes."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from .fork_server import SUPPORTED, Forked, ForkServer
from .processes import PARENT_VARIABLE

MODULE = "pytest_roofline.distributed.rank"
# Behind Gloo's reason for an abort come the stack and a list of modules.
TAIL_LINES, TAIL_COLUMNS = 30, 200
MOST_READ = 2**20
# After this long a process that was killed is left to the kernel.
REAP_S = 5.0
FATE_S = 2.0


class Placement(Protocol):
    """Starts ranks, tells of their ends, and ends them."""

    name: str
    """`local`, `torchrun`, `mpirun`, `srun`, `attach`."""

    bind: str
    """The address that ranks can reach the controller on; empty where that may be any."""

    def start(self, size: int, variables: dict[str, str]) -> None:
        """Start `size` ranks with these environment variables."""

    def trouble(self) -> str:
        """Why ranks will not come; empty while all is well."""

    def fate(self, rank: int) -> str:
        """How a rank that was lost ended: `killed by SIGKILL`, `exit code 3`; empty where nobody knows."""

    def signal(self, rank: int, number: int) -> bool:
        """Send a signal to a rank; whether it could be reached."""

    def tail(self, rank: int) -> str:
        """The last words of its log."""

    def kill(self) -> None:
        """End everything at once."""

    def wait(self, seconds: float) -> bool:
        """After an orderly stop: whether everything has ended by itself within so many seconds."""


@runtime_checkable
class RemoteStacks(Protocol):
    """A placement that can read what blocked ranks of other hosts write at a signal."""

    def stacks(self, files: Mapping[int, int]) -> dict[int, str]:
        """The stacks of ranks, by the descriptors of the files that they write them into."""


class Process(Protocol):
    """What is used of a `subprocess.Popen`."""

    pid: int
    returncode: int | None

    def poll(self) -> int | None:
        """Its exit status; None while it runs."""

    def wait(self, timeout: float) -> int:
        """Its exit status, within so many seconds."""

    def send_signal(self, number: int) -> None:
        """Send it a signal."""


class Local:
    """Ranks on this host: a session and two logs each.

    Args:
        forks: whether they are forked from a process that has torch already; for ranks on processors.
    """

    name = "local"
    bind = "127.0.0.1"

    def __init__(self, *, forks: bool = False) -> None:
        self.forks = forks and SUPPORTED
        self._server: ForkServer | None = None
        self._processes: dict[int, Process] = {}
        self._folder = ""

    def start(self, size: int, variables: dict[str, str]) -> None:
        """Start `size` ranks with these environment variables."""
        self._folder = tempfile.mkdtemp(prefix="roofline-ranks-")
        common = dict(os.environ) | loopback()
        if self.forks:
            self._renew_server(common)
        else:
            self._end_server()
        for rank in range(size):
            own = {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(size), "LOCAL_WORLD_SIZE": str(size)}
            self._processes[rank] = self._process(rank, common | variables | own)

    def _renew_server(self, environ: dict[str, str]) -> None:
        if self._server is None or not self._server.serves(environ):
            self._end_server()
            self._server = ForkServer(environ)

    def _process(self, rank: int, environ: dict[str, str]) -> Process:
        stdout, stderr = self._logs(rank)
        if self._server is not None:
            return self._server.fork(environ, str(stdout), str(stderr))
        with stdout.open("wb") as out, stderr.open("wb") as err:
            return subprocess.Popen(
                [sys.executable, "-m", MODULE],
                env=environ | {PARENT_VARIABLE: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
            )

    def _logs(self, rank: int) -> tuple[Path, Path]:
        return Path(self._folder, f"{rank}.out"), Path(self._folder, f"{rank}.err")

    def trouble(self) -> str:
        """Why ranks will not come: one of them has ended."""
        for rank, process in self._processes.items():
            if process.poll() is not None:
                assert process.returncode is not None
                words = self.tail(rank) or (last_lines(process.why) if isinstance(process, Forked) else "")
                return f"rank {rank} ended during its boot: {ending(process.returncode)}\n{words}".rstrip()
        return ""

    def fate(self, rank: int) -> str:
        """How a rank ended."""
        process = self._processes.get(rank)
        if process is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(FATE_S)
        return "" if process.returncode is None else ending(process.returncode)

    def signal(self, rank: int, number: int) -> bool:
        """Send a signal to a rank; whether it could be reached."""
        process = self._processes.get(rank)
        if process is None or process.poll() is not None:
            return False
        process.send_signal(number)
        return True

    def tail(self, rank: int) -> str:
        """The last words of its log."""
        stdout, stderr = self._logs(rank)
        return tail_of(stderr) or tail_of(stdout)

    def kill(self) -> None:
        """End every rank with all that it started, and reap it."""
        if not all(process.pid for process in self._processes.values()):
            # Some are not there yet; what is to fork them ends, and takes those along that are.
            self._end_server()
        self._kill_groups()
        self._reap(REAP_S)
        self._forget()

    def wait(self, seconds: float) -> bool:
        """Whether every rank has ended by itself within so many seconds."""
        if not self._reap(seconds):
            return False
        # What rank functions have started and left behind.
        self._kill_groups()
        self._forget()
        self._end_server()
        return True

    def _kill_groups(self) -> None:
        for process in self._processes.values():
            with contextlib.suppress(OSError):
                # Of 0 it would be this process's own.
                if process.pid:
                    os.killpg(process.pid, signal.SIGKILL)

    def _reap(self, seconds: float) -> bool:
        until_s = time.monotonic() + seconds
        for process in self._processes.values():
            try:
                process.wait(max(0.01, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                return False
        return True

    def _end_server(self) -> None:
        if self._server is not None:
            self._server.end()
            self._server = None

    def _forget(self) -> None:
        self._processes = {}
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""


@contextlib.contextmanager
def whole_processes(placement: Placement) -> Iterator[None]:
    """Within, ranks start as processes that import all that they need, and none is forked from one that has it."""
    if not isinstance(placement, Local):
        yield
        return
    before, placement.forks = placement.forks, False
    try:
        yield
    finally:
        placement.forks = before


def loopback() -> dict[str, str]:
    """Variables that keep Gloo on this host's loopback, unless the user chose an interface."""
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return {}
    return {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}


def ending(status: int) -> str:
    """An exit status in words: `killed by SIGKILL`, `exit code 3`."""
    if status >= 0:
        return f"exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    # Where nobody did so, the kernel may have, for lack of memory.
    return f"killed by {name}" + (" (out of memory? dmesg tells)" if -status == signal.SIGKILL else "")


def text_of(path: str | os.PathLike[str] | None) -> str:
    """The last megabyte of a log, whatever bytes are in it; empty where there is none."""
    try:
        return Path(path).read_bytes()[-MOST_READ:].decode("utf-8", "replace") if path else ""
    except OSError:
        return ""


def tail_of(path: str | os.PathLike[str] | None) -> str:
    """The last lines of a log."""
    return last_lines(text_of(path))


def last_lines(text: str) -> str:
    """The last lines of a text, each from its beginning."""
    lines = [line[:TAIL_COLUMNS] for line in text.splitlines() if line.strip()]
    return "\n".join(lines[-TAIL_LINES:])
