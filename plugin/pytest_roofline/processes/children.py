"""Children of a run: fresh processes that run listed tests. They tell of each test, are waited for
and ended, and are blamed if they die.

The child's side is `plugin.round_child`; what it measured stands in run files, also when it did not come to its end.
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

# A child that says nothing for so long, or for so many times the test's first duration, hangs.
QUIET_S, QUIET_FACTOR = 180.0, 10.0
POLL_S = 0.05
TAIL_LINES, TAIL_COLUMNS = 10, 160


@dataclass(frozen=True, slots=True)
class ChildEnd:
    """The end of a child: the tests that it came to, and its last words. `died_in` is the test that
    it died in.

    `planned` are the tests that it was to run where it had no list, `stray` the files of code that it ran from
    elsewhere than from its side's folder.
    """

    started: tuple[str, ...]
    finished: tuple[str, ...]
    status: int | None
    tail: str
    planned: tuple[str, ...] = ()
    stray: tuple[str, ...] = ()

    @property
    def died_in(self) -> str:
        """The test during which it died; empty where it did not."""
        open_tests = [test_id for test_id in self.started if test_id not in self.finished]
        return open_tests[-1] if open_tests else ""

    @property
    def cause(self) -> str:
        """Return the cause of its death, for a person."""
        if self.status is None:
            return "it hung and was killed"
        return f"it {end_clause(self.status)}"


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
    """Run a child to its end, and leave nothing behind. End it if it is silent for `quiet_s`
    seconds.

    Args:
        command: of pytest.
        folder: its own, which gets its log and its run files.
        order: what it is to do, beside its folder and its parent: see `plugin.round_child`.
        variable: tells it the file that says so.
        cwd: where it runs.
        environ: all of its variables but that one.
        descriptors: open files that it inherits.
        parent: forks it, in place of a fresh interpreter, while it works; `command` is then an interpreter, `-m`, a
            module and the arguments, and `cwd` is where it starts.
    """
    variables = {**environ, variable: str(folder / "round.json")}
    server = parent.next(environ) if parent is not None else None
    child_end = _run(command, folder, order, cwd, variables, quiet_s, descriptors, server)
    if (
        parent is not None
        and server is not None
        and not child_end.started
        and parent.gave_up(environ)
    ):
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
    """Run one child, in a fresh interpreter or forked by a server."""
    status, log, order_file = folder / "status", folder / "log", folder / "round.json"
    status.touch()
    log.touch()
    parent = os.getpid() if server is None else server.pid
    content = {"folder": str(folder), "parent": parent, "own_process": True, **order}
    order_file.write_text(json.dumps(content), encoding="utf-8")
    child: subprocess.Popen[bytes] | ForkedProcess
    if server is not None:
        child = server.fork(environ, str(log), command[3:])
    else:
        with log.open("wb") as output:
            child = subprocess.Popen(
                command,
                cwd=cwd,
                env=environ,
                pass_fds=descriptors,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # A group of its own, so that nothing it started is left behind.
                start_new_session=True,
            )
    try:
        code = _wait(child, status, quiet_s)
    finally:
        if server is not None and not child.pid:
            # It is not there yet, and must not come any more.
            server.end()
        _end(child)
    events = _events(status)
    return ChildEnd(
        events["start"], events["end"], code, _tail(log), events["planned"], events["stray"]
    )


def why_void(outcome: Outcome | None, where: str) -> str:
    """Return why a test's measurements in a child do not count. Empty if it passed.

    Args:
        outcome: None where the test did not come to its end.
        where: `round 3`.
    """
    if outcome is None:
        return f"its test did not finish in {where}"
    if outcome.outcome == "skipped":
        return f"its test was skipped in {where}"
    return f"its test failed in {where}: {outcome.reason}" if outcome.outcome == "failed" else ""


def _wait(
    child: "subprocess.Popen[bytes] | ForkedProcess", status: Path, quiet_s: float
) -> int | None:
    """Return the child's exit status. None if it was silent for too long."""
    status_bytes, heard_s = -1, time.monotonic()
    while (code := child.poll()) is None:
        size, now_s = status.stat().st_size, time.monotonic()
        if size != status_bytes:
            status_bytes, heard_s = size, now_s
        elif now_s - heard_s > quiet_s:
            return None
        time.sleep(POLL_S)
    return code


def _end(child: "subprocess.Popen[bytes] | ForkedProcess") -> None:
    """End a child and everything that it started, and reap it."""
    # A forked one leads its group a moment after its start; the group of 0 would be this process's own.
    for kill in (os.killpg, os.kill) if child.pid else ():
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(child.pid, signal.SIGKILL)
            break
    child.wait()


def _events(status: Path) -> dict[str, tuple[str, ...]]:
    """Return the events of a child, by their kind."""
    by_event: dict[str, list[str]] = {"start": [], "end": [], "planned": [], "stray": []}
    for line in status.read_text(encoding="utf-8").splitlines():
        with contextlib.suppress(json.JSONDecodeError):
            for event, text in json.loads(line).items():
                by_event[event].append(encodable(text))
    return {event: tuple(texts) for event, texts in by_event.items()}


def _tail(log: Path) -> str:
    """Return a child's last words. If Python reported a fatal error, return that error and the
    thread that died of it.
    """
    lines = [
        line[:TAIL_COLUMNS]
        for line in log.read_text(encoding="utf-8", errors="replace").splitlines()
    ]
    lines = [line for line in lines if line.strip()]
    fatal = [index for index, line in enumerate(lines) if "Fatal Python error" in line]
    if not fatal:
        return "\n".join(lines[-TAIL_LINES:])
    last_threads = [
        index
        for index, line in enumerate(lines)
        if index > fatal[-1] and line.startswith("Current thread")
    ]
    start = last_threads[0] if last_threads else fatal[-1] + 1
    return "\n".join([lines[fatal[-1]], *lines[start : start + TAIL_LINES - 1]])
