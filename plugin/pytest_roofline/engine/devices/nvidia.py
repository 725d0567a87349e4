"""NVIDIA's management library: facts, throttle counters and neighbours of a GPU. What it withholds stays unknown."""

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from .base import BRAKE, HARDWARE, POWER_CAP, THERMAL, Counters, others_bytes

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
NOT_INSTALLED = "nvidia-ml-py is not installed (pip install nvidia-ml-py)"
NO_DRIVER = (
    "NVML finds no driver ({}; in a container, hand its utilities in: NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
)
UNKNOWN_DEVICE = "NVML does not know this device"


class Silent(Exception):
    """Why the library cannot be asked, in words."""


class Nvml:
    """One GPU behind NVML, open until the process ends. Every question may go unanswered.

    Args:
        uuid: of the GPU.
        before_bytes: the memory in use when this process had no context on it; None where nobody looked.
    """

    def __init__(self, uuid: str | None, before_bytes: int | None = None) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        self._before_bytes = before_bytes
        self.silent = ""
        """Why the library cannot be asked about this device; empty where it can."""
        # From now on: the library remembers who worked here before us.
        self._asked_us = time.time_ns() // 1000
        try:
            nvml = started_nvml()
            try:
                self._handle = handle_of(nvml, uuid)
            except nvml.NVMLError as error:
                raise Silent(UNKNOWN_DEVICE) from error
            self._nvml = nvml
        except Silent as silent:
            self.silent = str(silent)

    def counters(self, own_bytes: int) -> Counters:
        """The state right now.

        Args:
            own_bytes: what this process has allocated by torch.
        """
        if self._nvml is None:
            return Counters()
        used = self._ask(used_bytes)
        others = None if used is None else others_bytes(used, own_bytes, self._holders(), self._before_bytes)
        return Counters(
            active=self._ask(causes),
            seconds=self._violation_seconds(),
            others_bytes=others,
            others_busy=self._others_busy(),
        )

    def _ask(self, question: Callable[[Any, Any], Any]) -> Any:
        # Newer versions of the library have an error of their own for a driver that is older than the question.
        mismatch = getattr(self._nvml, "NVMLLibraryMismatchError", AttributeError)
        try:
            return question(self._nvml, self._handle)
        except (self._nvml.NVMLError, AttributeError, mismatch):
            return None

    def _holders(self) -> dict[int, int]:
        """What each process holds, as far as the driver tells."""
        listed = self._ask(lambda nvml, handle: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ()
        return {int(one.pid): int(one.usedGpuMemory) for one in listed if one.usedGpuMemory is not None}

    def _violation_seconds(self) -> dict[str, float]:
        """What every counter of a cause adds up to: some count the same, which is no matter where growth is asked."""
        seconds: dict[str, float] = {}
        for policy, cause in _POLICIES.items():
            status = self._ask(functools.partial(_violation, policy=policy))
            if status is not None:
                seconds[cause] = int(status.violationTime) * 1e-9
        fields = {getattr(self._nvml, name): cause for name, cause in _FIELDS.items() if hasattr(self._nvml, name)}
        for value in self._ask(lambda nvml, handle: nvml.nvmlDeviceGetFieldValues(handle, list(fields))) or ():
            if value.nvmlReturn == 0 and value.fieldId in fields:
                cause = fields[value.fieldId]
                seconds[cause] = seconds.get(cause, 0.0) + int(value.value.ullVal) * 1e-9
        return seconds

    def _others_busy(self) -> float | None:
        """The multiprocessors' time of other processes; unknown where ours is not on the list, as in containers."""
        samples = self._ask(lambda nvml, handle: nvml.nvmlDeviceGetProcessUtilization(handle, self._asked_us))
        if not samples:
            return None
        self._asked_us = max(int(sample.timeStamp) for sample in samples)
        mine = os.getpid()
        if all(sample.pid != mine for sample in samples):
            return None
        return sum(int(sample.smUtil) for sample in samples if sample.pid != mine) / 100


def _violation(nvml: Any, handle: Any, policy: int) -> Any:
    return nvml.nvmlDeviceGetViolationStatus(handle, policy)


def causes(nvml: Any, handle: Any) -> frozenset[str]:
    """What slows the device right now, and the power cap.

    Raises:
        NVMLError: the device does not tell.
        AttributeError: the library is older than the question.
    """
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except (nvml.NVMLError, AttributeError):
        # The older name of the same question.
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return frozenset(cause for bit, cause in _REASONS.items() if bits & bit)


def handle_of(nvml: Any, uuid: str | None) -> Any:
    """The device by UUID, never by index: CUDA_VISIBLE_DEVICES renumbers, NVML does not.

    Torch tells a UUID without a prefix, in MIG mode that of the instance.

    Raises:
        NVMLError: no such device.
    """
    if uuid is None:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_FOUND)
    if uuid.startswith(("GPU-", "MIG-")):
        return nvml.nvmlDeviceGetHandleByUUID(uuid)
    try:
        return nvml.nvmlDeviceGetHandleByUUID(f"GPU-{uuid}")
    except nvml.NVMLError:
        return nvml.nvmlDeviceGetHandleByUUID(f"MIG-{uuid}")


