"""A fixed design: five processes a side, looked at once, which is what careful people do by hand."""

import functools
import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from pytest_roofline.judging.looks import FALSE_RED
from pytest_roofline.judging.verdicts import WORTH_REPORTING

from .peers import Calls, by_size
from .suites import Floats, Suite

FIVE = 5
FIVE_NAME = "fixed five a side"
FIVE_ORIGIN = (
    "five processes a side, once: Welch's t on log medians, p of no more than 0.4 δ slower, Benjamini-Hochberg at 5 % "
    "over the suite, and the estimate beyond δ"
)


@dataclass(frozen=True, slots=True)
class FiveASide:
    """Of every test the estimate in log time, and p of being slower by no more than is worth reporting."""

    estimates: Floats
    p: Floats
    limit: float

    @classmethod
    def of(cls, suite: Suite, tolerance: float, slowdown: float) -> "FiveASide":
        """The first five of either side, or as many as there are."""
        least = math.log1p(WORTH_REPORTING * tolerance) - math.log1p(slowdown)
        pairs = [(np.log(case.baseline_s[:FIVE]), np.log(case.new_s[:FIVE])) for case in suite.cases]
        estimates = np.array([after.mean() - before.mean() for before, after in pairs]) + math.log1p(slowdown)
        p = by_size(functools.partial(_p_slower, least=least), pairs, dtype=float)
        return cls(estimates, p, math.log1p(tolerance))

    def everything(self) -> Calls:
        """Which are red together."""
        return self._red(np.asarray(stats.false_discovery_control(self.p)))

    def each_alone(self, unchanged: "FiveASide") -> Calls:
        """Which are red where each alone is as here, and all others as in the unchanged suite."""
        corrected = []
        for index, p in enumerate(self.p):
            others = unchanged.p.copy()
            others[index] = p
            corrected.append(stats.false_discovery_control(others)[index])
        return self._red(np.array(corrected))

    def _red(self, p: Floats) -> Calls:
        return ((p <= FALSE_RED) & (self.estimates > self.limit)).astype(int)


def _p_slower(before: Floats, after: Floats, least: float) -> Floats:
    """One-sided p of Welch's t, [tests]; where nothing varies, the difference itself decides."""
    with np.errstate(divide="ignore", invalid="ignore"):
        p = stats.ttest_ind(after - least, before, axis=1, equal_var=False, alternative="greater").pvalue
    sure = np.where(after.mean(axis=1) - least > before.mean(axis=1), 0.0, 1.0)
    return np.where(np.isnan(p), sure, p)
