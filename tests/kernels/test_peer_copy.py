"""Copies between GPUs, on the CPU and on streams with scripted clocks; messages between two processes."""

import itertools
import threading
from functools import partial

import pytest
import torch

from roofline_kernels import memcpy, messages, peer_copy, shared_copy
from roofline_kernels.messages import Message
from roofline_kernels.peer_copy import (
    AtOnce,
    PeerBuffers,
    all_to_one,
    both_ways,
    on_gpus,
    one_to_all,
    ordered_pairs,
)

CPU = torch.device("cpu")
SIZES = [4096, 65_537]


def test_every_ordered_pair_is_there_once_and_seven_links_carry_seven_times_the_payload_of_one():
    for devices in [2, 3, 8]:
        assert sorted(ordered_pairs(devices)) == sorted(itertools.permutations(range(devices), 2))
    assert peer_copy.work_at_once(100, 7) == {"payload_bytes": 700, "wire_bytes": 100}


def without_the_last(*buffers):
    """Copies all but the last byte of the last copy."""
    for source, target in zip(buffers[::2], buffers[1::2], strict=True):
        end = -1 if target is buffers[-1] else None
        target[:end].copy_(source[:end])


def turned_round(*buffers):
    """Copies the first source to the last target and so on."""
    for source, target in zip(buffers[::2], reversed(buffers[1::2]), strict=True):
        target.copy_(source)


MUTANTS = [
    lambda *buffers: None,
    without_the_last,
    lambda *buffers: buffers[1].copy_(buffers[0]),
    turned_round,
]


def test_every_copy_arrives_and_every_mutant_is_caught():
    for size_bytes in SIZES:
        for count in [1, 3]:
            ways = [(CPU, CPU)] * count
            buffers = PeerBuffers(size_bytes, ways).make()
            AtOnce(ways)(*buffers)
            assert (len(buffers), peer_copy.same(*buffers)) == (2 * count, True), (
                count,
                size_bytes,
            )
        for mutant in MUTANTS:
            buffers = PeerBuffers(size_bytes, [(CPU, CPU)] * 2).make()
            mutant(*buffers)
            assert not peer_copy.same(*buffers), (mutant, size_bytes)


def test_among_all_sets_that_were_timed_the_first_with_a_wrong_copy_is_named():
    for count, size_bytes in itertools.product([1, 3], SIZES):
        ways = [(CPU, CPU)] * count
        made = PeerBuffers(size_bytes, ways)
        sets = [made.make() for _ in range(40)]
        for buffers in sets:
            AtOnce(ways)(*buffers)
        assert peer_copy.same.first_wrong(sets) is None, (count, size_bytes)
        # In the last copy of one set, and in the first of a later one.
        sets[17][-1][-1] ^= 1
        sets[23][1][0] ^= 1
        assert peer_copy.same.first_wrong(sets) == 17, (count, size_bytes)
        peer_copy.same.spoil(sets)
        pairs = [pair for one in sets for pair in zip(one[::2], one[1::2], strict=True)]
        assert not any((source == target).any() for source, target in pairs)


class Stream:
    """A stream whose work is a time: when it will be done with all that it was given."""

    def __init__(self, device):
        self.device, self.done_s = device, 0.0

    def wait_event(self, event):
        self.done_s = max(self.done_s, event.at_s)


class Event:
    """When a stream was done with what it had been given."""

    at_s = 0.0

    def __init__(self, enable_timing=False):
        self.timed = enable_timing

    def record(self, stream):
        self.at_s = stream.done_s

    def synchronize(self):
        pass

    def elapsed_time(self, end):
        assert self.timed, "this event takes no time"
        assert end.timed, "that event takes no time"
        return (end.at_s - self.at_s) * 1e3


class Gpus:
    """As much of torch.cuda as copies between GPUs take, in which a copy takes a second on its two streams."""

    def __init__(self, monkeypatch):
        self.current, self.begun_s = {}, []
        for name, value in {
            "Stream": Stream,
            "Event": Event,
            "current_stream": self.stream_of,
        }.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch.cuda, "stream", partial(On, self))
        monkeypatch.setattr(memcpy, "copy", self.copy)

    def stream_of(self, device):
        return self.current.setdefault(device, Stream(device))

    def copy(self, source, target):
        """As PyTorch does: on the source's stream, when both streams are ready, and both wait for it."""
        streams = [self.stream_of(device) for device in (source, target) if device.type == "cuda"]
        self.begun_s.append(max(stream.done_s for stream in streams))
        for stream in streams:
            # To the host it takes half as long.
            stream.done_s = self.begun_s[-1] + (1.0 if target.type == "cuda" else 0.5)


class On:
    """A stream that is current on its GPU for a while."""

    def __init__(self, gpus, stream):
        self.gpus, self.stream = gpus, stream

    def __enter__(self):
        self.before = self.gpus.stream_of(self.stream.device)
        self.gpus.current[self.stream.device] = self.stream

    def __exit__(self, *_):
        self.gpus.current[self.stream.device] = self.before


