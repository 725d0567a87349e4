"""Processes as the system knows them: their identity, their ends, and their leftovers."""

import contextlib
import ctypes
import errno
import hashlib
import os
import re
import resource
import select
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

# Behind Gloo's reason for an abort come the stack and a list of modules.
TAIL_LINES, TAIL_COLUMNS = 30, 200
MOST_READ = 2**20
# After this long a process that was killed is left to the kernel.
REAP_S = 5.0
FATE_S = 2.0
# How a sentence on the end of the fork server begins, of which its ranks are the victims.
FORKER = "the process that forks the ranks"
# Some launchers close every number up to the limit before they start a process.
MOST_FILES = 2**16
# The limit of a process, and the system's.
OF_FILES = (errno.EMFILE, errno.ENFILE)


def loopback() -> dict[str, str]:
    """Return variables that keep Gloo on this host's loopback. There are none if the user chose an
    interface.
    """
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
    return f"killed by {name}" + (
        " (maybe out of memory; check dmesg)" if -status == signal.SIGKILL else ""
    )


def end_clause(status: int) -> str:
    """Return an exit status as the end of a sentence. For example `was killed by SIGKILL`, `ended
    with exit code 3`.
    """
    return f"{'was' if status < 0 else 'ended with'} {ending(status)}"


def reason_of(error: OSError) -> str:
    """Return the system's reason in words. Of too many open files it names the limit."""
    text = error.strerror or str(error)
    if error.errno != errno.EMFILE:
        return text
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return (
        f"{text}, of which this process may have {soft} (`ulimit -n`, hard limit {hard}); raise it"
    )


def raise_file_limit() -> None:
    """Raise this process's soft limit of open files to the hard one. No further than to
    `MOST_FILES`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_limit = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < new_limit:
        # Some systems have a lower limit than the hard one that they tell.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))


def text_of(path: Path) -> str:
    """Return the last megabyte of a log, whatever its bytes. Empty if there is no log."""
    try:
        return path.read_bytes()[-MOST_READ:].decode("utf-8", "replace")
    except OSError:
        return ""


def last_words(text: str) -> str:
    """Return the last lines that say something, each from its beginning."""
    lines = [line[:TAIL_COLUMNS] for line in text.splitlines() if line.strip(" -=")]
    return "\n".join(lines[-TAIL_LINES:])


# Names the process that a rank must not outlive, where that is its parent.
PARENT_VARIABLE = "ROOFLINE_RANK_PARENT"
_PR_SET_PDEATHSIG = 1
# For a signal to be taken, and the stacks to be written: until they are there and nothing more comes for a moment.
SIGNAL_S, SETTLED_S = 2.0, 0.1


class ProcessId(NamedTuple):
    """A process that no later one with its number can replace.

    Args:
        pid: its number.
        ticks: when it started, in clock ticks since boot; None where the system has no `/proc`.
    """

    pid: int
    ticks: int | None


def process_space() -> str:
    """Return a name for the processes that this one reaches by number. It is the boot of the
    kernel, and the pid namespace.

    Containers may have the same host name, and a node's processes other numbers than a container's. Without `/proc`
    it is the host name.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def process_now(pid: int) -> ProcessId:
    """Return a process of this one's space, as it is now."""
    status = stat(pid)
    return ProcessId(pid, None if status is None else status.ticks)


def is_same(process: ProcessId) -> bool:
    """Return whether its number still means that process. Assume so if the system does not tell
    when it started.
    """
    return process.ticks is None or process_now(process.pid).ticks == process.ticks


# Temporary folders that their process removes at its end, unless it is killed: kind, number, start, and space.
_OWNED = re.compile(r"roofline-[a-z]+-(\d+)-(\d+)-([0-9a-f]{12})-")


def owned_prefix(kind: str) -> str:
    """Return the beginning of the names of this process's temporary folders. `remove_abandoned`
    reads it.
    """
    process = process_now(os.getpid())
    return f"roofline-{kind}-{process.pid}-{process.ticks or 0}-{_space_mark()}-"


