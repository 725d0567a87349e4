"""What a machine has, through stand-ins for the management libraries: what they withhold is unknown, never fine."""

import os
import resource
import shutil
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace

import pytest
import torch

from pytest_roofline.core.facts import HARDWARE, POWER_CAP, THERMAL, Gpu
from pytest_roofline.engine import inventory
from pytest_roofline.engine.devices import amd
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.engine.devices.cuda import CudaDevice
from pytest_roofline.engine.inventory import take_stock
from pytest_roofline.machine.diagnosis import diagnose

GIB = 2**30


class NVMLError(Exception):
    """As pynvml has it."""


class NVMLError_NotSupported(NVMLError):  # noqa: N801
    """As pynvml has it."""


class NVMLError_NoPermission(NVMLError):  # noqa: N801
    """As pynvml has it."""


class AmdSmiLibraryException(Exception):
    """As amdsmi has it."""


WITHHELD = [NVMLError_NotSupported(3), NVMLError_NoPermission(4)]
H100 = Gpu(
    0, "NVIDIA H100 80GB HBM3", uuid="GPU-1", memory_bytes=80 * GIB, driver="570.86", power_limit_w=700.0,
    power_default_w=700.0, pcie_generation=5, pcie_generation_rated=5, pcie_width=16, pcie_width_rated=16, links=18,
    ecc=True, persistence=True, compute_mode="default", others_bytes=0, throttle_known=True, ecc_errors=0,
    remap_pending=False, remap_failed=False, active=(),
)  # fmt: skip
ANSWERS = {
    "Name": "NVIDIA H100 80GB HBM3",
    "UUID": "GPU-1",
    "MemoryInfo": SimpleNamespace(total=80 * GIB, used=GIB // 2),
    "EnforcedPowerLimit": 700_000,
    "PowerManagementDefaultLimit": 700_000,
    "MaxPcieLinkGeneration": 5,
    "GpuMaxPcieLinkGeneration": 5,
    "CurrPcieLinkGeneration": 1,
    "CurrPcieLinkWidth": 16,
    "MaxPcieLinkWidth": 16,
    "NvLinkState": lambda link: 1,
    "EccMode": [1, 1],
    # By type (1 is uncorrected) and counter (0 is since the driver was loaded).
    "TotalEccErrors": lambda kind, counter: {(1, 0): 0}.get((kind, counter), 77),
    # Corrected, uncorrected, pending, failed.
    "RemappedRows": (5, 6, 0, 0),
    "RetiredPagesPendingStatus": NVMLError_NotSupported(3),
    "PersistenceMode": 1,
    "ComputeMode": 0,
    "MigMode": [0, 0],
    "ViolationStatus": SimpleNamespace(referenceTime=1, violationTime=0),
    "CurrentClocksEventReasons": 0,
    "CurrentClocksThrottleReasons": 0,
}


def h100(**answers):
    """What NVML answers of a GPU; an error is raised, a function is called."""
    return ANSWERS | answers


def silent(error):
    """A GPU of which NVML tells nothing."""
    return dict.fromkeys(ANSWERS, error)


class FakeNvml(ModuleType):
    """pynvml on a machine with these GPUs; one that is an error is lost."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_FOUND = 6

    def __init__(self, gpus):
        super().__init__("pynvml")
        self.gpus, self.open = gpus, 0

    def nvmlInit(self):
        """Found a driver."""
        self.open += 1

    def nvmlShutdown(self):
        """As often as opened."""
        self.open -= 1

    def nvmlSystemGetDriverVersion(self):
        """Of the whole machine."""
        return "570.86"

    def nvmlDeviceGetCount(self):
        """Lost ones included."""
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        """The handle is what the GPU answers."""
        return _told(self.gpus[index])

    def nvmlDeviceGetHandleByUUID(self, uuid):
        """The GPU whose answer this is; a lost one has none."""
        found = [gpu for gpu in self.gpus if isinstance(gpu, dict) and f"GPU-{gpu['UUID']}" == uuid]
        return found[0] if found else _told(NVMLError(self.NVML_ERROR_NOT_FOUND))

    def nvmlDeviceGetIndex(self, gpu):
        """Of every GPU of the machine."""
        return next(index for index, other in enumerate(self.gpus) if other is gpu)

    def __getattr__(self, name):
        question = name.removeprefix("nvmlDeviceGet")
        if question not in ANSWERS:
            raise AttributeError(name)
        return lambda gpu, *arguments: _told(gpu[question], *arguments)


def _told(answer, *arguments):
    if isinstance(answer, Exception):
        raise answer
    return answer(*arguments) if callable(answer) else answer


MI300X = Gpu(
    0, "AMD Instinct MI300X", uuid="uuid", memory_bytes=192 * GIB, driver="6.12.12", power_limit_w=750.0,
    power_default_w=750.0, pcie_generation=5, pcie_generation_rated=5, pcie_width=16, pcie_width_rated=16,
    others_bytes=0, throttle_known=True, active=(), ecc=True, ecc_errors=0, remap_pending=False, remap_failed=False,
)  # fmt: skip
AMD_ANSWERS = {
    "gpu_device_bdf": "0000:05:00.0",
    "gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
    "gpu_vram_usage": {"vram_total": 192 * 1024, "vram_used": 300},
    "pcie_info": {
        "pcie_static": {"max_pcie_width": 16, "max_pcie_speed": 32000},
        "pcie_metric": {"pcie_width": 16, "pcie_speed": 32000},
    },
    "gpu_ecc_enabled": 0b101,
    "gpu_total_ecc_count": {"correctable_count": 9, "uncorrectable_count": 0, "deferred_count": 0},
    "gpu_bad_page_info": [{"value": 0, "page_address": 4096, "page_size": 4096, "status": 0}],
    "power_cap_info": {"power_cap": 750_000_000, "default_power_cap": 750_000_000},
    "gpu_compute_partition": "SPX",
    "gpu_device_uuid": "uuid",
    "violation_status": {"active_socket_thrm": 0, "acc_socket_thrm": 0},
}


LINK = AMD_ANSWERS["pcie_info"]


def mi300x(**answers):
    """What amdsmi answers of a GPU; an error is raised."""
    return AMD_ANSWERS | answers


class FakeAmdsmi(ModuleType):
    """amdsmi on a machine with these GPUs."""

    def __init__(self, gpus):
        super().__init__("amdsmi")
        self.gpus = [gpu | {"number": number} for number, gpu in enumerate(gpus)]

    def amdsmi_init(self):
        """Found a driver."""

    def amdsmi_get_processor_handles(self):
        """The handle is what the GPU answers."""
        return self.gpus

    def amdsmi_get_gpu_device_bdf(self, gpu):
        """An address of its own."""
        return _told(gpu["gpu_device_bdf"]).replace("05", f"{gpu['number'] + 5:02x}")

    def __getattr__(self, name):
        question = name.removeprefix("amdsmi_get_")
        if question not in AMD_ANSWERS:
            raise AttributeError(name)
        return lambda gpu: _told(gpu[question])


@pytest.fixture(autouse=True)
def bare(monkeypatch, tmp_path):
    """A machine without management libraries, accelerators, profilers and MPS."""
    for library in ("pynvml", "amdsmi"):
        monkeypatch.setitem(sys.modules, library, None)
    for name in inventory.INJECTIONS:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path / "no-pipes"))
    monkeypatch.setattr(inventory, "ACCELERATOR_NODES", ())
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: 0)
    monkeypatch.setattr(amd, "_ROOT", tmp_path)


@pytest.fixture
def nvidia(monkeypatch):
    """Puts a stand-in for pynvml in its place."""

    def install(*gpus):
        library = FakeNvml(gpus or (h100(),))
        monkeypatch.setitem(sys.modules, "pynvml", library)
        return library

    return install


@pytest.fixture
def instinct(monkeypatch, tmp_path):
    """Puts a stand-in for amdsmi in its place, with the kernel driver's version."""
    version = tmp_path / "sys/module/amdgpu/version"
    version.parent.mkdir(parents=True)
    version.write_text("6.12.12\n")

    def install(*gpus):
        library = FakeAmdsmi(gpus or (mi300x(),))
        monkeypatch.setitem(sys.modules, "amdsmi", library)
        return library

    return install


def test_a_machine_without_libraries_has_no_gpus_and_says_so():
    machine = take_stock()
    assert ((), ()) == (machine.gpus, machine.libraries)


def test_every_fact_that_nvml_tells_is_taken(nvidia):
    nvidia()
    assert take_stock().gpus == (H100,)


def test_the_library_is_named_and_closed_again(nvidia):
    library = nvidia()
    assert (("NVML",), 0) == (take_stock().libraries, library.open)


def test_every_gpu_of_the_machine_is_listed_whatever_torch_sees(nvidia, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    nvidia(*(h100(UUID=f"GPU-{index}") for index in range(8)))
    assert tuple(replace(H100, index=index, uuid=f"GPU-{index}") for index in range(8)) == take_stock().gpus


@pytest.fixture
def eight(nvidia):
    """Eight GPUs: 3 with a narrow link, 5 with a lowered power limit, 6 and 7 withholding everything."""
    gpus = [h100() for _ in range(8)]
    gpus[3] = h100(CurrPcieLinkWidth=8)
    gpus[5] = h100(EnforcedPowerLimit=500_000)
    gpus[6], gpus[7] = map(silent, WITHHELD)
    nvidia(*gpus)
    return take_stock()


def test_a_narrow_link_is_seen_on_its_gpu_alone(eight):
    assert [16, 16, 16, 8, 16, 16] == [gpu.pcie_width for gpu in eight.gpus[:6]]


def test_a_lowered_power_limit_is_seen_on_its_gpu_alone(eight):
    assert [700, 700, 700, 700, 700, 500] == [gpu.power_limit_w for gpu in eight.gpus[:6]]


@pytest.mark.parametrize("index", [6, 7])
def test_a_gpu_that_withholds_everything_is_unknown_and_never_fine(eight, index):
    assert Gpu(index, "unknown", driver="570.86") == eight.gpus[index]


def test_each_of_eight_gpus_gets_its_own_findings(eight):
    found = {finding.subject for finding in diagnose(eight)}
    assert {gpu.label for gpu in eight.gpus if gpu.index in (3, 5, 6, 7)} == {s for s in found if s.startswith("GPU ")}


def test_a_gpu_that_is_lost_does_not_take_the_others_with_it(nvidia):
    nvidia(h100(), NVMLError(15), h100())
    assert [H100.product, "unknown", H100.product] == [gpu.product for gpu in take_stock().gpus]


FACTS = {
    "Name": {"product": "unknown"},
    "UUID": {"uuid": None},
    "MemoryInfo": {"memory_bytes": None, "others_bytes": None},
    "EnforcedPowerLimit": {"power_limit_w": None},
    "PowerManagementDefaultLimit": {"power_default_w": None},
    "MaxPcieLinkGeneration": {"pcie_generation": None},
    "GpuMaxPcieLinkGeneration": {"pcie_generation_rated": None},
    "CurrPcieLinkWidth": {"pcie_width": None},
    "MaxPcieLinkWidth": {"pcie_width_rated": None},
    "NvLinkState": {"links": None},
    "EccMode": {"ecc": None},
    "TotalEccErrors": {"ecc_errors": None},
    "RemappedRows": {"remap_pending": None, "remap_failed": None},
    "PersistenceMode": {"persistence": None},
    "ComputeMode": {"compute_mode": None},
}


@pytest.mark.parametrize("error", WITHHELD, ids=["not supported", "no permission"])
@pytest.mark.parametrize("question", FACTS)
def test_a_question_that_is_not_answered_leaves_its_fact_unknown_and_the_rest_known(nvidia, question, error):
    nvidia(h100(**{question: error}))
    assert take_stock().gpus == (replace(H100, **FACTS[question]),)


def test_a_gpu_that_tells_neither_counters_nor_reasons_does_not_tell_of_throttling(nvidia):
    questions = ("ViolationStatus", "CurrentClocksEventReasons", "CurrentClocksThrottleReasons")
    nvidia(h100(**dict.fromkeys(questions, WITHHELD[0])))
    assert (False, None) == (take_stock().gpus[0].throttle_known, take_stock().gpus[0].active)


def test_a_gpu_that_tells_the_reasons_of_its_clock_tells_of_throttling(nvidia):
    nvidia(h100(ViolationStatus=WITHHELD[0]))
    assert take_stock().gpus[0].throttle_known


@pytest.mark.parametrize(
    ("question", "answer", "facts"),
    [
        ("Name", b"NVIDIA H100 80GB HBM3", {}),
        ("EccMode", [0, 1], {"ecc": False}),
        ("PersistenceMode", 0, {"persistence": False}),
        ("MigMode", [1, 1], {"partition": "mig"}),
        ("ComputeMode", 2, {"compute_mode": "prohibited"}),
        ("ComputeMode", 3, {"compute_mode": "exclusive process"}),
        ("MemoryInfo", SimpleNamespace(total=80 * GIB, used=5 * GIB), {"others_bytes": 4 * GIB}),
        ("TotalEccErrors", lambda kind, counter: 2, {"ecc_errors": 2}),
        ("RemappedRows", (0, 0, 1, 0), {"remap_pending": True}),
        ("RemappedRows", (0, 0, 0, 1), {"remap_failed": True}),
        ("CurrentClocksEventReasons", 0x4 | 0x40, {"active": (POWER_CAP, THERMAL)}),
        ("NvLinkState", lambda link: int(link < 12), {"links": 12}),
        ("NvLinkState", lambda link: 0, {"links": 0}),
    ],
)
def test_an_answer_is_taken_as_it_is_meant(nvidia, question, answer, facts):
    nvidia(h100(**{question: answer}))
    assert take_stock().gpus == (replace(H100, **facts),)


@pytest.mark.parametrize(("status", "pending"), [(1, True), (0, False)])
def test_a_gpu_that_retires_pages_in_place_of_remapping_rows_tells_of_those(nvidia, status, pending):
    nvidia(h100(RemappedRows=WITHHELD[0], RetiredPagesPendingStatus=status))
    assert take_stock().gpus == (replace(H100, remap_pending=pending, remap_failed=None),)


def test_an_older_driver_is_asked_for_what_is_active_by_the_older_name(nvidia):
    nvidia(h100(CurrentClocksEventReasons=WITHHELD[0], CurrentClocksThrottleReasons=0x8))
    assert take_stock().gpus[0].active == (HARDWARE,)


def test_links_that_a_gpu_does_not_have_are_not_counted(nvidia):
    nvidia(h100(NvLinkState=lambda link: _told(1 if link < 4 else WITHHELD[0])))
    assert take_stock().gpus[0].links == 4


def test_a_link_that_idles_at_a_low_generation_is_not_slow(nvidia):
    nvidia(h100(CurrPcieLinkGeneration=1))
    assert take_stock().gpus[0].pcie_generation == 5


def test_nvml_without_a_driver_is_no_library(nvidia, monkeypatch):
    library = nvidia()
    monkeypatch.setattr(library, "nvmlInit", lambda: _told(NVMLError(9)))
    assert ((), ()) == (take_stock().gpus, take_stock().libraries)


def test_nvml_that_finds_no_gpu_has_answered(nvidia):
    nvidia().gpus = ()
    assert ((), ("NVML",)) == (take_stock().gpus, take_stock().libraries)


def test_every_fact_that_amdsmi_tells_is_taken(instinct):
    instinct()
    assert ((MI300X,), ("amdsmi",)) == (take_stock().gpus, take_stock().libraries)


@pytest.mark.parametrize(
    ("question", "answer", "facts"),
    [
        ("pcie_info", LINK | {"pcie_metric": {"pcie_width": 8, "pcie_speed": 32000}}, {"pcie_width": 8}),
        ("pcie_info", LINK | {"pcie_metric": {"pcie_width": 16, "pcie_speed": 16000}}, {"pcie_generation": 4}),
        ("gpu_ecc_enabled", 0b100, {"ecc": False, "ecc_errors": None}),
        ("gpu_total_ecc_count", {"uncorrectable_count": 3}, {"ecc_errors": 3}),
        ("gpu_bad_page_info", [{"status": 0}, {"status": 1}], {"remap_pending": True}),
        ("gpu_bad_page_info", [{"status": 2}], {"remap_failed": True}),
        ("gpu_bad_page_info", [], {}),
        ("gpu_bad_page_info", "No bad pages found.", {"remap_pending": None, "remap_failed": None}),
        ("violation_status", {"active_socket_thrm": 1, "active_ppt_pwr": 1}, {"active": (POWER_CAP, THERMAL)}),
        ("power_cap_info", {"power_cap": 500, "default_power_cap": 750}, {"power_limit_w": 500.0}),
        ("gpu_compute_partition", "CPX", {"partition": "cpx"}),
        ("gpu_vram_usage", {"vram_total": 196608, "vram_used": 5120}, {"others_bytes": 4 * GIB}),
        ("gpu_vram_usage", {"vram_total": "N/A", "vram_used": "N/A"}, {"memory_bytes": None, "others_bytes": None}),
        (
            "violation_status",
            {"active_socket_thrm": "N/A", "acc_socket_thrm": "N/A"},
            {"throttle_known": False, "active": None},
        ),
    ],
)
def test_an_answer_of_amdsmi_is_taken_as_it_is_meant(instinct, question, answer, facts):
    instinct(mi300x(), mi300x(**{question: answer}))
    assert take_stock().gpus == (MI300X, replace(MI300X, index=1, **facts))


AMD_FACTS = {
    "gpu_asic_info": {"product": "unknown"},
    "gpu_vram_usage": {"memory_bytes": None, "others_bytes": None},
    "pcie_info": dict.fromkeys(("pcie_generation", "pcie_generation_rated", "pcie_width", "pcie_width_rated")),
    "power_cap_info": {"power_limit_w": None, "power_default_w": None},
    "gpu_device_uuid": {"uuid": None},
    "violation_status": {"throttle_known": False, "active": None},
    "gpu_ecc_enabled": {"ecc": None, "ecc_errors": None},
    "gpu_total_ecc_count": {"ecc_errors": None},
    "gpu_bad_page_info": {"remap_pending": None, "remap_failed": None},
}


@pytest.mark.parametrize("question", AMD_FACTS)
def test_what_amdsmi_does_not_answer_is_unknown_and_the_rest_known(instinct, question):
    instinct(mi300x(**{question: AmdSmiLibraryException()}))
    assert take_stock().gpus == (replace(MI300X, **AMD_FACTS[question]),)


def test_an_amd_gpu_that_is_lost_does_not_take_the_others_with_it(instinct):
    instinct(mi300x(), mi300x(gpu_device_bdf=AmdSmiLibraryException()), mi300x())
    assert [MI300X.product, "unknown", MI300X.product] == [gpu.product for gpu in take_stock().gpus]


def test_gpus_of_both_makers_are_listed(nvidia, instinct):
    nvidia(), instinct()
    machine = take_stock()
    assert ((H100, MI300X), ("NVML", "amdsmi")) == (machine.gpus, machine.libraries)


def test_a_broken_amdsmi_is_no_library(monkeypatch, instinct):
    monkeypatch.setattr(instinct(), "amdsmi_init", lambda: _told(KeyError("libamd_smi.so")))
    assert take_stock().libraries == ()


@pytest.mark.parametrize("file", ["control", None])
def test_a_daemon_of_mps_is_seen_by_its_pipe(nvidia, monkeypatch, tmp_path, file):
    nvidia()
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", str(tmp_path))
    if file:
        os.mkfifo(tmp_path / file)
    assert take_stock().mps == bool(file)


def test_without_an_nvidia_gpu_mps_is_not_asked_for():
    assert take_stock().mps is None


@pytest.mark.parametrize("name", ["CUDA_INJECTION64_PATH", "NVTX_INJECTION64_PATH", "ROCP_TOOL_LIB", "HSA_TOOLS_LIB"])
def test_a_profiler_is_seen_by_the_variable_that_injects_it(monkeypatch, name):
    monkeypatch.setenv(name, "/opt/tool.so")
    assert take_stock().profiler == name


def test_an_empty_variable_injects_nothing(monkeypatch):
    monkeypatch.setenv("CUDA_INJECTION64_PATH", "")
    assert take_stock().profiler == ""


def test_the_size_of_dev_shm_is_that_of_its_file_system(monkeypatch, tmp_path):
    monkeypatch.setattr(inventory, "_SHM", tmp_path)
    assert take_stock().shm_bytes == shutil.disk_usage(tmp_path).total


def test_a_machine_without_dev_shm_has_no_size_of_it(monkeypatch, tmp_path):
    monkeypatch.setattr(inventory, "_SHM", tmp_path / "none")
    assert take_stock().shm_bytes is None


@pytest.mark.parametrize(
    ("limit", "memlock"),
    [(8 * 2**20, (8 * 2**20, True)), (0, (0, True)), (resource.RLIM_INFINITY, (None, True))],
)
def test_memlock_without_limit_is_not_unknown(monkeypatch, limit, memlock):
    monkeypatch.setattr(resource, "getrlimit", lambda which: (limit, resource.RLIM_INFINITY))
    machine = take_stock()
    assert memlock == (machine.memlock_bytes, machine.memlock_known)


def test_a_system_without_limits_does_not_tell_memlock(monkeypatch):
    monkeypatch.setitem(sys.modules, "resource", None)
    machine = take_stock()
    assert (None, False) == (machine.memlock_bytes, machine.memlock_known)


def test_an_accelerator_is_seen_by_its_node_even_where_torch_is_for_the_cpu(monkeypatch, tmp_path):
    there, absent = tmp_path / "nvidiactl", tmp_path / "kfd"
    there.write_text("")
    monkeypatch.setattr(inventory, "ACCELERATOR_NODES", (there, absent))
    machine = take_stock()
    assert ((str(there),), 0) == (machine.accelerator_nodes, machine.torch_devices)
    assert {"torch", "management library"} <= {finding.subject for finding in diagnose(machine)}


@pytest.fixture
def four(monkeypatch):
    """Four devices in torch, of which 0 and 3 do not reach each other."""
    for module in (torch.cuda, torch.accelerator):
        monkeypatch.setattr(module, "device_count", lambda: 4)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "can_device_access_peer", lambda one, other: (one, other) != (0, 3))


def test_the_pairs_without_peer_access_are_listed(four):
    assert take_stock().no_peers == ((0, 3),)


@pytest.mark.parametrize("devices", [0, 1])
def test_without_two_devices_there_are_no_peers_to_know(four, monkeypatch, devices):
    monkeypatch.setattr(torch.accelerator, "device_count", lambda: devices)
    assert take_stock().no_peers is None


def test_where_torch_has_no_cuda_peers_are_unknown(four, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert take_stock().no_peers is None


@pytest.fixture
def card(monkeypatch):
    """The CUDA device whose UUID and address torch tells, in torch's own numbers."""
    properties = SimpleNamespace(uuid="1", pci_domain_id=0, pci_bus_id=5, pci_device_id=0)
    monkeypatch.setattr(torch.cuda, "set_device", lambda index: None)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    monkeypatch.setattr(torch.version, "hip", None, raising=False)
    return properties


# In use is what this very process holds.
MINE = replace(H100, others_bytes=None)


def test_a_device_tells_all_that_the_inventory_does(nvidia, card):
    library = nvidia(h100(UUID="1"))
    assert (replace(MINE, uuid="1"), 0) == (CudaDevice(0).gpu(), library.open)


def test_a_device_is_found_by_its_uuid_whatever_torch_numbers_it(nvidia, card):
    card.uuid = "3"
    nvidia(*(h100(UUID=str(number), EnforcedPowerLimit=number * 100_000) for number in range(8)))
    assert replace(MINE, index=3, uuid="3", power_limit_w=300.0) == CudaDevice(0).gpu()


def test_a_device_is_asked_anew_every_time(nvidia, card):
    library, device = nvidia(h100(UUID="1")), CudaDevice(0)
    limits = []
    for limit_mw in (700_000, 500_000):
        library.gpus[0]["EnforcedPowerLimit"] = limit_mw
        limits.append(device.gpu().power_limit_w)
    assert limits == [700.0, 500.0]


def test_a_device_whose_link_idles_is_not_slow(nvidia, card):
    nvidia(h100(UUID="1", CurrPcieLinkGeneration=1))
    assert (5, 5) == (CudaDevice(0).gpu().pcie_generation, CudaDevice(0).gpu().pcie_generation_rated)


def test_a_device_that_withholds_everything_is_unknown_and_never_fine(nvidia, card):
    nvidia(silent(NVMLError_NotSupported(3)) | {"UUID": "1"})
    assert Gpu(0, "unknown", uuid="1", driver="570.86") == CudaDevice(0).gpu()


@pytest.mark.parametrize(
    "broken",
    [
        lambda library, card: setattr(card, "uuid", "9"),
        lambda library, card: delattr(card, "uuid"),
        lambda library, card: setattr(library, "nvmlInit", lambda: _told(NVMLError(9))),
        lambda library, card: setattr(library, "nvmlInit", lambda: _told(OSError("libnvidia-ml.so"))),
        lambda library, card: setattr(library, "nvmlDeviceGetIndex", lambda gpu: _told(NVMLError(15))),
    ],
    ids=["of another machine", "without a UUID", "without a driver", "a broken library", "lost since"],
)
def test_a_device_that_nobody_knows_is_unknown_and_raises_nothing(nvidia, card, broken):
    broken(nvidia(h100(UUID="1")), card)
    assert CudaDevice(0).gpu() is None


def test_without_a_library_nothing_is_known_of_a_device(card):
    assert CudaDevice(0).gpu() is None


@pytest.fixture
def hip(card, monkeypatch):
    """The same under HIP."""
    monkeypatch.setattr(torch.version, "hip", "6.4", raising=False)
    return card


def test_an_amd_device_tells_all_that_the_inventory_does(instinct, hip):
    instinct(mi300x(), mi300x())
    hip.pci_bus_id = 6
    assert replace(MI300X, index=1, others_bytes=None) == CudaDevice(0).gpu()


def test_an_amd_link_below_its_full_speed_may_idle_and_is_unknown(instinct, hip):
    instinct(mi300x(pcie_info=LINK | {"pcie_metric": {"pcie_width": 16, "pcie_speed": 2500}}))
    assert replace(MI300X, pcie_generation=None, others_bytes=None) == CudaDevice(0).gpu()


def test_an_amd_device_that_is_not_found_is_unknown(instinct, hip):
    instinct()
    hip.pci_bus_id = 0x77
    assert CudaDevice(0).gpu() is None


def test_no_library_knows_a_processor():
    assert CpuDevice().gpu() is None
