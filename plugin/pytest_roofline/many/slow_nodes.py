"""Nodes that are surely slower than their own group, after a change."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from ..core.groups import group_by
from ..stats.outliers import LEVEL, scale_of
from ..stats.spread import Prior
from ..stats.stats import growth
from .groups import NodeGroup, NodeValues

# Fewer nodes do not show which of them is the odd one.
FEWEST = 4


@dataclass(frozen=True, slots=True)
class SlowNode:
    """A node that is slower than its group in a test.

    Args:
        test: in which it is slowest, as `files.text_of_test` writes it; empty for the mean of all tests.
        change: by how much, as a share of time.
        p: corrected for all nodes, tests and looks of both groups.
        since: true if it became slower with the change, and its time alone does not show it.
    """

    node: str
    group: str
    test: str
    change: float
    p: float
    since: bool


def slow_nodes(
    groups: Mapping[str, NodeGroup], prior: Prior, smallest_size: float
) -> tuple[SlowNode, ...]:
    """Return the nodes that are slower than their group.

    The worst comes first, and each is there once. A node is compared with the middle of its group in every test and in
    the mean of all tests: by its time after the change, and by its change. The rule is that of `stats.outliers`.

    Args:
        prior: the assumed spreads between runs and between devices.
        smallest_size: the smallest slowness to report, in log seconds.
    """
    # Each time after the change (a level), and each change, of the nodes of one group.
    looks = [
        (group, test, is_change, values)
        for group, nodes in groups.items()
        for is_change, tests in ((False, nodes.levels), (True, nodes.changes))
        for test, values in [*tests.items(), *_mean_of_all(tests)]
        if len(values) >= FEWEST
    ]
    comparison_count = sum(len(values) for *_, values in looks)
    # A change is that of a node against itself, so it varies as its runs do; a time varies from device to device.
    candidates = [
        SlowNode(node, group, test, growth(size), min(1.0, p * comparison_count), is_change)
        for group, test, is_change, values in looks
        for node, size, p in _judged(values, prior.process if is_change else prior.device)
        if size > smallest_size and p * comparison_count <= LEVEL
    ]
    worst = [
        max(entries, key=lambda entry: entry.change)
        for entries in group_by(candidates, lambda entry: entry.node).values()
    ]
    return tuple(sorted(worst, key=lambda entry: (-entry.change, entry.node)))


def _mean_of_all(tests: Mapping[str, NodeValues]) -> Iterator[tuple[str, NodeValues]]:
    """Yield the mean over all tests, under an empty name.

    It is of the nodes that have all of them. Nothing is yielded of a single test, and where no node has all tests.
    """
    # The nodes that have all tests; the mean of a single test would be that test again.
    common = set.intersection(*map(set, tests.values())) if len(tests) > 1 else set()
    if common:
        yield (
            "",
            {
                node: sum(values[node] for values in tests.values()) / len(tests)
                for node in sorted(common)
            },
        )


def _judged(values: NodeValues, assumed: float) -> Iterator[tuple[str, float, float]]:
    """Yield each node with its distance from the middle of all, and its p.

    Distances are in log seconds. `assumed` is the assumed spread of the values.
    """
    import numpy

    logs = numpy.array(list(values.values()))
    scale = scale_of(logs, assumed)
    distances = logs - scale.centre
    yield from zip(values, distances.tolist(), scale.p(distances).tolist(), strict=True)
