"""How much slower each part is in each class of tests, from links up to nodes, each level without what explains it.

A node is slow where most of its GPUs are, a GPU where most of the tests of a class or most of its links are. What a
higher level explains is taken out before a lower one is looked at: eight slow GPUs of a slow node are one finding.
"""

import math
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from .cells import FEWEST, GPU, LINK, NODE
from .outliers import LEVEL, Scale, scale_of

if TYPE_CHECKING:
    from pandas import DataFrame

# Of a median, in standard errors of a mean.
MEDIAN_ERROR = 1.2533
# Fewer links than this say nothing of the GPU at their end.
FEWEST_LINKS = 3
# Nodes, GPUs, links, and parts that are slow sometimes.
LEVELS = 4
# A link has no clocks of its own: links of one class lie closer together than GPUs, by this share of their spread.
LINK_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Effect:
    """A part that is slower than its fellows in one class of tests.

    Args:
        level: `node`, `gpu` or `link`.
        part: its name; of a link's GPU the node and the number.
        node: where it is.
        sort: of the cells that say so: `gpu`, `link` or `node`.
        kind: the class of tests.
        size: log seconds above the middle, without what a higher level explains.
        p: after everything that it counts for.
        scale: of all like it.
        fellows: how many like it were looked at.
    """

    level: str
    part: str
    node: str
    sort: str
    kind: str
    size: float
    p: float
    scale: Scale
    fellows: int


# By level and part, the classes in which it was looked at.
Seen = dict[tuple[str, str], set[str]]


@dataclass(frozen=True, slots=True)
class Effects:
    """Every part that is slower than chance allows.

    Args:
        found: these parts, nodes first.
        seen: by level and part, the classes in which it was looked at.
        reach: by level, the log seconds from which a part would have been found in every class.
    """

    found: tuple[Effect, ...]
    seen: Seen
    reach: dict[str, float]


def effects_of(cells: "DataFrame", least: float, device_spread: float) -> Effects:
    """Every part that is slower than chance allows, level by level.

    Args:
        cells: of one hardware, as `cells_of` gives them.
        least: the smallest effect that is reported, in log seconds.
        device_spread: what is assumed between devices, in log seconds.
    """
    parts = (
        cells.groupby(["sort", "class", "part", "node", "first", "second"], sort=True)["excess"].median().reset_index()
    )
    suspects = {(one.node, one.sort, one.kind) for one in _Level(GPU, parts, least, device_spread).slow()}
    found: list[Effect] = []
    seen: Seen = {}
    reach: dict[str, float] = {}
    for name in (NODE, GPU, LINK):
        level = _Level(name, parts, least, device_spread)
        for group in level.groups:
            for part in group.values["part"]:
                seen.setdefault((name, part), set()).add(group.kind)
        if level.groups:
            reach[name] = max(least, *(group.scale.reach(level.times) for group in level.groups))
        new = level.slow(suspects if name == NODE else set())
        found += new
        _take_out(parts, new)
    return Effects(tuple(found), seen, reach)


@dataclass(frozen=True, slots=True)
class _Group:
    """The parts of a level in one class: `part`, `node`, `excess`."""

    sort: str
    kind: str
    values: "DataFrame"
    scale: Scale


