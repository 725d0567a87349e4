"""Where ranks come from: the seam between the pool and whatever starts processes."""

import contextlib
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

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

    def printed(self) -> str:
        """What rank 0 has printed so far, or its last megabyte: libraries tell there how they do things."""

    def kill(self) -> None:
        """End everything at once."""

    def wait(self, seconds: float) -> bool:
        """After an orderly stop: whether everything has ended by itself within so many seconds."""


@runtime_checkable
class RemoteStacks(Protocol):
    """A placement that can read what blocked ranks of other hosts write at a signal."""

    def stacks(self, files: Mapping[int, int]) -> dict[int, str]:
        """The stacks of ranks, by the descriptors of the files that they write them into."""


class Local:
    """Ranks on this host, by torch's elastic multiprocessing with a binary entry point: a session and a log each."""

    name = "local"
    bind = "127.0.0.1"

    def __init__(self) -> None:
        self._context: Any = None
        self._folder = ""

    def start(self, size: int, variables: dict[str, str]) -> None:
        """Start `size` ranks with these environment variables."""
        from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs, Std, start_processes

        self._folder = tempfile.mkdtemp(prefix="roofline-ranks-")
        common = variables | loopback() | {PARENT_VARIABLE: str(os.getpid()), "WORLD_SIZE": str(size)}
        with _signals_kept(), _quiet():
            self._context = start_processes(
                name="roofline",
                entrypoint=sys.executable,
                args=dict.fromkeys(range(size), ("-m", MODULE)),
                envs={
                    rank: common | {"RANK": str(rank), "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(size)}
                    for rank in range(size)
                },
                logs_specs=DefaultLogsSpecs(log_dir=self._folder, redirects=Std.ALL),
            )

    def trouble(self) -> str:
        """Why ranks will not come: one of them has ended."""
        for rank, process in self._processes.items():
            if process.poll() is not None:
                return f"rank {rank} ended during its boot: {ending(process.returncode)}\n{self.tail(rank)}".rstrip()
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
        if self._context is None:
            return ""
        return tail_of(self._context.stderrs.get(rank)) or tail_of(self._context.stdouts.get(rank))

    def printed(self) -> str:
        """What rank 0 has printed so far."""
        if self._context is None:
            return ""
        return text_of(self._context.stdouts.get(0)) + text_of(self._context.stderrs.get(0))

    def kill(self) -> None:
        """End every rank with all that it started, and reap it."""
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
        return True

    @property
    def _processes(self) -> "dict[int, subprocess.Popen[bytes]]":
        if self._context is None:
            return {}
        return {rank: handler.proc for rank, handler in self._context.subprocess_handlers.items()}

    def _kill_groups(self) -> None:
        for process in self._processes.values():
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)

    def _reap(self, seconds: float) -> bool:
        until_s = time.monotonic() + seconds
        for process in self._processes.values():
            try:
                process.wait(max(0.01, until_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                return False
        return True

    def _forget(self) -> None:
        if self._context is not None:
            with _signals_kept(), _quiet():
                self._context.close(signal.SIGKILL, timeout=1)
            self._context = None
        shutil.rmtree(self._folder, ignore_errors=True)


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
    lines = [line[:TAIL_COLUMNS] for line in text_of(path).splitlines() if line.strip()]
    return "\n".join(lines[-TAIL_LINES:])


@contextlib.contextmanager
def _signals_kept() -> Iterator[None]:
    """torch's launcher installs signal handlers and never takes them back."""
    numbers = [getattr(signal, name) for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT") if hasattr(signal, name)]
    before: Mapping[int, Any] = {number: signal.getsignal(number) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            # Off the main thread nothing was installed, and nothing can be.
            with contextlib.suppress(ValueError, TypeError):
                signal.signal(number, handler)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch's launcher warns of every process that it ends, and of what it could not do off the main thread."""
    logger = logging.getLogger("torch.distributed.elastic.multiprocessing")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(level)
