"""Facts, throttle counters and neighbours of NVIDIA GPUs, from the management library NVML.

A fact that it does not state is unknown.
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
# Counters of newer drivers, in nanoseconds, by name, since versions of nvml.h number them differently.
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
    "NVML finds no driver ({}; in a container, enable the driver's utilities: "
    "NVIDIA_DRIVER_CAPABILITIES=compute,utility)"
)
UNKNOWN_DEVICE = "NVML does not know this device"


def start_nvml() -> Any:
    """Return the library, initialized. Raise Silent if it is missing or finds no driver."""
    try:
        import pynvml
    except ImportError as error:
        raise Silent(NOT_INSTALLED) from error
    try:
        pynvml.nvmlInit()
    except Exception as error:
        # The library's own error is told by the name of its class, since a stand-in for the library may lack the class.
        if type(error).__name__.startswith("NVMLError"):
            raise Silent(NO_DRIVER.format(error)) from error
        raise
    return pynvml


@contextlib.contextmanager
def open_nvml() -> Iterator[Any]:
    """Yield the initialized library; None if it is missing or finds no driver."""
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
    """Return an answer of the library; None if it has none.

    The GPU may not report it, or the library or the driver is older than the question.

    Args:
        question: a function, or the name of one in the library.
    """
    # Newer versions of the library have an error of their own for a driver that is older than the question.
    mismatch = getattr(nvml, "NVMLLibraryMismatchError", AttributeError)
    try:
        function = getattr(nvml, question) if isinstance(question, str) else question
        answer = function(*arguments)
    except (nvml.NVMLError, AttributeError, mismatch):
        return None
    return answer.decode() if isinstance(answer, bytes) else answer


def handle_of(nvml: Any, uuid: str | None) -> Any:
    """Return the library's handle of the GPU with a UUID.

    An index would be wrong, since CUDA_VISIBLE_DEVICES changes torch's indices and not NVML's. Torch states the UUID
    without a prefix; in MIG mode it is that of the instance.
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
    """Return the causes that slow the device down now, and the power cap."""
    try:
        bits = nvml.nvmlDeviceGetCurrentClocksEventReasons(handle)
    except (nvml.NVMLError, AttributeError):
        # The older name of the same question.
        bits = nvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle)
    return frozenset(cause for bit, cause in _REASONS.items() if bits & bit)


def used_bytes(nvml: Any, handle: Any) -> int:
    """Return the bytes that processes hold of a GPU's memory.

    The first version of NVML's record also counts what the driver keeps for itself, some 900 MB on an idle A100. The
    second version, used here, states it separately (nvml.h: nvmlMemory_v2_t).
    """
    return int(nvml.nvmlDeviceGetMemoryInfo(handle, nvml.nvmlMemory_v2).used)


def in_use(uuid: str | None) -> int | None:
    """Return the bytes that processes hold of a GPU now.

    None if they are unknown.
    """
    with open_nvml() as nvml:
        process_bytes = (
            None if nvml is None else ask(nvml, lambda: used_bytes(nvml, handle_of(nvml, uuid)))
        )
    return None if process_bytes is None else int(process_bytes)


class Nvml:
    """One GPU behind NVML, which stays open until the process ends.

    `before_bytes` of memory were in use before this process had a context on the GPU; None if that is unknown. `silent`
    is why the library cannot be asked about this GPU; empty if it can. A single question may still have no answer.
    """

    def __init__(self, uuid: str | None, before_bytes: int | None = None) -> None:
        """Open the library for the GPU with a UUID. `silent` is why it answers nothing; empty if it answers.

        `before_bytes` is the memory in use before this process had a context; None if it is unknown.
        """
        self._nvml: Any = None
        self._handle: Any = None
        self._before_bytes = before_bytes
        # Only samples from now on count, since the library also has older ones of other processes.
        self._last_sample_us = time.time_ns() // 1000
        try:
            self._nvml = start_nvml()
            self._handle = ask(self._nvml, handle_of, self._nvml, uuid)
            self.silent = UNKNOWN_DEVICE if self._handle is None else ""
        except Silent as silent:
            self.silent = str(silent)

    def counters(self, own_bytes: int) -> Counters:
        """Return the present state. `own_bytes` are allocated by torch in this process."""
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
        """Return the answer of a function of library and handle; None without one."""
        return ask(self._nvml, question, self._nvml, self._handle)

    def _holders(self) -> dict[int, int]:
        """Return the bytes that each process holds, by its number.

        They are known as far as the driver states them.
        """
        processes = (
            self._ask(lambda nvml, handle: nvml.nvmlDeviceGetComputeRunningProcesses(handle)) or ()
        )
        return {
            int(process.pid): int(process.usedGpuMemory)
            for process in processes
            if process.usedGpuMemory is not None
        }

    def _violation_seconds(self) -> dict[str, float]:
        """Return the sum of each cause's counters, in seconds.

        Two counters may count the same time. That does not matter, since only the growth of a sum is looked at.
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
        """Return the share of time that others kept the GPU busy.

        It counts since the last call. None if it is unknown: in a container this process is not on the driver's list.
        """
        samples = ask(
            self._nvml, "nvmlDeviceGetProcessUtilization", self._handle, self._last_sample_us
        )
        if not samples:
            return None
        self._last_sample_us = max(int(sample.timeStamp) for sample in samples)
        own_process = os.getpid()
        if all(sample.pid != own_process for sample in samples):
            return None
        return sum(int(sample.smUtil) for sample in samples if sample.pid != own_process) / 100


def _answers(nvml: Any, questions: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """Return the answers to questions, by name. A question without an answer is left out."""
    answers = {name: ask(nvml, question) for name, question in questions.items()}
    return {name: answer for name, answer in answers.items() if answer is not None}


def _as_running(nvml: Any, handle: Any) -> dict[str, Callable[[], Any]]:
    """Return the questions about a GPU's present state that `facts` and `_gpu` share."""
    return {
        "driver": nvml.nvmlSystemGetDriverVersion,
        "power_limit_w": lambda: nvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
        "pcie_width": lambda: nvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
        # The first number is the present mode, the second the mode after the next reset.
        "partition": lambda: "mig" if nvml.nvmlDeviceGetMigMode(handle)[0] else None,
    }


