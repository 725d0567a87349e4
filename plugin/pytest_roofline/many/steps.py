"""Steps or slopes that explain a series of a history best.

Steps are located by `ruptures` (exact search with pruning, PELT, of Killick et al. 2012, under squared error) on values
whose single outliers are limited. Steps or a slope are chosen by the Bayesian information criterion.

A step was searched for, so its p is multiplied by the number of places that it could have had: a union bound over all
pairs of neighbouring segments of a series. Then p is multiplied by the number of series in the history (Bonferroni), so
that the chance of one invented finding among all of them is at most `LEVEL`. No distribution is trusted in its tails: a
step of a few runs must also be less likely than that many outliers in a row, at the rate at which this series and all
others have outliers.
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

# The fewest runs of a series, and of a segment: two segments of three. Fewer cannot tell a step from an outlier.
FEWEST_RUNS, SHORTEST = 6, 3
# An outlier is limited to so many standard deviations from the median of itself and its neighbours, so many in all.
OUTLIER_LIMIT, NEIGHBOURS = 3.0, 5
# The price of a step in the criterion, in multiples of log(n): one each for its place and its size, and one more since
# the place was searched for (Zhang & Siegmund 2007).
STEP_PRICE = 3.0


@dataclass(frozen=True, slots=True)
class RunSeries:
    """The times of one test on one unit, or the median of all units.

    The latter is a common series.

    Args:
        test: the number of the test.
        unit: device or node; empty where all of a hardware are one series.
        runs: the number of each point's run, in the order of time; in a common series that of its last run.
        days: the days of each point since the first run of the history.
        logs: log seconds of each point; in a common series, above the median of each unit.
        kind: the class of the benchmark, `device` or `host`.
        raw: for a common series, the runs and logs behind its points, in the order of time.
        noise_factor: the assumed noise of a point, as a share of that of one run.
    """

    test: int
    unit: str
    runs: Values
    days: Values
    logs: Values
    kind: str = "device"
    raw: tuple[Values, Values] | None = None
    noise_factor: float = 1.0

    @property
    def common(self) -> bool:
        """True if it is the median of all units."""
        return self.raw is not None

    @property
    def single_runs(self) -> Values:
        """The number of every run behind the points, in the order of time: of a point that stands for several, all."""
        if self.raw is None:
            return self.runs
        runs, _ = self.raw
        return runs

    def around(self, cut: int, low: float, high: float) -> tuple[int, int]:
        """Return the last run before a step and the first after it.

        Args:
            cut: the index of the first point after the step.
            low: the level before the step; `high` the level after it.
        """
        if self.raw is None:
            return int(self.runs[cut - 1]), int(self.runs[cut])
        # A point of a common series stands for several runs. The step lies among the runs of the two points around it,
        # where both levels fit best.
        runs, logs = self.raw
        # From the first run of the point before the step to the last run of the point after it.
        start = int(numpy.searchsorted(runs, self.runs[cut - 2], side="right")) if cut > 1 else 0
        end = int(numpy.searchsorted(runs, self.runs[cut], side="right"))
        differences = numpy.abs(logs[start:end] - low) - numpy.abs(logs[start:end] - high)
        # At least one run stays on either side.
        place = start + 1 + int(numpy.argmin(numpy.cumsum(differences)[:-1]))
        return int(runs[place - 1]), int(runs[place])


@dataclass(frozen=True, slots=True)
class Shape:
    """Steps, or a slope through the whole series.

    Args:
        cuts: the index of the first point after each step.
        levels: the mean of each segment; empty for a slope.
        residuals: the distance of each point from the steps or the slope.
    """

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

        Steps take one for each level, a slope two.
        """
        parameter_count = len(self.levels) if self.levels else 2
        return len(self.residuals) - parameter_count

    @property
    def cost(self) -> float:
        """The Bayesian information criterion; less is better.

        A slope costs one parameter, a step `STEP_PRICE`.
        """
        count = len(self.residuals)
        is_slope = not self.levels
        price = 1.0 if is_slope else STEP_PRICE * len(self.cuts)
        # A perfect fit has no logarithm.
        mean_square = max(self.square / count, 1e-12)
        return count * math.log(mean_square) + price * math.log(count)


