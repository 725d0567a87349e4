"""Search for the slow nodes, GPUs and links of a fleet.

A node is slow where most of its GPUs are; a GPU is slow where most of its tests of a class, or most of its links, are.
The slowness of a higher level is removed before a lower level is searched: eight slow GPUs of a slow node are one
finding.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pandas import DataFrame

from ..baselines.test_texts import environment_of
from ..core.facts import fact_text
from ..core.groups import group_by
from ..stats.outliers import MEDIAN_ERROR, median_deviation
from ..stats.spread import class_of, priors
from ..stats.stats import growth, quantile
from .incomplete import IncompleteNode, incomplete_nodes
from .levels import (
    ADVICE,
    ADVICE_FOR_CPU,
    FEWEST,
    GPU,
    HOST,
    LINK,
    Effect,
    Levels,
    case_of,
    cells_of,
    gpu_name,
    is_in_matrix,
    levels_of,
)
from .nodes import SilentNode
from .reading import RunTables


@dataclass(frozen=True, slots=True)
class SlowClass:
    """A class of tests in which a part is slow.

    Args:
        kind: the name of the class.
        change: the slowdown, as a share of time, with its 95 % interval from `change_low` to `change_high`.
        tests: the labels of its tests, the slowest first.
    """

    kind: str
    change: float
    change_low: float
    change_high: float
    p: float
    tests: tuple[str, ...]
    runs: int

    @property
    def steady(self) -> bool:
        """True if the part is slow in all of its runs, and not only sometimes.

        A single run shows no more.
        """
        return self.change_low > 0 or self.runs == 1


@dataclass(frozen=True, slots=True)
class SlowPart:
    """A part that is slower than its peers.

    Args:
        level: `node`, `gpu` or `link`.
        change: the largest slowdown of its classes, as a share of time.
        slow: the classes of tests in which it is slow; `fine` names those in which it is not.
        differs: the facts of its environment that differ from those of most peers.
        look_at: where to look for the cause.
    """

    level: str
    part: str
    node: str
    hardware: str
    change: float
    slow: tuple[SlowClass, ...]
    fine: tuple[str, ...]
    differs: tuple[str, ...]
    look_at: str


@dataclass(frozen=True, slots=True)
class HardwareCount:
    """Numbers of the machines, tests and runs of one hardware.

    `unplaced` counts the imported runs that name no GPU or link of a test on one.
    """

    hardware: str
    nodes: int
    devices: int
    links: int
    tests: int
    runs: int
    judged: bool
    unplaced: int = 0
    detectable: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fleet:
    """The slow parts of a fleet, worst first, and the counts of each hardware.

    `over_several_nodes` is the number of measurements that belong to no single node, `silent` the nodes of the user's
    list that gave less than the others.
    """

    findings: tuple[SlowPart, ...]
    hardware: tuple[HardwareCount, ...]
    over_several_nodes: int
    incomplete: tuple[IncompleteNode, ...] = ()
    silent: tuple[SilentNode, ...] = ()


def fleet(tables: RunTables, smallest_slowdown: float = 0.05) -> Fleet:
    """Return the nodes, GPUs and links that are slower than their peers.

    Peers have the same hardware.
    """
    findings: list[SlowPart] = []
    counts = []
    several_nodes = 0
    cells_by_hardware = {}
    for hardware in sorted({test.hardware for test in tables.tests}):
        cells, skipped_count = cells_of(tables, hardware)
        several_nodes += skipped_count
        cells_by_hardware[hardware] = cells
        # Without cells too few parts ran the same tests, and nothing can be judged.
        detectable: dict[str, float] = {}
        if len(cells):
            search = _Search(tables, hardware, cells, math.log1p(smallest_slowdown))
            findings += search.findings()
            detectable = search.levels.detectable
        counts.append(_hardware_count(tables, hardware, cells, detectable))
    findings.sort(key=lambda finding: (-finding.change, finding.part))
    incomplete = incomplete_nodes(tables, cells_by_hardware)
    return Fleet(tuple(findings), tuple(counts), several_nodes, incomplete)


def _hardware_count(
    tables: RunTables, hardware: str, cells: DataFrame, detectable: dict[str, float]
) -> HardwareCount:
    """Return the numbers of one hardware's parts, tests and runs.

    Parts that cannot be judged are counted, too.
    """
    tests = {number: test for number, test in enumerate(tables.tests) if test.hardware == hardware}
    rows = tables.fit[tables.fit["test"].isin(list(tests))]
    runs = tables.runs.loc[rows["run"].unique()]
    devices = {*runs["device"][~runs["imported"]], *rows["device"]} - {""}
    # Tests on one or two GPUs that neither their key nor their measurements name.
    unplaced_tests = [
        number
        for number, test in tests.items()
        if (test.key.hardware.devices or 1) <= 2 and not is_in_matrix(test)
    ]
    imported_runs = runs.index[runs["imported"] & (runs["type"] != "cpu")]
    is_unplaced = rows["test"].isin(unplaced_tests) & rows["run"].isin(imported_runs)
    return HardwareCount(
        hardware,
        nodes=runs["node"].nunique(),
        devices=len(devices),
        links=cells["part"][cells["sort"] == LINK].nunique(),
        tests=len({case_of(tests[number]) for number in rows["test"].unique()}),
        runs=len(runs),
        judged=bool(len(cells)),
        unplaced=rows["run"][is_unplaced].nunique(),
        detectable={level: growth(size) for level, size in detectable.items()},
    )


class _Search:
    """Search for the slow parts of one hardware."""

    def __init__(
        self, tables: RunTables, hardware: str, cells: DataFrame, smallest_size: float
    ) -> None:
        """Search the cells of one hardware.

        `smallest_size` is the smallest slowdown to report, in log seconds.
        """
        self.tables, self.hardware, self.cells = tables, hardware, cells
        # All runs of one hardware are of one type of device.
        kind = str(tables.runs["type"][int(cells["run"].iloc[0])])
        self.advice = ADVICE_FOR_CPU if kind == "cpu" else ADVICE
        self.levels: Levels = levels_of(cells, smallest_size, priors()[class_of(kind)].device)

    def findings(self) -> Iterator[SlowPart]:
        """Yield each slow part once.

        It has all classes of tests in which it is slow.
        """
        identities = _identities(self.tables)

        def part_of(effect: Effect) -> tuple[str, str]:
            # A GPU that its links show is named by its node and number there.
            return effect.level, identities.get(effect.part, effect.part)

        for (level, part), effects in group_by(self.levels.effects, part_of).items():
            yield self._finding(level, part, sorted(effects, key=lambda effect: -effect.size))

    def _finding(self, level: str, part: str, effects: Sequence[Effect]) -> SlowPart:
        """Return a slow part from its effects, of which the largest comes first."""
        largest = effects[0]
        kinds = [effect.kind for effect in effects]
        # A GPU is named by its identity, and by its node and number where only its links show it.
        aliases = {part, *(effect.part for effect in effects)}
        judged_kinds = set().union(
            *(self.levels.judged.get((level, alias), set()) for alias in aliases)
        )
        return SlowPart(
            # A GPU that is slow only over the link to its host has a slow link.
            level=LINK if level == GPU and set(kinds) == {HOST} else level,
            part=part,
            node=largest.node,
            hardware=self.hardware,
            change=growth(largest.size),
            slow=tuple(map(self._slow_class, effects)),
            fine=tuple(sorted(judged_kinds - set(kinds))),
            differs=_differing_facts(self.tables, part, largest.node, level),
            look_at="; ".join(self.advice[kind] for kind in kinds),
        )

    def _slow_class(self, effect: Effect) -> SlowClass:
        """Return an effect with its 95 % interval and the tests behind it."""
        rows = self.cells[effect.covers(self.cells)]
        by_run = rows.groupby(["run", "part"])["excess"].median()
        count = len(by_run)
        # A single run does not show how runs differ: the spread between parts stands in for it.
        spread = median_deviation(by_run.to_numpy()) if count > 1 else effect.spread
        # The error of the part's median over its runs, and that of the median of its peers.
        error = MEDIAN_ERROR * math.hypot(
            spread / math.sqrt(count), effect.spread / math.sqrt(effect.peers)
        )
        half = quantile(0.975, max(1, count - 1)) * error
        tests = (
            rows.groupby("test")["excess"]
            .median()
            .sort_values(ascending=False, kind="stable")
            .index
        )
        labels = tuple(dict.fromkeys(self.tables.tests[int(number)].label for number in tests))
        change, low, high = (growth(effect.size + side * half) for side in (0, -1, 1))
        return SlowClass(
            kind=effect.kind,
            change=change,
            change_low=low,
            change_high=high,
            p=min(1.0, effect.p),
            tests=labels,
            runs=rows["run"].nunique(),
        )


def _identities(tables: RunTables) -> dict[str, str]:
    """Return the identity of each GPU by node and number.

    Both are in the name that `gpu_name` makes. A test of copies between GPUs names nothing else. GPUs of a node are
    left out if two of them have one number.
    """
    names = {}
    # The runs that this tool measured: imported logs tell no identity.
    native = tables.runs[~tables.runs["imported"]][["node", "index", "device"]]
    for node, pairs in native.drop_duplicates().groupby("node"):
        if pairs["index"].is_unique and pairs["device"].is_unique:
            identities = zip(pairs["index"], pairs["device"], strict=True)
            names.update(
                {gpu_name(str(node), int(index)): device for index, device in identities if device}
            )
    return names


def _differing_facts(tables: RunTables, part: str, node: str, level: str) -> tuple[str, ...]:
    """Return the facts in which a part's environment differs from the usual one.

    The last run of the part is compared with the last runs of devices on other nodes.
    """
    last_runs = tables.runs.drop_duplicates(["node", "device"], keep="last")
    on_node = last_runs["node"] == node
    is_part = last_runs["device"] == part
    # Of a GPU its own run, where one names it; of a node, of a link and of a CPU those of the node.
    part_runs = last_runs[is_part if level == GPU and is_part.any() else on_node]
    peer_runs = last_runs[~on_node]
    if not len(part_runs) or len(peer_runs) < FEWEST:
        return ()
    facts = environment_of(part_runs["environment"].iloc[-1]).everything()
    return tuple(
        f"{name} {fact_text(facts, name)} (others {value})"
        for name, value in _usual_facts(peer_runs["environment"]).items()
        if fact_text(facts, name) != value
    )


def _usual_facts(environments: Iterable[str]) -> dict[str, str]:
    """Return the facts that at least three quarters of the environments share."""
    facts = [environment_of(text).everything() for text in environments]
    usual = {}
    for name in dict.fromkeys(name for environment in facts for name in environment):
        counts = Counter(fact_text(environment, name) for environment in facts)
        ((value, count),) = counts.most_common(1)
        if count >= 0.75 * len(facts):
            usual[name] = value
    return usual
