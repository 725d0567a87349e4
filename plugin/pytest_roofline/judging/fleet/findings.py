"""What of a fleet is sick: nodes, GPUs and links, each once, with how much, how surely, and what to look at."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from ..many import Many
from ..spread import class_of, priors
from ..stats import quantile
from .cells import FEWEST, GPU, LINK, NODE, Cells, cells_of
from .classes import HOST, LOOK
from .effects import MEDIAN_ERROR, Effect, Seen, effects_of, gpu_name
from .sometimes import Sometimes, sometimes_slow

if TYPE_CHECKING:
    from pandas import DataFrame

# By default, a part that is less slower than this is left alone.
LEAST = 0.05


@dataclass(frozen=True, slots=True)
class Slow:
    """A class of tests in which a part is slow.

    Args:
        kind: of the class.
        size: log seconds above the middle of its fellows.
        interval: with 95 %.
        p: of so slow a part by chance, after everything that it counts for.
        tests: labels, the slowest first.
        runs: behind it.
    """

    kind: str
    size: float
    interval: tuple[float, float]
    p: float
    tests: tuple[str, ...]
    runs: int


@dataclass(frozen=True, slots=True)
class Finding:
    """A part that is slower than its fellows.

    Args:
        level: `node`, `gpu` or `link`.
        part: its name: a node, the identity of a GPU, a link's ends.
        node: where it is.
        hardware: the product.
        slow: the classes in which it is slow, the slowest first; empty where it is so sometimes only.
        fine: the classes in which it was looked at and is not.
        differs: what of its environment is not as in most others: `driver 570.86 (others 580.10)`.
        sometimes: where it is slow in some runs only.
    """

    level: str
    part: str
    node: str
    hardware: str
    slow: tuple[Slow, ...]
    fine: tuple[str, ...]
    differs: tuple[str, ...] = ()
    sometimes: Sometimes | None = None

    @property
    def size(self) -> float:
        """How much slower it is where it is slowest, in log seconds."""
        return self.slow[0].size if self.slow else self.sometimes.size if self.sometimes else 0.0

    @property
    def look(self) -> str:
        """What to look at."""
        kinds = [one.kind for one in self.slow] or ([self.sometimes.kind] if self.sometimes else [])
        return "; ".join(LOOK[kind] for kind in kinds)


@dataclass(frozen=True, slots=True)
class Part:
    """One hardware of a fleet, and how much of it there is.

    `reach` says, by level, from how many log seconds on a slow part would have been found in every class of tests.
    """

    hardware: str
    nodes: int
    devices: int
    links: int
    runs: int
    tests: int
    judged: bool
    reach: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Fleet:
    """What is slow in a fleet, worst first, and what was looked at.

    Args:
        findings: always slow ones before those that are so sometimes.
        parts: by hardware.
        several_nodes: measurements over several nodes, which say nothing of a single one.
    """

    findings: tuple[Finding, ...]
    parts: tuple[Part, ...]
    several_nodes: int

    @property
    def judged(self) -> bool:
        """Whether of any hardware there was enough to say something."""
        return any(part.judged for part in self.parts)


def fleet(many: Many, least: float = LEAST) -> Fleet:
    """Which nodes, GPUs and links are slower than their fellows of the same hardware.

    Args:
        many: the runs.
        least: the smallest effect that is reported, a share of the time.
    """
    findings: list[Finding] = []
    parts = []
    several_nodes = 0
    for hardware in sorted({test.hardware for test in many.tests}):
        cells = cells_of(many, hardware)
        several_nodes += cells.several_nodes
        part = _part(many, hardware, cells)
        if part.judged:
            mine, reach = _of_hardware(many, hardware, cells, math.log1p(least))
            findings += mine
            part = replace(part, reach=reach)
        parts.append(part)
    findings.sort(key=lambda one: (not one.slow, -one.size, one.part))
    return Fleet(tuple(findings), tuple(parts), several_nodes)


def _part(many: Many, hardware: str, cells: Cells) -> Part:
    """How much there is. Those whose tests have no middle to compare with are counted, too."""
    mine = [number for number, test in enumerate(many.tests) if test.hardware == hardware]
    rows = many.fit[many.fit["test"].isin(mine)]
    runs = many.runs.loc[rows["run"].unique()]
    links = cells.cells[cells.cells["sort"] == LINK]["part"].nunique()
    devices = runs["device"][runs["device"] != ""].nunique()
    judged = bool(len(cells.cells))
    return Part(hardware, runs["node"].nunique(), devices, links, len(runs), rows["test"].nunique(), judged)


def _of_hardware(many: Many, hardware: str, cells: Cells, least: float) -> tuple[list[Finding], dict[str, float]]:
    """What is slow of one hardware; and from which slowdown on a part would have been found, by level."""
    kind = class_of(str(many.runs["type"][int(cells.runs["run"].iloc[0])]))
    told = effects_of(cells.cells, least, priors()[kind].device)
    names = _names(many)
    groups: dict[tuple[str, str], list[Effect]] = {}
    for effect in told.found:
        groups.setdefault((effect.level, names.get(effect.part, effect.part)), []).append(effect)
    found = [
        _finding(many, hardware, cells, part, sorted(mine, key=lambda one: -one.size), told.seen)
        for (_, part), mine in groups.items()
    ]
    known = {(one.part, slow.kind) for one in found for slow in one.slow}
    known |= {(one.node, slow.kind) for one in found if one.level == NODE for slow in one.slow}
    for part, node, sort, times in sometimes_slow(cells.runs, least):
        if (part, times.kind) not in known and (node, times.kind) not in known:
            differs = _differs(many, part, node, sort)
            found.append(Finding(sort, part, node, hardware, (), (), differs, sometimes=times))
    return found, told.reach


def _names(many: Many) -> dict[str, str]:
    """The identity of each GPU that copies between GPUs know by its number only.

    Numbers tell only where every number of a node belongs to one GPU, and every GPU has one number: not where each run
    saw one GPU alone, as number 0.
    """
    seen: dict[str, set[tuple[int, str]]] = {}
    for node, index, device in zip(many.runs["node"], many.runs["index"], many.runs["device"], strict=True):
        seen.setdefault(node, set()).add((int(index), device))
    names = {}
    for node, pairs in seen.items():
        if len({index for index, _ in pairs}) == len(pairs) == len({device for _, device in pairs}):
            names.update({gpu_name(node, index): device for index, device in pairs if device})
    return names


def _finding(
    many: Many,
    hardware: str,
    cells: Cells,
    part: str,
    effects: Sequence[Effect],
    seen: Seen,
) -> Finding:
    first = effects[0]
    slow = tuple(_slow(many, cells, one) for one in effects)
    kinds = {one.kind for one in effects}
    looked = set().union(*(seen.get((first.level, name), set()) for name in {part, *(one.part for one in effects)}))
    level = LINK if first.level == GPU and kinds == {HOST} else first.level
    differs = _differs(many, part, first.node, first.level)
    return Finding(level, part, first.node, hardware, slow, tuple(sorted(looked - kinds)), differs)


def _slow(many: Many, cells: Cells, effect: Effect) -> Slow:
    """The effect with its interval and the tests behind it."""
    from scipy.stats import median_abs_deviation

    rows = _rows_of(cells.runs, effect)
    by_run = rows.groupby(["run", "part"])["excess"].median()
    count = len(by_run)
    spread = float(median_abs_deviation(by_run, scale="normal")) if count > 1 else effect.scale.spread
    own = MEDIAN_ERROR * spread / math.sqrt(count)
    error = math.hypot(own, MEDIAN_ERROR * effect.scale.spread / math.sqrt(effect.fellows))
    half = quantile(0.975, max(1, count - 1)) * error
    tests = rows.groupby("test")["excess"].median().sort_values(ascending=False, kind="stable")
    labels = tuple(dict.fromkeys(many.tests[int(number)].label for number in tests.index))
    interval = (effect.size - half, effect.size + half)
    return Slow(effect.kind, effect.size, interval, min(1.0, effect.p), labels, rows["run"].nunique())


def _rows_of(runs: "DataFrame", effect: Effect) -> "DataFrame":
    mine = runs[(runs["sort"] == effect.sort) & (runs["class"] == effect.kind) & (runs["node"] == effect.node)]
    if effect.level == NODE:
        return mine
    if effect.level == GPU and effect.sort == LINK:
        ends = mine["part"].map(lambda name: effect.part in _ends_of(name))
        return mine[ends.to_numpy(dtype=bool)]
    return mine[mine["part"] == effect.part]


def _ends_of(link: str) -> tuple[str, str]:
    """Both GPUs of a link's name: `node7 GPU 1 – GPU 3`."""
    first, second = link.rsplit(" – ", 1)
    return first, f"{first.rsplit(' GPU ', 1)[0]} {second}"


def _differs(many: Many, part: str, node: str, level: str) -> tuple[str, ...]:
    """What of the environment of a part is not as that of most other devices."""
    last = many.runs.drop_duplicates(["node", "device"], keep="last")
    mine = last[last["device"] == part] if level == GPU else last[last["node"] == node]
    if not len(mine):
        mine = last[last["node"] == node]
    others = last[last["node"] != node]
    if not len(mine) or len(others) < FEWEST:
        return ()
    usual = _usual(many, others["environment"])
    own = many.environments[int(mine["environment"].iloc[-1])].comparable()
    return tuple(
        f"{name} {own.get(name, 'unknown')} (others {value})"
        for name, value in usual.items()
        if own.get(name, "unknown") != value
    )


def _usual(many: Many, environments: Iterable[int]) -> dict[str, str]:
    """What at least three quarters of the environments agree on."""
    facts = [many.environments[int(number)].comparable() for number in environments]
    usual = {}
    for name in dict.fromkeys(name for one in facts for name in one):
        value, count = Counter(one.get(name, "unknown") for one in facts).most_common(1)[0]
        if count >= 0.75 * len(facts):
            usual[name] = value
    return usual