def remove_abandoned() -> None:
    """Remove this user's temporary folders whose process is gone. A kill leaves them. Folders of
    another space stay.
    """
    for folder in Path(tempfile.gettempdir()).glob("roofline-*-*"):
        owner = _OWNED.match(folder.name)
        if (
            owner is None
            or owner[3] != _space_mark()
            or is_same(ProcessId(int(owner[1]), int(owner[2]) or None))
        ):
            continue
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.getuid():
                shutil.rmtree(folder)


def _space_mark() -> str:
    return hashlib.sha256(process_space().encode()).hexdigest()[:12]


def signal_to(process: ProcessId, number: int) -> bool:
    """Send a signal to a process of this one's space. Return whether it was there to take it."""
    if is_same(process):
        with contextlib.suppress(OSError):
            os.kill(process.pid, number)
            return True
    return False


def stacks_at_a_signal(ranks: Mapping[int, tuple[ProcessId, int]]) -> dict[int, str]:
    """Return the stacks that blocked ranks write at a signal. The ranks are of this space, by their
    processes and descriptors.
    """
    reached_ranks = [
        rank for rank, (process, _) in ranks.items() if signal_to(process, signal.SIGUSR1)
    ]
    stacks, before = dict.fromkeys(reached_ranks, ""), dict[int, str]()
    until_s = time.monotonic() + SIGNAL_S
    while not (all(stacks.values()) and stacks == before) and time.monotonic() < until_s:
        time.sleep(SETTLED_S)
        before, stacks = stacks, {}
        for rank in reached_ranks:
            process, descriptor = ranks[rank]
            with contextlib.suppress(OSError):
                stacks[rank] = Path(f"/proc/{process.pid}/fd/{descriptor}").read_text(
                    errors="replace"
                )
    return stacks


def descendants(pid: int) -> set[ProcessId]:
    """Return everything that descends from a process now. Empty if the system has no `/proc`."""
    family: dict[int, list[ProcessId]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        status = stat(int(entry.name))
        if status is not None:
            family.setdefault(status.parent, []).append(ProcessId(int(entry.name), status.ticks))
    family_members: set[ProcessId] = set()
    pending = [pid]
    while pending:
        children = set(family.get(pending.pop(), ())) - family_members
        family_members |= children
        pending += [child.pid for child in children]
    return family_members


def kill_each(processes: set[ProcessId]) -> None:
    """Kill the processes that still run."""
    for process in processes:
        signal_to(process, signal.SIGKILL)


def die_with_parent() -> None:
    """Have the kernel end this process with its parent. Only if the parent names itself, and even
    if this process is stopped.
    """
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if not parent or not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != int(parent):
        os._exit(1)


def guard_group() -> None:
    """Have another process end this one's group after it. A process that is killed cannot end what
    it forked.

    Only on Linux, and where this process leads a group; to be called before it has threads.
    """
    if not sys.platform.startswith("linux") or os.getpgrp() != os.getpid():
        return
    guarded = process_now(os.getpid())
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


def _guard(guarded: ProcessId) -> None:
    # Whoever reads what a process prints waits until nobody can write there.
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the names are numbers
        with contextlib.suppress(OSError):
            os.close(int(name))
    # Linux before 5.3, or a Python that was built there, knows no such descriptor, and so no guard.
    with contextlib.suppress(AttributeError):
        with contextlib.suppress(ProcessLookupError):
            select.select([os.pidfd_open(guarded.pid)], [], [])
        os.killpg(guarded.pid, signal.SIGKILL)


class Stat(NamedTuple):
    """A process's state, parent and start (man 5 proc, fields 3, 4 and 22)."""

    state: str
    parent: int
    ticks: int


def stat(pid: int) -> Stat | None:
    """Return the state of a process; None if it is gone."""
    try:
        fields = (
            Path(f"/proc/{pid}/stat")
            .read_text(encoding="utf-8", errors="replace")
            .rpartition(")")[2]
            .split()
        )
        return Stat(fields[0], int(fields[1]), int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None
