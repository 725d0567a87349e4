"""Ranks on processors, forked from a process that has torch already: an import takes seconds of a core, a fork none.

`python -m pytest_roofline.distributed.fork_server` reads a line of JSON for each rank and tells in lines of its own:
`started NUMBER PID`, `failed NUMBER WHY`, `ended NUMBER STATUS`. It ends with its input, and its ranks end with it.
Only on Linux, and only for processors: what a device's library keeps may not survive a fork.
"""

import contextlib
import errno
import gc
import json
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import warnings
import weakref
from collections.abc import Iterator, Mapping
from typing import IO, Any

from .processes import PARENT_VARIABLE, die_with_parent

SUPPORTED = sys.platform.startswith("linux")
# For its end after its input's, before it is killed.
END_S = 1.0
_MOST_READ = 65536
# pytest names in it what it does just now.
_FLEETING = ("PYTEST_CURRENT_TEST",)


class Forked:
    """A rank that a server forks, to be used like a `subprocess.Popen`; `pid` is 0 until it is there."""

    def __init__(self, server: "ForkServer") -> None:
        self.pid = 0
        self.returncode: int | None = None
        self.why = ""
        self._server = server

    def poll(self) -> int | None:
        """Its exit status, minus the signal that ended it; None while it runs or is not there yet."""
        if self.returncode is None:
            self._server.listen(0.0)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Its exit status.

        Raises:
            subprocess.TimeoutExpired: it has not ended within so many seconds.
        """
        until_s = time.monotonic() + timeout
        while self.poll() is None:
            left_s = until_s - time.monotonic()
            if left_s <= 0:
                raise subprocess.TimeoutExpired("a rank", timeout)
            self._server.listen(left_s)
        assert self.returncode is not None
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Nothing where it is not there, or has ended."""
        if self.poll() is None and self.pid:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)


class ForkServer:
    """The process that ranks are forked from; started at once, and of use when it has imported what they need.

    Args:
        environ: of it, which torch reads when it is imported.
    """

    def __init__(self, environ: Mapping[str, str]) -> None:
        self._environ = _lasting(environ)
        self._said = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process lives
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            env={**environ, PARENT_VARIABLE: str(os.getpid())},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._said,
            start_new_session=True,
        )
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._heard = b""
        self._asked = 0
        # Those that have not ended.
        self._forked: dict[int, Forked] = {}
        self._end = weakref.finalize(self, _end, self._process, self._said)

    def serves(self, environ: Mapping[str, str]) -> bool:
        """Whether it still runs, and in such an environment."""
        return self._process.poll() is None and self._environ == _lasting(environ)

    def fork(self, environ: Mapping[str, str], log: str) -> Forked:
        """Have it fork a rank, when it is ready, in this environment and with a file that it prints into."""
        self._asked += 1
        forked = self._forked[self._asked] = Forked(self)
        asked = {"number": self._asked, "environ": dict(environ), "log": log}
        # Of one that has ended the next look tells.
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.write(json.dumps(asked).encode() + b"\n")
            self._process.stdin.flush()
        return forked

    def listen(self, seconds: float) -> None:
        """Take note of what it tells within so many seconds; back at once when it has told something."""
        stdout = self._process.stdout
        if stdout is None or stdout.closed:
            return
        select.select([stdout], [], [], seconds)
        with contextlib.suppress(BlockingIOError):
            data = os.read(stdout.fileno(), _MOST_READ)
            *lines, self._heard = (self._heard + data).split(b"\n")
            for line in lines:
                self._note(*line.decode().split(" ", 2))
            if not data:
                self._note_end()

    def _note(self, word: str, number: str, told: str) -> None:
        if word == "started":
            self._forked[int(number)].pid = int(told)
            return
        forked = self._forked.pop(int(number))
        forked.returncode, forked.why = (int(told), "") if word == "ended" else (1, told)

    def _note_end(self) -> None:
        """It is gone, and with it every rank, which the kernel kills then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        for forked in self._forked.values():
            forked.returncode = -signal.SIGKILL if forked.pid else self._process.returncode or 1
            forked.why = "" if forked.pid else self._words()
        self._forked.clear()

    def _words(self) -> str:
        self._said.seek(0)
        return self._said.read().decode("utf-8", "replace")

    def end(self) -> None:
        """End it, and with it every rank that still runs."""
        self._end()
        for forked in self._forked.values():
            forked.returncode = -signal.SIGKILL
        self._forked.clear()


def _lasting(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in environ.items() if name not in _FLEETING}


def _end(process: "subprocess.Popen[bytes]", said: IO[bytes]) -> None:
    assert process.stdin is not None
    assert process.stdout is not None
    with contextlib.suppress(OSError):
        process.stdin.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        # It may be importing still.
        process.kill()
        process.wait()
    process.stdout.close()
    said.close()


# The server.


def main() -> int:
    """Fork a rank for each line of the input, until that ends; the exit status."""
    die_with_parent()
    channel = os.dup(1)
    # What is imported may print.
    os.dup2(2, 1)
    _prepare()
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, int] = {}
    heard = b""
    while True:
        ready = select.select([0, woken], [], [])[0]
        if woken in ready:
            os.read(woken, _MOST_READ)
            for pid, status in _ended():
                _tell(channel, f"ended {children.pop(pid)} {status}")
        if 0 not in ready:
            continue
        data = os.read(0, _MOST_READ)
        if not data:
            return 0
        *lines, heard = (heard + data).split(b"\n")
        for asked in map(json.loads, lines):
            try:
                pid = _fork()
            except OSError as error:
                _tell(channel, f"failed {asked['number']} {errno.errorcode.get(error.errno or 0)}: {error.strerror}")
                continue
            if not pid:
                for descriptor in (channel, woken, wakes):
                    os.close(descriptor)
                _be_rank(asked)
            children[pid] = asked["number"]
            _tell(channel, f"started {asked['number']} {pid}")


def _prepare() -> None:
    """Import what every rank does: what takes long."""
    import torch.distributed

    from ..measuring import environment, measure
    from ..measuring.devices import cpu
    from . import facts, functions, lockstep, rank, worker, worlds

    # Collections of garbage in the ranks neither look at all this nor copy it.
    gc.collect()
    gc.freeze()
    del cpu, environment, facts, functions, lockstep, measure, rank, torch, worker, worlds


def _fork() -> int:
    with warnings.catch_warnings():
        # Of numpy's threads, which rest and know of forks.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _ended() -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):
        while (told := os.waitpid(-1, os.WNOHANG))[0]:
            yield told[0], os.waitstatus_to_exitcode(told[1])


def _tell(channel: int, line: str) -> None:
    os.write(channel, line.replace("\n", " ").encode() + b"\n")


def _be_rank(asked: dict[str, Any]) -> None:
    """Be what `python -m pytest_roofline.distributed.rank` would be in this environment; does not return."""
    status = 1
    try:
        server = os.getppid()
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for number, path, flags in (
            (0, os.devnull, os.O_RDONLY),
            (1, asked["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND),
        ):
            descriptor = os.open(path, flags, 0o600)
            os.dup2(descriptor, number)
            os.close(descriptor)
        os.dup2(1, 2)
        os.environ.clear()
        os.environ.update(asked["environ"] | {PARENT_VARIABLE: str(server)})
        tempfile.tempdir = None
        if "numpy.random" in sys.modules:
            # Python's own generator sees to that itself, and torch's begins alike in every process.
            sys.modules["numpy.random"].seed()
        from .rank import main as live

        status = live()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


if __name__ == "__main__":
    # What torch holds at the end of an orderly life is none of pytest's waiting.
    os._exit(main())
