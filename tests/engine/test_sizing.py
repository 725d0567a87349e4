"""Finding out how to time, on the launch-queue model: the device's time, or the truth about the host."""

import itertools
import math
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.work import Work
from pytest_roofline.engine import calls
from pytest_roofline.engine.blocks.conditions import HOST_GAP
from pytest_roofline.engine.devices.base import Traits
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.sizing.calibration import calibrate
from pytest_roofline.engine.sizing.shape import (
    LONGEST_SPIN_S,
    MOST_CALLS,
    MOST_SAMPLES,
    BlockShape,
    direct_shape,
    graph_calls,
    queued_shape,
)
from pytest_roofline.engine.timing import Engine, Plan

# docs/authors/timing.md: what a launch, a stamp and the way to the device cost.
COSTS = {"launch_s": 8e-6, "record_s": 1.5e-6, "latency_s": 4e-6, "tick_s": 0.5e-6}
TICK_S = COSTS["tick_s"]
MIB = 2**20


def device_with(graphs=True, spins=True, kind=FakeDevice, **facts):
    device = kind(**COSTS | facts)
    device.traits = replace(device.traits, graphs=graphs, spins=spins)
    return device


def mps(**facts):
    """A device like Apple's."""
    traits = Traits(tick_s=1e-6, shortest_span_s=5e-3, stamps=False)
    return FakeDevice(
        **{"launch_s": 8e-6, "latency_s": 4e-6, "tick_s": 1e-6, **facts}, traits=traits
    )


def engine_of(device, fn, sets=((),), budget_s=1.0, **plan):
    """The engine after it timed a function."""
    engine = Engine(device, Plan(fn, list(sets), budget_s, **plan))
    engine.run()
    return engine


def timed(device, fn, **plan):
    return engine_of(device, fn, **plan).samples()


def kernels(device, number=1, seconds=2.3e-6, python_s=0.0):
    """A function of so many launches, behind so much of the host's own time."""

    def fn(*_):
        if python_s:
            device.pass_time(python_s)
        for _ in range(number):
            device.work(seconds)

    return fn


def numbered(count):
    return [(number,) for number in range(count)]


def longest_block_s(log):
    return max(kept.wall_s * kept.block.samples * log.iterations for kept in log.timed_blocks)


# The device's time, or the truth about the host.


def test_short_kernels_show_their_own_time_within_a_tick_a_sample():
    for graphs in [True, False]:
        device = device_with(graphs)
        samples = timed(device, kernels(device, 3))
        off_s = max(abs(sample - 6.9e-6) for sample in samples.seconds)
        assert off_s <= 1.001 * TICK_S / samples.iterations, graphs
        assert (samples.labels, samples.mode) == ((), "graph" if graphs else "events"), graphs


def test_a_call_that_is_long_enough_is_a_sample_by_itself():
    # As on HIP, where STREAM's scale of two gigabytes at its limit takes 1.056 ms, and the limit is on a single call.
    for call_s, count in [(0.99e-3, 2), (1.001e-3, 1), (1.056e-3, 1), (1.2e-3, 1)]:
        device = FakeDevice(
            **COSTS, traits=Traits(tick_s=1e-6, shortest_span_s=1e-3, spins=True, graphs=True)
        )
        samples = timed(device, kernels(device, 1, call_s))
        assert (samples.iterations, "unresolved" in samples.labels) == (count, False), call_s


def test_a_queue_gives_the_devices_time_or_says_that_the_host_waits_inside():
    for graphs, number, depth in itertools.product([True, False], [3, 40, 700], [100, 1000]):
        device = device_with(graphs, queue_depth=depth)
        samples = timed(device, kernels(device, number))
        right = samples.median_s == pytest.approx(2.3e-6 * number, rel=0.01)
        case = (graphs, number, depth)
        assert right or {"host_bound", "waits_inside"} & set(samples.labels), case
        if graphs and depth == 1000:
            assert (right, samples.trouble, samples.labels) == (True, "", ()), case
        if graphs and depth == 100 and number >= 300:
            assert samples.labels == ("waits_inside",), case
            assert samples.wall_s == pytest.approx(number * 8e-6, rel=0.01), case
    for number, seconds, facts in [
        (1, 20e-6, {"graphs": False}),
        (3, 20e-6, {"graphs": False}),
        (300, 50e-6, {}),
    ]:
        device = device_with(queue_depth=100, **facts)
        samples = timed(device, kernels(device, number, seconds))
        assert (samples.median_s, samples.trouble) == (
            pytest.approx(number * seconds, rel=0.01),
            "",
        ), number


