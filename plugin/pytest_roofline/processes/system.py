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
import threading
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

# The last lines of a log to show. There are many, since Gloo prints a stack and a list of modules after its reason.
TAIL_LINES, TAIL_COLUMNS = 30, 200
# Bytes that are read from the end of a log.
MOST_READ = 2**20
# Seconds to wait for the end of a process that was killed.
REAP_S = 5.0
# Seconds to wait for the exit status of a rank that was lost.
FATE_S = 2.0
# The name of the fork server in messages.
FORKER = "the process that forks the ranks"
# The highest limit of open files to set. Some launchers close every possible descriptor before they start a process.
MOST_FILES = 2**16
# Errors at the limit of open files: that of a process, and the system's.
OF_FILES = (errno.EMFILE, errno.ENFILE)


def loopback() -> dict[str, str]:
    """Return variables that keep Gloo on this host's loopback. There are none if the user chose an
    interface.
    """
    if "GLOO_SOCKET_IFNAME" in os.environ:
        return {}
    return {"GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo"}


def ending(status: int) -> str:
    """Return an exit status in words: `killed by SIGKILL`, `exit code 3`."""
    if status >= 0:
        return f"exit code {status}"
    try:
        name = signal.Signals(-status).name
    except ValueError:
        name = f"signal {-status}"
    # The kernel kills a process for lack of memory by this signal.
    hint = " (maybe out of memory; check dmesg)" if -status == signal.SIGKILL else ""
    return f"killed by {name}{hint}"


def end_clause(status: int) -> str:
    """Return an exit status as the end of a sentence.

    It reads `was killed by SIGKILL` or `ended with exit code 3`.
    """
    return f"{'was' if status < 0 else 'ended with'} {ending(status)}"


def reason_of(error: OSError) -> str:
    """Return the system's reason in words.

    Where a process has too many open files, the reason names the limit.
    """
    text = error.strerror or str(error)
    if error.errno != errno.EMFILE:
        return text
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return f"{text}: this process may open {soft} files (hard limit {hard}). Raise `ulimit -n`"


def raise_file_limit() -> None:
    """Raise this process's soft limit of open files to the hard one. No further than to
    `MOST_FILES`.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    new_limit = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft != resource.RLIM_INFINITY and soft < new_limit:
        # Some systems refuse a limit as high as the hard one that they report.
        with contextlib.suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (new_limit, hard))


def text_of(path: Path) -> str:
    """Return the last megabyte of a log, whatever its bytes. Empty if there is no log."""
    try:
        return path.read_bytes()[-MOST_READ:].decode("utf-8", "replace")
    except OSError:
        return ""


def last_words(text: str) -> str:
    """Return the last lines that are not blank or ruled, each shortened."""
    lines = [line[:TAIL_COLUMNS] for line in text.splitlines() if line.strip(" -=")]
    return "\n".join(lines[-TAIL_LINES:])


# The variable with the number of a rank's parent, which the rank must not outlive.
PARENT_VARIABLE = "ROOFLINE_RANK_PARENT"
# Linux: the option of `prctl` for a signal at the end of the parent (man 2 prctl).
_PR_SET_PDEATHSIG = 1
# Seconds for a rank to write its stacks after a signal, and seconds without a change after which they are complete.
SIGNAL_S, SETTLED_S = 2.0, 0.1


class ProcessId(NamedTuple):
    """A process, told from a later one with the same number by its start.

    Args:
        pid: its number.
        ticks: when it started, in clock ticks since boot; None where the system has no `/proc`.
    """

    pid: int
    ticks: int | None


def process_space() -> str:
    """Return a name of the space in which this process's number (pid) means this process.

    It is made of the kernel's boot and the pid namespace: containers may have the same host name, and number their
    processes differently. Without `/proc` it is the host name.
    """
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return socket.gethostname()


def process_now(pid: int) -> ProcessId:
    """Return the process that has this number now."""
    status = stat(pid)
    return ProcessId(pid, None if status is None else status.ticks)


def is_same(process: ProcessId) -> bool:
    """Return whether the number of a process still means that process.

    It is True if the system does not tell when processes started.
    """
    return process.ticks is None or process_now(process.pid).ticks == process.ticks


# The name of a temporary folder: a kind, and the number, start and space of the process that removes it at its end.
_OWNED = re.compile(r"roofline-[a-z]+-(\d+)-(\d+)-([0-9a-f]{12})-")


def owned_prefix(kind: str) -> str:
    """Return the beginning of the names of this process's temporary folders.

    It tells `remove_abandoned` which process owns a folder.
    """
    process = process_now(os.getpid())
    return f"roofline-{kind}-{process.pid}-{process.ticks or 0}-{_space_mark()}-"


def remove_abandoned() -> None:
    """Remove this user's temporary folders whose process is gone.

    A process that was killed leaves its folders. Folders of another space stay, since their process
    cannot be looked up.
    """
    for folder in Path(tempfile.gettempdir()).glob("roofline-*-*"):
        name_match = _OWNED.match(folder.name)
        if name_match is None:
            continue
        pid, ticks, space_mark = name_match.groups()
        # In a name, 0 ticks stand for a process whose start is unknown.
        owner = ProcessId(int(pid), int(ticks) or None)
        if space_mark != _space_mark() or is_same(owner):
            continue
        with contextlib.suppress(OSError):
            if folder.lstat().st_uid == os.getuid():
                shutil.rmtree(folder)


def _space_mark() -> str:
    """Return a short text for this process's space, for the name of a folder."""
    return hashlib.sha256(process_space().encode()).hexdigest()[:12]


