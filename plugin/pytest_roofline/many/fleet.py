"""Which node, GPU or link of a fleet is slower than its peers, each once, with how much, how surely, what to look at.

A node is slow where most of its GPUs are, a GPU where most of the tests of a class or most of its links are. What a
higher level explains is taken out before a lower one is looked at: eight slow GPUs of a slow node are one finding.
"""

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from pandas import DataFrame

from ..core.facts import known_of
from ..core.groups import grouped
from ..stats.outliers import MEDIAN_ERROR
from ..stats.spread import class_of, priors
from ..stats.stats import growth, quantile
from .incomplete import IncompleteNode, incomplete_nodes
from .levels import (
    FEWEST,
    GPU,
    HOST,
    LINK,
    LOOK,
    LOOK_AT_CPU,
    Effect,
    Levels,
    case_of,
    cells_of,
    gpu_name,
    is_apart,
    levels_of,
)
from .reading import Many


@dataclass(frozen=True, slots=True)
class SlowClass:
    """A class of tests in which a part is slow."""

    kind: str
    change: float
    change_low: float
    change_high: float
    p: float
    tests: tuple[str, ...]
    runs: int

    @property
    def steady(self) -> bool:
        """Whether it is so in nearly all of its runs."""
        return self.change_low > 0


@dataclass(frozen=True, slots=True)
class SlowPart:
    """A part that is slower than its peers."""

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
    """How much there is of one hardware; `unplaced` are imported runs that name no GPU or link of a test on one."""

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
    """What is slow in a fleet, worst first, and what was looked at."""

    findings: tuple[SlowPart, ...]
    hardware: tuple[HardwareCount, ...]
    over_several_nodes: int
    incomplete: tuple[IncompleteNode, ...] = ()


def fleet(many: Many, least: float = 0.05) -> Fleet:
    """Which nodes, GPUs and links are slower than their peers of the same hardware."""
    findings: list[SlowPart] = []
    hardware = []
    several_nodes = 0
    judged = {}
    for name in sorted({test.hardware for test in many.tests}):
        cells, several = cells_of(many, name)
        several_nodes += several
        judged[name] = cells
        reach: dict[str, float] = {}
        if len(cells):
            search = _Search(many, name, cells, math.log1p(least))
            findings += search.findings()
            reach = search.levels.reach
        hardware.append(_of_hardware(many, name, cells, reach))
    findings.sort(key=lambda one: (-one.change, one.part))
    incomplete = incomplete_nodes(many, judged)
    return Fleet(tuple(findings), tuple(hardware), several_nodes, incomplete)


def _of_hardware(many: Many, name: str, cells: DataFrame, reach: dict[str, float]) -> HardwareCount:
    """How much there is. Those whose tests have no middle to compare with are counted, too."""
    mine = {at: test for at, test in enumerate(many.tests) if test.hardware == name}
    rows = many.fit[many.fit["test"].isin(list(mine))]
    runs = many.runs.loc[rows["run"].unique()]
    devices = {*runs["device"][~runs["imported"]], *rows["device"]} - {""}
    # A test on one or two GPUs, of which nobody knows which they are.
    whole = [
        number
        for number, test in mine.items()
        if (test.key.hardware.devices or 1) <= 2 and not is_apart(test)
    ]
    imported = runs.index[runs["imported"] & (runs["type"] != "cpu")]
    unplaced = rows["test"].isin(whole) & rows["run"].isin(imported)
    return HardwareCount(
        name,
        nodes=runs["node"].nunique(),
        devices=len(devices),
        links=cells["part"][cells["sort"] == LINK].nunique(),
        tests=len({case_of(mine[at]) for at in rows["test"].unique()}),
        runs=len(runs),
        judged=bool(len(cells)),
        unplaced=rows["run"][unplaced].nunique(),
        detectable={level: growth(size) for level, size in reach.items()},
    )


