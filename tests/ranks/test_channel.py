"""The control channel: only who knows the key gets in, messages arrive whole and in order, nothing blocks for ever."""

import contextlib
import os
import re
import resource
import socket
import struct
import threading
import time

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


@pytest.fixture
def raw():
    """A channel, and the bare socket at its other end."""
    with socket.create_server((HOST, 0)) as server:
        bare = socket.create_connection(server.getsockname())
        accepted, _ = server.accept()
    with contextlib.closing(Channel(accepted)) as own, bare:
        yield own, bare


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


def strangers(listener, count=1):
    return [socket.create_connection((HOST, listener.endpoint.port)) for _ in range(count)]


def test_messages_arrive_whole_and_in_order_in_both_directions(pair):
    own, theirs = pair
    for number in range(3):
        own.send({"number": number})
        theirs.send([number, torch.full((2,), number)])

    assert [theirs.receive(PATIENCE_S)["number"] for _ in range(3)] == [0, 1, 2]
    assert [(n, row.tolist()) for n, row in polled(own, 3)] == [(0, [0, 0]), (1, [1, 1]), (2, [2, 2])]
    assert own.addresses == theirs.addresses == (HOST, HOST)


def test_polling_does_not_wait(pair):
    assert pair[0].poll() == []


def test_receiving_gives_up_after_its_time_and_can_be_tried_again(pair):
    own, theirs = pair
    with pytest.raises(TimeoutError, match=r"0\.05 s"):
        own.receive(0.05)
    theirs.send("late")

    assert own.receive(PATIENCE_S) == "late"


@pytest.mark.parametrize("ask", [Channel.poll, lambda channel: channel.receive(0.05)], ids=["poll", "receive"])
def test_part_of_a_message_is_no_message(raw, ask):
    own, bare = raw
    whole = frame({"text": "x" * 1000})
    for cut in (1, 7, 8, 9, 500, len(whole) - 1):
        bare.sendall(whole[:cut])
        with contextlib.suppress(TimeoutError):
            assert ask(own) == []
        bare.sendall(whole[cut:])
        assert own.receive(PATIENCE_S) == {"text": "x" * 1000}


def test_a_message_and_a_half_are_one_message_for_now(raw):
    own, bare = raw
    bare.sendall(frame(1) + frame(2)[:9])
    assert polled(own, 1) == [1]
    bare.sendall(frame(2)[9:])
    assert polled(own, 1) == [2]


def test_what_was_sent_before_the_end_is_still_read(raw):
    own, bare = raw
    bare.sendall(frame(1) + frame(2))
    bare.close()

    assert polled(own, 2) == [1, 2]
    for ask in (own.poll, own.receive):
        with pytest.raises(EOFError):
            ask()


@pytest.mark.parametrize("cut", [0, 3, 8, 20])
@pytest.mark.parametrize("ask", ["poll", "receive"])
def test_an_end_in_the_middle_of_a_message_is_an_end(raw, cut, ask):
    own, bare = raw
    bare.sendall(frame("x" * 100)[:cut])
    bare.close()

    with pytest.raises(EOFError):
        own.receive(PATIENCE_S) if ask == "receive" else polled(own, 1)


def test_a_connection_that_was_reset_has_ended(raw):
    own, bare = raw
    bare.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    bare.close()

    with pytest.raises(EOFError):
        own.receive(PATIENCE_S)


def test_a_frame_that_is_too_large_is_refused_by_its_announcement(raw):
    own, bare = raw
    bare.sendall(struct.pack(">Q", 2**40))

    with pytest.raises(BadInput, match=str(2**40)):
        own.receive(PATIENCE_S)


def test_a_message_that_is_too_large_is_not_sent_and_harms_nothing(pair):
    own, theirs = pair
    with pytest.raises(BadInput, match="expected at most"):
        own.send(bytes(MOST_BYTES + 2**21))
    own.send("small")

    assert theirs.receive(PATIENCE_S) == "small"


def test_a_result_of_the_largest_size_fits_into_a_message(pair):
    own, theirs = pair
    sender = threading.Thread(target=theirs.send, args=({"value": bytes(MOST_BYTES)},))
    sender.start()
    found = own.receive(PATIENCE_S)
    sender.join()

    assert len(found["value"]) == MOST_BYTES


def test_what_several_threads_send_does_not_mix(pair):
    own, theirs = pair
    threads = [threading.Thread(target=theirs.send, args=([number] * 50_000,)) for number in range(8)]
    for thread in threads:
        thread.start()
    found = [own.receive(PATIENCE_S) for _ in threads]

    assert sorted(row[0] for row in found) == list(range(8))
    assert all(len(row) == 50_000 and len(set(row)) == 1 for row in found)


