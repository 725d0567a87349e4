"""Steps or slopes that explain a series of a history best.

Steps are located exactly, under squared error, by optimal partitioning (Jackson et al. 2005, "An algorithm for optimal
partitioning of data on an interval") on values whose single outliers are limited. All series of one length are searched
at once. Steps or a slope are chosen by the Bayesian information criterion.

A step was searched for, so its p is multiplied by the number of places that it could have had: a union bound over all
pairs of neighbouring segments of a series. Then p is multiplied by the number of series in the history (Bonferroni), so
that the chance of one invented finding among all of them is at most `LEVEL`. No distribution is trusted in its tails: a
step of a few runs must also be less likely than that many outliers in a row, at the rate at which this series and all
others have outliers.
"""

import functools
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, TypeAlias, TypeVar

import numpy
from numpy.lib.stride_tricks import sliding_window_view
from scipy import special

from ..core.groups import group_by
from ..stats.outlook import WORTH_REPORTING
from ..stats.spread import Prior, borrow
from ..stats.stats import quantile

Values: TypeAlias = numpy.ndarray[Any, Any]
Result = TypeVar("Result")

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
        """The number of every run behind the points, in the order of time.

        Of a point that stands for several runs it has all.
        """
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


@dataclass(frozen=True)
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

    @functools.cached_property
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


def fit_steps(values: Sequence[Values], noise: Values) -> list[Shape]:
    """Return the steps that explain each series best; there may be none.

    `noise` is the standard deviation of a point of each series, in the unit of the values.
    """
    cuts = _by_length(values, lambda numbers, grid: _best_cuts(grid, noise[numbers]))
    return list(map(fit_levels, values, cuts))


def _by_length(
    values: Sequence[Values], work: Callable[[list[int], Values], Iterable[Result]]
) -> list[Result]:
    """Return a result for each series, in their order.

    `work` takes all series of one length at once: their numbers and values, [series, points].
    """
    lengths = [len(row) for row in values]
    results: dict[int, Result] = {}
    for numbers in group_by(range(len(values)), lengths.__getitem__).values():
        grid = numpy.array([values[number] for number in numbers])
        results.update(zip(numbers, work(numbers, grid), strict=True))
    return [results[number] for number in range(len(values))]


def _best_cuts(values: Values, noise: Values) -> list[tuple[int, ...]]:
    """Return the best steps of each series.

    A step is the index of the first point after it.

    Args:
        values: [series, points].
        noise: [series], as in `fit_steps`.
    """
    count, points = values.shape
    scaled_values = (values - values.mean(axis=1, keepdims=True)) / noise[:, None]
    sums = numpy.pad(numpy.cumsum(scaled_values, axis=1), ((0, 0), (1, 0)))
    # Of the first points, by their number: how much the best segments explain, less their prices, and where the last of
    # these segments begins.
    explained = numpy.full((count, points + 1), -numpy.inf)
    explained[:, 0] = 0.0
    starts = numpy.zeros((count, points + 1), dtype=int)
    for end in range(SHORTEST, points + 1):
        lengths = numpy.arange(end, SHORTEST - 1, -1)
        # The last segment may begin at each of these places, with the best segments before it.
        totals = (sums[:, end, None] - sums[:, : len(lengths)]) ** 2 / lengths
        totals += explained[:, : len(lengths)]
        starts[:, end] = totals.argmax(axis=1)
        explained[:, end] = totals.max(axis=1) - STEP_PRICE * math.log(points)
    return [_cuts_of(row) for row in starts.tolist()]


def _cuts_of(starts: Sequence[int]) -> tuple[int, ...]:
    """Return the starts of all segments but the first.

    `starts` holds where the last segment of the first points begins, by their number.
    """
    cuts: list[int] = []
    start = starts[-1]
    while start:
        cuts.insert(0, start)
        start = starts[start]
    return tuple(cuts)


def fit_levels(values: Values, cuts: tuple[int, ...]) -> Shape:
    """Return steps at these places.

    Each level is the mean of the values between two cuts.
    """
    starts = [0, *cuts]
    lengths = numpy.diff([*starts, len(values)])
    levels = numpy.add.reduceat(values, starts) / lengths
    return Shape(cuts, tuple(levels.tolist()), values - numpy.repeat(levels, lengths))


