"""Several devices as one: the slowest sets the time, and all begin together."""

import sys

import pytest
import torch

from pytest_roofline.core.errors import BadInput, DeviceError
from pytest_roofline.engine.devices import several
from pytest_roofline.engine.devices.base import THERMAL, Counters, Traits
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.devices.several import SeveralDevices
from pytest_roofline.engine.timing import Engine, Plan

GIB = 2**30
# As on a host that submits faster than its devices work.
HOST = {"launch_s": 2e-6, "record_s": 1e-6, "latency_s": 1e-6}


class OneHost:
    """The clock of the host that several devices share."""

    def __init__(self):
        self.now_s = 0.0


class Peer(FakeDevice):
    """A fake device beside others of one host, which can wait for another one's stamp."""

    def __init__(self, host, **arguments):
        self.host = host
        self.waits = 0
        super().__init__(**arguments)

    @property
    def _host_s(self):
        return self.host.now_s

    @_host_s.setter
    def _host_s(self, now_s):
        self.host.now_s = max(self.host.now_s, now_s)

    def wait_for(self, stamp):
        self.waits += 1
        self.clock_s = max(self.clock_s, stamp)


def pair(*each, **common):
    """Several peers of one host, each with its own arguments."""
    host = OneHost()
    return SeveralDevices([Peer(host, **(HOST | common | arguments)) for arguments in each or ({}, {})])


def median_s(group, work, budget_s=0.2):
    """The median that the engine finds for `work(devices)`."""
    engine = Engine(group, Plan(lambda: work(*group.devices), [()], budget_s))
    engine.run()
    return engine.samples()


def test_the_slowest_device_sets_the_time():
    group = pair()
    start = group.stamp()
    group.devices[0].work(1e-3)
    group.devices[1].work(3e-3)
    assert group.elapsed_s(start, group.stamp()) == pytest.approx(3e-3, rel=0.01)


@pytest.mark.parametrize("slow", [0, 1])
def test_the_engine_finds_the_time_of_the_slowest(slow):
    seconds = [1e-4, 1e-4]
    seconds[slow] = 2.5e-4
    samples = median_s(pair(), lambda a, b: (a.work(seconds[0]), b.work(seconds[1])))
    assert samples.median_s == pytest.approx(2.5e-4, rel=0.01)


def test_devices_whose_spins_end_apart_begin_together():
    for fast in [0, 1]:
        # 20 % more clock: a spin of a millisecond ends 0.17 ms earlier, much more than the work takes.
        clocks = [{}, {}]
        clocks[fast] = {"clock_hz": 2.4e9}
        group = pair(*clocks)

        def together(first, second):
            first.clock_s = second.clock_s = max(first.clock_s, second.clock_s)
            first.work(5e-5)
            second.work(5e-5)
            first.clock_s = second.clock_s = max(first.clock_s, second.clock_s)

        samples = median_s(group, together)
        assert max(samples.seconds) == pytest.approx(5e-5, rel=0.02), fast


def test_devices_that_cannot_wait_for_each_other_are_timed_all_the_same():
    group = SeveralDevices([FakeDevice(), FakeDevice()])
    start = group.stamp()
    group.spin(2_000_000)
    middle = group.stamp()
    group.devices[1].work(1e-3)
    assert group.elapsed_s(middle, group.stamp()) == pytest.approx(1e-3)
    assert group.elapsed_s(start, middle) == pytest.approx(1e-3)


def waits(group):
    return [device.waits for device in group.devices]


def test_they_meet_once_behind_a_spin_and_before_the_second_stamp_after_it():
    group = pair()
    group.spin(1000)
    group.stamp()
    before = waits(group)
    group.stamp()
    met = waits(group)
    group.stamp()
    assert (before, met, waits(group)) == ([0, 0], [1, 1], [1, 1])


def test_nobody_waits_inside_a_spin_that_tells_the_clock():
    group = pair()
    group.spin(1000)
    group.stamp()
    group.spin(1000)
    group.stamp()
    assert waits(group) == [0, 0]


