"""Several devices as one: the slowest sets the time, and all begin together; `roofline.measure(devices=…)`."""

import contextlib
import sys

import pytest
import torch

from pytest_roofline.core.errors import BadInput, DeviceError
from pytest_roofline.core.facts import THERMAL
from pytest_roofline.engine.devices import several
from pytest_roofline.engine.devices.base import Counters, Traits
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.devices.several import SeveralDevices
from pytest_roofline.engine.timing import Engine, Plan

GIB = 2**30
# As on a host that submits faster than its devices work.
HOST = {"launch_s": 2e-6, "record_s": 1e-6, "latency_s": 1e-6}


class OneHost:
    """The clock of the host that several devices share."""

    now_s = 0.0


class Peer(FakeDevice):
    """A fake device beside others of one host, which can wait for another one's stamp."""

    def __init__(self, host, **arguments):
        self.host, self.waits = host, 0
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


def pair(*each):
    """Several peers of one host, each with its own arguments."""
    host = OneHost()
    return SeveralDevices([Peer(host, **HOST | arguments) for arguments in each or ({}, {})])


def timed(group, work):
    """The samples that the engine takes of `work(devices)`."""
    engine = Engine(group, Plan(lambda: work(*group.devices), [()], 0.2))
    engine.run()
    return engine.samples()


def test_the_slowest_device_sets_the_time():
    for seconds in [(1e-4, 2.5e-4), (2.5e-4, 1e-4)]:
        work = lambda a, b, seconds=seconds: (a.work(seconds[0]), b.work(seconds[1]))  # noqa: E731
        assert timed(pair(), work).median_s == pytest.approx(2.5e-4, rel=0.01), seconds
    # Whose stamps run backwards does not hide behind another.
    group = pair()
    group.devices[1].elapsed_s = lambda start, end: start - end
    start = group.stamp()
    for device in group.devices:
        device.work(1e-3)
    assert group.elapsed_s(start, group.stamp()) < 0


def test_devices_whose_spins_end_apart_begin_together():
    for fast in [0, 1]:
        # 20 % more clock: a spin of a millisecond ends 0.17 ms earlier, much more than the work takes.
        clocks = [{}, {}]
        clocks[fast] = {"clock_hz": 2.4e9}

        def together(first, second):
            first.clock_s = second.clock_s = max(first.clock_s, second.clock_s)
            first.work(5e-5)
            second.work(5e-5)
            first.clock_s = second.clock_s = max(first.clock_s, second.clock_s)

        assert max(timed(pair(*clocks), together).seconds) == pytest.approx(5e-5, rel=0.02), fast


def test_they_meet_once_behind_a_spin_and_never_inside_one_that_tells_the_clock():
    def waits(*steps):
        group, seen = pair(), []
        for step in steps:
            getattr(group, step)(*([1000] if step == "spin" else []))
            seen.append(tuple(device.waits for device in group.devices))
        return seen

    assert waits("spin", "stamp", "stamp", "stamp")[1:] == [(0, 0), (1, 1), (1, 1)]
    assert waits("spin", "stamp", "spin", "stamp")[-1] == (0, 0)
    # Who was waited for need not meet.
    assert waits("spin", "synchronize", "stamp", "stamp")[-1] == (0, 0)
    group = pair()
    start = group.stamp()
    group.spin(2_000_000)
    spans = [
        device.elapsed_s(*ends)
        for device, *ends in zip(group.devices, start, group.stamp(), strict=True)
    ]
    assert spans == pytest.approx([1e-3, 1e-3], rel=0.01)


def test_a_stamp_is_reached_as_soon_as_any_device_has_come_to_it_and_waiting_waits_for_every_one():
    for busy, reached in [((0, 1), False), ((0,), True), ((1,), True)]:
        group = pair()
        for index in busy:
            group.devices[index].work(1.0)
        stamp = group.stamp()
        group.devices[0].pass_time(0.5)
        assert group.reached(stamp) == reached, busy
        group.synchronize()
        assert group.host_s() >= 1.0


