"""CUDA and ROCm devices: events on the current stream time the device, not the launch."""

import contextlib
import functools
import warnings
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch

from ...core.errors import DeviceError
from ...core.facts import DeviceFacts, Gpu
from . import amd, builds, nvidia
from .base import Counters, EventDevice, Traits, last_level_cache

# Events resolve about 0.5 µs under CUDA and 1 µs under HIP (the vendors' manuals).
CUDA = Traits(tick_s=0.5e-6, shortest_span_s=100e-6, spins=True, graphs=True)
# An event under HIP carries a system-scope fence that perturbs short kernels, so a pair brackets a batch of 1 ms.
HIP = Traits(tick_s=1e-6, shortest_span_s=1e-3, spins=True, graphs=True)
# Architectures whose spin counts a constant clock, not that of the compute units.
CONSTANT_SPIN = ("gfx11", "gfx12")


class CudaDevice(EventDevice):
    """One GPU behind torch.cuda, which is NVIDIA's CUDA or AMD's HIP."""

    library = torch.cuda

    def __init__(self, index: int) -> None:
        """Open the GPU with an index among the visible ones, of CUDA or ROCm."""
        super().__init__(index)
        self.is_hip = torch.version.hip is not None
        self.traits = CUDA
        if self.is_hip:
            architecture = str(getattr(torch.cuda.get_device_properties(index), "gcnArchName", ""))
            self.traits = replace(HIP, spin_is_clock=not architecture.startswith(CONSTANT_SPIN))
        self._before_bytes = self._in_use()
        torch.cuda.set_device(index)

    def _in_use(self) -> int | None:
        """Return the bytes that other processes hold; None if they are unknown.

        It must be called before the device is made current. That gives this process a context, which takes memory too.
        """
        # Once CUDA is initialized, this process may hold memory of the GPU itself.
        if not self.is_hip and not torch.cuda.is_initialized():
            # The device opens without the library, if that fails in any way.
            with contextlib.suppress(Exception):
                return nvidia.in_use(_uuid(torch.cuda.get_device_properties(self.index)))
        return None

    def spin(self, cycles: int) -> None:
        """Submit a kernel with a single thread, which counts so many cycles."""
        torch.cuda._sleep(cycles)

    def capture(self, submit: Callable[[], None]) -> Callable[[], None]:
        """Return a replay of a CUDA graph of the work that `submit` submits.

        If the capture fails, stream and allocator stay as they were.
        """
        graph, pool = torch.cuda.CUDAGraph(), torch.cuda.graph_pool_handle()
        torch.cuda.synchronize(self.index)
        before = torch.cuda.current_stream(self.index)
        try:
            with warnings.catch_warnings():
                # A function that submits nothing may be the package's own, which shows the cost of a replay.
                warnings.filterwarnings("ignore", "The CUDA Graph is empty")
                with torch.cuda.graph(graph, pool=pool):
                    submit()
        except BaseException:
            self._end_allocating(pool)
            raise
        finally:
            # torch leaves the capture's stream current where ending the capture fails.
            torch.cuda.set_stream(before)
        return graph.replay

    def _end_allocating(self, pool: tuple[int, int]) -> None:
        """End the allocator's part of a failed capture.

        Up to version 2.11 torch does not do it, and the allocator would then refuse to release memory.
        """
        # The error says that torch has already done it.
        with contextlib.suppress(RuntimeError):
            torch._C._cuda_endAllocateToPool(self.index, pool)

    def counters(self) -> Counters:
        """Return throttle counters and neighbours, from the vendor's management library."""
        return self._library.counters(torch.cuda.memory_reserved(self.index))

    @functools.cached_property
    def _library(self) -> "nvidia.Nvml | amd.Amdsmi":
        """The vendor's management library for this GPU, opened at first use."""
        properties: Any = torch.cuda.get_device_properties(self.index)
        if self.is_hip:
            return amd.gpu_at(amd.pci_address(properties))
        return nvidia.Nvml(_uuid(properties), self._before_bytes)

    def silent_library(self) -> str:
        """Return why the vendor's management library is silent; empty if it answers."""
        return self._library.silent

    def siblings(self) -> tuple[str, ...]:
        return tuple(f"cuda:{index}" for index in range(torch.cuda.device_count()))

    def current(self) -> contextlib.AbstractContextManager[object]:
        return torch.cuda.device(self.index)

    def busy_siblings(self) -> dict[str, float]:
        """Return the share of recent time that every other GPU worked, also of hidden ones.

        Empty if the library fails.
        """
        with contextlib.suppress(Exception):
            properties: Any = torch.cuda.get_device_properties(self.index)
            return (
                amd.busy_others(amd.pci_address(properties))
                if self.is_hip
                else nvidia.busy_others(_uuid(properties))
            )
        return {}

    def free_bytes(self) -> int:
        """Return the bytes that are free in the driver, plus those in torch's cache."""
        free, _ = torch.cuda.mem_get_info(self.index)
        return (
            free + torch.cuda.memory_reserved(self.index) - torch.cuda.memory_allocated(self.index)
        )

    def release(self) -> None:
        """Return cached memory to the driver, and page-locked memory to the host."""
        super().release()
        # torch caches page-locked memory in sizes of powers of two. An older torch has no function to release it.
        getattr(torch._C, "_host_emptyCache", lambda: None)()

    def facts(self) -> DeviceFacts:
        """Return the facts from torch's properties and from the vendor's management library."""
        properties: Any = torch.cuda.get_device_properties(self.index)
        architecture = (
            getattr(properties, "gcnArchName", None)
            if self.is_hip
            else f"sm_{properties.major}{properties.minor}"
        )
        facts: dict[str, Any] = {
            "type": "cuda",
            "product": properties.name,
            "index": self.index,
            "uuid": _uuid(properties),
            "memory_bytes": properties.total_memory,
            "architecture": architecture,
            "units": properties.multi_processor_count,
            "last_level_cache_bytes": last_level_cache(
                int(getattr(properties, "L2_cache_size", 0) or 0), str(architecture or "")
            ),
        }
        if not self.is_hip:
            return DeviceFacts(**facts | nvidia.facts(facts["uuid"]))
        assert isinstance(self._library, amd.Amdsmi)
        driver = amd.driver_version()
        return DeviceFacts(**facts | self._library.facts() | ({"driver": driver} if driver else {}))

    def gpu(self) -> Gpu | None:
        """Return the management library's present facts; None if it is silent."""
        # A run must not end for any failure of the library.
        with contextlib.suppress(Exception):
            properties: Any = torch.cuda.get_device_properties(self.index)
            library = self._library if self.is_hip else None
            facts = (
                library.gpu() if isinstance(library, amd.Amdsmi) else nvidia.gpu(_uuid(properties))
            )
            # This process uses memory of the GPU too, so the memory in use is not that of others.
            return None if facts is None else replace(facts, others_bytes=None)
        return None


