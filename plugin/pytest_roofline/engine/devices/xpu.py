"""Intel GPUs through torch.xpu. Event times need oneAPI 2025."""

from typing import Any

import torch

from ...core.errors import DeviceError
from ...core.facts import DeviceFacts
from .base import EventDevice, Stamp, Traits, last_level_cache

# Rows of a spin's matrices. A product takes longer than submitting it, but is short enough to make fine steps of time.
SPIN_SIZE = 1024
CYCLES_PER_LINK = 100_000


class XpuDevice(EventDevice):
    """One Intel GPU."""

    library = torch.xpu

    def __init__(self, index: int) -> None:
        """Open the Intel GPU with an index."""
        super().__init__(index)
        # torch has no kernel here that counts cycles, so a chain of small matrix products keeps the device busy. If it
        # idled, the times of its events would be wrong (intel/llvm 6514).
        self.traits = Traits(tick_s=1e-6, shortest_span_s=200e-6, spins=True, spin_is_clock=False)
        # The matrices of that chain: a factor and a result. They are made by the first spin.
        self._links: tuple[torch.Tensor, torch.Tensor] | None = None
        torch.xpu.set_device(index)

    def spin(self, cycles: int) -> None:
        """Submit small matrix products, one for every `CYCLES_PER_LINK` cycles."""
        if self._links is None:
            left = torch.full((SPIN_SIZE, SPIN_SIZE), 1.0 / SPIN_SIZE, device=self.name)
            self._links = left, torch.empty_like(left)
        left, out = self._links
        for _ in range(max(1, cycles // CYCLES_PER_LINK)):
            torch.mm(left, left, out=out)

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        """Return the seconds between two stamps. Raise DeviceError if this torch cannot tell them."""
        try:
            return super().elapsed_s(start, end)
        except NotImplementedError:
            raise DeviceError(
                f"{self.name} cannot time its events with torch {torch.__version__}; expected a "
                "torch built with oneAPI 2025 or newer, or --roofline-device=cpu"
            ) from None

    def free_bytes(self) -> int:
        """Return the device's memory less what torch has allocated in this process."""
        total = int(torch.xpu.get_device_properties(self.index).total_memory)
        return total - torch.xpu.memory_allocated(self.index)

    def facts(self) -> DeviceFacts:
        """Return the facts from torch's properties; a fact that this torch lacks is unknown."""
        properties: Any = torch.xpu.get_device_properties(self.index)
        return DeviceFacts(
            type="xpu",
            product=properties.name,
            index=self.index,
            memory_bytes=properties.total_memory,
            units=getattr(properties, "gpu_eu_count", None),
            last_level_cache_bytes=last_level_cache(
                int(getattr(properties, "last_level_cache_size", 0) or 0), ""
            ),
            driver=getattr(properties, "driver_version", None),
        )


def open_xpu(index: int, option: str = "--roofline-device") -> XpuDevice:
    """Return the Intel GPU with an index. Raise DeviceError if there is none."""
    count = torch.xpu.device_count() if torch.xpu.is_available() else 0
    if index >= count:
        raise DeviceError(f"{option} asks for xpu:{index}, found {count} xpu devices")
    return XpuDevice(index)
