"""The listener ends with its socket only: silent strangers, too few descriptors and errors of the network pass."""

import contextlib
import errno
import os
import resource
import socket
import subprocess
import sys
import threading

import pytest

from pytest_roofline.core.errors import RanksFailed
from pytest_roofline.processes import system as processes
from pytest_roofline.ranks import listener as listening
from pytest_roofline.ranks.channel import Endpoint, connect
from pytest_roofline.ranks.listener import Listener
from pytest_roofline.ranks.local import Local

HOST = "127.0.0.1"
PATIENCE_S = 60.0
STRANGERS = 1_200
# A process that boots 80 ranks, which another one plays: it prints its endpoint, then how many came, or why not all.
CONTROLLER = """
import resource
import select
import sys

from pytest_roofline.core.errors import RanksFailed
from pytest_roofline.ranks.channel import CONTROLLER_VARIABLE
from pytest_roofline.ranks.driving import Boot

resource.setrlimit(resource.RLIMIT_NOFILE, tuple(map(int, sys.argv[1:])))


class Played:
    name, bind = "local", "127.0.0.1"

    def start(self, size, variables):
        print(bytes.fromhex(variables[CONTROLLER_VARIABLE]).decode(), flush=True)

    def trouble(self):
        return "rank 79 ended" if select.select([sys.stdin], [], [], 0)[0] else ""


boot = Boot(Played(), 80, "cpu", "127.0.0.1", 600.0)
boot._settle_in = lambda store_port: None
try:
    boot.run(0)
    print(len(boot.members), "came")
except RanksFailed as error:
    print(error)
"""


@contextlib.contextmanager
def controller(soft, hard):
    """A process of `CONTROLLER` under limits of open files, and where it listens."""
    command = [sys.executable, "-c", CONTROLLER, str(soft), str(hard)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield process, Endpoint.parse(process.stdout.readline())
        finally:
            process.kill()


def hello(rank):
    """The first message of a rank that another process plays."""
    started = {"pid": os.getpid(), "ticks": None, "stacks": 0, "space": ""}
    return {"kind": "hello", "rank": rank, "size": 80, "host": "here"} | started


@pytest.fixture
def many_files():
    """Room for all strangers in this process."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    processes.raise_file_limit()
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < 2 * STRANGERS:
        pytest.skip("the hard limit of open files is too low")
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.usefixtures("many_files")
def test_a_peer_comes_while_1200_silent_strangers_stay_connected(monkeypatch):
    monkeypatch.setattr(listening, "SHORT_HANDSHAKE_S", 0.01)
    with contextlib.ExitStack() as stack:
        own = stack.enter_context(contextlib.closing(Listener(HOST)))
        threads = threading.active_count()
        for _ in range(STRANGERS):
            stack.enter_context(
                socket.create_connection((HOST, own.endpoint.port), timeout=PATIENCE_S)
            )
        peer = stack.enter_context(contextlib.closing(connect(own.endpoint, PATIENCE_S)))
        peer.send("hello")
        came = stack.enter_context(contextlib.closing(own.accept(PATIENCE_S)))
        assert came.receive(PATIENCE_S) == "hello"
        assert threading.active_count() == threads
        assert own.remark == ""


@pytest.mark.parametrize(
    "code",
    [
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOBUFS,
        errno.ECONNABORTED,
        errno.ENETDOWN,
        errno.EPERM,
    ],
)
def test_an_accept_that_fails_is_tried_again_and_its_reason_remembered(monkeypatch, code):
    class Failing(socket.socket):
        left = 3

        def accept(self):
            if self.left:
                self.left -= 1
                raise OSError(code, os.strerror(code))
            return super().accept()

    server = listening.server
    monkeypatch.setattr(listening, "server", lambda *where: Failing(fileno=server(*where).detach()))
    with contextlib.closing(Listener(HOST)) as own:
        with contextlib.closing(connect(own.endpoint, PATIENCE_S)) as peer:
            peer.send("hello")
            with contextlib.closing(own.accept(PATIENCE_S)) as came:
                assert came.receive(PATIENCE_S) == "hello"
        assert own.remark.startswith(f"; a connection could not be accepted: {os.strerror(code)}")
        assert ("ulimit -n" in own.remark) == (code == errno.EMFILE)


def test_80_ranks_come_under_a_soft_limit_of_64_open_files():
    with controller(64, 1024) as (process, endpoint), contextlib.ExitStack() as stack:
        for rank in range(80):
            peer = stack.enter_context(contextlib.closing(connect(endpoint, PATIENCE_S)))
            peer.send(hello(rank))
        output, _ = process.communicate(timeout=PATIENCE_S)
    assert output == "80 came\n"


def test_a_hard_limit_of_64_open_files_is_named_where_ranks_did_not_come():
    with controller(64, 64) as (process, endpoint), contextlib.ExitStack() as stack:
        # As many as there is room for.
        with contextlib.suppress(ConnectionError):
            for rank in range(80):
                peer = stack.enter_context(contextlib.closing(connect(endpoint, 0.0)))
                peer.send(hello(rank))
        output, _ = process.communicate("over\n", timeout=PATIENCE_S)
    first, *_ = output.splitlines()
    assert first.startswith("rank 79 ended (local, ")
    assert "of 80 did not connect; a connection could not be accepted: Too many open files" in first
    assert "this process may open 64 files (hard limit 64). Raise `ulimit -n`" in first


def test_where_no_thread_or_no_file_can_be_had_the_limit_is_named(monkeypatch):

    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RanksFailed, match=r"cannot listen for ranks: can't start new thread"):
            Listener(HOST)

    def none_left(*_where, **_options):
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(socket, "create_server", none_left)
    with pytest.raises(RanksFailed, match=r"cannot listen on .*: Too many open files: .*ulimit -n"):
        Listener(HOST)
    monkeypatch.setattr(subprocess, "Popen", none_left)
    with pytest.raises(RanksFailed, match=r"rank 0 of 2 could not be started: Too many open files"):
        Local().start(2, {})


@pytest.mark.parametrize(
    ("soft", "hard", "raised"),
    [
        (64, 1024, 1024),
        (64, resource.RLIM_INFINITY, processes.MOST_FILES),
        (2**20, 2**20, None),
        (resource.RLIM_INFINITY, resource.RLIM_INFINITY, None),
    ],
)
def test_the_soft_limit_is_raised_to_the_hard_one_and_never_lowered(
    monkeypatch, soft, hard, raised
):
    calls = []
    monkeypatch.setattr(resource, "getrlimit", lambda _: (soft, hard))
    monkeypatch.setattr(resource, "setrlimit", lambda _, limits: calls.append(limits))
    processes.raise_file_limit()
    assert calls == ([(raised, hard)] if raised is not None else [])
