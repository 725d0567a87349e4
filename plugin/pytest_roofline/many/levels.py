"""Which parts of a fleet are slower than their peers, in which classes of tests.

A part is what a measurement was on: a GPU, a pair of GPUs, or a node as a whole. Cells are log medians, split as test +
part: the test's is the median over the parts of one sort, so that a few sick parts do not move it. Nodes are looked at
first, then GPUs, then links, each without what a level above explains.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from pandas import DataFrame, Series, concat

from ..core.keys import canonical
from ..core.work import rate_suffix
from ..stats.outliers import LEVEL, MEDIAN_ERROR, scale_of
from ..stats.stats import quantile
from .reading import Many, Test

# Fewer parts than this have no middle that one of them does not move.
FEWEST = 4
GPU, LINK, NODE = "gpu", "link", "node"

# Classes of tests by what they stress, since a part that is sick is slow in one class and not in the others.
MEMORY, HOST, PEER, ARITHMETIC, COLLECTIVES = (
    "memory",
    "host link",
    "peer link",
    "arithmetic",
    "collectives",
)
LATENCY, OTHER = "latency", "other"
# Shorter calls are mostly their start: about 5 to 10 µs on any accelerator, so that no bandwidth shows in them.
SHORT_S = 50e-6
# What to look at where a class is slow.
LOOK = {
    MEMORY: "memory clock, ECC errors and remapped rows, temperature of the memory",
    HOST: "PCIe generation and width, the slot, NUMA placement, IOMMU",
    PEER: "the state and errors of its links (nvidia-smi nvlink -e, amd-smi xgmi), the switch's log",
    ARITHMETIC: "clocks under load, power limit, temperature, cooling",
    COLLECTIVES: "its GPUs and links one by one, topology and settings of the library",
    LATENCY: "CPU frequency governor, load of the host, driver settings",
    OTHER: "roofline doctor on it",
}
LOOK_AT_CPU = LOOK | {
    MEMORY: "other load, memory channels and their speed, NUMA placement",
    ARITHMETIC: "other load, frequency governor, clocks under load, cooling",
    COLLECTIVES: "other load, the network interface, settings of the library",
}


def class_of_test(test: Test, seconds: float) -> str:
    """The class of a test, of which one call takes so many seconds on what is healthy."""
    suffix = rate_suffix(test.key.metric)
    if suffix is None:
        return OTHER
    if seconds < SHORT_S:
        return LATENCY
    if suffix in ("busbw_GBps", "algbw_GBps"):
        return COLLECTIVES
    if suffix == "TFLOPS" and not test.several:
        return ARITHMETIC
    if test.several:
        return PEER
    return HOST if test.work.wire_bytes else MEMORY


def cells_of(many: Many, hardware: str) -> tuple[DataFrame, int]:
    """A row for each run, test and part of one hardware, and how many measurements over several nodes tell of none.

    Columns are `run`, `test`, `sort`, `part`, `node`, `first`, `second` (the GPUs of a link, as numbers of their node),
    `class`, `excess` (log seconds above the test's middle).
    """
    mine = numpy.array([test.hardware == hardware for test in many.tests], dtype=bool)
    rows = many.fit[mine[many.fit["test"]]]
    alone = (
        rows["hosts"]
        .astype(str)
        .map(lambda text: not text or len(json.loads(text)) < 2)
        .to_numpy(dtype=bool)
    )
    rows = rows[alone]
    cells = (
        rows.assign(log=numpy.log(rows["seconds"]))
        .groupby(["run", "test", "device"], observed=True)["log"]
        .median()
        .reset_index()
    )
    _place(cells, many)
    cells["excess"] = cells["log"] - _middles(cells, many.tests)
    cells = cells[cells["excess"].notna()]
    middle = cells.groupby("test")["log"].median()
    classes = {
        test: class_of_test(many.tests[test], float(numpy.exp(middle[test])))
        for test in middle.index
    }
    return cells.assign(**{"class": cells["test"].map(classes)}), int((~alone).sum())


def _place(cells: DataFrame, many: Many) -> None:
    """Add to each row what it is of: `node`, `sort`, `part`, `first`, `second`."""
    tests, runs = many.tests, many.runs.loc[cells["run"]]
    ends = numpy.array([_ends(test) for test in tests]).reshape(-1, 2)[cells["test"]]
    several = numpy.array([test.several for test in tests], dtype=bool)[cells["test"]]
    node, device = (runs[name].to_numpy(dtype=object) for name in ("node", "device"))
    # A CPU has no identity of its own, and of an imported run nobody knows the device unless a measurement names it:
    # its node is the part.
    device = numpy.where(several | runs["imported"].to_numpy(dtype=bool), "", device)
    named = cells["device"].to_numpy(dtype=object)
    device = numpy.where(named == "", device, named)
    whole = device == ""
    link = numpy.array(
        [f"{name} GPU {a} – GPU {b}" for name, (a, b) in zip(node, ends, strict=True)], dtype=object
    )
    cells["node"], (cells["first"], cells["second"]) = node, ends.T
    linked = cells["first"] >= 0
    cells["sort"] = numpy.where(linked, LINK, numpy.where(whole, NODE, GPU))
    cells["part"] = numpy.where(linked, link, numpy.where(whole, node, device))


def gpu_name(node: str, index: int) -> str:
    """A GPU of a node, where nothing but its number is known; `identity_of` calls it the same."""
    return f"{node}:{index}"


def _ends(test: Test) -> tuple[int, int]:
    """The GPUs of a copy between two, the lower number first; −1 of any other test."""
    source, target = (test.key.parameters.get(name) for name in ("source", "target"))
    if test.key.hardware.devices != 2 or not isinstance(source, int) or not isinstance(target, int):
        return -1, -1
    return min(source, target), max(source, target)


def _middles(cells: DataFrame, tests: tuple[Test, ...]) -> "Series[float]":
    """Of each row the middle of what it compares with, not a number where that is of fewer than four parts."""
    wider = {number: case_of(test) for number, test in enumerate(tests)}
    apart = cells["test"].map({number: is_apart(test) for number, test in enumerate(tests)})
    by_part = cells.groupby(["test", "part"], sort=False)["log"].median().reset_index()

    def middle(of_part: "Series[str]", of_row: "Series[str]") -> "Series[float]":
        told = by_part.groupby(of_part)["log"].agg(["median", "count"])
        return of_row.map(told["median"].where(told["count"] >= FEWEST)).astype(float)

    same = middle(by_part["test"], cells["test"])
    return same.where(
        same.notna() | ~apart.astype(bool),
        middle(by_part["test"].map(wider), cells["test"].map(wider)),
    )


def is_apart(test: Test) -> bool:
    """Whether a test is a column or a pair of a matrix: one case, whose devices are tests of their own."""
    return test.placed or _ends(test) != (-1, -1)


def case_of(test: Test) -> str:
    """Return what a test shares with those of the other devices or links of its matrix; of any other test itself."""
    key, apart = test.key, is_apart(test)
    parameters = {
        name: value
        for name, value in key.parameters.items()
        if not (apart and name in ("source", "target", "gpu") and isinstance(value, int))
    }
    facts = (
        key.benchmark,
        key.name,
        key.metric,
        str(key.hardware),
        key.cache,
        key.timing,
        *test.achieved,
    )
    return canonical(parameters) + "|".join(facts)


# Fewer links than this say nothing of the GPU at their end.
FEWEST_LINKS = 3
# Nodes, GPUs, links.
LEVELS = 3
# A link has no clocks of its own: links of one class lie closer together than GPUs, by this share of their spread.
LINK_SHARE = 0.25
VALUES = ["part", "node", "excess", "count"]


@dataclass(frozen=True, slots=True)
class Effect:
    """A part that is slower than its peers in one class of tests.

    Args:
        part: its name; of a link's GPU the node and the number.
        sort: of the cells that say so: `gpu`, `link` or `node`.
        size: log seconds above the middle, without what a higher level explains.
        p: after everything that it counts for.
        spread: of all like it, in log seconds.
    """

    level: str
    part: str
    node: str
    sort: str
    kind: str
    size: float
    p: float
    spread: float
    fellows: int

    def holds(self, cells: DataFrame) -> "Series[bool]":
        """Return of each cell whether it is of this part and class."""
        on_node = cells["node"] == self.node
        alike = on_node & (cells["sort"] == self.sort) & (cells["class"] == self.kind)
        if self.level == NODE:
            return alike
        if self.level == LINK or self.sort == GPU:
            return alike & (cells["part"] == self.part)
        first, second = (
            cells[end].map(lambda index: gpu_name(self.node, index)) == self.part
            for end in ("first", "second")
        )
        return alike & (first | second)


@dataclass(frozen=True, slots=True)
class Levels:
    """Every part that is slower than chance allows."""

    found: tuple[Effect, ...]
    seen: dict[tuple[str, str], set[str]]
    reach: dict[str, float]


def levels_of(cells: DataFrame, least: float, device_spread: float) -> Levels:
    """Every part that is slower than chance allows, level by level."""
    keys = ["sort", "class", "part", "node", "first", "second"]
    # The middle of a part's runs, test by test, and then of its tests.
    by_test = cells.groupby([*keys, "test"], sort=True)["excess"].median()
    parts = by_test.groupby(level=keys).median().reset_index()
    slow_gpus = _slow(_level(GPU, parts, device_spread), GPU, least, set())
    suspects = {(one.node, one.sort, one.kind) for one in slow_gpus}
    found: list[Effect] = []
    seen: dict[tuple[str, str], set[str]] = {}
    reach: dict[str, float] = {}
    for name in (NODE, GPU, LINK):
        level = _level(name, parts, device_spread)
        if level is None:
            continue
        seen |= {(name, part): set(kinds) for part, kinds in level.groupby("part")["kind"]}
        scales = level[["freedom", "spread"]].drop_duplicates().itertuples(index=False)
        surely = 1 - LEVEL / (LEVELS * len(level))
        reach[name] = max(
            least, *(quantile(surely, freedom) * spread for freedom, spread in scales)
        )
        new = _slow(level, name, least, suspects if name == NODE else set())
        found += new
        for effect in new:
            parts.loc[effect.holds(parts), "excess"] -= effect.size
    return Levels(tuple(found), seen, reach)


def _level(name: str, parts: DataFrame, device_spread: float) -> DataFrame | None:
    """All parts of one level, in all classes with four or more, each with its p as if there were no others."""
    found: list[DataFrame] = []
    for (sort, kind), group in parts.groupby(["sort", "class"], sort=True):
        values = _gathered(name, str(sort), group)
        if len(values) < FEWEST:
            continue
        # The middle of several lies closer to that of others than each of them.
        several = max(1.0, float(values["count"].median()))
        assumed = (
            device_spread
            * (LINK_SHARE if sort == LINK else 1.0)
            * min(1.0, MEDIAN_ERROR / math.sqrt(several))
        )
        scale = scale_of(values["excess"].to_numpy(), assumed)
        size = values["excess"] - scale.centre
        facts = {
            "spread": scale.spread,
            "freedom": scale.freedom,
            "fellows": len(values),
            "sort": sort,
            "kind": kind,
        }
        found.append(values.assign(size=size, p=scale.p(size), group=len(found), **facts))
    return concat(found, ignore_index=True) if found else None


def _gathered(name: str, sort: str, group: DataFrame) -> DataFrame:
    """What of one sort and class tells of a level: `part`, `node`, `excess`, `count`; empty where nothing does."""
    if name == NODE and sort != NODE:
        return _nodes(sort, group)
    if name == GPU and sort == LINK:
        return _gpus_of_links(group)
    return group.assign(count=1)[VALUES] if name == sort else group.iloc[:0].assign(count=0)[VALUES]


def _nodes(sort: str, group: DataFrame) -> DataFrame:
    """What at least two thirds of a node's GPUs, or half of its links, exceed."""
    share = 0.5 if sort == LINK else 1 / 3
    by_node = group.groupby("node", sort=True)["excess"]
    found = by_node.agg(["median", "count"]).join(
        by_node.quantile(share, interpolation="lower").rename("low")
    )
    # Of one GPU alone nobody can tell whether it or its node is slow.
    found = found[found["count"] > 1].reset_index()
    excess = found["median"].where(found["low"] > found["median"] / 2, found["low"])
    return found.assign(part=found["node"], excess=excess)[VALUES]


def _gpus_of_links(group: DataFrame) -> DataFrame:
    """The middle of all links that end at a GPU."""
    ends = concat([group.assign(end=group[name]) for name in ("first", "second")])
    found = ends.groupby(["node", "end"])["excess"].agg(["median", "count"]).reset_index()
    found = found[found["count"] >= FEWEST_LINKS]
    names = [gpu_name(node, end) for node, end in zip(found["node"], found["end"], strict=True)]
    return found.rename(columns={"median": "excess"}).assign(part=names)[VALUES]


def _slow(
    level: DataFrame | None, name: str, least: float, suspects: set[tuple[str, str, str]]
) -> Sequence[Effect]:
    """The parts that are slow. A p counts for every part and class, and for every level."""
    if level is None:
        return []
    every = level[level["size"] > least]
    surely = set(every["part"][every["p"] * LEVELS * len(level) <= LEVEL])
    columns = ["part", "node", "sort", "kind", "size", "p", "spread", "fellows"]
    slow = []
    for row in every[columns].itertuples(index=False):
        suspect = row.part in surely or (row.node, row.sort, row.kind) in suspects
        p = row.p * (LEVELS * (level["group"].nunique() if suspect else len(level)))
        if p <= LEVEL:
            slow.append(Effect(name, *row._replace(p=p)))
    return slow
