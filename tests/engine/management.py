"""Stand-ins for the vendors' management libraries, pynvml and amdsmi, on a machine with these GPUs.

A GPU is what it answers, by the name of the question: an error is raised, a function is called with what else was asked
for. A question that it has no answer to is one that the library does not know.
"""

import os
from types import ModuleType, SimpleNamespace

GIB = 2**30


class NVMLError(Exception):
    """As pynvml has it."""


class NVMLError_NoPermission(NVMLError):  # noqa: N801
    """As pynvml has it."""


class AmdSmiLibraryException(Exception):
    """As amdsmi has it."""


WITHHELD, DENIED = NVMLError(3), NVMLError_NoPermission(4)


def told(answer, *arguments):
    """What a library makes of an answer."""
    if isinstance(answer, Exception):
        raise answer
    return answer(*arguments) if callable(answer) else answer


class FakeNvml(ModuleType):
    """pynvml; a GPU that is an error is lost, `starts` is an error where there is no driver."""

    NVMLError = NVMLError
    NVML_ERROR_NOT_FOUND = 6
    NVML_CLOCK_SM, NVML_CLOCK_MEM = 1, 2
    nvmlMemory_v2 = 0x02000028
    NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN = 269
    NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN = 270
    NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN = 271
    NVML_NVLINK_DEVICE_TYPE_SWITCH = 2

    def __init__(self, *gpus, driver="570.86", starts=None):
        super().__init__("pynvml")
        self.gpus, self.driver, self.starts, self.open, self.asked = gpus, driver, starts, 0, []

    def nvmlInit(self):
        told(self.starts)
        self.open += 1

    def nvmlShutdown(self):
        self.open -= 1

    def nvmlSystemGetDriverVersion(self):
        return told(self.driver)

    def nvmlDeviceGetCount(self):
        return len(self.gpus)

    def nvmlDeviceGetHandleByIndex(self, index):
        return told(self.gpus[index])

    def nvmlDeviceGetHandleByUUID(self, uuid):
        self.asked.append(("HandleByUUID", uuid))
        found = [gpu for gpu in self.gpus if isinstance(gpu, dict) and gpu["UUID"] == uuid]
        return found[0] if found else told(NVMLError(self.NVML_ERROR_NOT_FOUND))

    def nvmlDeviceGetIndex(self, gpu):
        return next(index for index, other in enumerate(self.gpus) if other is gpu)

    def __getattr__(self, name):
        question = name.removeprefix("nvmlDeviceGet")
        if not any(isinstance(gpu, dict) and question in gpu for gpu in self.gpus):
            raise AttributeError(name)

        def ask(gpu, *arguments):
            self.asked.append((question, *arguments))
            return told(gpu[question], *arguments)

        return ask


def memory(used, reserved=0, total=80 * GIB):
    """Both of NVML's accounts of memory, in bytes (nvml.h): the first counts what is reserved as used."""
    second = SimpleNamespace(total=total, used=used, reserved=reserved)
    return lambda version=None: (
        second if version is not None else SimpleNamespace(total=total, used=used + reserved)
    )


def violations(power_ns=0, thermal_ns=0):
    """What every policy answers."""
    return {
        0: SimpleNamespace(violationTime=power_ns),
        1: SimpleNamespace(violationTime=thermal_ns),
    }.get


def fields(counts_ns=(), returned=0):
    """What every field answers, by its number."""
    counts = dict(counts_ns)
    return lambda asked: [
        SimpleNamespace(
            fieldId=number, nvmlReturn=returned, value=SimpleNamespace(ullVal=counts.get(number, 0))
        )
        for number in asked
    ]


def holding(**bytes_by_process):
    """What a list of running processes says: `mine` is this one; None is a driver that does not tell."""
    return [
        SimpleNamespace(pid=os.getpid() if name == "mine" else int(name[1:]), usedGpuMemory=size)
        for name, size in bytes_by_process.items()
    ]


def working(**percent_by_process):
    """What the list of processes' shares of the time says: `mine` is this one."""
    return lambda since: [
        SimpleNamespace(
            pid=os.getpid() if name == "mine" else int(name[1:]),
            smUtil=percent,
            timeStamp=1000 + percent,
        )
        for name, percent in percent_by_process.items()
    ]


