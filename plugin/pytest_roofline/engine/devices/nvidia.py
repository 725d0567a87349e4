"""NVIDIA's management library: facts, throttle counters and neighbours of a GPU. Facts that it
withholds stay unknown.
"""

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from ...core.facts import BRAKE, HARDWARE, POWER_CAP, THERMAL, Gpu
from .base import OWN_CONTEXT_BYTES, Counters, Silent, others_bytes

# Bits of the clocks' event reasons (nvml.h).
_REASONS = {0x4: POWER_CAP, 0x8: HARDWARE, 0x20: THERMAL, 0x40: THERMAL, 0x80: BRAKE}
# Performance policies whose violation time NVML adds up, in nanoseconds (nvml.h: POWER 0, THERMAL 1).
_POLICIES = {0: POWER_CAP, 1: THERMAL}
# Counters of newer drivers, in nanoseconds, by their names in nvml.h: versions of it number them differently.
_FIELDS = {
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_POWER_CAP": POWER_CAP,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN": THERMAL,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": THERMAL,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN": BRAKE,
}
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
# More than any product wires (nvml.h: NVML_NVLINK_MAX_LINKS); a device withholds those that it has not.
MOST_LINKS = 36
# nvml.h: NVML_MEMORY_ERROR_TYPE_UNCORRECTED, and NVML_VOLATILE_ECC for what was counted since the driver was loaded.
_UNCORRECTED, _VOLATILE = 1, 0
NOT_INSTALLED = "nvidia-ml-py is not installed (pip install nvidia-ml-py)"
NO_DRIVER = (
    "NVML finds no driver ({}; in a container, enable its utilities: "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
)
UNKNOWN_DEVICE = "NVML does not know this device"


def start_nvml() -> Any:
    """The library, ready to be asked."""
    try:
        import pynvml
    except ImportError as error:
        raise Silent(NOT_INSTALLED) from error
    try:
        pynvml.nvmlInit()
    except Exception as error:
        # NVMLError; named by its base, since a stand-in may lack the class.
        if type(error).__name__.startswith("NVMLError"):
            raise Silent(NO_DRIVER.format(error)) from error
        raise
    return pynvml


@contextlib.contextmanager
def open_nvml() -> Iterator[Any]:
    """Yield the library; None if it is missing or finds no driver."""
    try:
        nvml = start_nvml()
    except Silent:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def silent() -> str:
    """Return why the library answers nothing; empty if it answers."""
    try:
        start_nvml().nvmlShutdown()
    except Silent as why:
        return str(why)
    return ""


def ask(nvml: Any, question: Callable[..., Any] | str, *arguments: Any) -> Any:
    """Return an answer of the library, or None. None is withheld, or older than the library or the
    driver.
    """
    # Newer versions of the library have an error of their own for a driver that is older than the question.
    mismatch = getattr(nvml, "NVMLLibraryMismatchError", AttributeError)
    try:
        answer = (getattr(nvml, question) if isinstance(question, str) else question)(*arguments)
    except (nvml.NVMLError, AttributeError, mismatch):
        return None
    return answer.decode() if isinstance(answer, bytes) else answer


def handle_of(nvml: Any, uuid: str | None) -> Any:
    """Return the device by UUID, never by index. CUDA_VISIBLE_DEVICES renumbers, NVML does not.

    Torch tells a UUID without a prefix, in MIG mode that of the instance.
    """
    if uuid is None:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_FOUND)
    if uuid.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


def causes(nvml: Any, handle: Any) -> frozenset[str]:
    """Return what slows the device right now, and the power cap."""
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except (nvml.NVMLError, AttributeError):
        # The older name of the same question.
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return frozenset(cause for bit, cause in _REASONS.items() if bits & bit)


def used_bytes(nvml: Any, handle: Any) -> int:
    """Return the memory that processes hold.

    The first version of NVML's account counts what the driver keeps for itself as used too, some 900 MB on an A100
    with nothing on it; the second has that apart (nvml.h: nvmlMemory_v2_t).
    """
    return int(nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).used)


def in_use(uuid: str | None) -> int | None:
    """Return what processes hold of a GPU's memory now. None if nobody tells."""
    with open_nvml() as nvml:
        process_bytes = (
            None if nvml is None else ask(nvml, lambda: used_bytes(nvml, handle_of(nvml, uuid)))
        )
    return None if process_bytes is None else int(process_bytes)