def test_who_was_waited_for_need_not_meet():
    group = pair()
    group.spin(1000)
    group.synchronize()
    group.stamp(), group.stamp()
    assert waits(group) == [0, 0]


def test_all_spin_so_that_the_launches_on_each_are_hidden():
    group = pair()
    start = group.stamp()
    group.spin(2_000_000)
    end = group.stamp()
    spans = [device.elapsed_s(a, b) for device, a, b in zip(group.devices, start, end, strict=True)]
    assert spans == pytest.approx([1e-3, 1e-3], rel=0.01)


def test_a_stamp_is_reached_as_soon_as_any_device_has_come_to_it():
    for early in [0, 1]:
        group = pair()
        group.devices[1 - early].work(1.0)
        stamp = group.stamp()
        group.host_s()
        group.devices[early].pass_time(0.5)
        assert group.reached(stamp), early


def test_a_stamp_that_no_device_has_come_to_is_not_reached():
    group = pair()
    for device in group.devices:
        device.work(1.0)
    assert not group.reached(group.stamp())


def test_waiting_waits_for_every_device():
    group = pair()
    group.devices[1].work(1.0)
    group.synchronize()
    assert group.host_s() >= 1.0


def test_stamps_that_run_backwards_on_one_device_do_not_hide_behind_another():
    host = OneHost()
    group = SeveralDevices([Peer(host), Peer(host, reading="reversed")])
    start = group.stamp()
    for device in group.devices:
        device.work(1e-3)
    assert group.elapsed_s(start, group.stamp()) < 0


def test_a_cause_that_is_active_on_one_device_stands_for_all():
    group = pair({}, {"throttle": lambda _: frozenset({THERMAL})})
    assert group.counters().active == {THERMAL}


def test_a_cause_on_one_device_stands_even_where_another_does_not_tell():
    group = pair({"throttle": None}, {"throttle": lambda _: frozenset({THERMAL})})
    assert group.counters().active == {THERMAL}


def test_what_one_device_does_not_tell_is_unknown_of_all():
    group = pair({}, {"throttle": None, "others_bytes": None, "others_busy": None})
    assert group.counters() == Counters(active=None, seconds={}, others_bytes=None, others_busy=None)


def test_the_neighbours_are_those_of_the_worst_device():
    group = pair({"others_bytes": 5, "others_busy": 0.0}, {"others_bytes": 1, "others_busy": 0.5})
    assert (group.counters().others_bytes, group.counters().others_busy) == (5, 0.5)


def test_seconds_of_a_cause_add_up_so_that_no_growth_is_hidden():
    group = pair({"throttle": lambda _: frozenset({THERMAL})}, {"throttle": lambda _: frozenset({THERMAL})})
    group.devices[0].work(1.0)
    one = group.counters().seconds[THERMAL]
    group.devices[1].work(1.0)
    assert group.counters().seconds[THERMAL] == 2 * one


def test_a_block_in_which_one_device_was_hot_is_excluded():
    group = pair({}, {"throttle": lambda busy_s: frozenset({THERMAL}) if busy_s > 0.05 else frozenset()})
    assert THERMAL in median_s(group, lambda a, b: (a.work(1e-4), b.work(1e-4))).excluded


def test_what_is_free_is_free_on_every_device():
    assert pair({"memory_bytes": 3 * GIB}, {"memory_bytes": 2 * GIB}).free_bytes() == 2 * GIB


def test_a_calls_memory_adds_up_over_the_devices():
    group = pair()

    def call():
        for device, size_bytes in zip(group.devices, (100, 20), strict=True):
            device.allocate(size_bytes)
            device.allocate(-size_bytes)

    assert group.peak_bytes(call) == 120


def test_memory_is_unknown_where_one_device_does_not_tell(monkeypatch):
    group = pair()
    monkeypatch.setattr(group.devices[1], "peak_bytes", lambda call: call())
    assert group.peak_bytes(lambda: None) is None


