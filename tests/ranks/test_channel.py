"""The control channel: only who knows the key gets in, messages arrive whole and in order, nothing blocks for ever."""

import contextlib
import socket
import struct
import threading
import time
from multiprocessing.connection import wait

import pytest
import torch

from pytest_roofline.core.errors import BadInput, RanksFailed
from pytest_roofline.ranks import channel as channels
from pytest_roofline.ranks import listener as listening
from pytest_roofline.ranks.channel import STALL_S, Channel, Endpoint, connect
from pytest_roofline.ranks.listener import Listener, server
from pytest_roofline.ranks.tasks import MOST_BYTES

HOST = "127.0.0.1"
# Far beyond what anything here takes, for a machine that pauses at will.
PATIENCE_S = 20.0


@pytest.fixture
def listener():
    with contextlib.closing(Listener(HOST)) as listening:
        yield listening


@pytest.fixture
def pair(listener):
    """Both ends of a connection: the controller's and a rank's."""
    theirs = connect(listener.endpoint, PATIENCE_S)
    with contextlib.closing(theirs), contextlib.closing(listener.accept(PATIENCE_S)) as own:
        yield own, theirs


@contextlib.contextmanager
def bare_pair(stall_s=0):
    """A channel, and the bare socket at its other end."""
    with socket.create_server((HOST, 0)) as listening:
        bare = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
    with contextlib.closing(Channel(accepted, stall_s)) as own, bare:
        yield own, bare


def stranger(listener, says=b""):
    """Somebody who connects and says something else, until the other side hangs up."""
    with socket.create_connection((HOST, listener.endpoint.port), timeout=PATIENCE_S) as bare:
        bare.sendall(says)
        with contextlib.suppress(ConnectionResetError):
            while bare.recv(1000):
                pass


def polled(channel, count):
    """So many messages, of which those that are there come at once."""
    found = []
    while len(found) < count:
        assert wait([channel], PATIENCE_S)
        found += channel.poll()
    return found


def test_messages_arrive_whole_and_in_order_in_both_directions(pair):
    own, theirs = pair
    assert own.poll() == []
    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        own.receive(0.05)
    for number in range(3):
        own.send({"number": number})
        theirs.send([number, torch.full((2,), number)])
    assert [theirs.receive(PATIENCE_S)["number"] for _ in range(3)] == [0, 1, 2]
    found = polled(own, 3)
    assert [(n, row.tolist()) for n, row in found] == [(0, [0, 0]), (1, [1, 1]), (2, [2, 2])]
    assert own.addresses == theirs.addresses == (HOST, HOST)
    # What several threads send does not mix.
    for number in range(8):
        threading.Thread(target=theirs.send, args=([number] * 50_000,)).start()
    found = [own.receive(PATIENCE_S) for _ in range(8)]
    assert sorted(row[0] for row in found) == list(range(8))
    assert all(len(row) == 50_000 and len(set(row)) == 1 for row in found)
    # A result of the largest size fits into a message, and a larger one harms nothing.
    with pytest.raises(BadInput, match="expected at most"):
        theirs.send(bytes(MOST_BYTES + 2**21))
    threading.Thread(target=theirs.send, args=({"value": bytes(MOST_BYTES)},)).start()
    assert len(own.receive(PATIENCE_S)["value"]) == MOST_BYTES


def test_what_was_sent_before_the_end_is_still_read_and_the_end_is_one_wherever_it_comes(pair):
    own, theirs = pair
    theirs.send(1)
    theirs.send(2)
    theirs.close()
    assert polled(own, 2) == [1, 2]
    assert wait([own], PATIENCE_S)
    with pytest.raises(EOFError):
        own.poll()
    # In the middle of a message, of its length, with a reset, and of what is no message of ours.
    for sent, reset in (
        (b"", False),
        (b"\0\0", False),
        (b"\0\0\0\x64abc", False),
        (b"", True),
        (b"\x7f" * 8, False),
    ):
        for ask in (Channel.poll, lambda channel: channel.receive(PATIENCE_S)):
            with bare_pair() as (own, bare):
                bare.sendall(sent)
                if reset:
                    bare.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                bare.close()
                assert wait([own], PATIENCE_S)
                with pytest.raises(EOFError):
                    ask(own)


