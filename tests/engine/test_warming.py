"""Warming up until nothing moves: floors, caps, windows that agree, and never behind a spin at first."""

import itertools
from dataclasses import replace

import pytest

from pytest_roofline.engine.devices.base import Traits
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.log import CLOCK_AGREEMENT, WarmUp
from pytest_roofline.engine.timing import Engine, Plan

TRAITS = Traits(tick_s=1e-9, shortest_span_s=2e-7)


class Script:
    """Calls whose duration and clock are scripted by the seconds that went by."""

    def __init__(self, call_s=lambda _: 1e-3, clock_hz=lambda _: None):
        self.now_s = 0.0
        self.spans = []
        self._call_s, self._clock_hz = call_s, clock_hz

    def span_s(self, count):
        seconds = count * self._call_s(self.now_s)
        self.spans.append(count)
        self.now_s += seconds
        return seconds

    def clock_hz(self):
        return self._clock_hz(self.now_s)

    def run(self, budget_s=1.0, traits=TRAITS, most_calls=1000):
        self.warm = WarmUp(traits, budget_s, most_calls)
        return self.warm.run(self.span_s, self.clock_hz, lambda: self.now_s)


def until(seconds, before, after):
    """One value until so many seconds went by, then another."""
    return lambda now_s: before if now_s < seconds else after


@pytest.mark.parametrize("call_s", [1e-6, 1e-4, 1e-3])
def test_a_steady_function_is_warm_at_the_floor(call_s):
    script = Script(lambda _: call_s)
    script.run()
    assert 0.1 <= script.now_s <= 0.15


def test_a_device_may_have_a_floor_of_its_own():
    script = Script()
    script.run(traits=replace(TRAITS, warmup_floor_s=0.3))
    assert 0.3 <= script.now_s <= 0.4


def test_at_least_twenty_calls_are_made():
    script = Script(lambda _: 0.009)
    script.run(budget_s=10.0)
    assert 20 <= sum(script.spans) <= 30


def test_slow_calls_are_fewer_than_twenty_after_twice_the_floor():
    script = Script(lambda _: 0.02)
    script.run(budget_s=10.0)
    assert 0.2 <= script.now_s <= 0.3


@pytest.mark.parametrize("call_s", [1e-6, 1e-3, 0.02, 0.2])
def test_no_more_than_half_of_the_budget_is_spent_on_a_device_with_a_queue(call_s):
    ever_slower = Script(lambda now_s: call_s * (1 + now_s))
    ever_slower.run()
    assert ever_slower.now_s <= 0.5 + ever_slower.spans[-1] * call_s * 2


def test_no_more_than_a_fifth_of_the_budget_is_spent_without_a_queue():
    ever_slower = Script(lambda now_s: 1e-3 * (1 + 10 * now_s))
    ever_slower.run(traits=replace(TRAITS, queues=False))
    assert 0.2 <= ever_slower.now_s <= 0.22


def test_the_cap_holds_where_the_floor_is_above_it():
    script = Script()
    script.run(budget_s=0.1)
    assert script.now_s == pytest.approx(0.05, abs=5e-3)


def test_warming_goes_on_as_long_as_the_times_move():
    script = Script(lambda now_s: 1e-3 * (1 + max(0.0, 0.3 - now_s)))
    script.run(budget_s=2.0)
    assert script.now_s >= 0.25


def test_warming_goes_on_as_long_as_the_clock_moves_though_times_do_not():
    script = Script(clock_hz=lambda now_s: 1e9 * (1 + 3 * max(0.0, 0.4 - now_s)))
    script.run(budget_s=2.0)
    assert 0.35 <= script.now_s <= 0.5


def test_clocks_agree_within_two_percent():
    for share, longest_s in [(0.9, 0.15), (1.1, 0.2)]:
        script = Script(clock_hz=until(0.09, 1e9, 1e9 * (1 + share * CLOCK_AGREEMENT)))
        script.run()
        assert (script.now_s <= 0.115) == (share < 1), (share, longest_s)
        assert script.now_s <= longest_s, (share, longest_s)


