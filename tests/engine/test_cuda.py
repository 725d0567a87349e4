"""CUDA and ROCm devices, with stand-ins for torch's pieces and the vendors' libraries."""

import contextlib
import sys
import warnings
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
import torch

from pytest_roofline.engine.devices import amd
from pytest_roofline.engine.devices.base import Counters
from pytest_roofline.engine.devices.cuda import CUDA, HIP, CudaDevice

MIB = 2**20


class NVMLError(Exception):
    """As pynvml has it."""


class FakeNvml(ModuleType):
    """NVIDIA's management library; `withheld` names the calls that fail."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_FOUND = 6
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2

    def __init__(self, withheld=(), answers=None):
        super().__init__("pynvml")
        self.asked = []
        self.open = 0
        answered = {
            "nvmlSystemGetDriverVersion": "570.86",
            "nvmlDeviceGetVbiosVersion": "96.00.5E",
            "nvmlDeviceGetEnforcedPowerLimit": 700_000,
            "nvmlDeviceGetCurrPcieLinkGeneration": 5,
            "nvmlDeviceGetCurrPcieLinkWidth": 16,
            "nvmlDeviceGetMigMode": [0, 0],
            "nvmlDeviceGetClockInfo": {1: 1980, 2: 2619},
            "nvmlDeviceGetHandleByUUID": "handle",
        } | (answers or {})
        for name, answer in answered.items():
            setattr(self, name, self._call(name, answer, name in withheld))
        self._init_fails = "nvmlInit" in withheld

    def _call(self, name, answer, fails):
        def call(*arguments):
            self.asked.append((name, *arguments))
            if fails:
                raise NVMLError(3)
            return answer[arguments[-1]] if isinstance(answer, dict) else answer

        return call

    def nvmlInit(self):
        if self._init_fails:
            raise NVMLError(9)
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1


@pytest.fixture
def properties(monkeypatch):
    """What torch says of a GPU: an H100, to be changed."""
    properties = SimpleNamespace(
        name="NVIDIA H100 80GB HBM3",
        uuid="11111111-2222-3333-4444-555555555555",
        total_memory=80 * 2**30,
        major=9,
        minor=0,
        multi_processor_count=132,
        L2_cache_size=50 * MIB,
    )
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    return properties


@pytest.fixture
def hip(properties, monkeypatch):
    """The same under HIP, which has no compute capability: an MI300X, to be changed."""
    monkeypatch.setattr(torch.version, "hip", "6.2", raising=False)
    properties.gcnArchName = "gfx942:sramecc+:xnack-"
    properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id = 0, 0xC1, 0
    return properties


@pytest.fixture
def nvml(monkeypatch):
    """Puts a stand-in for pynvml in its place."""

    def install(**keywords):
        library = FakeNvml(**keywords)
        monkeypatch.setitem(sys.modules, "pynvml", library)
        return library

    return install


def test_facts_join_torchs_properties_and_nvml(properties, nvml):
    nvml()
    facts = CudaDevice(2).facts()
    assert (
        facts.type,
        facts.product,
        facts.index,
        facts.memory_bytes,
        facts.architecture,
        facts.units,
        facts.last_level_cache_bytes,
    ) == ("cuda", "NVIDIA H100 80GB HBM3", 2, 80 * 2**30, "sm_90", 132, 50 * MIB)


def test_nvml_tells_driver_firmware_clocks_power_and_link(properties, nvml):
    nvml()
    facts = CudaDevice(0).facts()
    assert (
        facts.driver,
        facts.firmware,
        facts.clock_mhz,
        facts.memory_clock_mhz,
        facts.power_limit_w,
        facts.pcie_generation,
        facts.pcie_width,
    ) == ("570.86", "96.00.5E", 1980.0, 2619.0, 700.0, 5, 16)


def test_text_in_bytes_becomes_text(properties, nvml):
    nvml(answers={"nvmlSystemGetDriverVersion": b"535.10"})
    assert CudaDevice(0).facts().driver == "535.10"


def test_nvml_is_asked_by_uuid(properties, nvml):
    library = nvml()
    CudaDevice(3).facts()
    assert library.asked[0] == ("nvmlDeviceGetHandleByUUID", "GPU-11111111-2222-3333-4444-555555555555")


@pytest.mark.parametrize("uuid", ["GPU-1", "MIG-1"])
def test_a_uuid_with_its_prefix_is_taken_as_it_is(properties, nvml, uuid):
    library = nvml()
    properties.uuid = uuid
    CudaDevice(0).facts()
    assert ("nvmlDeviceGetHandleByUUID", uuid) == library.asked[0]


@pytest.mark.parametrize(
    ("call", "fact"),
    [
        ("nvmlSystemGetDriverVersion", "driver"),
        ("nvmlDeviceGetVbiosVersion", "firmware"),
        ("nvmlDeviceGetEnforcedPowerLimit", "power_limit_w"),
        ("nvmlDeviceGetCurrPcieLinkGeneration", "pcie_generation"),
        ("nvmlDeviceGetCurrPcieLinkWidth", "pcie_width"),
        ("nvmlDeviceGetClockInfo", "clock_mhz"),
    ],
)
def test_what_nvml_withholds_is_unknown(properties, nvml, call, fact):
    nvml(withheld=[call])
    assert getattr(CudaDevice(0).facts(), fact) is None


def test_what_nvml_withholds_does_not_cost_the_rest(properties, nvml):
    nvml(withheld=["nvmlDeviceGetVbiosVersion", "nvmlDeviceGetMigMode"])
    facts = CudaDevice(0).facts()
    assert (facts.driver, facts.pcie_width) == ("570.86", 16)


def test_a_gpu_that_nvml_does_not_know_has_torchs_facts(properties, nvml):
    nvml(withheld=["nvmlDeviceGetHandleByUUID"])
    facts = CudaDevice(0).facts()
    assert (facts.product, facts.power_limit_w) == ("NVIDIA H100 80GB HBM3", None)


def test_a_library_that_cannot_start_leaves_torchs_facts(properties, nvml):
    nvml(withheld=["nvmlInit"])
    assert (CudaDevice(0).facts().units, CudaDevice(0).facts().driver) == (132, None)


def test_without_the_library_torchs_facts_remain(properties, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert (CudaDevice(0).facts().architecture, CudaDevice(0).facts().driver) == ("sm_90", None)


@pytest.mark.parametrize("withheld", [[], ["nvmlDeviceGetHandleByUUID"], ["nvmlDeviceGetVbiosVersion"], ["nvmlInit"]])
def test_nvml_is_closed_as_often_as_opened(properties, nvml, withheld):
    library = nvml(withheld=withheld)
    CudaDevice(0).facts()
    assert library.open == 0


def test_a_partitioned_gpu_says_so(properties, nvml):
    nvml(answers={"nvmlDeviceGetMigMode": [1, 1]})
    assert CudaDevice(0).facts().partition == "mig"


def test_a_whole_gpu_has_no_partition(properties, nvml):
    nvml()
    assert CudaDevice(0).facts().partition is None


def test_a_torch_without_uuids_has_none(properties, nvml):
    nvml()
    del properties.uuid
    assert CudaDevice(0).facts().uuid is None


def test_hip_does_not_ask_nvml(hip, nvml):
    library = nvml()
    device = CudaDevice(0)
    device.facts(), device._library
    assert library.asked == []


def test_hip_names_its_architecture(hip):
    assert CudaDevice(0).facts().architecture == "gfx942:sramecc+:xnack-"


@pytest.mark.parametrize(
    ("architecture", "size_bytes"), [("gfx942:sramecc+:xnack-", 256 * MIB), ("gfx90a:sramecc+:xnack-", 4 * MIB)]
)
def test_hip_counts_the_infinity_cache_as_the_last_level_where_there_is_one(hip, architecture, size_bytes):
    hip.gcnArchName, hip.L2_cache_size = architecture, 4 * MIB
    assert CudaDevice(0).facts().last_level_cache_bytes == size_bytes


def test_a_torch_that_does_not_tell_the_cache_has_a_large_one_assumed(properties, nvml):
    nvml()
    del properties.L2_cache_size
    assert CudaDevice(0).facts().last_level_cache_bytes == 64 * MIB


def test_a_stamp_of_hip_is_coarser_than_one_of_cuda():
    assert (CUDA.tick_s, HIP.tick_s) == (0.5e-6, 1e-6)


def test_cuda_has_a_queue_a_spin_by_its_own_clock_and_graphs(properties):
    traits = CudaDevice(0).traits
    assert (traits.queues, traits.spins, traits.spin_is_clock, traits.graphs) == (True,) * 4


@pytest.mark.parametrize(
    ("architecture", "by_its_own_clock"),
    [("gfx90a", True), ("gfx942:sramecc+:xnack-", True), ("gfx1030", True), ("gfx1100", False), ("gfx1201", False)],
)
def test_the_spin_of_hip_counts_the_clock_of_kernels_up_to_gfx10(hip, architecture, by_its_own_clock):
    hip.gcnArchName = architecture
    assert CudaDevice(0).traits == replace(HIP, spin_is_clock=by_its_own_clock)


def test_the_device_that_is_opened_is_the_current_one(properties, monkeypatch):
    chosen = []
    monkeypatch.setattr(torch.cuda, "set_device", chosen.append)
    assert (CudaDevice(3).name, chosen) == ("cuda:3", [3])


def test_free_memory_counts_what_torch_keeps_in_its_cache(properties, monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda index: (10, 100))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 7)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda index: 3)
    assert CudaDevice(0).free_bytes() == 14


class FakeEvent:
    """An event of the stand-in stream; its time is known only after it was waited for."""

    log: list

    def __init__(self, enable_timing=False):
        assert enable_timing
        self.waited = False

    def record(self):
        self.log.append("record")

    def synchronize(self):
        self.log.append("wait")
        self.waited = True

    def elapsed_time(self, end):
        assert end.waited
        return 1500.0


@pytest.fixture
def events(monkeypatch):
    """What happened to events, in order."""
    FakeEvent.log = []
    monkeypatch.setattr(torch.cuda, "Event", FakeEvent)
    return FakeEvent.log


def test_elapsed_is_in_seconds_and_waits_for_the_later_event(properties, events):
    device = CudaDevice(0)
    start, end = device.stamp(), device.stamp()
    assert device.elapsed_s(start, end) == 1.5


def test_a_stamp_does_not_wait(properties, events):
    CudaDevice(0).stamp()
    assert events == ["record"]


class Answering:
    """An event that has happened, or has not."""

    def __init__(self, happened):
        self.query = lambda: happened


@pytest.mark.parametrize("happened", [True, False])
def test_a_stamp_is_reached_when_its_event_has_happened(properties, monkeypatch, happened):
    monkeypatch.setattr(torch.cuda, "Event", Answering)
    assert CudaDevice(0).reached(Answering(happened)) is happened


def test_asking_for_a_stamp_does_not_wait(properties, events, monkeypatch):
    monkeypatch.setattr(FakeEvent, "query", lambda self: False, raising=False)
    device = CudaDevice(0)
    device.reached(device.stamp())
    assert events == ["record"]


@pytest.fixture
def log(monkeypatch):
    """What is asked of torch.cuda, in order."""
    log = []

    class Graph:
        def replay(self):
            log.append("replay")

    @contextlib.contextmanager
    def capturing(graph, pool):
        assert (type(graph), pool) == (Graph, (0, 7))
        log.append("capture begins")
        try:
            yield
        finally:
            log.append("capture ends")

    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    monkeypatch.setattr(torch.cuda, "graph", capturing)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: (0, 7))
    monkeypatch.setattr(torch.cuda, "current_stream", lambda index: f"stream before on {index}")
    monkeypatch.setattr(torch.cuda, "set_stream", lambda stream: log.append(f"on {stream}"))
    monkeypatch.setattr(torch.cuda, "_sleep", lambda cycles: log.append(f"spin {cycles}"), raising=False)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda index: log.append(f"wait for {index}"))
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: log.append("release"))
    monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: log.append("release host"), raising=False)
    return log


def test_a_spin_lasts_so_many_cycles_and_is_not_waited_for(properties, log):
    CudaDevice(0).spin(12345)
    assert log == ["spin 12345"]


def test_waiting_is_for_this_device(properties, log):
    CudaDevice(2).synchronize()
    assert log == ["wait for 2"]


def test_release_empties_torchs_caches_of_device_and_of_page_locked_memory(properties, log):
    CudaDevice(0).release()
    assert log == ["release", "release host"]


def test_an_older_torch_keeps_its_page_locked_memory(properties, log, monkeypatch):
    monkeypatch.delattr(torch._C, "_host_emptyCache")
    CudaDevice(0).release()
    assert log == ["release"]


@pytest.mark.parametrize("kind", ["properties", "hip"])
def test_a_capture_holds_what_is_submitted_once_all_earlier_work_is_done(request, log, kind):
    request.getfixturevalue(kind)
    CudaDevice(0).capture(lambda: log.append("submit"))
    assert log == ["wait for 0", "capture begins", "submit", "capture ends", "on stream before on 0"]


def test_a_replay_replays_and_submits_nothing_anew(properties, log):
    replay = CudaDevice(0).capture(lambda: log.append("submit"))
    log.clear()
    replay(), replay()
    assert log == ["replay", "replay"]


def test_a_capture_that_fails_is_ended_and_says_why(properties, log):
    def submit():
        raise RuntimeError("operation not permitted when stream is capturing")

    with pytest.raises(RuntimeError, match="not permitted"):
        CudaDevice(0).capture(submit)
    assert log[-2:] == ["capture ends", "on stream before on 0"]


@pytest.fixture
def capture_that_fails(properties, monkeypatch):
    """torch's own `torch.cuda.graph` over streams and an allocator that act as the sources of two versions say.

    Up to 2.11 `CUDAGraph::capture_end` raises before it ends the allocator's capture, from 2.12 on behind that; in both
    `torch.cuda.graph.__exit__` then does not come to the line that restores the stream.
    """
    monkeypatch.setattr(torch.cuda.graph, "default_capture_stream", None)
    state = SimpleNamespace(stream="default", capturing=set())

    def install(ends_first):
        class Graph:
            def capture_begin(self, pool, **_):
                self.pool = pool
                state.capturing.add(pool)

            def capture_end(self):
                if ends_first:
                    state.capturing.discard(self.pool)
                raise RuntimeError("CUDA error: operation failed due to a previous error during capture")

        @contextlib.contextmanager
        def on(stream):
            before, state.stream = state.stream, stream
            yield
            state.stream = before

        def end_allocating(index, pool):
            if pool not in state.capturing:
                raise RuntimeError("endAllocatePool: not currently recording to mempool_id")
            state.capturing.discard(pool)

        def empty_cache():
            if state.capturing:
                raise RuntimeError("captures_underway.empty() INTERNAL ASSERT FAILED")

        pieces = {
            "CUDAGraph": Graph, "Stream": lambda: "of the capture", "stream": on, "synchronize": lambda *_: None,
            "empty_cache": empty_cache, "graph_pool_handle": lambda: (0, 7),
            "current_stream": lambda index: state.stream,
            "set_stream": lambda stream: setattr(state, "stream", stream),
        }  # fmt: skip
        for name, piece in pieces.items():
            monkeypatch.setattr(torch.cuda, name, piece)
        monkeypatch.setattr(torch._C, "_host_emptyCache", lambda: None, raising=False)
        monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", end_allocating, raising=False)
        return state

    return install


@pytest.mark.parametrize("ends_first", [False, True])
def test_a_capture_that_fails_leaves_stream_and_allocator_as_they_were(capture_that_fails, ends_first):
    state, device = capture_that_fails(ends_first), CudaDevice(0)
    for _ in range(2):
        with pytest.raises(RuntimeError, match="previous error during capture"):
            device.capture(lambda: None)
    device.release()
    assert (state.stream, state.capturing) == ("default", set())


def test_the_capture_of_nothing_warns_nobody(properties, log, monkeypatch):
    text = "The CUDA Graph is empty. This usually means that the graph was attempted to be captured on wrong device"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        CudaDevice(0).capture(lambda: warnings.warn(text, stacklevel=1))
        with pytest.raises(UserWarning, match="another"):
            CudaDevice(0).capture(lambda: warnings.warn("another", stacklevel=1))


class Allocator:
    """torch's allocator: what is allocated now, and the most since the last reset."""

    def __init__(self, allocated):
        self.allocated = self.most = allocated

    def take(self, size_bytes):
        """Allocate; negative gives back."""
        self.allocated += size_bytes
        self.most = max(self.most, self.allocated)

    def reset(self, index):
        """Forget the most."""
        self.most = self.allocated