def _uuid(properties: Any) -> str | None:
    """Return the UUID in torch's properties of a GPU; None if they have none."""
    return str(getattr(properties, "uuid", "")) or None


def open_cuda(index: int, option: str = "--roofline-device") -> CudaDevice:
    """Return the GPU with this index among the visible ones.

    Raises:
        DeviceError: there is none, or this build of torch has no code for it.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if index >= count:
        devices_text = "no CUDA or ROCm device"
        if count > 0:
            noun = "device" if count == 1 else "devices"
            devices_text = f"{count} {noun}, cuda:0 to cuda:{count - 1}"
        build_text = (
            "" if torch.version.cuda or torch.version.hip else "; this torch supports the CPU only"
        )
        raise DeviceError(f"{option} asks for cuda:{index}, found {devices_text}{build_text}")
    device = CudaDevice(index)
    # The list is empty under ROCm, and in a build of torch that does not know its targets.
    entries = [] if torch.version.hip else torch.cuda.get_arch_list()
    if entries:
        _require_code(index, entries, option)
    return device


def _require_code(index: int, entries: list[str], option: str) -> None:
    """Raise DeviceError if none of a build's code runs on a GPU.

    The message says what to type.
    """
    properties: Any = torch.cuda.get_device_properties(index)
    capability = properties.major, properties.minor
    if not any(builds.runs(entry, capability) for entry in entries):
        lack = builds.lack_of_code(capability, entries, str(torch.__version__))
        raise DeviceError(f"{option} asks for cuda:{index}, a {properties.name}. {lack}")
