"""The timing engine on a device with scripted clocks."""

import gc
import itertools
import math
from dataclasses import replace
from statistics import median

import pytest

from pytest_roofline.core.errors import DeviceError
from pytest_roofline.engine.calibration import calibrate
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.log import median_half_width
from pytest_roofline.engine.sizing import TICKS_PER_SAMPLE
from pytest_roofline.engine.timing import Engine, Plan

# Powers of two, so that scripted times add up without rounding.
TICK_S = 2.0**-30
CALL_S = 2.0**-12
# An engine that does not end must fail its test, not hang the run.
MOST_CALLS = 1_000_000


class Runaway(AssertionError):
    """The engine called a function more often than any sensible plan would."""


def limited(fn):
    """`fn`, but it stops the engine after MOST_CALLS calls."""
    calls = itertools.count()

    def call(*arguments):
        if next(calls) >= MOST_CALLS:
            raise Runaway(f"still calling after {MOST_CALLS} calls")
        return fn(*arguments)

    return call


def engine_for(device, seconds=CALL_S, **plan):
    """An engine that times a function of so many scripted seconds."""
    chosen = {"fn": limited(lambda *_: device.work(seconds)), "sets": [()], "budget_s": 1.0, **plan}
    return Engine(device, Plan(**chosen))


def timed(device, seconds=CALL_S, **plan):
    """The engine after its run."""
    engine = engine_for(device, seconds, **plan)
    engine.run()
    return engine


def test_samples_equal_the_scripted_duration_exactly():
    engine = timed(FakeDevice(tick_s=TICK_S))
    assert {CALL_S} == set(engine.log.seconds)


def test_a_sample_is_the_mean_of_its_calls():
    device = FakeDevice(tick_s=TICK_S, slowdown=lambda number: 1.0 + 2 * (number % 2))
    engine = timed(device, seconds=2.0**-20)
    assert pytest.approx(median(engine.log.seconds), rel=1e-2) == 2 * 2.0**-20


def test_calls_are_those_of_the_warm_up_and_of_the_samples():
    device = FakeDevice(tick_s=TICK_S)
    engine = timed(device)
    log = engine.log
    assert device.works == log.warmup_iterations + log.iterations * len(log.seconds)


def test_the_warm_up_is_not_among_the_samples():
    device = FakeDevice(tick_s=TICK_S)
    engine = timed(device)
    slow = FakeDevice(tick_s=TICK_S, slowdown=lambda number: 64.0 if number < 10 else 1.0)
    assert set(engine.log.seconds) == set(timed(slow).log.seconds)


def test_the_warm_up_makes_at_least_twenty_calls():
    engine = timed(FakeDevice(tick_s=TICK_S), seconds=2.0**-8)
    assert engine.log.warmup_iterations >= 20


def test_the_warm_up_lasts_a_tenth_of_a_second():
    engine = timed(FakeDevice(tick_s=TICK_S))
    assert engine.log.warmup_s >= 0.1


def test_a_small_budget_leaves_time_to_measure():
    engine = timed(FakeDevice(tick_s=TICK_S), budget_s=0.1)
    assert engine.log.measuring_s >= 0.01


def test_warm_up_and_measuring_share_the_budget():
    device = FakeDevice(tick_s=TICK_S, slowdown=lambda number: 1.0 + number * 37 % 11)
    log = timed(device, seconds=2.0**-9).log
    longest_block_s = max(
        wall_s * block.samples * log.iterations for wall_s, block in ((kept.wall_s, kept.block) for kept in log.kept)
    )
    assert 1.0 <= log.warmup_s - 2.0**-9 + log.measuring_s <= 1.0 + longest_block_s


def test_the_record_carries_the_warm_up():
    engine = timed(FakeDevice(tick_s=TICK_S))
    samples = engine.samples()
    assert (engine.log.warmup_iterations, engine.log.warmup_s) == (samples.warmup_iterations, samples.warmup_s)


def test_the_record_says_how_long_measuring_took():
    log = timed(FakeDevice(tick_s=TICK_S)).log
    walls_s = [
        wall_s * block.samples * log.iterations for wall_s, block in ((kept.wall_s, kept.block) for kept in log.kept)
    ]
    assert math.fsum(walls_s) == pytest.approx(log.measuring_s)


def test_an_outlier_stays_among_the_samples():
    device = FakeDevice(tick_s=TICK_S, slowdown=lambda number: 1000.0 if number == 800 else 1.0)
    engine = timed(device)
    log = engine.log
    assert (999 + log.iterations) * CALL_S / log.iterations == max(log.seconds)


def test_samples_keep_the_order_in_which_they_were_taken():
    device = FakeDevice(tick_s=TICK_S, slowdown=lambda number: 1.0 + number / 1000)
    engine = timed(device, seconds=2.0**-7)
    assert sorted(engine.log.seconds) == engine.log.seconds