def test_a_peer_that_stops_in_the_middle_of_a_message_does_not_stop_this_one():
    with bare_pair(stall_s=1) as (own, bare):
        bare.sendall(b"\0\0\0\x64abc")
        with pytest.raises(EOFError):
            own.receive(PATIENCE_S)
    with bare_pair(stall_s=1) as (own, _):
        # The message was cut off: the peer would not know where the next one begins.
        for told in ("the peer accepted no message in time$", "the connection is unusable"):
            with pytest.raises(TimeoutError, match=told):
                own.send(b"x" * 2**26)
    assert 0 < STALL_S <= 10


def test_a_closed_channel_says_so_and_wakes_whoever_waits_for_it(pair):
    own, theirs = pair

    def wait_for_the_end():
        with pytest.raises(EOFError):
            theirs.receive(PATIENCE_S)

    woken = threading.Thread(target=wait_for_the_end)
    woken.start()
    time.sleep(0.05)
    own.close()
    own.close()
    woken.join(PATIENCE_S)
    assert not woken.is_alive()
    for ask in (lambda: own.send(1), own.receive, own.poll):
        with pytest.raises(OSError):
            ask()


def test_strangers_are_refused_and_keep_nobody_waiting(listener, monkeypatch):
    port = listener.endpoint.port
    with monkeypatch.context() as patch:
        patch.setattr(listening, "HANDSHAKE_S", 0.2)
        stranger(listener, b"GET / HTTP/1.1\r\n\r\n" * 10)
        stranger(listener)
        assert listener.accept(0.05) is None
    monkeypatch.setattr(channels, "HANDSHAKE_S", PATIENCE_S)
    # By whichever of the addresses answers.
    theirs = connect(
        Endpoint(("127.0.0.2", "nowhere.invalid", HOST), port, listener.endpoint.key), PATIENCE_S
    )
    theirs.send("hello")
    assert listener.accept(PATIENCE_S).receive(PATIENCE_S) == "hello"
    with pytest.raises(ConnectionError, match=r"127\.0\.0\.1:\d+: (the connection ended|.*reset)"):
        connect(Endpoint((HOST,), port, b"another"), 0.0)
    # Nor does a rank believe a listener that does not know the key.
    with socket.create_server((HOST, 0)) as impostor:
        endpoint = Endpoint((HOST,), impostor.getsockname()[1], b"key")
        for says, told in (
            (b"HTTP/1.1 400 Bad Request", "another program, or another version"),
            (channels._HELLO + bytes(64), "does not know the key"),
        ):

            def answer(says=says):
                connection, _ = impostor.accept()
                # What was said is lost where this side hangs up first.
                with connection, contextlib.suppress(OSError):
                    connection.sendall(says)
                    while connection.recv(1000):
                        pass

            thread = threading.Thread(target=answer)
            thread.start()
            with pytest.raises(ConnectionError, match=told):
                connect(endpoint, 0.0)
            thread.join(PATIENCE_S)
    for text in ("", "{}", "[1]", '{"addresses": 3, "port": 1, "key": "00"}'):
        with pytest.raises(ValueError):
            Endpoint.parse(text)
    assert Endpoint.parse(listener.endpoint.text) == listener.endpoint


def test_where_nobody_can_listen_is_said_with_the_remedy(monkeypatch):
    with socket.create_server((HOST, 0)) as busy:
        for address, port, told in (
            (
                HOST,
                busy.getsockname()[1],
                r"cannot listen on 127\.0\.0\.1:\d+: Address already in use; ranks connect",
            ),
            ("203.0.113.9", 0, r"cannot listen on 203\.0\.113\.9: .*--roofline-address"),
            ("nowhere.invalid", 0, r"cannot listen on nowhere\.invalid: "),
        ):
            with pytest.raises(RanksFailed, match=told):
                server(address, port)
    # Not every machine has an address of version 6.
    monkeypatch.setattr(
        socket, "create_server", lambda where, *, family, backlog: (where[0], family)
    )
    assert [server(address) for address in ("::1", "")] == [
        ("::1", socket.AF_INET6),
        ("", socket.AF_INET),
    ]