def fit_steps(values: Values, noise: float) -> Shape:
    """Return the steps that explain a series best; there may be none.

    `noise` is the standard deviation of a point, in the unit of the values.
    """
    import ruptures

    search = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST)
    scaled_values = ((values - values.mean()) / noise).reshape(-1, 1)
    cuts = search.fit_predict(scaled_values, pen=STEP_PRICE * math.log(len(values)))
    # The last cut is the end of the series.
    return fit_levels(values, tuple(int(cut) for cut in cuts[:-1]))


def fit_levels(values: Values, cuts: tuple[int, ...]) -> Shape:
    """Return steps at these places: each level is the mean of the values between two cuts."""
    parts = numpy.split(values, cuts)
    levels = tuple(float(part.mean()) for part in parts)
    return Shape(cuts, levels, values - numpy.repeat(levels, [len(part) for part in parts]))


def fit_slope(days: Values, values: Values) -> Shape:
    """Return a slope through the whole series, by least squares."""
    centred_days, centred_values = days - days.mean(), values - values.mean()
    square = float(centred_days @ centred_days)
    slope = float(centred_days @ centred_values) / square if square > 0 else 0.0
    return Shape(cuts=(), levels=(), residuals=centred_values - slope * centred_days)


def limit_outliers(logs: Values, noise: float) -> Values:
    """Return the series with limited outliers.

    A point lies at most three standard deviations from the median of its neighbours.
    """
    middle = median_filter(logs, size=NEIGHBOURS, mode="nearest")
    limited_values: Values = numpy.clip(
        logs, middle - OUTLIER_LIMIT * noise, middle + OUTLIER_LIMIT * noise
    )
    return limited_values


# The median absolute deviation of a normal distribution, as a share of its standard deviation.
MAD = 0.6745
# The chance of one invented finding among all series.
LEVEL = 0.01
# The noise of all series counts for each of them like an estimate with so many degrees of freedom.
SHARED_FREEDOM = 4.0
# The share of outliers among all series counts for each of them like that of so many runs. It is no less than that of a
# normal distribution.
SHARED_RUNS, LEAST_OUTLIERS = 20.0, 0.003
# The largest correlation between neighbouring residuals that is assumed. Correlation makes a mean less precise than it
# looks.
MOST_CORRELATION = 0.8


@dataclass(frozen=True, slots=True)
class SeriesChange:
    """A step or a drift of one series. It is in log seconds; positive is slower.

    Args:
        kind: `step` or `drift`.
        size: for a step, the difference between both sides; for a drift, that between the last run and the first.
        interval: with 95 %.
        p: corrected for all places and series.
        before: the number of the last run before a step; `after` is that of the first run after it. For a drift, the
            first and the last run.
    """

    series: RunSeries
    kind: str
    size: float
    interval: tuple[float, float]
    p: float
    before: int
    after: int

    def path(self, series: RunSeries) -> Values:
        """Return what this change adds to each point of a series, in log seconds.

        The series may be another one than that of the change.
        """
        if self.kind == "step":
            return numpy.where(series.runs >= self.after, self.size, 0.0)
        first_day, last_day = self.series.days[0], self.series.days[-1]
        path: Values = self.size * (series.days - first_day) / (last_day - first_day)
        return path