def test_a_sample_of_a_short_function_spans_two_hundred_ticks():
    for tick_s in [2.0**-30, 2.0**-24, 2.0**-20]:
        engine = timed(FakeDevice(tick_s=tick_s), seconds=2.0**-18, budget_s=0.1)
        assert all(sample * engine.log.iterations >= TICKS_PER_SAMPLE * tick_s for sample in engine.log.seconds)


def test_batches_make_a_short_function_resolved():
    engine = timed(FakeDevice(tick_s=2.0**-20), seconds=2.0**-18, budget_s=0.1)
    assert "unresolved" not in engine.log.labels


def test_a_function_much_shorter_than_a_tick_is_timed_by_batches():
    engine = timed(FakeDevice(tick_s=2.0**-20), seconds=2.0**-26, budget_s=2.0**-10)
    assert pytest.approx(median(engine.log.seconds), rel=1 / TICKS_PER_SAMPLE) == 2.0**-26


def test_a_device_may_ask_for_longer_spans_than_its_ticks_need():
    device = FakeDevice(tick_s=TICK_S)
    device.traits = replace(device.traits, shortest_span_s=2.0**-4)
    engine = timed(device)
    assert engine.log.iterations * CALL_S >= 2.0**-4


def test_a_slow_first_call_does_not_shrink_the_samples():
    # A kernel that compiles in its first call: seconds once, microseconds ever after.
    device = FakeDevice(tick_s=2.0**-20, slowdown=lambda number: 2.0**20 if number == 0 else 1.0)
    engine = timed(device, seconds=2.0**-18)
    spans = [sample * engine.log.iterations for sample in engine.log.seconds]
    assert min(spans) >= TICKS_PER_SAMPLE * 2.0**-20 * 0.99


@pytest.mark.parametrize("compile_s", [0.5, 4.0])
def test_a_slow_first_call_does_not_use_up_the_warm_up(compile_s):
    # measuring.md, section 1: a floor of a tenth of a second or twenty calls, and a compilation is neither.
    device = FakeDevice(tick_s=TICK_S, slowdown=lambda number: compile_s / CALL_S if number == 0 else 1.0)
    assert timed(device).log.warmup_iterations >= 20


def test_a_sample_that_turns_out_too_short_for_the_clock_is_never_silent():
    # Clocks rise after the warm-up: the batch that was planned is now too short.
    device = FakeDevice(tick_s=2.0**-20, slowdown=lambda number: 100.0 if number < 300 else 1.0)
    engine = timed(device, seconds=2.0**-17)
    resolved = all(
        sample * engine.log.iterations >= TICKS_PER_SAMPLE * 2.0**-20 * 0.99 for sample in engine.log.seconds
    )
    assert resolved or "unresolved" in engine.log.labels


def test_a_flushed_call_below_two_hundred_ticks_is_unresolved():
    engine = timed(FakeDevice(tick_s=2.0**-20), seconds=2.0**-15, flush=lambda: None)
    assert "unresolved" in engine.log.labels


def test_a_flushed_call_of_two_hundred_ticks_is_resolved():
    engine = timed(FakeDevice(tick_s=2.0**-20), seconds=256 * 2.0**-20, flush=lambda: None)
    assert "unresolved" not in engine.log.labels


def test_a_flush_goes_before_every_sampled_call():
    device, order = FakeDevice(tick_s=TICK_S), []

    def fn():
        order.append("call")
        device.work(2.0**-7)

    samples = timed(device, fn=fn, flush=lambda: order.append("flush")).samples()
    assert ["flush", "call"] * len(samples.seconds) == order[-2 * len(samples.seconds) :]


def test_a_flushed_sample_is_one_call():
    assert timed(FakeDevice(tick_s=TICK_S), flush=lambda: None).log.iterations == 1


def test_the_time_of_a_flush_is_not_in_the_samples():
    device = FakeDevice(tick_s=TICK_S)
    engine = timed(device, seconds=2.0**-8, flush=lambda: device.work(2.0**-6))
    assert {2.0**-8} == set(engine.log.seconds)


def test_flushes_count_against_the_budget():
    device = FakeDevice(tick_s=TICK_S)
    log = timed(device, seconds=2.0**-14, flush=lambda: device.work(2.0**-6)).log
    assert log.warmup_s + log.measuring_s <= 1.0 + log.kept[-1].wall_s * log.blocks[-1].samples


def test_a_slow_flush_leaves_time_for_five_blocks():
    device = FakeDevice(tick_s=TICK_S)
    log = timed(device, seconds=2.0**-14, flush=lambda: device.work(2.0**-6)).log
    assert len(log.blocks) >= 5