def test_of_their_states_the_worst_stands_and_what_one_does_not_tell_is_unknown():
    hot, mute = {"throttle": lambda _: frozenset({THERMAL})}, {"throttle": None}
    untold = mute | {"others_bytes": None, "others_busy": None}
    assert [pair(one, hot).counters().active for one in ({}, mute)] == [{THERMAL}] * 2
    assert pair({}, untold).counters() == Counters()
    counters = pair(
        {"others_bytes": 5, "others_busy": 0.0}, {"others_bytes": 1, "others_busy": 0.5}
    ).counters()
    assert (counters.others_bytes, counters.others_busy) == (5, 0.5)
    # Seconds of a cause add up, so that no growth is hidden.
    group = pair(hot, hot)
    for index, seconds in enumerate((1.0, 2.0)):
        group.devices[index].work(1.0)
        assert group.counters().seconds[THERMAL] == pytest.approx(seconds)
    late = {"throttle": lambda busy_s: frozenset({THERMAL}) if busy_s > 0.05 else frozenset()}
    assert THERMAL in timed(pair({}, late), lambda a, b: (a.work(1e-4), b.work(1e-4))).excluded


def test_flushes_and_releases_go_to_every_device_and_facts_are_those_of_the_first(monkeypatch):
    group, released = pair({"driver": "1"}, {"driver": "2", "memory_bytes": 2 * GIB}), []
    group.flusher(1000)()
    for device in group.devices:
        monkeypatch.setattr(device, "release", lambda device=device: released.append(device))
    group.release()
    assert ([device.works for device in group.devices], released) == ([1, 1], list(group.devices))
    assert (group.facts().driver, group.gpu(), group.name) == ("1", None, "fake+fake")
    assert (group.traits.graphs, group.devices[0].traits.graphs) == (False, True)
    with pytest.raises(BadInput, match="different kinds"):
        pair({}, {"traits": Traits(tick_s=1.0, shortest_span_s=1.0)})
    with pytest.raises(BadInput, match="1 devices cannot form a group"):
        pair({})


class Cuda:
    """As much of torch.cuda as several GPUs need; the current one can be asked, and what each stream waited for."""

    def __init__(self, monkeypatch, count=4):
        self.current, self.spun, self.waited = 0, [], [[] for _ in range(count)]
        cuda = self

        class Event:
            def __init__(self, **_):
                self.recorded_on = None

            def record(self):
                self.recorded_on = cuda.current

        class Stream:
            def __init__(self, index):
                self.wait_event = lambda event: cuda.waited[index].append(event.recorded_on)

        @contextlib.contextmanager
        def on(index):
            before, self.current = self.current, index
            yield
            self.current = before

        pieces = {
            "Event": Event, "_sleep": lambda cycles: self.spun.append((self.current, cycles)),
            "current_device": lambda: self.current, "current_stream": Stream, "device": on,
            "device_count": lambda: count, "is_available": lambda: True,
            "set_device": lambda index: setattr(self, "current", index),
            # A build with CUDA would ask a driver which GPU it has.
            "get_arch_list": list,
        }  # fmt: skip
        for name, piece in pieces.items():
            monkeypatch.setattr(torch.cuda, name, piece, raising=False)
        monkeypatch.setattr(torch.version, "hip", None, raising=False)
        monkeypatch.setitem(sys.modules, "pynvml", None)


def test_peers_of_torchs_stamp_spin_and_meet_on_their_own_gpus_and_leave_the_current_one_current(
    monkeypatch,
):
    cuda = Cuda(monkeypatch)
    peer = several.open_peer("cuda:2")
    assert (peer.index, peer.stamp().recorded_on, cuda.current) == (2, 2, 0)
    group = SeveralDevices([several.open_peer("cuda:1"), several.open_peer("cuda:3")])
    group.spin(1000)
    group.stamp(), group.stamp()
    assert (cuda.waited, cuda.spun, cuda.current) == ([[], [3], [], [1]], [(1, 1000), (3, 1000)], 0)
    with pytest.raises(
        DeviceError, match="devices asks for cuda:7, found 4 devices, cuda:0 to cuda:3"
    ):
        several.open_peer("cuda:7")


