"""Apple's GPU through Metal, timed by the host's clock.

Its events are not used: reading them may hang or fail, or give the time of a callback.
"""

import time

import torch

from ...core.errors import DeviceError
from ...core.facts import DeviceFacts
from .. import host
from .base import AllocatedBytes, RealDevice, Stamp, Traits


class MpsDevice(RealDevice):
    """The device torch.mps. Its spans are long, so that a launch and a wait hardly matter."""

    def __init__(self) -> None:
        self.name = "mps"
        self.traits = Traits(tick_s=1e-6, shortest_span_s=5e-3, stamps=False)

    def stamp(self) -> Stamp:
        """Wait for the device, and return the host's clock."""
        torch.mps.synchronize()
        return time.perf_counter()

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        return float(end - start)

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def free_bytes(self) -> int:
        """Return Metal's recommended working set, less what is allocated."""
        return max(0, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())

    def allocated(self) -> AllocatedBytes:
        """Return what is allocated now. Torch's allocator keeps no record of the most."""
        return AllocatedBytes(torch.mps.current_allocated_memory())

    def release(self) -> None:
        torch.mps.empty_cache()

    def facts(self) -> DeviceFacts:
        """Return the facts of the chip, whose memory is that of the host."""
        facts = host.host_facts()
        return DeviceFacts(
            type="mps",
            product=facts.cpu_model,
            memory_bytes=facts.memory_bytes,
            last_level_cache_bytes=host.last_level_cache_bytes(),
            driver=facts.kernel,
        )


def open_mps(option: str = "--roofline-device") -> MpsDevice:
    """Return Apple's GPU. Raise DeviceError if torch cannot use one."""
    if not torch.backends.mps.is_available():
        built = "" if torch.backends.mps.is_built() else "; this torch is built without mps"
        raise DeviceError(f"{option} asks for mps, found none{built}")
    return MpsDevice()