def test_a_function_that_synchronizes_waits_inside_and_says_what_the_hosts_clock_showed():
    device = device_with()
    samples = timed(device, lambda: (device.work(1e-4), device.synchronize()))
    assert (samples.labels, samples.achieved) == (("waits_inside",),) * 2
    assert samples.wall_s == pytest.approx(1e-4 + 8e-6 + 4e-6, rel=0.05)
    device = device_with()
    assert timed(device, kernels(device, 1, 1e-4)).wall_s is None


@pytest.mark.parametrize("work_s", [2e-5, 1e-4, 1e-3])
def test_a_function_that_synchronizes_has_the_share_in_which_its_device_is_idle(work_s):
    """A launch and the way back from the device, during which nothing is computed."""
    device = device_with()
    samples = timed(device, lambda: (device.work(work_s), device.synchronize()))
    idle_s = samples.median_s - work_s
    assert samples.device_s == pytest.approx(work_s, abs=3 * TICK_S)
    assert samples.idle_share == pytest.approx(idle_s / samples.median_s, abs=0.03)
    device = device_with()
    assert timed(device, kernels(device, 1, work_s)).idle_share is None


def test_a_queue_that_is_full_is_no_idle_device():
    """The host waits for room and not for results, so the device always has something to do."""
    device = device_with(queue_depth=100)
    samples = timed(device, kernels(device, 300, 50e-6))
    assert (samples.idle_share or 0.0) < 0.01


def test_a_slow_host_is_not_in_the_time_or_is_named():
    shares = [(0.1, 0.05), (0.1, 0.1), (0.05, 0.1), (0.1, 0.3), (0.01, 0.1)]
    for spins, budget_s, (host, device_share) in itertools.product(
        [True, False], [0.1, 1.0, 3.0], shares
    ):
        device = device_with(graphs=False, spins=spins)
        if not spins:
            device.traits = replace(device.traits, shortest_span_s=5e-3)
        seconds = device_share * budget_s
        samples = timed(device, kernels(device, 1, seconds, host * budget_s), budget_s=budget_s)
        right = samples.median_s == pytest.approx(seconds, rel=0.02)
        assert right or "host_bound" in samples.labels, (spins, budget_s, host, device_share)


def test_a_host_slower_than_the_device_is_hidden_by_the_spin_as_far_as_there_is_one():
    for seconds, python_s, graphs in itertools.product([20e-6, 1e-3], [1e-4, 1e-2], [True, False]):
        device = device_with(graphs)
        samples = timed(device, kernels(device, 1, seconds, python_s), budget_s=2.0)
        assert (samples.median_s, samples.wall_s) == (pytest.approx(seconds, rel=0.01), None), (
            seconds,
            python_s,
        )
    device = device_with()
    samples = timed(device, kernels(device, 1, 1e-3, 40.0), budget_s=400.0)
    assert ("host_bound" in samples.labels, samples.wall_s) == (True, pytest.approx(40.0, rel=0.1))


def test_finding_out_how_to_time_a_slow_host_costs_no_second_budget():
    for seconds, python_s in itertools.product([2.3e-6, 20e-6, 1e-3], [5e-3, 5e-2, 0.2]):
        device = device_with()
        log = engine_of(device, kernels(device, 1, seconds, python_s)).log
        assert log.warmup_s - python_s + log.measuring_s <= 2 * 1.0 + longest_block_s(log), (
            seconds,
            python_s,
        )


def with_hiccup(at, seconds=1e-4):
    """The samples of a function that the host was interrupted in once."""
    # Enough unrest that there are more blocks than the least.
    device, made, wobble = device_with(), itertools.count(), itertools.cycle([0, 30])

    def fn():
        device.pass_time(0.05 if next(made) == at else 0.0)
        device.work(seconds * (1 + next(wobble) / 1000))

    return timed(device, fn)


