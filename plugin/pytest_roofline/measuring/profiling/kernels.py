"""The table of kernels: what each launch of a name has in common, the longest first."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from statistics import median, pstdev

from ...core.profiles import ActivityClass, ClassTime, KernelTime
from .activities import Activity
from .attention import product_flops
from .nesting import Node

# What a profile keeps of the table, and the names that stand behind a class.
MOST_KERNELS, MOST_NAMES = 20, 3


def kernel_times(activities: Iterable[Activity], span_s: float, *, on_device: bool) -> list[KernelTime]:
    """Every name with its times, the longest first.

    Args:
        activities: of all calls.
        span_s: of all calls together, in seconds.
        on_device: whether they are kernels, or the operators themselves.
    """
    named: dict[str, list[Activity]] = defaultdict(list)
    for activity in activities:
        named[activity.name].append(activity)
    times = [_kernel_time(name, found, span_s, on_device) for name, found in named.items()]
    return sorted(times, key=lambda time: -time.total_s)


def _kernel_time(name: str, found: Sequence[Activity], span_s: float, on_device: bool) -> KernelTime:
    seconds = [activity.seconds for activity in found]
    kinds: Counter[ActivityClass] = Counter()
    for activity in found:
        kinds[activity.kind] += activity.seconds  # type: ignore[assignment]
    grids = Counter(activity.grid for activity in found if activity.grid)
    blocks = Counter(activity.block for activity in found if activity.block)
    return KernelTime(
        name=name,
        kind=kinds.most_common(1)[0][0],
        total_s=sum(seconds),
        share=_share(sum(seconds), span_s),
        count=len(seconds),
        median_s=median(seconds),
        min_s=min(seconds),
        max_s=max(seconds),
        deviation_s=pstdev(seconds),
        cpu_s=_cpu_s(found, on_device),
        grid=grids.most_common(1)[0][0] if grids else (),
        grids=len(grids),
        block=blocks.most_common(1)[0][0] if blocks else (),
        blocks=len(blocks),
    )


def _cpu_s(found: Sequence[Activity], on_device: bool) -> float | None:
    """Host time of the operators behind a name, each once; None where no launch is known."""
    nodes = {id(a.node): a.node for a in found if a.node is not None and a.node.event.is_operator}
    if not nodes:
        return None
    if not on_device:
        # An operator may call one of its own name, whose time is in its own.
        nodes = {key: node for key, node in nodes.items() if not _inside(node, nodes)}
    return sum(node.event.end_s - node.event.start_s for node in nodes.values())


def _inside(node: Node, nodes: dict[int, Node]) -> bool:
    above = node.parent
    while above is not None:
        if id(above) in nodes:
            return True
        above = above.parent
    return False


def class_times(activities: Sequence[Activity], span_s: float, busy: float) -> list[ClassTime]:
    """The classes that there are, the longest first, and what was idle at the end."""
    totals: dict[ActivityClass, float] = defaultdict(float)
    counts: Counter[ActivityClass] = Counter()
    names: dict[ActivityClass, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    for activity in activities:
        totals[activity.kind] += activity.seconds
        counts[activity.kind] += 1
        names[activity.kind][activity.name] += activity.seconds
    flops = product_flops(activity for activity in activities if activity.kind == "matrix product")
    times = []
    for kind, total_s in sorted(totals.items(), key=lambda pair: -pair[1]):
        largest = sorted(names[kind].items(), key=lambda pair: -pair[1])[:MOST_NAMES]
        known = flops if kind == "matrix product" else None
        times.append(
            ClassTime(kind, total_s, _share(total_s, span_s), counts[kind], known, tuple(name for name, _ in largest))
        )
    idle_s = max(0.0, span_s - busy)
    return [*times, ClassTime("idle", idle_s, _share(idle_s, span_s))]


def _share(seconds: float, span_s: float) -> float:
    return seconds / span_s if span_s > 0 else 0.0
