"""Python processes that have torch already: importing it takes seconds, and forking from one that has it does not.

For tests that start many processes and are not about how a process starts. Run as a program, this file is the
interpreter that others are forked from. One that was forked leads a session of its own, has the arguments, folder,
environment and files that were asked for, and nothing of pytest's plugins in it yet; what torch reads of its
environment when it is imported is the tests' own.
"""

import atexit
import contextlib
import functools
import gc
import json
import os
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from multiprocessing.connection import wait
from pathlib import Path

BOOT_S = 120.0
# The variable that tells the workers of xdist where the server of all of them listens.
SHARED = "TESTS_WARM_SERVER"
_servers = []


class Process:
    """A process of `python ARGUMENTS`, to be used like a `subprocess.Popen`.

    Args:
        arguments: behind `python`: `-c CODE …`, `-m MODULE …` or a script.
        cwd: its folder.
        env: the whole of its environment.
        stdout: the file that it appends to.
        stderr: the same; the same file where nothing else is said.
        limit_bytes: of data that it may have.
    """

    def __init__(self, arguments, *, cwd, env, stdout, stderr=None, limit_bytes=None):
        self.args = list(map(str, arguments))
        self.returncode = None
        self._connection = socket.socket(socket.AF_UNIX)
        self._connection.connect(_address())
        self._lines = self._connection.makefile("r")
        asked = {"arguments": self.args, "cwd": str(cwd), "env": dict(env), "stdout": str(stdout)}
        more = {"stderr": str(stderr or stdout), "limit_bytes": limit_bytes}
        self._connection.sendall(json.dumps(asked | more).encode() + b"\n")
        self.pid = int(self._lines.readline())

    def wait(self, timeout=None):
        """Its exit status; minus the signal that ended it."""
        if self.returncode is None:
            if not wait([self._connection], timeout):
                raise subprocess.TimeoutExpired(self.args, timeout)
            self.returncode = int(self._lines.readline())
            self._connection.close()
        return self.returncode

    def poll(self):
        """The same, or None while it runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def send_signal(self, number):
        """Nothing where it has ended."""
        if self.poll() is None:
            # Until its status was read here its number may be free, though hardly taken again so soon.
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def terminate(self):
        self.send_signal(signal.SIGTERM)

    def kill(self):
        self.send_signal(signal.SIGKILL)


def run(arguments, *, cwd=None, env=None, timeout=240.0, limit_bytes=None):
    """`python ARGUMENTS` to its end, as `subprocess.run` gives it with its output as text."""
    with tempfile.TemporaryDirectory(prefix="warm-") as folder:
        said = [Path(folder) / name for name in ("stdout", "stderr")]
        process = Process(
            arguments,
            cwd=cwd or Path.cwd(),
            env=os.environ if env is None else env,
            stdout=said[0],
            stderr=said[1],
            limit_bytes=limit_bytes,
        )
        try:
            status = process.wait(timeout)
        except BaseException:
            with contextlib.suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise
        texts = [path.read_text(errors="replace") for path in said]
    return subprocess.CompletedProcess(process.args, status, *texts)


def share():
    """Start the server of this process and of all that it starts."""
    os.environ[SHARED] = _address()


def _address():
    """Where the server listens: that of all workers, or this process's own, started when the first needs it."""
    if SHARED in os.environ:
        return os.environ[SHARED]
    if not _servers:
        # A socket's path may not be long, as that of TMPDIR may be.
        path = Path(tempfile.mkdtemp(prefix="warm-", dir="/tmp")) / "socket"
        # It ends when its standard input does, which is when this process ends, however that is.
        server = subprocess.Popen(
            [sys.executable, __file__, str(path)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        _servers.append((server, str(path)))
        atexit.register(_stop)
        assert wait([server.stdout], BOOT_S)
        assert server.stdout.readline() == "ready\n"
    return _servers[0][1]


def _stop():
    for server, _ in _servers:
        server.stdin.close()
        server.wait(BOOT_S)
        server.stdout.close()
    _servers.clear()


# The server.


def serve(path):
    """Fork a process for each that asks, until the tests end. Returns in those processes, with what was asked for.

    What takes long is imported for the first.
    """
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(path)
        listener.listen()
        print("ready", flush=True)
        while True:
            ready = wait([listener, sys.stdin], 1.0)
            with contextlib.suppress(ChildProcessError):
                while os.waitpid(-1, os.WNOHANG)[0]:
                    pass
            if sys.stdin in ready:
                shutil.rmtree(Path(path).parent, ignore_errors=True)
                os._exit(0)
            if listener not in ready:
                continue
            connection, _ = listener.accept()
            prepare()
            if os.fork():
                connection.close()
                continue
            listener.close()
            return attend(connection)


def attend(connection):
    """Fork the process that was asked for, tell its number, and its status when it ends; returns in that process."""
    asked = json.loads(connection.makefile("r").readline())
    child = os.fork()
    if not child:
        connection.close()
        return asked
    # Woken by its end, since looking for it now and then would disturb what it measures.
    woken, wakes = os.pipe()
    os.set_blocking(wakes, False)
    signal.set_wakeup_fd(wakes)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    connection.sendall(b"%d\n" % child)
    listens = [woken, connection]
    while not (ended := os.waitpid(child, os.WNOHANG))[0]:
        ready = wait(listens)
        if woken in ready:
            os.read(woken, 1)
        if connection in ready:
            # Whoever asked is gone.
            listens.remove(connection)
            with contextlib.suppress(OSError):
                os.killpg(child, signal.SIGKILL)
    with contextlib.suppress(OSError):
        connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(ended[1]))
    os._exit(0)


def become(asked):
    """Be the process that was asked for: all but its program."""
    os.setsid()
    appended = os.O_WRONLY | os.O_CREAT | os.O_APPEND
    files = ((os.devnull, os.O_RDONLY), (asked["stdout"], appended), (asked["stderr"], appended))
    for number, (path, flags) in enumerate(files):
        file = os.open(path, flags, 0o644)
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(asked["env"])
    at_once = bool(asked["env"].get("PYTHONUNBUFFERED"))
    sys.stdin = sys.__stdin__ = open(0, closefd=False)  # noqa: SIM115 - as long as the process lives
    sys.stdout = sys.__stdout__ = open(1, "w", closefd=False)  # noqa: SIM115
    sys.stdout.reconfigure(write_through=at_once)
    sys.stderr = sys.__stderr__ = open(  # noqa: SIM115
        2, "w", errors="backslashreplace", buffering=1, closefd=False
    )
    os.chdir(asked["cwd"])
    if asked["limit_bytes"] is not None:
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (asked["limit_bytes"],) * 2)
    if "OMP_NUM_THREADS" in os.environ:
        import torch

        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))


def execute(how, *arguments):
    """Run `-c CODE …`, `-m MODULE …` or a script, as Python does."""
    if how == "-c":
        sys.argv, sys.path[0] = ["-c", *arguments[1:]], ""
        exec(
            compile(arguments[0], "<string>", "exec"),
            {"__name__": "__main__", "__builtins__": __builtins__},
        )
    elif how == "-m":
        sys.argv, sys.path[0] = list(arguments), str(Path.cwd())
        runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)
    else:
        sys.argv, sys.path[0] = [how, *arguments], str(Path(how).parent)
        runpy.run_path(how, run_name="__main__")


@functools.cache
def prepare():
    """Import what takes long; nothing that is a plugin of pytest, since pytest wants to import those itself."""
    import pytest  # noqa: F401
    import scipy.optimize
    import scipy.special
    import scipy.stats  # noqa: F401
    import torch.distributed  # noqa: F401

    # Collections of garbage in the processes neither look at all this nor copy it.
    gc.collect()
    gc.freeze()


if __name__ == "__main__":
    asked_for = serve(sys.argv[1])
    become(asked_for)
    execute(*asked_for["arguments"])