@pytest.fixture
def allocator(properties, log, monkeypatch):
    """An allocator that already holds 100 bytes, and held 1000."""
    allocator = Allocator(1000)
    allocator.take(-900)
    monkeypatch.setattr(torch.cuda, "memory_allocated", lambda index: allocator.allocated)
    monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda index: allocator.most)
    monkeypatch.setattr(torch.cuda, "reset_peak_memory_stats", allocator.reset)
    return allocator


@pytest.mark.parametrize(("sizes", "peak"), [((), 0), ((7, -7), 7), ((7, -7, 5), 7), ((7, 5), 12), ((-50, 20), 0)])
def test_the_peak_is_the_most_allocated_at_once_above_what_was_before(allocator, sizes, peak):
    assert CudaDevice(0).peak_bytes(lambda: [allocator.take(size) for size in sizes]) == peak


def test_the_peak_is_that_of_the_call_alone_and_all_of_it(allocator, log):
    # Work from before is done when the call begins, and the call's own when the peak is read.
    CudaDevice(0).peak_bytes(lambda: log.append("call"))
    assert log == ["wait for 0", "call", "wait for 0"]


@pytest.fixture
def reserved(monkeypatch):
    """Torch holds 2 GiB, whether allocated or not."""
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda index: 2 * 2**30)