def test_times_agree_within_the_devices_precision():
    swinging = itertools.cycle([1.0] * 30 + [1.025] * 30)
    script = Script(lambda _: 1e-3 * next(swinging))
    script.run(traits=replace(TRAITS, precision=0.03))
    assert script.now_s <= 0.15


def test_the_time_of_a_call_is_that_of_the_end():
    script = Script(until(0.05, 5e-3, 1e-3))
    assert script.run() == pytest.approx(1e-3)


def test_spans_grow_until_a_clock_can_read_them():
    script = Script(lambda _: 1e-6)
    script.run(traits=replace(TRAITS, shortest_span_s=5e-3), most_calls=10_000)
    assert script.spans[-1] * 1e-6 >= 5e-3


def test_no_span_holds_more_calls_than_allowed():
    script = Script(lambda _: 1e-6)
    script.run(most_calls=64)
    assert max(script.spans) == 64


def test_a_flushed_function_is_warmed_up_call_by_call():
    script = Script(lambda _: 1e-5)
    script.run(most_calls=1)
    assert set(script.spans) == {1}


def test_calls_and_seconds_are_counted():
    script = Script()
    script.run()
    assert (script.warm.calls, script.warm.lasted_s) == (sum(script.spans), script.now_s)


def test_a_clock_that_never_moves_ends_the_warm_up():
    script = Script(lambda _: 0.0)
    script.run(most_calls=8)
    assert sum(script.spans) >= 20


class Watched(FakeDevice):
    """A device that notes for every call whether a spin was before it in the queue."""

    def __init__(self, **facts):
        super().__init__(**facts)
        self.behind_spin = []
        self._spun_until_s = -1.0

    def spin(self, cycles):
        super().spin(cycles)
        self._spun_until_s = self.clock_s

    def work(self, seconds, *more, **named):
        self.behind_spin.append(self._spun_until_s > self.host_s())
        super().work(seconds, *more, **named)


@pytest.mark.parametrize("call_s", [2e-6, 1e-4, 5e-3])
def test_no_call_is_behind_a_spin_before_the_warm_up_is_over(call_s):
    # A module that loads lazily would wait for the spin, and the spin for nobody.
    device = Watched(launch_s=8e-6, record_s=1.5e-6, latency_s=4e-6)
    Engine(device, Plan(lambda: device.work(call_s), [()], budget_s=1.0)).run()
    assert device.behind_spin.index(True) >= 20


def test_blocks_are_behind_a_spin():
    device = Watched(launch_s=8e-6, record_s=1.5e-6, latency_s=4e-6)
    Engine(device, Plan(lambda: device.work(1e-4), [()], budget_s=1.0)).run()
    assert all(device.behind_spin[-20:])


class Jittery(FakeDevice):
    """A device whose host takes longer for every second spin."""

    def spin(self, cycles):
        self.launch_s = 22e-6 - self.launch_s
        super().spin(cycles)


def test_launches_of_uneven_length_do_not_keep_a_steady_device_from_being_warm():
    device = Jittery(launch_s=8e-6, record_s=1.5e-6, latency_s=4e-6)
    engine = Engine(device, Plan(lambda: device.work(2e-4), [()], budget_s=2.0))
    engine.run()
    assert engine.log.warmup_s < 0.3


@pytest.mark.parametrize("call_s", [1e-5, 2e-4, 5e-3])
def test_a_clock_that_droops_for_300_ms_is_waited_for(call_s):
    device = FakeDevice(clock=lambda busy_s: 1 - 0.15 * min(1.0, max(0.0, (busy_s - 0.05) / 0.25)))
    engine = Engine(device, Plan(lambda: device.work(call_s), [()], budget_s=2.0))
    engine.run()
    assert engine.samples().median_s == pytest.approx(call_s / 0.85, rel=0.01)
