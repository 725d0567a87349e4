"""The seam between the timing engine and a device: small, so that a fake with a scripted clock can stand in for it."""

import time
from typing import Protocol

from ...core.facts import DeviceFacts

Stamp = object


class Device(Protocol):
    """What the timing engine asks of a device.

    A stamp marks a point in the device's own work, in order. Its time is read only after `elapsed_s` has waited for it.
    """

    name: str
    """As the user names it: `cpu`, `cuda:0`."""

    tick_s: float
    """The smallest difference between two stamps that the clock can show, in seconds."""

    shortest_span_s: float
    """The shortest span between two stamps that this clock should be asked for, in seconds."""

    def stamp(self) -> Stamp:
        """Mark this point behind all work submitted so far."""

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        """Seconds between two stamps, after waiting for both."""

    def synchronize(self) -> None:
        """Wait until all submitted work is done."""

    def host_s(self) -> float:
        """The host's clock in seconds, for budgets."""

    def free_bytes(self) -> int:
        """Memory that an allocation on the device can still get."""

    def release(self) -> None:
        """Give cached memory back, so that the next test finds it free."""

    def facts(self) -> DeviceFacts:
        """What the device says of itself, as running."""


class HostClock:
    """The host's monotonic clock, shared by every real device."""

    def host_s(self) -> float:
        """Seconds of `time.perf_counter`."""
        return time.perf_counter()
