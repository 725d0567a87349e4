"""Whether chance could have made a step or a drift, held against everything that was looked at.

A step was searched for, so its p counts as often as there were places for it: a union bound over all pairs of
neighbouring segments of a series. Then it counts for every series of the history (Bonferroni), so that the chance of
one invented finding among all of them is at most `LEVEL`. No distribution is trusted in its tails: a step of a few runs
must be more than that many outliers in a row, as often as this series and all others have outliers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ..spread import Prior, borrow
from ..stats import quantile
from .series import Series
from .shape import DRAWN_IN, Shape, best_shape, draw_in, fit, locate, noise_of

if TYPE_CHECKING:
    from numpy import ndarray

# The chance of one invented finding among all series.
LEVEL = 0.01
# As in verdicts: what is tested is "no more than 0.4 of the least effect", what is required besides is the whole of it.
WORTH = 0.4
# How many degrees of freedom the noise of all series is worth to one of them, for the search alone.
SHARED_FREEDOM = 4.0
# So much of the criterion is very strong evidence (Kass & Raftery 1995).
STRONG = 10.0
# How many runs the share of outliers among all series is worth to one of them.
SHARED_RUNS = 20.0
# Deviations of neighbours that go together make a series look steadier than it is; beyond this nothing can be said.
MOST_CORRELATION = 0.8


@dataclass(frozen=True, slots=True)
class Found:
    """A step or a drift of one series, in log seconds; positive is slower.

    Args:
        series: where it was seen.
        kind: `step` or `drift`.
        size: of a step the difference of both sides; of a drift the whole way from the first run to the last.
        interval: with 95 %.
        p: after everything that it counts for.
        before: number of the last run before it; `after` of the first run behind it. Of a drift the first and the last.
    """

    series: Series
    kind: str
    size: float
    interval: tuple[float, float]
    p: float
    before: int
    after: int


@dataclass(slots=True)
class _Case:
    series: Series
    values: "ndarray[Any, Any]"
    noise: float
    shape: Shape

    @property
    def outliers(self) -> int:
        """Points further from what the shape says than noise goes."""
        away = self.series.logs - (self.values - self.shape.rest)
        return int((abs(away) > DRAWN_IN * self.noise).sum())


def examine(series: Sequence[Series], priors: dict[str, Prior], least: float) -> list[Found]:
    """Steps and drifts of series that are looked at together.

    Args:
        series: of one level: devices with devices, or common ones with common ones.
        priors: the spread that is assumed, by class of noise.
        least: the smallest effect that is reported, a share of the time.
    """
    import numpy

    if not series:
        return []
    noises = numpy.array([noise_of(one.logs) for one in series])
    cases = []
    for one, noise in zip(series, _steadied(series, noises), strict=True):
        values = draw_in(one.logs, noise)
        cases.append(_Case(one, values, float(noise), best_shape(one.days, values, noise)))
    spreads = _spreads(cases, priors)
    all_say = _Noise(spreads, _inflation(cases), _outliers(cases), 2 * len(series))
    judged = [_Judge(case, all_say, math.log1p(least)).settle() for case in cases]
    drifting = {found.series.unit for mine in judged for found in mine if found.kind == "drift"}
    for number, (case, mine) in enumerate(zip(cases, judged, strict=True)):
        if case.series.unit in drifting and mine and all(found.kind != "drift" for found in mine):
            judged[number] = _as_drift(case, all_say, least) or mine
    return [found for mine in judged for found in mine]


def _as_drift(case: _Case, noise: "_Noise", least: float) -> list[Found]:
    """The steps of a unit whose other tests drift, told as a drift where nothing speaks strongly for steps."""
    line = fit(case.series.days, case.values, (), slope=True)
    if line.cost > case.shape.cost + STRONG:
        return []
    found = _Judge(replace(case, shape=line), noise, math.log1p(least)).settle()
    return found if any(one.kind == "drift" for one in found) else []


def _steadied(series: Sequence[Series], noises: "ndarray[Any, Any]") -> "ndarray[Any, Any]":
    """Each series' noise, drawn towards the middle of all: few differences tell little."""
    import numpy

    lengths = numpy.array([len(one.logs) for one in series])
    own = 0.4 * (lengths - 1)
    middle = max(float(numpy.median(noises)), 1e-4)
    joined: ndarray[Any, Any] = numpy.sqrt((own * noises**2 + SHARED_FREEDOM * middle**2) / (own + SHARED_FREEDOM))
    return joined


