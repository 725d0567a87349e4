"""The timing engine on a device with scripted clocks: examples, and what holds for every duration, clock and budget."""

import gc
import itertools
import math
from dataclasses import replace
from statistics import median

import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from pytest_roofline.core.errors import DeviceError
from pytest_roofline.engine.blocks.taking import is_known, median_half_width
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.sizing.calibration import calibrate
from pytest_roofline.engine.sizing.stopwatch import TICKS_PER_SAMPLE
from pytest_roofline.engine.timing import Engine, Plan

# Powers of two, so that scripted times add up without rounding.
TICK_S, CALL_S = 2.0**-30, 2.0**-12
# An engine that does not end must fail its test, not hang the run.
MOST_CALLS = 1_000_000


def limited(fn):
    """`fn`, but it stops the engine after MOST_CALLS calls."""
    calls = itertools.count()

    def call(*arguments):
        assert next(calls) < MOST_CALLS, f"still calling after {MOST_CALLS} calls"
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


def restless(number):
    """Factors on durations that make no median known."""
    return 1.0 + number * 37 % 11


def walls_s(log):
    """Host seconds of every block."""
    return [kept.wall_s * kept.block.samples * log.iterations for kept in log.timed_blocks]


def test_samples_equal_the_scripted_duration_and_the_record_says_how_they_were_taken():
    device = FakeDevice(tick_s=TICK_S)
    log, samples = (engine := timed(device)).log, engine.samples()
    assert (set(samples.seconds), samples.labels) == ({CALL_S}, ())
    assert (samples.warmup_iterations, samples.warmup_s) == (log.warmup_iterations, log.warmup_s)
    # A tenth of a second and twenty calls.
    assert (log.warmup_iterations >= 20, log.warmup_s >= 0.1) == (True, True)
    assert math.fsum(walls_s(log)) == pytest.approx(samples.measuring_s)
    assert timed(FakeDevice(tick_s=TICK_S), seconds=2.0**-8).log.warmup_iterations >= 20


def test_a_sample_is_the_mean_of_its_calls():
    device = FakeDevice(tick_s=TICK_S, slowdown=lambda number: 1.0 + 2 * (number % 2))
    assert median(timed(device, seconds=2.0**-20).log.seconds) == pytest.approx(
        2 * 2.0**-20, rel=1e-2
    )


def test_what_the_warm_up_sees_is_not_among_the_samples_and_an_outlier_behind_it_is():
    slow = FakeDevice(tick_s=TICK_S, slowdown=lambda number: 64.0 if number < 10 else 1.0)
    assert set(timed(slow).log.seconds) == {CALL_S}
    log = timed(
        FakeDevice(tick_s=TICK_S, slowdown=lambda number: 1000.0 if number == 800 else 1.0)
    ).log
    assert max(log.seconds) == (999 + log.iterations) * CALL_S / log.iterations
    rising = timed(
        FakeDevice(tick_s=TICK_S, slowdown=lambda number: 1.0 + number / 1000), seconds=2.0**-7
    )
    assert sorted(rising.log.seconds) == rising.log.seconds


def test_warm_up_and_measuring_share_the_budget_and_a_small_one_leaves_time_to_measure():
    log = timed(FakeDevice(tick_s=TICK_S, slowdown=restless), seconds=2.0**-9).log
    assert 1.0 <= log.warmup_s - 2.0**-9 + log.measuring_s <= 1.0 + max(walls_s(log))
    assert timed(FakeDevice(tick_s=TICK_S), budget_s=0.1).log.measuring_s >= 0.01


