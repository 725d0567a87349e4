"""What the probe asks beside the timing engine's `Device`: known work, a management library, memory of the host."""

import functools
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_roofline.engine.ceiling import Workloads
from pytest_roofline.engine.devices import Device

MIB = 2**20


class Lacking(Exception):
    """What this machine lacks, so that a question makes no sense on it."""


@dataclass(frozen=True, slots=True)
class Accounts:
    """Memory in use on a device, in bytes.

    Args:
        first: by NVML's first account.
        second: by its second, without what the driver keeps back.
        own: of these, allocated by this process.
        before: by the second account, when this process had no context; None where nobody looked.
    """

    first: int
    second: int
    own: int
    before: int | None


class Lab(Workloads, Protocol):
    """What a probe may ask; whatever a machine lacks raises `Lacking`."""

    device: Device

    def node(self, kind: str, size_bytes: int) -> Callable[[], object]:
        """A short call of a graph: a `copy` of so many bytes, or a `kernel` that goes through as many."""

    def forbidden(self) -> None:
        """What no capture may contain."""

    def random(self) -> None:
        """Draw random numbers on the device."""

    def stream(self) -> object:
        """The stream that work goes to now; the same one is equal to itself."""

    def accounts(self) -> Accounts:
        """The memory in use."""

    def questions(self) -> dict[str, Callable[[], object]]:
        """What the management library is asked, by name; `round` is all of it, as before and after a block."""

    def checks(
        self, pairs: int, size_bytes: int
    ) -> tuple[Callable[[], object], Callable[[], object]]:
        """Verifying one pair of copied buffers, and so many at once."""

    def pin(self, size_bytes: int) -> tuple[int, int]:
        """Host memory taken for so many page-locked bytes, and what is left of it when they are given back."""


class FakeLab:
    """The faithful fake's: everything takes scripted time on its clocks."""

    def __init__(self, device: Any, facts: dict[str, Any]) -> None:
        self.device = device
        self._facts = facts
        self._buffers = 0

    def _work(self, seconds: float, size_bytes: int, written_bytes: int) -> Callable[[], object]:
        """Goes through a buffer of its own, three times as fast from the cache."""
        self._buffers += 1
        buffer = self._buffers
        return lambda: self.device.work(
            seconds, buffer, size_bytes, cached=0.3, written_bytes=written_bytes
        )

    def _seconds(self, size_bytes: int) -> float:
        return float(size_bytes / self._facts["memory_bytes_per_s"])

    def copy(self, size_bytes: int) -> Callable[[], object]:
        """Reads one buffer and writes another."""
        return self._work(self._seconds(2 * size_bytes), 2 * size_bytes, size_bytes)

    def read(self, size_bytes: int) -> Callable[[], object]:
        """Reads one buffer."""
        return self._work(self._seconds(size_bytes), size_bytes, 0)

    def matmul(self) -> Callable[[], object]:
        """Draws more than the power cap allows."""
        return lambda: self.device.work(self._facts["product_s"], watts=self._facts["product_w"])

    def node(self, kind: str, size_bytes: int) -> Callable[[], object]:
        """The same time for either kind, from memory."""
        seconds = max(self._facts["shortest_s"], self._seconds(2 * size_bytes))
        return lambda: self.device.work(seconds)

    def forbidden(self) -> None:
        """Raises as CUDA does."""
        raise RuntimeError("CUDA error: operation not permitted when stream is capturing")

    def random(self) -> None:
        """Draw none: the fake computes nothing."""

    def stream(self) -> object:
        """There is one."""
        return 0

    def accounts(self) -> Accounts:
        """As scripted."""
        first, second = self.device.memory_accounts()
        return Accounts(
            first, second, self.device.allocated().now_bytes, self.device.counters().others_bytes
        )

    def questions(self) -> dict[str, Callable[[], object]]:
        """Its round of questions."""
        return {"round": self.device.counters}

    def checks(
        self, pairs: int, size_bytes: int
    ) -> tuple[Callable[[], object], Callable[[], object]]:
        """Scripted seconds of the host, a slab's by how much of 64 MiB it is."""
        share = 2 * pairs * size_bytes / (64 * MIB)
        spend = self.device.pass_time
        return lambda: spend(self._facts["pair_check_s"]), lambda: spend(
            share * self._facts["slab_check_s"]
        )

    def pin(self, size_bytes: int) -> tuple[int, int]:
        """The next power of two, times what is planted."""
        taken = (1 << (size_bytes - 1).bit_length()) * self._facts["pinned_share"]
        return int(taken), int(self._facts["pinned_left"])


