"""Calling a function with one argument set after the other, how many sets a rotation takes, and the first calls."""

import itertools
from types import SimpleNamespace

import torch
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.facts import DeviceFacts
from pytest_roofline.core.work import Work
from pytest_roofline.engine import calls
from pytest_roofline.engine.devices import cpu
from pytest_roofline.engine.devices.base import INFINITY_CACHE_BYTES, Traits, last_level_cache
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.request import Request, Timed
from pytest_roofline.engine.sizing.peers import ALONE
from pytest_roofline.engine.sizing.sequence import CallSequence
from pytest_roofline.engine.timing import Engine, Plan

from .test_peers import engines

MIB, PLENTY = 2**20, 2**50


def recorded(names):
    """Calls of a function that notes its argument, and its notes."""
    called = []
    return CallSequence(called.append, [(name,) for name in names]), called


def test_the_sets_take_turns_however_calls_are_batched():
    for batches in [[7], [1] * 7, [3, 4], [2, 0, 5]]:
        sequence, called = recorded("abc")
        for count in batches:
            sequence(count)
        assert called == list("abcabca"), batches
    sequence, called = recorded("abc")
    sequence.first()
    sequence(1)
    assert (called, sequence.made, list(sequence.called_sets)) == (["a", "b"], 2, [("a",), ("b",)])
    sequence(3)
    assert list(sequence.called_sets) == [("a",), ("b",), ("c",)]
    # The sets were replaced in place.
    sequence.sets[0] = ("new",)
    sequence.restart()
    assert list(sequence.called_sets) == []
    sequence(1)
    assert called[-1] == "new"


# Rotations.


def copy_of(size_bytes):
    """The work of a copy within one memory, which touches twice its size."""
    return Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)


