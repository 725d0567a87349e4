"""Search for slow parts of a fleet, by class of tests.

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
from .reading import RunTables, Test

# Fewer parts than this have no middle that one of them does not move.
FEWEST = 4
GPU, LINK, NODE = "gpu", "link", "node"

# Classes of tests by the component that they stress, since a sick part is slow in one class only.
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
# Where to look for the cause in a slow class.
ADVICE = {
    MEMORY: "memory clock, ECC errors and remapped rows, temperature of the memory",
    HOST: "PCIe generation and width, the slot, NUMA placement, IOMMU",
    PEER: "the state and errors of its links (nvidia-smi nvlink -e, amd-smi xgmi), the switch's log",
    ARITHMETIC: "clocks under load, power limit, temperature, cooling",
    COLLECTIVES: "its GPUs and links one by one, topology and settings of the library",
    LATENCY: "CPU frequency governor, load of the host, driver settings",
    OTHER: "roofline doctor on the device",
}
ADVICE_FOR_CPU = ADVICE | {
    MEMORY: "other load, memory channels and their speed, NUMA placement",
    ARITHMETIC: "other load, frequency governor, clocks under load, cooling",
    COLLECTIVES: "other load, the network interface, settings of the library",
}


def class_of_test(test: Test, seconds: float) -> str:
    """Return the class of a test.

    It depends on the metric and the seconds per call on healthy parts.
    """
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


def cells_of(tables: RunTables, hardware: str) -> tuple[DataFrame, int]:
    """Return a row for each run, test and part.

    All are of one hardware. The number besides counts measurements over several nodes, which belong
    to no single one.

    The number besides is that of measurements over several nodes, which belong to no single one.

    Columns are `run`, `test`, `sort`, `part`, `node`, `first`, `second` (the GPUs of a link, as numbers of their node),
    `class`, `excess` (log seconds above the test's middle).
    """
    of_hardware = numpy.array([test.hardware == hardware for test in tables.tests], dtype=bool)
    rows = tables.fit[of_hardware[tables.fit["test"]]]
    on_one_node = (
        rows["hosts"]
        .astype(str)
        .map(lambda text: not text or len(json.loads(text)) < 2)
        .to_numpy(dtype=bool)
    )
    rows = rows[on_one_node]
    cells = (
        rows.assign(log=numpy.log(rows["seconds"]))
        .groupby(["run", "test", "device"], observed=True)["log"]
        .median()
        .reset_index()
    )
    _add_parts(cells, tables)
    cells["excess"] = cells["log"] - _middles(cells, tables.tests)
    cells = cells[cells["excess"].notna()]
    middle = cells.groupby("test")["log"].median()
    classes = {
        test: class_of_test(tables.tests[test], float(numpy.exp(middle[test])))
        for test in middle.index
    }
    return cells.assign(**{"class": cells["test"].map(classes)}), int((~on_one_node).sum())


def _add_parts(cells: DataFrame, tables: RunTables) -> None:
    """Add the part of each row: `node`, `sort`, `part`, `first`, `second`."""
    tests, runs = tables.tests, tables.runs.loc[cells["run"]]
    ends = numpy.array([_ends(test) for test in tests]).reshape(-1, 2)[cells["test"]]
    several = numpy.array([test.several for test in tests], dtype=bool)[cells["test"]]
    node, device = (runs[name].to_numpy(dtype=object) for name in ("node", "device"))
    # A CPU has no identity of its own, and the device of an imported run is unknown unless a measurement names it:
    # its node is the part.
    device = numpy.where(several | runs["imported"].to_numpy(dtype=bool), "", device)
    named_device = cells["device"].to_numpy(dtype=object)
    device = numpy.where(named_device == "", device, named_device)
    has_no_device = device == ""
    link = numpy.array(
        [f"{name} GPU {a} – GPU {b}" for name, (a, b) in zip(node, ends, strict=True)], dtype=object
    )
    cells["node"], (cells["first"], cells["second"]) = node, ends.T
    linked = cells["first"] >= 0
    cells["sort"] = numpy.where(linked, LINK, numpy.where(has_no_device, NODE, GPU))
    cells["part"] = numpy.where(linked, link, numpy.where(has_no_device, node, device))


def gpu_name(node: str, index: int) -> str:
    """Return the name of a GPU by its node and number.

    `identity_of` uses the same name.
    """
    return f"{node}:{index}"


def _ends(test: Test) -> tuple[int, int]:
    """Return the GPUs of a copy, the lower number first.

    Both are −1 for any other test.
    """
    source, target = (test.key.parameters.get(name) for name in ("source", "target"))
    if test.key.hardware.devices != 2 or not isinstance(source, int) or not isinstance(target, int):
        return -1, -1
    return min(source, target), max(source, target)


def _middles(cells: DataFrame, tests: tuple[Test, ...]) -> "Series[float]":
    """Return the middle that each row is compared with.

    It is not a number where fewer than four parts have one.
    """
    case_of_test = {number: case_of(test) for number, test in enumerate(tests)}
    in_matrix = cells["test"].map({number: is_in_matrix(test) for number, test in enumerate(tests)})
    by_part = cells.groupby(["test", "part"], sort=False)["log"].median().reset_index()

    def middle(of_part: "Series[str]", of_row: "Series[str]") -> "Series[float]":
        middles = by_part.groupby(of_part)["log"].agg(["median", "count"])
        return of_row.map(middles["median"].where(middles["count"] >= FEWEST)).astype(float)

    middle_of_test = middle(by_part["test"], cells["test"])
    return middle_of_test.where(
        middle_of_test.notna() | ~in_matrix.astype(bool),
        middle(by_part["test"].map(case_of_test), cells["test"].map(case_of_test)),
    )


def is_in_matrix(test: Test) -> bool:
    """Return True for a column or a pair of a matrix.

    Each device of such a case is a test of its own.
    """
    return test.placed or _ends(test) != (-1, -1)


def case_of(test: Test) -> str:
    """Return the identity that all tests of a matrix share.

    Any other test has one of its own.
    """
    key, in_matrix = test.key, is_in_matrix(test)
    parameters = {
        name: value
        for name, value in key.parameters.items()
        if not (in_matrix and name in ("source", "target", "gpu") and isinstance(value, int))
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


# The fewest links that characterise the GPU at their end.
FEWEST_LINKS = 3
# Nodes, GPUs, links.
LEVELS = 3
# A link has no clocks of its own: links of one class lie closer together than GPUs, by this share of their spread.
LINK_SHARE = 0.25
VALUES = ["part", "node", "excess", "count"]


@dataclass(frozen=True, slots=True)
class Effect:
    """Evidence that a part is slow in one class of tests.

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
    peers: int

    def covers(self, cells: DataFrame) -> "Series[bool]":
        """Return a mask of the cells of this part and class."""
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
    """The effects of all levels, and the smallest detectable ones."""

    effects: tuple[Effect, ...]
    judged: dict[tuple[str, str], set[str]]
    detectable: dict[str, float]


def levels_of(cells: DataFrame, smallest_size: float, device_spread: float) -> Levels:
    """Return the effects that exceed chance, level by level."""
    keys = ["sort", "class", "part", "node", "first", "second"]
    # The middle of a part's runs, test by test, and then of its tests.
    by_test = cells.groupby([*keys, "test"], sort=True)["excess"].median()
    parts = by_test.groupby(level=keys).median().reset_index()
    slow_gpus = _slow(_level(GPU, parts, device_spread), GPU, smallest_size, set())
    suspects = {(effect.node, effect.sort, effect.kind) for effect in slow_gpus}
    effects: list[Effect] = []
    judged_kinds: dict[tuple[str, str], set[str]] = {}
    detectable: dict[str, float] = {}
    for name in (NODE, GPU, LINK):
        level = _level(name, parts, device_spread)
        if level is None:
            continue
        judged_kinds |= {(name, part): set(kinds) for part, kinds in level.groupby("part")["kind"]}
        scales = level[["freedom", "spread"]].drop_duplicates().itertuples(index=False)
        confidence = 1 - LEVEL / (LEVELS * len(level))
        detectable[name] = max(
            smallest_size, *(quantile(confidence, freedom) * spread for freedom, spread in scales)
        )
        level_effects = _slow(level, name, smallest_size, suspects if name == NODE else set())
        effects += level_effects
        for effect in level_effects:
            parts.loc[effect.covers(parts), "excess"] -= effect.size
    return Levels(tuple(effects), judged_kinds, detectable)


def _level(name: str, parts: DataFrame, device_spread: float) -> DataFrame | None:
    """Return all parts of one level. Classes with fewer than four parts are left out.

    Each p is that of a single comparison.
    """
    classes: list[DataFrame] = []
    for (sort, kind), group in parts.groupby(["sort", "class"], sort=True):
        parts_of_class = _parts_at_level(name, str(sort), group)
        if len(parts_of_class) < FEWEST:
            continue
        # The middle of several lies closer to that of others than each of them.
        several = max(1.0, float(parts_of_class["count"].median()))
        assumed = (
            device_spread
            * (LINK_SHARE if sort == LINK else 1.0)
            * min(1.0, MEDIAN_ERROR / math.sqrt(several))
        )
        scale = scale_of(parts_of_class["excess"].to_numpy(), assumed)
        size = parts_of_class["excess"] - scale.centre
        facts = {
            "spread": scale.spread,
            "freedom": scale.freedom,
            "peers": len(parts_of_class),
            "sort": sort,
            "kind": kind,
        }
        classes.append(
            parts_of_class.assign(size=size, p=scale.p(size), group=len(classes), **facts)
        )
    return concat(classes, ignore_index=True) if classes else None


def _parts_at_level(name: str, sort: str, group: DataFrame) -> DataFrame:
    """Return the parts of one level from one sort and class.

    Columns: `part`, `node`, `excess`, `count`; no rows where the cells do not describe this level.
    """
    if name == NODE and sort != NODE:
        return _nodes(sort, group)
    if name == GPU and sort == LINK:
        return _gpus_of_links(group)
    return group.assign(count=1)[VALUES] if name == sort else group.iloc[:0].assign(count=0)[VALUES]


def _nodes(sort: str, group: DataFrame) -> DataFrame:
    """Return the excess that most parts of a node share.

    These are two thirds of its GPUs, or half of its links.
    """
    share = 0.5 if sort == LINK else 1 / 3
    by_node = group.groupby("node", sort=True)["excess"]
    nodes = by_node.agg(["median", "count"]).join(
        by_node.quantile(share, interpolation="lower").rename("low")
    )
    # A single GPU does not show whether it or its node is slow.
    nodes = nodes[nodes["count"] > 1].reset_index()
    excess = nodes["median"].where(nodes["low"] > nodes["median"] / 2, nodes["low"])
    return nodes.assign(part=nodes["node"], excess=excess)[VALUES]


def _gpus_of_links(group: DataFrame) -> DataFrame:
    """Return the middle of all links that end at a GPU."""
    ends = concat([group.assign(end=group[name]) for name in ("first", "second")])
    gpus = ends.groupby(["node", "end"])["excess"].agg(["median", "count"]).reset_index()
    gpus = gpus[gpus["count"] >= FEWEST_LINKS]
    names = [gpu_name(node, end) for node, end in zip(gpus["node"], gpus["end"], strict=True)]
    return gpus.rename(columns={"median": "excess"}).assign(part=names)[VALUES]


def _slow(
    level: DataFrame | None, name: str, smallest_size: float, suspects: set[tuple[str, str, str]]
) -> Sequence[Effect]:
    """Return the parts that are slow.

    A p counts for every part and class, and for every level.
    """
    if level is None:
        return []
    candidates = level[level["size"] > smallest_size]
    certain_parts = set(candidates["part"][candidates["p"] * LEVELS * len(level) <= LEVEL])
    columns = ["part", "node", "sort", "kind", "size", "p", "spread", "peers"]
    slow = []
    for row in candidates[columns].itertuples(index=False):
        suspect = row.part in certain_parts or (row.node, row.sort, row.kind) in suspects
        p = row.p * (LEVELS * (level["group"].nunique() if suspect else len(level)))
        if p <= LEVEL:
            slow.append(Effect(name, *row._replace(p=p)))
    return slow
