"""What holds of the timing engine for every duration, clock and budget."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_roofline.measuring.devices.fake import FakeDevice
from pytest_roofline.measuring.timing import TICKS_PER_SAMPLE, Engine, Plan, median_half_width

# A call from a nanosecond to ten seconds; the clock's tick and the budget in calls, so that no example is long.
durations = st.floats(1e-9, 10.0)
ticks_per_call = st.floats(1e-5, 10.0)
calls_per_budget = st.floats(1e-3, 2e3)
brief = settings(max_examples=40, deadline=None)


def run(duration, tick, budget):
    """The engine and its device after a run; the tick and the budget in calls."""
    device = FakeDevice(tick_s=duration * tick)
    engine = Engine(device, Plan(lambda: device.work(duration), [()], budget_s=duration * budget))
    engine.run()
    return engine, device


@brief
@given(durations, ticks_per_call, calls_per_budget)
def test_every_run_ends_with_a_sample(duration, tick, budget):
    engine, _ = run(duration, tick, budget)
    assert engine.samples().seconds


@brief
@given(durations, ticks_per_call, calls_per_budget)
def test_every_call_is_accounted_for(duration, tick, budget):
    engine, device = run(duration, tick, budget)
    log = engine.log
    assert device.works == log.warmup_iterations + log.iterations * len(log.seconds)


@brief
@given(durations, ticks_per_call, calls_per_budget)
def test_every_sample_is_the_duration_within_a_tick_per_batch(duration, tick, budget):
    engine, device = run(duration, tick, budget)
    off = max(abs(sample - duration) for sample in engine.log.seconds)
    assert off <= 1.001 * device.tick_s / engine.log.iterations


@brief
@given(durations, ticks_per_call, calls_per_budget)
def test_measuring_never_passes_the_budget_by_more_than_a_sample(duration, tick, budget):
    engine, _ = run(duration, tick, budget)
    assert engine.log.measuring_s <= (duration * budget + engine.log.iterations * duration) * 1.001


@brief
@given(durations, ticks_per_call, calls_per_budget)
def test_the_warm_up_never_passes_its_share_by_more_than_its_first_call_and_a_span(duration, tick, budget):
    engine, device = run(duration, tick, budget)
    longest_span = max(duration, 2 * device.shortest_span_s + device.tick_s)
    assert engine.log.warmup_s <= (duration + 0.2 * duration * budget + longest_span) * 1.001


@brief
@given(durations, ticks_per_call, calls_per_budget)
def test_every_sample_spans_two_hundred_ticks_or_says_that_it_does_not(duration, tick, budget):
    engine, device = run(duration, tick, budget)
    shortest = min(engine.log.seconds) * engine.log.iterations
    # Within one tick and one call, which is as well as a batch can be planned.
    resolved = shortest >= 0.99 * TICKS_PER_SAMPLE * device.tick_s
    assert resolved or "unresolved" in engine.log.labels


def exact_coverage(count, low, high):
    """The chance that the median lies between the order statistics `low` and `high`, counted from 0."""
    return sum(math.comb(count, below) for below in range(low + 1, high + 1)) / 2**count


def ranks_of(count):
    """Which two order statistics of so many samples `median_half_width` takes."""
    # Differences of these values are all different, so the width tells the pair.
    values = [1000.0 + index + index * index / 1000 for index in range(count)]
    width = 2 * median_half_width(values) * values[count // 2]
    pairs = [(low, high) for low in range(count) for high in range(low, count)]
    return min(pairs, key=lambda pair: abs(values[pair[1]] - values[pair[0]] - width))


@pytest.mark.parametrize("count", [6, 7, 10, 11, 20, 33, 50, 101, 200])
def test_the_interval_of_the_median_covers_it_in_95_of_100_cases(count):
    low, high = ranks_of(count)
    assert exact_coverage(count, low, high) >= 0.95


@pytest.mark.parametrize("count", [6, 7, 10, 11, 20, 33, 50, 101, 200])
def test_the_interval_of_the_median_is_at_most_two_ranks_wider_than_it_must_be(count):
    low, high = ranks_of(count)
    enough = [
        other - one
        for one in range(count)
        for other in range(one, count)
        if one + other in (count - 1, count) and exact_coverage(count, one, other) >= 0.95
    ]
    assert high - low <= min(enough) + 2


@pytest.mark.parametrize("count", [1, 2, 3, 4, 5])
def test_a_handful_of_samples_give_their_whole_range(count):
    assert (0, count - 1) == ranks_of(count)


@given(st.lists(st.floats(1e-9, 10.0), min_size=1, max_size=60), st.randoms())
def test_the_width_does_not_depend_on_the_order_of_samples(seconds, random):
    shuffled = list(seconds)
    random.shuffle(shuffled)
    assert median_half_width(seconds) == median_half_width(shuffled)


@given(st.floats(1e-9, 10.0), st.integers(1, 60))
def test_equal_samples_have_no_width(duration, count):
    assert median_half_width([duration] * count) == 0.0


@given(st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=60), st.integers(-8, 8))
def test_the_width_is_a_share_and_does_not_depend_on_the_unit(seconds, exponent):
    scaled = [2.0**exponent * value for value in seconds]
    assert median_half_width(seconds) == pytest.approx(median_half_width(scaled))
