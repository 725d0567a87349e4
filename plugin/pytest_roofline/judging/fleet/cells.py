"""Cells of a fleet: for every test and every part that ran it, how much slower than the middle of all others.

A part is what a measurement was on: a GPU, a pair of GPUs, or a node as a whole. Log medians are split as test + part:
the test's is the median over the parts of one sort, so that a few sick parts do not move it.
"""

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...core.keys import canonical
from ..many import Many, Test
from .classes import class_of_test

if TYPE_CHECKING:
    from pandas import DataFrame, Series

# Fewer parts than this have no middle that one of them does not move.
FEWEST = 4
GPU, LINK, NODE = "gpu", "link", "node"


@dataclass(frozen=True, slots=True)
class Cells:
    """What parts of one hardware took.

    Args:
        runs: a row for each run, test and part: `run`, `test`, `sort`, `part`, `node`, `first`, `second` (the GPUs of
            a link, as numbers of their node), `class`, `excess` (log seconds above the test's middle).
        cells: the same, of all runs together: `excess` is the median; `count` how many runs.
        several_nodes: runs of tests over several nodes, which tell of no single one.
    """

    runs: "DataFrame"
    cells: "DataFrame"
    several_nodes: int


def cells_of(many: Many, hardware: str) -> Cells:
    """The cells of one hardware."""
    import numpy
    from pandas import DataFrame

    mine = numpy.array([test.hardware == hardware for test in many.tests], dtype=bool)
    rows = many.fit[mine[many.fit["test"]]]
    hosts = rows["hosts"].astype(str)
    alone = hosts.map({text: len(_hosts(text)) < 2 for text in hosts.unique()}).to_numpy(dtype=bool)
    rows = rows[alone]
    logs = DataFrame({"run": rows["run"], "test": rows["test"], "log": numpy.log(rows["seconds"])})
    found = logs.groupby(["run", "test"], sort=True)["log"].median().reset_index()
    for name in ("node", "device"):
        found[name] = many.runs[name].to_numpy(dtype=object)[found["run"]]
    _place(found, many.tests)
    found["excess"] = found["log"] - _middles(found, many.tests)
    found = found[found["excess"].notna()]
    middle = found.groupby("test")["log"].median()
    classes = {test: class_of_test(many.tests[test], float(numpy.exp(middle[test]))) for test in middle.index}
    found["class"] = found["test"].map(classes)
    return Cells(found, _summed(found), int((~alone).sum()))


def _hosts(text: str) -> list[str]:
    return list(json.loads(text)) if text else []


def _place(found: "DataFrame", tests: tuple[Test, ...]) -> None:
    """Say of each row what it is of: `sort`, `part`, `first`, `second`."""
    import numpy

    ends = [_ends(test) for test in tests]
    first = numpy.array([end[0] if end else -1 for end in ends])[found["test"]]
    second = numpy.array([end[1] if end else -1 for end in ends])[found["test"]]
    several = numpy.array([test.several for test in tests], dtype=bool)[found["test"]]
    node, device = found["node"].to_numpy(dtype=object), found["device"].to_numpy(dtype=object)
    # A CPU has no identity of its own: its node is the part.
    whole = several | (device == "")
    link = [f"{name} GPU {a} – GPU {b}" for name, a, b in zip(node, first, second, strict=True)]
    found["sort"] = numpy.where(first >= 0, LINK, numpy.where(whole, NODE, GPU))
    found["part"] = numpy.where(first >= 0, numpy.array(link, dtype=object), numpy.where(whole, node, device))
    found["first"], found["second"] = first, second


def _ends(test: Test) -> tuple[int, int] | None:
    """The GPUs of a copy between two, the lower number first; None of any other test."""
    source, target = (test.key.parameters.get(name) for name in ("source", "target"))
    if test.key.hardware.devices != 2 or not isinstance(source, int) or not isinstance(target, int):
        return None
    return min(source, target), max(source, target)


def _middles(found: "DataFrame", tests: tuple[Test, ...]) -> "Series[Any]":
    """Of each row the middle of what it compares with, not a number where that is of fewer than four parts.

    A link is compared with the same two places in other nodes, since places differ in a node; of few nodes, with all
    links of its class.
    """
    import numpy

    own = found.groupby(["test", "part"], sort=False)["log"].median().reset_index()
    by_test = own.groupby("test")["log"].agg(["median", "count"])
    middle = found["test"].map(by_test["median"].where(by_test["count"] >= FEWEST))
    links = found["sort"] == LINK
    if bool((links & middle.isna()).any()):
        classes = {number: _without_ends(test) for number, test in enumerate(tests)}
        wider = found["test"].map(classes)
        of_class = own.groupby(own["test"].map(classes))["log"].agg(["median", "count"])
        other = wider.map(of_class["median"].where(of_class["count"] >= FEWEST))
        middle = middle.where(~(links & middle.isna()), other)
    return middle.astype(numpy.float64)


def _without_ends(test: Test) -> str:
    parameters = {name: value for name, value in test.key.parameters.items() if name not in ("source", "target")}
    key = test.key
    facts = (key.benchmark, key.name, key.metric, str(key.hardware), key.cache, key.timing, *test.achieved)
    return canonical(parameters) + "|".join(facts)


def _summed(found: "DataFrame") -> "DataFrame":
    """One row for each test and part: the median over its runs, and how many."""
    keys = ["sort", "part", "node", "first", "second", "class", "test"]
    grouped = found.groupby(keys, sort=True)["excess"]
    return grouped.agg(["median", "count"]).rename(columns={"median": "excess"}).reset_index()
