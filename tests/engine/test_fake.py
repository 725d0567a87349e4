"""The fake device: an in-order stream with a host beside it, which every test of the engine stands on."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.facts import Gpu
from pytest_roofline.engine.blocks import within
from pytest_roofline.engine.devices.base import BRAKE, POWER_CAP, THERMAL, Counters, Traits
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.timing import Engine, Plan
from pytest_roofline.machine.health import degraded

MIB = 2**20
# A tick without a rounding error of its own.
TICK = 2.0**-20
durations = st.lists(st.integers(0, 2**20).map(lambda ticks: ticks * TICK), max_size=20)
costs = st.integers(0, 2**10).map(lambda ticks: ticks * TICK)


def span_of(device, submit):
    """Seconds between two stamps around what `submit` submits."""
    start = device.stamp()
    submit()
    return device.elapsed_s(start, device.stamp())


def works(device, *seconds):
    """Submits kernels of these lengths."""
    for each in seconds:
        device.work(each)


def test_submitting_work_costs_the_host_its_launch_alone():
    device = FakeDevice(launch_s=0.5)
    works(device, 8.0, 8.0)
    assert device.host_s() == 1.0


def test_submitting_a_stamp_costs_the_host_its_record():
    device = FakeDevice(record_s=0.25)
    device.stamp(), device.stamp()
    assert device.host_s() == 0.5


def test_the_device_works_behind_the_host():
    device = FakeDevice(launch_s=0.5)
    works(device, 8.0, 8.0)
    assert device.clock_s == 16.5


def test_an_idle_device_starts_a_latency_after_the_submission():
    device = FakeDevice(launch_s=0.5, latency_s=0.25)
    device.work(1.0)
    assert device.clock_s == 1.75


def test_a_busy_device_hides_the_latency_of_what_comes_next():
    device = FakeDevice(latency_s=0.25)
    works(device, 1.0, 1.0)
    assert device.clock_s == 2.25


def test_a_host_slower_than_the_device_leaves_gaps_between_the_work():
    device = FakeDevice(launch_s=2.0)
    works(device, 1.0, 1.0, 1.0)
    assert (device.clock_s, device.busy_s) == (7.0, 3.0)


def test_time_that_passes_on_the_host_alone_leaves_a_gap_on_the_device():
    device = FakeDevice(tick_s=TICK)
    assert span_of(device, lambda: (device.work(1.0), device.pass_time(4.0), device.work(1.0))) == 5.0


@pytest.mark.parametrize(("flush_s", "seconds"), [(None, 26.5e-6), (3e-6, 25.0e-6), (80e-6, 7.0e-6)])
def test_three_short_kernels_read_as_the_launch_queue_model_says(flush_s, seconds):
    # measuring.md 2.1: the truth is 6.9 µs; only a device that is busy for long enough in front of them shows it.
    device = FakeDevice(launch_s=8e-6, record_s=1.5e-6, latency_s=4e-6, tick_s=0.5e-6)
    if flush_s is not None:
        device.work(flush_s)
    assert span_of(device, lambda: works(device, 2.3e-6, 2.3e-6, 2.3e-6)) == pytest.approx(seconds)


@given(durations)
def test_without_costs_a_span_is_the_sum_of_its_work(seconds):
    device = FakeDevice(tick_s=TICK)
    assert span_of(device, lambda: works(device, *seconds)) == sum(seconds)


@given(durations, costs, costs, costs, st.integers(1, 8))
def test_a_span_is_never_shorter_than_its_work(seconds, launch_s, record_s, latency_s, depth):
    device = FakeDevice(tick_s=TICK, launch_s=launch_s, record_s=record_s, latency_s=latency_s, queue_depth=depth)
    assert span_of(device, lambda: works(device, *seconds)) >= sum(seconds)


@given(durations, costs, costs, st.integers(1, 8))
def test_stamps_are_in_the_order_of_their_submission(seconds, launch_s, latency_s, depth):
    device = FakeDevice(tick_s=TICK, launch_s=launch_s, latency_s=latency_s, queue_depth=depth)
    stamps = [device.stamp()]
    for each in seconds:
        device.work(each)
        stamps.append(device.stamp())
    assert sorted(stamps) == stamps


def test_a_full_queue_makes_the_host_wait_for_its_oldest_entry():
    device = FakeDevice(queue_depth=2)
    hosts = []
    for _ in range(4):
        device.work(1.0)
        hosts.append(device.host_s())
    assert hosts == [0.0, 0.0, 1.0, 2.0]


def test_stamps_take_room_in_the_queue():
    device = FakeDevice(queue_depth=2)
    device.work(1.0)
    device.stamp(), device.stamp()
    assert device.host_s() == 1.0


def test_what_is_done_leaves_the_queue():
    device = FakeDevice(queue_depth=2)
    works(device, 1.0, 1.0)
    device.synchronize()
    works(device, 1.0, 1.0)
    assert device.host_s() == 2.0


@given(durations, st.integers(1, 8))
def test_a_full_queue_never_delays_the_device_itself(seconds, depth):
    device = FakeDevice(queue_depth=depth)
    works(device, *seconds)
    assert device.clock_s == sum(seconds)


@pytest.mark.parametrize(("seconds", "shown"), [(0.1, 0.0), (0.3, 0.25), (0.4, 0.5)])
def test_times_are_shown_to_the_nearest_tick(seconds, shown):
    device = FakeDevice(tick_s=0.25)
    assert span_of(device, lambda: device.work(seconds)) == shown


def test_each_stamp_is_rounded_for_itself():
    device = FakeDevice(tick_s=1.0)
    device.work(0.4)
    assert span_of(device, lambda: device.work(0.2)) == 1.0


def test_an_empty_pair_shows_what_a_stamp_takes():
    device = FakeDevice(tick_s=TICK, pair_s=0.5)
    assert span_of(device, lambda: None) == 0.5


def test_the_slowdown_is_scripted_by_the_number_of_the_work():
    device = FakeDevice(slowdown=lambda number: 10.0**number)
    works(device, 1.0, 1.0, 1.0)
    assert device.clock_s == 111.0


def test_a_spin_takes_so_many_cycles_of_the_full_clock():
    device = FakeDevice(tick_s=TICK, clock_hz=1000.0)
    assert span_of(device, lambda: device.spin(2500)) == 2.5


def test_a_spin_runs_by_the_clock_of_the_moment():
    device = FakeDevice(tick_s=TICK, clock_hz=1000.0, clock=lambda busy_s: 1.0 if busy_s < 1 else 0.5)
    assert [span_of(device, lambda: device.spin(1000)) for _ in range(2)] == [1.0, 2.0]


def test_work_runs_by_the_clock_of_the_moment():
    device = FakeDevice(tick_s=TICK, clock=lambda busy_s: 1.0 if busy_s < 1 else 0.5)
    assert [span_of(device, lambda: device.work(1.0)) for _ in range(2)] == [1.0, 2.0]


def test_an_idle_device_keeps_its_clock():
    device = FakeDevice(tick_s=TICK, clock=lambda busy_s: 1.0 if busy_s < 1 else 0.5)
    device.pass_time(100.0)
    assert span_of(device, lambda: device.work(1.0)) == 1.0


def test_submitting_a_spin_costs_a_launch_and_no_wait():
    device = FakeDevice(launch_s=0.5, clock_hz=1000.0)
    device.spin(8000)
    assert device.host_s() == 0.5


def test_a_stamp_behind_unfinished_work_is_not_reached():
    device = FakeDevice()
    device.work(1.0)
    assert not device.reached(device.stamp())


def test_a_stamp_in_front_of_unfinished_work_is_reached():
    device = FakeDevice()
    stamp = device.stamp()
    device.work(1.0)
    assert device.reached(stamp)


def test_a_stamp_is_reached_when_the_host_has_taken_as_long():
    device = FakeDevice()
    device.work(1.0)
    stamp = device.stamp()
    device.pass_time(1.0)
    assert device.reached(stamp)


def test_a_stamp_is_reached_after_waiting():
    device = FakeDevice()
    device.work(1.0)
    stamp = device.stamp()
    device.synchronize()
    assert device.reached(stamp)


def test_asking_does_not_wait():
    device = FakeDevice()
    device.work(1.0)
    device.reached(device.stamp())
    assert device.host_s() == 0.0


def test_reading_waits_for_the_later_stamp_alone():
    device = FakeDevice()
    start = device.stamp()
    device.work(1.0)
    end = device.stamp()
    device.work(8.0)
    device.elapsed_s(start, end)
    assert device.host_s() == 1.0


def test_waiting_lasts_until_everything_is_done():
    device = FakeDevice(launch_s=0.5)
    works(device, 1.0, 1.0)
    device.synchronize()
    assert device.host_s() == 2.5


def test_waiting_for_an_idle_device_takes_no_time():
    device = FakeDevice()
    device.work(1.0)
    device.pass_time(8.0)
    device.synchronize()
    assert device.host_s() == 8.0


def test_causes_are_scripted_by_the_seconds_that_it_was_busy():
    device = FakeDevice(throttle=lambda busy_s: frozenset({THERMAL} if busy_s >= 1 else ()))
    device.pass_time(8.0)
    before = device.counters().active
    device.work(1.0)
    assert (before, device.counters().active) == (frozenset(), {THERMAL})


def test_a_device_that_does_not_tell_its_throttling_is_unknown():
    assert FakeDevice(throttle=None).counters().active is None


def test_seconds_of_a_cause_are_the_busy_ones_while_it_was_active():
    device = FakeDevice(throttle=lambda busy_s: frozenset({BRAKE} if busy_s < 2 else ()))
    works(device, 1.0, 1.0, 1.0)
    assert device.counters().seconds == {BRAKE: 2.0}


def test_questions_take_the_host_as_long_as_scripted_while_the_device_idles():
    device = FakeDevice(counters_s=0.1)
    device.counters()
    assert (device.host_s(), device.busy_s) == (0.1, 0.0)


def test_neighbours_are_as_scripted():
    for others_bytes, others_busy in [(0, 0.0), (MIB, 0.5), (None, None)]:
        counters = FakeDevice(others_bytes=others_bytes, others_busy=others_busy).counters()
        assert (counters.others_bytes, counters.others_busy) == (others_bytes, others_busy)


def test_a_fake_has_no_scheduler():
    assert FakeDevice().counters() == Counters(active=frozenset(), others_bytes=0, others_busy=0.0, preemptions=None)


@pytest.fixture
def caching():
    """A device with a cache of 100 bytes; a touch of a cached buffer takes half as long."""
    device = FakeDevice(tick_s=TICK, cache_bytes=100)
    device.touch = lambda buffer, size_bytes: span_of(device, lambda: device.work(1.0, buffer, size_bytes, cached=0.5))
    return device


def test_the_first_touch_comes_from_memory(caching):
    assert caching.touch("a", 10) == 1.0


def test_the_second_touch_comes_from_the_cache(caching):
    caching.touch("a", 10)
    assert caching.touch("a", 10) == 0.5


@pytest.mark.parametrize(("others_bytes", "seconds"), [(90, 0.5), (100, 1.0)])
def test_a_buffer_has_left_the_cache_once_so_many_bytes_were_touched(caching, others_bytes, seconds):
    caching.touch("a", 10)
    caching.touch("b", others_bytes)
    assert caching.touch("a", 10) == seconds


def test_many_small_buffers_evict_as_one_large_does(caching):
    caching.touch("a", 10)
    for number in range(10):
        caching.touch(number, 10)
    assert caching.touch("a", 10) == 1.0


def test_touching_one_buffer_again_and_again_evicts_no_other(caching):
    caching.touch("a", 10)
    for _ in range(20):
        caching.touch("b", 40)
    assert caching.touch("a", 10) == 0.5


def test_the_least_recently_touched_leaves_first(caching):
    for buffer in ("a", "b", "a", "c"):
        caching.touch(buffer, 40)
    assert (caching.touch("a", 40), caching.touch("b", 40)) == (0.5, 1.0)


def test_a_buffer_larger_than_the_cache_is_never_in_it(caching):
    caching.touch("a", 101)
    assert caching.touch("a", 101) == 1.0


def test_work_without_a_buffer_has_no_cache(caching):
    assert [span_of(caching, lambda: caching.work(1.0, cached=0.5)) for _ in range(2)] == [1.0, 1.0]


@pytest.mark.parametrize(("flush_bytes", "seconds"), [(200, 1.0), (50, 0.5)])
def test_a_flush_evicts_what_it_is_large_enough_for(caching, flush_bytes, seconds):
    caching.touch("a", 10)
    caching.flusher(flush_bytes)()
    assert caching.touch("a", 10) == seconds


def test_a_flush_after_a_flush_still_evicts(caching):
    flush = caching.flusher(200)
    flush()
    caching.touch("a", 10)
    flush()
    assert caching.touch("a", 10) == 1.0


def test_making_a_flusher_evicts_nothing(caching):
    caching.touch("a", 10)
    caching.flusher(200)
    assert caching.touch("a", 10) == 0.5


def test_a_flush_takes_as_long_as_its_bytes_written_and_read():
    device = FakeDevice()
    device.flusher(3 * 10**9)()
    assert device.clock_s == pytest.approx(2e-3)


def test_a_driver_may_report_another_cache_than_there_is():
    for architecture, told_bytes in [("gfx90a", 4 * MIB), ("gfx942", 256 * MIB)]:
        device = FakeDevice(cache_bytes=256 * MIB, reported_cache_bytes=4 * MIB, architecture=architecture)
        assert device.facts().last_level_cache_bytes == told_bytes, (architecture, told_bytes)


def test_a_driver_reports_the_cache_that_there_is_unless_told_otherwise():
    assert FakeDevice(cache_bytes=30 * MIB).facts().last_level_cache_bytes == 30 * MIB


def test_a_skewed_rank_starts_later_by_as_much():
    device = FakeDevice(skew_s=2.0)
    device.work(1.0)
    assert (device.host_s(), device.clock_s) == (2.0, 3.0)


def test_a_reversed_reading_has_the_other_sign():
    device = FakeDevice(tick_s=TICK, reading="reversed")
    assert span_of(device, lambda: device.work(1.0)) == -1.0


def test_a_hanging_reading_never_answers():
    device = FakeDevice(reading="hanging")
    start, end = device.stamp(), device.stamp()
    with pytest.raises(TimeoutError):
        within(0.01, lambda: device.elapsed_s(start, end))
    device.let_go()


def test_a_hanging_reading_answers_when_let_go():
    device = FakeDevice(tick_s=TICK, reading="hanging")
    device.let_go()
    assert span_of(device, lambda: device.work(1.0)) == 1.0


def test_nothing_runs_before_the_first_replay():
    device = FakeDevice(launch_s=0.5)
    device.capture(lambda: works(device, 1.0, 2.0))
    assert (device.works, device.clock_s, device.host_s()) == (0, 0.0, 0.0)


def test_a_replay_runs_everything_captured_without_gaps():
    device = FakeDevice(launch_s=8.0)
    device.capture(lambda: works(device, 1.0, 2.0))()
    assert (device.clock_s, device.works, device.busy_s) == (11.0, 2, 3.0)


def test_a_replay_costs_the_host_one_launch():
    device = FakeDevice(launch_s=0.5)
    device.capture(lambda: works(device, 1.0, 2.0, 3.0))()
    assert device.host_s() == 0.5


def test_a_replay_is_one_entry_of_the_queue():
    device = FakeDevice(queue_depth=2)
    replay = device.capture(lambda: works(device, 1.0, 2.0, 3.0))
    replay(), replay()
    assert device.host_s() == 0.0


def test_a_replay_may_be_repeated():
    device = FakeDevice()
    replay = device.capture(lambda: device.work(1.0))
    replay(), replay()
    assert (device.works, device.clock_s) == (2, 2.0)


def test_a_replay_runs_by_the_clock_and_the_cache_of_its_own_moment():
    device = FakeDevice(tick_s=TICK, clock=lambda busy_s: 1.0 if busy_s < 1 else 0.5)
    replay = device.capture(lambda: device.work(1.0, "a", 10, cached=0.25))
    assert [span_of(device, replay) for _ in range(2)] == [1.0, 0.5]


def test_an_empty_replay_takes_no_time_on_the_device():
    device = FakeDevice(tick_s=TICK)
    assert span_of(device, device.capture(lambda: None)) == 0.0


def test_the_first_replay_uploads_every_node():
    device = FakeDevice(tick_s=TICK, graph_upload_s=0.25)
    replay = device.capture(lambda: works(device, 1.0, 2.0))
    assert [span_of(device, replay) for _ in range(2)] == [3.5, 3.0]


def test_the_gap_between_launches_is_not_between_the_nodes_of_a_graph():
    device = FakeDevice(tick_s=TICK, launch_gap_s=0.25)
    assert span_of(device, lambda: works(device, 1.0, 2.0)) == 3.5
    assert span_of(device, device.capture(lambda: works(device, 1.0, 2.0))) == 3.0


def test_a_capture_may_fail_and_what_comes_after_runs():
    device = FakeDevice(capture_fails=True)
    with pytest.raises(RuntimeError, match="not permitted"):
        device.capture(lambda: device.work(1.0))
    device.work(2.0)
    assert device.clock_s == 2.0


def test_the_clock_rises_in_a_straight_line_with_the_work_of_the_ramp():
    device = FakeDevice(tick_s=TICK, clock_ramp_s=1.0, clock_hz=1980.0)
    assert device._clock(0.0) == pytest.approx(345 / 1980)
    assert [device._clock(busy_s) for busy_s in (1.0, 5.0)] == [1.0, 1.0]
    assert device._clock(0.5) == pytest.approx((1 + 345 / 1980) / 2)


def test_what_stays_dirty_in_the_cache_is_paid_by_whoever_evicts_it():
    # Half of 100 bytes may stay: a copy of 40 writes 20 of its 40 that it never pays for; the next ones do.
    device = FakeDevice(tick_s=TICK, cache_bytes=100, dirty_share=0.5)
    copy = lambda: device.work(4.0, "copy", 40, written_bytes=20)  # noqa: E731
    read = lambda: device.work(4.0, "read", 40)  # noqa: E731
    assert [span_of(device, call) for call in (copy, read, read)] == [2.0, 6.0, 4.0]


def test_the_power_cap_takes_the_clock_down_in_proportion_while_work_draws_more():
    device = FakeDevice(tick_s=TICK, power_cap_w=700.0, clock_hz=1000.0)
    assert span_of(device, lambda: device.work(1.0, watts=1000.0)) == pytest.approx(1 / 0.7, abs=2 * TICK)
    assert device.counters().active == {POWER_CAP}
    assert span_of(device, lambda: device.spin(700)) == pytest.approx(1.0, abs=2 * TICK)
    assert span_of(device, lambda: device.work(1.0, watts=300.0)) == 1.0
    assert device.counters().active == frozenset()


def test_nvmls_first_account_holds_what_the_driver_keeps_back_and_its_second_does_not():
    device = FakeDevice(driver_bytes=900, context_bytes=50, others_bytes=7)
    device.allocate(3)
    assert device.memory_accounts() == (960, 60)


def test_work_after_a_capture_runs_at_once():
    device = FakeDevice()
    device.capture(lambda: device.work(1.0))
    device.work(2.0)
    assert device.clock_s == 2.0


def test_work_after_a_capture_that_failed_runs_at_once():
    device = FakeDevice()
    with pytest.raises(ZeroDivisionError):
        device.capture(lambda: (device.work(1.0), 1 / 0))
    device.work(2.0)
    assert device.clock_s == 2.0


def test_a_device_vanishes_after_so_many_stamps():
    device = FakeDevice(vanish_after=2)
    device.stamp(), device.stamp()
    with pytest.raises(RuntimeError, match="fell off the bus"):
        device.stamp()


def test_a_device_that_vanished_does_not_come_back():
    device = FakeDevice(vanish_after=0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="fell off the bus"):
            device.stamp()


def allocating(device, *sizes):
    """A call that holds so much more after each step; negative gives back."""
    return lambda: [device.allocate(size) for size in sizes]


def test_the_peak_is_the_most_held_at_once_above_what_was_held_before():
    for sizes, peak in [((), 0), ((3,), 3), ((3, -3, 2), 3), ((3, 2), 5), ((3, -1, 2), 4), ((-8, 1), 0), ((-8, 10), 2)]:
        device = FakeDevice()
        device.allocate(8)
        assert device.peak_bytes(allocating(device, *sizes)) == peak, (sizes, peak)


def test_the_peak_of_one_call_is_not_that_of_an_earlier_one():
    device = FakeDevice()
    device.peak_bytes(allocating(device, 100, -100))
    assert device.peak_bytes(allocating(device, 3, -3)) == 3


def test_a_fake_can_do_everything_unless_told_otherwise():
    traits = FakeDevice(tick_s=1e-6).traits
    assert (traits.tick_s, traits.queues, traits.spins, traits.spin_is_clock, traits.graphs) == (1e-6, *[True] * 4)


def test_a_fake_can_do_no_more_than_it_was_given():
    traits = Traits(tick_s=1e-6, shortest_span_s=5e-3, watchdog_s=0.1)
    assert FakeDevice(traits=traits).traits == traits


def test_two_fakes_are_never_the_same_device():
    # The calibration of one must not be taken for that of the other.
    assert len({FakeDevice(), FakeDevice()}) == 2


@pytest.mark.parametrize(
    ("throttle", "found"),
    [
        (lambda busy_s: frozenset({THERMAL}), True),
        (lambda busy_s: frozenset({THERMAL} if busy_s % 1 > 0.8 else ()), False),
        (lambda busy_s: frozenset({POWER_CAP}), False),
    ],
    ids=["always hot", "hot at times", "at its power cap"],
)
def test_a_device_that_is_hot_for_most_of_a_measurement_is_degraded_by_it(make, throttle, found):
    device = FakeDevice(tick_s=TICK, throttle=throttle)
    engine = Engine(device, Plan(fn=lambda: device.work(1e-3), sets=[()], budget_s=5.0))
    engine.run()
    findings = degraded(device.gpu(), device.gpu(), [make.measurement(samples=engine.samples())])
    assert found == any(THERMAL in finding.observed for finding in findings)


def test_no_management_library_knows_a_device_unless_told():
    assert FakeDevice().gpu() is None


def test_what_is_told_of_a_device_is_known_and_the_rest_is_not():
    device = FakeDevice("NVIDIA T4", driver="550", gpu={"power_limit_w": 60, "power_default_w": 70})
    assert device.gpu() == Gpu(0, "NVIDIA T4", "GPU-fake", driver="550", power_limit_w=60, power_default_w=70)


def test_what_is_told_of_a_device_may_come_from_json():
    told = json.loads('{"index": 3, "product": "NVIDIA T4", "links": 0, "active": ["power brake"]}')
    gpu = FakeDevice(gpu=told).gpu()
    assert (3, "NVIDIA T4", 0, ("power brake",)) == (gpu.index, gpu.product, gpu.links, gpu.active)


def test_what_is_told_of_a_device_may_change_while_it_runs():
    device = FakeDevice(gpu={"ecc_errors": 0})
    before = device.gpu()
    device.told["ecc_errors"] = 2
    assert (0, 2) == (before.ecc_errors, device.gpu().ecc_errors)