def _spreads(cases: Sequence[_Case], priors: dict[str, Prior]) -> dict[str, Prior]:
    """The spread of what is left, by class: from all series of the class where there are enough."""
    found = {}
    for kind in {case.series.kind for case in cases}:
        mine = [case.shape for case in cases if case.series.kind == kind]
        told = [(float(one.rest @ one.rest) / max(1, one.freedom), one.freedom) for one in mine]
        # One point is one run, with all that lies between processes and between sessions.
        assumed = Prior(math.hypot(priors[kind].process, priors[kind].session), 0.0, 0.0)
        found[kind] = borrow(assumed, told)
    return found


def _inflation(cases: Sequence[_Case]) -> float:
    """By how much neighbours that go together blow up the variance of a mean: (1 + ρ) / (1 − ρ), never under 1."""
    import numpy

    rests = [case.shape.rest for case in cases if float(case.shape.rest @ case.shape.rest) > 0]
    if not rests:
        return 1.0
    # What a fit leaves is correlated by it: by about −1/n for each of its parameters.
    told = [
        float(rest[1:] @ rest[:-1]) / float(rest @ rest) + (len(rest) - case.shape.freedom) / len(rest)
        for case in cases
        if float((rest := case.shape.rest) @ rest) > 0
    ]
    correlation = min(MOST_CORRELATION, max(0.0, float(numpy.median(told))))
    return (1 + correlation) / (1 - correlation)


def _outliers(cases: Sequence[_Case]) -> float:
    """The share of outliers among all points; never under that of a normal distribution."""
    return max(0.003, sum(case.outliers for case in cases) / sum(len(case.values) for case in cases))


@dataclass(frozen=True, slots=True)
class _Noise:
    """What all series say together: spreads by class, inflation, share of outliers; and how often each p counts."""

    spreads: dict[str, Prior]
    inflation: float
    outliers: float
    # Every series is asked for steps and for drift.
    times: int


