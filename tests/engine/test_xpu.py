"""Intel GPUs, with stand-ins for torch.xpu."""

from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.core.errors import DeviceError
from pytest_roofline.engine.devices import open_device, xpu
from pytest_roofline.engine.devices.base import Counters
from pytest_roofline.engine.devices.xpu import CYCLES_PER_LINK, XpuDevice

GIB, MIB = 2**30, 2**20


class FakeEvent:
    """An event of torch.xpu; its time is known only after it was waited for."""

    happened = False

    def __init__(self, enable_timing=False):
        assert enable_timing
        self.waited = False

    def record(self):
        self.recorded = True

    def query(self):
        return self.happened

    def synchronize(self):
        self.waited = True

    def elapsed_time(self, end):
        assert end.waited
        return 1500.0


@pytest.fixture
def properties(monkeypatch):
    """What torch says of a GPU: a Max 1550, to be changed."""
    properties = SimpleNamespace(
        name="Intel(R) Data Center GPU Max 1550",
        total_memory=64 * GIB,
        gpu_eu_count=512,
        last_level_cache_size=204 * MIB,
        driver_version="1.3.29735",
    )
    monkeypatch.setattr(torch.xpu, "set_device", lambda index: None)
    monkeypatch.setattr(torch.xpu, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.xpu, "Event", FakeEvent)
    return properties


@pytest.fixture
def products(properties, monkeypatch):
    """The matrix products that are submitted, on the CPU in the device's place and small."""
    products = []
    full = torch.full
    monkeypatch.setattr(xpu, "SPIN_SIZE", 4)
    monkeypatch.setattr(torch, "full", lambda *size, device: full(*size))
    monkeypatch.setattr(torch, "mm", lambda *factors, out: products.append((factors, out)))
    return products


@pytest.mark.parametrize("links", [1, 2, 30])
def test_a_spin_is_a_chain_of_products_as_long_as_its_cycles(products, links):
    XpuDevice(0).spin(links * CYCLES_PER_LINK)
    assert len(products) == links


@pytest.mark.parametrize("cycles", [0, 1, CYCLES_PER_LINK - 1])
def test_the_shortest_spin_keeps_the_device_busy_all_the_same(products, cycles):
    XpuDevice(0).spin(cycles)
    assert len(products) == 1


def test_spins_allocate_once(products):
    device = XpuDevice(0)
    device.spin(2 * CYCLES_PER_LINK), device.spin(CYCLES_PER_LINK)
    assert len({tensor.data_ptr() for factors, out in products for tensor in (*factors, out)}) == 2


def test_a_spin_never_writes_what_it_reads(products):
    XpuDevice(0).spin(CYCLES_PER_LINK)
    ((factors, out),) = products
    assert all(out is not factor for factor in factors)


def test_its_spin_is_no_clock_and_it_has_no_graphs(properties):
    traits = XpuDevice(0).traits
    assert (traits.queues, traits.spins, traits.spin_is_clock, traits.graphs) == (True, True, False, False)


@pytest.mark.parametrize("happened", [True, False])
def test_a_stamp_is_reached_when_its_event_has_happened(properties, monkeypatch, happened):
    monkeypatch.setattr(FakeEvent, "happened", happened)
    device = XpuDevice(0)
    stamp = device.stamp()
    assert (device.reached(stamp), stamp.waited) == (happened, False)


def test_a_stamp_is_recorded_and_not_waited_for(properties):
    stamp = XpuDevice(0).stamp()
    assert (stamp.recorded, stamp.waited) == (True, False)


def test_elapsed_is_in_seconds_and_waits_for_the_later_event(properties):
    device = XpuDevice(0)
    assert device.elapsed_s(device.stamp(), device.stamp()) == 1.5


def test_a_torch_that_cannot_time_events_is_named_with_what_is_needed(properties, monkeypatch):
    def elapsed_time(self, end):
        raise NotImplementedError("elapsed_time is not supported by XPUEvent")

    monkeypatch.setattr(FakeEvent, "elapsed_time", elapsed_time)
    device = XpuDevice(1)
    with pytest.raises(DeviceError, match=r"^xpu:1 cannot time its events.*built with oneAPI 2025 or newer"):
        device.elapsed_s(device.stamp(), device.stamp())


def test_waiting_and_release_are_torchs(properties, monkeypatch):
    log = []
    monkeypatch.setattr(torch.xpu, "synchronize", log.append)
    monkeypatch.setattr(torch.xpu, "empty_cache", lambda: log.append("release"))
    device = XpuDevice(2)
    device.synchronize(), device.release()
    assert log == [2, "release"]


def test_free_memory_is_what_torch_did_not_allocate(properties, monkeypatch):
    monkeypatch.setattr(torch.xpu, "memory_allocated", lambda index: 24 * GIB)
    assert XpuDevice(0).free_bytes() == 40 * GIB


def test_its_facts_are_torchs(properties):
    facts = XpuDevice(1).facts()
    assert (facts.type, facts.index, facts.memory_bytes, facts.units, facts.last_level_cache_bytes, facts.driver) == (
        "xpu", 1, 64 * GIB, 512, 204 * MIB, "1.3.29735",
    )  # fmt: skip


@pytest.mark.parametrize("told", [None, 0])
def test_an_unknown_cache_is_assumed_large(properties, told):
    properties.last_level_cache_size = told
    assert XpuDevice(0).facts().last_level_cache_bytes == 64 * MIB


def test_an_older_torch_leaves_units_and_driver_unknown(properties):
    del properties.gpu_eu_count, properties.driver_version
    facts = XpuDevice(0).facts()
    assert (facts.units, facts.driver) == (None, None)


def test_its_state_is_unknown(properties):
    assert XpuDevice(0).counters() == Counters()


def test_it_opens_where_torch_finds_it(properties, monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    monkeypatch.setattr(torch.xpu, "device_count", lambda: 2)
    monkeypatch.setattr(torch.xpu, "set_device", chosen.append)
    assert (open_device("xpu:1").name, chosen) == ("xpu:1", [1])


def test_an_index_beyond_the_last_is_named_with_how_many_there_are(monkeypatch):
    monkeypatch.setattr(torch.xpu, "is_available", lambda: True)
    monkeypatch.setattr(torch.xpu, "device_count", lambda: 2)
    with pytest.raises(DeviceError, match="asks for xpu:2, found 2 of its kind"):
        open_device("xpu:2")
