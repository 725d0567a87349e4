"""The rank that a launched process starts as its own child, so that whatever befalls it costs one test only."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from .identity import without_launch
from .placement import FATE_S, MODULE, REAP_S, ending, tail_of
from .processes import PARENT_VARIABLE, SIGNAL_S, stacks_of_process

RANK_COMMAND = (sys.executable, "-m", MODULE)


class Child:
    """At most one process at a time, in a session of its own and with a log.

    Args:
        command: what to start; a rank.
    """

    def __init__(self, command: Sequence[str] = RANK_COMMAND) -> None:
        self._command = list(command)
        self._process: subprocess.Popen[bytes] | None = None
        self._folder = ""

    def start(self, variables: Mapping[str, str]) -> int:
        """Start it, after an end of the one before; its number.

        Args:
            variables: for it, beside this process's own without those by which its launcher named it.

        Raises:
            OSError: it could not be started.
        """
        self.kill()
        self._folder = tempfile.mkdtemp(prefix="roofline-rank-")
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                self._command,
                env=without_launch(os.environ) | {PARENT_VARIABLE: str(os.getpid())} | dict(variables),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        return self._process.pid

    def ended(self) -> str:
        """How it ended; empty while it runs, or where none was started."""
        if self._process is None or self._process.poll() is None:
            return ""
        return ending(self._process.returncode)

    def fate(self) -> str:
        """How it ended, after a moment in which it may end; empty where it still runs."""
        self._wait(FATE_S)
        return self.ended()

    def signal(self, number: int) -> bool:
        """Send it a signal; whether it was there to take it."""
        if self._process is None or self._process.poll() is not None:
            return False
        self._process.send_signal(number)
        return True

    def stacks(self, descriptor: int) -> str:
        """What it writes into its nameless file of stacks, at a signal; empty where it is not there to take it."""
        if not self.signal(signal.SIGUSR1) or self._process is None:
            return ""
        time.sleep(SIGNAL_S)
        return stacks_of_process(self._process.pid, descriptor)

    def tail(self) -> str:
        """The last words of its log."""
        return tail_of(self._log) if self._folder else ""

    def kill(self) -> None:
        """End it with all that it started, and reap it."""
        if self._process is not None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._wait(REAP_S)
        self._process = None
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder = ""

    def wait(self, seconds: float) -> bool:
        """Whether it has ended by itself within so many seconds."""
        return self._wait(seconds)

    @property
    def _log(self) -> Path:
        return Path(self._folder) / "log"

    def _wait(self, seconds: float) -> bool:
        if self._process is not None:
            try:
                self._process.wait(seconds)
            except subprocess.TimeoutExpired:
                return False
        return True
