"""Apple's GPU, with stand-ins for torch.mps."""

import pytest
import torch

from pytest_roofline.core.errors import DeviceError
from pytest_roofline.engine.devices import open_device
from pytest_roofline.engine.devices.base import Counters
from pytest_roofline.engine.devices.mps import MpsDevice

GIB = 2**30
LOG = []


class FakeEvent:
    """An event of torch.mps: waiting for it first makes reading hang (pytorch 162872), so nobody may."""

    def __init__(self, enable_timing=False):
        assert enable_timing

    def record(self):
        LOG.append("record")

    def synchronize(self):
        LOG.append("wait for the event")

    def elapsed_time(self, end):
        LOG.append("read")
        return 1500.0


@pytest.fixture
def log(monkeypatch):
    """What is asked of torch.mps, in order."""
    LOG.clear()
    monkeypatch.setattr(torch.mps, "Event", FakeEvent)
    monkeypatch.setattr(torch.mps, "synchronize", lambda: LOG.append("wait for the device"))
    monkeypatch.setattr(torch.mps, "empty_cache", lambda: LOG.append("release"))
    return LOG


def test_reading_waits_for_the_device_and_never_for_the_event(log):
    device = MpsDevice()
    device.elapsed_s(device.stamp(), device.stamp())
    assert log == ["record", "record", "wait for the device", "read"]


def test_elapsed_is_in_seconds(log):
    device = MpsDevice()
    assert device.elapsed_s(device.stamp(), device.stamp()) == 1.5


def test_a_stamp_does_not_wait(log):
    MpsDevice().stamp()
    assert log == ["record"]


def test_waiting_is_for_the_device(log):
    MpsDevice().synchronize()
    assert log == ["wait for the device"]


def test_release_empties_torchs_cache(log):
    MpsDevice().release()
    assert log == ["release"]


def test_a_watchdog_stands_by_since_reading_can_hang():
    assert MpsDevice().traits.watchdog_s > 0


def test_spans_are_five_milliseconds_since_shorter_ones_mean_nothing():
    assert MpsDevice().traits.shortest_span_s == 5e-3


def test_it_has_a_queue_but_neither_spin_nor_graphs():
    traits = MpsDevice().traits
    assert (traits.queues, traits.spins, traits.graphs) == (True, False, False)


def test_its_state_and_its_peak_are_unknown():
    device = MpsDevice()
    assert (device.counters(), device.peak_bytes(lambda: 1 / 0)) == (Counters(), None)


@pytest.mark.parametrize(("recommended", "allocated", "free"), [(10, 4, 6), (4, 10, 0)])
def test_free_memory_is_what_metal_recommends_less_what_is_allocated(monkeypatch, recommended, allocated, free):
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: recommended * GIB)
    monkeypatch.setattr(torch.mps, "driver_allocated_memory", lambda: allocated * GIB)
    assert MpsDevice().free_bytes() == free * GIB


def test_its_facts_are_the_chips_with_the_hosts_memory(machine):
    machine.memory(16 * GIB, 8 * GIB)
    machine.write("proc/cpuinfo", "model name\t: Apple M4\n")
    facts = MpsDevice().facts()
    assert (facts.type, facts.product, facts.memory_bytes) == ("mps", "Apple M4", 16 * GIB)


def test_it_opens_where_torch_finds_it(monkeypatch):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert open_device("mps").name == "mps"


@pytest.mark.parametrize(
    ("built", "message"),
    [(True, "asks for mps, found none$"), (False, "found none; this torch is built without it$")],
)
def test_where_it_is_not_there_the_error_says_whether_torch_could_use_it(monkeypatch, built, message):
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_built", lambda: built)
    with pytest.raises(DeviceError, match=message):
        open_device("mps")
