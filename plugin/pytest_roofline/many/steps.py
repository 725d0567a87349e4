"""Steps or slopes that explain a series of a history best.

Steps are located by `ruptures` (exact search with pruning, PELT, of Killick et al. 2012, under squared error) on values
whose single outliers are limited. Steps or a slope are chosen by the Bayesian information criterion.

A step was searched for, so its p counts as often as there were places for it: a union bound over all pairs of
neighbouring segments of a series. Then it counts for every series of the history (Bonferroni), so that the chance of
one invented finding among all of them is at most `LEVEL`. No distribution is trusted in its tails: a step of a few runs
must be more than that many outliers in a row, as often as this series and all others have outliers.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias

import numpy
from scipy import special
from scipy.ndimage import median_filter

from ..core.groups import group_by
from ..stats.outlook import WORTH_REPORTING
from ..stats.spread import Prior, borrow
from ..stats.stats import quantile

Values: TypeAlias = numpy.ndarray[Any, Any]

# Two segments of three runs: fewer cannot show a step that is more than an outlier.
FEWEST_RUNS, SHORTEST = 6, 3
# An outlier is limited to so many standard deviations from the middle of its neighbours.
OUTLIER_LIMIT, NEIGHBOURS = 3.0, 5
# A step takes two parameters, its place and its size, each at the criterion's price of log(n); one more since its
# place was searched for (Zhang & Siegmund 2007).
STEP_PRICE = 3.0


@dataclass(frozen=True, slots=True)
class RunSeries:
    """The times of one test on one unit. Or in the middle of all units.

    Args:
        unit: device, node, or empty where all of a hardware are one series.
        runs: number of each point's run, in the order of time; of a common series the last one of each point.
        days: since the first run of the history, of each point.
        logs: log seconds of each point; of a common series, above each unit's own median.
        raw: of a common series, the runs and logs that its points are the middles of, in the order of time.
        steadier: the assumed noise of a point, as a share of that of one run.
    """

    test: int
    unit: str
    runs: Values
    days: Values
    logs: Values
    kind: str = "device"
    raw: tuple[Values, Values] | None = None
    steadier: float = 1.0

    @property
    def common(self) -> bool:
        """True if it is the middle of all units."""
        return self.raw is not None

    def around(self, cut: int, low: float, high: float) -> tuple[int, int]:
        """Return the runs just before and behind a step. It stands in front of point `cut`.

        The step leads from level `low` to `high`.
        """
        if self.raw is None:
            return int(self.runs[cut - 1]), int(self.runs[cut])
        runs, logs = self.raw
        start = int(numpy.searchsorted(runs, self.runs[cut - 2], side="right")) if cut > 1 else 0
        end = int(numpy.searchsorted(runs, self.runs[cut], side="right"))
        differences = numpy.abs(logs[start:end] - low) - numpy.abs(logs[start:end] - high)
        # At least one run stays on either side.
        place = start + 1 + int(numpy.argmin(numpy.cumsum(differences)[:-1]))
        return int(runs[place - 1]), int(runs[place])


@dataclass(frozen=True, slots=True)
class Shape:
    """Steps before points `cuts`, or a slope through all."""

    cuts: tuple[int, ...]
    levels: tuple[float, ...]
    residuals: Values

    @property
    def square(self) -> float:
        """The sum of the squared residuals."""
        return float(self.residuals @ self.residuals)

    @property
    def freedom(self) -> int:
        """Degrees of freedom of the residuals.

        A slope takes two, with its level.
        """
        return len(self.residuals) - (len(self.levels) or 2)

    @property
    def cost(self) -> float:
        """The Bayesian information criterion; less is better."""
        count = len(self.residuals)
        return count * math.log(max(self.square / count, 1e-12)) + (
            STEP_PRICE * len(self.cuts) + (not self.levels)
        ) * math.log(count)


def fit_steps(values: Values, noise: float) -> Shape:
    """Return the steps that explain a series best."""
    import ruptures

    search = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST)
    scaled_values = ((values - values.mean()) / noise).reshape(-1, 1)
    cuts = search.fit_predict(scaled_values, pen=STEP_PRICE * math.log(len(values)))
    return fit_levels(values, tuple(int(cut) for cut in cuts[:-1]))


def fit_levels(values: Values, cuts: tuple[int, ...]) -> Shape:
    """Return steps at these places. Each segment's mean is its level."""
    parts = numpy.split(values, cuts)
    levels = tuple(float(part.mean()) for part in parts)
    return Shape(cuts, levels, values - numpy.repeat(levels, [len(part) for part in parts]))


def fit_slope(days: Values, values: Values) -> Shape:
    """Return a slope through the whole series, by least squares."""
    centred_days, centred_values = days - days.mean(), values - values.mean()
    square = float(centred_days @ centred_days)
    slope = float(centred_days @ centred_values) / square if square > 0 else 0.0
    return Shape((), (), centred_values - slope * centred_days)


