"""Steps among the last runs, which show from the third run on.

The search over whole series in `steps` corrects for every place, so it sees a step only after five to seven runs. This
one looks for a step at five places only, three to seven runs before the end, with a separate chance of error.

Each run is compared with the median of the runs before it. There is a step if so many of the last runs lie so far
beyond the median before them that chance hardly explains it. How often runs lie so far away is counted among the
earlier runs of the series and, in units of each one's noise, among those of all other series: no distribution is
trusted in its tails.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy
from pandas import Series

from ..stats.outliers import MEDIAN_ERROR
from ..stats.outlook import WORTH_REPORTING
from .steps import LEVEL, SHARED_FREEDOM, SHORTEST, RunSeries, SeriesChange, Values, noises, step_at

# A step lies at most so many runs before the end.
LAST = 7
# A level is the median of so many runs. Where there are fewer, it needs at least the second number.
LEVEL_RUNS, FEWEST = 30, 5
# The share of the chance of error for a step three runs ago, which has the least evidence. The other places share the
# remainder.
LATEST_PLACE_SHARE = 0.5
# The counts of all other series count for a series like those of so many runs.
SHARED_RUNS = 50.0
# The distances, in units of noise, at which neighbouring runs are counted. Runs beyond the last one are too rare for a
# distance of their own.
DISTANCES = (0.0, 1.0, 2.0, 3.0, 4.0)
# Runs so many places apart hardly share a cause that lasts for a few runs only.
UNRELATED_LAG = 3
# Runs beyond this distance are outliers. The share of outliers that lie further still is counted separately.
OUTLIER = 3.0
# Where the median series became noisier by this factor among the last runs, so did most series. Less is chance.
LOUDER = 1.25


def recent_steps(
    series: Sequence[RunSeries], changes: Sequence[SeriesChange], smallest_change: float
) -> list[SeriesChange]:
    """Return the steps of the last seven runs that exceed chance.

    Each series has at most one.

    Args:
        series: all series of a history.
        changes: those that the search over whole series found. They are removed first; a series that already has such a
            step among its last runs is left out.
        smallest_change: the smallest change to report, as a share of the time.
    """
    series = [runs for runs in series if len(runs.logs) >= LAST + 2 * FEWEST]
    if not series:
        return []
    grid = _Grid.of(series, changes)
    chances = {
        (sign, count): grid.chances(sign, count, math.log1p(smallest_change))
        for sign, count in itertools.product((1, -1), range(SHORTEST, LAST + 1))
    }
    steps = []
    for number, runs in enumerate(series):
        # The direction and the place, counted from the end, that chance explains least.
        sign, count = min(chances, key=lambda place: chances[place][number])
        p = float(chances[sign, count][number])
        if p <= LEVEL and not _ends_with_step(runs, changes):
            steps.append(grid.step(runs, number, count, p))
    return steps


def _ends_with_step(series: RunSeries, changes: Sequence[SeriesChange]) -> bool:
    """Return True where a series has a step among its last runs already."""
    return any(
        change.series is series
        and change.kind == "step"
        and numpy.count_nonzero(series.runs >= change.after) <= LAST
        for change in changes
    )


@dataclass(frozen=True)
class _Grid:
    """All series side by side, without the changes of the search over whole series.

    Args:
        logs: [series, points], log seconds. The last points are aligned, with NaN before shorter series.
        noise: [series], in log seconds.
    """

    logs: Values
    noise: Values

    @classmethod
    def of(cls, series: Sequence[RunSeries], changes: Sequence[SeriesChange]) -> "_Grid":
        """Return the grid of these series, without the changes that were found in them."""
        logs = numpy.full((len(series), max(len(runs.logs) for runs in series)), numpy.nan)
        # The row of each series, by its id, so that its changes can be subtracted.
        rows = {}
        for row, runs in zip(logs, series, strict=True):
            last_points = row[-len(runs.logs) :]
            last_points[:] = runs.logs
            rows[id(runs)] = last_points
        for change in changes:
            if id(change.series) in rows:
                rows[id(change.series)] -= change.path(change.series)
        return cls(logs, noises(series))

    @cached_property
    def middles(self) -> Values:
        """The median of each run and up to 29 runs before it: [series, points]."""
        # All series in one column, each behind so many gaps that no window reaches into the series before it.
        gaps = ((0, 0), (LEVEL_RUNS, 0))
        padded_logs = numpy.pad(self.logs, gaps, constant_values=numpy.nan)
        windows = Series(padded_logs.ravel()).rolling(LEVEL_RUNS, min_periods=FEWEST)
        middles: Values = windows.median().to_numpy().reshape(padded_logs.shape)
        return middles[:, LEVEL_RUNS:]

    @cached_property
    def sides(self) -> "dict[int, _Side]":
        """Distances of earlier runs from the median before each, by direction.

        1 is slower, −1 faster. The last seven runs are left out.
        """
        # Each run against the median that ends with the run before it.
        distances = (self.logs[:, 1:-LAST] - self.middles[:, : -LAST - 1]) / self.noise[:, None]
        return {sign: _Side(sign * distances) for sign in (1, -1)}

    @cached_property
    def recent_noise(self) -> dict[int, Values]:
        """The noise of the last runs, by their number, in log seconds: [series].

        It is that of the series, or more where most series became noisier.
        """
        return {count: self._noise_of_last(count) for count in range(SHORTEST, LAST + 1)}

    def _noise_of_last(self, count: int) -> Values:
        """Return the noise of the last `count` runs, in log seconds: [series]."""
        # Windows of `count` runs, as distances from the first one, so that equal runs have a deviation of exactly 0.
        window_count = self.logs.shape[1] - count + 1
        windows = [
            self.logs[:, index : index + window_count] - self.logs[:, :window_count]
            for index in range(count)
        ]
        middle = sum(windows) / count
        squares = sum((window - middle) ** 2 for window in windows)
        # The deviation of each window, as a multiple of the noise of its series.
        scatter = numpy.sqrt(squares / (count - 1)) / self.noise[:, None]
        before = float(numpy.nanmedian(scatter[:, :-LAST]))
        factor = float(numpy.median(scatter[:, -1])) / before if before > 0 else 1.0
        noise: Values = self.noise * (factor if factor > LOUDER else 1.0)
        return noise

    def recent_distances(self, count: int) -> Values:
        """Return how far the last `count` runs lie above the median before them.

        It is in log seconds: [series, count].
        """
        # All of them against one median, which ends with the last run before them.
        distances: Values = self.logs[:, -count:] - self.middles[:, -count - 1, None]
        return distances

    def chances(self, sign: int, count: int, smallest_size: float) -> Values:
        """Return the p of a step before the last `count` runs: [series].

        It is corrected for all places and series. A noisy series gets a larger share of the chance of error, since a
        quiet one shows a step of a size to report even with a small share. `sign` is +1 for slower, -1 for faster.
        """
        distances, recent_noise = sign * self.recent_distances(count), self.recent_noise[count]
        # The distances of all earlier runs from the level before the step.
        earlier_distances = sign * (self.logs[:, :-LAST] - self.middles[:, -count - 1, None])
        place_share = (
            LATEST_PLACE_SHARE
            if count == SHORTEST
            else (1 - LATEST_PLACE_SHARE) / (LAST - SHORTEST)
        )
        # How many of the runs must lie that far away. One in every four may be an outlier, so of three none may.
        required_counts = range(count - count // 4, count + 1)
        # The share of the chance of error for this place, required count, direction and series.
        budget = (
            place_share / len(required_counts) / len(self.sides) * self.noise / self.noise.sum()
        )
        # Distances beyond a change not worth reporting, the largest first.
        descending_distances = -numpy.sort(-(distances - WORTH_REPORTING * smallest_size), axis=1)
        descending_distances /= recent_noise[:, None]
        p = numpy.min(
            [
                self.sides[sign].chance(
                    descending_distances[:, required - 1],
                    earlier_distances / self.noise[:, None],
                    required,
                    count,
                )
                for required in required_counts
            ],
            axis=0,
        )
        is_worth_reporting = numpy.median(distances, axis=1) > smallest_size
        # Divided by its share of the chance of error, p can be compared with the whole of it.
        return numpy.where(is_worth_reporting, numpy.minimum(1.0, p / budget), 1.0)

    def step(self, series: RunSeries, number: int, count: int, p: float) -> SeriesChange:
        """Return the step before the last `count` runs.

        `number` is the row of the series, and `p` the chance of the step.
        """
        size = float(numpy.median(self.recent_distances(count)[number]))
        count_before = min(LEVEL_RUNS, len(series.logs) - count)
        noise = float(self.recent_noise[count][number])
        error = MEDIAN_ERROR * noise * math.sqrt(1 / count + 1 / count_before)
        # The degrees of freedom of the noise, as in `steps.noises`.
        freedom = 0.4 * (len(series.logs) - 1) + SHARED_FREEDOM
        cut = len(series.logs) - count
        # The level before the step: the median of up to `LEVEL_RUNS` runs.
        level = float(numpy.median(series.logs[cut - count_before : cut]))
        return step_at(series, cut, level, size, error, freedom, p)


@dataclass(frozen=True)
class _Side:
    """Distances of earlier runs in one direction.

    `distances` is [series, points]: from the median before each run, in units of noise.
    """

    distances: Values

    @cached_property
    def runs(self) -> Values:
        """The number of runs of each series."""
        runs: Values = numpy.count_nonzero(~numpy.isnan(self.distances), axis=1)
        return runs

    @cached_property
    def pool(self) -> Values:
        """The distances of all series, sorted."""
        pool: Values = numpy.sort(self.distances[~numpy.isnan(self.distances)])
        return pool

    @cached_property
    def follow_chances(self) -> Values:
        """The added chance that a distant run follows another, at each of `DISTANCES`.

        Pairs of neighbours show it. Pairs of runs `UNRELATED_LAG` places apart are subtracted, as noisy series and old
        steps produce both.
        """
        chances = []
        for distance in DISTANCES:
            is_far = self.distances >= distance
            neighbours, unrelated = (
                numpy.count_nonzero(is_far[:, lag:] & is_far[:, :-lag])
                for lag in (1, UNRELATED_LAG)
            )
            # Less one standard error of the difference, which chance may produce.
            surplus = neighbours - unrelated - math.sqrt(neighbours + unrelated)
            chances.append(max(0.0, surplus) / max(1, is_far.sum()))
        return numpy.array(chances)

    def counts(self, distances: Values, level: Values) -> tuple[Values, Values]:
        """Return how many runs lie at a distance or beyond.

        The first result is that of each series, the second that of all other series. Runs of the series are counted
        from the median before each and from the level before the step. The larger count holds, since a series with two
        modes has two levels.

        Args:
            distances: [series], in units of noise.
            level: [series, points], the distances of earlier runs from the level before the step.
        """
        series_counts = (self.distances >= distances[:, None]).sum(axis=1)
        other_counts = len(self.pool) - numpy.searchsorted(self.pool, distances) - series_counts
        level_counts = numpy.minimum(self.runs, (level >= distances[:, None]).sum(axis=1))
        return numpy.maximum(series_counts, level_counts), other_counts

    def chance(self, distances: Values, level: Values, number: int, count: int) -> Values:
        """Return the chance of `number` distant runs among `count`: [series].

        It follows from two shares: that of runs which are outliers, and that of outliers which lie so far away. Both
        are estimated from counts, so each has a beta distribution.

        Args:
            distances: [series], the distance that the distant runs reach, from the level before the step.
            level: [series, points], the distances of all earlier runs from that level.
            number: how many runs are distant.
            count: how many runs there are after the step.
        """
        outliers = self.counts(numpy.minimum(distances, OUTLIER), level)
        further = self.counts(distances, level)
        # The runs that were counted: of the series, and of all others.
        totals = self.runs, len(self.pool) - self.runs
        powers = _mean_power(outliers, totals, number) * _mean_power(further, outliers, number)
        # The share that each of the distant runs stands for: its power is the chance of all of them.
        share = powers ** (1 / number)
        index = numpy.searchsorted(DISTANCES, distances, side="right") - 1
        # The first distant run comes by chance; each further one may also follow another.
        follower_share = numpy.minimum(1.0, share + self.follow_chances[numpy.maximum(index, 0)])
        p = math.comb(count, number) * share * follower_share ** (number - 1)
        # Runs on the other side of the level are no evidence.
        return numpy.where(distances > 0, p, 1.0)


def _mean_power(
    counts: tuple[Values, Values], totals: tuple[Values, Values], exponent: int
) -> Values:
    """Return the mean of a share to a power, under its beta distribution: [series].

    Counts and totals are those of each series and those of all others. The latter are joined with the
    former as if they came from at most `SHARED_RUNS` runs.
    """
    (series_counts, other_counts), (series_totals, other_totals) = counts, totals
    other_share = (other_counts + 1) / (other_totals + 1)
    weight = numpy.clip(other_totals, 1, SHARED_RUNS)
    count, total = weight * other_share + series_counts, weight + series_totals
    # The mean of the k-th power under a beta distribution: the product of (count + i) / (total + i) for i below k.
    steps = numpy.arange(exponent)[:, None]
    powers: Values = numpy.prod((count + steps) / (total + steps), axis=0)
    return powers