def idle(flush):
    """The engine after it timed a function that keeps the host busy and submits nothing."""
    device = FakeDevice(tick_s=2.0**-20)
    return timed(device, fn=limited(lambda: device.pass_time(2.0**-20)), budget_s=2.0**-6, flush=flush)


def test_a_function_without_work_for_the_device_ends():
    for flush in [None, lambda: None]:
        assert idle(flush).log.seconds, flush


def test_a_function_without_work_for_the_device_is_unresolved():
    for flush in [None, lambda: None]:
        assert "unresolved" in idle(flush).log.labels, flush


def test_a_function_that_moves_no_clock_at_all_ends():
    for flush in [None, lambda: None]:
        engine = timed(FakeDevice(tick_s=TICK_S), seconds=0.0, flush=flush)
        assert "unresolved" in engine.samples().labels, flush


def test_a_precise_median_stops_early():
    log = timed(FakeDevice(tick_s=TICK_S), budget_s=8.0).log
    assert log.warmup_s + log.measuring_s < 2.0


def test_an_imprecise_median_does_not_stop_early():
    device = FakeDevice(tick_s=TICK_S, slowdown=lambda number: 1.0 + number * 37 % 11)
    log = timed(device, seconds=2.0**-7).log
    assert log.warmup_s + log.measuring_s >= 1.0


def test_whoever_stops_early_knows_the_median():
    device = FakeDevice(tick_s=TICK_S, slowdown=lambda number: 1.0 + (number * 37 % 11) / 500)
    log = timed(device, seconds=2.0**-8).log
    assert log.warmup_s + log.measuring_s < 1.0
    assert median_half_width(log.counted()) <= device.traits.precision


def test_a_budget_that_runs_out_before_the_median_is_known_is_noisy():
    device = FakeDevice(tick_s=TICK_S, slowdown=lambda number: 1.0 + number * 37 % 11)
    assert "noisy" in timed(device, seconds=2.0**-7).samples().labels


def test_a_precise_median_is_not_noisy():
    assert timed(FakeDevice(tick_s=TICK_S)).samples().labels == ()


def test_a_function_slower_than_the_budget_gives_one_sample():
    engine = timed(FakeDevice(tick_s=TICK_S), seconds=8.0)
    assert engine.log.seconds == [8.0]


def test_a_function_slower_than_the_budget_is_called_twice_in_all():
    device = FakeDevice(tick_s=TICK_S)
    timed(device, seconds=8.0)
    assert device.works == 2


def test_a_function_slower_than_the_budget_is_noisy():
    assert "noisy" in timed(FakeDevice(tick_s=TICK_S), seconds=8.0).log.labels


def test_the_garbage_collector_is_off_in_every_call():
    device, states = FakeDevice(tick_s=TICK_S), set()

    def fn():
        states.add(gc.isenabled())
        device.work(2.0**-7)

    timed(device, fn=fn)
    assert {False} == states


def test_the_garbage_collector_is_on_again_after_a_run():
    timed(FakeDevice(tick_s=TICK_S), seconds=2.0**-7)
    assert gc.isenabled()


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
def test_the_garbage_collector_is_on_again_after_an_exception(error):
    def fn():
        raise error

    with pytest.raises(error):
        timed(FakeDevice(tick_s=TICK_S), fn=fn)
    assert gc.isenabled()


def test_a_garbage_collector_that_was_off_stays_off():
    gc.disable()
    try:
        timed(FakeDevice(tick_s=TICK_S), seconds=2.0**-7)
        assert not gc.isenabled()
    finally:
        gc.enable()


def interrupted(error, after):
    """An engine whose function raised after so many calls."""
    device = FakeDevice(tick_s=TICK_S)

    def fn():
        if device.works == after:
            raise error
        device.work(2.0**-8)

    engine = engine_for(device, fn=fn)
    with pytest.raises(type(error)):
        engine.run()
    return engine


def test_samples_taken_before_an_exception_are_kept():
    for error in [RuntimeError("out of memory"), KeyboardInterrupt()]:
        engine = interrupted(error, after=60)
        log = engine.log
        made, block = 60 - log.warmup_iterations, log.blocks[0].samples
        # The block that broke is lost, and no other.
        assert made - made % block == len(engine.samples().seconds) * log.iterations, error


def test_an_exception_in_the_first_call_leaves_no_record():
    assert interrupted(RuntimeError("out of memory"), after=0).samples() is None


def test_an_exception_in_the_warm_up_leaves_no_record():
    assert interrupted(RuntimeError("out of memory"), after=5).samples() is None


def test_an_exception_of_the_function_is_raised_as_it_is():
    error = RuntimeError("out of memory")

    def fn():
        raise error

    with pytest.raises(RuntimeError) as caught:
        timed(FakeDevice(tick_s=TICK_S), fn=fn)
    assert caught.value is error


