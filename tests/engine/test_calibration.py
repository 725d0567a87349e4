"""What stamps and launches cost: found as scripted, once per device."""

import itertools

import pytest

from pytest_roofline.engine.calibration import calibrate
from pytest_roofline.engine.devices.base import Traits
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.timing import Engine, Plan


def test_an_empty_pair_of_stamps_shows_what_the_device_needs_for_one():
    for pair_s in [0.0, 2e-6, 7e-6]:
        assert calibrate(FakeDevice(pair_s=pair_s)).event_pair_s == pytest.approx(pair_s, abs=1e-9), pair_s


def test_a_stamps_cost_is_the_hosts():
    for record_s in [1.5e-6, 10e-6]:
        assert calibrate(FakeDevice(record_s=record_s)).record_host_s == pytest.approx(record_s), record_s


def test_what_the_host_needs_for_a_stamp_is_not_in_an_empty_pair():
    for record_s in [1.5e-6, 10e-6]:
        assert calibrate(FakeDevice(record_s=record_s, latency_s=4e-6)).event_pair_s == 0.0, record_s


def test_the_cycles_of_a_spin_are_those_of_the_clock():
    for clock_hz in [0.8e9, 1.5e9, 2.4e9]:
        device = FakeDevice(clock_hz=clock_hz, launch_s=8e-6, latency_s=4e-6)
        assert calibrate(device).spin_hz == pytest.approx(clock_hz, rel=1e-4), clock_hz


def test_the_clock_of_an_idle_card_has_risen_before_its_cycles_are_counted():
    for ramp_s in [0.01, 0.02, 0.1, 0.3, 1.0]:
        device = FakeDevice(clock_hz=1.98e9, clock_ramp_s=ramp_s, launch_s=8e-6, latency_s=4e-6, tick_s=0.5e-6)
        assert calibrate(device).spin_hz == pytest.approx(1.98e9, rel=0.01), ramp_s


def test_the_queues_depth_is_as_scripted():
    for depth in [100, 512, 1000, 2000]:
        # The spin that fills the device is an entry of its own.
        assert calibrate(FakeDevice(queue_depth=depth, record_s=1.5e-6, launch_s=8e-6)).queue_depth == depth - 1


def test_a_queue_without_an_end_has_no_depth():
    assert calibrate(FakeDevice(queue_depth=10**6, record_s=1.5e-6)).queue_depth is None


def test_the_tick_is_the_one_seen_but_never_below_the_documented():
    for documented_s, seen_s, expected_s in [(0.5e-6, 1e-6, 1e-6), (1e-6, 1e-6, 1e-6), (1e-6, 0.5e-6, 1e-6)]:
        # Pairs of 0.7 ticks show none or one.
        device = FakeDevice(tick_s=seen_s, pair_s=0.7 * seen_s, traits=Traits(documented_s, 1e-4, spins=True))
        assert calibrate(device).tick_s == pytest.approx(expected_s), (documented_s, seen_s, expected_s)


def test_a_queue_that_fills_does_not_change_the_tick():
    for depth in [64, 100, 1000]:
        device = FakeDevice(tick_s=0.5e-6, queue_depth=depth, launch_s=8e-6, record_s=1.5e-6, latency_s=4e-6)
        assert calibrate(device).tick_s == pytest.approx(0.5e-6), depth


class HiccupDevice(FakeDevice):
    """A device whose host is interrupted for 10 ms in the middle of the pairs."""

    def stamp(self):
        if self.stamps == 50:
            self.pass_time(10e-3)
        return super().stamp()


def test_an_interrupted_host_does_not_change_the_tick():
    assert calibrate(HiccupDevice(tick_s=0.5e-6, record_s=1.5e-6)).tick_s == pytest.approx(0.5e-6)


def test_a_device_without_a_spin_is_calibrated_without_one():
    calibration = calibrate(FakeDevice(traits=Traits(1e-6, 5e-3), record_s=1.5e-6))
    assert (calibration.spin_hz, calibration.queue_depth) == (None, None)


def test_a_device_whose_stamps_may_hang_is_asked_for_no_short_span():
    for reading in ["reversed", "hanging"]:
        device = FakeDevice(reading=reading, traits=Traits(1e-6, 5e-3, watchdog_s=0.001))
        assert calibrate(device).tick_s == 1e-6, reading


def test_an_empty_call_costs_a_thousandth_of_a_thousand():
    class Slow(FakeDevice):
        def host_s(self):
            self.pass_time(1e-4)
            return super().host_s()

    assert calibrate(Slow()).call_host_s == pytest.approx(1e-7)


def test_the_calibration_names_the_device():
    assert calibrate(FakeDevice()).device == "fake"


def test_a_device_is_calibrated_once():
    device = FakeDevice()
    first = calibrate(device)
    stamps = device.stamps
    assert (calibrate(device), device.stamps) == (first, stamps)


def test_each_device_has_a_calibration_of_its_own():
    fast, slow = FakeDevice(clock_hz=2e9), FakeDevice(clock_hz=1e9)
    assert calibrate(slow).spin_hz == pytest.approx(calibrate(fast).spin_hz / 2)


def test_measurements_on_a_device_share_its_calibration():
    device = FakeDevice()
    engines = [Engine(device, Plan(lambda: device.work(1e-3), [()], budget_s=0.2)) for _ in range(2)]
    for engine in engines:
        engine.run()
    assert engines[0].log.calibration is engines[1].log.calibration


def test_nothing_is_left_behind_on_the_device():
    device = FakeDevice(launch_s=8e-6, record_s=1.5e-6, latency_s=4e-6)
    calibrate(device)
    assert device.clock_s <= device.host_s()


def test_the_measured_function_is_not_called():
    device = FakeDevice()
    calibrate(device)
    assert device.works == 0


def test_a_device_that_vanishes_raises():
    for stamps in [0, 3, 100, 200]:
        with pytest.raises(RuntimeError, match="fell off the bus"):
            calibrate(FakeDevice(vanish_after=stamps))


def test_jitter_of_the_empty_pairs_gives_their_median():
    spread = itertools.cycle([1e-6, 2e-6, 3e-6])

    class Jitter(FakeDevice):
        def stamp(self):
            self.pair_s = next(spread)
            return super().stamp()

    assert calibrate(Jitter(tick_s=1e-9)).event_pair_s == pytest.approx(2e-6, abs=1e-9)
