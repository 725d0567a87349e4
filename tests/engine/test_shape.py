"""Shapes of blocks: pure arithmetic on what calls and launches cost."""

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.samples import Calibration
from pytest_roofline.engine.devices.base import Traits
from pytest_roofline.engine.sizing import (
    LONGEST_SPIN_S,
    MOST_CALLS,
    MOST_SAMPLES,
    BlockShape,
    direct_shape,
    graph_calls,
    is_short,
    queued_shape,
    resolved_span_s,
    spin_for,
)

SPAN_S = 1e-4
CALIBRATION = Calibration("fake", tick_s=0.5e-6, event_pair_s=2e-6, record_host_s=1e-6, call_host_s=1e-7)
call_times = st.floats(-9, 1).map(lambda exponent: 10**exponent)
host_times = st.floats(-7, -2).map(lambda exponent: 10**exponent)
budgets = st.floats(0.05, 10.0)
depths = st.one_of(st.none(), st.integers(8, 5000))


def queued(call_s, host_s=8e-6, span_s=SPAN_S, budget_s=1.0, most_calls=MOST_CALLS, depth=1000):
    """A block for a device with a queue."""
    return queued_shape(call_s, host_s, span_s, budget_s, most_calls, depth)


@pytest.mark.parametrize(("shortest_s", "tick_s", "expected_s"), [(5e-3, 1e-6, 5e-3), (1e-6, 1e-6, 2e-4)])
def test_the_shortest_span_is_what_the_device_asks_for_and_two_hundred_ticks(shortest_s, tick_s, expected_s):
    calibration = replace(CALIBRATION, tick_s=tick_s)
    assert resolved_span_s(Traits(1e-9, shortest_s), calibration) == pytest.approx(expected_s)


@given(call_times, host_times, budgets, depths)
def test_a_block_uses_at_most_half_of_the_queue(call_s, host_s, budget_s, depth):
    shape = queued(call_s, host_s, budget_s=budget_s, depth=depth)
    entries = shape.samples * (shape.calls + 2)
    assert entries <= max(3, (depth or 512) // 2)


@given(call_times, host_times, budgets)
def test_a_sample_of_a_deep_queue_is_long_enough_for_the_clock(call_s, host_s, budget_s):
    shape = queued(call_s, host_s, budget_s=budget_s, depth=10 * MOST_CALLS)
    assert shape.calls * call_s >= 0.999 * SPAN_S or shape.calls == MOST_CALLS


@given(call_times, host_times, budgets, depths)
def test_the_spin_outlasts_the_submitting_unless_it_is_the_longest(call_s, host_s, budget_s, depth):
    shape = queued(call_s, host_s, budget_s=budget_s, depth=depth)
    assert shape.spin_s > shape.calls * shape.samples * host_s or shape.spin_s == LONGEST_SPIN_S


@given(call_times, host_times, budgets, depths)
def test_a_block_of_several_samples_leaves_time_for_at_least_twenty(call_s, host_s, budget_s, depth):
    shape = queued(call_s, host_s, budget_s=budget_s, depth=depth)
    assert shape.samples == 1 or shape.calls * shape.samples * (call_s + 1.5 * host_s) <= 1.001 * budget_s / 20


@given(call_times, host_times, budgets, depths)
def test_a_flushed_call_is_a_sample_of_its_own(call_s, host_s, budget_s, depth):
    assert queued(call_s, host_s, budget_s=budget_s, depth=depth, most_calls=1).calls == 1


@given(call_times, budgets)
def test_a_sample_that_is_waited_for_is_long_enough_for_the_clock(call_s, budget_s):
    shape = direct_shape(call_s, SPAN_S, budget_s, MOST_CALLS)
    assert shape.calls * call_s >= 0.999 * SPAN_S or shape.calls == MOST_CALLS


@given(call_times, budgets)
def test_a_sample_that_is_waited_for_has_no_spin(call_s, budget_s):
    assert direct_shape(call_s, SPAN_S, budget_s, MOST_CALLS).spin_s == 0.0


@given(call_times, budgets, st.booleans())
def test_a_block_has_one_to_fifty_samples(call_s, budget_s, batch):
    assert 1 <= direct_shape(call_s, SPAN_S, budget_s, MOST_CALLS, batch).samples <= MOST_SAMPLES


def test_without_batches_a_sample_holds_no_more_calls_than_the_clock_needs():
    assert direct_shape(1.1e-4, SPAN_S, 1.0, MOST_CALLS, batch=False).calls == 1


@pytest.mark.parametrize(("host_s", "spin_s"), [(0.0, 2e-4), (1e-3, 1.7e-3), (5.0, LONGEST_SPIN_S)])
def test_a_spin_is_one_and_a_half_times_the_hosts_time_and_a_fifth_of_a_millisecond(host_s, spin_s):
    assert spin_for(host_s) == pytest.approx(spin_s)


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (BlockShape(4, 50, 1e-3), BlockShape(4, 25, 2e-3)),
        (BlockShape(4, 1, 1e-3), BlockShape(4, 1, 2e-3)),
        (BlockShape(1, 3, 0.8), BlockShape(1, 1, 1)),
    ],
)
def test_a_host_that_fell_behind_gets_half_the_samples_behind_twice_the_spin(shape, expected):
    assert shape.relaxed() == expected


@given(st.floats(1e-4, 10.0))
def test_a_host_that_fell_behind_never_gets_a_shorter_spin(spin_s):
    # Sizing doubles spins beyond the longest where nothing else helps.
    assert BlockShape(1, 1, spin_s).relaxed().spin_s >= spin_s


@pytest.mark.parametrize(
    ("shape", "expected"),
    [
        (BlockShape(8, 50), BlockShape(8, 12)),
        (BlockShape(8, 3), BlockShape(8, 1)),
        (BlockShape(8, 1), BlockShape(2, 1)),
        (BlockShape(2, 1), BlockShape(1, 1)),
    ],
)
def test_a_queue_that_was_full_gets_a_quarter_of_the_samples_and_then_of_the_calls(shape, expected):
    assert shape.smaller() == expected


def test_nothing_is_smaller_than_one_call():
    assert BlockShape(1, 1).smaller() is None


@pytest.mark.parametrize(
    ("tick_s", "call_s", "short"),
    [(0.5e-6, 19e-6, True), (0.5e-6, 21e-6, False), (1e-6, 39e-6, True), (1e-6, 41e-6, False)],
)
def test_short_is_below_forty_documented_ticks_whatever_was_calibrated(tick_s, call_s, short):
    assert is_short(call_s, Traits(tick_s, 200 * tick_s)) == short


@given(call_times, st.integers(1, 4096))
def test_a_graph_holds_whole_turns_through_the_argument_sets(call_s, sets):
    assert graph_calls(call_s, sets) % sets == 0


@given(call_times, st.integers(1, 4096))
def test_a_graph_lasts_a_millisecond_or_is_as_large_as_may_be(call_s, sets):
    count = graph_calls(call_s, sets)
    assert count * call_s >= 0.999e-3 or count > 4096 - sets


@given(call_times, st.integers(1, 4096))
def test_a_graph_is_bounded(call_s, sets):
    assert 1 <= graph_calls(call_s, sets) <= 4096


def test_no_graph_holds_a_turn_that_does_not_fit():
    assert graph_calls(1e-6, 4097) is None


def test_a_graph_of_a_rotation_is_the_fewest_turns_that_last_a_millisecond():
    assert graph_calls(1e-5, 7) == 7 * math.ceil(100 / 7)
