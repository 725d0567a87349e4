"""Apple's GPU through Metal. Its events have traps, so spans are long and the wait is a synchronize of the device."""

import torch

from ...core.errors import DeviceError
from ...core.facts import DeviceFacts
from .. import host
from .base import Allocated, RealDevice, Stamp, Traits


class MpsDevice(RealDevice):
    """torch.mps: one stream; `Event.synchronize` followed by `elapsed_time` can hang, so it is never called."""

    def __init__(self) -> None:
        self.name = "mps"
        # Older events take the host's time in a listener's callback, so only long spans mean something; reading them
        # can hang or fail, so a watchdog stands by and the host's clock takes over.
        self.traits = Traits(tick_s=1e-6, shortest_span_s=5e-3, watchdog_s=10.0)

    def stamp(self) -> Stamp:
        """An event behind the submitted work; recording it commits the command buffer."""
        event = torch.mps.Event(enable_timing=True)
        event.record()
        return event

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        """Seconds between two events, after the whole device is done."""
        torch.mps.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def synchronize(self) -> None:
        torch.mps.synchronize()

    def free_bytes(self) -> int:
        """What Metal recommends as the working set, less what is allocated."""
        return max(0, torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory())

    def allocated(self) -> Allocated:
        """By torch's allocator, which keeps no record of the most."""
        return Allocated(torch.mps.current_allocated_memory())

    def release(self) -> None:
        torch.mps.empty_cache()

    def facts(self) -> DeviceFacts:
        """The chip's name; memory is shared with the host."""
        facts = host.host_facts()
        return DeviceFacts(
            type="mps",
            product=facts.cpu_model,
            memory_bytes=facts.memory_bytes,
            last_level_cache_bytes=host.last_level_cache_bytes(),
            driver=facts.kernel,
        )


def open_mps(option: str = "--roofline-device") -> MpsDevice:
    """Apple's GPU.

    Raises:
        DeviceError: this machine or this torch has none.
    """
    if not torch.backends.mps.is_available():
        built = "" if torch.backends.mps.is_built() else "; this torch is built without it"
        raise DeviceError(f"{option} asks for mps, found none{built}")
    return MpsDevice()
