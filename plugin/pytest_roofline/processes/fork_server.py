"""Processes forked from one that has torch already. An import takes seconds of a core, a fork none.

The server is `python -m pytest_roofline.processes.fork_server DESCRIPTOR MODULE PLUGINS`, at the other end of a pair of
sockets: it imports MODULE, which imports what its processes need, and their life is the function `live` of it. It ends
with the pair, and what it forked ends with it. Ranks on processors have one (`ranks.rank_server`), and further rounds
there (`plugin.round_server`). Only on Linux, and only for processors: what the library of a device keeps may not
survive a fork.
"""

import contextlib
import errno
import gc
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from multiprocessing.connection import Connection, Pipe, wait
from typing import IO, Any

from .system import FORKER, PARENT_VARIABLE, die_with_parent, end_clause, last_words

SUPPORTED = sys.platform.startswith("linux")
# For its end after the pair's, before it is killed.
END_S = 1.0
# Names what pytest does just now.
_FLEETING = "PYTEST_CURRENT_TEST"


class ForkedProcess:
    """A process that a server forks, used like a `subprocess.Popen`. `pid` is 0 until it is there."""

    def __init__(self, server: "ForkServer") -> None:
        self.pid = 0
        self.returncode: int | None = None
        self.why = ""
        """The reason of an end that was not its own: it could not be forked, or the server has ended."""
        self._server = server

    def poll(self) -> int | None:
        """Return its exit status, or minus the signal that ended it. None while it runs or is not
        there yet.
        """
        if self.returncode is None:
            self._server.listen(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit status. Without a timeout, wait as long as it takes.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        until_s = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            left_s = None if until_s is None else until_s - time.monotonic()
            if timeout is not None and left_s is not None and left_s <= 0:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            self._server.listen(left_s)
        assert self.returncode is not None
        return self.returncode


class ForkServer:
    """The process that others are forked from. It is started at once, and of use when it has
    imported what they need.

    Args:
        environ: of the server.
        module: what imports all that the processes need; its function `live` is the life of one of them. Called with
            arguments, it returns an exit status.
        plugins: modules to import beside it, where they can be imported.
        python: the interpreter.
        folder: where the server starts; None is here.
    """

    def __init__(
        self,
        environ: Mapping[str, str],
        module: str,
        plugins: Sequence[str] = (),
        *,
        python: str = sys.executable,
        folder: str | os.PathLike[str] | None = None,
    ) -> None:
        self._environ = _lasting_variables(environ)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process lives
        self._connection, theirs = Pipe()
        with theirs:
            self._process = subprocess.Popen(
                [python, "-m", __name__, str(theirs.fileno()), module, *plugins],
                cwd=folder,
                env={**environ, PARENT_VARIABLE: str(os.getpid())},
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._requests = 0
        # Those that have not ended.
        self._running: dict[int, ForkedProcess] = {}
        self._end = weakref.finalize(self, _end, self._process, self._connection, self._output)

    @property
    def pid(self) -> int:
        """The parent of every process that it forks."""
        return self._process.pid

    def serves(self, environ: Mapping[str, str]) -> bool:
        """Return whether it still runs, in an environment like this one."""
        return self._process.poll() is None and self._environ == _lasting_variables(environ)

    def fork(
        self, environ: Mapping[str, str], log: str, arguments: Sequence[str] = ()
    ) -> ForkedProcess:
        """Have it fork a process when it is ready.

        Args:
            environ: of the process.
            log: the file that it prints into.
            arguments: of its life.
        """
        self._requests += 1
        forked = self._running[self._requests] = ForkedProcess(self)
        # Of one that has ended the next look tells.
        with contextlib.suppress(OSError):
            self._connection.send((self._requests, dict(environ), log, list(arguments)))
        return forked

    def listen(self, seconds: float | None) -> None:
        """Note the server's messages for so many seconds. None waits for ever. Return at once after
        a message.
        """
        with contextlib.suppress(OSError):
            try:
                while self._connection.poll(seconds):
                    self._note(*self._connection.recv())
                    seconds = 0.0
            except (EOFError, ConnectionError):
                self._note_end()

    def _note(self, word: str, number: int, content: Any) -> None:
        if word == "started":
            self._running[number].pid = content
            return
        forked = self._running.pop(number)
        if word == "ended":
            forked.returncode = content
        else:
            forked.returncode, forked.why = 1, f"{FORKER} could not fork another process: {content}"

    def _note_end(self) -> None:
        """Note that it is gone, and every rank with it. The kernel kills them then."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        why = self._end_text()
        for forked in self._running.values():
            forked.returncode, forked.why = -signal.SIGKILL, why
        self._running.clear()

    def _end_text(self) -> str:
        """Return its end in words, with its last words. Empty if this process ended it."""
        if self._output.closed:
            return ""
        self._output.seek(0)
        words = last_words(self._output.read().decode("utf-8", "replace"))
        status = self._process.returncode
        end = "closed its connection" if status is None else end_clause(status)
        return f"{FORKER} {end}\n{words}".rstrip()

    def end(self) -> None:
        """End it, and with it every rank that still runs."""
        self._end()
        self._note_end()


def _lasting_variables(environ: Mapping[str, str]) -> dict[str, str]:
    return {name: setting for name, setting in environ.items() if name != _FLEETING}


def _end(
    process: "subprocess.Popen[bytes]", connection: "Connection[Any, Any]", output: IO[bytes]
) -> None:
    connection.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        # It may be importing still.
        process.kill()
        process.wait()
    output.close()


# The server.


def main(descriptor: str, module: str, *plugins: str) -> int:
    """Import what the processes need, and serve; return the exit status."""
    # An import takes seconds, which this process must not live on alone.
    die_with_parent()
    live = importlib.import_module(module).live
    for plugin in plugins:
        # One that cannot be imported says so in the forked process.
        with contextlib.suppress(Exception):
            importlib.import_module(plugin)
    return serve(int(descriptor), live)


def serve(descriptor: int, live: Callable[[Sequence[str]], int]) -> int:
    """Fork a process for every request, until the other end of the socket is closed.

    Args:
        descriptor: of the socket that requests come through, and word of each process goes back.
        live: runs in a forked process with the arguments of its request; returns its exit status.

    Returns:
        The exit status of the server.
    """
    connection: Connection[Any, Any] = Connection(descriptor)
    # Garbage collection in the forked processes neither scans these objects nor copies them.
    gc.collect()
    gc.freeze()
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    children: dict[int, int] = {}
    while True:
        ready = wait([connection, wake_read])
        if wake_read in ready:
            os.read(wake_read, 65536)
            for pid, status in _reap_children():
                connection.send(("ended", children.pop(pid), status))
        if connection not in ready:
            continue
        try:
            request_number, environ, log, arguments = connection.recv()
        except (EOFError, ConnectionError):
            return 0
        try:
            pid = _fork()
        except OSError as error:
            connection.send(
                (
                    "failed",
                    request_number,
                    f"{errno.errorcode.get(error.errno or 0)}: {error.strerror}",
                )
            )
            continue
        if not pid:
            for inherited in (connection.fileno(), wake_read, wake_write):
                os.close(inherited)
            # It does not return.
            _live(live, environ, log, arguments)
        children[pid] = request_number
        connection.send(("started", request_number, pid))


def _fork() -> int:
    with warnings.catch_warnings():
        # Of numpy's threads, which rest and know of forks.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _reap_children() -> Iterator[tuple[int, int]]:
    with contextlib.suppress(ChildProcessError):
        while (reaped_child := os.waitpid(-1, os.WNOHANG))[0]:
            yield reaped_child[0], os.waitstatus_to_exitcode(reaped_child[1])


def _live(
    live: Callable[[Sequence[str]], int],
    environ: Mapping[str, str],
    log: str,
    arguments: Sequence[str],
) -> None:
    """Live in this environment, in a session of its own. It does not return."""
    status = 1
    try:
        server = os.getppid()
        os.setsid()
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        os.environ.clear()
        os.environ.update({**environ, PARENT_VARIABLE: str(server)})
        tempfile.tempdir = None
        if "numpy.random" in sys.modules:
            # Python's own generator sees to that itself, and torch's begins alike in every process.
            sys.modules["numpy.random"].seed()
        status = live(arguments)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


if __name__ == "__main__":
    # What torch holds at the end of an orderly life is none of pytest's waiting.
    os._exit(main(*sys.argv[1:]))