class TorchLab:
    """That of a real device. What only CUDA and ROCm have is lacking elsewhere."""

    def __init__(self, device: Device) -> None:
        import torch

        from pytest_roofline.engine.ceiling import TorchWorkloads

        self.device = device
        self.where = torch.device(device.name)
        self._known = TorchWorkloads(device)

    def copy(self, size_bytes: int) -> Callable[[], object]:
        """As the self test's."""
        return self._known.copy(size_bytes)

    def read(self, size_bytes: int) -> Callable[[], object]:
        """As the self test's."""
        return self._known.read(size_bytes)

    def matmul(self) -> Callable[[], object] | None:
        """As the self test's."""
        return self._known.matmul()

    def node(self, kind: str, size_bytes: int) -> Callable[[], object]:
        """A copy by the engine that torch chooses, or an elementwise kernel."""
        import torch

        source = torch.zeros(size_bytes, dtype=torch.uint8, device=self.where)
        target = torch.empty_like(source)
        if kind == "copy":
            return lambda: target.copy_(source)
        return lambda: torch.bitwise_not(source, out=target)

    def forbidden(self) -> None:
        """Waiting for the whole device."""
        self.device.synchronize()

    def random(self) -> None:
        """Draw by torch's default generator of the device."""
        import torch

        torch.rand(4, device=self.where)

    def stream(self) -> object:
        """torch's current stream."""
        import torch

        self.only_gpus("streams and graphs")
        return torch.cuda.current_stream(self.where)

    def only_gpus(self, what: str) -> None:
        """Raise `Lacking` where this is no GPU of CUDA's or ROCm's."""
        if self.where.type != "cuda":
            raise Lacking(f"{what} of CUDA or ROCm; this is {self.device.name}")

    def _nvml(self) -> tuple[Any, Any]:
        """NVIDIA's library and its handle of this very device."""
        import torch

        from pytest_roofline.engine.devices import nvidia

        self.only_gpus("a management library")
        if torch.version.hip is not None:
            raise Lacking("NVML; this is an AMD device")
        try:
            nvml = nvidia.start_nvml()
        except nvidia.Silent as silent:
            raise Lacking(f"NVML: {silent}") from None
        properties: Any = torch.cuda.get_device_properties(self.where)
        return nvml, nvidia.handle_of(nvml, str(properties.uuid))

    def accounts(self) -> Accounts:
        """NVML's two, beside torch's own."""
        import torch

        nvml, handle = self._nvml()
        first = nvml.nvmlDeviceGetMemoryInfo(handle).used
        second = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2).used
        own = torch.cuda.memory_reserved(self.where)
        return Accounts(int(first), int(second), own, getattr(self.device, "_before_bytes", None))

    def questions(self) -> dict[str, Callable[[], object]]:
        """Each that the plugin asks NVML; of other libraries only the round."""
        self.only_gpus("a management library")
        asked: dict[str, Callable[[], object]] = {"round": self.device.counters}
        try:
            nvml, handle = self._nvml()
        except Lacking:
            return asked
        from pytest_roofline.engine.devices import nvidia

        own: dict[str, Callable[[], object]] = {
            "memory": functools.partial(nvidia.used_bytes, nvml, handle),
            "causes": functools.partial(nvidia.causes, nvml, handle),
            "violation": functools.partial(nvml.nvmlDeviceGetViolationStatus, handle, 0),
            "processes": lambda: nvml.nvmlDeviceGetComputeRunningProcesses(handle),
            "use": lambda: nvml.nvmlDeviceGetProcessUtilization(
                handle, time.time_ns() // 1000 - 10**6
            ),
        }
        return asked | own

    def checks(
        self, pairs: int, size_bytes: int
    ) -> tuple[Callable[[], object], Callable[[], object]]:
        """By the shipped copies' own verification, in memory of the device."""
        from roofline_kernels import memcpy

        if self.where.type == "cpu":
            raise Lacking("an accelerator, for which comparing waits; this is cpu")
        buffers = memcpy.CopyBuffers(size_bytes, self.where, self.where)
        sets: Sequence[Any] = [buffers.pair() for _ in range(pairs)]
        for source, target in sets:
            target.copy_(source)
        self.device.synchronize()
        return lambda: memcpy.same(*sets[0]), lambda: memcpy.same.first_wrong(sets)

    def pin(self, size_bytes: int) -> tuple[int, int]:
        """By what torch's allocator has taken; pages of the driver are in no count of resident ones."""
        import torch

        from pytest_roofline.engine.host import free_memory_bytes

        self.only_gpus("page-locked memory")
        room = free_memory_bytes()
        if room < 3 * size_bytes:
            raise Lacking(f"{3 * size_bytes} bytes of free host memory; there are {room}")
        before = _page_locked_bytes()
        held = torch.empty(size_bytes, dtype=torch.uint8, pin_memory=True)
        taken = _page_locked_bytes() - before
        del held
        self.device.release()
        return taken, max(0, _page_locked_bytes() - before)


def _page_locked_bytes() -> int:
    """What torch has taken of the host's memory, in use and kept."""
    import torch

    told = getattr(torch.cuda, "host_memory_stats", dict)()
    if "allocated_bytes.current" not in told:
        raise Lacking(
            f"a torch that tells of page-locked memory; torch {torch.__version__} does not"
        )
    return int(told["allocated_bytes.current"])
