"""Blocks of samples: behind a spin, beside the host, waited for one by one, and by the host's clock in need."""

import itertools

import pytest

from pytest_roofline.core.errors import DeviceError
from pytest_roofline.engine.blocks import Stopwatch
from pytest_roofline.engine.devices.base import Traits
from pytest_roofline.engine.devices.fake import FakeDevice

# The launch-queue model of docs/timing.md.
COSTS = {"launch_s": 8e-6, "record_s": 1.5e-6, "latency_s": 4e-6, "tick_s": 0.5e-6}
KERNEL_S, CLOCK_HZ = 2.3e-6, 2e9
PROBE_CYCLES = int(1e-4 * CLOCK_HZ)


def mps(**facts):
    """A device like Apple's."""
    traits = Traits(tick_s=1e-6, shortest_span_s=5e-3, stamps=False)
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


def test_three_kernels_behind_a_spin_show_their_own_time_and_beside_the_host_its_gaps():
    device = FakeDevice(**COSTS)
    taken = block_behind(device, 5e-3, 100)
    assert {round(span_s / 0.5e-6) for span_s in taken.spans} <= {13, 14}
    assert taken.host_s == pytest.approx(100 * (3 * 8e-6 + 2 * 1.5e-6))
    assert (taken.ahead, taken.wall_s) == (True, device.host_s())
    device = FakeDevice(**COSTS)
    beside = watch(device).behind(three_kernels(device), 100)
    assert (beside.ahead, min(beside.spans) > 3 * 8e-6) == (None, True)


def test_the_host_is_ahead_only_if_the_spin_outlasts_all_of_its_submitting():
    for name, facts, spin_s, samples, in_call in [
        # A hundred samples of three launches and two stamps are 2.7 ms of the host.
        ("too short a spin", {}, 1e-3, 100, None),
        # Five entries a sample.
        ("a full queue", {"queue_depth": 100}, 20e-3, 40, None),
        ("a hiccup", {}, 5e-3, 100, lambda device, call: device.pass_time(10e-3 if call == 50 else 0.0)),
        ("a wait", {}, 5e-3, 10, lambda device, call: device.synchronize()),
    ]:
        device, calls = FakeDevice(**COSTS, **facts), itertools.count()

        def submit(device=device, calls=calls, in_call=in_call):
            device.work(KERNEL_S)
            in_call(device, next(calls))

        assert block_behind(device, spin_s, samples, submit if in_call else None).ahead is False, name


def test_the_clock_is_told_before_and_behind_a_block_whatever_a_launch_takes():
    slow = FakeDevice(**COSTS, clock=lambda busy_s: 0.8)
    assert block_behind(slow, 5e-3, 10).clocks_hz[1] == pytest.approx(0.8 * CLOCK_HZ, rel=0.01)
    device = FakeDevice(**COSTS, clock=lambda busy_s: 1.0 if busy_s < 6e-3 else 0.5)
    before_hz, after_hz = block_behind(device, 5e-3, 10, lambda: device.work(1e-3)).clocks_hz
    assert before_hz / after_hz == pytest.approx(2.0, rel=0.02)
    for launch_s in [0.0, 8e-6, 40e-6]:
        found = watch(FakeDevice(**{**COSTS, "launch_s": launch_s})).clock_hz(PROBE_CYCLES)
        assert found == pytest.approx(CLOCK_HZ, rel=0.01), launch_s
    # A spin too short for the stamps.
    assert watch(FakeDevice(tick_s=1e-3)).clock_hz(1) is None


def test_a_flush_goes_before_every_call_and_is_in_no_span():
    device = FakeDevice(tick_s=1e-9)
    taken = block_behind(device, 5e-3, 10, lambda: device.work(1e-3), flush=lambda: device.work(7e-3))
    assert (taken.spans, device.works) == (pytest.approx([1e-3] * 10), 20)
    for make, wall in itertools.product([FakeDevice, mps], [False, True]):
        device = make(tick_s=1e-6, launch_s=0.0, latency_s=0.0)
        stopwatch = watch(device, wall, flush=lambda device=device: device.work(7e-3))
        spans = stopwatch.plain(lambda device=device: device.work(1e-3), 5).spans
        assert spans == pytest.approx([1e-3] * 5), (make, wall)


def test_samples_that_are_waited_for_are_as_many_as_asked_and_by_the_hosts_clock_hold_launch_and_wait():
    device = FakeDevice(**COSTS)
    taken = watch(device).plain(lambda: device.work(1e-4), 7)
    assert (len(taken.spans), taken.ahead, taken.alone) == (7, None, True)
    for device, wall in [(FakeDevice(**COSTS), True), (mps(), False)]:
        spent_s = watch(device, wall).span_s(lambda device=device: device.work(1e-4))
        assert (spent_s, device.stamps) == (pytest.approx(1e-4 + 8e-6 + 4e-6), 0)


def test_a_device_that_vanishes_is_named_and_an_error_of_the_function_is_not_the_devices():
    for stamps in range(4):
        with pytest.raises(DeviceError, match="fake stopped answering: the device fell off the bus"):
            block_behind(FakeDevice(vanish_after=stamps), 5e-3, 10)
    backwards = FakeDevice()
    backwards.elapsed_s = lambda start, end: -1.0
    with pytest.raises(DeviceError, match="stamps run backwards"):
        block_behind(backwards, 5e-3, 10)

    def submit():
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match=r"^out of memory$"):
        block_behind(FakeDevice(), 5e-3, 10, submit)
