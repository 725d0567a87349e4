"""CUDA and ROCm devices, with stand-ins for torch's pieces and the vendors' libraries; and the engine through them."""

import contextlib
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.engine.devices import amd, nvidia
from pytest_roofline.engine.devices.base import Counters
from pytest_roofline.engine.devices.cuda import HIP, CudaDevice
from pytest_roofline.engine.devices.fake import FakeDevice
from pytest_roofline.engine.timing import Engine, Plan

from .management import GIB, H100, MI300X, WITHHELD, FakeAmdsmi, FakeNvml, NVMLError, memory

MIB = 2**20


@pytest.fixture
def properties(monkeypatch):
    """What torch says of a GPU: an H100, to be changed."""
    properties = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3", uuid="1", total_memory=80 * GIB, major=9, minor=0, multi_processor_count=132,
        L2_cache_size=50 * MIB,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 2 * GIB)
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    for library in ("pynvml", "amdsmi"):
        monkeypatch.setitem(sys.modules, library, None)
    monkeypatch.setattr(amd, "driver_version", lambda: None)
    return properties


@pytest.fixture
def hip(properties, monkeypatch):
    """The same under HIP, which has no compute capability: an MI300X, to be changed."""
    monkeypatch.setattr(torch.version, "hip", "6.2", raising=False)
    properties.gcnArchName = "gfx942:sramecc+:xnack-"
    properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id = 0, 0xC1, 0
    return properties


@pytest.fixture
def install(monkeypatch):
    """Puts a library in its place."""

    def install(library):
        monkeypatch.setitem(sys.modules, library.__name__, library)
        return library

    return install


def test_facts_join_torchs_properties_and_nvml(properties, install):
    library = install(FakeNvml(H100 | {"CurrPcieLinkGeneration": 4}, driver=b"535.10"))
    facts = CudaDevice(2).facts()
    assert (facts.type, facts.product, facts.index, facts.uuid) == ("cuda", properties.name, 2, "1")
    assert (facts.memory_bytes, facts.units, facts.last_level_cache_bytes) == (
        80 * GIB,
        132,
        50 * MIB,
    )
    assert (facts.architecture, facts.driver, facts.firmware) == ("sm_90", "535.10", "96.00.5E")
    assert (facts.clock_mhz, facts.memory_clock_mhz, facts.power_limit_w) == (1980.0, 2619.0, 700.0)
    assert (facts.pcie_generation, facts.pcie_width, facts.partition) == (4, 16, None)
    assert (library.asked[0], library.open) == (("HandleByUUID", "GPU-1"), 0)
    install(FakeNvml(H100 | {"MigMode": [1, 1]}))
    assert CudaDevice(0).facts().partition == "mig"


def test_what_nvml_withholds_is_unknown_and_torchs_facts_remain(properties, install):
    usual = install(FakeNvml(H100)) and CudaDevice(0).facts()
    for question, facts in [
        ("VbiosVersion", ["firmware"]),
        ("ClockInfo", ["clock_mhz", "memory_clock_mhz"]),
    ]:
        install(FakeNvml(H100 | {question: WITHHELD}))
        assert CudaDevice(0).facts() == replace(usual, **dict.fromkeys(facts)), question
    for library in (FakeNvml(H100 | {"UUID": "GPU-9"}), FakeNvml(H100, starts=NVMLError(9))):
        install(library)
        facts = CudaDevice(0).facts()
        assert (facts.product, facts.units, facts.driver, facts.power_limit_w) == (
            properties.name,
            132,
            None,
            None,
        )
        assert library.open == 0
    del properties.uuid, properties.L2_cache_size
    # No known device has a larger cache.
    assert (CudaDevice(0).facts().uuid, CudaDevice(0).facts().last_level_cache_bytes) == (
        None,
        64 * MIB,
    )


def test_facts_of_hip_join_amdsmi_and_the_kernels_driver_and_count_the_infinity_cache(
    hip, install, monkeypatch
):
    nvml = install(FakeNvml(H100))
    facts = CudaDevice(0).facts()
    assert (facts.architecture, facts.units, facts.power_limit_w, facts.driver) == (
        hip.gcnArchName,
        132,
        None,
        None,
    )
    install(FakeAmdsmi(MI300X))
    monkeypatch.setattr(amd, "driver_version", lambda: "6.12.12")
    facts = CudaDevice(0).facts()
    assert (facts.power_limit_w, facts.driver, nvml.asked) == (750.0, "6.12.12", [])
    for architecture, size_bytes in [
        ("gfx942:sramecc+:xnack-", 256 * MIB),
        ("gfx90a:sramecc+:xnack-", 4 * MIB),
    ]:
        hip.gcnArchName, hip.L2_cache_size = architecture, 4 * MIB
        assert CudaDevice(0).facts().last_level_cache_bytes == size_bytes, architecture


