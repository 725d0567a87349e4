"""Children of a run: processes that run listed tests, and report the start and end of each test.

This module starts a child, waits for it, ends it if it hangs, and returns in which test it died.

The child's side is `plugin.round_child`. It writes its measurements into run files, so they stay if it dies.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..core.records import Outcome
from ..core.units import encodable
from .fork_server import ForkedProcess, ForkServer
from .round_parent import RoundParent
from .system import end_clause

# A child that writes no event for so many seconds, or for so many times the test's first duration, hangs.
QUIET_S, QUIET_FACTOR = 180.0, 10.0
POLL_S = 0.05
TAIL_LINES, TAIL_COLUMNS = 10, 160


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """The end of a child.

    Args:
        started: the tests that it began.
        finished: the tests that it ended.
        status: its exit status; None where it hung and was killed.
        tail: its last words.
        planned: the tests that it was to run, of a child that had no list of tests.
        stray: files of code that it ran from outside of its side's folder (`roofline ab`).
    """

    started: tuple[str, ...]
    finished: tuple[str, ...]
    status: int | None
    tail: str
    planned: tuple[str, ...] = ()
    stray: tuple[str, ...] = ()

    @property
    def died_in(self) -> str:
        """Return the test during which the child died; empty if it did not."""
        open_tests = [test_id for test_id in self.started if test_id not in self.finished]
        return open_tests[-1] if open_tests else ""

    @property
    def cause(self) -> str:
        """Return the cause of the child's death, for a person."""
        if self.status is None:
            return "the process hung and was killed"
        return f"the process {end_clause(self.status)}"


def run_child(
    command: Sequence[str],
    folder: Path,
    order: Mapping[str, Any],
    *,
    variable: str,
    cwd: Path,
    environ: Mapping[str, str],
    quiet_s: float,
    descriptors: Sequence[int] = (),
    parent: RoundParent | None = None,
) -> ChildEnd:
    """Run a child to its end, and return how it ended.

    A child that is silent for `quiet_s` seconds is ended. All processes that it started are ended too.

    Args:
        command: the command line of pytest.
        folder: gets the child's log, order and run files; no other child uses it.
        order: what the child is to do; its folder and its parent are added. See `plugin.round_child`.
        variable: the name of the variable that tells the child the file of its order.
        cwd: the folder that it runs in.
        environ: all of its other variables.
        quiet_s: the seconds without an event after which it is ended.
        descriptors: open files that it inherits.
        parent: forks the child, as long as that works; otherwise it gets a fresh interpreter. `command` must then be
            an interpreter, `-m`, a module and the arguments, and `cwd` the folder that the parent started in.
    """
    variables = {**environ, variable: str(folder / "round.json")}
    server = parent.next(environ) if parent is not None else None
    child_end = _run(command, folder, order, cwd, variables, quiet_s, descriptors, server)
    began_no_test = not child_end.started
    if parent is not None and server is not None and began_no_test and parent.gave_up(environ):
        # The server died before the child began a test, so the child runs again in a fresh interpreter.
        return _run(command, folder, order, cwd, variables, quiet_s, descriptors, None)
    return child_end


def _run(
    command: Sequence[str],
    folder: Path,
    order: Mapping[str, Any],
    cwd: Path,
    environ: Mapping[str, str],
    quiet_s: float,
    descriptors: Sequence[int],
    server: ForkServer | None,
) -> ChildEnd:
    """Run one child, in a fresh interpreter or forked by a server.

    The arguments are those of `run_child`, with all variables in `environ`. `server` is None for a
    fresh interpreter.
    """
    status, log, order_file = folder / "status", folder / "log", folder / "round.json"
    status.touch()
    log.touch()
    parent = os.getpid() if server is None else server.pid
    content = {"folder": str(folder), "parent": parent, "own_process": True, **order}
    order_file.write_text(json.dumps(content), encoding="utf-8")
    child: subprocess.Popen[bytes] | ForkedProcess
    if server is not None:
        # The arguments follow the interpreter, `-m` and the module.
        child = server.fork(environ, str(log), command[3:])
    else:
        child = _start(command, log, cwd, environ, descriptors)
    try:
        code = _wait(child, status, quiet_s)
    finally:
        if server is not None and not child.pid:
            # The server has not forked the child yet, and must not do so later.
            server.end()
        _end(child)
    events = _events(status)
    return ChildEnd(
        started=events["start"],
        finished=events["end"],
        status=code,
        tail=_tail(log),
        planned=events["planned"],
        stray=events["stray"],
    )