def test_other_sets_between_two_uses_of_one_touch_four_times_the_cache_as_far_as_half_of_the_memory_holds_them():
    four_kib = Work(payload_bytes=4096, wire_bytes=4096)
    for work, cache_bytes, memory_bytes, sets in [
        (copy_of(2 * MIB), MIB, PLENTY, 1), (copy_of(5 * MIB // 2), MIB, PLENTY, 1),
        (copy_of(2 * MIB - 1), MIB, PLENTY, 3), (copy_of(MIB), MIB, PLENTY, 3), (copy_of(MIB // 2), MIB, PLENTY, 5),
        (copy_of(MIB // 4), MIB, PLENTY, 9), (Work(flops=1), MIB, PLENTY, 1),
        (copy_of(MIB), 100 * MIB, 16 * MIB, 4), (copy_of(MIB), 100 * MIB, 0, 1), (copy_of(MIB), 100 * MIB, None, 201),
        # As many suffice for 4 KiB through the largest known cache.
        (copy_of(1), 2**30, PLENTY, calls.MOST_SETS), (four_kib, INFINITY_CACHE_BYTES, PLENTY, calls.MOST_SETS),
    ]:  # fmt: skip
        assert calls.rotation_sets(work, cache_bytes, memory_bytes) == sets, (
            work,
            cache_bytes,
            memory_bytes,
        )
    assert calls.is_cold(calls.MOST_SETS, four_kib, INFINITY_CACHE_BYTES)
    assert calls.bytes_per_set(Work(payload_bytes=MIB, wire_bytes=MIB)) == MIB


@given(
    st.integers(1, 2**32), st.integers(1, 2**30), st.one_of(st.just(PLENTY), st.integers(0, 2**34))
)
def test_a_rotation_is_cold_exactly_if_it_touches_four_times_the_cache_between_two_uses(
    size, cache_bytes, memory
):
    sets = calls.rotation_sets(copy_of(size), cache_bytes, memory)
    cold = calls.is_cold(sets, copy_of(size), cache_bytes)
    assert cold == (2 * size * max(1, sets - 1) >= 4 * cache_bytes)
    assert cold or memory < PLENTY or sets == calls.MOST_SETS


def test_a_set_takes_what_its_tensors_hold_and_never_less_than_a_call_touches():
    page = torch.zeros(MIB, dtype=torch.uint8)
    for arguments, held in [
        ((page, {"rows": [page.view(torch.float32)]}, 7), 2 * MIB),
        # A part of an allocation, one element many times, sparse, and no tensor.
        ((torch.zeros(100 * MIB, dtype=torch.uint8)[: 2 * MIB],), 2 * MIB),
        ((torch.zeros(1).expand(100 * MIB),), 4096),
        ((torch.sparse_coo_tensor(size=(2**20, 2**20), check_invariants=True),), 4096),
        (("no tensor",), 4096),
    ]:
        assert calls.argument_bytes(Work(read_bytes=4096), arguments) == held
    assert calls.rotation_sets(Work(read_bytes=4096), MIB, 100 * MIB, 2 * MIB) == 25


def test_a_rotation_for_which_too_little_is_free_says_what_it_needs_what_there_is_and_what_to_do():
    assert calls.no_room(100, 2 * MIB, free_bytes=10**8) == (
        "needs 210 MB of free memory to rotate through 100 sets of arguments, found 100 MB; end other processes on the "
        "device, or use cache='flush', which needs only one set"
    )
    assert (calls.no_room(100, 2 * MIB, 200 * MIB), calls.no_room(1, 2 * MIB, 0)) == ("", "")


def told_of(count, seconds_per_set):
    """What is told while so many sets are made that take so long."""
    made, now, told, sets = itertools.count(), [0.0], [], []

    def make():
        now[0] += seconds_per_set
        return (next(made),)

    # So many of 4 MiB go through the cache four times; one does where the cache is as small as a quarter of it.
    facts = DeviceFacts(
        "cpu", "a processor", last_level_cache_bytes=(count - 1) * MIB or MIB, memory_bytes=PLENTY
    )
    device = SimpleNamespace(facts=lambda: facts, free_bytes=lambda: PLENTY, host_s=lambda: now[0])
    request = Request(Work(read_bytes=4 * MIB), 1.0, Timed(print, make), cache="rotate")
    assert calls.fill(sets, request, device, ALONE, told.append)
    assert sets == [(index,) for index in range(count)]
    return told


def test_as_many_sets_are_made_as_asked_for_and_who_waits_long_is_told_once_how_long_and_what_is_faster(
    monkeypatch,
):
    monkeypatch.setattr(cpu.Neighbours, "cores_taken", lambda self: 0.0)
    for count, seconds_per_set in [(100, 0.0), (100, 0.09), (1, 60.0), (10, 1.0)]:
        assert told_of(count, seconds_per_set) == [], (count, seconds_per_set)
    assert told_of(1000, 0.5) == [
        "make_args took 10 s for 21 of the 1000 sets of arguments to rotate through. All sets take about 500 s. "
        "Return parts of one allocation, or use cache='flush', which needs only one set"
    ]
    # Beside busy neighbours it is not the test that is slow.
    monkeypatch.setattr(cpu.Neighbours, "cores_taken", lambda self: 1e9)
    assert told_of(1000, 0.5) == []


def test_the_last_level_cache_is_what_the_device_reports_but_never_less_than_its_class_has():
    for reported, architecture, size_bytes in [
        *((4 * MIB, name, 256 * MIB) for name in ("gfx940", "gfx941", "gfx942", "gfx942:sramecc+:xnack-", "gfx950")),
        *((8 * MIB, name, 8 * MIB) for name in ("gfx90a", "gfx1100", "gfx9420", "sm_90", "")),
        (512 * MIB, "gfx942", 512 * MIB), (0, "sm_90", 64 * MIB), (0, "gfx942", 256 * MIB),
    ]:  # fmt: skip
        assert last_level_cache(reported, architecture) == size_bytes, (reported, architecture)


# The very first calls, each timed alone before the warm-up. Powers of two add up without rounding.

TICK_S, CALL_S, LAUNCH_S, LATENCY_S = 2.0**-30, 2.0**-8, 2.0**-17, 2.0**-16
# A device that is waited for anyway, as a processor is.
DIRECT = Traits(tick_s=TICK_S, shortest_span_s=200 * TICK_S, queues=False, warmup_floor_s=0.02)


class Direct(FakeDevice):
    """A processor: whatever is called is done when the call returns, by the host's clock."""

    def __init__(self, **keywords):
        super().__init__(tick_s=TICK_S, traits=DIRECT, **keywords)

    def work(self, seconds, *_):
        super().work(seconds)
        self.synchronize()


def queued(**facts):
    return FakeDevice(tick_s=TICK_S, **facts)


def starting(*factors):
    """Of so many first calls, how much slower each is."""
    return {"slowdown": lambda number: factors[number] if number < len(factors) else 1.0}


def timed(device, seconds=CALL_S, **plan):
    """The engine after it has timed calls of so many seconds."""
    engine = Engine(
        device,
        Plan(**{"fn": lambda *_: device.work(seconds), "sets": [()], "budget_s": 1.0, **plan}),
    )
    engine.run()
    return engine


def test_each_of_the_first_calls_is_timed_alone_and_part_of_the_warm_up():
    for plan in [{}, {"timing": "wall"}, {"graph": True}, {"isolated": True}]:
        engine = timed(queued(**starting(8, 4, 2)), first_calls=4, **plan)
        assert engine.samples().first_calls_s == (8 * CALL_S, 4 * CALL_S, 2 * CALL_S, CALL_S), plan
    device = queued(**starting(64))
    log = timed(device, first_calls=3).log
    assert device.works == log.warmup_iterations + log.iterations * len(log.seconds)
    assert (log.warmup_s >= (64 + 2) * CALL_S + 0.1, set(log.seconds)) == (True, {CALL_S})
    assert timed(queued(**starting(64))).samples().first_calls_s == ()
    seen = []
    timed(
        device,
        fn=lambda index: seen.append(index) or device.work(CALL_S),
        sets=[(0,), (1,)],
        first_calls=3,
    )
    assert seen[:4] == [0, 1, 0, 1]


def test_first_calls_compare_with_warm_ones_that_are_timed_as_they_were():
    """A kernel of 20 µs once was 1.9 x as slow in each of its first calls, and never steady."""
    for plan in [{}, {"graph": True}, {"isolated": True}, {"flush": True}]:
        device = queued(launch_s=LAUNCH_S, latency_s=LATENCY_S)
        flush = {"flush": lambda device=device: device.work(2.0**-10)} if "flush" in plan else {}
        samples = timed(device, 2.0**-16, first_calls=3, **plan | flush).samples()
        assert (
            set(samples.first_calls_s)
            == {LAUNCH_S + LATENCY_S + 2.0**-16}
            == set(samples.warm_calls_s)
        ), plan
        assert samples.alone_s == samples.first_calls_s[0] > samples.median_s, plan


def test_warm_calls_end_with_a_share_of_the_budget_and_are_not_added_where_a_sample_is_one_or_nobody_asked():
    # Of a step of seconds one is enough, and a few where it is short.
    for device, seconds, first_calls, warm_calls in [
        (queued(), 0.25, 1, 1), (queued(), CALL_S, 1, 5), (Direct(), CALL_S, 2, 0), (queued(), CALL_S, 0, 0),
    ]:  # fmt: skip
        samples = timed(device, seconds, first_calls=first_calls).samples()
        assert (len(samples.warm_calls_s), samples.alone_s) == (warm_calls, seconds)


def test_after_first_calls_as_slow_as_the_budget_one_more_is_the_sample():
    for device in [Direct(), queued()]:
        engine = timed(device, 5.0, first_calls=10)
        assert (device.works, engine.log.warmup_iterations, engine.log.seconds) == (11, 10, [5.0])
    # Of one call nobody knows whether it is slow for good; of several, the last is a warm one.
    device = Direct()
    engine = timed(device, 0.5, first_calls=4)
    assert (device.works, engine.log.warmup_iterations, engine.log.seconds) == (6, 4, [0.5, 0.5])
    # Slow ones among fast ones, or fast only from the next on, leave an ordinary measurement.
    for factors in [(1000,), (1000, 100, 100)]:
        log = timed(Direct(**starting(*factors)), first_calls=2).log
        assert (set(log.seconds), log.warmup_iterations >= 2 + 5) == ({CALL_S}, True), factors


def test_ranks_keep_the_longest_of_each_first_call_and_all_make_the_same_calls():
    devices = [queued(**starting(*factors)) for factors in ((8, 1), (2, 4))]
    found, _ = engines(devices, [CALL_S, CALL_S], first_calls=3)
    assert [engine.samples().first_calls_s for engine in found] == [
        (8 * CALL_S, 4 * CALL_S, CALL_S)
    ] * 2
    _, made = engines([Direct(), Direct()], [0.5, CALL_S], first_calls=3, budget_s=0.5)
    assert made == [4, 4]
    # Without queues, warm calls are added where their samples are many in a row.
    for isolated, more in [(False, 5), (True, 0)]:
        found, _ = engines(
            [Direct(), Direct()],
            [CALL_S, 2 * CALL_S],
            first_calls=2,
            isolated=isolated,
            budget_s=1.0,
        )
        assert [len(engine.samples().warm_calls_s) for engine in found] == [more] * 2, isolated
        assert {engine.samples().alone_s for engine in found} == {2 * CALL_S}, isolated
