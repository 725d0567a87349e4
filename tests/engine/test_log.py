"""When enough is known: warming up until nothing moves, and blocks until the median is known and nothing drifts."""

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.engine.blocks.taking import (
    ending,
    is_known,
    median_half_width,
    trend,
)
from pytest_roofline.engine.devices.base import Traits
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.log import Log
from pytest_roofline.engine.sizing.warm_up import CLOCK_AGREEMENT, WarmUp
from pytest_roofline.engine.timing import Engine, Plan

TRAITS = Traits(tick_s=1e-9, shortest_span_s=2e-7)
PRECISION = 0.01
positive = st.floats(1e-6, 10.0)
medians = st.lists(positive, min_size=1, max_size=40)


class Script:
    """Calls whose duration and clock are scripted by the seconds that went by, warmed up."""

    def __init__(
        self, call_s=1e-3, clock_hz=lambda _: None, budget_s=1.0, most_calls=1000, **traits
    ):
        self.now_s, self.spans = 0.0, []
        self.call_s = call_s if callable(call_s) else lambda _: call_s
        watch = SimpleNamespace(
            device=SimpleNamespace(traits=replace(TRAITS, **traits)),
            agreement=SimpleNamespace(now_s=lambda: self.now_s, on_every_rank=bool),
            clock_hz=lambda: clock_hz(self.now_s),
            span_s=self.span_s,
            submit_s=0.0,
        )
        self.warm = WarmUp(watch, self.spans.append, Log(), budget_s, most_calls)
        self.found_s = self.warm.call_until_steady()

    def span_s(self, submit):
        submit()
        seconds = self.spans[-1] * self.call_s(self.now_s)
        self.now_s += seconds
        return seconds


def until(seconds, before, after):
    """One value until so many seconds went by, then another."""
    return lambda now_s: before if now_s < seconds else after


def test_a_steady_function_is_warm_at_the_floor_of_its_device_within_its_share_of_the_budget():
    for arguments, least_s, most_s in [
        *(({"call_s": call_s}, 0.1, 0.15) for call_s in (1e-6, 1e-4, 1e-3)),
        ({"warmup_floor_s": 0.3}, 0.3, 0.4),
        # Slow calls are fewer than twenty after twice the floor.
        ({"call_s": 0.02, "budget_s": 10.0}, 0.2, 0.3),
        # What moves is warmed up for longer, without a queue for a fifth of the budget at most.
        ({"call_s": lambda now_s: 1e-3 * (1 + 10 * now_s), "queues": False}, 0.2, 0.22),
        ({"budget_s": 0.1}, 0.045, 0.055),
        ({"call_s": lambda now_s: 1e-3 * (1 + max(0.0, 0.3 - now_s)), "budget_s": 2.0}, 0.25, 1.0),
        (
            {"clock_hz": lambda now_s: 1e9 * (1 + 3 * max(0.0, 0.4 - now_s)), "budget_s": 2.0},
            0.35,
            0.5,
        ),
        # Clocks agree within two percent.
        ({"clock_hz": until(0.09, 1e9, 1e9 * (1 + 0.9 * CLOCK_AGREEMENT))}, 0.1, 0.115),
        ({"clock_hz": until(0.09, 1e9, 1e9 * (1 + 1.1 * CLOCK_AGREEMENT))}, 0.1151, 0.2),
    ]:
        assert least_s <= Script(**arguments).now_s <= most_s, arguments
    assert 20 <= sum(Script(0.009, budget_s=10.0).spans) <= 30


def test_no_more_than_half_of_the_budget_is_spent_on_a_device_with_a_queue():
    for call_s in [1e-6, 1e-3, 0.02, 0.2]:
        slower = Script(lambda now_s, call_s=call_s: call_s * (1 + now_s))
        assert slower.now_s <= 0.5 + slower.spans[-1] * call_s * 2, call_s


def test_times_agree_within_the_devices_precision():
    for precision, least_s, most_s in [(0.03, 0.1, 0.115), (0.01, 0.1151, 0.2)]:
        script = Script(until(0.07, 1e-3, 1.02e-3), precision=precision)
        assert least_s <= script.now_s <= most_s, precision


def test_the_time_of_a_call_is_that_of_the_end_and_calls_and_seconds_are_counted():
    script = Script(until(0.05, 5e-3, 1e-3))
    assert script.found_s == pytest.approx(1e-3)
    assert (script.warm.call_count, script.warm.lasted_s) == (sum(script.spans), script.now_s)


def test_spans_grow_until_a_clock_can_read_them_or_as_far_as_they_may():
    assert Script(1e-6, shortest_span_s=5e-3, most_calls=10_000).spans[-1] * 1e-6 >= 5e-3
    assert max(Script(1e-6, most_calls=64).spans) == 64
    # A flushed function is warmed up call by call.
    assert set(Script(1e-5, most_calls=1).spans) == {1}
    # A clock that never moves ends the warm-up.
    assert sum(Script(0.0, most_calls=8).spans) >= 20