def examine(
    series: Sequence[RunSeries], priors: dict[str, Prior], smallest_change: float
) -> list[SeriesChange]:
    """Return the steps and drifts of series of one history.

    The spread, the outliers and the correlation of all series are pooled.

    Args:
        priors: the assumed spreads, by class.
        smallest_change: the smallest to report, as a share of time.
    """
    if not series:
        return []
    cases = [
        _fitted(run_series, noise) for run_series, noise in zip(series, noises(series), strict=True)
    ]
    outlier_share = max(
        LEAST_OUTLIERS,
        sum(case.outlier_count for case in cases) / sum(len(case.values) for case in cases),
    )
    spreads, inflation = _spreads(cases, priors), _inflation(cases)
    changes: list[SeriesChange] = []
    for case in cases:
        # The share in this series, joined with that of all as if it came from `SHARED_RUNS` runs.
        outlier_count = case.outlier_count + SHARED_RUNS * outlier_share
        judge = _Judge(
            case.series,
            case.values,
            prior=spreads[case.series.kind],
            inflation=inflation,
            outlier_share=outlier_count / (len(case.values) + SHARED_RUNS),
            # Each series is searched for steps and for a drift.
            comparisons=2 * len(series),
            smallest_size=math.log1p(smallest_change),
        )
        changes += judge.changes(case.shape)
    return changes


def noises(series: Sequence[RunSeries]) -> list[float]:
    """Return the standard deviation of each series, in log seconds.

    It comes from the differences of neighbours, which steps and drifts hardly change, and is joined
    with the median of all series.
    """
    deviations = [
        float(numpy.median(numpy.abs(numpy.diff(run_series.logs)))) / MAD / math.sqrt(2)
        for run_series in series
    ]
    middle = max(float(numpy.median(deviations)), 1e-4)
    # A median absolute deviation is about 0.4 times as efficient as a standard deviation.
    freedom = [0.4 * (len(run_series.logs) - 1) for run_series in series]
    return [
        math.sqrt((degrees * noise**2 + SHARED_FREEDOM * middle**2) / (degrees + SHARED_FREEDOM))
        for noise, degrees in zip(deviations, freedom, strict=True)
    ]


@dataclass(frozen=True, slots=True)
class _FittedSeries:
    """A series with its limited values, its shape and the number of its outliers."""

    series: RunSeries
    values: Values
    shape: Shape
    outlier_count: int


def _fitted(series: RunSeries, noise: float) -> _FittedSeries:
    """Return a series with the steps or the slope that explain it best.

    `noise` is the standard deviation of its points, in log seconds.
    """
    values = limit_outliers(series.logs, noise)
    shapes = fit_steps(values, noise), fit_slope(series.days, values)
    shape = min(shapes, key=lambda shape: shape.cost)
    # From the fitted shape to the points whose outliers are not limited.
    distances = series.logs - (values - shape.residuals)
    outlier_count = int((abs(distances) > OUTLIER_LIMIT * noise).sum())
    return _FittedSeries(series, values, shape, outlier_count)


def _spreads(cases: Sequence[_FittedSeries], priors: dict[str, Prior]) -> dict[str, Prior]:
    """Return the spread of the residuals by class.

    It is estimated from all series of the class, or assumed where there are fewer than eight.
    """
    spreads = {}
    for kind, cases_of_kind in group_by(cases, lambda case: case.series.kind).items():
        shapes = [case.shape for case in cases_of_kind]
        variances = [(shape.square / max(1, shape.freedom), shape.freedom) for shape in shapes]
        noise_factor = max(case.series.noise_factor for case in cases_of_kind)
        # A point is one run, so it varies as processes and as sessions do.
        run_spread = math.hypot(priors[kind].process, priors[kind].session)
        assumed = Prior(noise_factor * run_spread, session=0.0, device=0.0)
        spreads[kind] = borrow(assumed, variances)
    return spreads


