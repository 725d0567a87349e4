"""NVIDIA's management library: facts, throttle counters and neighbours of a GPU. What it withholds stays unknown."""

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
    "NVML finds no driver ({}; in a container, hand its utilities in: "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
)
UNKNOWN_DEVICE = "NVML does not know this device"


def started_nvml() -> Any:
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
def opened() -> Iterator[Any]:
    """The library, or None where it is not installed or finds no driver."""
    try:
        nvml = started_nvml()
    except Silent:
        yield None
        return
    try:
        yield nvml
    finally:
        nvml.nvmlShutdown()


def silent() -> str:
    """Why the library answers nothing; empty where it does."""
    try:
        started_nvml().nvmlShutdown()
    except Silent as why:
        return str(why)
    return ""


def ask(nvml: Any, question: Callable[..., Any] | str, *arguments: Any) -> Any:
    """An answer; None where it is withheld, or older than the library or the driver."""
    # Newer versions of the library have an error of their own for a driver that is older than the question.
    mismatch = getattr(nvml, "NVMLLibraryMismatchError", AttributeError)
    try:
        answer = (getattr(nvml, question) if isinstance(question, str) else question)(*arguments)
    except (nvml.NVMLError, AttributeError, mismatch):
        return None
    return answer.decode() if isinstance(answer, bytes) else answer


def handle_of(nvml: Any, uuid: str | None) -> Any:
    """The device by UUID, never by index: CUDA_VISIBLE_DEVICES renumbers, NVML does not.

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
    """What slows the device right now, and the power cap."""
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except (nvml.NVMLError, AttributeError):
        # The older name of the same question.
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return frozenset(cause for bit, cause in _REASONS.items() if bits & bit)


def used_bytes(nvml: Any, handle: Any) -> int:
    """What processes hold of the memory.

    The first version of NVML's account counts what the driver keeps for itself as used too, some 900 MB on an A100
    with nothing on it; the second has that apart (nvml.h: nvmlMemory_v2_t).
    """
    return int(nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).used)


def in_use(uuid: str | None) -> int | None:
    """What processes hold of a GPU's memory now; None where nobody tells."""
    with opened() as nvml:
        found = None if nvml is None else ask(nvml, lambda: used_bytes(nvml, handle_of(nvml, uuid)))
    return None if found is None else int(found)


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
        self._asked_us = time.time_ns() // 1000
        try:
            self._nvml = started_nvml()
            self._handle = ask(self._nvml, handle_of, self._nvml, uuid)
            self.silent = UNKNOWN_DEVICE if self._handle is None else ""
        except Silent as silent:
            self.silent = str(silent)

    def counters(self, own_bytes: int) -> Counters:
        """The state right now, with `own_bytes` allocated by torch in this process."""
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
        """What each process holds, as far as the driver tells."""
        listed = (
            self._ask(lambda nvml, handle: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ()
        )
        return {
            int(one.pid): int(one.usedGpuMemory) for one in listed if one.usedGpuMemory is not None
        }

    def _violation_seconds(self) -> dict[str, float]:
        """What every counter of a cause adds up to: some count the same, which is no matter where growth is asked."""
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
        for value in ask(self._nvml, "nvmlDeviceGetFieldValues", self._handle, list(fields)) or ():
            if value.nvmlReturn == 0 and value.fieldId in fields:
                cause = fields[value.fieldId]
                seconds[cause] = seconds.get(cause, 0.0) + int(value.value.ullVal) * 1e-9
        return seconds

    def _others_busy(self) -> float | None:
        """The multiprocessors' time of other processes; unknown where ours is not on the list, as in containers."""
        samples = ask(self._nvml, "nvmlDeviceGetProcessUtilization", self._handle, self._asked_us)
        if not samples:
            return None
        self._asked_us = max(int(sample.timeStamp) for sample in samples)
        mine = os.getpid()
        if all(sample.pid != mine for sample in samples):
            return None
        return sum(int(sample.smUtil) for sample in samples if sample.pid != mine) / 100


def _answers(nvml: Any, questions: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """The questions that NVML answers; one that it withholds, or does not know yet, stays out."""
    answers = {name: ask(nvml, question) for name, question in questions.items()}
    return {name: answer for name, answer in answers.items() if answer is not None}


def _as_running(nvml: Any, handle: Any) -> dict[str, Callable[[], Any]]:
    """Questions of which the answers stand in a run file and in the doctor's list alike."""
    return {
        "driver": nvml.nvmlSystemGetDriverVersion,
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
        "partition": lambda: "mig" if nvml.nvmlDeviceGetMigMode(handle)[0] else None,
    }


def facts(uuid: str | None) -> dict[str, Any]:
    """Driver, clocks, power limit, PCIe link as running, MIG mode; what NVML withholds stays out (unknown)."""
    with opened() as nvml:
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
    """Every NVIDIA GPU of this machine, a lost one too; None where NVML does not answer."""
    with opened() as nvml:
        count = None if nvml is None else ask(nvml, "nvmlDeviceGetCount")
        if count is None:
            return None
        handles = [ask(nvml, "nvmlDeviceGetHandleByIndex", index) for index in range(count)]
        return [
            Gpu(index=index, product="unknown") if handle is None else _gpu(nvml, handle, index)
            for index, handle in enumerate(handles)
        ]


def gpu(uuid: str | None) -> Gpu | None:
    """The GPU with this UUID; None where NVML does not answer or does not know it."""
    with opened() as nvml:
        handle = None if nvml is None else ask(nvml, handle_of, nvml, uuid)
        index = None if handle is None else ask(nvml, "nvmlDeviceGetIndex", handle)
        return None if index is None else _gpu(nvml, handle, index)


def _gpu(nvml: Any, handle: Any, index: int) -> Gpu:
    states = [ask(nvml, "nvmlDeviceGetNvLinkState", handle, link) for link in range(MOST_LINKS)]
    known = [bool(state) for state in states if state is not None]
    told = _answers(
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
        told |= {"remap_pending": bool(rows[2]), "remap_failed": bool(rows[3])}
    # The engine takes either.
    throttle_known = (
        "active" in told or ask(nvml, "nvmlDeviceGetViolationStatus", handle, 1) is not None
    )
    return Gpu(
        index,
        links=sum(known) if known else None,
        throttle_known=throttle_known,
        **{"product": "unknown"} | told,
    )


def busy_others(uuid: str | None) -> dict[str, float]:
    """How much of the time every other GPU of this machine was at work lately, by what it is called."""
    found: dict[str, float] = {}
    with opened() as nvml:
        for index in range(0 if nvml is None else ask(nvml, "nvmlDeviceGetCount") or 0):
            told = ask(nvml, functools.partial(_busy, nvml, index))
            if told is not None:
                found[f"GPU {index} ({told[0]})"] = told[1]
    # Where ours is not among them, as of a MIG instance, nobody can say which are the others.
    mine = next((name for name in found if uuid and uuid.removeprefix("GPU-") in name), None)
    return {name: busy for name, busy in found.items() if name != mine} if mine else {}


def _busy(nvml: Any, index: int) -> tuple[str, float]:
    """The UUID of a GPU, and the share of the time that a kernel or a copy kept it at work."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    uuid = nvml.nvmlDeviceGetUUID(handle)
    return uuid.decode() if isinstance(uuid, bytes) else str(
        uuid
    ), nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
