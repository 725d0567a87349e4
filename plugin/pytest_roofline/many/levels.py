"""Search for slow parts of a fleet, by class of tests.

A part is what a measurement was on: a GPU, a pair of GPUs, or a node as a whole. A cell is the log median of a test on
a part, and the excess of the part is its distance from the middle of the test. The middle is the median over all parts
of one sort, so that a few sick parts do not move it. Nodes are searched first, then GPUs, then links, each without the
excess that a level above explains.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy
from pandas import DataFrame, Series, concat

from ..core.keys import canonical
from ..core.work import rate_suffix
from ..stats.outliers import LEVEL, MEDIAN_ERROR, scale_of
from ..stats.stats import quantile
from .files import Test, is_over_several
from .reading import RunTables

# The median of fewer parts is moved by a single one.
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
# The start of a call takes about 5 to 10 µs on any accelerator, so that shorter calls show no bandwidth.
SHORT_S = 50e-6
# The places to look for the cause, by class.
ADVICE = {
    MEMORY: "memory clock, ECC errors and remapped rows, temperature of the memory",
    HOST: "PCIe generation and width, the slot, NUMA placement, IOMMU",
    PEER: "state and errors of the links (nvidia-smi nvlink -e, amd-smi xgmi), log of the switch",
    ARITHMETIC: "clocks under load, power limit, temperature, cooling",
    COLLECTIVES: "each GPU and link by itself, the topology, the settings of NCCL or RCCL",
    LATENCY: "CPU frequency governor, load of the host, driver settings",
    OTHER: "roofline doctor on the device",
}
ADVICE_FOR_CPU = ADVICE | {
    MEMORY: "other load, memory channels and their speed, NUMA placement",
    ARITHMETIC: "other load, frequency governor, clocks under load, cooling",
    COLLECTIVES: "other load, the network interface, settings of the library",
}


def class_of_test(test: Test, seconds: float) -> str:
    """Return the class of a test: the component that it stresses.

    It depends on the metric, and on the seconds of a call on a typical part.
    """
    suffix = rate_suffix(test.key.metric)
    # A metric that is no rate does not tell what the time goes into.
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
    # A single device moves bytes over a wire only to or from its host.
    return HOST if test.work.wire_bytes else MEMORY


def cells_of(tables: RunTables, hardware: str) -> tuple[DataFrame, int]:
    """Return the cells of one hardware, then a number.

    There is a row for each run, test and part. A cell is the median time of a test on a part: a GPU, a pair of GPUs, or
    a node as a whole.

    The number is that of the measurements over several nodes, which belong to no single node and are left out.

    Columns are `run`, `test`, `sort`, `part`, `node`, `first`, `second` (the GPUs of a link, as numbers of their node),
    `class`, `excess` (log seconds above the test's middle).
    """
    of_hardware = numpy.array([test.hardware == hardware for test in tables.tests], dtype=bool)
    rows = tables.fit
    rows = rows[of_hardware[rows["test"]]]
    # A categorical column asks once for each of its texts.
    on_one_node = rows["hosts"].map(lambda hosts: not is_over_several(hosts)).to_numpy(dtype=bool)
    rows = rows[on_one_node]
    cells = (
        rows.assign(log=numpy.log(rows["seconds"]))
        .groupby(["run", "test", "device"], observed=True)["log"]
        .median()
        .reset_index()
    )
    _add_parts(cells, tables)
    cells["excess"] = cells["log"] - _middles(cells, tables.tests)
    # A cell without a middle has too few parts to be compared with.
    cells = cells[cells["excess"].notna()]
    middle = cells.groupby("test")["log"].median()
    classes = {
        test: class_of_test(tables.tests[test], float(numpy.exp(middle[test])))
        for test in middle.index
    }
    left_out_count = int((~on_one_node).sum())
    return cells.assign(**{"class": cells["test"].map(classes)}), left_out_count


def _add_parts(cells: DataFrame, tables: RunTables) -> None:
    """Add the columns that tell the part of each row.

    They are `node`, `sort`, `part`, `first`, `second`.
    """
    tests, runs = tables.tests, tables.runs.loc[cells["run"]]
    # Both ends are −1 where the test is no copy between two GPUs.
    ends = numpy.array([_ends(test) for test in tests]).reshape(-1, 2)[cells["test"]]
    several = numpy.array([test.several for test in tests], dtype=bool)[cells["test"]]
    node, device = (runs[name].to_numpy(dtype=object) for name in ("node", "device"))
    # A CPU has no identity. The device of an imported run, or of a test over several, is unknown unless the measurement
    # names it. In these cases the node is the part.
    device = numpy.where(several | runs["imported"].to_numpy(dtype=bool), "", device)
    named_device = cells["device"].to_numpy(dtype=object)
    device = numpy.where(named_device == "", device, named_device)
    has_no_device = device == ""
    cells["node"], (cells["first"], cells["second"]) = node, ends.T
    is_link = ends[:, 0] >= 0
    part = numpy.where(has_no_device, node, device)
    part[is_link] = [
        f"{name} GPU {a} – GPU {b}"
        for name, (a, b) in zip(node[is_link], ends[is_link], strict=True)
    ]
    cells["sort"] = numpy.where(is_link, LINK, numpy.where(has_no_device, NODE, GPU))
    cells["part"] = part


def gpu_name(node: str, index: int) -> str:
    """Return the name of a GPU by its node and number.

    It is the identity that `identity_of` gives a GPU without a UUID.
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
    """Return the middle that each row is compared with, in log seconds.

    It is the median over the parts of the row's test. For a test of a matrix that too few parts
    measured, it is the median over the whole matrix. It is NaN where this has fewer than four parts,
    too.
    """
    case_of_test = {number: case_of(test) for number, test in enumerate(tests)}
    in_matrix = cells["test"].map({number: is_in_matrix(test) for number, test in enumerate(tests)})
    by_part = cells.groupby(["test", "part"], sort=False)["log"].median().reset_index()

    def middle(group_of_part: "Series[str]", group_of_row: "Series[str]") -> "Series[float]":
        """Return for each row the median over the parts of its group.

        It is NaN of a group with too few parts.
        """
        middles = by_part.groupby(group_of_part)["log"].agg(["median", "count"])
        return group_of_row.map(middles["median"].where(middles["count"] >= FEWEST)).astype(float)

    middle_of_test = middle(by_part["test"], cells["test"])
    # In a matrix each part has a test of its own, so only the whole matrix has enough parts to compare with.
    return middle_of_test.where(
        middle_of_test.notna() | ~in_matrix.astype(bool),
        middle(by_part["test"].map(case_of_test), cells["test"].map(case_of_test)),
    )


def is_in_matrix(test: Test) -> bool:
    """Return True for a test that is one entry of a matrix of devices.

    There each device, or each pair of them, is a separate test.
    """
    return test.placed or _ends(test) != (-1, -1)


def case_of(test: Test) -> str:
    """Return the identity that all tests of a matrix share.

    For any other test it is unique.
    """
    key, in_matrix = test.key, is_in_matrix(test)

    def names_device(name: str, value: object) -> bool:
        return in_matrix and name in ("source", "target", "gpu") and isinstance(value, int)

    parameters = {
        name: value for name, value in key.parameters.items() if not names_device(name, value)
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


# A GPU is judged by its links if there are so many.
FEWEST_LINKS = 3
# Nodes, GPUs, links.
LEVELS = 3
# The spread between links of one class, as a share of that between GPUs: links have no clocks that differ.
LINK_SHARE = 0.25
# The columns of `_parts_at_level`.
VALUES = ["part", "node", "excess", "count"]


@dataclass(frozen=True, slots=True)
class Effect:
    """Evidence that a part is slow in one class of tests.

    Args:
        part: its name. A GPU that is judged by its links is named by `gpu_name`.
        sort: the sort of the cells that show it: `gpu`, `link` or `node`.
        kind: the class of tests.
        size: log seconds above the middle, without the part that a higher level explains.
        p: corrected for all parts, classes and levels.
        spread: that between the parts of this level and class, in log seconds.
        peers: how many such parts there are.
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
        """Return a mask of the cells that show this effect.

        A cell's `sort` is the kind of part that its test ran on (GPU, link or node); its `class` is the component that
        the test stresses, here `kind`. The slow part, of `level`, may be of another sort: a slow node shows in the
        cells of its GPUs, and a slow GPU in those of its links.

        Args:
            cells: a row for each test and part, as `cells_of` returns them, or with the median over tests.
        """
        on_node = cells["node"] == self.node
        of_class = on_node & (cells["sort"] == self.sort) & (cells["class"] == self.kind)
        # All parts of this sort on a slow node are covered.
        if self.level == NODE:
            return of_class
        if self.level == LINK or self.sort == GPU:
            return of_class & (cells["part"] == self.part)
        # A GPU that its links show: all links that end at it.
        first, second = (
            cells[end].map(lambda index: gpu_name(self.node, index)) == self.part
            for end in ("first", "second")
        )
        return of_class & (first | second)


@dataclass(frozen=True, slots=True)
class Levels:
    """The effects of all levels.

    Args:
        judged: the classes in which a part was judged, by level and part.
        detectable: the smallest size that would be found, by level, in log seconds.
    """

    effects: tuple[Effect, ...]
    judged: dict[tuple[str, str], set[str]]
    detectable: dict[str, float]


def levels_of(cells: DataFrame, smallest_size: float, device_spread: float) -> Levels:
    """Return the effects that exceed chance, level by level.

    Args:
        cells: of one hardware, as `cells_of` returns them.
        smallest_size: the smallest effect to report, in log seconds.
        device_spread: the assumed spread between devices, in log seconds.
    """
    keys = ["sort", "class", "part", "node", "first", "second"]
    # The excess of a part in a class: the median over its tests of the median over its runs.
    by_test = cells.groupby([*keys, "test"], sort=True)["excess"].median()
    parts = by_test.groupby(level=keys).median().reset_index()
    # Nodes with a slow GPU are suspects: `_slow` asks for less evidence against them.
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
        # One scale for each class: an effect is detectable at this level if it would be found in the noisiest class.
        scales = level[["freedom", "spread"]].drop_duplicates().itertuples(index=False)
        confidence = 1 - LEVEL / (LEVELS * len(level))
        detectable[name] = max(
            smallest_size, *(quantile(confidence, freedom) * spread for freedom, spread in scales)
        )
        level_effects = _slow(level, name, smallest_size, suspects if name == NODE else set())
        effects += level_effects
        # Lower levels are searched without the slowness that a higher level explains.
        for effect in level_effects:
            parts.loc[effect.covers(parts), "excess"] -= effect.size
    return Levels(tuple(effects), judged_kinds, detectable)


def _level(name: str, parts: DataFrame, device_spread: float) -> DataFrame | None:
    """Return the parts of one level with size and p of their slowness.

    A row is a part and a class of tests. `name` is that of the level; `parts` holds the excess of each part by sort and
    class. Classes with fewer than four parts are left out; None if there are no others. `p` is not corrected for the
    number of comparisons.
    """
    classes: list[DataFrame] = []
    for (sort, kind), group in parts.groupby(["sort", "class"], sort=True):
        parts_of_class = _parts_at_level(name, str(sort), group)
        if len(parts_of_class) < FEWEST:
            continue
        # A node or a GPU is the median of several GPUs or links, which varies less than each of them.
        typical_count = max(1.0, float(parts_of_class["count"].median()))
        assumed = (
            device_spread
            * (LINK_SHARE if sort == LINK else 1.0)
            * min(1.0, MEDIAN_ERROR / math.sqrt(typical_count))
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
    """Return the parts of one level.

    The cells of one sort and class show them. Columns: `part`, `node`, `excess`, and `count`, the number of cells
    behind it. There are no rows where cells of this sort do not describe the level.
    """
    if name == NODE and sort != NODE:
        return _nodes(sort, group)
    if name == GPU and sort == LINK:
        return _gpus_of_links(group)
    if name == sort:
        return group.assign(count=1)[VALUES]
    return group.iloc[:0].assign(count=0)[VALUES]


def _nodes(sort: str, group: DataFrame) -> DataFrame:
    """Return the excess that most parts of a node share.

    Most means two thirds of its GPUs, or half of its links. Where these agree with the median of
    all, the excess is that median; otherwise it is what the least of them shows.
    """
    # At least two thirds of the GPUs lie above the lowest third.
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
    """Return the median excess of all links that end at a GPU."""
    ends = concat([group.assign(end=group[name]) for name in ("first", "second")])
    gpus = ends.groupby(["node", "end"])["excess"].agg(["median", "count"]).reset_index()
    gpus = gpus[gpus["count"] >= FEWEST_LINKS]
    names = [gpu_name(node, end) for node, end in zip(gpus["node"], gpus["end"], strict=True)]
    return gpus.rename(columns={"median": "excess"}).assign(part=names)[VALUES]


def _slow(
    level: DataFrame | None, name: str, smallest_size: float, suspects: set[tuple[str, str, str]]
) -> Sequence[Effect]:
    """Return the parts of one level that are slow; none without the level.

    `name` is that of the level, and `suspects` are the nodes, sorts and classes with a slow GPU. A p is corrected for
    all parts and classes, and for all levels. For a suspect, and for a part that is surely slow in another class, it is
    corrected for the classes and levels only: such a part was not picked from all parts by chance.
    """
    if level is None:
        return []
    candidates = level[level["size"] > smallest_size]
    comparison_count = LEVELS * len(level)
    certain_parts = set(candidates["part"][candidates["p"] * comparison_count <= LEVEL])
    columns = ["part", "node", "sort", "kind", "size", "p", "spread", "peers"]
    slow = []
    for row in candidates[columns].itertuples(index=False):
        is_suspect = row.part in certain_parts or (row.node, row.sort, row.kind) in suspects
        class_count = level["group"].nunique()
        p = row.p * (LEVELS * class_count if is_suspect else comparison_count)
        if p <= LEVEL:
            # The columns are in the order of the fields of an effect.
            slow.append(Effect(name, *row._replace(p=p)))
    return slow
