"""Facts of CUDA and ROCm devices, with torch's properties and NVML as stand-ins."""

import sys
from types import ModuleType, SimpleNamespace

import pytest
import torch

from pytest_roofline.measuring.devices.cuda import CudaDevice, last_level_cache_bytes

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


def test_hip_does_not_ask_nvml(properties, nvml, monkeypatch):
    library = nvml()
    monkeypatch.setattr(torch.version, "hip", "6.2", raising=False)
    properties.gcnArchName = "gfx942:sramecc+:xnack-"
    CudaDevice(0).facts()
    assert library.asked == []


def test_hip_names_its_architecture(properties, monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.2", raising=False)
    properties.gcnArchName = "gfx942:sramecc+:xnack-"
    assert CudaDevice(0).facts().architecture == "gfx942:sramecc+:xnack-"


@pytest.mark.parametrize("architecture", ["gfx942", "gfx942:sramecc+:xnack-", "gfx950"])
def test_an_infinity_cache_counts_as_the_last_level(architecture):
    properties = SimpleNamespace(L2_cache_size=4 * MIB, gcnArchName=architecture)
    assert last_level_cache_bytes(properties, is_hip=True) == 256 * MIB


def test_an_older_amd_part_has_the_cache_that_it_reports():
    properties = SimpleNamespace(L2_cache_size=8 * MIB, gcnArchName="gfx90a")
    assert last_level_cache_bytes(properties, is_hip=True) == 8 * MIB


def test_an_architecture_that_only_begins_alike_has_no_infinity_cache():
    properties = SimpleNamespace(L2_cache_size=8 * MIB, gcnArchName="gfx9420")
    assert last_level_cache_bytes(properties, is_hip=True) == 8 * MIB


def test_the_infinity_cache_counts_under_hip_only():
    properties = SimpleNamespace(L2_cache_size=4 * MIB, gcnArchName="gfx942")
    assert last_level_cache_bytes(properties, is_hip=False) == 4 * MIB


def test_a_larger_cache_than_the_infinity_cache_stays():
    properties = SimpleNamespace(L2_cache_size=512 * MIB, gcnArchName="gfx942")
    assert last_level_cache_bytes(properties, is_hip=True) == 512 * MIB


@pytest.mark.parametrize("reported", [{}, {"L2_cache_size": 0}])
def test_an_unknown_cache_is_assumed_large(reported):
    assert last_level_cache_bytes(SimpleNamespace(**reported), is_hip=False) == 64 * MIB


def test_the_tick_of_hip_is_twice_that_of_cuda(properties, monkeypatch):
    cuda = CudaDevice(0).tick_s
    monkeypatch.setattr(torch.version, "hip", "6.2", raising=False)
    assert (cuda, CudaDevice(0).tick_s) == (0.5e-6, 1e-6)


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