def test_a_hiccup_of_the_host_makes_its_block_a_host_gap_that_is_not_in_the_median():
    before = with_hiccup(-1)
    samples = with_hiccup(
        before.warmup_iterations + before.iterations * before.blocks[0].samples + 5
    )
    assert [block.excluded for block in samples.blocks[:3]] == ["", HOST_GAP, ""]
    samples = with_hiccup(before.warmup_iterations + 5)
    assert (samples.excluded, samples.trouble) == ({HOST_GAP: 1}, "")
    assert samples.median_s == pytest.approx(before.median_s, rel=1e-3)
    for at in range(3, 11):
        device, made = device_with(graphs=False, spins=False), itertools.count()

        def fn(device=device, made=made, at=at):
            device.pass_time(0.05 if next(made) == 10 * at else 0.0)
            device.work(5e-3)

        samples = timed(device, fn)
        assert (samples.median_s, samples.labels) == (pytest.approx(5e-3, rel=0.02), ()), at


def test_one_call_that_is_not_like_the_rest_does_not_fix_the_shape_nor_make_it_unresolved():
    for call_s in [20e-6, 100e-6, 300e-6]:
        slow = {0: 2.0 / call_s, 1: 0.3 / call_s}
        device = device_with(slowdown=lambda number, slow=slow: slow.get(number, 1.0))
        samples = timed(device, kernels(device, 1, call_s))
        assert (samples.median_s, samples.trouble) == (pytest.approx(call_s, rel=0.02), ""), call_s
    for factor in [0.95, 0.9]:
        device = device_with(
            slowdown=lambda number, factor=factor: factor if number % 20 == 1 else 1.0
        )
        samples = timed(
            device, kernels(device, 1, 105e-6), flush=lambda device=device: device.work(1e-4)
        )
        assert "unresolved" not in samples.labels, factor
    for python_s in [60e-6, 200e-6]:
        # A host so slow that a sample is as short as the clock allows: ten calls.
        noise = random.Random(1)
        device = device_with(graphs=False, slowdown=lambda _, noise=noise: 1 + noise.gauss(0, 0.01))
        assert timed(device, kernels(device, 1, 10e-6, python_s)).trouble == "", python_s


def droop(start_s, end_s):
    """A clock that loses 15 % between two moments of busy time."""
    return lambda busy_s: 1 - 0.15 * min(1.0, max(0.0, (busy_s - start_s) / (end_s - start_s)))


def test_a_droop_is_waited_for_or_said():
    ends = [(0.3, budget_s) for budget_s in (0.25, 0.5, 1.0, 2.0)] + [(1.0, 1.0), (2.0, 1.0)]
    for (end_s, budget_s), seconds in itertools.product(ends, [10e-6, 200e-6, 5e-3]):
        device = device_with()
        calibrate(device)
        device._scripted_clock = droop(device.busy_s + 0.05, device.busy_s + end_s)
        samples = timed(device, kernels(device, 1, seconds), budget_s=budget_s)
        waited_for = end_s < 1.0 and samples.median_s == pytest.approx(seconds / 0.85, rel=0.01)
        assert waited_for or "drifting" in samples.labels, (end_s, budget_s, seconds)


# Graphs.


class Strict(FakeDevice):
    """A device that captures nothing."""

    def capture(self, submit):
        submit()
        raise RuntimeError("operation not permitted when stream is capturing")


class Refusing(FakeDevice):
    """A device whose capture fails at its third call, and runs none of them."""

    def capture(self, submit):
        self._recording = []
        try:
            submit()
        finally:
            self._recording = None

    def work(self, seconds, *more, **named):
        super().work(seconds, *more, **named)
        if self._recording is not None and len(self._recording) == 3:
            raise RuntimeError("operation not permitted when stream is capturing")


class Forgetful(FakeDevice):
    """A device whose graphs hold nothing."""

    def capture(self, submit):
        super().capture(submit)
        return super().capture(lambda: None)


