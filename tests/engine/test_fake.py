"""The fake device: an in-order stream with a host beside it, which every test of the engine stands on."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_roofline.core.facts import POWER_CAP
from pytest_roofline.engine.devices.base import AllocatedBytes
from pytest_roofline.engine.devices.fake import FakeDevice

# A tick without a rounding error of its own.
TICK = 2.0**-20
costs = st.integers(0, 2**10).map(lambda ticks: ticks * TICK)


def span_of(device, submit):
    """Seconds between two stamps around what `submit` submits."""
    start = device.stamp()
    submit()
    return device.elapsed_s(start, device.stamp())


def works(device, *seconds):
    """Submits kernels of these lengths."""
    for each in seconds:
        device.work(each)


def test_submitting_costs_the_host_and_the_device_works_behind_it():
    for facts, seconds, host_s, clock_s in [
        ({"launch_s": 0.5}, (8.0, 8.0), 1.0, 16.5),
        ({"launch_s": 0.5, "latency_s": 0.25}, (1.0,), 0.5, 1.75),
        # A busy device hides the latency, and a slow host leaves gaps.
        ({"latency_s": 0.25}, (1.0, 1.0), 0.0, 2.25),
        ({"launch_s": 2.0}, (1.0, 1.0, 1.0), 6.0, 7.0),
        ({"skew_s": 2.0}, (1.0,), 2.0, 3.0),
    ]:
        device = FakeDevice(**facts)
        works(device, *seconds)
        assert (device.host_s(), device.clock_s, device.busy_s) == (
            host_s,
            clock_s,
            sum(seconds),
        ), facts
    device = FakeDevice(record_s=0.25, tick_s=TICK)
    assert (
        span_of(device, lambda: (device.work(1.0), device.pass_time(4.0), device.work(1.0))) == 5.0
    )
    assert FakeDevice(tick_s=TICK, pair_s=0.5).elapsed_s(0.0, 0.0) == 0.0
    assert span_of(FakeDevice(tick_s=TICK, pair_s=0.5), lambda: None) == 0.5


def test_three_short_kernels_read_as_the_launch_queue_model_says():
    # docs/authors/timing.md: the truth is 6.9 µs; only a device that is busy for long enough in front of them shows it.
    for flush_s, seconds in [(None, 26.5e-6), (3e-6, 25.0e-6), (80e-6, 7.0e-6)]:
        device = FakeDevice(launch_s=8e-6, record_s=1.5e-6, latency_s=4e-6, tick_s=0.5e-6)
        if flush_s is not None:
            device.work(flush_s)
        assert span_of(device, lambda device=device: works(device, *[2.3e-6] * 3)) == pytest.approx(
            seconds
        ), flush_s


@given(
    st.lists(st.integers(0, 2**20).map(lambda ticks: ticks * TICK), max_size=20),
    costs,
    costs,
    costs,
    st.integers(1, 8),
)
def test_what_holds_of_every_stream(seconds, launch_s, record_s, latency_s, depth):
    free = FakeDevice(tick_s=TICK)
    assert span_of(free, lambda: works(free, *seconds)) == sum(seconds)
    device = FakeDevice(
        tick_s=TICK, launch_s=launch_s, record_s=record_s, latency_s=latency_s, queue_depth=depth
    )
    stamps = [device.stamp()]
    for each in seconds:
        device.work(each)
        stamps.append(device.stamp())
    assert (sorted(stamps), device.elapsed_s(stamps[0], stamps[-1]) >= sum(seconds)) == (
        stamps,
        True,
    )
    # A full queue makes the host wait, and never delays the device itself.
    shallow = FakeDevice(queue_depth=depth)
    works(shallow, *seconds)
    assert shallow.clock_s == sum(seconds)


def test_work_and_spins_run_by_the_clock_of_the_moment_which_an_idle_device_keeps():
    device = FakeDevice(slowdown=lambda number: 10.0**number)
    works(device, 1.0, 1.0, 1.0)
    assert device.clock_s == 111.0
    for submit in (lambda device: device.work(1.0), lambda device: device.spin(1000)):
        device = FakeDevice(
            tick_s=TICK, clock_hz=1000.0, clock=lambda busy_s: 1.0 if busy_s < 1 else 0.5
        )
        device.pass_time(100.0)
        assert [
            span_of(device, lambda device=device, submit=submit: submit(device)) for _ in range(2)
        ] == [1.0, 2.0]
    ramp = FakeDevice(clock_ramp_s=1.0)
    assert [ramp._clock(busy_s) for busy_s in (0.0, 0.5, 1.0, 5.0)] == pytest.approx(
        [345 / 1980, (1 + 345 / 1980) / 2, 1.0, 1.0]
    )


def test_a_stamp_is_reached_when_the_work_before_it_is_done_and_only_reading_and_waiting_wait():
    device = FakeDevice()
    first = device.stamp()
    device.work(1.0)
    second = device.stamp()
    device.work(8.0)
    assert (device.reached(first), device.reached(second), device.host_s()) == (True, False, 0.0)
    device.pass_time(0.5)
    device.elapsed_s(first, second)
    assert (device.reached(second), device.host_s()) == (True, 1.0)
    device.synchronize()
    assert device.host_s() == 9.0


def test_what_stays_dirty_in_the_cache_is_paid_by_whoever_evicts_it():
    # Half of 100 bytes may stay: a copy of 40 writes 20 of its 40 that it never pays for; the next ones do.
    device = FakeDevice(tick_s=TICK, cache_bytes=100, dirty_share=0.5)
    copy = lambda: device.work(4.0, "copy", 40, written_bytes=20)  # noqa: E731
    read = lambda: device.work(4.0, "read", 40)  # noqa: E731
    assert [span_of(device, call) for call in (copy, read, read)] == [2.0, 6.0, 4.0]


def test_the_power_cap_takes_the_clock_down_in_proportion_while_work_draws_more():
    device = FakeDevice(tick_s=TICK, power_cap_w=700.0, clock_hz=1000.0)
    assert span_of(device, lambda: device.work(1.0, watts=1000.0)) == pytest.approx(
        1 / 0.7, abs=2 * TICK
    )
    assert device.counters().active == {POWER_CAP}
    assert span_of(device, lambda: device.spin(700)) == pytest.approx(1.0, abs=2 * TICK)
    assert span_of(device, lambda: device.work(1.0, watts=300.0)) == 1.0
    assert device.counters().active == frozenset()


def test_memory_is_counted_above_what_was_held_before():
    for sizes, peak, held in [
        ((), 0, 0),
        ((3, -3, 2), 3, 2),
        ((3, -1, 2), 4, 4),
        ((-8, 1), 0, 0),
        ((-8, 10), 2, 2),
    ]:
        for count, expected in (("peak_bytes", peak), ("held_bytes", held)):
            device = FakeDevice()
            device.allocate(8)
            found = getattr(device, count)(
                lambda device=device, sizes=sizes: [device.allocate(size) for size in sizes]
            )
            assert found == expected, (count, sizes)
    device = FakeDevice(driver_bytes=900, context_bytes=50, others_bytes=7)
    device.allocate(5), device.allocate(-2)
    # NVML's first account holds what the driver keeps back, and its second does not.
    assert (device.memory_accounts(), device.allocated()) == ((960, 60), AllocatedBytes(3, 5))