# `roofline.measure(devices=…)`: three GPUs of one host, the last of another product; any other name is not there.

CONFTEST = """
import pytest
from tests.engine.test_several import HOST, OneHost, Peer

ONE, OPENED = OneHost(), []
GPUS = {name: Peer(ONE, **HOST) for name in ("cuda:0", "cuda:1")}
GPUS["cuda:2"] = Peer(ONE, product="NVIDIA A100-SXM4-80GB", **HOST)

def pytest_roofline_device(config, name):
    if name is None:
        return GPUS["cuda:0"]
    OPENED.append(name)
    return GPUS[name]

@pytest.fixture
def gpus():
    return GPUS

@pytest.fixture
def opened():
    return OPENED
"""
LINK = "Work(payload_bytes=10**7, wire_bytes=10**7)"
TEST = f"""
def both(gpus):
    gpus["cuda:0"].work(1e-4)
    gpus["cuda:1"].work(3e-4)

def test_it(roofline, gpus):
    roofline.measure(lambda: both(gpus), work={LINK}, devices=("cuda:0", "cuda:1"))
"""
MORE = f"""
def test_more(roofline, gpus, monkeypatch):
    released = []
    for name, device in gpus.items():
        monkeypatch.setattr(device, "release", lambda name=name: released.append(name))
    roofline.measure(lambda: both(gpus), work={LINK}, devices=("cuda:0", "cuda:1"))
    assert released[:2] == ["cuda:0", "cuda:1"]
    roofline.measure(lambda: gpus["cuda:0"].work(1e-4), work={LINK}, name="alone")

def test_opened(opened):
    assert len(opened) == 2

def test_too_full(roofline, gpus, monkeypatch):
    monkeypatch.setattr(gpus["cuda:1"], "free_bytes", lambda: 10**8)
    roofline.measure(lambda *_: gpus["cuda:1"].work(1e-3), work={LINK}, devices=("cuda:0", "cuda:1"),
                     cache="rotate", make_args=tuple)
"""


@pytest.fixture
def peers(suite):
    """A suite on fake GPUs of one host."""
    suite.pytester.makeconftest(CONFTEST)
    return suite


def test_several_devices_are_opened_once_timed_together_and_written_down_as_such(peers):
    result = peers.run(TEST + MORE, "-rs")
    result.assert_outcomes(passed=3, skipped=1)
    result.stdout.fnmatch_lines(
        ["SKIPPED*needs * of free memory to rotate through * sets*, found 100 MB*"]
    )
    measured = [one for one in peers.saved().measurements if not one.key.is_canary]
    assert [(one.key.hardware.devices, one.key.name) for one in measured] == [
        (2, ""),
        (2, ""),
        (1, "alone"),
    ]
    first = measured[0]
    # 33 GB/s of payload on an H100: its PCIe would be its roofline from the host, and is not between devices.
    assert (first.median_s, first.ceiling) == (pytest.approx(3e-4, rel=0.02), None)
    assert first.key.hardware.link == "unknown"


def test_what_names_no_several_devices_of_one_product_is_a_sentence(peers):
    cases = {
        "'cuda:0'": "devices is 'cuda:0'; expected names of devices",
        "('cuda:0', 'cuda:0')": "expected two or more names, each of them once",
        '("cuda:0", "cuda:2")': "are NVIDIA A100-SXM4-80GB and NVIDIA H100 80GB HBM3; expected devices of one product",
    }
    tests = "".join(
        f"def test_{number}(roofline):\n    roofline.measure(lambda: None, work={LINK}, devices={devices})\n"
        for number, devices in enumerate(cases)
    )
    result = peers.run(tests)
    result.assert_outcomes(failed=len(cases))
    for sentence in cases.values():
        assert sentence in result.stdout.str()
    peers.pytester.makeconftest("")
    result = peers.run(TEST.replace("gpus", "tmp_path"), "--roofline-device=cpu")
    assert "devices names cuda:0, but the measured device is cpu" in result.stdout.str()
