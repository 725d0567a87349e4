"""Drawing suites and putting them before the rules, on several cores; the same draws whatever their number."""

import functools
import os
import zlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass

import numpy as np

from .fixed import FIVE, FIVE_NAME, FiveASide
from .ours import Course
from .peers import available, call
from .suites import Source, Suite
from .tally import OURS, Cell, Tallies, Tally, merge

SLOWDOWNS = (0.02, 0.05, 0.10)
# Of the suites drawn so many are slowed, too: each slowdown costs as much as unchanged code, and there are up to five.
# Rates of error are small and need the more draws.
SLOWED_SHARE = 8


@dataclass(frozen=True, slots=True)
class Plan:
    """What to draw, and which slowdowns to put on it.

    Args:
        draws: suites of each data set.
        looks: new processes at most.
        jobs: processes to draw in.
    """

    tolerances: tuple[float, ...]
    looks: int
    draws: int
    seed: int
    jobs: int = 1

    @property
    def slowed(self) -> int:
        """So many of the suites are also drawn slower, and put before other tools' rules."""
        return max(1, self.draws // SLOWED_SHARE)


def slowdowns_for(tolerance: float) -> tuple[float, ...]:
    """Those of the table, and exactly δ and 2 δ."""
    return tuple(sorted({*SLOWDOWNS, round(tolerance, 9), round(2 * tolerance, 9)}))


def generator(seed: int, name: str, number: int) -> np.random.Generator:
    """The chance of one draw, the same in whichever process it is drawn."""
    return np.random.default_rng([seed, zlib.crc32(name.encode()), number])


def draw_all(source: Source, plan: Plan) -> Tallies:
    """The counts of every rule on a data set."""
    return gather(functools.partial(_one_draw, source, plan), range(plan.draws), plan.jobs)


def gather(one: Callable[[int], Tallies], numbers: Iterable[int], jobs: int) -> Tallies:
    """The sum of what each draw counts."""
    total: Tallies = {}
    for tallies in _results(one, list(numbers), jobs):
        merge(total, tallies)
    return total


def _results(one: Callable[[int], Tallies], numbers: list[int], jobs: int) -> Iterator[Tallies]:
    if jobs == 1 or len(numbers) == 1:
        yield from map(one, numbers)
        return
    # Every jobs-th draw to each: the slowed ones come first and cost more.
    parts = [numbers[start::jobs] for start in range(jobs)]
    with ProcessPoolExecutor(jobs) as pool:
        yield from pool.map(functools.partial(_several, one), parts)


def _several(one: Callable[[int], Tallies], numbers: list[int]) -> Tallies:
    return gather(one, numbers, 1)


def cores() -> int:
    """Those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _one_draw(source: Source, plan: Plan, number: int) -> Tallies:
    suite = source.draw(generator(plan.seed, source.name, number))
    tallies: Tallies = {}
    for tolerance in plan.tolerances:
        merge(tallies, judged(suite, tolerance, plan.looks, slowdowns_for(tolerance) if number < plan.slowed else ()))
        if number < plan.slowed:
            merge(tallies, five(suite, tolerance, slowdowns_for(tolerance)))
    if number < plan.slowed:
        merge(tallies, _peers(suite))
    return tallies


def judged(suite: Suite, tolerance: float, looks: int, slowdowns: Iterable[float]) -> Tallies:
    """What this plugin says of a suite, unchanged and slower, all of it and each test alone."""
    course = Course(suite, tolerance, looks)
    tallies = {Cell(OURS, "all", tolerance, 0.0): Tally.of_verdicts(course.everything(0.0), suite=True)}
    for slowdown in slowdowns:
        tallies[Cell(OURS, "all", tolerance, slowdown)] = Tally.of_verdicts(course.everything(slowdown), suite=True)
        tallies[Cell(OURS, "alone", tolerance, slowdown)] = Tally.of_verdicts(course.each_alone(slowdown), suite=False)
    return tallies


def five(suite: Suite, tolerance: float, slowdowns: Iterable[float]) -> Tallies:
    """What a fixed design of five a side says; nothing where a side has a single process."""
    if any(min(len(case.baseline_s), len(case.new_s)) < 2 for case in suite.cases):
        return {}
    unchanged = FiveASide.of(suite, tolerance, 0.0)
    tallies = {Cell(FIVE_NAME, "all", tolerance, 0.0): Tally.of_calls(unchanged.everything(), FIVE, suite=True)}
    for slowdown in slowdowns:
        slower = FiveASide.of(suite, tolerance, slowdown)
        tallies[Cell(FIVE_NAME, "all", tolerance, slowdown)] = Tally.of_calls(slower.everything(), FIVE, suite=True)
        alone = Tally.of_calls(slower.each_alone(unchanged), FIVE, suite=False)
        tallies[Cell(FIVE_NAME, "alone", tolerance, slowdown)] = alone
    return tallies


def _peers(suite: Suite) -> Tallies:
    return {
        Cell(peer.name, "single", None, slowdown): Tally.of_calls(call(peer.rule, suite, slowdown), 1, suite=True)
        for peer in available()
        for slowdown in (0.0, *SLOWDOWNS)
    }
