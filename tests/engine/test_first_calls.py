"""The very first calls, each timed alone before the warm-up."""

import pytest

from pytest_roofline.engine.devices.base import Traits
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.timing import Engine, Plan

from .test_peers import engines

# Powers of two, so that scripted times add up without rounding.
TICK_S, CALL_S = 2.0**-30, 2.0**-8
# A device that is waited for anyway, as a processor is.
DIRECT = Traits(tick_s=TICK_S, shortest_span_s=200 * TICK_S, queues=False, warmup_floor_s=0.02)


class Direct(FakeDevice):
    """A processor: whatever is called is done when the call returns, by the host's clock."""

    def __init__(self, **keywords):
        super().__init__(tick_s=TICK_S, traits=DIRECT, **keywords)

    def work(self, seconds, *_):
        super().work(seconds)
        self.synchronize()


def starting(*factors):
    """Of so many first calls, how much slower each is."""
    return lambda number: factors[number] if number < len(factors) else 1.0


def timed(device, seconds=CALL_S, **plan):
    """The engine after it has timed calls of so many seconds."""
    engine = Engine(device, Plan(**{"fn": lambda *_: device.work(seconds), "sets": [()], "budget_s": 1.0, **plan}))
    engine.run()
    return engine


def test_each_of_the_first_calls_is_timed_alone():
    for plan in [{}, {"timing": "wall"}, {"graph": True}, {"isolated": True}]:
        engine = timed(FakeDevice(tick_s=TICK_S, slowdown=starting(8, 4, 2)), first_calls=4, **plan)
        assert engine.samples().first_calls_s == (8 * CALL_S, 4 * CALL_S, 2 * CALL_S, CALL_S), plan


def test_none_is_kept_where_nobody_asks():
    assert timed(FakeDevice(tick_s=TICK_S)).samples().first_calls_s == ()


def test_the_time_of_a_first_call_is_the_hosts_with_its_launch():
    engine = timed(FakeDevice(tick_s=TICK_S, launch_s=2.0**-12, latency_s=2.0**-11), first_calls=1)
    assert engine.samples().first_calls_s == (2.0**-12 + 2.0**-11 + CALL_S,)


LAUNCH_S, LATENCY_S = 2.0**-17, 2.0**-16


@pytest.mark.parametrize("plan", [{}, {"graph": True}, {"isolated": True}, {"flush": 2.0**-10}], ids=str)
def test_first_calls_compare_with_warm_ones_that_are_timed_as_they_were(plan):
    """A kernel of 20 µs once was 1.9 x as slow in each of its first calls, and never steady."""
    device = FakeDevice(tick_s=TICK_S, launch_s=LAUNCH_S, latency_s=LATENCY_S)
    if "flush" in plan:
        lasts_s = plan["flush"]
        plan = {"flush": lambda: device.work(lasts_s)}
    samples = timed(device, 2.0**-16, first_calls=3, **plan).samples()
    assert set(samples.first_calls_s) == {LAUNCH_S + LATENCY_S + 2.0**-16} == set(samples.warm_calls_s)
    assert samples.alone_s == samples.first_calls_s[0] > samples.median_s


def test_warm_calls_end_with_a_share_of_the_budget():
    """Of a step of seconds one is enough, and a few where it is short."""
    found = [timed(FakeDevice(tick_s=TICK_S), seconds, first_calls=1).samples() for seconds in (0.25, CALL_S)]
    assert [len(samples.warm_calls_s) for samples in found] == [1, 5]


def test_no_warm_call_is_added_where_a_sample_is_one_or_nobody_asked():
    for device, plan in [(Direct(), {"first_calls": 2}), (FakeDevice(tick_s=TICK_S), {})]:
        samples = timed(device, **plan).samples()
        assert (samples.warm_calls_s, samples.alone_s) == ((), CALL_S), (device, plan)


def test_ranks_without_queues_add_warm_calls_where_their_samples_are_many_in_a_row():
    for isolated, more in [(False, 5), (True, 0)]:
        found, _ = engines([Direct(), Direct()], [CALL_S, 2 * CALL_S], first_calls=2, isolated=isolated, budget_s=1.0)
        assert [len(engine.samples().warm_calls_s) for engine in found] == [more] * 2, (isolated, more)
        assert {engine.samples().alone_s for engine in found} == {2 * CALL_S}, (isolated, more)


def test_first_calls_are_part_of_the_warm_up():
    device = FakeDevice(tick_s=TICK_S, slowdown=starting(64))
    log = timed(device, first_calls=3).log
    assert device.works == log.warmup_iterations + log.iterations * len(log.seconds)
    assert log.warmup_s >= (64 + 2) * CALL_S + 0.1


def test_first_calls_change_no_sample():
    without, plain = (timed(FakeDevice(tick_s=TICK_S, slowdown=starting(64)), first_calls=n) for n in (5, 0))
    assert set(without.log.seconds) == set(plain.log.seconds) == {CALL_S}


def test_first_calls_go_through_the_argument_sets_in_turn():
    device, seen = FakeDevice(tick_s=TICK_S), []
    timed(device, fn=lambda index: seen.append(index) or device.work(CALL_S), sets=[(0,), (1,)], first_calls=3)
    assert seen[:4] == [0, 1, 0, 1]


def test_after_first_calls_as_slow_as_the_budget_one_more_is_the_sample():
    for make in [Direct, lambda: FakeDevice(tick_s=TICK_S)]:
        device = make()
        engine = timed(device, 5.0, first_calls=10)
        assert (device.works, engine.log.warmup_iterations, engine.log.seconds) == (11, 10, [5.0]), make


def test_slow_first_calls_on_a_processor_are_warm_up_enough():
    """Of one call nobody knows whether it is slow for good; of several, the last is a warm one."""
    device = Direct()
    engine = timed(device, 0.5, first_calls=4)
    assert (device.works, engine.log.warmup_iterations, engine.log.seconds) == (6, 4, [0.5, 0.5])


def test_a_slow_first_call_among_fast_ones_leaves_an_ordinary_measurement():
    engine = timed(Direct(slowdown=starting(1000)), first_calls=2)
    assert set(engine.log.seconds) == {CALL_S}
    assert engine.log.warmup_iterations >= 2 + 5


def test_first_calls_that_are_fast_only_from_the_next_on_are_no_samples():
    engine = timed(Direct(slowdown=starting(1000, 100, 100)), first_calls=2)
    assert set(engine.log.seconds) == {CALL_S}


def test_ranks_keep_the_longest_of_each_first_call():
    devices = [FakeDevice(tick_s=TICK_S, slowdown=starting(*factors)) for factors in ((8, 1), (2, 4))]
    found, _ = engines(devices, [CALL_S, CALL_S], first_calls=3)
    assert [engine.samples().first_calls_s for engine in found] == [(8 * CALL_S, 4 * CALL_S, CALL_S)] * 2


def test_ranks_of_which_one_is_slow_for_good_make_the_same_calls():
    devices = [Direct(), Direct()]
    _, calls = engines(devices, [0.5, CALL_S], first_calls=3, budget_s=0.5)
    assert calls == [4, 4]
