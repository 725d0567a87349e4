"""Finding out how to time, on the launch-queue model: the device's time, or the truth about the host."""

import itertools
import random
from dataclasses import replace
from itertools import count, cycle

import pytest

from pytest_roofline.core.work import Work
from pytest_roofline.engine import calls
from pytest_roofline.engine.calibration import calibrate
from pytest_roofline.engine.conditions import HOST_GAP
from pytest_roofline.engine.devices.base import Traits
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.timing import Engine, Plan

# measuring.md, 2.1: what a launch, a stamp and the way to the device cost.
COSTS = {"launch_s": 8e-6, "record_s": 1.5e-6, "latency_s": 4e-6, "tick_s": 0.5e-6}
TICK_S = COSTS["tick_s"]
MIB = 2**20


def device_with(graphs=True, **facts):
    device = FakeDevice(**COSTS | facts)
    device.traits = replace(device.traits, graphs=graphs)
    return device


def mps(watchdog_s=60.0, **facts):
    """A device like Apple's."""
    traits = Traits(tick_s=1e-6, shortest_span_s=5e-3, watchdog_s=watchdog_s)
    return FakeDevice(**{"launch_s": 8e-6, "latency_s": 4e-6, "tick_s": 1e-6, **facts}, traits=traits)


def engine_of(device, fn, sets=((),), budget_s=1.0, **plan):
    """The engine after it timed a function."""
    engine = Engine(device, Plan(fn, list(sets), budget_s, **plan))
    engine.run()
    return engine


def timed(device, fn, **plan):
    return engine_of(device, fn, **plan).samples()


def kernels(device, number, seconds=2.3e-6):
    """A function of so many launches."""

    def fn(*_):
        for _ in range(number):
            device.work(seconds)

    return fn


@pytest.mark.parametrize(("call_s", "calls"), [(0.99e-3, 2), (1.001e-3, 1), (1.056e-3, 1), (1.2e-3, 1)])
def test_a_call_that_is_long_enough_is_a_sample_by_itself(call_s, calls):
    # As on HIP, where STREAM's scale of two gigabytes at its limit takes 1.056 ms, and the limit is on a single call.
    device = FakeDevice(**COSTS, traits=Traits(tick_s=1e-6, shortest_span_s=1e-3, spins=True, graphs=True))
    samples = timed(device, lambda *_: device.work(call_s))
    assert (samples.iterations, "unresolved" in samples.labels) == (calls, False)


def test_three_short_kernels_show_their_own_time_within_a_tick_a_sample():
    for graphs in [True, False]:
        device = device_with(graphs)
        samples = timed(device, kernels(device, 3))
        off_s = max(abs(sample - 6.9e-6) for sample in samples.seconds)
        assert off_s <= 1.001 * TICK_S / samples.iterations, graphs
        assert (samples.labels, samples.mode) == ((), "graph" if graphs else "events"), graphs


def test_a_full_queue_gives_the_devices_time_or_says_that_the_host_set_the_pace():
    for graphs, number, depth in itertools.product([True, False], [1, 3, 40, 300, 700], [100, 1000]):
        device = device_with(graphs, queue_depth=depth)
        samples = timed(device, kernels(device, number))
        right = samples.median_s == pytest.approx(2.3e-6 * number, rel=0.01)
        assert right or {"host_bound", "waits_inside"} & set(samples.labels), (graphs, number, depth)


def test_what_fits_into_the_queue_gives_the_devices_time():
    for number in [1, 3, 40, 300, 700]:
        device = device_with(queue_depth=1000)
        samples = timed(device, kernels(device, number))
        assert (samples.median_s, samples.trouble) == (pytest.approx(2.3e-6 * number, rel=0.01), ""), number
        assert samples.labels == (), number