class _Search:
    """What is slow of one hardware."""

    def __init__(self, many: Many, hardware: str, cells: DataFrame, least: float) -> None:
        self.many, self.hardware, self.cells, self.least = many, hardware, cells, least
        kind = str(many.runs["type"][int(cells["run"].iloc[0])])
        self.look = LOOK_AT_CPU if kind == "cpu" else LOOK
        self.levels: Levels = levels_of(cells, least, priors()[class_of(kind)].device)

    def findings(self) -> Iterator[SlowPart]:
        """Yield the parts that are slow on the whole, each once with all of its classes."""
        names = _identities(self.many)
        groups = grouped(
            self.levels.found, lambda effect: (effect.level, names.get(effect.part, effect.part))
        )
        for (level, part), effects in groups.items():
            yield self._finding(level, part, sorted(effects, key=lambda effect: -effect.size))

    def _finding(self, level: str, part: str, effects: Sequence[Effect]) -> SlowPart:
        node, kinds = effects[0].node, [one.kind for one in effects]
        aliases = {part, *(one.part for one in effects)}
        looked = set().union(*(self.levels.seen.get((level, name), set()) for name in aliases))
        return SlowPart(
            # A GPU that is slow at its host's link alone is a slow link.
            LINK if level == GPU and set(kinds) == {HOST} else level,
            part,
            node,
            self.hardware,
            growth(effects[0].size),
            tuple(map(self._slow, effects)),
            tuple(sorted(looked - set(kinds))),
            _differs(self.many, part, node, level),
            "; ".join(self.look[kind] for kind in kinds),
        )

    def _slow(self, effect: Effect) -> SlowClass:
        """The effect with its interval and the tests behind it."""
        from scipy.stats import median_abs_deviation

        rows = self.cells[effect.holds(self.cells)]
        by_run = rows.groupby(["run", "part"])["excess"].median()
        count = len(by_run)
        spread = float(median_abs_deviation(by_run, scale="normal")) if count > 1 else effect.spread
        error = MEDIAN_ERROR * math.hypot(
            spread / math.sqrt(count), effect.spread / math.sqrt(effect.fellows)
        )
        half = quantile(0.975, max(1, count - 1)) * error
        tests = (
            rows.groupby("test")["excess"]
            .median()
            .sort_values(ascending=False, kind="stable")
            .index
        )
        labels = tuple(dict.fromkeys(self.many.tests[int(number)].label for number in tests))
        change, low, high = (growth(effect.size + side * half) for side in (0, -1, 1))
        return SlowClass(
            effect.kind, change, low, high, min(1.0, effect.p), labels, rows["run"].nunique()
        )


def _identities(many: Many) -> dict[str, str]:
    """The identity of each GPU that copies between GPUs know by its number only."""
    names = {}
    native = many.runs[~many.runs["imported"]][["node", "index", "device"]]
    for node, pairs in native.drop_duplicates().groupby("node"):
        if pairs["index"].is_unique and pairs["device"].is_unique:
            told = zip(pairs["index"], pairs["device"], strict=True)
            names.update(
                {gpu_name(str(node), int(index)): device for index, device in told if device}
            )
    return names


def _differs(many: Many, part: str, node: str, level: str) -> tuple[str, ...]:
    """What of the environment of a part is not as that of most other devices."""
    last = many.runs.drop_duplicates(["node", "device"], keep="last")
    on_node = last["node"] == node
    is_part = last["device"] == part
    mine = last[is_part if level == GPU and is_part.any() else on_node]
    others = last[~on_node]
    if not len(mine) or len(others) < FEWEST:
        return ()
    facts = many.environments[mine["environment"].iloc[-1]].everything()
    return tuple(
        f"{name} {known_of(facts, name)} (others {value})"
        for name, value in _usual(many, others["environment"]).items()
        if known_of(facts, name) != value
    )


def _usual(many: Many, environments: Iterable[str]) -> dict[str, str]:
    """What at least three quarters of the environments agree on."""
    facts = [many.environments[text].everything() for text in environments]
    usual = {}
    for name in dict.fromkeys(name for one in facts for name in one):
        value, count = Counter(known_of(one, name) for one in facts).most_common(1)[0]
        if count >= 0.75 * len(facts):
            usual[name] = value
    return usual