class _Level:
    """All parts of one level, in all classes."""

    def __init__(self, name: str, parts: "DataFrame", least: float, device_spread: float) -> None:
        self.name, self.least = name, least
        gather = {NODE: _nodes, GPU: _gpus, LINK: _links}[name]
        self.groups: list[_Group] = []
        for (sort, kind), group in parts.groupby(["sort", "class"], sort=True):
            values = gather(str(sort), group)
            if len(values) >= FEWEST:
                self.groups.append(_Group(str(sort), str(kind), values, _scale(str(sort), values, device_spread)))

    @property
    def times(self) -> int:
        """How often a p counts: for every part and class, and for every level."""
        return LEVELS * sum(len(group.values) for group in self.groups)

    def slow(self, suspects: Collection[tuple[str, str, str]] = ()) -> list[Effect]:
        """The parts that are slow.

        What is known to be slow was not picked from many: in its other classes its p counts for these alone. So it does
        of a node one of whose GPUs is slow: whether it is the node is then the question.

        Args:
            suspects: such nodes, with the sort of cells and the class.
        """
        every = [one for group in self.groups for one in self._of(group)]
        surely = {one.part for one in every if one.p * self.times <= LEVEL}
        found = []
        for one in every:
            known = one.part in surely or (one.node, one.sort, one.kind) in suspects
            times = LEVELS * len(self.groups) if known else self.times
            if one.p * times <= LEVEL:
                found.append(replace(one, p=one.p * times))
        return found

    def _of(self, group: _Group) -> Iterator[Effect]:
        """Every part of a group that is slower by more than the least, with its p as if there were no others."""
        columns = (group.values[name].tolist() for name in ("part", "node", "excess"))
        for part, node, excess in zip(*columns, strict=True):
            size, p = excess - group.scale.centre, group.scale.p(excess)
            if size > self.least:
                count = len(group.values)
                yield Effect(self.name, part, node, group.sort, group.kind, size, p, group.scale, count)


def _nodes(sort: str, group: "DataFrame") -> "DataFrame":
    """The node's own tests; or what at least two thirds of its GPUs, or half of its links, exceed."""
    if sort == NODE:
        return group[["part", "node", "excess"]].assign(count=1)
    share = 0.5 if sort == LINK else 1 / 3
    ordered = group.sort_values(["node", "excess"], kind="stable")
    by_node = ordered.groupby("node", sort=True)["excess"]
    place = (share * (by_node.transform("size") - 1)).astype(int)
    low = ordered[by_node.cumcount() == place].set_index("node")["excess"]
    found = by_node.agg(["median", "count"]).assign(low=low).reset_index()
    # Of one GPU alone nobody can tell whether it or its node is slow.
    found = found[found["count"] > 1]
    excess = found["median"].where(found["low"] > found["median"] / 2, found["low"])
    return found.assign(part=found["node"], excess=excess)[["part", "node", "excess", "count"]]


def _gpus(sort: str, group: "DataFrame") -> "DataFrame":
    """The GPU's own tests; or the middle of all links that end at it."""
    from pandas import concat

    if sort != LINK:
        return group[["part", "node", "excess"]].assign(count=1) if sort == GPU else group.iloc[:0].assign(count=0)
    ends = concat([group.assign(end=group[name]) for name in ("first", "second")])
    found = ends.groupby(["node", "end"])["excess"].agg(["median", "count"]).reset_index()
    found = found[found["count"] >= FEWEST_LINKS]
    names = [gpu_name(node, end) for node, end in zip(found["node"], found["end"], strict=True)]
    return found.rename(columns={"median": "excess"}).assign(part=names)[["part", "node", "excess", "count"]]


def gpu_name(node: str, index: int) -> str:
    """A GPU of a node, where nothing but its number is known."""
    return f"{node} GPU {index}"


def _links(sort: str, group: "DataFrame") -> "DataFrame":
    return group[["part", "node", "excess"]].assign(count=1) if sort == LINK else group.iloc[:0].assign(count=0)


def _scale(sort: str, values: "DataFrame", device_spread: float) -> Scale:
    assumed = device_spread * (LINK_SHARE if sort == LINK else 1.0)
    # The middle of several lies closer to that of others than each of them.
    several = max(1.0, float(values["count"].median()))
    return scale_of(values["excess"].to_numpy(), assumed * min(1.0, MEDIAN_ERROR / math.sqrt(several)))


def _take_out(parts: "DataFrame", found: Sequence[Effect]) -> None:
    """Take what was found out of the cells below it."""
    for one in found:
        mine = (parts["sort"] == one.sort) & (parts["class"] == one.kind) & (parts["node"] == one.node)
        if one.level == GPU and one.sort == LINK:
            ends = [gpu_name(one.node, end) == one.part for end in range(int(parts["second"].max()) + 1)]
            index = ends.index(True)
            mine &= (parts["first"] == index) | (parts["second"] == index)
        elif one.level == GPU:
            mine &= parts["part"] == one.part
        parts.loc[mine, "excess"] -= one.size