def test_copies_run_at_once_and_a_call_begins_when_all_that_was_submitted_has_ended_everywhere(
    monkeypatch,
):
    for fan in (both_ways(0, 1), one_to_all(0, 8), all_to_one(3, 8)):
        gpus, ways = Gpus(monkeypatch), on_gpus(fan)
        # In place of tensors the devices that they would be on.
        buffers = [device for way in ways for device in way]
        copy = AtOnce(ways)
        copy(*buffers)
        assert {gpus.stream_of(device).done_s for device in buffers} == {1.0}
        copy(*buffers)
        assert gpus.begun_s == [0.0] * len(ways) + [1.0] * len(ways)
    for busy in [0, 1]:
        gpus, ways = Gpus(monkeypatch), on_gpus(both_ways(0, 1))
        gpus.stream_of(torch.device("cuda", busy)).done_s = 5.0
        AtOnce(ways)(*(device for way in ways for device in way))
        assert set(gpus.begun_s) == {5.0}
    # What the streams of their own are for: torch's copies on current streams would go one after the other.
    gpus = Gpus(monkeypatch)
    for source, target in on_gpus(both_ways(0, 1)):
        memcpy.copy(source, target)
    assert gpus.begun_s == [0.0, 1.0]


def test_a_gpu_and_the_host_exchange_at_once_and_each_way_has_a_time_of_its_own(monkeypatch):
    gpus, gpu = Gpus(monkeypatch), torch.device("cuda", 0)
    ways = [(CPU, gpu), (gpu, CPU)]
    buffers = [device for way in ways for device in way]
    copy = AtOnce(ways, timed=True)
    copy(*buffers)
    copy(*buffers)
    # The next begins when both have ended.
    assert ([0.0, 0.0, 1.0, 1.0], 2.0) == (gpus.begun_s, gpus.stream_of(gpu).done_s)
    assert [1.0, 0.5] == copy.seconds_each(*buffers, calls=2)
    # A kernel copies in PyTorch's place, on streams like those.
    called = []
    AtOnce(on_gpus([(0, 1)]), lambda *pair: called.append((*pair, gpus.stream_of(gpu).done_s)))(
        gpu, torch.device("cuda", 1)
    )
    assert [(gpu, torch.device("cuda", 1), 5.0)] == called


# Messages


def ranks_of(size_bytes, number=0, returns=False):
    return [Message(rank, size_bytes, CPU, number, returns=returns) for rank in (0, 1)]


def carry(first, second):
    """A message on its way, within one process."""
    second.incoming.copy_(first.outgoing)
    if first.incoming is not None:
        first.incoming.copy_(second.outgoing)


def test_a_message_arrives_on_every_pass():
    for returns, size_bytes in itertools.product([False, True], SIZES):
        both, seen = ranks_of(size_bytes, returns=returns), []
        for _ in range(3):
            seen.append(both[1].arrived())
            carry(*both)
            seen.append(all(message.arrived() for message in both))
            for message in both:
                message.fill()
        assert seen == [False, True] * 3, (returns, size_bytes)
        # With the shared memory between them no more than announced.
        used = sum(len(message._all) * size_bytes for message in both)
        assert used + size_bytes <= messages.memory_needed(size_bytes), returns


def test_what_does_not_come_back_and_the_data_of_another_message_or_pass_are_seen():
    first, second = ranks_of(100, returns=True)
    second.incoming.copy_(first.outgoing)
    assert (second.arrived(), first.arrived()) == (True, False)
    for size_bytes in SIZES:
        first, second = ranks_of(size_bytes, number=1)
        second.incoming.copy_(ranks_of(size_bytes, number=2)[0].outgoing)
        assert not second.arrived(), size_bytes
        stale = first.outgoing.clone()
        first.fill(), second.fill()
        second.incoming.copy_(stale)
        assert not second.arrived(), size_bytes


SHARED = pytest.mark.skipif(
    not shared_copy.supported(), reason="needs memfd_create, which is Linux's"
)


def with_shared_memory(size_bytes, run, patience_s=30.0):
    """The results of `run(rank, memory)` on two threads that share memory as ranks do."""
    told, ready, results = [], threading.Event(), {}

    def tell(rank):
        def broadcast(name):
            if rank == 0:
                told.append(name.clone())
                ready.set()
            else:
                assert ready.wait(patience_s)
                name.copy_(told[0])

        return broadcast

    def on(rank):
        memory = shared_copy.SharedMemory.between(rank, size_bytes, tell(rank))
        try:
            results[rank] = run(rank, memory)
        finally:
            memory.close()

    threads = [threading.Thread(target=on, args=(rank,), daemon=True) for rank in (0, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(patience_s)
    return [results.get(rank) for rank in (0, 1)]


@SHARED
def test_messages_arrive_through_shared_memory():
    for size_bytes, returns in itertools.product(SIZES, [False, True]):

        def run(rank, memory, size_bytes=size_bytes, returns=returns):
            found = []
            made = [Message(rank, size_bytes, CPU, number, returns=returns) for number in range(3)]
            for _ in range(2):
                for message in made:
                    memory.exchange(rank, message)
                found.append(all(message.arrived() for message in made))
                for message in made:
                    message.fill()
                found.append(message.arrived())
            return found

        sender, receiver = with_shared_memory(size_bytes, run)
        assert receiver == [True, False] * 2
        assert sender == ([True, False] * 2 if returns else [True] * 4)


@SHARED
def test_a_rank_that_is_gone_or_never_comes_is_an_error_and_no_hang(monkeypatch):
    def run(rank, memory):
        if rank == 1:
            return memory.close()
        # The first may still find room in the socket.
        with pytest.raises((ConnectionError, TimeoutError)):
            all(memory.exchange(rank, Message(rank, 4096, CPU)) is None for _ in range(2))
        return "told"

    assert with_shared_memory(4096, run)[0] == "told"
    monkeypatch.setattr(shared_copy, "PATIENCE_S", 0.05)
    with pytest.raises(TimeoutError):
        shared_copy.SharedMemory.between(0, 4096, lambda name: None)
