"""What a trace holds: events of the host and the device, and what ties them together. Times in seconds."""

from dataclasses import dataclass, field
from typing import Any

# The name under which the capture brackets every profiled call on the host.
CALL = "roofline call"


@dataclass(slots=True)
class HostEvent:
    """An operator or an annotated range on a thread of the host.

    Args:
        sequence: autograd's number, shared by a forward operator and the backward node that it made.
        forward_thread: of a backward node, the profiler's own number of the thread that made it; zero of others.
        dims: the shapes of its inputs, as recorded.
    """

    name: str
    is_operator: bool
    thread: object
    start_s: float
    end_s: float
    sequence: int | None = None
    forward_thread: int = 0
    dims: list[Any] = field(default_factory=list)
    external: int | None = None

    @property
    def of_backward(self) -> bool:
        """Whether it is a backward node."""
        return self.forward_thread != 0


@dataclass(frozen=True, slots=True)
class Launch:
    """A call of the vendor's library on a thread of the host."""

    thread: object
    start_s: float
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceEvent:
    """A kernel, a copy or a fill on a stream of a device."""

    name: str
    category: str
    stream: tuple[object, object]
    start_s: float
    end_s: float
    correlation: int | None
    external: int | None
    grid: tuple[int, ...]
    block: tuple[int, ...]


@dataclass(slots=True)
class Trace:
    """The events of a trace that tell where time goes.

    Args:
        launches: by correlation.
        forward_links: arrows from a forward operator: its thread, by the arrow's number.
        backward_links: where they point to: a thread and a time on it, in seconds, by the arrow's number.
    """

    host: list[HostEvent] = field(default_factory=list)
    device: list[DeviceEvent] = field(default_factory=list)
    launches: dict[int, Launch] = field(default_factory=dict)
    forward_links: dict[object, object] = field(default_factory=dict)
    backward_links: dict[object, tuple[object, float]] = field(default_factory=dict)

    @property
    def calls(self) -> list[HostEvent]:
        """The profiled calls, in order."""
        return sorted((event for event in self.host if event.name == CALL), key=lambda event: event.start_s)