class _Judge:
    """Takes away from a series' shape what chance could have made."""

    def __init__(self, case: _Case, noise: _Noise, least: float) -> None:
        self.series, self.values, self.shape = case.series, case.values, case.shape
        self.noise, self.least = noise, least
        self.prior, self.inflation, self.times = noise.spreads[case.series.kind], noise.inflation, noise.times
        self.outliers = (case.outliers + SHARED_RUNS * noise.outliers) / (len(case.values) + SHARED_RUNS)

    def settle(self) -> list[Found]:
        """What stands."""
        shape = self.shape
        while True:
            drift = self._drift(shape) if shape.slope else None
            if shape.slope and drift is None:
                shape = self._simpler(shape)
                continue
            steps = [self._step(shape, number) for number in range(len(shape.cuts))]
            weak = [step for step in steps if not self._stands(step)]
            if not weak:
                return ([drift] if drift else []) + steps
            worst = steps.index(max(weak, key=lambda step: (step.p, -abs(step.size))))
            cuts = shape.cuts[:worst] + shape.cuts[worst + 1 :]
            shape = fit(self.series.days, self.values, cuts, slope=bool(shape.slope))

    def _simpler(self, shape: Shape) -> Shape:
        """Steps, or of a shape with both a slope alone, whichever explains more."""
        noise = math.sqrt(self._variance(shape)[0])
        steps = fit(self.series.days, self.values, locate(self.values, noise), slope=False)
        line = fit(self.series.days, self.values, (), slope=True)
        return line if shape.cuts and line.cost < steps.cost else steps

    def _stands(self, found: Found) -> bool:
        return found.p <= LEVEL and abs(found.size) > self.least

    def _variance(self, shape: Shape) -> tuple[float, float]:
        """Of one point: what is left, joined with what the others tell; and its degrees of freedom."""
        freedom = max(0, shape.freedom)
        joined = float(shape.rest @ shape.rest) + self.prior.freedom * self.prior.process**2
        return joined / (freedom + self.prior.freedom), freedom + self.prior.freedom

    def _step(self, shape: Shape, number: int) -> Found:
        from scipy import special

        variance, freedom = self._variance(shape)
        bounds = [0, *shape.cuts, len(self.values)]
        start, cut, end = bounds[number : number + 3]
        means = self._of_mean(shape, start, cut, variance) + self._of_mean(shape, cut, end, variance)
        error = math.sqrt(self.inflation * (means + self._of_slope(shape, start, cut, end, variance)))
        size = shape.levels[number + 1] - shape.levels[number]
        score = (abs(size) - WORTH * self.least) / error
        p = 2 * float(special.stdtr(freedom, -score)) * _places(len(self.values))
        # As many outliers in a row, wherever in the series.
        p = self.times * max(p, len(self.values) * self.outliers ** min(cut - start, end - cut))
        half = quantile(0.975, freedom) * error
        levels = (shape.levels[number], shape.levels[number + 1])
        before, after = self.series.around(cut, *(level + shape.slope * self.series.days[cut] for level in levels))
        return Found(self.series, "step", size, (size - half, size + half), min(1.0, p), before, after)

    def _of_mean(self, shape: Shape, start: int, end: int, variance: float) -> float:
        """The variance of a segment's mean; one that is more restless than the others counts as it is."""
        rest = shape.rest[start:end]
        return max(variance, float(rest @ rest) / max(1, len(rest) - 1)) / len(rest)

    def _of_slope(self, shape: Shape, start: int, cut: int, end: int, variance: float) -> float:
        """What not knowing the slope better adds to the variance of a step; nothing without one."""
        if not shape.slope:
            return 0.0
        days, bounds = self.series.days, [0, *shape.cuts, len(self.values)]
        square = sum(float(((part := days[a:b]) - part.mean()) @ (part - part.mean())) for a, b in pairwise(bounds))
        return variance * float(days[cut:end].mean() - days[start:cut].mean()) ** 2 / square

    def _drift(self, shape: Shape) -> Found | None:
        """The drift, by Mann and Kendall's test between the steps, and Theil and Sen's slope; None without."""
        from scipy import special, stats

        flat = self._flat(shape)
        days = self.series.days
        span = float(days[-1] - days[0])
        if not span:
            return None
        score = _trend(flat, [0, *shape.cuts, len(flat)]) / math.sqrt(self.inflation)
        places = _places(len(flat)) if shape.cuts else 1
        p = min(1.0, 2 * float(special.ndtr(-abs(score))) * places * self.times)
        slope = stats.theilslopes(flat, days)
        size = float(slope.slope) * span
        interval = (float(slope.low_slope) * span, float(slope.high_slope) * span)
        runs = self.series.runs if self.series.raw is None else self.series.raw[0]
        found = Found(self.series, "drift", size, interval, p, int(runs[0]), int(runs[-1]))
        return found if self._stands(found) else None

    def _flat(self, shape: Shape) -> "ndarray[Any, Any]":
        """The values without the steps, which keep the slope."""
        import numpy

        bounds = [0, *shape.cuts, len(self.values)]
        level = numpy.repeat(shape.levels, numpy.diff(bounds))
        flat: ndarray[Any, Any] = self.values - level
        return flat


def _places(count: int) -> float:
    """How many pairs of neighbouring segments a series of `count` points has: three ends among n + 1 places."""
    return math.comb(count + 1, 3)


def _trend(values: "ndarray[Any, Any]", bounds: Sequence[int]) -> float:
    """Mann and Kendall's score of a trend, added up over segments (Hirsch et al. 1982), with its continuity correction.

    Values are in the order of time, so that the pairs that agree with it are those that grow.
    """
    import numpy

    total = variance = 0.0
    for start, end in pairwise(bounds):
        part, count = values[start:end], end - start
        total += float(numpy.sign(part[None, :] - part[:, None])[numpy.triu_indices(count, 1)].sum())
        variance += count * (count - 1) * (2 * count + 5) / 18
    return math.copysign(max(0.0, abs(total) - 1), total) / math.sqrt(variance)
