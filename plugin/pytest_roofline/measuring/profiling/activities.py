"""What took time, one piece at a time: kernels, copies and fills of a device; on a CPU each operator's own time."""

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass

from ...core.profiles import ActivityClass
from .classes import Classifier
from .events import DeviceEvent, HostEvent, Trace
from .nesting import Nest, Node


@dataclass(frozen=True, slots=True)
class Activity:
    """One piece of work within a profiled call.

    Args:
        seconds: how long it took; of an operator without those inside it.
        node: the operator that launched it, or that it is; None where nothing tells.
        stream: of a device; a thread of the host.
        is_operator: whether it is one itself, and no piece of a device's work.
        is_known: whether a rule knows it, and not only what it is in; a piece of a device's work counts as known.
    """

    name: str
    kind: ActivityClass
    seconds: float
    start_s: float
    end_s: float
    stream: object
    node: Node | None
    grid: tuple[int, ...] = ()
    block: tuple[int, ...] = ()
    is_operator: bool = False
    is_known: bool = True

    @property
    def has_operator(self) -> bool:
        """Whether an operator is known in which it was launched, or that it is."""
        node = self.node
        while node is not None and not node.event.is_operator:
            node = node.parent
        return node is not None

    @property
    def ranges(self) -> tuple[str, ...]:
        """The model's parts around it, the outermost first."""
        return self.node.ranges if self.node is not None else ()

    @property
    def in_backward(self) -> bool:
        """Whether it belongs to the backward pass."""
        return self.node is not None and self.node.in_backward


class Windows:
    """The profiled calls as windows of time: one lasts until the next begins, since the device is waited for between.

    Args:
        calls: in order.
    """

    def __init__(self, calls: list[HostEvent]) -> None:
        self._starts = [call.start_s for call in calls]
        self._ends = [call.end_s for call in calls]

    def __len__(self) -> int:
        return len(self._starts)

    def index(self, start_s: float) -> int | None:
        """Which call something that began then belongs to; None before the first."""
        index = bisect_right(self._starts, start_s) - 1
        return index if index >= 0 else None

    def spans(self, activities: Iterable[Activity]) -> list[tuple[float, float]]:
        """Of each call its begin on the host, and the end of the last that belongs to it."""
        ends = list(self._ends)
        for activity in activities:
            index = self.index(activity.start_s)
            if index is not None:
                ends[index] = max(ends[index], activity.end_s)
        return list(zip(self._starts, ends, strict=True))


def device_activities(trace: Trace, nest: Nest, classes: Classifier, windows: Windows) -> list[Activity]:
    """What the device did in the profiled calls."""
    activities = []
    for event in trace.device:
        if windows.index(event.start_s) is None:
            continue
        node = nest.launcher(event.correlation, event.external)
        kind = classes.of_kernel(event.name, event.category, node)
        grid, block = _extents(event, trace)
        seconds = event.end_s - event.start_s
        activities.append(
            Activity(event.name, kind, seconds, event.start_s, event.end_s, event.stream, node, grid, block)
        )
    return activities


def _extents(event: DeviceEvent, trace: Trace) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Grid and block of a kernel, which under ROCm only the call that launched it tells."""
    launch = trace.launches.get(event.correlation) if event.correlation is not None and not event.grid else None
    return (event.grid, event.block) if launch is None else (launch.grid, launch.block)


def host_activities(nest: Nest, classes: Classifier, windows: Windows, calls: list[HostEvent]) -> list[Activity]:
    """What the operators did on the host in the profiled calls; what ran between two calls is left out."""
    activities = []
    for node in nest.operators:
        event = node.event
        index = windows.index(event.start_s)
        if index is not None and event.start_s < calls[index].end_s:
            place = event.start_s, event.end_s, event.thread, node
            kind, known = classes.of_operator(node), classes.is_known(node)
            activities.append(Activity(event.name, kind, node.self_s, *place, is_operator=True, is_known=known))
    return activities


def busy_s(activities: Iterable[Activity]) -> float:
    """How long at least one was at work, in seconds: the union of their spans."""
    total_s, until_s = 0.0, float("-inf")
    for start_s, end_s in sorted((activity.start_s, activity.end_s) for activity in activities):
        if end_s > until_s:
            total_s += end_s - max(start_s, until_s)
            until_s = end_s
    return total_s


def calls_of(trace: Trace) -> list[HostEvent]:
    """The profiled calls; of a trace without them all of it, as one."""
    if trace.calls or not trace.host:
        return trace.calls
    begin_s = min(event.start_s for event in trace.host)
    end_s = max(event.end_s for event in trace.host)
    return [HostEvent("", False, None, begin_s, end_s)]