def test_a_sample_of_a_short_function_spans_two_hundred_ticks():
    for tick_s in [2.0**-30, 2.0**-20]:
        engine = timed(FakeDevice(tick_s=tick_s), seconds=2.0**-18, budget_s=0.1)
        assert min(engine.log.seconds) * engine.log.iterations >= TICKS_PER_SAMPLE * tick_s, tick_s
        assert "unresolved" not in engine.log.labels, tick_s
    # Much shorter than a tick, by batches.
    engine = timed(FakeDevice(tick_s=2.0**-20), seconds=2.0**-26, budget_s=2.0**-10)
    assert median(engine.log.seconds) == pytest.approx(2.0**-26, rel=1 / TICKS_PER_SAMPLE)
    # A device may ask for longer spans than its ticks need.
    device = FakeDevice(tick_s=TICK_S)
    device.traits = replace(device.traits, shortest_span_s=2.0**-4)
    assert timed(device).log.iterations * CALL_S >= 2.0**-4


def test_a_slow_first_call_neither_shrinks_the_samples_nor_uses_up_the_warm_up():
    # A kernel that compiles in its first call: seconds once, microseconds ever after.
    device = FakeDevice(tick_s=2.0**-20, slowdown=lambda number: 2.0**20 if number == 0 else 1.0)
    log = timed(device, seconds=2.0**-18).log
    assert min(log.seconds) * log.iterations >= TICKS_PER_SAMPLE * 2.0**-20 * 0.99
    for compile_s in (0.5, 4.0):
        factor = compile_s / CALL_S
        device = FakeDevice(
            tick_s=TICK_S, slowdown=lambda number, factor=factor: factor if number == 0 else 1.0
        )
        assert timed(device).log.warmup_iterations >= 20, compile_s


def test_a_sample_that_turns_out_too_short_for_the_clock_is_never_silent():
    # Clocks rise after the warm-up: the batch that was planned is now too short.
    device = FakeDevice(tick_s=2.0**-20, slowdown=lambda number: 100.0 if number < 300 else 1.0)
    log = timed(device, seconds=2.0**-17).log
    resolved = min(log.seconds) * log.iterations >= TICKS_PER_SAMPLE * 2.0**-20 * 0.99
    assert resolved or "unresolved" in log.labels
    for seconds, label in [(2.0**-15, {"unresolved"}), (256 * 2.0**-20, set())]:
        engine = timed(FakeDevice(tick_s=2.0**-20), seconds=seconds, flush=lambda: None)
        assert engine.log.labels & {"unresolved"} == label, seconds


def test_a_flush_goes_before_every_sampled_call_in_no_sample_and_counts_against_the_budget():
    device, order = FakeDevice(tick_s=TICK_S), []

    def fn():
        order.append("call")
        device.work(2.0**-7)

    engine = timed(device, fn=fn, flush=lambda: order.append("flush") or device.work(2.0**-6))
    samples = engine.samples()
    assert order[-2 * len(samples.seconds) :] == ["flush", "call"] * len(samples.seconds)
    assert (set(samples.seconds), samples.iterations) == ({2.0**-7}, 1)
    device = FakeDevice(tick_s=TICK_S)
    log = timed(device, seconds=2.0**-14, flush=lambda: device.work(2.0**-6)).log
    assert (
        log.warmup_s + log.measuring_s <= 1.0 + log.timed_blocks[-1].wall_s * log.blocks[-1].samples
    )
    # A slow one leaves time for five blocks.
    assert len(log.blocks) >= 5


def test_a_function_without_work_for_the_device_or_that_moves_no_clock_ends_unresolved():
    for flush in [None, lambda: None]:
        device = FakeDevice(tick_s=2.0**-20)
        busy = limited(lambda device=device: device.pass_time(2.0**-20))
        for engine in (
            timed(device, fn=busy, budget_s=2.0**-6, flush=flush),
            timed(FakeDevice(tick_s=TICK_S), seconds=0.0, flush=flush),
        ):
            assert (len(engine.log.seconds) > 0, "unresolved" in engine.samples().labels) == (
                True,
                True,
            ), flush