def fit_slopes(days: Sequence[Values], values: Sequence[Values]) -> list[Shape]:
    """Return a slope through the whole of each series, by least squares."""

    def residuals(numbers: list[int], grid: Values) -> Values:
        days_grid = numpy.array([days[number] for number in numbers])
        centred_days = days_grid - days_grid.mean(axis=1, keepdims=True)
        centred_values: Values = grid - grid.mean(axis=1, keepdims=True)
        squares = (centred_days**2).sum(axis=1)
        products = (centred_days * centred_values).sum(axis=1)
        # Runs of one moment have no slope.
        slopes = numpy.divide(products, squares, out=numpy.zeros_like(squares), where=squares > 0)
        centred_values -= slopes[:, None] * centred_days
        return centred_values

    return [Shape(cuts=(), levels=(), residuals=row) for row in _by_length(values, residuals)]


def trend_of(
    days: Values, values: Values, smallest_size: float = 0.0
) -> tuple[float, tuple[float, float], float] | None:
    """Return how much a series changes from its first point to its last.

    It comes with its interval of 95 %, and with the standard normal score of the hypothesis that it is chance. The
    slopes of all pairs of points show it.

    The size is Theil and Sen's median slope; the interval is that of Sen (1968), "Estimates of the regression
    coefficient based on Kendall's tau".

    Args:
        days: [points], sorted; not all equal.
        values: [points].
        smallest_size: of a smaller change nothing is worth telling.

    Returns:
        None for a smaller change.
    """
    first, last = numpy.triu_indices(len(days), 1)
    spans, rises = days[last] - days[first], values[last] - values[first]
    apart = spans > 0
    slopes, span = rises[apart] / spans[apart], float(days[-1] - days[0])
    size = float(numpy.median(slopes)) * span
    if abs(size) < smallest_size:
        return None
    slopes.sort()
    # The ranks of the slopes at the ends of the interval.
    half_width = float(special.ndtri(0.975)) * _order_deviation(len(days))
    low_rank = max(0, round((len(slopes) - half_width) / 2) - 1)
    high_rank = min(len(slopes) - 1, round((len(slopes) + half_width) / 2))
    interval = (float(slopes[low_rank]) * span, float(slopes[high_rank]) * span)
    score = _order_score(len(days), int(numpy.sign(slopes).sum()))
    return size, interval, score


# The most points for which the distribution of Kendall's statistic is computed; beyond it is close to a normal one.
MOST_EXACT = 50


def _order_score(points: int, difference: int) -> float:
    """Return the standard normal score of Mann's (1945) test.

    Its hypothesis is that the order of the points is chance.

    Args:
        difference: how many more pairs rise than fall, or the other way round.
    """
    size = max(0, abs(difference) - 1)
    if points > MOST_EXACT or not size:
        # With the correction for continuity.
        return size / _order_deviation(points)
    # The number of pairs against the trend; a pair of equal values counts half for it and half against it.
    against = math.ceil((math.comb(points, 2) - abs(difference)) / 2)
    return -float(special.ndtri(_order_chances(points)[: against + 1].sum()))


def _order_deviation(points: int) -> float:
    """Return the standard deviation of the rising pairs less the falling ones.

    The points are in random order.
    """
    return math.sqrt(points * (points - 1) * (2 * points + 5) / 18)


@functools.lru_cache
def _order_chances(points: int) -> Values:
    """Return the chance of each number of falling pairs: [pairs + 1].

    The points are in random order. A further point falls below 0, 1, … or all of the earlier ones, each with the same
    chance (Kendall 1938, "A new measure of rank correlation").
    """
    chances: Values = numpy.ones(1)
    for earlier_points in range(1, points):
        chances = numpy.convolve(chances, numpy.full(earlier_points + 1, 1 / (earlier_points + 1)))
    return chances


