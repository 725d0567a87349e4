"""Whether chance could have made a step or a drift, held against everything that was looked at.

A step was searched for, so its p counts as often as there were places for it: a union bound over all pairs of
neighbouring segments of a series. Then it counts for every series of the history (Bonferroni), so that the chance of
one invented finding among all of them is at most `LEVEL`. No distribution is trusted in its tails: a step of a few runs
must be more than that many outliers in a row, as often as this series and all others have outliers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from ..stats.spread import Prior, borrow
from ..stats.stats import quantile
from .shapes import DRAWN_IN, RunSeries, Shape, drawn_in, levelled, sloped, stepped

if TYPE_CHECKING:
    from .shapes import Values

# The middle absolute deviation of a normal distribution, as a share of its standard deviation; of differences, √2 more.
MAD = 0.6745
# The chance of one invented finding among all series.
LEVEL = 0.01
# As in verdicts: what is tested is "no more than 0.4 of the least effect", what is required besides is the whole of it.
WORTH = 0.4
# How many degrees of freedom the noise of all series is worth to one of them, for the search alone.
SHARED_FREEDOM = 4.0
# How many runs the share of outliers among all series is worth to one of them; that of a normal distribution at least.
SHARED_RUNS, LEAST_OUTLIERS = 20.0, 0.003
# Deviations of neighbours that go together make a series look steadier than it is; beyond this nothing can be said.
MOST_CORRELATION = 0.8


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """A step or a drift of one series, in log seconds; positive is slower.

    Args:
        series: where it was seen.
        kind: `step` or `drift`.
        size: of a step the difference of both sides; of a drift the whole way from the first run to the last.
        interval: with 95 %.
        p: after everything that it counts for.
        before: number of the last run before it; `after` of the first run behind it. Of a drift the first and the last.
    """

    series: RunSeries
    kind: str
    size: float
    interval: tuple[float, float]
    p: float
    before: int
    after: int


def examine(series: Sequence[RunSeries], priors: dict[str, Prior], least: float) -> list[SeriesChange]:
    """Steps and drifts of series that are looked at together.

    Args:
        series: of one level: devices with devices, or common ones with common ones.
        priors: the spread that is assumed, by class of noise.
        least: the smallest effect that is reported, a share of the time.
    """
    if not series:
        return []
    cases = []
    for one, noise in zip(series, _noises(series), strict=True):
        values = drawn_in(one.logs, noise)
        shape = min(stepped(values, noise), sloped(one.days, values), key=lambda shape: shape.cost)
        away = one.logs - (values - shape.rest)
        cases.append(_Examined(one, values, shape, int((abs(away) > DRAWN_IN * noise).sum())))
    outliers = max(LEAST_OUTLIERS, sum(case.outliers for case in cases) / sum(len(case.values) for case in cases))
    together = _SharedNoise(_spreads(cases, priors), _inflation(cases), outliers, 2 * len(series))
    return [found for case in cases for found in _Judge(case, together, math.log1p(least)).settle()]


def _noises(series: Sequence[RunSeries]) -> list[float]:
    """The standard deviation of each series, from the differences of neighbours, which steps and drifts hardly touch.

    Each is drawn towards the middle of all: few differences tell little.
    """
    import numpy

    own = [float(numpy.median(numpy.abs(numpy.diff(one.logs)))) / MAD / math.sqrt(2) for one in series]
    middle = max(float(numpy.median(own)), 1e-4)
    freedom = [0.4 * (len(one.logs) - 1) for one in series]
    return [
        math.sqrt((known * noise**2 + SHARED_FREEDOM * middle**2) / (known + SHARED_FREEDOM))
        for noise, known in zip(own, freedom, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _Examined:
    """A series with its drawn-in values, their shape, and how many points lie further from it than noise goes."""

    series: RunSeries
    values: "Values"
    shape: Shape
    outliers: int


@dataclass(frozen=True, slots=True)
class _SharedNoise:
    """What all series say together: spreads by class, inflation, share of outliers; and how often each p counts."""

    spreads: dict[str, Prior]
    inflation: float
    outliers: float
    times: int


def _spreads(cases: Sequence[_Examined], priors: dict[str, Prior]) -> dict[str, Prior]:
    """The spread of what is left, by class: from all series of the class where there are enough."""
    found = {}
    for kind in {case.series.kind for case in cases}:
        mine = [case for case in cases if case.series.kind == kind]
        shapes = [case.shape for case in mine]
        told = [(float(one.rest @ one.rest) / max(1, one.freedom), one.freedom) for one in shapes]
        steadier = max(case.series.steadier for case in mine)
        # One point is one run, with all that lies between processes and between sessions.
        assumed = Prior(steadier * math.hypot(priors[kind].process, priors[kind].session), 0.0, 0.0)
        found[kind] = borrow(assumed, told)
    return found


def _inflation(cases: Sequence[_Examined]) -> float:
    """By how much neighbours that go together blow up the variance of a mean: (1 + ρ) / (1 − ρ), never under 1."""
    shapes = [case.shape for case in cases if float(case.shape.rest @ case.shape.rest) > 0]
    # What a fit leaves is correlated by it: by about −1/n for each of its parameters.
    told = [
        float(shape.rest[1:] @ shape.rest[:-1]) / float(shape.rest @ shape.rest)
        + (len(shape.rest) - shape.freedom) / len(shape.rest)
        for shape in shapes
    ]
    correlation = min(MOST_CORRELATION, max(0.0, median(told))) if told else 0.0
    return (1 + correlation) / (1 - correlation)


class _Judge:
    """Takes away from a series' shape what chance could have made."""

    def __init__(self, case: _Examined, together: _SharedNoise, least: float) -> None:
        self.series, self.values, self.shape, self.least = case.series, case.values, case.shape, least
        self.prior, self.inflation, self.times = together.spreads[case.series.kind], together.inflation, together.times
        self.outliers = (case.outliers + SHARED_RUNS * together.outliers) / (len(case.values) + SHARED_RUNS)

    def settle(self) -> list[SeriesChange]:
        """What stands."""
        shape = self.shape
        if not shape.levels:
            drift = self._drift()
            if drift is not None:
                return [drift]
            shape = stepped(self.values, math.sqrt(self._variance(shape)[0]))
        while True:
            steps = [self._step(shape, number) for number in range(len(shape.cuts))]
            weak = [step for step in steps if not self._stands(step)]
            if not weak:
                return steps
            worst = steps.index(max(weak, key=lambda step: (step.p, -abs(step.size))))
            shape = levelled(self.values, shape.cuts[:worst] + shape.cuts[worst + 1 :])

    def _stands(self, found: SeriesChange) -> bool:
        return found.p <= LEVEL and abs(found.size) > self.least

    def _variance(self, shape: Shape) -> tuple[float, float]:
        """Of one point: what is left, joined with what the others tell; and its degrees of freedom."""
        freedom = shape.freedom + self.prior.freedom
        return (float(shape.rest @ shape.rest) + self.prior.freedom * self.prior.process**2) / freedom, freedom

    def _step(self, shape: Shape, number: int) -> SeriesChange:
        from scipy import special

        variance, freedom = self._variance(shape)
        start, cut, end = shape.bounds[number : number + 3]
        means = self._of_mean(shape, start, cut, variance) + self._of_mean(shape, cut, end, variance)
        error = math.sqrt(self.inflation * means)
        size = shape.levels[number + 1] - shape.levels[number]
        score = (abs(size) - WORTH * self.least) / error
        p = 2 * float(special.stdtr(freedom, -score)) * _places(len(self.values))
        # As many outliers in a row, wherever in the series.
        p = self.times * max(p, len(self.values) * self.outliers ** min(cut - start, end - cut))
        half = quantile(0.975, freedom) * error
        before, after = self.series.around(cut, *shape.levels[number : number + 2])
        return SeriesChange(self.series, "step", size, (size - half, size + half), min(1.0, p), before, after)

    def _of_mean(self, shape: Shape, start: int, end: int, variance: float) -> float:
        """The variance of a segment's mean; one that is more restless than the others counts as it is."""
        rest = shape.rest[start:end]
        return max(variance, float(rest @ rest) / max(1, len(rest) - 1)) / len(rest)

    def _drift(self) -> SeriesChange | None:
        """The drift, by Mann and Kendall's test, and Theil and Sen's slope; None where it does not stand."""
        from scipy import special, stats

        days, values = self.series.days, self.values
        chance = float(stats.kendalltau(days, values).pvalue)
        # Neighbours that go together make the statistic wider.
        p = 2 * float(special.ndtr(special.ndtri(chance / 2) / math.sqrt(self.inflation)))
        slope, span = stats.theilslopes(values, days), float(days[-1] - days[0])
        size, low, high = (float(one) * span for one in (slope.slope, slope.low_slope, slope.high_slope))
        runs = self.series.runs if self.series.raw is None else self.series.raw[0]
        found = SeriesChange(
            self.series, "drift", size, (low, high), min(1.0, p * self.times), int(runs[0]), int(runs[-1])
        )
        return found if self._stands(found) else None


def _places(count: int) -> float:
    """How many pairs of neighbouring segments a series of `count` points has: three ends among n + 1 places."""
    return math.comb(count + 1, 3)