class Watched(FakeDevice):
    """A device that notes for every call whether a spin was before it in the queue."""

    def __init__(self, **facts):
        super().__init__(launch_s=8e-6, record_s=1.5e-6, latency_s=4e-6, **facts)
        self.behind_spin, self._spun_until_s = [], -1.0

    def spin(self, cycles):
        super().spin(cycles)
        self._spun_until_s = self.clock_s

    def work(self, seconds, *more, **named):
        self.behind_spin.append(self._spun_until_s > self.host_s())
        super().work(seconds, *more, **named)


def test_no_call_is_behind_a_spin_before_the_warm_up_is_over_and_blocks_are():
    # A module that loads lazily would wait for the spin, and the spin for nobody.
    for call_s in [2e-6, 1e-4, 5e-3]:
        device = Watched()
        Engine(
            device,
            Plan(lambda device=device, call_s=call_s: device.work(call_s), [()], budget_s=1.0),
        ).run()
        assert device.behind_spin.index(True) >= 20, call_s
    device = Watched()
    Engine(device, Plan(lambda: device.work(1e-4), [()], budget_s=1.0)).run()
    assert all(device.behind_spin[-20:])


class Jittery(FakeDevice):
    """A device whose host takes longer for every second spin."""

    def spin(self, cycles):
        self.launch_s = 22e-6 - self.launch_s
        super().spin(cycles)


def test_launches_of_uneven_length_are_not_waited_for():
    device = Jittery(launch_s=8e-6, record_s=1.5e-6, latency_s=4e-6)
    engine = Engine(device, Plan(lambda: device.work(2e-4), [()], budget_s=2.0))
    engine.run()
    assert engine.log.warmup_s < 0.3


# Stopping.


def rising(count, share):
    """Medians that rise by this share from the first to the last."""
    return [1.0 + share * index / (count - 1) for index in range(count)]


def swinging(count, share):
    """Medians that swing by this share without a trend."""
    return [1.0 + share * (index % 2) for index in range(count)]


def test_a_median_is_known_after_five_blocks_of_a_narrow_interval_without_a_drift():
    for seconds, precision, enough in [
        *(([1.0] * count, PRECISION, count >= 5) for count in (0, 1, 4, 5, 50)),
        (swinging(8, 0.018), PRECISION, True),
        (swinging(8, 0.022), PRECISION, False),
        (swinging(8, 0.05), 0.03, True),
        (rising(100, 0.01), PRECISION, True),
        (rising(100, -0.01), PRECISION, True),
        (rising(100, 0.03), PRECISION, False),
        (rising(100, -0.03), PRECISION, False),
        # However narrow the interval is.
        (rising(1000, 0.025), PRECISION, False),
    ]:
        assert is_known(seconds, precision) == enough, (len(seconds), seconds[-2:], precision)
    assert median_half_width(rising(1000, 0.025)) < PRECISION


def test_a_drift_matters_sooner_where_much_of_the_budget_is_left():
    drifting = rising(40, 0.008)
    assert (is_known(drifting, PRECISION), is_known(drifting, PRECISION, 4.0)) == (True, False)
    # Not where it is no more than noise.
    assert is_known(swinging(40, 0.008), PRECISION, 4.0)


def test_an_end_is_noisy_or_drifting_or_says_nothing():
    halves = swinging(10, 0.2)
    for seconds, word in [
        ([1.0] * 5, ""), ([], "noisy"), ([1.0], "noisy"), ([1.0] * 4, "noisy"), (swinging(20, 0.2), "noisy"),
        (rising(40, 0.05), "drifting"), (rising(40, -0.05), "drifting"), (rising(40, 0.5), "drifting"),
        ([1.0] * 10 + [1.1] * 10, "drifting"),
        # Noise explains how the halves differ.
        (halves + [value + 0.05 for value in halves], "noisy"),
    ]:  # fmt: skip
        assert ending(seconds, PRECISION) == word, seconds[:3]


@given(medians, st.integers(-8, 8), st.randoms(use_true_random=False))
def test_what_holds_of_all_medians(seconds, exponent, random):
    assert is_known(seconds, PRECISION) == (ending(seconds, PRECISION) == "")
    scaled = [2.0**exponent * value for value in seconds]
    assert ending(scaled, PRECISION) == ending(seconds, PRECISION)
    assert median_half_width(scaled) == pytest.approx(median_half_width(seconds))
    shuffled = random.sample(seconds, len(seconds))
    assert median_half_width(shuffled) == median_half_width(seconds)
    slower = seconds + [2 * value for value in seconds]
    assert trend(slower) >= 0.0 >= trend(slower[::-1])
    assert (median_half_width(seconds[:1] * 7), is_known(seconds[:1] * 7, PRECISION)) == (0.0, True)


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


def test_the_interval_of_the_median_covers_it_in_95_of_100_cases_and_is_hardly_wider_than_it_must_be():
    for count in [6, 7, 10, 11, 20, 33, 50, 101, 200]:
        low, high = ranks_of(count)
        assert exact_coverage(count, low, high) >= 0.95, count
        enough = [
            other - one
            for one in range(count)
            for other in range(one, count)
            if one + other in (count - 1, count) and exact_coverage(count, one, other) >= 0.95
        ]
        assert high - low <= min(enough) + 2, count
    for count in [1, 2, 3, 4, 5]:
        assert ranks_of(count) == (0, count - 1), count