def limit_outliers(logs: Sequence[Values], noise: Values) -> list[Values]:
    """Return series with limited outliers.

    A point lies at most three standard deviations from the median of its neighbours. `noise` is the standard deviation
    of a point of each series, in log seconds.
    """
    half = NEIGHBOURS // 2

    def limit(numbers: list[int], grid: Values) -> Values:
        padded_grid = numpy.pad(grid, ((0, 0), (half, half)), mode="edge")
        middles = numpy.median(sliding_window_view(padded_grid, NEIGHBOURS, axis=1), axis=2)
        limits = OUTLIER_LIMIT * noise[numbers, None]
        return numpy.clip(grid, middles - limits, middles + limits)

    return _by_length(logs, limit)


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
        """Return what this change adds to each point of a series.

        It is in log seconds. The series may be another one than that of the change.
        """
        if self.kind == "step":
            return numpy.where(series.runs >= self.after, self.size, 0.0)
        first_day, last_day = self.series.days[0], self.series.days[-1]
        path: Values = self.size * (series.days - first_day) / (last_day - first_day)
        return path


def step_at(
    series: RunSeries, cut: int, level: float, size: float, error: float, freedom: float, p: float
) -> SeriesChange:
    """Return the step before a point of a series, with its interval.

    Args:
        cut: the index of the point.
        level: that before the step, in log seconds, as `size` is.
        error: the standard error of the size; `freedom` are its degrees of freedom.
        p: it may be above 1.
    """
    half = quantile(0.975, freedom) * error
    before, after = series.around(cut, level, level + size)
    return SeriesChange(
        series,
        "step",
        size,
        interval=(size - half, size + half),
        p=min(1.0, p),
        before=before,
        after=after,
    )


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
    noise = noises(series)
    values = limit_outliers([run_series.logs for run_series in series], noise)
    slopes = fit_slopes([run_series.days for run_series in series], values)
    cases = list(map(_fitted, series, values, fit_steps(values, noise), slopes, noise.tolist()))
    outlier_share = max(
        LEAST_OUTLIERS,
        sum(case.outlier_count for case in cases) / sum(len(case.values) for case in cases),
    )
    judge = _Judge(
        _spreads(cases, priors),
        _inflation(cases),
        outlier_share,
        # Each series is searched for steps and for a drift.
        comparisons=2 * len(series),
        smallest_size=math.log1p(smallest_change),
    )
    return _significant(judge, cases)


def _significant(judge: "_Judge", cases: Sequence["_FittedSeries"]) -> list[SeriesChange]:
    """Return the changes that chance does not explain.

    They are in the order of the series. A slope that may be chance gives way to steps.
    """
    drifts = [judge.drift(case) for case in cases]
    weak = [
        case
        for case, drift in zip(cases, drifts, strict=True)
        if drift is None and not case.shape.levels
    ]
    noise = numpy.array([math.sqrt(judge.variance(case, case.shape)[0]) for case in weak])
    steps_of_weak = iter(fit_steps([case.values for case in weak], noise))
    changes: list[SeriesChange] = []
    for case, drift in zip(cases, drifts, strict=True):
        if drift is not None:
            changes.append(drift)
        else:
            changes += judge.steps(case, case.shape if case.shape.levels else next(steps_of_weak))
    return changes


def noises(series: Sequence[RunSeries]) -> Values:
    """Return the standard deviation of each series, in log seconds: [series].

    It comes from the differences of neighbours, which steps and drifts hardly change, and is joined
    with the median of all series.
    """
    logs = [run_series.logs for run_series in series]
    middles = _by_length(
        logs, lambda _, grid: numpy.median(numpy.abs(numpy.diff(grid, axis=1)), axis=1)
    )
    deviations = numpy.array(middles) / MAD / math.sqrt(2)
    # A median absolute deviation is about 0.4 times as efficient as a standard deviation.
    freedom = 0.4 * numpy.array([len(row) - 1 for row in logs])
    middle = max(float(numpy.median(deviations)), 1e-4)
    joined_noise: Values = numpy.sqrt(
        (freedom * deviations**2 + SHARED_FREEDOM * middle**2) / (freedom + SHARED_FREEDOM)
    )
    return joined_noise


@dataclass(frozen=True, slots=True)
class _FittedSeries:
    """A series with its limited values, its shape and the number of its outliers."""

    series: RunSeries
    values: Values
    shape: Shape
    outlier_count: int