class Late(FakeDevice):
    """A device whose replays the host is never ahead of."""

    def _submit_all(self, *arguments):
        self.synchronize()
        super()._submit_all(*arguments)


def test_a_graph_is_replayed_only_where_calls_are_short_or_as_what_it_is_compared_with_was():
    # Forty ticks are 20 µs.
    for seconds, graph, mode in [
        (2.3e-6, None, "graph"), (19e-6, None, "graph"), (21e-6, None, "events"), (1e-3, None, "events"),
        *((seconds, graph, "graph" if graph else "events") for seconds in (19e-6, 21e-6, 60e-6) for graph in (0, 1)),
    ]:  # fmt: skip
        device = device_with()
        asked = None if graph is None else bool(graph)
        assert timed(device, kernels(device, 1, seconds), graph=asked).mode == mode, (
            seconds,
            graph,
        )


def test_a_graph_makes_whole_turns_through_the_argument_sets_and_none_where_each_call_is_a_sample():
    for sets in [1, 7, 300, 1000]:
        device = device_with()
        samples = timed(device, kernels(device), sets=numbered(sets))
        assert (samples.mode, samples.iterations % sets) == ("graph", 0), sets
    for plan, mode in [
        ({"sets": numbered(5000)}, "events"),
        ({"flush": lambda: None}, "events"),
        ({"timing": "wall"}, "host"),
    ]:
        device = device_with()
        assert timed(device, kernels(device), **plan).mode == mode, plan


def test_a_graph_is_believed_whatever_lies_between_launches_and_its_first_replay_uploads():
    for saved in [0.24, 0.26, 0.7]:
        device = device_with(launch_gap_s=2e-6 * saved)
        samples = timed(device, kernels(device, 1, 2e-6 * (1 - saved)))
        assert (samples.mode, samples.median_s) == (
            "graph",
            pytest.approx(2e-6 * (1 - saved), rel=0.01),
        ), saved
    for sets, upload_s in itertools.product([1, 3201], [0.4e-6, 5e-6]):
        device = device_with(graph_upload_s=upload_s)
        samples = timed(device, kernels(device), sets=numbered(sets))
        assert (samples.mode, samples.labels) == ("graph", ()), (sets, upload_s)
        assert samples.median_s == pytest.approx(2.3e-6, rel=0.01), (sets, upload_s)


def test_a_replay_that_does_not_do_its_calls_or_cannot_be_had_leaves_the_events():
    for kind in [Strict, Refusing, Forgetful, Late]:
        device = device_with(kind=kind)
        samples = timed(device, kernels(device, 3))
        assert samples.median_s == pytest.approx(6.9e-6, rel=0.01), kind
        assert (samples.mode, samples.labels) == ("events", ("graph_refused",)), kind
    # One that loses work, and one that is slower than its calls.
    for replayed_s in [0.2 * 4e-6, 0.1 * 4e-6, 12e-6]:
        device = device_with()

        def fn(device=device, replayed_s=replayed_s):
            device.work(4e-6 if device._recording is None else replayed_s)

        samples = timed(device, fn)
        assert (samples.mode, samples.median_s) == ("events", pytest.approx(4e-6, rel=0.02)), (
            replayed_s
        )
        assert samples.labels == ("graph_refused",), replayed_s


class Counting(FakeDevice):
    """A device that counts the captures it is asked for."""

    captures = 0

    def capture(self, submit):
        self.captures += 1
        return super().capture(submit)


def test_a_capture_that_failed_takes_graphs_from_its_own_function_and_from_no_other():
    device = device_with(kind=Counting)

    def not_capturable():
        if device._recording is not None:
            raise RuntimeError("operation not permitted when stream is capturing")
        device.work(2.3e-6)

    for fn, mode, labels in [
        (kernels(device), "graph", ()),
        (not_capturable, "events", ("graph_refused",)),
        (kernels(device), "graph", ()),
        (not_capturable, "events", ("graph_refused",)),
    ]:
        samples = timed(device, fn)
        assert (samples.mode, samples.labels) == (mode, labels)
        assert samples.median_s == pytest.approx(2.3e-6, rel=0.01)