def used_bytes(nvml: Any, handle: Any) -> int:
    """What processes hold of the memory.

    The first version of NVML's account counts what the driver keeps for itself as used too, some 900 MB on an A100
    with nothing on it; the second has that apart (nvml.h: nvmlMemory_v2_t).

    Raises:
        NVMLError: the device does not tell.
    """
    try:
        return int(nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).used)
    except (nvml.NVMLError, AttributeError, TypeError):
        # A driver or a library from before 2022.
        return int(nvml.nvmlDeviceGetMemoryInfo(handle).used)


def in_use(uuid: str | None) -> int | None:
    """What processes hold of a GPU's memory now; None where nobody tells."""
    with opened() as nvml:
        found = {} if nvml is None else answers(nvml, {"used": lambda: used_bytes(nvml, handle_of(nvml, uuid))})
    return found.get("used")


def started_nvml() -> Any:
    """The library, ready to be asked.

    Raises:
        Silent: it is not installed, or finds no driver.
    """
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


def silent() -> str:
    """Why the library answers nothing; empty where it does."""
    try:
        started_nvml().nvmlShutdown()
    except Silent as why:
        return str(why)
    return ""


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


def facts(uuid: str | None) -> dict[str, Any]:
    """Driver, clocks, power limit, PCIe link as running, MIG mode; what NVML withholds stays out (unknown)."""
    with opened() as nvml:
        if nvml is None:
            return {}
        try:
            handle = handle_of(nvml, uuid)
        except nvml.NVMLError:
            return {}
        return answers(
            nvml,
            {
                "driver": nvml.nvmlSystemGetDriverVersion,
                "firmware": lambda: nvml.nvmlDeviceGetVbiosVersion(handle),
                "clock_mhz": lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_SM)),
                "memory_clock_mhz": lambda: float(nvml.nvmlDeviceGetClockInfo(handle, nvml.NVML_CLOCK_MEM)),
                "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
                "pcie_generation": lambda: nvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
                "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
                "partition": lambda: "mig" if nvml.nvmlDeviceGetMigMode(handle)[0] else None,
            },
        )


def answers(nvml: Any, questions: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """The questions that NVML answers; one that it withholds, or does not know yet, stays out."""
    found: dict[str, Any] = {}
    for name, ask in questions.items():
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            value = ask()
            found[name] = value.decode() if isinstance(value, bytes) else value
    return found


def busy_others(uuid: str | None) -> dict[str, float]:
    """How much of the time every other GPU of this machine was at work lately, by what it is called; those that tell.

    NVML averages over the last sixth of a second to a second, by product.
    """
    found: dict[str, float] = {}
    with opened() as nvml:
        if nvml is None:
            return found
        for index in range(answers(nvml, {"count": nvml.nvmlDeviceGetCount}).get("count", 0)):
            told = answers(nvml, {"told": functools.partial(_busy, nvml, index)}).get("told")
            if told is not None:
                found[f"GPU {index} ({told[0]})"] = told[1]
    # Where ours is not among them, as of a MIG instance, nobody can say which are the others.
    mine = next((name for name in found if uuid and uuid.removeprefix("GPU-") in name), None)
    return {name: busy for name, busy in found.items() if name != mine} if mine else {}


def _busy(nvml: Any, index: int) -> tuple[str, float]:
    """The UUID of a GPU, and the share of the time that a kernel or a copy kept it at work."""
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    uuid = nvml.nvmlDeviceGetUUID(handle)
    return uuid.decode() if isinstance(uuid, bytes) else str(uuid), nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