@pytest.fixture
def many_descriptors():
    """Allows this process so many open files that their numbers leave what select() knows, which is up to 1023."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2048), hard))
    yield 1500
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_descriptor_beyond_a_thousand_serves_as_well(raw, many_descriptors):
    own, bare = raw
    own._socket = socket.socket(fileno=os.dup2(own.fileno(), many_descriptors))
    bare.sendall(frame("high"))

    assert own.receive(PATIENCE_S) == "high"
    assert own.poll() == []


def test_sending_to_a_peer_that_is_gone_is_an_error_of_the_system(raw):
    own, bare = raw
    bare.close()

    # The first may still go into the system's own buffers.
    with contextlib.suppress(OSError):
        own.send("x" * 10_000)
    time.sleep(0.05)

    with pytest.raises(OSError):
        own.send("x" * 10_000)


def test_strangers_who_say_nothing_keep_nobody_waiting(listener, key):
    silent = strangers(listener, 20)
    peer = reach((HOST,), listener.endpoint.port, key, PATIENCE_S)
    accepted = listener.accept(PATIENCE_S)
    peer.send("here")

    assert accepted.receive(PATIENCE_S) == "here"
    for end in (*silent, peer, accepted):
        end.close()


def test_strangers_who_say_nothing_are_dropped_after_a_while(listener, monkeypatch):
    monkeypatch.setattr(channels, "HANDSHAKE_S", 0.1)
    (silent,) = strangers(listener)
    silent.settimeout(PATIENCE_S)
    while silent.recv(1000):
        pass

    assert listener.accept(0.0) is None
    assert listener.refused == 1


@pytest.mark.parametrize(
    "says", [b"GET / HTTP/1.1\r\n\r\n" * 10, bytes(64), os.urandom(64)], ids=["http", "zeros", "noise"]
)
def test_strangers_who_talk_of_something_else_are_refused(listener, says):
    (stranger,) = strangers(listener)
    stranger.settimeout(PATIENCE_S)
    stranger.sendall(says)
    with contextlib.suppress(ConnectionResetError):
        while stranger.recv(1000):
            pass

    assert listener.accept(0.1) is None
    assert listener.refused == 1


def test_a_peer_with_another_key_does_not_get_in(listener):
    with pytest.raises(ConnectionError, match=rf"did not answer within 0\.2 s \({HOST}:{listener.endpoint.port}: "):
        reach((HOST,), listener.endpoint.port, new_key(), 0.2)

    assert listener.accept(0.0) is None
    assert listener.refused >= 1


def test_a_controller_without_the_key_is_not_served(key):
    """It replays what a true one says first, and cannot prove anything after."""
    with socket.create_server((HOST, 0)) as server:

        def impostor():
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    connection.sendall(channels._HELLO + bytes(32) + bytes(32))

        threading.Thread(target=impostor, daemon=True).start()
        with pytest.raises(ConnectionError, match="does not know the key"):
            reach((HOST,), server.getsockname()[1], key, 0.2)
        server.shutdown(socket.SHUT_RDWR)


def test_something_else_on_the_port_is_named_as_such(key):
    with socket.create_server((HOST, 0)) as server:

        def web_server():
            with contextlib.suppress(OSError):
                while True:
                    server.accept()[0].sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=web_server, daemon=True).start()
        with pytest.raises(ConnectionError, match="something else than this version of pytest-roofline"):
            reach((HOST,), server.getsockname()[1], key, 0.2)
        server.shutdown(socket.SHUT_RDWR)


def test_many_peers_may_come_at_once(listener, key):
    count = 40
    ends = []

    def come(number):
        end = reach((HOST,), listener.endpoint.port, key, PATIENCE_S)
        end.send(number)
        ends.append(end)

    threads = [threading.Thread(target=come, args=(number,)) for number in range(count)]
    for thread in threads:
        thread.start()
    accepted = [listener.accept(PATIENCE_S) for _ in threads]

    assert sorted(end.receive(PATIENCE_S) for end in accepted) == list(range(count))
    for thread in threads:
        thread.join()
    for end in (*ends, *accepted):
        end.close()


def test_the_first_address_that_answers_is_taken(listener, key):
    # Nobody listens on the second loopback address.
    with contextlib.closing(reach(("127.0.0.2", HOST), listener.endpoint.port, key, PATIENCE_S)) as peer:
        assert peer.addresses[1] == HOST


def test_who_comes_before_the_listener_waits_for_it(key):
    with socket.create_server((HOST, 0)) as reserved:
        port = reserved.getsockname()[1]
    found = []
    early = threading.Thread(target=lambda: found.append(reach((HOST,), port, key, PATIENCE_S)))
    early.start()
    time.sleep(0.1)
    with contextlib.closing(Listener(HOST, port, key)):
        early.join(PATIENCE_S)

    assert len(found) == 1
    found[0].close()


@pytest.mark.parametrize(("addresses", "why"), [([], "no address was given"), ([HOST], f"{HOST}:")])
def test_who_finds_nobody_gives_up_with_the_last_reason(key, addresses, why):
    with socket.create_server((HOST, 0)) as reserved:
        port = reserved.getsockname()[1]

    with pytest.raises(ConnectionError, match=rf"did not answer within 0\.1 s \({why}"):
        reach(addresses, port, key, 0.1)


def test_a_port_that_is_taken_is_refused_by_its_number(listener):
    with pytest.raises(RanksFailed, match=rf"cannot listen on {HOST}:{listener.endpoint.port}: .*in use"):
        Listener(HOST, listener.endpoint.port)


def test_an_address_of_another_machine_is_refused_with_the_option_to_use():
    # 192.0.2.0/24 is reserved for documentation: no machine has it.
    with pytest.raises(RanksFailed, match=r"cannot listen on 192\.0\.2\.1: [^;(]*; .*--roofline-address"):
        Listener("192.0.2.1")


def test_a_mistyped_address_is_one_sentence_behind_the_line_of_the_test(pytester):
    pytester.makepyfile(
        """
        def number(rank):
            return int(rank)

        def test_it(distributed):
            distributed.run(number, world_size=2)
        """
    )
    for address in ("192.0.2.1", "no.such.host.invalid"):
        result = pytester.runpytest_subprocess(f"--roofline-address={address}", "--roofline-device=cpu")
        result.assert_outcomes(failed=1)
        text = result.stdout.str()
        assert f"RanksFailed: cannot listen on {address}: " in text
        assert not {"channel.py", "pool.py", "OSError", "gaierror"} & set(re.findall(r"[\w.]+", text))


def test_nobody_gets_in_after_the_end(listener, key):
    waiting = reach((HOST,), listener.endpoint.port, key, PATIENCE_S)
    time.sleep(0.05)
    listener.close()

    with pytest.raises(EOFError):
        waiting.receive(PATIENCE_S)
    with pytest.raises(ConnectionError):
        reach((HOST,), listener.endpoint.port, key, 0.1)


def test_accepting_gives_up_after_its_time(listener):
    assert listener.accept(0.02) is None


def test_keys_are_never_the_same():
    assert len({new_key() for _ in range(10)}) == 10


def test_after_a_message_was_cut_off_nothing_more_is_sent_however_long_one_would_wait(raw):
    own, _ = raw
    with pytest.raises(TimeoutError, match=r"within 0\.05 s"):
        own.send(b"x" * 2**26, 0.05)
    with pytest.raises(TimeoutError, match="took no message in time before"):
        own.send("more")


@pytest.mark.parametrize(
    "ask",
    [Channel.poll, lambda channel: channel.receive(), lambda channel: channel.send(1)],
    ids=["poll", "receive", "send"],
)
def test_a_channel_that_was_closed_here_says_so(pair, ask):
    own, _ = pair
    own.close()
    with pytest.raises(OSError, match="closed at this end"):
        ask(own)


def has_ipv6():
    with contextlib.suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        return True
    return False


@pytest.mark.parametrize("address", [HOST, "localhost", "", *(["::1"] if has_ipv6() else [])])
def test_an_address_of_either_family_can_be_listened_on_and_is_reached_by_what_the_listener_says(address):
    with contextlib.closing(Listener(address)) as listening:
        assert Endpoint.parse(listening.endpoint.text) == listening.endpoint
        with contextlib.closing(connect(listening.endpoint, PATIENCE_S)) as theirs:
            theirs.send(1)
            with contextlib.closing(listening.accept(PATIENCE_S)) as own:
                assert own.receive(PATIENCE_S) == 1


def test_a_name_with_addresses_of_the_second_family_only_is_listened_on_there(monkeypatch):
    asked = []
    entry = (socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("fd00::1", 0, 0, 0))
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: [entry])
    monkeypatch.setattr(socket, "create_server", lambda *_, family, **__: asked.append(family))
    server("n7")

    assert asked == [socket.AF_INET6]


@pytest.mark.parametrize(
    "text", ["", "[]", "{}", '{"addresses": 3, "port": 1, "key": ""}', '{"addresses": [], "port": "x"}']
)
def test_what_is_no_endpoint_is_refused(text):
    with pytest.raises(ValueError):
        Endpoint.parse(text)