H100 = {
    "Name": "NVIDIA H100 80GB HBM3",
    "UUID": "GPU-1",
    "VbiosVersion": "96.00.5E",
    "MemoryInfo": memory(GIB // 2),
    "ClockInfo": {1: 1980, 2: 2619}.get,
    "EnforcedPowerLimit": 700_000,
    "PowerManagementDefaultLimit": 700_000,
    "MaxPcieLinkGeneration": 5,
    "GpuMaxPcieLinkGeneration": 5,
    "CurrPcieLinkGeneration": 1,
    "CurrPcieLinkWidth": 16,
    "MaxPcieLinkWidth": 16,
    "NvLinkState": lambda link: told(1 if link < 18 else NVMLError(2)),
    "EccMode": [1, 1],
    # By type (1 is uncorrected) and counter (0 is since the driver was loaded).
    "TotalEccErrors": lambda kind, counter: {(1, 0): 0}.get((kind, counter), 77),
    # Corrected, uncorrected, pending, failed.
    "RemappedRows": (5, 6, 0, 0),
    "RetiredPagesPendingStatus": WITHHELD,
    "PersistenceMode": 1,
    "ComputeMode": 0,
    "MigMode": [0, 0],
    "ViolationStatus": violations(),
    "FieldValues": fields(returned=3),
    "CurrentClocksEventReasons": 0,
    "CurrentClocksThrottleReasons": 0,
    "ComputeRunningProcesses": WITHHELD,
    "ProcessUtilization": working(mine=50),
    "UtilizationRates": SimpleNamespace(gpu=0),
}
# As the two of them are written in tables of amdsmi 7.0.2 (amdsmi_interface.py).
METRICS = {
    "socket_thm_residency_acc": 0, "vr_thm_residency_acc": 0, "hbm_thm_residency_acc": 0, "prochot_residency_acc": 0,
    "ppt_residency_acc": 0, "accumulation_counter": 10**6, "throttle_status": "N/A",
}  # fmt: skip
VIOLATIONS = {
    "active_socket_thrm": False, "active_vr_thrm": False, "active_hbm_thrm": False, "active_prochot_thrm": False,
    "active_ppt_pwr": False, "acc_counter": 10**6, "per_ppt_pwr": 100, "reference_timestamp": 1,
}  # fmt: skip


def pcie(width=16, speed=32000, rated=32000):
    """PCIe information of a card that can do this, and runs so."""
    return {
        "pcie_static": {"max_pcie_width": 16, "max_pcie_speed": rated},
        "pcie_metric": {"pcie_width": width, "pcie_speed": speed},
    }


MI300X = {
    "gpu_device_bdf": "0000:c1:00.0",
    "gpu_asic_info": {"market_name": "AMD Instinct MI300X"},
    "gpu_vram_usage": {"vram_total": 192 * 1024, "vram_used": 300},
    "pcie_info": pcie(),
    "gpu_ecc_enabled": 0b101,
    "gpu_total_ecc_count": {"correctable_count": 9, "uncorrectable_count": 0, "deferred_count": 0},
    "gpu_bad_page_info": [{"value": 0, "page_address": 4096, "page_size": 4096, "status": 0}],
    "power_cap_info": {"power_cap": 750_000_000, "default_power_cap": 750_000_000},
    "gpu_compute_partition": "SPX",
    "gpu_device_uuid": "uuid",
    "gpu_metrics_info": METRICS,
    "violation_status": VIOLATIONS,
    "gpu_activity": {"gfx_activity": 0},
}


class FakeAmdsmi(ModuleType):
    """amdsmi; `starts` is an error where there is no driver."""

    def __init__(self, *gpus, starts=None):
        super().__init__("amdsmi")
        self.gpus, self.starts, self.asked = gpus, starts, []

    def amdsmi_init(self):
        told(self.starts)

    def amdsmi_get_processor_handles(self):
        return self.gpus

    def __getattr__(self, name):
        question = name.removeprefix("amdsmi_get_")
        if not any(question in gpu for gpu in self.gpus):
            raise AttributeError(name)

        def ask(gpu):
            self.asked.append((question, gpu))
            return told(gpu[question])

        return ask