def test_a_shallow_queue_gives_the_devices_time_of_a_few_launches():
    for number in [1, 3]:
        device = device_with(graphs=False, queue_depth=100)
        samples = timed(device, kernels(device, number, seconds=20e-6))
        assert (samples.median_s, samples.trouble) == (pytest.approx(20e-6 * number, rel=0.01), ""), number


def test_more_launches_than_the_queue_holds_wait_inside_and_show_the_hosts_time():
    for number in [300, 700]:
        device = device_with(queue_depth=100)
        samples = timed(device, kernels(device, number))
        assert samples.labels == ("waits_inside",), number
        assert samples.wall_s == pytest.approx(number * 8e-6, rel=0.01), number


def test_more_launches_than_the_queue_holds_of_long_kernels_give_the_devices_time():
    device = device_with(queue_depth=100)
    samples = timed(device, kernels(device, 300, seconds=50e-6))
    assert samples.median_s == pytest.approx(300 * 50e-6, rel=0.01)


def synchronizing(device, seconds=1e-4):
    def fn():
        device.work(seconds)
        device.synchronize()

    return fn


def test_a_function_that_synchronizes_waits_inside():
    device = device_with()
    assert timed(device, synchronizing(device)).labels == ("waits_inside",)


def test_a_function_that_synchronizes_says_what_the_hosts_clock_showed():
    device = device_with()
    samples = timed(device, synchronizing(device))
    assert samples.wall_s == pytest.approx(1e-4 + 8e-6 + 4e-6, rel=0.05)


def test_a_function_that_never_waits_has_no_wall_time():
    device = device_with()
    assert timed(device, kernels(device, 1, 1e-4)).wall_s is None


def test_waiting_inside_is_part_of_what_was_achieved():
    device = device_with()
    assert timed(device, synchronizing(device)).achieved == ("waits_inside",)


@pytest.mark.parametrize("spins", [True, False])
@pytest.mark.parametrize("budget_s", [0.1, 1.0, 3.0])
@pytest.mark.parametrize(
    ("host_share", "device_share"), [(0.1, 0.05), (0.1, 0.1), (0.05, 0.1), (0.1, 0.3), (0.01, 0.1)]
)
def test_a_slow_host_is_not_in_the_time_or_is_named(spins, budget_s, host_share, device_share):
    device = device_with(graphs=False)
    if not spins:
        device.traits = replace(device.traits, spins=False, shortest_span_s=5e-3)

    def fn():
        device.pass_time(host_share * budget_s)
        device.work(device_share * budget_s)

    samples = timed(device, fn, budget_s=budget_s)
    right = samples.median_s == pytest.approx(device_share * budget_s, rel=0.02)
    assert right or "host_bound" in samples.labels


@pytest.mark.parametrize("lost", [0.8, 0.9])
def test_a_replay_that_loses_work_is_not_believed(lost):
    device = device_with()

    def fn():
        device.work((1 - lost) * 4e-6)
        if device._recording is None:
            device.work(lost * 4e-6)

    samples = timed(device, fn)
    assert (samples.mode, samples.median_s) == ("events", pytest.approx(4e-6, rel=0.02))
    assert samples.labels == ("graph_refused",)


def test_a_graph_is_believed_however_much_of_a_call_lies_between_launches():
    for saved in [0.15, 0.24, 0.26, 0.4, 0.7]:
        device = device_with(launch_gap_s=2e-6 * saved)
        samples = timed(device, kernels(device, 1, 2e-6 * (1 - saved)))
        assert (samples.mode, samples.labels) == ("graph", ()), saved
        assert samples.median_s == pytest.approx(2e-6 * (1 - saved), rel=0.01), saved


def test_the_first_replay_which_uploads_the_graph_does_not_decide():
    for sets, upload_s in itertools.product([1, 500, 3201], [0.4e-6, 0.8e-6, 5e-6]):
        device = device_with(graph_upload_s=upload_s)
        samples = timed(device, kernels(device, 1), sets=[(index,) for index in range(sets)])
        assert (samples.mode, samples.labels) == ("graph", ()), (sets, upload_s)
        assert samples.median_s == pytest.approx(2.3e-6, rel=0.01), (sets, upload_s)