def test_a_device_that_vanishes_is_named():
    with pytest.raises(DeviceError, match="fake stopped answering: the device fell off the bus"):
        timed(FakeDevice(tick_s=TICK_S, vanish_after=100), seconds=2.0**-8)


def test_samples_taken_before_a_device_vanished_are_kept():
    device = FakeDevice(tick_s=TICK_S, slowdown=lambda number: 1.0 + number * 37 % 11)
    device.traits = replace(device.traits, graphs=False)
    complete = timed(device, seconds=2.0**-11).log.seconds
    dying = FakeDevice(tick_s=TICK_S, slowdown=lambda number: 1.0 + number * 37 % 11, vanish_after=device.stamps - 10)
    dying.traits = device.traits
    engine = engine_for(dying, seconds=2.0**-11)
    with pytest.raises(DeviceError):
        engine.run()
    kept = engine.samples().seconds
    assert 0 < len(kept) < len(complete)
    assert list(kept) == complete[: len(kept)]


def test_a_device_that_vanishes_in_a_flush_is_named():
    device = FakeDevice(tick_s=TICK_S)

    def flush():
        if device.works == 50:
            raise RuntimeError("the device fell off the bus")

    with pytest.raises(DeviceError, match="fake stopped answering: the device fell off the bus"):
        timed(device, seconds=2.0**-8, flush=flush)


class BrokenWait(FakeDevice):
    """A device that fails when waited for."""

    def synchronize(self):
        raise RuntimeError("unspecified launch failure")

    def elapsed_s(self, start, end):
        raise RuntimeError("unspecified launch failure")


def test_a_device_that_fails_in_the_wait_is_named():
    for timing in ["device", "wall"]:
        with pytest.raises(DeviceError, match="fake stopped answering: unspecified launch failure"):
            timed(BrokenWait(tick_s=TICK_S), seconds=2.0**-8, timing=timing)


def rotation(sets, seconds=2.0**-8, **plan):
    """The engine and the sets it called, in order, without a graph."""
    device, called = FakeDevice(tick_s=TICK_S), []

    def fn(name):
        called.append(name)
        device.work(seconds)

    device.traits = replace(device.traits, graphs=False)
    engine = timed(device, fn=limited(fn), sets=[(name,) for name in sets], **plan)
    return engine, called


def test_rotation_goes_through_all_sets_in_turn_and_never_starts_over():
    _, called = rotation("abcdefg")
    assert list(itertools.islice(itertools.cycle("abcdefg"), len(called))) == called


def test_rotation_carries_its_position_from_one_batch_to_the_next():
    engine, called = rotation("abcdefg", seconds=2.0**-14)
    assert engine.log.iterations > 1
    assert list(itertools.islice(itertools.cycle("abcdefg"), len(called))) == called


def test_every_set_that_was_called_counts_as_touched():
    engine, _ = rotation("abc")
    assert list(engine.calls.touched) == [("a",), ("b",), ("c",)]


def test_a_set_whose_turn_never_came_does_not_count_as_touched():
    engine, called = rotation(range(1000), seconds=2.0**-5)
    assert [(name,) for name in called] == list(engine.calls.touched)


def test_after_an_exception_no_set_counts_as_touched_that_was_not_called():
    device, called = FakeDevice(tick_s=TICK_S), []

    def fn(name):
        called.append((name,))
        if len(called) == 3:
            raise RuntimeError
        device.work(2.0**-8)

    engine = engine_for(device, fn=fn, sets=[(name,) for name in range(10)])
    with pytest.raises(RuntimeError):
        engine.run()
    assert set(engine.calls.touched) <= set(called)


def test_the_record_says_how_many_sets_there_were():
    engine, _ = rotation("abc")
    assert engine.samples().argument_sets == 3


class LaggingHost(FakeDevice):
    """A device whose host's clock runs at half the speed of its own."""

    def host_s(self):
        return super().host_s() / 2


def test_device_timing_reads_the_devices_stamps():
    assert {2.0**-8} == set(timed(LaggingHost(tick_s=TICK_S), seconds=2.0**-8).log.seconds)


def test_wall_timing_reads_the_hosts_clock():
    engine = timed(LaggingHost(tick_s=TICK_S), seconds=2.0**-8, timing="wall")
    assert engine.log.seconds == pytest.approx([2.0**-9] * len(engine.log.seconds))


def test_wall_timing_takes_no_stamps():
    device = FakeDevice(tick_s=TICK_S)
    calibrate(device)
    taken = device.stamps
    timed(device, seconds=2.0**-8, timing="wall")
    assert device.stamps == taken


def test_wall_timing_waits_for_the_work_before_it_reads_the_clock():
    assert {2.0**-8} == set(timed(FakeDevice(tick_s=TICK_S), seconds=2.0**-8, timing="wall").log.seconds)