def limit_outliers(logs: Values, noise: float) -> Values:
    """Return the series with limited outliers.

    The limit is around the middle of a point's neighbours.
    """
    middle = median_filter(logs, size=NEIGHBOURS, mode="nearest")
    limited_values: Values = numpy.clip(
        logs, middle - OUTLIER_LIMIT * noise, middle + OUTLIER_LIMIT * noise
    )
    return limited_values


# The middle absolute deviation of a normal distribution, as a share of its standard deviation; of differences, √2 more.
MAD = 0.6745
# The chance of one invented finding among all series.
LEVEL = 0.01
# As in verdicts, the hypothesis is "no more than is worth reporting"; the effect must also exceed all of `least`.
# How many degrees of freedom the noise of all series is worth to one of them, for the search alone.
SHARED_FREEDOM = 4.0
# How many runs the share of outliers among all series is worth to one of them; that of a normal distribution at least.
SHARED_RUNS, LEAST_OUTLIERS = 20.0, 0.003
# Deviations of neighbours that go together make a series look steadier than it is; beyond this nothing can be said.
MOST_CORRELATION = 0.8


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """A step or a drift of one series. It is in log seconds; positive is slower.

    Args:
        size: of a step the difference of both sides; of a drift that of the last run and the first.
        interval: with 95 %.
        p: corrected for all places and series.
        before: number of the last run before it; `after` of the first run behind it. Of a drift the first and the last.
    """

    series: RunSeries
    kind: str
    size: float
    interval: tuple[float, float]
    p: float
    before: int
    after: int

    def path(self, series: RunSeries) -> Values:
        """Return the change of each point of a series, in log seconds."""
        if self.kind == "step":
            return numpy.where(series.runs >= self.after, self.size, 0.0)
        days = self.series.days
        path: Values = self.size * (series.days - days[0]) / (days[-1] - days[0])
        return path


def examine(
    series: Sequence[RunSeries], priors: dict[str, Prior], smallest_change: float
) -> list[SeriesChange]:
    """Return the steps and drifts of series that belong together."""
    if not series:
        return []
    cases = []
    for run_series, noise in zip(series, noises(series), strict=True):
        values = limit_outliers(run_series.logs, noise)
        shape = min(
            fit_steps(values, noise),
            fit_slope(run_series.days, values),
            key=lambda shape: shape.cost,
        )
        distances = run_series.logs - (values - shape.residuals)
        cases.append(
            _FittedSeries(
                run_series, values, shape, int((abs(distances) > OUTLIER_LIMIT * noise).sum())
            )
        )
    outliers = max(
        LEAST_OUTLIERS,
        sum(case.outliers for case in cases) / sum(len(case.values) for case in cases),
    )
    spreads, inflation = _spreads(cases, priors), _inflation(cases)
    changes: list[SeriesChange] = []
    for case in cases:
        changes += _Judge(
            case.series,
            case.values,
            spreads[case.series.kind],
            inflation,
            outliers=(case.outliers + SHARED_RUNS * outliers) / (len(case.values) + SHARED_RUNS),
            times=2 * len(series),
            least=math.log1p(smallest_change),
        ).changes(case.shape)
    return changes


