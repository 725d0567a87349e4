"""What stamps and launches cost: found as scripted, once per device."""

import itertools

import pytest

from pytest_roofline.engine.devices.base import Traits
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.sizing.calibration import calibrate
from pytest_roofline.engine.timing import Engine, Plan

COSTS = {"launch_s": 8e-6, "latency_s": 4e-6}


class Hiccup(FakeDevice):
    """A device whose host is interrupted for 10 ms in the middle of the pairs."""

    def stamp(self):
        if self.stamps == 50:
            self.pass_time(10e-3)
        return super().stamp()


class Jitter(FakeDevice):
    """A device whose stamps take 1, 2 and 3 µs in turn."""

    spread = itertools.cycle([1e-6, 2e-6, 3e-6])

    def stamp(self):
        self.pair_s = next(self.spread)
        return super().stamp()


class SlowHost(FakeDevice):
    """A device whose host needs 0.1 ms to look at its clock."""

    def host_s(self):
        self.pass_time(1e-4)
        return super().host_s()


def test_what_a_stamp_costs_is_told_apart_for_device_and_host():
    for pair_s in [0.0, 2e-6, 7e-6]:
        assert calibrate(FakeDevice(pair_s=pair_s)).event_pair_s == pytest.approx(
            pair_s, abs=1e-9
        ), pair_s
    for record_s in [1.5e-6, 10e-6]:
        calibration = calibrate(FakeDevice(record_s=record_s, latency_s=4e-6))
        assert (calibration.record_host_s, calibration.event_pair_s) == (
            pytest.approx(record_s),
            0.0,
        ), record_s
    assert calibrate(Jitter(tick_s=1e-9)).event_pair_s == pytest.approx(2e-6, abs=1e-9)
    # Of a thousand empty calls.
    assert (calibrate(SlowHost()).call_host_s, calibrate(SlowHost()).device) == (
        pytest.approx(1e-7),
        "fake",
    )


def test_the_cycles_of_a_spin_are_those_of_the_clock_once_it_has_risen_from_that_of_an_idle_card():
    for clock_hz in [0.8e9, 1.5e9, 2.4e9]:
        assert calibrate(FakeDevice(clock_hz=clock_hz, **COSTS)).spin_hz == pytest.approx(
            clock_hz, rel=1e-4
        ), clock_hz
    for ramp_s in [0.01, 0.02, 0.1, 0.3, 1.0]:
        device = FakeDevice(clock_hz=1.98e9, clock_ramp_s=ramp_s, tick_s=0.5e-6, **COSTS)
        assert calibrate(device).spin_hz == pytest.approx(1.98e9, rel=0.01), ramp_s


def test_the_queues_depth_is_as_scripted_and_changes_no_tick():
    for depth in [64, 100, 512, 1000, 2000]:
        # The spin that fills the device is an entry of its own.
        calibration = calibrate(
            FakeDevice(queue_depth=depth, record_s=1.5e-6, tick_s=0.5e-6, **COSTS)
        )
        assert (calibration.queue_depth, calibration.tick_s) == (
            depth - 1,
            pytest.approx(0.5e-6),
        ), depth
    assert calibrate(FakeDevice(queue_depth=10**6, record_s=1.5e-6)).queue_depth is None


def test_the_tick_is_the_one_seen_but_never_below_the_documented():
    for documented_s, seen_s, expected_s in [
        (0.5e-6, 1e-6, 1e-6),
        (1e-6, 1e-6, 1e-6),
        (1e-6, 0.5e-6, 1e-6),
    ]:
        # Pairs of 0.7 ticks show none or one.
        device = FakeDevice(
            tick_s=seen_s, pair_s=0.7 * seen_s, traits=Traits(documented_s, 1e-4, spins=True)
        )
        assert calibrate(device).tick_s == pytest.approx(expected_s), (documented_s, seen_s)
    assert calibrate(Hiccup(tick_s=0.5e-6, record_s=1.5e-6)).tick_s == pytest.approx(0.5e-6)


def test_a_device_is_asked_only_for_what_it_can():
    calibration = calibrate(FakeDevice(traits=Traits(1e-6, 5e-3), record_s=1.5e-6))
    assert (calibration.spin_hz, calibration.queue_depth) == (None, None)


def test_each_device_is_calibrated_once_for_all_measurements_without_a_call_and_leaves_nothing_behind():
    device, slow = FakeDevice(clock_hz=2e9, record_s=1.5e-6, **COSTS), FakeDevice(clock_hz=1e9)
    first, stamps = calibrate(device), device.stamps
    assert (calibrate(device), device.stamps, device.works) == (first, stamps, 0)
    assert device.clock_s <= device.host_s()
    assert calibrate(slow).spin_hz == pytest.approx(first.spin_hz / 2)
    engines = [
        Engine(device, Plan(lambda: device.work(1e-3), [()], budget_s=0.2)) for _ in range(2)
    ]
    for engine in engines:
        engine.run()
    assert engines[0].log.calibration is engines[1].log.calibration is first