def _inflation(cases: Sequence[_FittedSeries]) -> float:
    """Return the factor by which the correlation of runs raises the variance of their mean.

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
        values: the points with limited outliers.
        prior: the spread of a point, from all series of its class.
        inflation: the factor by which correlation raises the variance of a mean.
        outlier_share: the share of the points that are outliers.
        comparisons: by how much a p is multiplied.
        smallest_size: the smallest change to report, in log seconds.
    """

    series: RunSeries
    values: Values
    prior: Prior
    inflation: float
    outlier_share: float
    comparisons: int
    smallest_size: float

    def changes(self, shape: Shape) -> list[SeriesChange]:
        """Return the changes that chance does not explain.

        A slope that may be chance gives way to steps. Steps that may be chance are removed one at a time,
        the least certain first, and the others are judged again: their segments have become longer.
        """
        if not shape.levels:
            drift = self._drift()
            if drift is not None:
                return [drift]
            variance, _ = self._variance(shape)
            shape = fit_steps(self.values, math.sqrt(variance))
        while True:
            steps = [self._step(shape, number) for number in range(len(shape.cuts))]
            weak = [step for step in steps if not self._is_significant(step)]
            if not weak:
                return steps
            worst = steps.index(max(weak, key=lambda step: (step.p, -abs(step.size))))
            shape = fit_levels(self.values, shape.cuts[:worst] + shape.cuts[worst + 1 :])

    def _is_significant(self, change: SeriesChange) -> bool:
        return change.p <= LEVEL and abs(change.size) > self.smallest_size

    def _variance(self, shape: Shape) -> tuple[float, float]:
        """Return the variance of one point and its degrees of freedom.

        It is joined with the variance of the class.
        """
        freedom = shape.freedom + self.prior.freedom
        return (shape.square + self.prior.freedom * self.prior.process**2) / freedom, freedom

    def _step(self, shape: Shape, number: int) -> SeriesChange:
        """Return a step between two segments of a shape, with its p.

        `number` is that of the step, and of the segment before it.

        As in verdicts, the hypothesis of p is that the change is not worth reporting.
        """
        variance, freedom = self._variance(shape)
        start, cut, end = [0, *shape.cuts, len(self.values)][number : number + 3]
        variance_before = self._mean_variance(shape, start, cut, variance)
        variance_after = self._mean_variance(shape, cut, end, variance)
        error = math.sqrt(self.inflation * (variance_before + variance_after))
        level_before, level_after = shape.levels[number : number + 2]
        size = level_after - level_before
        score = (abs(size) - WORTH_REPORTING * self.smallest_size) / error
        # The number of pairs of neighbouring segments: each has three ends among n + 1 places.
        places = math.comb(len(self.values) + 1, 3)
        p = 2 * float(special.stdtr(freedom, -score)) * places
        # The chance that the shorter segment is only outliers in a row, anywhere in the series: p is no smaller.
        shorter = min(cut - start, end - cut)
        p = self.comparisons * max(p, len(self.values) * self.outlier_share**shorter)
        half = quantile(0.975, freedom) * error
        before, after = self.series.around(cut, level_before, level_after)
        return SeriesChange(
            self.series,
            "step",
            size,
            interval=(size - half, size + half),
            p=min(1.0, p),
            before=before,
            after=after,
        )

    def _mean_variance(self, shape: Shape, start: int, end: int, variance: float) -> float:
        """Return the variance of a segment's mean.

        `variance` is that of one point. A segment that varies more has its own.
        """
        residuals = shape.residuals[start:end]
        square = float(residuals @ residuals)
        return max(variance, square / max(1, len(residuals) - 1)) / len(residuals)

    def _drift(self) -> SeriesChange | None:
        """Return the drift of the series, or None where it is not significant.

        Its p is Mann and Kendall's, its slope Theil and Sen's.
        """
        from scipy import stats

        days, values = self.series.days, self.values
        chance = float(stats.kendalltau(days, values).pvalue)
        # Correlated neighbours make the statistic vary more.
        p = 2 * float(special.ndtr(special.ndtri(chance / 2) / math.sqrt(self.inflation)))
        slope, span = stats.theilslopes(values, days), float(days[-1] - days[0])
        size, low, high = (
            float(slope_per_day) * span
            for slope_per_day in (slope.slope, slope.low_slope, slope.high_slope)
        )
        runs = self.series.single_runs
        drift = SeriesChange(
            self.series,
            "drift",
            size,
            interval=(low, high),
            p=min(1.0, p * self.comparisons),
            before=int(runs[0]),
            after=int(runs[-1]),
        )
        return drift if self._is_significant(drift) else None