def test_a_flush_goes_through_the_cache_of_every_device():
    group = pair()
    group.flusher(1000)()
    assert [device.works for device in group.devices] == [1, 1]


def test_every_device_gives_its_memory_back(monkeypatch):
    group, released = pair(), []
    for device in group.devices:
        monkeypatch.setattr(device, "release", lambda device=device: released.append(device))
    group.release()
    assert released == list(group.devices)


def test_facts_are_those_of_the_first():
    group = pair({"driver": "1"}, {"driver": "2"})
    assert (group.facts().driver, group.gpu()) == ("1", None)


def test_a_group_is_named_after_its_devices():
    assert pair().name == "fake+fake"


def test_graphs_are_not_asked_for():
    assert (pair().traits.graphs, pair().devices[0].traits.graphs) == (False, True)


def test_devices_of_different_kinds_are_refused():
    with pytest.raises(BadInput, match="different kinds"):
        pair({}, {"traits": Traits(tick_s=1.0, shortest_span_s=1.0)})


def test_a_single_device_is_no_group():
    with pytest.raises(BadInput, match="1 devices are no group"):
        pair({})


class Stream:
    """A stream of a GPU that notes for which events it waits."""

    def __init__(self, device):
        self.device, self.waited = device, []

    def wait_event(self, event):
        self.waited.append(event)


class Event:
    """An event that notes on which GPU it was recorded."""

    def __init__(self, cuda):
        self._cuda, self.recorded_on = cuda, None

    def record(self):
        self.recorded_on = self._cuda.current


class Cuda:
    """As much of torch.cuda as several GPUs need; the current one can be asked."""

    def __init__(self, monkeypatch, count=4):
        self.current, self.spun = 0, []
        self.streams = [Stream(index) for index in range(count)]
        event = type("Event", (Event,), {"__init__": lambda event, **_: Event.__init__(event, self)})
        replaced = {
            "Event": event,
            "_sleep": lambda cycles: self.spun.append((self.current, cycles)),
            "current_device": lambda: self.current,
            "current_stream": lambda index: self.streams[index],
            "device": lambda index: On(self, index),
            "device_count": lambda: count,
            "is_available": lambda: True,
            "set_device": self.set_device,
        }
        for name, value in replaced.items():
            monkeypatch.setattr(torch.cuda, name, value)
        monkeypatch.setattr(torch.version, "hip", None, raising=False)
        monkeypatch.setitem(sys.modules, "pynvml", None)

    def set_device(self, index):
        self.current = index


class On:
    """A GPU that is current for a while."""

    def __init__(self, cuda, index):
        self.cuda, self.index, self.before = cuda, index, None

    def __enter__(self):
        self.before, self.cuda.current = self.cuda.current, self.index

    def __exit__(self, *_):
        self.cuda.current = self.before


@pytest.fixture
def cuda(monkeypatch):
    return Cuda(monkeypatch)


def test_opening_a_peer_leaves_the_current_gpu_current(cuda):
    assert (several.open_peer("cuda:2").index, cuda.current) == (2, 0)


def test_a_peer_is_stamped_on_its_own_gpu(cuda):
    assert (several.open_peer("cuda:2").stamp().recorded_on, cuda.current) == (2, 0)


def test_a_peer_spins_on_its_own_gpu(cuda):
    several.open_peer("cuda:3").spin(17)
    assert (cuda.spun, cuda.current) == ([(3, 17)], 0)


def test_peers_meet_by_events_on_their_own_streams(cuda):
    group = SeveralDevices([several.open_peer("cuda:1"), several.open_peer("cuda:3")])
    group.spin(1000)
    group.stamp(), group.stamp()
    waited = [[event.recorded_on for event in stream.waited] for stream in cuda.streams]
    assert waited == [[], [3], [], [1]]


def test_a_gpu_that_is_not_there_is_named_with_what_is(cuda):
    with pytest.raises(DeviceError, match="devices asks for cuda:7, found 4 devices, cuda:0 to cuda:3"):
        several.open_peer("cuda:7")