class Nvml:
    """One GPU behind NVML, open until the process ends. Every question may go unanswered.

    `before_bytes` of memory were in use when this process had no context on it; None where nobody looked. `silent` is
    why the library cannot be asked about this device; empty where it can.
    """

    def __init__(self, uuid: str | None, before_bytes: int | None = None) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        self._before_bytes = before_bytes
        # From now on: the library remembers who worked here before us.
        self._last_sample_us = time.time_ns() // 1000
        try:
            self._nvml = start_nvml()
            self._handle = ask(self._nvml, handle_of, self._nvml, uuid)
            self.silent = UNKNOWN_DEVICE if self._handle is None else ""
        except Silent as silent:
            self.silent = str(silent)

    def counters(self, own_bytes: int) -> Counters:
        """Return the state right now. `own_bytes` are allocated by torch in this process."""
        if self.silent:
            return Counters()
        used = self._ask(used_bytes)
        return Counters(
            active=self._ask(causes),
            seconds=self._violation_seconds(),
            others_bytes=None
            if used is None
            else others_bytes(used, own_bytes, self._holders(), self._before_bytes),
            others_busy=self._others_busy(),
        )

    def _ask(self, question: Callable[[Any, Any], Any]) -> Any:
        return ask(self._nvml, question, self._nvml, self._handle)

    def _holders(self) -> dict[int, int]:
        """Return what each process holds, as far as the driver tells."""
        processes = (
            self._ask(lambda nvml, handle: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ()
        )
        return {
            int(process.pid): int(process.usedGpuMemory)
            for process in processes
            if process.usedGpuMemory is not None
        }

    def _violation_seconds(self) -> dict[str, float]:
        """Return the sum of each cause's counters, in seconds. Some count the same, which does not
        matter to a growth.
        """
        seconds: dict[str, float] = {}
        for policy, cause in _POLICIES.items():
            status = ask(self._nvml, "nvmlDeviceGetViolationStatus", self._handle, policy)
            if status is not None:
                seconds[cause] = int(status.violationTime) * 1e-9
        fields = {
            getattr(self._nvml, name): cause
            for name, cause in _FIELDS.items()
            if hasattr(self._nvml, name)
        }
        for counter in (
            ask(self._nvml, "nvmlDeviceGetFieldValues", self._handle, list(fields)) or ()
        ):
            if counter.nvmlReturn == 0 and counter.fieldId in fields:
                cause = fields[counter.fieldId]
                seconds[cause] = seconds.get(cause, 0.0) + int(counter.value.ullVal) * 1e-9
        return seconds

    def _others_busy(self) -> float | None:
        """Return the share of time that other processes kept it busy. Unknown if ours is not on the
        list, as in containers.
        """
        samples = ask(
            self._nvml, "nvmlDeviceGetProcessUtilization", self._handle, self._last_sample_us
        )
        if not samples:
            return None
        self._last_sample_us = max(int(sample.timeStamp) for sample in samples)
        mine = os.getpid()
        if all(sample.pid != mine for sample in samples):
            return None
        return sum(int(sample.smUtil) for sample in samples if sample.pid != mine) / 100


def _answers(nvml: Any, questions: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Return the answers of NVML by name. A question that it withholds, or does not know yet, stays
    out.
    """
    answers = {name: ask(nvml, question) for name, question in questions.items()}
    return {name: answer for name, answer in answers.items() if answer is not None}


def _as_running(nvml: Any, handle: Any) -> dict[str, Callable[[], Any]]:
    """Return the questions for a run file and for the doctor's list."""
    return {
        "driver": nvml.nvmlSystemGetDriverVersion,
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
        "partition": lambda: "mig" if nvml.nvmlDeviceGetMigMode(handle)[0] else None,
    }


def facts(uuid: str | None) -> dict[str, Any]:
    """Return driver, clocks, power limit, PCIe link as running, and MIG mode. What NVML withholds
    stays out (unknown).
    """
    with open_nvml() as nvml:
        handle = None if nvml is None else ask(nvml, handle_of, nvml, uuid)
        if handle is None:
            return {}
        return _answers(
            nvml,
            _as_running(nvml, handle)
            | {
                "firmware": lambda: nvml.nvmlDeviceGetVbiosVersion(handle),
                "clock_mhz": lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
                "memory_clock_mhz": lambda: float(
                    nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)
                ),
                "pcie_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
            },
        )


def gpus() -> list[Gpu] | None:
    """Return every NVIDIA GPU of this machine, a lost one too. None if NVML does not answer."""
    with open_nvml() as nvml:
        count = None if nvml is None else ask(nvml, "nvmlDeviceGetCount")
        if count is None:
            return None
        handles = [ask(nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]
        return [
            Gpu(index=index, product="unknown") if handle is None else _gpu(nvml, handle, index)
            for index, handle in enumerate(handles)
        ]


def gpu(uuid: str | None) -> Gpu | None:
    """Return the GPU with this UUID. None if NVML does not answer or does not know it."""
    with open_nvml() as nvml:
        handle = None if nvml is None else ask(nvml, handle_of, nvml, uuid)
        index = None if handle is None else ask(nvml, "nvmlDeviceGetIndex", handle)
        return None if index is None else _gpu(nvml, handle, index)


def _gpu(nvml: Any, handle: Any, index: int) -> Gpu:
    states = [ask(nvml, "nvmlDeviceGetNvLinkState", handle, link) for link in range(MOST_LINKS)]
    known_links = [bool(state) for state in states if state is not None]
    answers = _answers(
        nvml,
        _as_running(nvml, handle)
        | {
            "product": lambda: nvml.nvmlDeviceGetName(handle),
            "uuid": lambda: nvml.nvmlDeviceGetUUID(handle),
            "memory_bytes": lambda: int(nvml.nvmlDeviceGetMemoryInfo(handle).total),
            "others_bytes": lambda: max(0, used_bytes(nvml, handle) - OWN_CONTEXT_BYTES),
            "power_default_w": lambda: nvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000,
            "pcie_generation_rated": lambda: nvml.nvmlDeviceGetGpuMaxPcieLinkGeneration(handle),
            "pcie_width_rated": lambda: nvml.nvmlDeviceGetMaxPcieLinkWidth(handle),
            # What card and slot agree on; the current one falls on purpose when nothing is copied.
            "pcie_generation": lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
            "ecc": lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
            "persistence": lambda: bool(nvml.nvmlDeviceGetPersistenceMode(handle)),
            "compute_mode": lambda: _COMPUTE_MODES.get(nvml.nvmlDeviceGetComputeMode(handle)),
            "ecc_errors": lambda: int(
                nvml.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, _VOLATILE)
            ),
            # GPUs before Ampere retire pages where later ones remap rows.
            "remap_pending": lambda: bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)),
            "active": lambda: tuple(sorted(causes(nvml, handle))),
        },
    )
    rows = ask(nvml, "nvmlDeviceGetRemappedRows", handle)
    if rows is not None:
        answers |= {"remap_pending": bool(rows[2]), "remap_failed": bool(rows[3])}
    # The engine takes either.
    throttle_known = (
        "active" in answers or ask(nvml, "nvmlDeviceGetViolationStatus", handle, 1) is not None
    )
    return Gpu(
        index,
        links=sum(known_links) if known_links else None,
        throttle_known=throttle_known,
        **{"product": "unknown"} | answers,
    )


def busy_others(uuid: str | None) -> dict[str, float]:
    """Return how busy every other GPU of this machine was lately. They are shares of the time, by
    the name of the GPU.
    """
    busy_by_name: dict[str, float] = {}
    with open_nvml() as nvml:
        for index in range(0 if nvml is None else ask(nvml, "nvmlDeviceGetCount") or 0):
            uuid_and_share = ask(nvml, functools.partial(_busy, nvml, index))
            if uuid_and_share is not None:
                busy_by_name[f"GPU {index} ({uuid_and_share[0]})"] = uuid_and_share[1]
    # Where ours is not among them, as of a MIG instance, nobody can say which are the others.
    mine = next((name for name in busy_by_name if uuid and uuid.removeprefix("GPU-") in name), None)
    return {name: busy for name, busy in busy_by_name.items() if name != mine} if mine else {}


def _busy(nvml: Any, index: int) -> tuple[str, float]:
    """Return the UUID of a GPU, and the share of time that it worked. Work is a kernel or a copy."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    uuid = nvml.nvmlDeviceGetUUID(handle)
    return uuid.decode() if isinstance(uuid, bytes) else str(
        uuid
    ), nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
