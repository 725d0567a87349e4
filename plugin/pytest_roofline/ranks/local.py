"""Ranks on this host, each in a session of its own and with a log."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from ..core.errors import RanksFailed
from ..processes.fork_server import SUPPORTED, ForkedProcess, ForkServer
from ..processes.system import (
    FATE_S,
    PARENT_VARIABLE,
    REAP_S,
    ProcessId,
    ending,
    last_words,
    loopback,
    owned_prefix,
    reason_of,
    stacks_at_a_signal,
    text_of,
)
from .identity import Identity, without_launch
from .placement import MODULE, Placement

# The module of the process that forks ranks.
SERVER = "pytest_roofline.ranks.rank_server"
RANK_COMMAND = (sys.executable, "-m", MODULE)


class Local:
    """Ranks as children of this process.

    Args:
        forks: whether to fork ranks from one process, where the system can; otherwise each is started alone.
        command: starts a rank that is not forked.
    """

    name = "local"
    bind = "127.0.0.1"

    def __init__(self, *, forks: bool = False, command: Sequence[str] = RANK_COMMAND) -> None:
        """Prepare to start ranks by a command.

        With `forks` they come from a process that has imported torch.
        """
        self.forks = forks and SUPPORTED
        self._command = list(command)
        self._server: ForkServer | None = None
        self._processes: dict[int, subprocess.Popen[bytes] | ForkedProcess] = {}
        self._folder = ""

    def start(self, size: int, variables: dict[str, str]) -> None:
        """Start `size` ranks with these environment variables."""
        # The error names rank 0 if already the server cannot be started.
        rank = 0
        try:
            self._renew_server(without_launch(os.environ) | loopback())
            for rank in range(size):
                # All ranks are on this host, so the local numbers are the numbers themselves.
                identity = Identity(
                    rank=rank, size=size, local_rank=rank, local_size=size, launcher=self.name
                )
                self._start(rank, loopback() | variables | identity.environ)
        except OSError as error:
            raise RanksFailed(
                f"rank {rank} of {size} could not be started: {reason_of(error)}"
            ) from None

    def start_one(self, rank: int, variables: Mapping[str, str]) -> str:
        """Start one rank alone, and end all that were started before.

        Return why it could not be started, or an empty text.
        """
        self.kill()
        try:
            self._start(rank, variables)
        except OSError as error:
            return f"the rank could not be started: {reason_of(error)}"
        return ""

    def _start(self, rank: int, variables: Mapping[str, str]) -> None:
        """Start a rank: by the server that forks, or as a fresh process."""
        self._folder = self._folder or tempfile.mkdtemp(prefix=owned_prefix("ranks"))
        environ = without_launch(os.environ) | dict(variables)
        if self._server is not None:
            self._processes[rank] = self._server.fork(environ, str(self._log(rank)))
            return
        with self._log(rank).open("wb") as log:
            self._processes[rank] = subprocess.Popen(
                self._command,
                env=environ | {PARENT_VARIABLE: str(os.getpid())},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def _renew_server(self, environ: dict[str, str]) -> None:
        """Start the server that forks ranks, if they are to be forked.

        A server that has ended, or has other variables, is replaced.
        """
        if self._server is not None and not (self.forks and self._server.serves(environ)):
            self._end_server()
        if self.forks and self._server is None:
            self._server = ForkServer(environ, SERVER)

    def _log(self, rank: int) -> Path:
        return Path(self._folder, f"{rank}.log")

    def trouble(self) -> str:
        """Return why ranks that were started will not connect: one of them has ended.

        It is empty while all run.
        """
        for rank, process in self._processes.items():
            if process.poll() is not None:
                if isinstance(process, ForkedProcess) and process.why:
                    return process.why
                assert process.returncode is not None
                return f"rank {rank} ended during its start: {ending(process.returncode)}\n{self.tail(rank)}".rstrip()
        return ""

    def fate(self, rank: int) -> str:
        """Return how a rank ended; empty if it still runs.

        Wait a moment for its end first.
        """
        process = self._processes.get(rank)
        if process is None:
            return ""
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(FATE_S)
        if isinstance(process, ForkedProcess) and process.why:
            return process.why
        return "" if process.returncode is None else ending(process.returncode)

    def stacks_of(self, rank: int, descriptor: int) -> str:
        """Return the stacks that a blocked rank writes at a signal.

        It writes them into the file of a descriptor. They are empty if the rank has ended.
        """
        process = self._processes.get(rank)
        if process is None or process.poll() is not None:
            return ""
        return stacks_at_a_signal({rank: (ProcessId(process.pid, None), descriptor)}).get(rank, "")

    def tail(self, rank: int) -> str:
        """Return the last words of a rank's log."""
        return last_words(text_of(self._log(rank)))

    def kill(self) -> None:
        """End every rank with all that it started, and reap it."""
        if not all(process.pid for process in self._processes.values()):
            # Ranks without a number are not forked yet. The server ends, so that it does not fork them later.
            self._end_server()
        self._kill_groups()
        self._reap(REAP_S)
        self._forget()

    def wait(self, seconds: float) -> bool:
        """Return whether every rank ends by itself within so many seconds."""
        if not self._reap(seconds):
            return False
        # Rank functions may have started processes and left them behind.
        self._kill_groups()
        self._forget()
        self._end_server()
        return True

    def _kill_groups(self) -> None:
        """Kill every rank, with all processes of its group."""
        for process in self._processes.values():
            with contextlib.suppress(OSError):
                # The number of a rank that is not forked yet is 0, and the group 0 would be this process's own.
                if process.pid:
                    os.killpg(process.pid, signal.SIGKILL)

    def _reap(self, seconds: float) -> bool:
        """Wait for the end of all ranks, and return whether all have ended in time."""
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
        """Drop the ranks that have ended, and remove their logs."""
        self._processes = {}
        if self._folder:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = ""


@contextlib.contextmanager
def whole_processes(placement: Placement) -> Iterator[None]:
    """Start each rank within this block as a fresh process.

    It is no fork, so it imports everything itself. Ranks of launchers are never forked, so nothing changes for them.
    """
    if not isinstance(placement, Local):
        yield
        return
    forks_before, placement.forks = placement.forks, False
    try:
        yield
    finally:
        placement.forks = forks_before
