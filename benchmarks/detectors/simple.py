"""Simple rules for the same draws: what a team would write in a dozen lines, beside the plugin's rule.

Each takes one process and, where that lies beyond the tolerance, four more; Welch's and Mann and Whitney's tests take
five processes a side always. All p are those of "no more than the smallest slowdown worth reporting" and are paid for
by Benjamini and Hochberg's procedure over the suite.
"""

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy import special, stats

from pytest_roofline.stats.analyses import FALSE_RED
from pytest_roofline.stats.outlook import WORTH_REPORTING

from .drawing import Floats
from .twin import Flags, adjusted

FIVE = 5
# What is assumed of processes, worth four degrees of freedom, and of sessions.
PROCESS, SESSION, FREEDOM = 0.01, 0.005, 4.0
MOST_FREEDOM = 8.0


@dataclass(frozen=True, slots=True)
class Sides:
    """Both sides of a suite: log-medians, [tests, processes], those of a baseline's session side by side.

    Args:
        shape: processes of each session of the baseline.
        tolerance: of time.
    """

    logs: Floats
    new: Floats
    shape: Sequence[int]
    tolerance: float

    @property
    def limit(self) -> float:
        """The tolerance, in log seconds."""
        return math.log1p(self.tolerance)

    @property
    def worthy(self) -> float:
        """The smallest slowdown worth reporting, in log seconds."""
        return math.log1p(WORTH_REPORTING * self.tolerance)

    @property
    def five(self) -> Floats:
        """The new processes that a rule takes, [tests, at most five]."""
        return self.new[:, :FIVE]

    @property
    def estimate(self) -> Floats:
        """The difference of the means, [tests]."""
        return np.asarray(self.five.mean(axis=1) - self.logs.mean(axis=1))

    @property
    def screened(self) -> Flags:
        """Whether the first new process lies beyond the tolerance, [tests]."""
        return np.asarray(self.new[:, 0] - self.logs.mean(axis=1) > self.limit)


Rule = Callable[[Sides], Floats]


def _squares(logs: Floats) -> Floats:
    return np.asarray(((logs - logs.mean(axis=1, keepdims=True)) ** 2).sum(axis=1))


def t5(sides: Sides) -> Floats:
    """Student's t of pooled spreads, with a floor for sessions."""
    known, new = sides.logs.shape[1], sides.five.shape[1]
    freedom = known - 1 + new - 1 + FREEDOM
    squares = _squares(sides.logs) + _squares(sides.five) + FREEDOM * PROCESS**2
    error = np.sqrt(
        squares / freedom * (1 / new + 1 / known) + SESSION**2 * (1 + 1 / len(sides.shape))
    )
    p = special.stdtr(freedom, (sides.worthy - sides.estimate) / error)
    return np.where(sides.screened & (sides.estimate > sides.limit), p, 1.0)


def ts5(sides: Sides) -> Floats:
    """The same, with what sessions show, and a quarter of the variance between processes at least."""
    known, new, sessions = sides.logs.shape[1], sides.five.shape[1], len(sides.shape)
    parts = np.split(sides.logs, np.cumsum(sides.shape)[:-1], axis=1)
    several = known > sessions
    inside = sum(_squares(part) for part in parts) if several else _squares(sides.logs)
    freedom = (known - sessions if several else known - 1) + new - 1 + FREEDOM
    square = (inside + _squares(sides.five) + FREEDOM * PROCESS**2) / freedom
    between = np.maximum(SESSION**2, square / 4)
    if several and sessions > 1:
        means = np.stack([part.mean(axis=1) for part in parts], axis=1)
        shown = means.var(axis=1, ddof=1) - square * sessions / known
        between = np.maximum(between, shown)
    factor = 1 + 1 / sessions if several else 1.0
    error = np.sqrt(square * (1 / new + 1 / known) + between * factor)
    p = special.stdtr(min(freedom, MOST_FREEDOM), (sides.worthy - sides.estimate) / error)
    return np.where(sides.screened & (sides.estimate > sides.limit), p, 1.0)


def rank5(sides: Sides) -> Floats:
    """No test at all: every new process above every known one, and the medians beyond the tolerance."""
    beyond = np.median(sides.five, axis=1) - np.median(sides.logs, axis=1) > sides.limit
    above = sides.five.min(axis=1) > sides.logs.max(axis=1)
    return np.where(sides.screened & beyond & above, 0.0, 1.0)


def welch(sides: Sides) -> Floats:
    """Welch's t."""
    found = stats.ttest_ind(
        sides.five - sides.worthy, sides.logs, axis=1, equal_var=False, alternative="greater"
    )
    return np.where(sides.estimate > sides.limit, np.nan_to_num(found.pvalue, nan=1.0), 1.0)


def mann_whitney(sides: Sides) -> Floats:
    """The exact test of Mann and Whitney."""
    found = stats.mannwhitneyu(
        sides.five - sides.worthy, sides.logs, axis=1, alternative="greater", method="exact"
    )
    beyond = np.median(sides.five, axis=1) - np.median(sides.logs, axis=1) > sides.limit
    return np.where(beyond, found.pvalue, 1.0)


RULES: dict[str, Rule] = {
    "t5": t5,
    "ts5": ts5,
    "rank5": rank5,
    "Welch + BH": welch,
    "MWU + BH": mann_whitney,
}


def red(p: Floats) -> Flags:
    """Return which tests of a suite are red, [tests]."""
    return np.asarray(adjusted(p) <= FALSE_RED)


def red_alone(p: Floats, slowed: Floats) -> int:
    """Return how many tests are red where each alone is slower.

    Args:
        p: of the unchanged tests, [tests]; `slowed` that of each where it is slower.
    """
    found = 0
    for index in np.flatnonzero(slowed < 1.0):
        others = p.copy()
        others[index] = slowed[index]
        found += bool(adjusted(others)[index] <= FALSE_RED)
    return found


@functools.lru_cache(maxsize=1)
def described() -> list[str]:
    """The rules in words, for the page."""
    return [f"* **{name}**: {(rule.__doc__ or '').strip()}" for name, rule in RULES.items()]
