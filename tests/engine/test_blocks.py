"""Blocks of samples: behind a spin, beside the host, waited for one by one, and by the host's clock in need."""

from itertools import count

import pytest

from pytest_roofline.core.errors import DeviceError
from pytest_roofline.engine.blocks import Stopwatch
from pytest_roofline.engine.devices.base import Traits
from pytest_roofline.engine.devices.fake import FakeDevice

# The launch-queue model of measuring.md, 2.1.
COSTS = {"launch_s": 8e-6, "record_s": 1.5e-6, "latency_s": 4e-6, "tick_s": 0.5e-6}
KERNEL_S = 2.3e-6
CLOCK_HZ = 2e9
PROBE_CYCLES = int(1e-4 * CLOCK_HZ)
PATIENT_S = 60.0


def mps(watchdog_s=PATIENT_S, **facts):
    """A device like Apple's."""
    traits = Traits(tick_s=1e-6, shortest_span_s=5e-3, watchdog_s=watchdog_s)
    return FakeDevice(**{"launch_s": 8e-6, "latency_s": 4e-6, "tick_s": 1e-6, **facts}, traits=traits)


def watch(device, wall=False, flush=None):
    return Stopwatch(device, wall, flush)


def three_kernels(device):
    return lambda: [device.work(KERNEL_S) for _ in range(3)]


def block_behind(device, spin_s, samples, submit=None, flush=None):
    """A block behind so long a spin."""
    return watch(device, flush=flush).ahead(
        submit or three_kernels(device), samples, int(spin_s * CLOCK_HZ), PROBE_CYCLES
    )


def test_three_kernels_behind_a_spin_show_their_own_time():
    taken = block_behind(FakeDevice(**COSTS), 5e-3, 100)
    assert {round(span_s / 0.5e-6) for span_s in taken.spans} <= {13, 14}


def test_three_kernels_beside_the_host_show_its_gaps():
    device = FakeDevice(**COSTS)
    taken = watch(device).behind(three_kernels(device), 100)
    assert min(taken.spans) > 3 * 8e-6


def test_the_host_is_ahead_of_a_block_only_if_the_spin_outlasts_its_submitting():
    for spin_s, ahead in [(5e-3, True), (1e-3, False)]:
        # A hundred samples of three launches and two stamps are 2.7 ms of the host.
        assert block_behind(FakeDevice(**COSTS), spin_s, 100).ahead == ahead, (spin_s, ahead)


def test_a_full_queue_is_a_host_that_is_not_ahead():
    # Five entries a sample.
    assert not block_behind(FakeDevice(**COSTS, queue_depth=100), 20e-3, 40).ahead


def test_a_hiccup_in_the_middle_shows():
    device = FakeDevice(**COSTS)
    calls = count()

    def submit():
        device.pass_time(10e-3 if next(calls) == 50 else 0.0)
        device.work(KERNEL_S)

    assert not block_behind(device, 5e-3, 100, submit).ahead


def test_whoever_waits_inside_is_not_ahead():
    device = FakeDevice(**COSTS)

    def submit():
        device.work(KERNEL_S)
        device.synchronize()

    assert not block_behind(device, 5e-3, 10, submit).ahead


def test_host_seconds_of_a_block_are_those_of_submitting():
    taken = block_behind(FakeDevice(**COSTS), 5e-3, 100)
    assert taken.host_s == pytest.approx(100 * (3 * 8e-6 + 2 * 1.5e-6))


def test_wall_seconds_of_a_block_are_all_of_it():
    device = FakeDevice(**COSTS)
    taken = block_behind(device, 5e-3, 100)
    assert taken.wall_s == device.host_s()


def test_the_clock_behind_a_block_is_that_of_the_moment():
    device = FakeDevice(**COSTS, clock=lambda busy_s: 0.8)
    taken = block_behind(device, 5e-3, 10)
    assert taken.clocks_hz[1] == pytest.approx(0.8 * CLOCK_HZ, rel=0.01)


def test_a_clock_that_changes_within_a_block_shows_at_its_ends():
    device = FakeDevice(**COSTS, clock=lambda busy_s: 1.0 if busy_s < 6e-3 else 0.5)
    before_hz, after_hz = block_behind(device, 5e-3, 10, lambda: device.work(1e-3)).clocks_hz
    assert before_hz / after_hz == pytest.approx(2.0, rel=0.02)


