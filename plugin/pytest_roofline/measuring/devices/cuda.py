"""CUDA and ROCm devices: events on the current stream time the device, not the launch."""

import contextlib
from typing import Any

import torch

from ...core.errors import DeviceError
from ...core.facts import DeviceFacts
from .base import HostClock, Stamp


class CudaDevice(HostClock):
    """One GPU behind torch.cuda, which is NVIDIA's CUDA or AMD's HIP."""

    def __init__(self, index: int) -> None:
        self.name = f"cuda:{index}"
        self.index = index
        # The documented resolution of events: about 0.5 µs under CUDA, 1 µs under HIP.
        self.tick_s = 1e-6 if torch.version.hip else 0.5e-6
        self.shortest_span_s = 200 * self.tick_s
        torch.cuda.set_device(index)

    def stamp(self) -> Stamp:
        """An event behind the work on the current stream."""
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        """Seconds between two events, after waiting for the later one."""
        assert isinstance(start, torch.cuda.Event)
        assert isinstance(end, torch.cuda.Event)
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def synchronize(self) -> None:
        """Wait for every stream of the device."""
        torch.cuda.synchronize(self.index)

    def free_bytes(self) -> int:
        """Memory that the driver can still hand out, with what torch holds in its cache."""
        free, _ = torch.cuda.mem_get_info(self.index)
        return free + torch.cuda.memory_reserved(self.index) - torch.cuda.memory_allocated(self.index)

    def release(self) -> None:
        """Give torch's cached blocks back to the driver."""
        torch.cuda.empty_cache()

    def facts(self) -> DeviceFacts:
        """torch's properties, with what the vendor's management library adds where it is installed."""
        properties: Any = torch.cuda.get_device_properties(self.index)
        is_hip = torch.version.hip is not None
        facts: dict[str, Any] = {
            "type": "cuda",
            "product": properties.name,
            "index": self.index,
            "uuid": str(getattr(properties, "uuid", "")) or None,
            "memory_bytes": properties.total_memory,
            "architecture": getattr(properties, "gcnArchName", None) if is_hip else _capability(properties),
            "units": properties.multi_processor_count,
            "last_level_cache_bytes": last_level_cache_bytes(properties, is_hip),
        }
        extra = _amd_facts() if is_hip else _nvidia_facts(facts["uuid"])
        return DeviceFacts(**facts | extra)


def _capability(properties: Any) -> str:
    return f"sm_{properties.major}{properties.minor}"


def last_level_cache_bytes(properties: Any, is_hip: bool) -> int:
    """The last-level cache: torch's L2, but at least 256 MiB on AMD parts with an Infinity Cache.

    MI300 class devices report the 4 MiB L2 of one die, while 256 MiB stand between it and memory.
    """
    reported = int(getattr(properties, "L2_cache_size", 0) or 0)
    architecture = str(getattr(properties, "gcnArchName", "")).split(":")[0]
    floor = 256 * 2**20 if is_hip and architecture in ("gfx940", "gfx941", "gfx942", "gfx950") else 0
    return max(reported, floor) or 64 * 2**20


def _nvidia_facts(uuid: str | None) -> dict[str, Any]:
    """Driver, clocks, power limit, PCIe link as running, MIG mode; what NVML withholds stays out (unknown)."""
    try:
        import pynvml
    except ImportError:
        return {}
    facts: dict[str, Any] = {}
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return {}
    try:
        handle = _nvml_handle(pynvml, uuid)
        for name, ask in {
            "driver": pynvml.nvmlSystemGetDriverVersion,
            "firmware": lambda: pynvml.nvmlDeviceGetVbiosVersion(handle),
            "clock_mhz": lambda: float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM)),
            "memory_clock_mhz": lambda: float(pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM)),
            "power_limit_w": lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
            "pcie_generation": lambda: pynvml.nvmlDeviceGetCurrPcieLinkGeneration(handle),
            "pcie_width": lambda: pynvml.nvmlDeviceGetCurrPcieLinkWidth(handle),
            "partition": lambda: "mig" if pynvml.nvmlDeviceGetMigMode(handle)[0] else None,
        }.items():
            with contextlib.suppress(pynvml.NVMLError):
                value = ask()
                facts[name] = value.decode() if isinstance(value, bytes) else value
    except pynvml.NVMLError:
        return facts
    finally:
        pynvml.nvmlShutdown()
    return facts


def _nvml_handle(pynvml: Any, uuid: str | None) -> Any:
    """The device by UUID, never by index: CUDA_VISIBLE_DEVICES renumbers, NVML does not."""
    if uuid is None:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
    prefixed = uuid if uuid.startswith(("GPU-", "MIG-")) else f"GPU-{uuid}"
    return pynvml.nvmlDeviceGetHandleByUUID(prefixed)


def _amd_facts() -> dict[str, Any]:
    """The kernel driver's version, which needs no library."""
    from pathlib import Path

    with contextlib.suppress(OSError):
        return {"driver": Path("/sys/module/amdgpu/version").read_text(encoding="utf-8").strip()}
    return {}


def open_cuda(index: int) -> CudaDevice:
    """The GPU with this index among the visible ones.

    Raises:
        DeviceError: no such device.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        found = (
            "no CUDA or ROCm device" if count == 0 else f"{count} device{'s' * (count > 1)}, cuda:0 to cuda:{count - 1}"
        )
        built = "" if torch.version.cuda or torch.version.hip else "; this torch is built for the CPU only"
        raise DeviceError(f"--roofline-device asks for cuda:{index}, found {found}{built}")
    return CudaDevice(index)
