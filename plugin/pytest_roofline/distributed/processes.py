"""Processes of this host that a launcher has started, for ending what it leaves behind."""

import contextlib
import os
import signal
from pathlib import Path
from typing import NamedTuple


class Started(NamedTuple):
    """A process that cannot be mistaken for a later one with the same number.

    Args:
        pid: its number.
        ticks: when it started, in clock ticks since boot.
    """

    pid: int
    ticks: int


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
        told = _stat(process.pid)
        if told is not None and told[1] == process.ticks:
            with contextlib.suppress(OSError):
                os.kill(process.pid, signal.SIGKILL)


def _stat(pid: int) -> tuple[int, int] | None:
    """Parent and start of a process (man 5 proc, fields 4 and 22); None where it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
        return int(fields[1]), int(fields[19])
    except (OSError, IndexError, ValueError):
        return None
