"""The control channel: only who knows the key gets in, messages arrive whole and in order, nothing blocks for ever."""

import contextlib
import os
import resource
import socket
import struct
import threading
import time
from itertools import product

import pytest
import torch

from pytest_roofline.core.errors import BadInput, RanksFailed
from pytest_roofline.ranks import channel as channels
from pytest_roofline.ranks.channel import Channel, Endpoint, connect, new_key
from pytest_roofline.ranks.listener import Listener, server
from pytest_roofline.ranks.wire import MOST_BYTES, encode

HOST = "127.0.0.1"
# Far beyond what anything here takes, for a machine that pauses at will.
PATIENCE_S = 20.0


@pytest.fixture
def key():
    return new_key()


@pytest.fixture
def listener(key):
    with contextlib.closing(Listener(HOST, key=key)) as listening:
        yield listening


@pytest.fixture
def pair(listener, key):
    """Both ends of a connection: the controller's and a rank's."""
    theirs = reach((HOST,), listener.endpoint.port, key, PATIENCE_S)
    with contextlib.closing(theirs), contextlib.closing(listener.accept(PATIENCE_S)) as own:
        yield own, theirs


@contextlib.contextmanager
def bare_pair():
    """A channel, and the bare socket at its other end."""
    with socket.create_server((HOST, 0)) as server:
        bare = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    with contextlib.closing(Channel(accepted)) as own, bare:
        yield own, bare


@pytest.fixture
def raw():
    with bare_pair() as ends:
        yield ends


def reach(addresses, port, key, timeout):
    return connect(Endpoint(tuple(addresses), port, key), timeout)


def frame(message):
    data = encode(message, "a message")
    return struct.pack(">Q", len(data)) + data


def polled(channel, count):
    """So many messages, by polling."""
    found, until_s = [], time.monotonic() + PATIENCE_S
    while len(found) < count and time.monotonic() < until_s:
        found += channel.poll()
        time.sleep(0.001)
    return found


def stranger(listener, says=b""):
    """Somebody who connects and says something else, until the other side hangs up; what it said."""
    with socket.create_connection((HOST, listener.endpoint.port), timeout=PATIENCE_S) as bare:
        bare.sendall(says)
        with contextlib.suppress(ConnectionResetError):
            while bare.recv(1000):
                pass