def facts(uuid: str | None) -> dict[str, Any]:
    """Return the present facts of a GPU, as arguments of `DeviceFacts`.

    A fact that NVML does not state is left out.
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


def _links_up(nvml: Any, handle: Any) -> int | None:
    """Return how many NVLinks of a GPU are up; None if NVML states none."""
    states = [ask(nvml, "nvmlDeviceGetNvLinkState", handle, link) for link in range(MOST_LINKS)]
    known_links = [bool(state) for state in states if state is not None]
    return sum(known_links) if known_links else None


def _gpu(nvml: Any, handle: Any, index: int) -> Gpu:
    """Return the present facts of a GPU; those that NVML does not state are unknown."""
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
            # The generation that card and slot agree on. The current one is lower while nothing is copied.
            "pcie_generation": lambda: nvml.nvmlDeviceGetMaxPcieLinkGeneration(handle),
            "ecc": lambda: bool(nvml.nvmlDeviceGetEccMode(handle)[0]),
            "persistence": lambda: bool(nvml.nvmlDeviceGetPersistenceMode(handle)),
            "compute_mode": lambda: _COMPUTE_MODES.get(nvml.nvmlDeviceGetComputeMode(handle)),
            "ecc_errors": lambda: int(
                nvml.nvmlDeviceGetTotalEccErrors(handle, _UNCORRECTED, _VOLATILE)
            ),
            # GPUs before Ampere retire pages; later ones remap rows, which is asked below.
            "remap_pending": lambda: bool(nvml.nvmlDeviceGetRetiredPagesPendingStatus(handle)),
            "active": lambda: tuple(sorted(causes(nvml, handle))),
        },
    )
    remapped_rows = ask(nvml, "nvmlDeviceGetRemappedRows", handle)
    if remapped_rows is not None:
        _, _, is_pending, has_failed = remapped_rows
        answers |= {"remap_pending": bool(is_pending), "remap_failed": bool(has_failed)}
    # The engine can use the active causes or the counters of violations.
    throttle_known = (
        "active" in answers or ask(nvml, "nvmlDeviceGetViolationStatus", handle, 1) is not None
    )
    return Gpu(
        index,
        links=_links_up(nvml, handle),
        throttle_known=throttle_known,
        **{"product": "unknown"} | answers,
    )


def busy_others(uuid: str | None) -> dict[str, float]:
    """Return the share of recent time that every other GPU worked, by its name.

    Empty if no GPU has this UUID, such as that of a MIG instance: then it is not known which GPUs are the others.
    """
    busy_by_name: dict[str, float] = {}
    with open_nvml() as nvml:
        for index in range(0 if nvml is None else ask(nvml, "nvmlDeviceGetCount") or 0):
            uuid_and_share = ask(nvml, functools.partial(_busy, nvml, index))
            if uuid_and_share is not None:
                gpu_uuid, share = uuid_and_share
                busy_by_name[f"GPU {index} ({gpu_uuid})"] = share
    own_name = next(
        (name for name in busy_by_name if uuid and uuid.removeprefix("GPU-") in name), None
    )
    if own_name is None:
        return {}
    return {name: busy for name, busy in busy_by_name.items() if name != own_name}


def _busy(nvml: Any, index: int) -> tuple[str, float]:
    """Return a GPU's UUID and how busy it is.

    That is the share of recent time that it ran kernels.
    """
    handle = nvml.nvmlDeviceGetHandleByIndex(index)
    uuid = nvml.nvmlDeviceGetUUID(handle)
    uuid_text = uuid.decode() if isinstance(uuid, bytes) else str(uuid)
    return uuid_text, nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100