def _start(
    command: Sequence[str],
    log: Path,
    cwd: Path,
    environ: Mapping[str, str],
    descriptors: Sequence[int],
) -> "subprocess.Popen[bytes]":
    """Start a child in a fresh interpreter; what it prints goes into the log."""
    with log.open("wb") as output:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=environ,
            pass_fds=descriptors,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            # It leads a group of its own, so that all that it starts can be ended with it.
            start_new_session=True,
        )


def why_void(outcome: Outcome | None, where: str) -> str:
    """Return why a test's measurements in a child process do not count. Empty if the test passed there.

    Args:
        outcome: of the test in the child; None where it did not finish.
        where: the name of the child in the reason: `round 3`.
    """
    if outcome is None:
        return f"the test did not finish in {where}"
    if outcome.outcome == "skipped":
        return f"the test was skipped in {where}"
    return f"the test failed in {where}: {outcome.reason}" if outcome.outcome == "failed" else ""


def _wait(
    child: "subprocess.Popen[bytes] | ForkedProcess", status: Path, quiet_s: float
) -> int | None:
    """Wait for a child, and return its exit status. None if it reported no event for `quiet_s` seconds."""
    # The child appends its events to the file `status`, so the file grows while the child works.
    status_bytes, last_event_s = -1, time.monotonic()
    while (code := child.poll()) is None:
        size, now_s = status.stat().st_size, time.monotonic()
        if size != status_bytes:
            status_bytes, last_event_s = size, now_s
        elif now_s - last_event_s > quiet_s:
            return None
        time.sleep(POLL_S)
    return code


def _end(child: "subprocess.Popen[bytes] | ForkedProcess") -> None:
    """End a child and everything that it started, and reap it."""
    # A child that was never forked has the pid 0, which would mean this process's own group.
    if child.pid:
        # The group of the child is killed. A forked child has a group of its own only a moment after its start; before,
        # the child alone is killed.
        for kill in (os.killpg, os.kill):
            with contextlib.suppress(ProcessLookupError, PermissionError):
                kill(child.pid, signal.SIGKILL)
                break
    child.wait()


def _events(status: Path) -> dict[str, tuple[str, ...]]:
    """Return the events of a child, by their kind.

    A line that the child did not finish is skipped.
    """
    by_event: dict[str, list[str]] = {"start": [], "end": [], "planned": [], "stray": []}
    for line in status.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            for event, text in json.loads(line).items():
                by_event[event].append(encodable(text))
    return {event: tuple(texts) for event, texts in by_event.items()}


def _tail(log: Path) -> str:
    """Return the last lines of a child's log.

    If Python reported a fatal error, return that error and the stack of the thread that died of it.
    """
    lines = [
        line[:TAIL_COLUMNS]
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    lines = [line for line in lines if line.strip()]
    error_indices = [index for index, line in enumerate(lines) if "Fatal Python error" in line]
    if not error_indices:
        return "\n".join(lines[-TAIL_LINES:])
    last_error = error_indices[-1]
    # The stacks of all threads follow the error; that of the thread that died has this heading.
    thread_indices = [
        index
        for index, line in enumerate(lines)
        if index > last_error and line.startswith("Current thread")
    ]
    stack_start = thread_indices[0] if thread_indices else last_error + 1
    return "\n".join([lines[last_error], *lines[stack_start : stack_start + TAIL_LINES - 1]])