def test_a_replay_that_the_host_is_never_ahead_of_does_not_decide():
    class LateDevice(FakeDevice):
        def _submit_all(self, *arguments):
            self.synchronize()
            super()._submit_all(*arguments)

    device = LateDevice(**COSTS)
    samples = timed(device, kernels(device, 1))
    assert (samples.mode, samples.labels) == ("events", ("graph_refused",))


def test_after_a_capture_that_failed_no_further_graph_is_taken_in_the_process_and_it_is_said():
    device = device_with(capture_fails=True)
    assert [timed(device, kernels(device, 1)).labels for _ in range(2)] == [("graph_refused",)] * 2
    device.capture_fails = False
    samples = timed(device, kernels(device, 1))
    assert (samples.mode, samples.labels) == ("events", ("graph_refused",))
    assert samples.median_s == pytest.approx(2.3e-6, rel=0.01)


def test_a_graph_is_taken_or_not_as_what_it_is_compared_with_was():
    for graph in [True, False]:
        for seconds in (19e-6, 21e-6, 60e-6):
            device = device_with()
            assert timed(device, kernels(device, 1, seconds), graph=graph).mode == ("graph" if graph else "events")


def test_a_replay_that_is_slower_than_its_calls_is_not_believed():
    device = device_with()
    samples = timed(device, lambda: device.work(4e-6 if device._recording is None else 12e-6))
    assert (samples.mode, samples.median_s) == ("events", pytest.approx(4e-6, rel=0.02))


@pytest.mark.parametrize("call_s", [20e-6, 100e-6, 300e-6])
def test_a_slow_second_call_does_not_fix_the_shape(call_s):
    device = device_with(slowdown=lambda number: {0: 2.0 / call_s, 1: 0.3 / call_s}.get(number, 1.0))
    samples = timed(device, kernels(device, 1, call_s))
    assert (samples.median_s, samples.trouble) == (pytest.approx(call_s, rel=0.02), "")


@pytest.mark.parametrize("at", range(3, 11))
def test_a_single_hiccup_of_the_host_does_not_make_it_host_bound(at):
    device = device_with(graphs=False)
    device.traits = replace(device.traits, spins=False)
    calls = itertools.count()

    def fn():
        device.pass_time(0.05 if next(calls) == 10 * at else 0.0)
        device.work(5e-3)

    samples = timed(device, fn)
    assert (samples.median_s, samples.labels) == (pytest.approx(5e-3, rel=0.02), ())


@pytest.mark.parametrize("factor", [0.95, 0.9])
def test_one_faster_call_in_ten_does_not_make_a_flushed_call_unresolved(factor):
    device = device_with(slowdown=lambda number: factor if number % 20 == 1 else 1.0)
    samples = timed(device, kernels(device, 1, 105e-6), flush=lambda: device.work(1e-4))
    assert "unresolved" not in samples.labels


