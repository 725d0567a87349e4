"""Processes of this host that a launcher has started, for ending what it leaves behind."""

import contextlib
import ctypes
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path
from typing import NamedTuple

# Names the process that a rank must not outlive, where that is its parent.
PARENT_VARIABLE = "ROOFLINE_RANK_PARENT"
_PR_SET_PDEATHSIG = 1
# For a signal to be taken, and the stacks to be written.
SIGNAL_S = 0.2
# How often a guard looks for its process where no descriptor tells of its end.
LOOK_S = 0.2


class Started(NamedTuple):
    """A process that cannot be mistaken for a later one with the same number.

    Args:
        pid: its number.
        ticks: when it started, in clock ticks since boot; None where the system has no `/proc`.
    """

    pid: int
    ticks: int | None


def process_space() -> str:
    """What names the processes that this one can reach by number: the boot of the kernel, and the pid namespace.

    Containers may have the same host name, and a node's processes other numbers than a container's. Without `/proc`
    it is the host name.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def started(pid: int) -> Started:
    """A process of this one's space, as it is now."""
    told = _stat(pid)
    return Started(pid, None if told is None else told[1])


def is_same(process: Started) -> bool:
    """Whether its number still means that process; taken for granted where the system does not tell when it started."""
    return process.ticks is None or started(process.pid).ticks == process.ticks


def signal_to(process: Started, number: int) -> bool:
    """Send a signal to a process of this one's space; whether it was there to take it."""
    if is_same(process):
        with contextlib.suppress(OSError):
            os.kill(process.pid, number)
            return True
    return False


def stacks_of_process(pid: int, descriptor: int) -> str:
    """What a rank of this space has written into its nameless file of stacks; empty where it cannot be read."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/fd/{descriptor}").read_text(errors="replace")
    return ""


def descendants(pid: int) -> set[Started]:
    """Everything that descends from a process now; empty where the system has no `/proc`."""
    family: dict[int, list[Started]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        told = _stat(int(entry.name))
        if told is not None:
            family.setdefault(told[0], []).append(Started(int(entry.name), told[1]))
    found: set[Started] = set()
    left = [pid]
    while left:
        children = set(family.get(left.pop(), ())) - found
        found |= children
        left += [child.pid for child in children]
    return found


def kill_each(processes: set[Started]) -> None:
    """Kill those that still run."""
    for process in processes:
        signal_to(process, signal.SIGKILL)


def die_with_parent() -> None:
    """Where the parent is the process that this one must not outlive, have the kernel end it so, stopped or not."""
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if not parent or not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        os._exit(1)


def guard_group() -> None:
    """Have another process end this one's group when this one is gone: one that is killed cannot end what it forked.

    Only on Linux, and where this process leads a group; to be called before it has threads.
    """
    if not sys.platform.startswith("linux") or os.getpgrp() != os.getpid():
        return
    guarded = started(os.getpid())
    # Where no process can be had, this one is no worse off than without.
    with contextlib.suppress(OSError):
        first = os.fork()
        if first == 0:
            try:
                os.setsid()
                # No child of the guarded process, which may wait for all that it has.
                if os.fork() == 0:
                    _guard(guarded)
            finally:
                os._exit(0)
        os.waitpid(first, 0)


def _guard(guarded: Started) -> None:
    # Whoever reads what a process prints waits until nobody can write there.
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the names are numbers
        with contextlib.suppress(OSError):
            os.close(int(name))
    try:
        select.select([os.pidfd_open(guarded.pid)], [], [])
    except (AttributeError, OSError):
        # Linux before 5.3, a Python that was built there, or it is gone. A zombie has no command line.
        with contextlib.suppress(OSError):
            while is_same(guarded) and Path(f"/proc/{guarded.pid}/cmdline").read_bytes():
                time.sleep(LOOK_S)
    os.killpg(guarded.pid, signal.SIGKILL)


def _stat(pid: int) -> tuple[int, int] | None:
    """Parent and start of a process (man 5 proc, fields 4 and 22); None where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return int(fields[1]), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
