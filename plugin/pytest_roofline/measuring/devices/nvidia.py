"""NVIDIA's management library: facts, throttle counters and neighbours of a GPU. What it withholds stays unknown."""

import contextlib
import functools
import os
import time
from collections.abc import Callable, Iterator
from typing import Any

from .base import BRAKE, HARDWARE, POWER_CAP, THERMAL, Counters

# Bits of the clocks' event reasons (nvml.h).
_REASONS = {0x4: POWER_CAP, 0x8: HARDWARE, 0x20: THERMAL, 0x40: THERMAL, 0x80: BRAKE}
# Performance policies whose violation time NVML adds up, in nanoseconds (nvml.h: POWER 0, THERMAL 1).
_POLICIES = {0: POWER_CAP, 1: THERMAL}
# Counters of newer drivers, in nanoseconds, by their names in nvml.h: versions of it number them differently.
_FIELDS = {
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_SW_THERM_SLOWDOWN": THERMAL,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_THERM_SLOWDOWN": THERMAL,
    "NVML_FI_DEV_CLOCKS_EVENT_REASON_HW_POWER_BRAKE_SLOWDOWN": BRAKE,
}
# What a process's own context and the driver take of the memory beside torch's allocator.
OWN_CONTEXT_BYTES = 2**30


class Nvml:
    """One GPU behind NVML, open until the process ends. Every question may go unanswered."""

    def __init__(self, uuid: str | None) -> None:
        self._nvml: Any = None
        self._handle: Any = None
        # From now on: the library remembers who worked here before us.
        self._asked_us = time.time_ns() // 1000
        with contextlib.suppress(ImportError):
            import pynvml

            try:
                pynvml.nvmlInit()
                self._handle = handle_of(pynvml, uuid)
                self._nvml = pynvml
            except pynvml.NVMLError:
                return

    def counters(self, own_bytes: int) -> Counters:
        """The state right now.

        Args:
            own_bytes: what this process has allocated; in containers the list of processes is blind, so what is used
                beyond that belongs to others.
        """
        if self._nvml is None:
            return Counters()
        used = self._ask(lambda nvml, handle: nvml.nvmlDeviceGetMemoryInfo(handle).used)
        return Counters(
            active=self._ask(causes),
            seconds=self._violation_seconds(),
            others_bytes=None if used is None else max(0, int(used) - own_bytes - OWN_CONTEXT_BYTES),
            others_busy=self._others_busy(),
        )

    def _ask(self, question: Callable[[Any, Any], Any]) -> Any:
        try:
            return question(self._nvml, self._handle)
        except (self._nvml.NVMLError, AttributeError):
            return None

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

    Raises:
        NVMLError: no such device.
    """
    if uuid is None:
        raise nvml.NVMLError(nvml.NVML_ERROR_NOT_FOUND)
    prefixed = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return nvml.nvmlDeviceGetHandleByUUID(prefixed)


@contextlib.contextmanager
def opened() -> Iterator[Any]:
    """The library, or None where it is not installed or finds no driver."""
    try:
        import pynvml

        pynvml.nvmlInit()
    except ImportError:
        yield None
        return
    except Exception as error:
        # NVMLError; named by its base, since a stand-in may lack the class.
        if type(error).__name__.startswith("NVMLError"):
            yield None
            return
        raise
    try:
        yield pynvml
    finally:
        pynvml.nvmlShutdown()


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