def test_where_not_even_an_empty_graph_can_be_taken_no_further_is_tried_in_the_process():
    device = device_with(kind=Counting, capture_fails=True)
    assert timed(device, kernels(device)).labels == ("graph_refused",)
    # That of the function, and the empty one behind it.
    assert device.captures == 2
    device.capture_fails = False
    samples = timed(device, kernels(device))
    assert (samples.mode, samples.labels, device.captures) == ("events", ("graph_refused",), 2)
    assert samples.median_s == pytest.approx(2.3e-6, rel=0.01)


def test_after_a_refused_graph_only_sets_count_as_touched_whose_work_was_done():
    for kind in [Refusing, Forgetful]:
        device, done = device_with(kind=kind), set()

        def fn(number, device=device, done=done):
            device.work(2.3e-6)
            if device._recording is None:
                done.add((number,))

        engine = engine_of(device, fn, sets=numbered(4000), renew=lambda _, done=done: done.clear())
        assert set(engine.calls.called_sets) <= done, kind


def test_what_stamps_add_is_stored_and_never_subtracted_and_every_call_is_accounted_for():
    for graphs in [True, False]:
        device = device_with(graphs, pair_s=2e-6)
        samples = timed(device, kernels(device, 3))
        assert samples.overhead_s == pytest.approx(2e-6 / samples.iterations, rel=0.3), graphs
        assert samples.median_s == pytest.approx(
            6.9e-6 + 2e-6 / samples.iterations, abs=TICK_S / samples.iterations
        )
        for number in [1, 3, 40]:
            device = device_with(graphs)
            log = engine_of(device, kernels(device, number)).log
            made = log.warmup_iterations + log.iterations * len(log.seconds)
            assert device.works == number * made, (graphs, number)


# Caches.

INFINITY = {
    "cache_bytes": 256 * MIB,
    "reported_cache_bytes": 4 * MIB,
    "architecture": "gfx942:sramecc+:xnack-",
}


def test_a_rotation_and_a_flush_are_cold_however_small_the_cache_is_reported_and_else_a_call_is_warm():
    """A kernel that goes through a buffer takes half as long where the buffer is in the cache."""

    def found_s(size_bytes, sets, flush=None, seconds=1e-4, **facts):
        device = device_with(**facts)
        cache_bytes = device.facts().last_level_cache_bytes
        if sets is None:
            sets = calls.rotation_sets(Work(read_bytes=size_bytes), cache_bytes, 2**40)
        samples = timed(
            device,
            lambda name: device.work(seconds, touch=name, size_bytes=size_bytes, cached=0.5),
            sets=numbered(sets),
            flush=device.flusher(calls.FLUSH_FACTOR * (flush or cache_bytes))
            if flush is not None
            else None,
        )
        return samples.median_s / seconds, samples.mode

    cold, warm = pytest.approx(1.0, rel=0.01), pytest.approx(0.5, rel=0.01)
    for case, expected in [
        *(((size * MIB, None), (cold, "events")) for size in (2, 8, 40)),
        ((8 * MIB, 6), (warm, "events")),
        ((8 * MIB, 1), (warm, "events")),
        ((8 * MIB, 1, 0), (cold, "events")),
    ]:
        assert found_s(*case) == expected, case
    assert found_s(MIB, None, seconds=4e-6, cache_bytes=4 * MIB) == (cold, "graph")
    assert found_s(64 * MIB, None, **INFINITY) == (cold, "events")
    assert found_s(8 * MIB, 1, 0, **INFINITY) == (cold, "events")
    # A flush of what that cache reports.
    assert found_s(8 * MIB, 1, 4 * MIB, **INFINITY) == (warm, "events")


# A device whose stamps cannot be trusted, and one that does not spin.


def test_a_device_without_stamps_is_timed_by_the_hosts_clock_for_five_milliseconds_a_sample_and_says_so():
    device = mps()
    samples = timed(device, kernels(device, 1, 1e-4))
    assert (samples.mode, samples.labels, samples.achieved) == (
        "host",
        ("wall_clock",),
        ("wall_clock",),
    )
    assert samples.median_s == pytest.approx(1e-4, rel=0.01)
    assert min(samples.seconds) * samples.iterations >= 5e-3
    device = mps()
    assert timed(device, kernels(device, 1, 1e-4), timing="wall").labels == ()