def test_what_torch_reserved_is_no_neighbours_memory(properties, nvml, reserved):
    nvml(answers={"nvmlDeviceGetMemoryInfo": SimpleNamespace(used=5 * 2**30)})
    assert CudaDevice(0).counters().others_bytes == 2 * 2**30


@pytest.mark.parametrize(("context", "others_bytes"), [(False, 3 * 10**8), (True, 0)])
def test_what_is_in_use_before_this_process_has_a_context_is_of_others(
    properties, nvml, reserved, monkeypatch, context, others_bytes
):
    memory = SimpleNamespace(used=3 * 10**8)
    library = nvml(answers={"nvmlDeviceGetMemoryInfo": memory})
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: context)
    device = CudaDevice(0)
    assert library.open == 0
    # A context, and what torch reserved.
    memory.used += 6 * 10**8 + 2 * 2**30
    assert device.counters().others_bytes == others_bytes


def test_a_device_opens_without_the_library(properties, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert CudaDevice(0).silent_library() == "nvidia-ml-py is not installed (pip install nvidia-ml-py)"


def test_a_device_of_hip_says_why_its_library_is_silent(hip, monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdsmi("0000:c2:00.0"))
    assert CudaDevice(0).silent_library() == "amdsmi does not know this device"


def test_counters_of_cuda_open_nvml_once(properties, nvml, reserved):
    library = nvml()
    device = CudaDevice(0)
    device.counters(), device.counters()
    assert library.open == 1


def test_counters_without_a_library_are_unknown(properties, reserved, monkeypatch):
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert CudaDevice(0).counters() == Counters()


class FakeAmdsmi(ModuleType):
    """AMD's management library with one GPU at a PCI address."""

    def __init__(self, address):
        super().__init__("amdsmi")
        self.amdsmi_init = lambda: None
        self.amdsmi_get_processor_handles = lambda: ["handle"]
        self.amdsmi_get_gpu_device_bdf = lambda handle: address
        self.amdsmi_get_gpu_vram_usage = lambda handle: {"vram_used": 5 * 1024}
        self.amdsmi_get_power_cap_info = lambda handle: {"power_cap": 750_000_000}


@pytest.mark.parametrize(("address", "others_bytes"), [("0000:c1:00.0", 2 * 2**30), ("0000:c2:00.0", None)])
def test_counters_of_hip_are_those_of_the_gpu_at_its_pci_address(hip, reserved, monkeypatch, address, others_bytes):
    monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdsmi(address))
    assert CudaDevice(0).counters().others_bytes == others_bytes


@pytest.mark.parametrize("missing", ["pci_domain_id", "pci_bus_id", "pci_device_id"])
def test_a_torch_without_pci_addresses_leaves_hips_counters_unknown(hip, reserved, monkeypatch, missing):
    delattr(hip, missing)
    monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdsmi("0000:c1:00.0"))
    assert CudaDevice(0).counters() == Counters()


def test_facts_of_hip_join_amdsmi_and_the_kernels_driver(hip, monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", FakeAmdsmi("0000:c1:00.0"))
    monkeypatch.setattr(amd, "driver_version", lambda: "6.12.12")
    facts = CudaDevice(0).facts()
    assert (facts.power_limit_w, facts.driver) == (750.0, "6.12.12")


def test_facts_of_hip_without_a_library_are_torchs(hip, monkeypatch):
    monkeypatch.setitem(sys.modules, "amdsmi", None)
    monkeypatch.setattr(amd, "driver_version", lambda: None)
    facts = CudaDevice(0).facts()
    assert (facts.units, facts.power_limit_w, facts.driver) == (132, None, None)
