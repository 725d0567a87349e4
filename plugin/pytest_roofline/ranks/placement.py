"""What the pool wants of whatever starts processes, and how their ends and last words are told."""

import os
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

MODULE = "pytest_roofline.ranks.rank"
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


def text_of(path: Path) -> str:
    """The last megabyte of a log, whatever bytes are in it; empty where there is none."""
    try:
        return path.read_bytes()[-MOST_READ:].decode("utf-8", "replace")
    except OSError:
        return ""


def last_words(text: str) -> str:
    """The last lines that say something, each from its beginning."""
    lines = [line[:TAIL_COLUMNS] for line in text.splitlines() if line.strip(" -=")]
    return "\n".join(lines[-TAIL_LINES:])
