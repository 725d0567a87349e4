"""Cells of a fleet: for every test and every part that ran it, how much slower than the middle of all others.

A part is what a measurement was on: a GPU, a pair of GPUs, or a node as a whole. Log medians are split as test + part:
the test's is the median over the parts of one sort, so that a few sick parts do not move it.
"""

import json
from typing import TYPE_CHECKING

from ..core.keys import canonical
from ..core.work import rate_suffix
from .reading import Many, Test

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# Fewer parts than this have no middle that one of them does not move.
FEWEST = 4
GPU, LINK, NODE = "gpu", "link", "node"

# Classes of tests by what they stress, since a part that is sick is slow in one class and not in the others.
MEMORY, HOST, PEER, ARITHMETIC, COLLECTIVES = "memory", "host link", "peer link", "arithmetic", "collectives"
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


def cells_of(many: Many, hardware: str) -> tuple["DataFrame", int]:
    """A row for each run, test and part of one hardware, and how many measurements over several nodes tell of none.

    Columns are `run`, `test`, `sort`, `part`, `node`, `first`, `second` (the GPUs of a link, as numbers of their node),
    `class`, `excess` (log seconds above the test's middle).
    """
    import numpy

    mine = numpy.array([test.hardware == hardware for test in many.tests], dtype=bool)
    rows = many.fit[mine[many.fit["test"]]]
    alone = rows["hosts"].astype(str).map(lambda text: not text or len(json.loads(text)) < 2).to_numpy(dtype=bool)
    rows = rows[alone]
    cells = rows.assign(log=numpy.log(rows["seconds"])).groupby(["run", "test"])["log"].median().reset_index()
    for name in ("node", "device"):
        cells[name] = many.runs[name].to_numpy(dtype=object)[cells["run"]]
    _place(cells, many.tests)
    cells["excess"] = cells["log"] - _middles(cells, many.tests)
    cells = cells[cells["excess"].notna()]
    middle = cells.groupby("test")["log"].median()
    classes = {test: class_of_test(many.tests[test], float(numpy.exp(middle[test]))) for test in middle.index}
    return cells.assign(**{"class": cells["test"].map(classes)}), int((~alone).sum())


def _place(cells: "DataFrame", tests: tuple[Test, ...]) -> None:
    """Say of each row what it is of: `sort`, `part`, `first`, `second`."""
    import numpy

    ends = numpy.array([_ends(test) for test in tests]).reshape(-1, 2)[cells["test"]]
    several = numpy.array([test.several for test in tests], dtype=bool)[cells["test"]]
    node, device = cells["node"].to_numpy(dtype=object), cells["device"].to_numpy(dtype=object)
    # A CPU has no identity of its own: its node is the part.
    whole = several | (device == "")
    link = numpy.array([link_name(name, a, b) for name, (a, b) in zip(node, ends, strict=True)], dtype=object)
    cells["first"], cells["second"] = ends.T
    linked = cells["first"] >= 0
    cells["sort"] = numpy.where(linked, LINK, numpy.where(whole, NODE, GPU))
    cells["part"] = numpy.where(linked, link, numpy.where(whole, node, device))


def link_name(node: str, first: int, second: int) -> str:
    """A pair of GPUs of a node."""
    return f"{node} GPU {first} – GPU {second}"


def gpu_name(node: str, index: int) -> str:
    """A GPU of a node, where nothing but its number is known."""
    return f"{node} GPU {index}"


def _ends(test: Test) -> tuple[int, int]:
    """The GPUs of a copy between two, the lower number first; −1 of any other test."""
    source, target = (test.key.parameters.get(name) for name in ("source", "target"))
    if test.key.hardware.devices != 2 or not isinstance(source, int) or not isinstance(target, int):
        return -1, -1
    return min(source, target), max(source, target)


def _middles(cells: "DataFrame", tests: tuple[Test, ...]) -> "Series[float]":
    """Of each row the middle of what it compares with, not a number where that is of fewer than four parts.

    A link is compared with the same two places in other nodes, since places differ in a node; of few nodes, with all
    links of its class.
    """
    wider = {number: _without_ends(test) for number, test in enumerate(tests)}
    by_part = cells.groupby(["test", "part"], sort=False)["log"].median().reset_index()

    def middle(of_part: "Series[str]", of_row: "Series[str]") -> "Series[float]":
        told = by_part.groupby(of_part)["log"].agg(["median", "count"])
        return of_row.map(told["median"].where(told["count"] >= FEWEST)).astype(float)

    same = middle(by_part["test"], cells["test"])
    return same.where(
        same.notna() | (cells["sort"] != LINK), middle(by_part["test"].map(wider), cells["test"].map(wider))
    )


def _without_ends(test: Test) -> str:
    parameters = {name: value for name, value in test.key.parameters.items() if name not in ("source", "target")}
    key = test.key
    facts = (key.benchmark, key.name, key.metric, str(key.hardware), key.cache, key.timing, *test.achieved)
    return canonical(parameters) + "|".join(facts)
