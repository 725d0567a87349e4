"""What happened inside what: operators and ranges nested on each thread, backward nodes tied to forward operators.

Nothing in a trace says which range an operator ran in; its time on its thread does. A backward node runs later, on a
GPU in a thread of its own, and belongs to the range of the forward operator that shares autograd's sequence number.
Those numbers count in each thread, so the thread has to be the same: reentrant checkpointing runs forward operators in
the backward thread too.
"""

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from .events import CALL, HostEvent, Launch, Trace

# Annotations that torch itself makes, which name no part of a model.
NOT_PARTS = re.compile(
    rf"{CALL}|ProfilerStep#.*|PyTorch Profiler.*|Optimizer\..*|enumerate\(DataLoader\).*|(nccl|gloo|mpi|ucc):.*|"
    r"## .* ##|Torch-Compiled Region.*|TorchDynamo.*|.*CompiledFxGraph.*|Pregraph bytecode|Iteration Start.*"
)
_BACKWARD = re.compile(r"autograd::engine::.*|torch::autograd::AccumulateGrad")


@dataclass(slots=True, eq=False)
class Node:
    """A host event in its place.

    Args:
        ranges: of the model's parts around it, the outermost first; of a backward node those of its forward operator.
        forward: the operator whose gradient this node, or the one that it is in, computes.
        inner_s: seconds of the operators directly inside it.
    """

    event: HostEvent
    parent: "Node | None"
    ranges: tuple[str, ...] = ()
    forward: "Node | None" = None
    in_backward: bool = False
    inner_s: float = 0.0

    @property
    def self_s(self) -> float:
        """Seconds without the operators inside it."""
        return max(0.0, self.event.end_s - self.event.start_s - self.inner_s)


class Nest:
    """The host's events of a trace, nested."""

    def __init__(self, trace: Trace) -> None:
        self.nodes: list[Node] = []
        """By the time at which they began, so that a parent stands before its children."""
        self._launched: dict[int, Node] = {}
        self._external: dict[int, Node] = {}
        self._place(trace.host, trace.launches)
        self._attribute(_forward_threads(trace))

    @property
    def operators(self) -> list[Node]:
        """Those that are operators and not ranges."""
        return [node for node in self.nodes if node.event.is_operator]

    def launcher(self, correlation: int | None, external: int | None) -> Node | None:
        """The innermost event that launched a piece of the device's work; None where nothing tells.

        Newer traces name the operator itself (`External id`); in older ones that number repeats the correlation.
        """
        if correlation is not None and correlation in self._launched:
            return self._launched[correlation]
        return None if external is None or external == correlation else self._external.get(external)

    def _place(self, host: Iterable[HostEvent], launches: Mapping[int, Launch]) -> None:
        threads: dict[object, list[Node]] = defaultdict(list)
        for event in host:
            node = Node(event, None)
            threads[event.thread].append(node)
            if event.external is not None and event.is_operator:
                self._external[event.external] = node
        for nodes in threads.values():
            nodes.sort(key=lambda node: (node.event.start_s, -node.event.end_s))
            _nest(nodes)
            self.nodes += nodes
        self.nodes.sort(key=lambda node: (node.event.start_s, -node.event.end_s))
        # Backward threads have ranges of their own only where a forward pass runs again in them.
        starts = {thread: [node.event.start_s for node in nodes] for thread, nodes in threads.items()}
        for correlation, launch in launches.items():
            if launch.thread in threads:
                index = bisect_right(starts[launch.thread], launch.start_s) - 1
                found = threads[launch.thread][index] if index >= 0 else None
                while found is not None and found.event.end_s < launch.start_s:
                    found = found.parent
                if found is not None:
                    self._launched[correlation] = found

    def _attribute(self, threads: Mapping[int, object]) -> None:
        """Ranges, from outside to inside; a forward operator began before the backward node that needs it."""
        made: dict[tuple[object, int], Node] = {}
        for node in self.nodes:
            event, parent = node.event, node.parent
            if parent is not None:
                node.ranges, node.forward, node.in_backward = parent.ranges, parent.forward, parent.in_backward
            if not event.is_operator:
                if not NOT_PARTS.fullmatch(event.name):
                    node.ranges = (*node.ranges, event.name)
            elif event.of_backward or _BACKWARD.fullmatch(event.name):
                node.in_backward = True
                known = _made_by(made, threads, event)
                if known is not None:
                    node.forward, node.ranges = known, known.ranges
            elif event.sequence is not None:
                # The last with a number is the one that made the node: whoever came before only saw the next number.
                # What runs in backward makes nodes too, where a forward pass runs again in it.
                made[event.thread, event.sequence] = node


def _forward_threads(trace: Trace) -> dict[int, object]:
    """The threads that backward nodes name by the profiler's own numbers, as the trace's arrows tell.

    Without arrows one number and one thread of forward operators must be each other's.
    """
    ends = {end: trace.forward_links[link] for link, end in trace.backward_links.items() if link in trace.forward_links}
    backward = [event for event in trace.host if event.of_backward]
    known = {
        event.forward_thread: ends[event.thread, event.start_s]
        for event in backward
        if (event.thread, event.start_s) in ends
    }
    numbers = {event.forward_thread for event in backward}
    threads = {event.thread for event in trace.host if event.sequence is not None and not event.of_backward}
    return dict(zip(numbers, threads, strict=True)) if not ends and len(numbers) == len(threads) == 1 else known


def _made_by(made: Mapping[tuple[object, int], Node], threads: Mapping[int, object], event: HostEvent) -> Node | None:
    """The forward operator whose gradient a backward node computes; None where its thread is not known."""
    if event.sequence is None or event.forward_thread not in threads:
        return None
    return made.get((threads[event.forward_thread], event.sequence))


def _nest(nodes: list[Node]) -> None:
    """Parents and inner times of one thread's events, sorted by begin."""
    stack: list[Node] = []
    for node in nodes:
        while stack and stack[-1].event.end_s <= node.event.start_s:
            stack.pop()
        if stack:
            node.parent = stack[-1]
        if node.event.is_operator:
            above = next((one for one in reversed(stack) if one.event.is_operator), None)
            if above is not None:
                # Rounded times may let a child outlast its parent.
                above.inner_s += min(node.event.end_s, above.event.end_s) - node.event.start_s
        stack.append(node)