@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("python_s", [1e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("seconds", [20e-6, 200e-6, 1e-3])
def test_a_host_slower_than_the_device_is_hidden_by_the_spin(seconds, python_s, graphs):
    device = device_with(graphs)

    def fn():
        device.pass_time(python_s)
        device.work(seconds)

    samples = timed(device, fn, budget_s=2.0)
    assert (samples.median_s, samples.wall_s) == (pytest.approx(seconds, rel=0.01), None)


def test_a_host_slower_than_any_spin_is_host_bound():
    device = device_with()

    def fn():
        device.pass_time(40.0)
        device.work(1e-3)

    samples = timed(device, fn, budget_s=400.0)
    assert ("host_bound" in samples.labels, samples.wall_s) == (True, pytest.approx(40.0, rel=0.1))


@pytest.mark.parametrize("python_s", [5e-3, 5e-2, 0.2])
@pytest.mark.parametrize("seconds", [2.3e-6, 20e-6, 1e-3])
def test_finding_out_how_to_time_a_slow_host_costs_no_second_budget(seconds, python_s):
    device = device_with()

    def fn():
        device.pass_time(python_s)
        device.work(seconds)

    log = engine_of(device, fn, budget_s=1.0).log
    longest_s = max(
        wall_s * block.samples * log.iterations for wall_s, block in ((kept.wall_s, kept.block) for kept in log.kept)
    )
    assert log.warmup_s - python_s + log.measuring_s <= 2 * 1.0 + longest_s


def with_hiccup(at, seconds=1e-4):
    """The samples of a function that the host was interrupted in once."""
    device, calls = device_with(), count()

    def fn():
        device.pass_time(0.05 if next(calls) == at else 0.0)
        device.work(seconds * (1 + next(wobble) / 1000))

    # Enough unrest that there are more blocks than the least.
    wobble = cycle([0, 30])
    return timed(device, fn)


def test_a_hiccup_of_the_host_makes_its_block_a_host_gap():
    before = with_hiccup(-1)
    samples = with_hiccup(before.warmup_iterations + before.iterations * before.blocks[0].samples + 5)
    assert [block.excluded for block in samples.blocks[:3]] == ["", HOST_GAP, ""]


def test_a_hiccup_of_the_host_is_not_in_the_median():
    before = with_hiccup(-1)
    samples = with_hiccup(before.warmup_iterations + 5)
    assert samples.excluded == {HOST_GAP: 1}
    assert (samples.median_s, samples.trouble) == (pytest.approx(before.median_s, rel=1e-3), "")


@pytest.mark.parametrize("python_s", [60e-6, 200e-6])
def test_noise_does_not_make_a_function_unresolved_that_can_be_batched(python_s):
    # A host so slow that a sample is as short as the clock allows: ten calls.
    noise = random.Random(1)
    device = device_with(graphs=False, slowdown=lambda _: 1 + noise.gauss(0, 0.01))

    def fn():
        device.pass_time(python_s)
        device.work(10e-6)

    assert timed(device, fn).trouble == ""


def test_a_graph_is_replayed_only_where_calls_are_short():
    for seconds, mode in [(2.3e-6, "graph"), (19e-6, "graph"), (21e-6, "events"), (1e-3, "events")]:
        # Forty ticks are 20 µs.
        device = device_with()
        assert timed(device, kernels(device, 1, seconds)).mode == mode, (seconds, mode)


def test_a_graph_makes_whole_turns_through_the_argument_sets():
    for sets in [1, 7, 300, 1000]:
        device = device_with()
        samples = timed(device, kernels(device, 1), sets=[(number,) for number in range(sets)])
        assert (samples.mode, samples.iterations % sets) == ("graph", 0), sets


def test_no_graph_is_replayed_where_a_turn_does_not_fit():
    device = device_with()
    assert timed(device, kernels(device, 1), sets=[(number,) for number in range(5000)]).mode == "events"


def test_no_graph_is_replayed_between_flushes():
    device = device_with()
    assert timed(device, kernels(device, 1), flush=lambda: device.work(1e-4)).mode == "events"


def test_no_graph_is_replayed_by_the_hosts_clock():
    device = device_with()
    assert timed(device, kernels(device, 1), timing="wall").mode == "host"


class Strict(FakeDevice):
    """A device that captures nothing."""

    def capture(self, submit):
        submit()
        raise RuntimeError("operation not permitted when stream is capturing")


def test_a_function_that_cannot_be_captured_is_timed_by_events():
    device = Strict(**COSTS)
    samples = timed(device, kernels(device, 3))
    assert (samples.mode, samples.median_s) == ("events", pytest.approx(6.9e-6, rel=0.01))


class Refusing(FakeDevice):
    """A device whose capture fails at its third call, and runs none of them."""

    def capture(self, submit):
        self._recording = []
        self.captured = 0
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


def test_after_a_refused_graph_the_events_give_the_devices_time():
    for kind in [Strict, Refusing, Forgetful]:
        device = kind(**COSTS)
        samples = timed(device, kernels(device, 3))
        assert (samples.mode, samples.median_s) == ("events", pytest.approx(6.9e-6, rel=0.01)), kind


@pytest.mark.parametrize("kind", [Refusing, Forgetful])
def test_after_a_refused_graph_only_sets_count_as_touched_whose_work_was_done(kind):
    device, done = kind(**COSTS), set()

    def fn(number):
        device.work(2.3e-6)
        if device._recording is None:
            done.add((number,))

    engine = engine_of(device, fn, sets=[(number,) for number in range(4000)], renew=lambda _: done.clear())
    assert set(engine.calls.touched) <= done


def test_what_stamps_add_is_stored_and_never_subtracted():
    for graphs in [True, False]:
        device = device_with(graphs, pair_s=2e-6)
        samples = timed(device, kernels(device, 3))
        assert samples.overhead_s == pytest.approx(2e-6 / samples.iterations, rel=0.3), graphs
        assert samples.median_s == pytest.approx(6.9e-6 + 2e-6 / samples.iterations, abs=TICK_S / samples.iterations)


def test_every_call_is_accounted_for():
    for kind, number in itertools.product([{}, {"graphs": False}], [1, 3, 40]):
        device = device_with(**kind)
        log = engine_of(device, kernels(device, number)).log
        assert device.works == number * (log.warmup_iterations + log.iterations * len(log.seconds)), (kind, number)


def droop(start_s, end_s):
    """A clock that loses 15 % between two moments of busy time."""
    return lambda busy_s: 1 - 0.15 * min(1.0, max(0.0, (busy_s - start_s) / (end_s - start_s)))


def test_a_droop_is_waited_for_or_said():
    for budget_s, seconds in itertools.product([0.25, 0.5, 1.0, 2.0], [10e-6, 200e-6, 5e-3]):
        device = device_with()
        calibrate(device)
        device._scripted_clock = droop(device.busy_s + 0.05, device.busy_s + 0.3)
        samples = timed(device, kernels(device, 1, seconds), budget_s=budget_s)
        assert samples.median_s == pytest.approx(seconds / 0.85, rel=0.01) or "drifting" in samples.labels


def test_a_droop_that_outlasts_the_budget_is_drifting():
    for end_s, seconds in itertools.product([1.0, 2.0], [10e-6, 200e-6, 5e-3]):
        device = device_with()
        calibrate(device)
        device._scripted_clock = droop(device.busy_s + 0.05, device.busy_s + end_s)
        assert "drifting" in timed(device, kernels(device, 1, seconds), budget_s=1.0).labels, (end_s, seconds)


def cold(seconds=1e-4, size_bytes=8 * MIB):
    """A kernel that goes through a buffer and takes half as long where the buffer is in the calls."""

    def on(device):
        return lambda name="only": device.work(seconds, touch=name, size_bytes=size_bytes, cached=0.5)

    return on


def test_a_rotation_through_enough_sets_is_cold():
    for size_bytes in [2 * MIB, 8 * MIB, 40 * MIB]:
        device = device_with()
        number = calls.rotation_sets(Work(read_bytes=size_bytes), device.facts().last_level_cache_bytes, 2**40)
        samples = timed(device, cold(size_bytes=size_bytes)(device), sets=[(name,) for name in range(number)])
        assert {round(sample * 1e6) for sample in samples.seconds} == {100}, size_bytes


def test_a_rotation_of_short_kernels_is_cold_in_a_graph():
    device = device_with(cache_bytes=4 * MIB)
    number = calls.rotation_sets(Work(read_bytes=MIB), device.facts().last_level_cache_bytes, 2**40)
    samples = timed(device, cold(4e-6, MIB)(device), sets=[(name,) for name in range(number)])
    assert (samples.mode, samples.median_s) == ("graph", pytest.approx(4e-6, rel=0.01))


def test_too_few_sets_would_give_half_the_time():
    device = device_with()
    samples = timed(device, cold()(device), sets=[(name,) for name in range(6)])
    assert samples.median_s == pytest.approx(0.5e-4, rel=0.01)


def test_a_flushed_call_is_cold():
    device = device_with()
    flush = device.flusher(calls.FLUSH_FACTOR * device.facts().last_level_cache_bytes)
    assert timed(device, cold()(device), flush=flush).median_s == pytest.approx(1e-4, rel=0.01)


def test_without_a_flush_the_same_call_is_warm():
    device = device_with()
    assert timed(device, cold()(device)).median_s == pytest.approx(0.5e-4, rel=0.01)


INFINITY = {"cache_bytes": 256 * MIB, "reported_cache_bytes": 4 * MIB, "architecture": "gfx942:sramecc+:xnack-"}


def test_a_cache_that_reports_a_64th_of_itself_is_rotated_out_all_the_same():
    device = device_with(**INFINITY)
    number = calls.rotation_sets(Work(read_bytes=64 * MIB), device.facts().last_level_cache_bytes, 2**40)
    samples = timed(device, cold(size_bytes=64 * MIB)(device), sets=[(name,) for name in range(number)])
    assert samples.median_s == pytest.approx(1e-4, rel=0.01)


def test_a_cache_that_reports_a_64th_of_itself_is_flushed_all_the_same():
    device = device_with(**INFINITY)
    flush = device.flusher(calls.FLUSH_FACTOR * device.facts().last_level_cache_bytes)
    assert timed(device, cold()(device), flush=flush).median_s == pytest.approx(1e-4, rel=0.01)


def test_a_flush_of_what_that_cache_reports_would_be_warm():
    device = device_with(**INFINITY)
    flush = device.flusher(calls.FLUSH_FACTOR * 4 * MIB)
    assert timed(device, cold()(device), flush=flush).median_s == pytest.approx(0.5e-4, rel=0.01)


def test_a_right_reading_of_a_watched_device_stays_with_its_events():
    device = mps()
    samples = timed(device, kernels(device, 1, 1e-4))
    assert (samples.mode, samples.labels) == ("events", ())
    assert samples.median_s == pytest.approx(1e-4, rel=0.01)


def test_a_sample_of_a_watched_device_is_five_milliseconds():
    device = mps()
    samples = timed(device, kernels(device, 1, 1e-4))
    assert min(samples.seconds) * samples.iterations >= 5e-3


def test_a_reading_without_sense_falls_back_to_the_hosts_clock_and_says_so():
    for reading in ["reversed", "hanging"]:
        device = mps(watchdog_s=0.001, reading=reading)
        samples = timed(device, kernels(device, 1, 1e-4))
        device.let_go()
        assert (samples.mode, samples.labels, samples.achieved) == ("host", ("wall_clock",), ("wall_clock",))
        assert samples.median_s == pytest.approx(1e-4, rel=0.01), reading


def test_a_host_slower_than_a_device_without_a_spin_is_host_bound():
    device = mps()
    samples = timed(device, kernels(device, 1, 1e-6))
    assert (samples.labels, samples.wall_s) == (("host_bound",), pytest.approx(8e-6, rel=0.01))


def test_a_host_faster_than_a_device_without_a_spin_is_not_host_bound():
    device = mps()
    assert timed(device, kernels(device, 1, 20e-6)).labels == ()


def test_by_the_hosts_clock_nothing_is_host_bound():
    device = device_with()
    assert timed(device, kernels(device, 1, 1e-6), timing="wall").labels == ()