def test_the_spin_of_hip_counts_the_clock_of_kernels_up_to_gfx10(hip):
    for architecture, own in [("gfx90a", True), ("gfx942:xnack-", True), ("gfx1030", True), ("gfx1100", False),
                              ("gfx1201", False)]:  # fmt: skip
        hip.gcnArchName = architecture
        assert CudaDevice(0).traits == replace(HIP, spin_is_clock=own), architecture


def test_counters_are_those_of_the_vendors_library_opened_once(properties, install):
    assert (CudaDevice(0).counters(), CudaDevice(0).silent_library()) == (
        Counters(),
        "nvidia-ml-py is not installed (pip install nvidia-ml-py)",
    )
    library = install(FakeNvml(H100 | {"MemoryInfo": memory(5 * GIB)}))
    device = CudaDevice(0)
    # What torch reserved is no neighbour's.
    assert [device.counters().others_bytes for _ in range(2)] == [2 * GIB] * 2
    assert library.open == 1


def test_counters_of_hip_are_those_of_the_gpu_at_its_pci_address(hip, install):
    install(FakeAmdsmi(MI300X | {"gpu_vram_usage": {"vram_used": 5 * 1024}}))
    assert (CudaDevice(0).counters().others_bytes, CudaDevice(0).silent_library()) == (2 * GIB, "")
    # An older torch.
    del hip.pci_bus_id
    assert (CudaDevice(0).counters(), CudaDevice(0).silent_library()) == (
        Counters(),
        "amdsmi does not know this device",
    )


def test_what_is_in_use_before_this_process_has_a_context_is_of_others(
    properties, install, monkeypatch
):
    for context, others_bytes in [(False, 3 * 10**8), (True, 0)]:
        library = install(FakeNvml(H100 | {"MemoryInfo": memory(3 * 10**8)}))
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda context=context: context)
        device = CudaDevice(0)
        assert library.open == 0
        # A context, and what torch reserved.
        library.gpus[0]["MemoryInfo"] = memory(9 * 10**8 + 2 * GIB)
        assert device.counters().others_bytes == others_bytes, context


@pytest.fixture
def log(monkeypatch):
    """What is asked of torch.cuda, in order."""
    log = []

    class Graph:
        def replay(self):
            log.append("replay")

    class Event:
        def __init__(self, enable_timing=False, happened=False):
            self.happened, self.waited = happened, False

        def record(self):
            log.append("record")

        def query(self):
            return self.happened

        def synchronize(self):
            self.waited = True
            log.append("wait for event")

        def elapsed_time(self, end):
            assert end.waited
            return 1500.0

    @contextlib.contextmanager
    def capturing(graph, pool):
        assert (type(graph), pool) == (Graph, (0, 7))
        log.append("capture begins")
        try:
            yield
        finally:
            log.append("capture ends")

    pieces = {
        "CUDAGraph": Graph, "Event": Event, "graph": capturing, "graph_pool_handle": lambda: (0, 7),
        "current_stream": lambda index: f"stream before on {index}",
        "set_stream": lambda stream: log.append(f"on {stream}"),
        "set_device": lambda index: log.append(f"device {index}"),
        "_sleep": lambda cycles: log.append(f"spin {cycles}"),
        "synchronize": lambda index: log.append(f"wait for {index}"),
        "empty_cache": lambda: log.append("release"),
        "mem_get_info": lambda index: (10, 100), "memory_reserved": lambda index: 7,
        "memory_allocated": lambda index: 3,
    }  # fmt: skip
    for name, piece in pieces.items():
        monkeypatch.setattr(torch.cuda, name, piece, raising=False)
    monkeypatch.setattr(
        torch._C, "_host_emptyCache", lambda: log.append("release host"), raising=False
    )
    return log


def test_a_device_waits_only_where_it_is_asked_to(properties, log, monkeypatch):
    device = CudaDevice(2)
    assert (device.name, log.pop()) == ("cuda:2", "device 2")
    start, end = device.stamp(), device.stamp()
    device.spin(12345)
    assert (device.reached(start), log) == (False, ["record", "record", "spin 12345"])
    assert device.reached(torch.cuda.Event(happened=True)) is True
    # In seconds, after waiting for the later one.
    assert (device.elapsed_s(start, end), start.waited) == (1.5, False)
    log.clear()
    device.synchronize(), device.release()
    # What torch keeps in its cache is free.
    assert (device.free_bytes(), log) == (14, ["wait for 2", "release", "release host"])
    # An older torch keeps its page-locked memory.
    monkeypatch.delattr(torch._C, "_host_emptyCache")
    device.release()
    assert log[3:] == ["release"]