def test_a_known_median_stops_early_and_one_that_is_not_is_noisy():
    log = timed(FakeDevice(tick_s=TICK_S), budget_s=8.0).log
    assert log.warmup_s + log.measuring_s < 2.0
    engine = timed(FakeDevice(tick_s=TICK_S, slowdown=restless), seconds=2.0**-7)
    assert engine.log.warmup_s + engine.log.measuring_s >= 1.0
    assert "noisy" in engine.samples().labels
    device = FakeDevice(tick_s=TICK_S, slowdown=lambda number: 1.0 + (number * 37 % 11) / 500)
    log = timed(device, seconds=2.0**-8).log
    assert log.warmup_s + log.measuring_s < 1.0
    assert median_half_width(log.counted_medians()) <= device.traits.precision


def test_a_function_slower_than_the_budget_is_called_twice_in_all_and_noisy():
    device = FakeDevice(tick_s=TICK_S)
    engine = timed(device, seconds=8.0)
    assert (engine.log.seconds, device.works, "noisy" in engine.log.labels) == ([8.0], 2, True)


def test_the_garbage_collector_is_off_in_every_call_and_as_it_was_afterwards():
    device, states = FakeDevice(tick_s=TICK_S), set()
    timed(device, fn=lambda: states.add(gc.isenabled()) or device.work(2.0**-7))
    assert (states, gc.isenabled()) == ({False}, True)
    for error in (RuntimeError, KeyboardInterrupt):

        def fn(error=error):
            raise error

        with pytest.raises(error):
            timed(FakeDevice(tick_s=TICK_S), fn=fn)
        assert gc.isenabled()
    gc.disable()
    try:
        timed(FakeDevice(tick_s=TICK_S), seconds=2.0**-7)
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_samples_taken_before_an_exception_are_kept_and_it_is_raised_as_it_is():
    for error, after in itertools.product(
        [RuntimeError("out of memory"), KeyboardInterrupt()], [0, 5, 60]
    ):
        device = FakeDevice(tick_s=TICK_S)

        def fn(device=device, error=error, after=after):
            if device.works == after:
                raise error
            device.work(2.0**-8)

        engine = engine_for(device, fn=fn)
        with pytest.raises(type(error)) as caught:
            engine.run()
        assert caught.value is error
        if after < 60:
            assert engine.samples() is None, after
            continue
        made, block = 60 - engine.log.warmup_iterations, engine.log.blocks[0].samples
        # The block that broke is lost, and no other.
        assert len(engine.samples().seconds) * engine.log.iterations == made - made % block, error


class BrokenWait(FakeDevice):
    """A device that fails when waited for."""

    def synchronize(self):
        raise RuntimeError("unspecified launch failure")

    def elapsed_s(self, start, end):
        raise RuntimeError("unspecified launch failure")


def test_a_device_that_fails_is_named_wherever_it_does():
    device = FakeDevice(tick_s=TICK_S)

    def flush():
        if device.works == 50:
            raise RuntimeError("the device fell off the bus")

    for broken, plan, said in [
        (FakeDevice(tick_s=TICK_S, vanish_after=100), {}, "the device fell off the bus"),
        (device, {"flush": flush}, "the device fell off the bus"),
        (BrokenWait(tick_s=TICK_S), {"timing": "device"}, "unspecified launch failure"),
        (BrokenWait(tick_s=TICK_S), {"timing": "wall"}, "unspecified launch failure"),
    ]:
        with pytest.raises(DeviceError, match=f"fake stopped answering: {said}"):
            timed(broken, seconds=2.0**-8, **plan)
    backwards = FakeDevice(tick_s=TICK_S)
    calibrate(backwards)
    backwards.elapsed_s = lambda start, end: -1.0
    with pytest.raises(DeviceError, match="time stamps of fake run backwards"):
        timed(backwards)


class LaggingHost(FakeDevice):
    """A device whose host's clock runs at half the speed of its own."""

    def host_s(self):
        return super().host_s() / 2