def noises(series: Sequence[RunSeries]) -> list[float]:
    """Return the standard deviation of each series. It is that of the differences of neighbours.

    Steps and drifts hardly touch these.
    """
    deviations = [
        float(numpy.median(numpy.abs(numpy.diff(run_series.logs)))) / MAD / math.sqrt(2)
        for run_series in series
    ]
    middle = max(float(numpy.median(deviations)), 1e-4)
    freedom = [0.4 * (len(run_series.logs) - 1) for run_series in series]
    return [
        math.sqrt((degrees * noise**2 + SHARED_FREEDOM * middle**2) / (degrees + SHARED_FREEDOM))
        for noise, degrees in zip(deviations, freedom, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _FittedSeries:
    """A series with its limited values, shape and outliers."""

    series: RunSeries
    values: Values
    shape: Shape
    outliers: int


def _spreads(cases: Sequence[_FittedSeries], priors: dict[str, Prior]) -> dict[str, Prior]:
    """Return the spread of the residuals by class.

    It is that of all series of the class where there are enough.
    """
    spreads = {}
    for kind, cases_of_kind in group_by(cases, lambda case: case.series.kind).items():
        shapes = [case.shape for case in cases_of_kind]
        variances = [(shape.square / max(1, shape.freedom), shape.freedom) for shape in shapes]
        steadier = max(case.series.steadier for case in cases_of_kind)
        # One point is one run, with all that lies between processes and between sessions.
        assumed = Prior(steadier * math.hypot(priors[kind].process, priors[kind].session), 0.0, 0.0)
        spreads[kind] = borrow(assumed, variances)
    return spreads


def _inflation(cases: Sequence[_FittedSeries]) -> float:
    """Return the factor by which correlation raises a mean's variance.

    It is (1 + ρ) / (1 − ρ) for the median correlation ρ of neighbouring residuals, at least 1: the
    variance of a mean is larger by this factor than that of as many independent values.
    """
    shapes = [case.shape for case in cases if case.shape.square > 0]
    # A fit correlates its residuals by about −1/n for each of its parameters.
    correlations = [
        float(shape.residuals[1:] @ shape.residuals[:-1]) / shape.square
        + (len(shape.residuals) - shape.freedom) / len(shape.residuals)
        for shape in shapes
    ]
    typical = min(MOST_CORRELATION, max(0.0, median(correlations or [0.0])))
    return (1 + typical) / (1 - typical)


@dataclass(frozen=True, slots=True)
class _Judge:
    """Removal of the changes that chance explains.

    Args:
        prior: the spread of a point, by all series of its class; `inflation` by how much neighbours raise the variance
            of a mean.
        outliers: share of the points that are outliers.
        times: for how many tests a p counts.
        least: the smallest change to report, in log seconds.
    """

    series: RunSeries
    values: Values
    prior: Prior
    inflation: float
    outliers: float
    times: int
    least: float

    def changes(self, shape: Shape) -> list[SeriesChange]:
        """Return the changes that chance does not explain."""
        if not shape.levels:
            drift = self._drift()
            if drift is not None:
                return [drift]
            shape = fit_steps(self.values, math.sqrt(self._variance(shape)[0]))
        while True:
            steps = [self._step(shape, number) for number in range(len(shape.cuts))]
            weak = [step for step in steps if not self._is_significant(step)]
            if not weak:
                return steps
            worst = steps.index(max(weak, key=lambda step: (step.p, -abs(step.size))))
            shape = fit_levels(self.values, shape.cuts[:worst] + shape.cuts[worst + 1 :])

    def _is_significant(self, change: SeriesChange) -> bool:
        return change.p <= LEVEL and abs(change.size) > self.least

    def _variance(self, shape: Shape) -> tuple[float, float]:
        """Return the variance of one point and its degrees of freedom.

        It is joined with that of the class.
        """
        freedom = shape.freedom + self.prior.freedom
        return (shape.square + self.prior.freedom * self.prior.process**2) / freedom, freedom

    def _step(self, shape: Shape, number: int) -> SeriesChange:
        variance, freedom = self._variance(shape)
        start, cut, end = [0, *shape.cuts, len(self.values)][number : number + 3]
        means = self._of_mean(shape, start, cut, variance) + self._of_mean(
            shape, cut, end, variance
        )
        error = math.sqrt(self.inflation * means)
        size = shape.levels[number + 1] - shape.levels[number]
        score = (abs(size) - WORTH_REPORTING * self.least) / error
        # So many pairs of neighbouring segments there are: three ends among n + 1 places.
        places = math.comb(len(self.values) + 1, 3)
        p = 2 * float(special.stdtr(freedom, -score)) * places
        # As many outliers in a row, wherever in the series.
        p = self.times * max(p, len(self.values) * self.outliers ** min(cut - start, end - cut))
        half = quantile(0.975, freedom) * error
        before, after = self.series.around(cut, *shape.levels[number : number + 2])
        return SeriesChange(
            self.series, "step", size, (size - half, size + half), min(1.0, p), before, after
        )

    def _of_mean(self, shape: Shape, start: int, end: int, variance: float) -> float:
        """Return the variance of a segment's mean.

        A segment that is more restless than the others counts as it is.
        """
        residuals = shape.residuals[start:end]
        square = float(residuals @ residuals)
        return max(variance, square / max(1, len(residuals) - 1)) / len(residuals)

    def _drift(self) -> SeriesChange | None:
        """Return the drift. Its p is Mann and Kendall's, its slope Theil and Sen's.

        None where it is not significant.
        """
        from scipy import stats

        days, values = self.series.days, self.values
        chance = float(stats.kendalltau(days, values).pvalue)
        # Neighbours that go together make the statistic wider.
        p = 2 * float(special.ndtr(special.ndtri(chance / 2) / math.sqrt(self.inflation)))
        slope, span = stats.theilslopes(values, days), float(days[-1] - days[0])
        size, low, high = (
            float(slope_per_day) * span
            for slope_per_day in (slope.slope, slope.low_slope, slope.high_slope)
        )
        runs = self.series.runs if self.series.raw is None else self.series.raw[0]
        drift = SeriesChange(
            self.series,
            "drift",
            size,
            (low, high),
            min(1.0, p * self.times),
            int(runs[0]),
            int(runs[-1]),
        )
        return drift if self._is_significant(drift) else None