def signal_to(process: ProcessId, number: int) -> bool:
    """Send a signal to a process, and return whether it still runs.

    The process must be of this process's space.
    """
    if is_same(process):
        with contextlib.suppress(OSError):
            os.kill(process.pid, number)
            return True
    return False


def stacks_at_a_signal(ranks: Mapping[int, tuple[ProcessId, int]]) -> dict[int, str]:
    """Return the stacks that blocked ranks write into their files when a signal makes them.

    Args:
        ranks: by number, the process of each, and the descriptor of the file that it writes into. All are of this
            process's space.
    """
    reached_ranks = [
        rank for rank, (process, _) in ranks.items() if signal_to(process, signal.SIGUSR1)
    ]
    stacks = dict.fromkeys(reached_ranks, "")
    # Read on until every rank has written a stack, and no stack has grown since the last reading.
    is_complete = not reached_ranks
    until_s = time.monotonic() + SIGNAL_S
    while not is_complete and time.monotonic() < until_s:
        time.sleep(SETTLED_S)
        earlier_stacks, stacks = stacks, {}
        for rank in reached_ranks:
            process, descriptor = ranks[rank]
            with contextlib.suppress(OSError):
                stacks[rank] = Path(f"/proc/{process.pid}/fd/{descriptor}").read_text(
                    errors="replace"
                )
        is_complete = all(stacks.values()) and stacks == earlier_stacks
    return stacks


@contextlib.contextmanager
def signals_held() -> Iterator[None]:
    """Hold SIGINT and SIGTERM back until the end of the context, where their handlers run.

    A handler that raises while a process is being started would leave a process that nobody can end. A signal that has
    no handler of Python does what it always does. In another thread than the main one nothing is held.
    """
    if threading.current_thread() is not threading.main_thread():
        # Python runs handlers in the main thread only.
        yield
        return
    held: list[int] = []
    handlers = {
        number: handler
        for number in (signal.SIGINT, signal.SIGTERM)
        if callable(handler := signal.getsignal(number))
    }
    # The last that was pushed is called first, and all are called, also where one raises.
    with contextlib.ExitStack() as stack:
        stack.callback(_raise_all, held)
        for number, handler in handlers.items():
            stack.callback(signal.signal, number, handler)
            signal.signal(number, lambda received, _: held.append(received))
        yield


def _raise_all(numbers: list[int]) -> None:
    """Raise signals in this process, also where the handler of one of them raises."""
    with contextlib.ExitStack() as stack:
        for number in reversed(numbers):
            stack.callback(signal.raise_signal, number)


def descendants(pid: int) -> set[ProcessId]:
    """Return all present descendants of a process; none without `/proc`."""
    children_by_parent: dict[int, list[ProcessId]] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        status = stat(int(entry.name))
        if status is not None:
            process = ProcessId(int(entry.name), status.ticks)
            children_by_parent.setdefault(status.parent, []).append(process)
    processes: set[ProcessId] = set()
    pending = [pid]
    while pending:
        children = set(children_by_parent.get(pending.pop(), ())) - processes
        processes |= children
        pending += [child.pid for child in children]
    return processes


def kill_each(processes: set[ProcessId]) -> None:
    """Kill the processes that still run."""
    for process in processes:
        signal_to(process, signal.SIGKILL)


def die_with_parent() -> None:
    """Have the kernel kill this process when its parent ends.

    It works on Linux, also while this process is stopped. Without the variable that names the parent,
    nothing is done.
    """
    parent = os.environ.pop(PARENT_VARIABLE, "")
    if not parent or not sys.platform.startswith("linux"):
        return
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    # The parent may have ended before the kernel was asked; then this process already has another parent.
    if os.getppid() != int(parent):
        os._exit(1)


def guard_group() -> None:
    """Have another process kill this process's group after its end.

    A process that is killed cannot end the processes that it forked. It works on Linux, and where
    this process leads its group. Call it before this process has threads.
    """
    if not sys.platform.startswith("linux") or os.getpgrp() != os.getpid():
        return
    guarded = process_now(os.getpid())
    # If no process can be forked, there is no guard, as on other systems.
    with contextlib.suppress(OSError):
        child_pid = os.fork()
        if child_pid == 0:
            try:
                os.setsid()
                # The guard is a grandchild, since the guarded process may wait for all its children.
                if os.fork() == 0:
                    _guard(guarded)
            finally:
                os._exit(0)
        os.waitpid(child_pid, 0)


def _guard(guarded: ProcessId) -> None:
    """Wait for the end of a process, then kill its group."""
    # Readers of the process's output wait until all writers have closed it. The guard inherited it, so it closes all
    # descriptors first.
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208 - the names are numbers
        with contextlib.suppress(OSError):
            os.close(int(name))
    # Linux before 5.3, and a Python built there, have no `pidfd_open`; then there is no guard.
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
        text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
        # The name in parentheses, field 2 of the manual page, may have spaces, so it is cut off.
        _, _, after_name = text.rpartition(")")
        # The index of a field is its number in the manual page minus 3: 0 for field 3, and 19 for field 22.
        fields = after_name.split()
        return Stat(state=fields[0], parent=int(fields[1]), ticks=int(fields[19]))
    except (OSError, IndexError, ValueError):
        return None
