"""Runs of two sides in turn whose truth is known, and what the plugin's own `judge_paired` says, block by block."""

import math
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from pytest_roofline.core.verdicts import Kind
from pytest_roofline.stats.paired import (
    Arm,
    Block,
    Paired,
    TimedProcess,
    judge_paired,
    order_of_blocks,
)

from .drawing import CALM, Floats, mixed

SLOWER_MODE = math.log(1.06)
OUTLIER = math.log(1.35)
OUTLIERS = 0.03


@dataclass(frozen=True, slots=True)
class World:
    """How processes of unchanged code differ.

    Args:
        spreads: between processes: `calm` or `mix`, or a standard deviation that all tests have.
        session: σ_s: every test has another offset in this session than in any other.
        drift: how much slower the last process is than the first, each test by a share of it that is drawn, up or
            down; `curved` lets it grow with the square of time.
        resumed: whether the second half of the blocks ran in another session.
        tails: degrees of freedom of Student's t; infinite is normal.
        outliers: whether 3 % of processes take 35 % longer.
        modes: the share of processes in a mode that is 6 % slower; `moody` is the share of tests that have it.
        together: whether a process is in its mode for all of its tests.
    """

    spreads: str | float = "calm"
    session: float = 0.03
    drift: float = 0.1
    curved: bool = False
    resumed: bool = False
    tails: float = math.inf
    outliers: bool = False
    modes: float = 0.0
    moody: float = 1.0
    together: bool = False


@dataclass(frozen=True, slots=True)
class Drawn:
    """A run: log seconds [tests, processes] of unchanged code in the order of `orders`."""

    logs: Floats
    orders: Sequence[Sequence[Arm]]

    @property
    def arms(self) -> list[Arm]:
        """Of each process."""
        return [arm for order in self.orders for arm in order]

    def slower(self, tests: Collection[int], slowdown: float) -> "Drawn":
        """The same run where B takes longer in some tests."""
        logs = self.logs.copy()
        logs[np.ix_(list(tests), [arm == "B" for arm in self.arms])] += math.log1p(slowdown)
        return Drawn(logs, self.orders)

    def sides(self) -> tuple[Floats, Floats]:
        """[tests, processes] seconds of A and of B."""
        found = (np.exp(self.logs[:, [arm == side for arm in self.arms]]) for side in "AB")
        return next(found), next(found)


def draw(rng: np.random.Generator, world: World, tests: int, most: int) -> Drawn:
    """A run of up to `most` processes a side."""
    orders = order_of_blocks(most // 2, int(rng.integers(2**31)))
    count = sum(map(len, orders))
    shape = (tests, count)
    if isinstance(world.spreads, float):
        spread = np.full((tests, 1), world.spreads)
    else:
        spread = mixed(rng, tests)[:, None] * (CALM if world.spreads == "calm" else 1.0)
    if math.isinf(world.tails):
        logs = rng.standard_normal(shape) * spread
    else:
        logs = (
            rng.standard_t(world.tails, shape) * spread * math.sqrt((world.tails - 2) / world.tails)
        )
    moody = round(world.moody * tests)
    drawn = rng.random((1, count)) if world.together else rng.random((moody, count))
    logs[:moody] += SLOWER_MODE * (drawn < world.modes)
    if world.outliers:
        logs += OUTLIER * (rng.random(shape) < OUTLIERS)
    times = np.linspace(0, 1, count)
    logs += world.drift * rng.uniform(-1, 1, (tests, 1)) * (times**2 if world.curved else times)
    logs += world.session * rng.standard_normal((tests, 1))
    if world.resumed:
        half = sum(len(order) for order in orders[: len(orders) // 2])
        logs[:, half:] += world.session * rng.standard_normal((tests, 1))
    return Drawn(logs, orders)


@dataclass(frozen=True, slots=True)
class Course:
    """What became of a run: the last verdict on each test, and how many blocks it took."""

    last: tuple[Paired, ...]
    blocks: tuple[int, ...]

    @property
    def kinds(self) -> list[Kind]:
        """Of each test."""
        return [one.verdict.kind for one in self.last]


def run(drawn: Drawn, tolerance: float, most: int) -> Course:
    """A run as `roofline ab` does it: after each block all tests are judged, and those that are open get another."""
    starts = np.cumsum([0, *map(len, drawn.orders)])
    seconds = np.exp(drawn.logs).tolist()
    whole: dict[str, list[Block]] = {
        str(test): [
            [TimedProcess(arm, row[start + at], start + at) for at, arm in enumerate(order)]
            for start, order in zip(starts.tolist(), drawn.orders, strict=False)
        ]
        for test, row in enumerate(seconds)
    }
    taken, tolerances = dict.fromkeys(whole, 1), dict.fromkeys(whole, tolerance)
    while True:
        found = judge_paired(
            {name: blocks[: taken[name]] for name, blocks in whole.items()}, tolerances, most
        )
        wanted = [
            name for name, one in found.items() if one.open and taken[name] < len(drawn.orders)
        ]
        if not wanted:
            return Course(tuple(found.values()), tuple(taken.values()))
        for name in wanted:
            taken[name] += 1


@dataclass(slots=True)
class Tally:
    """What was seen of the runs of a row.

    Args:
        suites, tests: unchanged ones; `red` and `red_suites` of them, `kinds` and `blocks` of those tests.
        slower: tests that were slower; `found` of them REGRESSED, by the blocks that it took.
        passed: of the slower tests, PASSED.
    """

    suites: int = 0
    tests: int = 0
    red: int = 0
    red_suites: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    blocks: int = 0
    slower: int = 0
    found: Counter[int] = field(default_factory=Counter)
    passed: int = 0

    def count(self, course: Course, slower: Collection[int] = ()) -> None:
        """Take in a run."""
        unchanged = [test for test in range(len(course.last)) if test not in slower]
        red = sum(course.kinds[test] is Kind.REGRESSED for test in unchanged)
        self.suites += bool(unchanged)
        self.tests += len(unchanged)
        self.red += red
        self.red_suites += red > 0
        self.kinds.update(course.kinds[test].value for test in unchanged)
        self.blocks += sum(course.blocks[test] for test in unchanged)
        self.slower += len(slower)
        self.found.update(
            course.blocks[test] for test in slower if course.kinds[test] is Kind.REGRESSED
        )
        self.passed += sum(course.kinds[test] is Kind.PASSED for test in slower)

    def add(self, other: "Tally") -> None:
        """Take in another part of the row."""
        for name in ("suites", "tests", "red", "red_suites", "blocks", "slower", "passed"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        self.kinds.update(other.kinds)
        self.found.update(other.found)

    def share_found(self, most: int | None = None) -> float:
        """Of the slower tests, those found by so many processes a side."""
        return (
            sum(count for blocks, count in self.found.items() if most is None or 2 * blocks <= most)
            / self.slower
        )
