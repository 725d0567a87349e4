"""Several devices of one process as one device, for work between them. The slowest sets the time.

The clocks of devices cannot be compared. So a stamp is one stamp on each device, and the time between two stamps is the
longest that any device saw. That is right only if all devices begin together. A spin drives them apart, since its
duration depends on each device's clock. So the devices wait for each other once, after the stamp that ends the spin and
before the stamp that begins the work. No wait is inside a sample, nor inside a spin that probes the clock.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol, TypeVar, runtime_checkable

import torch

from ...core.errors import BadInput
from ...core.facts import DeviceFacts
from .base import Counters, Device, RealDevice, Stamp
from .cuda import CudaDevice, open_cuda

Number = TypeVar("Number", int, float)


@runtime_checkable
class Peer(Protocol):
    """A device that can wait for another device's stamp without the host."""

    def wait_for(self, stamp: Stamp) -> None:
        """Let all further work wait until another device has reached its stamp."""


class SeveralDevices(RealDevice):
    """Two or more devices of one kind as one device. It has the facts of the first."""

    def __init__(self, devices: Sequence[Device]) -> None:
        """Join devices of one kind, to be timed as one. Raise BadInput for fewer than two."""
        if len(devices) < 2:
            raise BadInput(f"{len(devices)} devices cannot form a group; expected two or more")
        kinds = {device.traits for device in devices}
        if len(kinds) > 1:
            names = ", ".join(device.name for device in devices)
            raise BadInput(f"{names} are devices of different kinds; expected devices of one kind")
        self.devices = tuple(devices)
        self.name = "+".join(device.name for device in devices)
        # A graph belongs to one device.
        self.traits = replace(devices[0].traits, graphs=False)
        # Whether a spin was submitted last, and whether the stamp that ends a spin was.
        self._spun = self._spin_ended = False

    def stamp(self) -> Stamp:
        """Return a stamp on each device. After a spin has ended, the devices first wait for each other."""
        if self._spin_ended:
            self._meet()
        # The first stamp after a spin is the one that ends it.
        self._spun, self._spin_ended = False, self._spun
        return tuple(device.stamp() for device in self.devices)

    def _meet(self) -> None:
        """Let the queues of all devices wait for each other.

        The first waits for all, then all wait for the first. Nothing happens if they cannot wait without the host.
        """
        first, *followers = self.devices
        if not isinstance(first, Peer):
            return
        for device in followers:
            first.wait_for(device.stamp())
        meeting_stamp = first.stamp()
        for device in followers:
            assert isinstance(device, Peer)
            device.wait_for(meeting_stamp)

    def reached(self, stamp: Stamp) -> bool:
        """Return whether any device has reached its stamp.

        The host is then not ahead of all.
        """
        return any(
            device.reached(device_stamp)
            for device, device_stamp in zip(self.devices, stamp, strict=True)
        )

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        """Return the longest seconds of any device between its own stamps."""
        pairs = zip(self.devices, start, end, strict=True)
        spans = [device.elapsed_s(began, ended) for device, began, ended in pairs]
        # A negative span shows that a device's stamps are wrong. It must be returned, and not hidden by a longer one.
        return min(spans) if min(spans) < 0 else max(spans)

    def synchronize(self) -> None:
        for device in self.devices:
            device.synchronize()
        self._spun = self._spin_ended = False

    def spin(self, cycles: int) -> None:
        for device in self.devices:
            device.spin(cycles)
        self._spun, self._spin_ended = True, False

    def flusher(self, size_bytes: int) -> Callable[[], None]:
        """Return a function that evicts the cache of every device."""
        flushers = [device.flusher(size_bytes) for device in self.devices]

        def flush() -> None:
            for flush_device in flushers:
                flush_device()

        return flush

    def counters(self) -> Counters:
        """Return the worst state of all devices.

        A fact that one device does not report is unknown. A cause that is active on one device counts all the same.
        """
        states = [device.counters() for device in self.devices]
        causes = frozenset[str]().union(
            *(state.active for state in states if state.active is not None)
        )
        all_known = all(state.active is not None for state in states)
        return Counters(
            active=causes if causes or all_known else None,
            seconds={
                cause: sum(state.seconds.get(cause, 0.0) for state in states)
                for state in states
                for cause in state.seconds
            },
            others_bytes=_most([state.others_bytes for state in states]),
            others_busy=_most([state.others_busy for state in states]),
            preemptions=_most([state.preemptions for state in states]),
            others_core_s=next((state.others_core_s for state in states if state.others_core_s is not None), None),
        )  # fmt: skip

    def host_s(self) -> float:
        return self.devices[0].host_s()

    def free_bytes(self) -> int:
        """Return the bytes that an allocation can get on each of the devices."""
        return min(device.free_bytes() for device in self.devices)

    def release(self) -> None:
        for device in self.devices:
            device.release()

    def facts(self) -> DeviceFacts:
        """Return the facts of the first device."""
        return self.devices[0].facts()


def _most(numbers: Sequence[Number | None]) -> Number | None:
    """Return the largest number; None if one is unknown."""
    known_numbers = [number for number in numbers if number is not None]
    return max(known_numbers) if len(known_numbers) == len(numbers) else None


class CudaPeer(CudaDevice):
    """One of several GPUs. Unlike its base class, it does not become the current device."""

    def __init__(self, index: int) -> None:
        current = torch.cuda.current_device()
        super().__init__(index)
        torch.cuda.set_device(current)

    def stamp(self) -> Stamp:
        """Return an event on the current stream of this GPU."""
        with torch.cuda.device(self.index):
            return super().stamp()

    def spin(self, cycles: int) -> None:
        with torch.cuda.device(self.index):
            super().spin(cycles)

    def wait_for(self, stamp: Stamp) -> None:
        """Let the current stream of this GPU wait for another GPU's event."""
        torch.cuda.current_stream(self.index).wait_event(stamp)


def open_peer(name: str) -> CudaPeer:
    """Return the GPU `cuda:N`, to be timed together with others. Raise DeviceError without it."""
    current = torch.cuda.current_device() if torch.cuda.is_available() else 0
    # This raises the usual error if there is no such GPU. It also changes the current device, which is restored below.
    index = open_cuda(int(name.partition(":")[2] or 0), "devices").index
    torch.cuda.set_device(current)
    return CudaPeer(index)