def _fitted(
    series: RunSeries, values: Values, steps: Shape, slope: Shape, noise: float
) -> _FittedSeries:
    """Return a series with its best steps.

    It has a slope instead if this explains it better.
    """
    shape = slope if slope.cost < steps.cost else steps
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
    """Return the factor that correlation brings to the variance of a mean.

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
    """Removal of the changes that chance explains, from what all series of a history share.

    Args:
        spreads: the spread of a point, by class.
        inflation: the factor by which correlation raises the variance of a mean.
        outlier_share: the share of the points that are outliers.
        comparisons: by how much a p is multiplied.
        smallest_size: the smallest change to report, in log seconds.
    """

    spreads: dict[str, Prior]
    inflation: float
    outlier_share: float
    comparisons: int
    smallest_size: float

    def steps(self, case: _FittedSeries, shape: Shape) -> list[SeriesChange]:
        """Return the steps of a shape that chance does not explain.

        The others are removed one at a time, the least certain first, and those that remain are judged again: their
        segments have become longer.
        """
        while True:
            steps = [self._step(case, shape, number) for number in range(len(shape.cuts))]
            weak = [step for step in steps if not self._is_significant(step)]
            if not weak:
                return steps
            worst = steps.index(max(weak, key=lambda step: (step.p, -abs(step.size))))
            shape = fit_levels(case.values, shape.cuts[:worst] + shape.cuts[worst + 1 :])

    def _is_significant(self, change: SeriesChange) -> bool:
        return change.p <= LEVEL and abs(change.size) > self.smallest_size

    def variance(self, case: _FittedSeries, shape: Shape) -> tuple[float, float]:
        """Return the variance of one point and its degrees of freedom.

        It is joined with the variance of the class.
        """
        prior = self.spreads[case.series.kind]
        freedom = shape.freedom + prior.freedom
        return (shape.square + prior.freedom * prior.process**2) / freedom, freedom

    def _step(self, case: _FittedSeries, shape: Shape, number: int) -> SeriesChange:
        """Return a step between two segments of a shape, with its p.

        `number` is that of the step, and of the segment before it.

        As in verdicts, the hypothesis of p is that the change is not worth reporting.
        """
        variance, freedom = self.variance(case, shape)
        points = len(case.values)
        start, cut, end = [0, *shape.cuts, points][number : number + 3]
        variance_before = self._mean_variance(shape, start, cut, variance)
        variance_after = self._mean_variance(shape, cut, end, variance)
        error = math.sqrt(self.inflation * (variance_before + variance_after))
        level_before, level_after = shape.levels[number : number + 2]
        size = level_after - level_before
        score = (abs(size) - WORTH_REPORTING * self.smallest_size) / error
        # The number of pairs of neighbouring segments: each has three ends among n + 1 places.
        places = math.comb(points + 1, 3)
        p = 2 * float(special.stdtr(freedom, -score)) * places
        # The chance that the shorter segment is only outliers in a row, anywhere in the series: p is no smaller.
        shorter = min(cut - start, end - cut)
        # The share in this series, joined with that of all as if it came from `SHARED_RUNS` runs.
        outlier_count = case.outlier_count + SHARED_RUNS * self.outlier_share
        outlier_share = outlier_count / (points + SHARED_RUNS)
        p = self.comparisons * max(p, points * outlier_share**shorter)
        return step_at(case.series, cut, level_before, size, error, freedom, p)

    def _mean_variance(self, shape: Shape, start: int, end: int, variance: float) -> float:
        """Return the variance of a segment's mean.

        `variance` is that of one point. A segment that varies more has its own.
        """
        residuals = shape.residuals[start:end]
        square = float(residuals @ residuals)
        return max(variance, square / max(1, len(residuals) - 1)) / len(residuals)

    def drift(self, case: _FittedSeries) -> SeriesChange | None:
        """Return the drift of a series.

        It is None where it is not significant, or where steps explain the series better.

        Its p is Mann and Kendall's, its slope Theil and Sen's.
        """
        days = case.series.days
        # Runs of one moment, as of many nodes that start together, show no change over time.
        if case.shape.levels or days[0] == days[-1]:
            return None
        trend = trend_of(days, case.values, self.smallest_size)
        if trend is None:
            return None
        size, interval, score = trend
        # Correlated neighbours make the statistic vary more.
        p = 2 * float(special.ndtr(-score / math.sqrt(self.inflation)))
        runs = case.series.single_runs
        drift = SeriesChange(
            case.series,
            "drift",
            size,
            interval=interval,
            p=min(1.0, p * self.comparisons),
            before=int(runs[0]),
            after=int(runs[-1]),
        )
        return drift if self._is_significant(drift) else None
