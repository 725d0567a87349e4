"""Processes forked from one that has imported torch. An import takes seconds of a core, a fork none.

The server is `python -m pytest_roofline.processes.fork_server DESCRIPTOR MODULE PLUGINS`, at the other end of a pair of
sockets. It imports MODULE, which imports what the processes need; each process runs the function `live` of MODULE. The
server ends when the pair is closed, and its processes end with it. Ranks on processors have a server
(`ranks.rank_server`), and so have further rounds there (`plugin.round_server`). It works on Linux only, and for
processors only: the state of an accelerator's library may not survive a fork.
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
# Seconds for the server to end after the pair was closed, before it is killed.
END_S = 1.0
# The variable in which pytest names the running test; it changes all the time.
_CURRENT_TEST = "PYTEST_CURRENT_TEST"


class ForkedProcess:
    """A process that a server forks, used like a `subprocess.Popen`. `pid` is 0 until it is forked."""

    def __init__(self, server: "ForkServer") -> None:
        """Stand for a process that a server is to fork. The pid is 0 until then."""
        self.pid = 0
        self.returncode: int | None = None
        self.why = ""
        """Why the process ended through no fault of its own: it was not forked, or the server has ended."""
        self._server = server

    def poll(self) -> int | None:
        """Return the exit status of the process, or minus the signal that ended it.

        It is None while the process runs, or is not forked yet.
        """
        if self.returncode is None:
            self._server.listen(0.0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """Wait for the process, and return its exit status.

        Without a timeout, the wait has no limit.

        Raises:
            subprocess.TimeoutExpired: it still runs after `timeout` seconds.
        """
        until_s = None if timeout is None else time.monotonic() + timeout
        while self.poll() is None:
            remaining_s = None if until_s is None else until_s - time.monotonic()
            if timeout is not None and remaining_s is not None and remaining_s <= 0:
                raise subprocess.TimeoutExpired("a forked process", timeout)
            # Messages of the server set `returncode`, which `poll` returns.
            self._server.listen(remaining_s)
        assert self.returncode is not None
        return self.returncode


class ForkServer:
    """The process that others are forked from. It is started at once, and forks when it has
    imported what they need.

    Args:
        environ: the variables of the server.
        module: imports all that the processes need. Each process runs its function `live`, which takes the arguments
            of the process and returns its exit status.
        plugins: further modules to import, if they can be imported.
        python: the interpreter of the server.
        folder: that the server starts in; None is the present one.
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
        """Start the server. The class describes the arguments."""
        self._environ = _without_current_test(environ)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115 - as long as the process lives
        self._connection, server_end = Pipe()
        with server_end:
            self._process = subprocess.Popen(
                [python, "-m", __name__, str(server_end.fileno()), module, *plugins],
                cwd=folder,
                env={**environ, PARENT_VARIABLE: str(os.getpid())},
                pass_fds=[server_end.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._request_count = 0
        # The processes that have not ended, by the number of their request.
        self._running: dict[int, ForkedProcess] = {}
        self._end = weakref.finalize(self, _end, self._process, self._connection, self._output)

    @property
    def pid(self) -> int:
        """Return the server's number, which is the parent of all its processes."""
        return self._process.pid

    def serves(self, environ: Mapping[str, str]) -> bool:
        """Return whether the server still runs, with variables like these.

        The variable that names the running test is ignored.
        """
        return self._process.poll() is None and self._environ == _without_current_test(environ)

    def fork(
        self, environ: Mapping[str, str], log: str, arguments: Sequence[str] = ()
    ) -> ForkedProcess:
        """Ask the server to fork a process, and return it at once. Its pid is 0 until the server has forked it.

        Args:
            environ: the variables of the process.
            log: the file that it prints into.
            arguments: of the function `live`.
        """
        self._request_count += 1
        forked = self._running[self._request_count] = ForkedProcess(self)
        # A server that has ended refuses the request; the next call of `listen` notices that.
        with contextlib.suppress(OSError):
            self._connection.send((self._request_count, dict(environ), log, list(arguments)))
        return forked

    def listen(self, seconds: float | None) -> None:
        """Record the server's messages; wait for the first one if there is none.

        The wait is at most `seconds` long; with None it has no limit.
        """
        # The connection of a server that this process has ended is closed, which is an OSError.
        with contextlib.suppress(OSError):
            try:
                while self._connection.poll(seconds):
                    event, request_number, content = self._connection.recv()
                    self._note(event, request_number, content)
                    # Only the first message is waited for.
                    seconds = 0.0
            except (EOFError, ConnectionError):
                self._note_end()

    def _note(self, event: str, request_number: int, content: Any) -> None:
        """Record a message of the server on one process.

        The content is a pid, an exit status, or why the process could not be forked.
        """
        if event == "started":
            self._running[request_number].pid = content
            return
        forked = self._running.pop(request_number)
        if event == "ended":
            forked.returncode = content
        else:
            forked.returncode, forked.why = 1, f"{FORKER} could not fork another process: {content}"

    def _note_end(self) -> None:
        """Record the end of the server, and of all its processes.

        The kernel kills them when their parent ends.
        """
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        why = self._end_text()
        for forked in self._running.values():
            forked.returncode, forked.why = -signal.SIGKILL, why
        self._running.clear()

    def _end_text(self) -> str:
        """Return how the server ended, with the last lines of its output.

        It is empty if this process ended the server.
        """
        if self._output.closed:
            return ""
        self._output.seek(0)
        words = last_words(self._output.read().decode("utf-8", "replace"))
        status = self._process.returncode
        end = "closed its connection" if status is None else end_clause(status)
        return f"{FORKER} {end}\n{words}".rstrip()

    def end(self) -> None:
        """End the server, and with it every process that still runs."""
        self._end()
        self._note_end()


def _without_current_test(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that stay the same from test to test."""
    return {name: setting for name, setting in environ.items() if name != _CURRENT_TEST}


def _end(
    process: "subprocess.Popen[bytes]", connection: "Connection[Any, Any]", output: IO[bytes]
) -> None:
    """End a server: by closing its connection, or by a kill if it does not end in time."""
    connection.close()
    try:
        process.wait(END_S)
    except subprocess.TimeoutExpired:
        # While the server imports modules, it does not notice that its connection is closed.
        process.kill()
        process.wait()
    output.close()


# The server.


def main(descriptor: str, module: str, *plugins: str) -> int:
    """Import what the forked processes need, and fork one for each request; return the server's exit status.

    Args:
        descriptor: the number of the socket from which requests come.
        module: whose function `live` each process runs.
        plugins: modules to import as well.
    """
    # Before the imports, which take seconds: the parent may end meanwhile.
    die_with_parent()
    live = importlib.import_module(module).live
    for plugin in plugins:
        # The forked process imports a plugin that fails here once more, and reports the error.
        with contextlib.suppress(Exception):
            importlib.import_module(plugin)
    return serve(int(descriptor), live)


def serve(descriptor: int, live: Callable[[Sequence[str]], int]) -> int:
    """Fork a process for every request, until the other end of the socket is closed.

    Args:
        descriptor: of the socket from which requests come, and to which messages on each process go.
        live: runs in a forked process with the arguments of its request, and returns its exit status.

    Returns:
        The exit status of the server.
    """
    connection: Connection[Any, Any] = Connection(descriptor)
    # Garbage collection in the forked processes does not scan these objects, so their memory stays shared.
    gc.collect()
    gc.freeze()
    wake_read, wake_write = _pipe_of_child_ends()
    # By the number of a forked process, the number of its request.
    request_by_pid: dict[int, int] = {}
    while True:
        ready = wait([connection, wake_read])
        if wake_read in ready:
            # The bytes only wake this process, so they are dropped.
            os.read(wake_read, 65536)
            for pid, status in _reap_children():
                connection.send(("ended", request_by_pid.pop(pid), status))
        if connection not in ready:
            continue
        try:
            request_number, environ, log, arguments = connection.recv()
        except (EOFError, ConnectionError):
            return 0
        try:
            pid = _fork()
        except OSError as error:
            reason = f"{errno.errorcode.get(error.errno or 0)}: {error.strerror}"
            connection.send(("failed", request_number, reason))
            continue
        is_forked_process = pid == 0
        if is_forked_process:
            for inherited in (connection.fileno(), wake_read, wake_write):
                os.close(inherited)
            # The forked process ends inside `_live`.
            _live(live, environ, log, arguments)
        request_by_pid[pid] = request_number
        connection.send(("started", request_number, pid))


def _pipe_of_child_ends() -> tuple[int, int]:
    """Return a pipe into which Python writes a byte when a child ends.

    The descriptors are those to read from and to write to. To wait for the pipe is to wait for the
    end of a child.
    """
    wake_read, wake_write = os.pipe()
    os.set_blocking(wake_write, False)
    signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
    # Python writes the byte only for a signal that has a handler.
    signal.signal(signal.SIGCHLD, lambda *_: None)
    return wake_read, wake_write


def _fork() -> int:
    """Fork this process without Python's warning of threads."""
    with warnings.catch_warnings():
        # The only threads are numpy's, which are idle and can be forked.
        warnings.simplefilter("ignore", DeprecationWarning)
        return os.fork()


def _reap_children() -> Iterator[tuple[int, int]]:
    """Yield the number and the exit status of each child that has ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, wait_status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            yield pid, os.waitstatus_to_exitcode(wait_status)


def _live(
    live: Callable[[Sequence[str]], int],
    environ: Mapping[str, str],
    log: str,
    arguments: Sequence[str],
) -> None:
    """Run `live` in a forked process, and exit with its status.

    The process gets its own session, variables and log. The function never returns.
    """
    status = 1
    try:
        server = os.getppid()
        os.setsid()
        # The server's handling of ended children is not for this process.
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        # Standard output (1) and standard error (2) go into the log.
        descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(descriptor)
        os.environ.clear()
        os.environ.update({**environ, PARENT_VARIABLE: str(server)})
        # `tempfile` keeps the folder that the server's variables named; this makes it read the new ones.
        tempfile.tempdir = None
        if "numpy.random" in sys.modules:
            # Seeded anew; otherwise all forked processes would have the same random numbers. Python seeds its own
            # generator again after a fork; torch's has the same seed in every fresh process too.
            sys.modules["numpy.random"].seed()
        status = live(arguments)
    except BaseException:
        # Prints the traceback into the log.
        sys.excepthook(*sys.exc_info())
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(OSError, ValueError):
                stream.flush()
        os._exit(status)


if __name__ == "__main__":
    # Without torch's clean-up, which pytest would have to wait for.
    os._exit(main(*sys.argv[1:]))