def test_the_clock_does_not_depend_on_how_long_a_launch_takes():
    for launch_s in [0.0, 8e-6, 40e-6]:
        device = FakeDevice(**{**COSTS, "launch_s": launch_s})
        assert watch(device).clock_hz(PROBE_CYCLES) == pytest.approx(CLOCK_HZ, rel=0.01), launch_s


def test_a_spin_too_short_for_the_stamps_tells_no_clock():
    assert watch(FakeDevice(tick_s=1e-3)).clock_hz(1) is None


def test_a_flush_goes_before_every_call_and_is_in_no_span():
    device = FakeDevice(tick_s=1e-9)
    taken = block_behind(device, 5e-3, 10, lambda: device.work(1e-3), flush=lambda: device.work(7e-3))
    assert taken.spans == pytest.approx([1e-3] * 10)
    assert device.works == 20


@pytest.mark.parametrize("wall", [False, True])
@pytest.mark.parametrize("make", [FakeDevice, mps])
def test_a_flush_is_in_no_span_that_is_waited_for(make, wall):
    device = make(tick_s=1e-6, launch_s=0.0, latency_s=0.0)
    stopwatch = watch(device, wall, flush=lambda: device.work(7e-3))
    assert stopwatch.plain(lambda: device.work(1e-3), 5).spans == pytest.approx([1e-3] * 5)


def test_the_hosts_clock_has_launch_and_wait_in_it():
    device = FakeDevice(**COSTS)
    assert watch(device, wall=True).span_s(lambda: device.work(1e-4)) == pytest.approx(1e-4 + 8e-6 + 4e-6)


def test_samples_that_are_waited_for_are_as_many_as_asked():
    device = FakeDevice(**COSTS)
    assert len(watch(device).plain(lambda: device.work(1e-4), 7).spans) == 7


def test_samples_that_are_waited_for_know_no_ahead():
    device = FakeDevice(**COSTS)
    assert watch(device).plain(lambda: device.work(1e-4), 7).ahead is None


def test_a_right_reading_stays_with_the_devices_clock():
    device = mps()
    stopwatch = watch(device)
    assert stopwatch.span_s(lambda: device.work(5e-3)) == pytest.approx(5e-3 + 8e-6, abs=1e-6)
    assert not stopwatch.fell_back


@pytest.mark.parametrize("seconds", [100.4e-6, 100.6e-6, 5e-3])
def test_a_right_reading_may_be_a_tick_above_the_hosts_clock(seconds):
    device = mps(launch_s=0.0, latency_s=0.0)
    stopwatch = watch(device)
    stopwatch.span_s(lambda: device.work(seconds))
    assert not stopwatch.fell_back


@pytest.mark.parametrize("reading", ["reversed", "hanging"])
def test_a_reading_without_sense_gives_the_hosts_clock(reading):
    device = mps(watchdog_s=0.001, reading=reading)
    stopwatch = watch(device)
    span_s = stopwatch.span_s(lambda: device.work(5e-3))
    device.let_go()
    assert (span_s, stopwatch.fell_back) == (pytest.approx(5e-3 + 12e-6, abs=5e-6), True)


def test_a_reading_that_raises_gives_the_hosts_clock():
    device = mps()
    device.elapsed_s = lambda start, end: 1 / 0
    stopwatch = watch(device)
    stopwatch.span_s(lambda: device.work(5e-3))
    assert stopwatch.fell_back


def test_a_reading_longer_than_the_hosts_clock_gives_the_hosts_clock():
    device = mps()
    device.elapsed_s = lambda start, end: 3600.0
    assert watch(device).span_s(lambda: device.work(5e-3)) < 6e-3


def test_nobody_asks_a_second_time_whoever_hung():
    device = mps(watchdog_s=0.001, reading="hanging")
    stopwatch = watch(device)
    stopwatch.span_s(lambda: device.work(5e-3))
    stamps = device.stamps
    stopwatch.plain(lambda: device.work(5e-3), 10)
    device.let_go()
    assert device.stamps == stamps


def test_a_device_that_vanishes_in_a_block_is_named():
    for stamps in range(4):
        with pytest.raises(DeviceError, match="fake stopped answering: the device fell off the bus"):
            block_behind(FakeDevice(vanish_after=stamps), 5e-3, 10)


def test_an_error_of_the_measured_function_is_not_the_devices():
    device = FakeDevice()

    def submit():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match=r"^out of memory$"):
        block_behind(device, 5e-3, 10, submit)