def in_threads(count, work):
    threads = [threading.Thread(target=work, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    return threads


def test_messages_arrive_whole_and_in_order_in_both_directions(pair):
    own, theirs = pair
    assert own.poll() == []
    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        own.receive(0.05)
    for number in range(3):
        own.send({"number": number})
        theirs.send([number, torch.full((2,), number)])
    assert [theirs.receive(PATIENCE_S)["number"] for _ in range(3)] == [0, 1, 2]
    assert [(n, row.tolist()) for n, row in polled(own, 3)] == [(0, [0, 0]), (1, [1, 1]), (2, [2, 2])]
    assert own.addresses == theirs.addresses == (HOST, HOST)
    # What several threads send does not mix.
    in_threads(8, lambda number: theirs.send([number] * 50_000))
    found = [own.receive(PATIENCE_S) for _ in range(8)]
    assert sorted(row[0] for row in found) == list(range(8))
    assert all(len(row) == 50_000 and len(set(row)) == 1 for row in found)


def test_a_result_of_the_largest_size_fits_into_a_message_and_a_larger_one_harms_nothing(pair, raw):
    own, theirs = pair
    with pytest.raises(BadInput, match="expected at most"):
        theirs.send(bytes(MOST_BYTES + 2**21))
    (sender,) = in_threads(1, lambda _: theirs.send({"value": bytes(MOST_BYTES)}))
    assert len(own.receive(PATIENCE_S)["value"]) == MOST_BYTES
    sender.join()
    own, bare = raw
    bare.sendall(struct.pack(">Q", 2**40))
    with pytest.raises(BadInput, match=str(2**40)):
        own.receive(PATIENCE_S)


def test_part_of_a_message_is_no_message(raw):
    own, bare = raw
    whole = frame({"text": "x" * 1000})
    for ask, cut in product((Channel.poll, lambda channel: channel.receive(0.02)), (1, 7, 8, 9, 500, len(whole) - 1)):
        bare.sendall(whole[:cut])
        with contextlib.suppress(TimeoutError):
            assert ask(own) == []
        bare.sendall(whole[cut:])
        assert own.receive(PATIENCE_S) == {"text": "x" * 1000}
    bare.sendall(frame(1) + frame(2)[:9])
    assert polled(own, 1) == [1]
    bare.sendall(frame(2)[9:])
    assert polled(own, 1) == [2]


def test_what_was_sent_before_the_end_is_still_read_and_the_end_is_one_wherever_it_comes():
    for sent, messages, reset in (
        (frame(1) + frame(2), [1, 2], False), (b"", [], False), (frame("x" * 100)[:3], [], False),
        (frame("x" * 100)[:8], [], False), (frame("x" * 100)[:20], [], False), (b"", [], True),
    ):  # fmt: skip
        for ask in (Channel.poll, lambda channel: channel.receive(PATIENCE_S)):
            with bare_pair() as (own, bare):
                bare.sendall(sent)
                if reset:
                    bare.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                bare.close()
                assert polled(own, len(messages)) == messages
                with pytest.raises(EOFError):
                    polled(own, 1) if ask is Channel.poll else ask(own)


def test_a_descriptor_beyond_a_thousand_serves_as_well(raw):
    """Its number is beyond what select() knows, which is up to 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    own, bare = raw
    own._socket = socket.socket(fileno=os.dup2(own.fileno(), 1500))
    bare.sendall(frame("high"))
    assert own.receive(PATIENCE_S) == "high"
    assert own.poll() == []
    own.close()
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_what_cannot_be_sent_is_an_error_of_the_system_and_a_closed_channel_says_so(pair):
    with bare_pair() as (own, bare):
        bare.close()
        # The first may still go into the system's own buffers.
        with contextlib.suppress(OSError):
            own.send("x" * 10_000)
        time.sleep(0.05)
        with pytest.raises(OSError):
            own.send("x" * 10_000)
    with bare_pair() as (own, bare):
        with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
            own.send(b"x" * 2**26, 0.05)
        # A message was cut off: the peer would not know where the next one begins.
        with pytest.raises(TimeoutError, match="took no message in time before"):
            own.send("more")
    own, _ = pair
    own.close()
    for ask in (Channel.poll, Channel.receive, lambda channel: channel.send(1)):
        with pytest.raises(OSError, match="closed at this end"):
            ask(own)


def test_strangers_are_refused_and_keep_nobody_waiting(listener, key, monkeypatch):
    silent = [socket.create_connection((HOST, listener.endpoint.port)) for _ in range(20)]
    peer = reach((HOST,), listener.endpoint.port, key, PATIENCE_S)
    with contextlib.closing(peer), contextlib.closing(listener.accept(PATIENCE_S)) as accepted:
        peer.send("here")
        assert accepted.receive(PATIENCE_S) == "here"
    monkeypatch.setattr(channels, "HANDSHAKE_S", 0.1)
    for count, says in enumerate((b"", b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(64), os.urandom(64)), start=1):
        stranger(listener, says)
        assert (listener.accept(0.02), listener.refused) == (None, count)
    with pytest.raises(ConnectionError, match=rf"did not answer within 0\.2 s \({HOST}:{listener.endpoint.port}: "):
        reach((HOST,), listener.endpoint.port, new_key(), 0.2)
    assert listener.accept(0.0) is None
    assert listener.refused > count
    for end in silent:
        end.close()
    assert len({new_key() for _ in range(10)}) == 10


def test_a_controller_without_the_key_is_not_served_and_something_else_on_the_port_is_named(key):
    """The first replays what a true one says at the beginning, and cannot prove anything after."""
    for says, told in (
        (channels._HELLO + bytes(64), "does not know the key"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "something else than this version of pytest-roofline"),
    ):
        with socket.create_server((HOST, 0)) as impostor:

            def answer(_, impostor=impostor, says=says):
                with contextlib.suppress(OSError):
                    while True:
                        impostor.accept()[0].sendall(says)

            in_threads(1, answer)
            with pytest.raises(ConnectionError, match=told):
                reach((HOST,), impostor.getsockname()[1], key, 0.2)
            impostor.shutdown(socket.SHUT_RDWR)


def test_a_peer_tries_every_address_until_its_time_is_over(key):
    with socket.create_server((HOST, 0)) as reserved:
        port = reserved.getsockname()[1]
    for addresses, why in (([], "no address was given"), ([HOST], f"{HOST}:")):
        with pytest.raises(ConnectionError, match=rf"did not answer within 0\.1 s \({why}"):
            reach(addresses, port, key, 0.1)
    # Who comes before the listener waits for it; nobody listens on the second loopback address.
    found = []
    (early,) = in_threads(1, lambda _: found.append(reach(("127.0.0.2", HOST), port, key, PATIENCE_S)))
    time.sleep(0.1)
    with contextlib.closing(Listener(HOST, port, key)):
        early.join(PATIENCE_S)
    assert found[0].addresses[1] == HOST
    found[0].close()


def test_where_nobody_can_listen_is_told_with_the_option_to_use(listener):
    with pytest.raises(RanksFailed, match=rf"cannot listen on {HOST}:{listener.endpoint.port}: .*in use"):
        Listener(HOST, listener.endpoint.port)
    # 192.0.2.0/24 is reserved for documentation: no machine has it.
    for address in ("192.0.2.1", "no.such.host.invalid"):
        with pytest.raises(RanksFailed, match=rf"cannot listen on {address}: [^;(]*; .*--roofline-address"):
            Listener(address)


def test_nobody_gets_in_after_the_end(listener, key):
    waiting = reach((HOST,), listener.endpoint.port, key, PATIENCE_S)
    time.sleep(0.05)
    listener.close()
    with pytest.raises(EOFError):
        waiting.receive(PATIENCE_S)
    with pytest.raises(ConnectionError):
        reach((HOST,), listener.endpoint.port, key, 0.1)


def has_ipv6():
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


def test_an_address_of_either_family_can_be_listened_on_and_is_reached_by_what_the_listener_says(monkeypatch):
    for address in (HOST, "localhost", "", *(["::1"] if has_ipv6() else [])):
        with contextlib.closing(Listener(address)) as listening:
            assert Endpoint.parse(listening.endpoint.text) == listening.endpoint
            with contextlib.closing(connect(listening.endpoint, PATIENCE_S)) as theirs:
                theirs.send(1)
                with contextlib.closing(listening.accept(PATIENCE_S)) as own:
                    assert own.receive(PATIENCE_S) == 1
    for text in ("", "[]", "{}", '{"addresses": 3, "port": 1, "key": ""}', '{"addresses": [], "port": "x"}'):
        with pytest.raises(ValueError):
            Endpoint.parse(text)
    # A name that has addresses of the second family only is listened on there.
    asked = []
    entry = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::1", 0, 0, 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [entry])
    monkeypatch.setattr(socket, "create_server", lambda *_, family, **__: asked.append(family))
    server("n7")
    assert asked == [socket.AF_INET6]
