"""Several devices of one process as one, for what happens between them: the slowest of them sets the time.

Their clocks cannot be compared, so a stamp is one on each device, and the time between two stamps is the longest that
any of them saw. For that all must begin together. Behind a spin they do not, since it lasts as long as each one's clock
makes it; so they wait for each other once, behind the stamp that ends the spin and before the next, which begins the
work. No wait is ever inside a sample, nor inside a spin that tells the clock.
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
    """A device that can wait for another one's stamp without the host."""

    def wait_for(self, stamp: Stamp) -> None:
        """Let what is submitted from now on begin only when another device has come to its stamp."""


class SeveralDevices(RealDevice):
    """Two devices or more of one kind, asked as one; the facts of the first stand for all."""

    def __init__(self, devices: Sequence[Device]) -> None:
        if len(devices) < 2:
            raise BadInput(f"{len(devices)} devices are no group; expected two or more")
        kinds = {device.traits for device in devices}
        if len(kinds) > 1:
            names = ", ".join(device.name for device in devices)
            raise BadInput(
                f"{names} are devices of different kinds; expected devices that can do the same"
            )
        self.devices = tuple(devices)
        self.name = "+".join(device.name for device in devices)
        # A graph belongs to one device.
        self.traits = replace(devices[0].traits, graphs=False)
        self._spun = self._spin_ended = False

    def stamp(self) -> Stamp:
        """One on each, after they have met where a spin drove them apart."""
        if self._spin_ended:
            self._meet()
        self._spun, self._spin_ended = False, self._spun
        return tuple(device.stamp() for device in self.devices)

    def _meet(self) -> None:
        """All wait for the first, which has waited for all; nobody where they cannot."""
        first, *others = self.devices
        if not isinstance(first, Peer):
            return
        for device in others:
            first.wait_for(device.stamp())
        together = first.stamp()
        for device in others:
            assert isinstance(device, Peer)
            device.wait_for(together)

    def reached(self, stamp: Stamp) -> bool:
        """Whether any of them has come to it: then the host is no longer ahead of all."""
        return any(device.reached(own) for device, own in zip(self.devices, stamp, strict=True))

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        """The longest that any of them saw between its own two, in seconds."""
        pairs = zip(self.devices, start, end, strict=True)
        spans = [device.elapsed_s(began, ended) for device, began, ended in pairs]
        # One whose stamps run backwards makes all of it meaningless, and must not hide behind the longest.
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
        """Evicts the cache of every one of them."""
        flushers = [device.flusher(size_bytes) for device in self.devices]

        def flush() -> None:
            for one in flushers:
                one()

        return flush

    def counters(self) -> Counters:
        """The worst of each: what one does not tell is unknown of all, but a cause seen on one stands."""
        each = [device.counters() for device in self.devices]
        causes = frozenset[str]().union(*(one.active for one in each if one.active is not None))
        told = all(one.active is not None for one in each)
        return Counters(
            active=causes if causes or told else None,
            seconds={
                cause: sum(one.seconds.get(cause, 0.0) for one in each) for one in each for cause in one.seconds
            },
            others_bytes=_most([one.others_bytes for one in each]),
            others_busy=_most([one.others_busy for one in each]),
            preemptions=_most([one.preemptions for one in each]),
            others_core_s=next((one.others_core_s for one in each if one.others_core_s is not None), None),
        )  # fmt: skip

    def host_s(self) -> float:
        return self.devices[0].host_s()

    def free_bytes(self) -> int:
        """What an allocation on any of them can still get."""
        return min(device.free_bytes() for device in self.devices)

    def release(self) -> None:
        for device in self.devices:
            device.release()

    def facts(self) -> DeviceFacts:
        """Those of the first."""
        return self.devices[0].facts()


def _most(values: Sequence[Number | None]) -> Number | None:
    """The largest; None where one is unknown."""
    known = [value for value in values if value is not None]
    return max(known) if len(known) == len(values) else None


class CudaPeer(CudaDevice):
    """One GPU of several; opening it leaves the current one current."""

    def __init__(self, index: int) -> None:
        current = torch.cuda.current_device()
        super().__init__(index)
        torch.cuda.set_device(current)

    def stamp(self) -> Stamp:
        """An event behind the work on its own current stream."""
        with torch.cuda.device(self.index):
            return super().stamp()

    def spin(self, cycles: int) -> None:
        with torch.cuda.device(self.index):
            super().spin(cycles)

    def wait_for(self, stamp: Stamp) -> None:
        """Its current stream goes on when another GPU's event has happened."""
        torch.cuda.current_stream(self.index).wait_event(stamp)


def open_peer(name: str) -> CudaPeer:
    """The GPU that is named `cuda:N`, to be timed beside others."""
    current = torch.cuda.current_device() if torch.cuda.is_available() else 0
    # The usual opener tells what there is where this one is not.
    index = open_cuda(int(name.partition(":")[2] or 0), "devices").index
    torch.cuda.set_device(current)
    return CudaPeer(index)