def test_only_a_host_that_sets_the_pace_of_a_device_without_a_spin_makes_it_host_bound():
    def no_spin():
        traits = Traits(tick_s=1e-6, shortest_span_s=5e-3)
        return FakeDevice(launch_s=8e-6, latency_s=4e-6, tick_s=1e-6, traits=traits)

    for make, seconds, timing, labels, wall_s in [
        (no_spin, 1e-6, "device", ("host_bound",), pytest.approx(8e-6, rel=0.01)),
        (no_spin, 20e-6, "device", (), None),
        (device_with, 1e-6, "wall", (), None),
    ]:
        device = make()
        samples = timed(device, kernels(device, 1, seconds), timing=timing)
        assert (samples.labels, samples.wall_s) == (labels, wall_s), (make, seconds)


# Shapes: pure arithmetic on what calls and launches cost.

SPAN_S = 1e-4
CALL_TIMES = st.floats(-9, 1).map(lambda exponent: 10**exponent)
BUDGETS = st.floats(0.05, 10.0)


@given(
    CALL_TIMES,
    st.floats(-7, -2).map(lambda exponent: 10**exponent),
    BUDGETS,
    st.one_of(st.none(), st.integers(8, 5000), st.just(10 * MOST_CALLS)),
)
def test_what_holds_of_every_block_behind_a_spin(call_s, host_s, budget_s, depth):
    shape = queued_shape(call_s, host_s, SPAN_S, budget_s, MOST_CALLS, depth)
    # At most half of the queue; a sample of a deep one is long enough for the clock.
    assert shape.samples * (shape.calls + 2) <= max(3, (depth or 512) // 2)
    if depth == 10 * MOST_CALLS:
        assert shape.calls * call_s >= 0.999 * SPAN_S or shape.calls == MOST_CALLS
    # The spin outlasts the submitting, and several samples leave time for at least twenty blocks.
    assert shape.spin_s > shape.calls * shape.samples * host_s or shape.spin_s == LONGEST_SPIN_S
    assert (
        shape.samples == 1
        or shape.calls * shape.samples * (call_s + 1.5 * host_s) <= 1.001 * budget_s / 20
    )
    # A flushed call is a sample of its own.
    assert queued_shape(call_s, host_s, SPAN_S, budget_s, 1, depth).calls == 1


@given(CALL_TIMES, BUDGETS, st.booleans())
def test_what_holds_of_every_block_that_is_waited_for(call_s, budget_s, batch):
    shape = direct_shape(call_s, SPAN_S, budget_s, MOST_CALLS, batch=batch)
    assert shape.calls * call_s >= 0.999 * SPAN_S or shape.calls == MOST_CALLS
    assert (shape.spin_s, 1 <= shape.samples <= MOST_SAMPLES) == (0.0, True)
    # Without batches a sample holds no more calls than the clock needs.
    assert batch or shape.calls <= math.ceil(SPAN_S / call_s)


@given(CALL_TIMES, st.integers(1, 4096))
def test_a_graph_holds_whole_turns_for_a_millisecond_or_as_many_as_fit(call_s, sets):
    count = graph_calls(call_s, sets)
    assert (count % sets, 1 <= count <= 4096) == (0, True)
    assert count * call_s >= 0.999e-3 or count > 4096 - sets


def test_a_host_that_fell_behind_gets_half_the_samples_behind_twice_the_spin_but_never_a_shorter_one():
    for shape, relaxed in [
        (BlockShape(4, 50, 1e-3), BlockShape(4, 25, 2e-3)),
        (BlockShape(4, 1, 1e-3), BlockShape(4, 1, 2e-3)),
        (BlockShape(1, 3, 0.8), BlockShape(1, 1, 1)),
        # Sizing doubles spins beyond the longest where nothing else helps.
        (BlockShape(1, 1, 4.0), BlockShape(1, 1, 4.0)),
    ]:
        assert shape.relaxed() == relaxed