def test_a_capture_holds_what_is_submitted_and_one_that_fails_leaves_stream_and_allocator_as_they_were(
    properties, log, monkeypatch
):
    """torch until 2.11 raises before it ends the allocator's capture, later ones behind that; then ending it raises."""
    device = CudaDevice(0)
    log.clear()
    replay = device.capture(lambda: log.append("submit"))
    assert log == [
        "wait for 0",
        "capture begins",
        "submit",
        "capture ends",
        "on stream before on 0",
    ]
    log.clear()
    replay(), replay()
    assert log == ["replay", "replay"]

    def fails():
        raise RuntimeError("operation not permitted when stream is capturing")

    def end_allocating(*what):
        log.append(what)
        raise RuntimeError("endAllocatePool: not currently recording to mempool_id")

    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end_allocating, raising=False)
    with pytest.raises(RuntimeError, match="not permitted"):
        device.capture(fails)
    assert log[-3:] == ["capture ends", (0, (0, 7)), "on stream before on 0"]


def test_the_peak_is_the_most_that_the_call_allocated_at_once_above_what_was_before(
    properties, log, monkeypatch
):
    held = SimpleNamespace(now=100, most=1000)

    def take(*sizes):
        log.append("call")
        for size in sizes:
            held.now += size
            held.most = max(held.most, held.now)

    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda index: held.now)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda index: held.most)
    monkeypatch.setattr(
        torch.cuda, "reset_peak_memory_stats", lambda index: setattr(held, "most", held.now)
    )
    device = CudaDevice(0)
    for sizes, peak, left in [
        ((), 0, 0),
        ((7, -7), 7, 0),
        ((7, -7, 5), 7, 5),
        ((7, 5), 12, 12),
        ((-50, 20), 0, 0),
    ]:
        log.clear()
        assert (device.peak_bytes(lambda sizes=sizes: take(*sizes)), sizes) == (peak, sizes)
        # Work from before is done when the call begins, and the call's own when the peak is read.
        assert log == ["wait for 0", "call", "wait for 0"]
        assert (device.held_bytes(lambda sizes=sizes: take(*sizes)), sizes) == (left, sizes)
    assert (device.allocated().now_bytes, device.allocated().most_bytes) == (held.now, held.most)


@pytest.fixture
def stream(properties, monkeypatch):
    """A fake in-order stream with the launch costs of a GPU, behind torch.cuda: the engine's wiring, without a GPU."""
    fake = FakeDevice(launch_s=8e-6, record_s=1.5e-6, latency_s=4e-6, tick_s=0.5e-6, pair_s=1e-6)

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            self.stamp = fake.stamp()

        def query(self):
            return fake.reached(self.stamp)

        def synchronize(self):
            fake.elapsed_s(self.stamp, self.stamp)

        def elapsed_time(self, end):
            return fake.elapsed_s(self.stamp, end.stamp) * 1e3

    class CUDAGraph:
        def replay(self):
            self.run()

    @contextlib.contextmanager
    def graph(captured, pool):
        fake._recording = nodes = []
        yield
        fake._recording = None
        captured.run = lambda: fake._submit_all(nodes)

    pieces = {
        "Event": Event, "CUDAGraph": CUDAGraph, "graph": graph, "_sleep": fake.spin,
        "synchronize": lambda _: fake.synchronize(), "memory_reserved": lambda _: 0,
        "graph_pool_handle": lambda: None, "current_stream": lambda _: "default", "set_stream": lambda _: None,
    }  # fmt: skip
    for name, piece in pieces.items():
        monkeypatch.setattr(torch.cuda, name, piece, raising=False)
    # A build for CUDA has it, and asks for the handle of a pool that there is.
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda *_: None, raising=False)
    monkeypatch.setattr(CudaDevice, "host_s", lambda _: fake.host_s())
    monkeypatch.setattr(nvidia.Nvml, "counters", lambda *_: fake.counters())
    return fake


def test_the_engine_times_a_device_of_torchs_by_graph_and_by_events(stream):
    def timed(fn):
        engine = Engine(CudaDevice(0), Plan(fn, sets=[()], budget_s=1.0))
        engine.run()
        return engine.samples()

    short = timed(lambda: [stream.work(2.3e-6) for _ in range(3)])
    assert (short.median_s, short.mode, short.labels) == (
        pytest.approx(6.9e-6, rel=0.005),
        "graph",
        (),
    )
    longer = timed(lambda: stream.work(2e-4))
    assert (longer.median_s, longer.mode) == (pytest.approx(2e-4, rel=0.005), "events")
    assert longer.clock_hz == pytest.approx(2e9, rel=0.02)
