"""What is profiled, and what its calls take without a profiler: by the host's clock, and by the device's stamps."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ...core.errors import DeviceError
from ..devices import Device

# So many calls tell of a step, as long as they fit into this time, in seconds.
MOST_CALLS, LONGEST_S = 3, 2.0

NO_STAMPS = "the device's timer: {why}"
NOT_AGAIN = (
    "clocks of this pass without the profiler: a call is long, so those of the measurement stand in, and nothing is "
    "called again to warm up"
)


@dataclass(frozen=True, slots=True)
class Subject:
    """What is profiled.

    Args:
        fn: the function that was measured.
        sets: arguments to call it with, in turn.
        model: whose parts become ranges; None for none.
        call_s: how long a measured call took, in seconds.
        stamped: whether the device's stamps told that, and not the host's clock.
    """

    fn: Callable[..., object]
    sets: Sequence[tuple[object, ...]]
    model: Any
    call_s: float
    stamped: bool = False

    @property
    def is_long(self) -> bool:
        """Whether every further call is dear, so that the measurement's own time serves as the unprofiled one."""
        return self.call_s > LONGEST_S

    @property
    def calls(self) -> int:
        """How many calls are profiled: three, or as many as fit into two seconds, one at least."""
        return max(1, min(MOST_CALLS, int(LONGEST_S / self.call_s))) if self.call_s > 0 else MOST_CALLS

    def call(self, index: int) -> None:
        """One call; what it returns is let go at once."""
        self.fn(*self.sets[index % len(self.sets)])


def unprofiled(device: Device, subject: Subject) -> tuple[float, float | None, tuple[str, ...]]:
    """Seconds of a call by the host's clock and by the device's stamps, medians; and why none by the latter."""
    if subject.is_long:
        return subject.call_s, subject.call_s if subject.stamped else None, (NOT_AGAIN,)
    host: list[float] = []
    stamped: list[float] = []
    why = "reading its stamps can hang here" if device.traits.watchdog_s is not None else ""
    device.synchronize()
    for index in range(subject.calls):
        began_s = device.host_s()
        start = None if why else device.stamp()
        subject.call(index)
        end = None if why else device.stamp()
        device.synchronize()
        host.append(device.host_s() - began_s)
        if start is not None and end is not None:
            try:
                stamped.append(device.elapsed_s(start, end))
            except DeviceError as error:
                why = str(error)
    complete = len(stamped) == subject.calls
    return median(host), median(stamped) if complete else None, () if complete else (NO_STAMPS.format(why=why),)