def test_device_timing_reads_the_devices_stamps_and_wall_timing_the_hosts_clock_after_waiting():
    assert set(timed(LaggingHost(tick_s=TICK_S), seconds=2.0**-8).log.seconds) == {2.0**-8}
    wall = timed(LaggingHost(tick_s=TICK_S), seconds=2.0**-8, timing="wall").log.seconds
    assert wall == pytest.approx([2.0**-9] * len(wall))
    device = FakeDevice(tick_s=TICK_S)
    calibrate(device)
    taken = device.stamps
    assert set(timed(device, seconds=2.0**-8, timing="wall").log.seconds) == {2.0**-8}
    assert device.stamps == taken


# Accelerators as they are: calls from 2 µs to 0.1 s, ticks up to 2 µs, launches and stamps of host time.
DEVICES = st.fixed_dictionaries(
    {
        "tick_s": st.sampled_from([1e-9, 0.5e-6, 1e-6, 2e-6]),
        "launch_s": st.floats(0.0, 50e-6),
        "record_s": st.floats(0.0, 5e-6),
        "pair_s": st.floats(0.0, 2e-6),
        "latency_s": st.floats(0.0, 10e-6),
        "queue_depth": st.sampled_from([256, 1000, 4096]),
    }
)
# What the first block leaves of the budget holds one more call, and not the spins around it.
TIGHT = {
    "tick_s": 5e-7, "launch_s": 0.0, "record_s": 5.491374191277834e-07, "pair_s": 0.0, "latency_s": 0.0,
    "queue_depth": 4096,
}  # fmt: skip
# So little of the budget is left for finding out about a graph that this alone spends it.
SPENT_BY_A_GRAPH = {
    "tick_s": 2e-6, "launch_s": 5e-5, "record_s": 4.9e-6, "pair_s": 4e-7, "latency_s": 4e-7, "queue_depth": 1000,
}  # fmt: skip


@settings(max_examples=80, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    st.floats(-5.7, -1.0).map(lambda exponent: 10**exponent),
    st.floats(0.05, 2.0),
    DEVICES,
    st.sampled_from(["spins and graphs", "spins", "neither"]),
)
@example(0.024712894768996053, 0.05, TIGHT, "spins")
@example(2e-6, 0.05, SPENT_BY_A_GRAPH, "spins and graphs")
def test_what_holds_of_every_run(duration, budget_s, facts, kind):
    device = FakeDevice(**facts)
    device.traits = replace(
        device.traits, graphs=kind == "spins and graphs", spins=kind != "neither"
    )
    engine = timed(device, duration, budget_s=budget_s)
    log, samples = engine.log, engine.samples()
    # Every run ends with a sample, each belongs to a block, and every call is accounted for.
    assert len(samples.seconds) == sum(block.samples for block in log.blocks) > 0
    assert device.works == log.warmup_iterations + log.iterations * len(log.seconds)
    # A sample is the duration within a tick, or says why not. Without a spin in front, for want of one or of time, the
    # launch gaps are inside: at the most one a call.
    behind = all(block.clock_hz is None for block in samples.blocks)
    gap_s = facts["launch_s"] + facts["latency_s"] + facts["record_s"] if behind else 0.0
    slack_s = (device.tick_s + facts["pair_s"]) / samples.iterations + gap_s
    off_s = max(abs(sample - duration) for sample in samples.seconds)
    assert off_s <= 1.001 * slack_s + 1e-12 or {"host_bound", "unresolved"} & set(samples.labels)
    resolved = min(log.seconds) * log.iterations >= (TICKS_PER_SAMPLE - 1) * device.tick_s
    assert resolved or "unresolved" in log.labels
    # Warm-up and measuring never pass the budget by more than a block, and end before it only where the median is
    # known.
    first_s = duration + 2 * facts["launch_s"] + facts["latency_s"]
    spent_s = log.warmup_s + log.measuring_s
    assert spent_s <= 1.001 * (budget_s + first_s + max(walls_s(log)))
    assert spent_s >= budget_s or is_known(log.counted_medians(), device.traits.precision)
