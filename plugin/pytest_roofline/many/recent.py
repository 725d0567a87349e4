"""Steps of the last runs, seen by the third of them.

The pass over whole series in `steps` pays for every place and sees a step after five to seven runs. This one asks for a
step at five places only, three to seven runs before the end, with a chance of error of its own.

Each run is compared with the middle of the runs before it. A step is so many of the last runs so far beyond the middle
before them that chance hardly explains it. How often runs lie so far away is counted, among the earlier runs of this
series and, in units of each one's noise, of all other series: no distribution is trusted in its tails.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy
from pandas import DataFrame

from ..stats.outliers import MEDIAN_ERROR
from ..stats.outlook import WORTH_REPORTING
from ..stats.stats import quantile
from .steps import LEVEL, SHARED_FREEDOM, SHORTEST, RunSeries, SeriesChange, Values, noises

# A step lies so many runs before the end at most.
LAST = 7
# A level is the middle of so many runs, and of at least the second number where there are fewer.
LEVEL_RUNS, FEWEST = 30, 5
# The share of the chance of error for a step three runs ago, which shows the least; other places share the remainder.
THIRD = 0.5
# How many runs the counts of all other series are worth to one of them.
SHARED_RUNS = 50.0
# Distances in units of noise at which runs in a row are counted; all further ones are rare, and lie alone or do not.
DISTANCES = (0.0, 1.0, 2.0, 3.0, 4.0)
# Runs so far from each other hardly have a cause in common that soon ends.
UNRELATED_LAG = 3
# Runs beyond this distance are an outlier; of these it is counted how many lie further still.
OUTLIER = 3.0
# Most series became noisier among the last runs where the middle one did by this factor; less is chance.
LOUDER = 1.25


def recent_steps(
    series: Sequence[RunSeries], changes: Sequence[SeriesChange], smallest_change: float
) -> list[SeriesChange]:
    """Return the steps of the last seven runs that exceed chance.

    Each series has at most one.

    Args:
        series: all series of a history.
        changes: those of the pass over whole series, which are taken out; a series with a step among its last runs is
            left alone.
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
        sign, count = min(chances, key=lambda place: chances[place][number])
        p = float(chances[sign, count][number])
        if p <= LEVEL and not _ends_with_step(runs, changes):
            steps.append(grid.step(runs, number, count, p))
    return steps


def _ends_with_step(series: RunSeries, changes: Sequence[SeriesChange]) -> bool:
    return any(
        change.series is series
        and change.kind == "step"
        and numpy.count_nonzero(series.runs >= change.after) <= LAST
        for change in changes
    )


@dataclass(frozen=True)
class _Grid:
    """Log seconds of all series without the known changes: [series, points].

    The last points are aligned.

    Args:
        logs: NaN in front of shorter series.
        noise: of each series, in log seconds.
    """

    logs: Values
    noise: Values

    @classmethod
    def of(cls, series: Sequence[RunSeries], changes: Sequence[SeriesChange]) -> "_Grid":
        """Return a grid of these series side by side."""
        logs = numpy.full((len(series), max(len(runs.logs) for runs in series)), numpy.nan)
        rows = {}
        for row, runs in zip(logs, series, strict=True):
            rows[id(runs)] = row[-len(runs.logs) :]
            rows[id(runs)][:] = runs.logs
        for change in changes:
            if id(change.series) in rows:
                rows[id(change.series)] -= change.path(change.series)
        return cls(logs, numpy.array(noises(series)))

    @cached_property
    def middles(self) -> Values:
        """The middle of each run and those before it."""
        windows = DataFrame(self.logs.T).rolling(LEVEL_RUNS, min_periods=FEWEST)
        middles: Values = windows.median().to_numpy().T
        return middles

    @cached_property
    def sides(self) -> "dict[int, _Side]":
        """Distances of earlier runs above and below the middle. The last seven runs are left out."""
        away = (self.logs[:, 1:-LAST] - self.middles[:, : -LAST - 1]) / self.noise[:, None]
        return {sign: _Side(sign * away) for sign in (1, -1)}

    def unit(self, count: int) -> Values:
        """Return the noise of the last `count` runs.

        It is that of the series, or more where most series became noisier.
        """
        scatter = DataFrame(self.logs.T).rolling(count).std().to_numpy().T / self.noise[:, None]
        before = float(numpy.nanmedian(scatter[:, :-LAST]))
        louder = float(numpy.median(scatter[:, -1])) / before if before > 0 else 1.0
        unit: Values = self.noise * (louder if louder > LOUDER else 1.0)
        return unit

    def beyond(self, count: int) -> Values:
        """Return the last `count` runs above the preceding middle: [series, count]."""
        away: Values = self.logs[:, -count:] - self.middles[:, -count - 1, None]
        return away

    def chances(self, sign: int, count: int, smallest_size: float) -> Values:
        """Return the p of a step before the last `count` runs. It is corrected for all places.

        A series pays for its place among all by its noise: a quiet one shows a step of the size to report anyhow.
        """
        away, unit = sign * self.beyond(count), self.unit(count)
        level = sign * (self.logs[:, :-LAST] - self.middles[:, -count - 1, None])
        places = THIRD if count == SHORTEST else (1 - THIRD) / (LAST - SHORTEST)
        # Of four runs and more, one may be an outlier; of three all are needed.
        numbers = range(count - count // 4, count + 1)
        budget = places / len(numbers) / len(self.sides) * self.noise / self.noise.sum()
        nearest = -numpy.sort(-(away - WORTH_REPORTING * smallest_size), axis=1) / unit[:, None]
        p = numpy.min(
            [
                self.sides[sign].chance(
                    nearest[:, number - 1], level / self.noise[:, None], number, count
                )
                for number in numbers
            ],
            axis=0,
        )
        worthy = numpy.median(away, axis=1) > smallest_size
        return numpy.where(worthy, numpy.minimum(1.0, p / budget), 1.0)

    def step(self, series: RunSeries, number: int, count: int, p: float) -> SeriesChange:
        """Return the step before the last `count` runs."""
        size = float(numpy.median(self.beyond(count)[number]))
        before = min(LEVEL_RUNS, len(series.logs) - count)
        error = MEDIAN_ERROR * float(self.unit(count)[number]) * math.sqrt(1 / count + 1 / before)
        half = quantile(0.975, 0.4 * (len(series.logs) - 1) + SHARED_FREEDOM) * error
        cut = len(series.logs) - count
        level = float(numpy.median(series.logs[cut - before : cut]))
        low, high = series.around(cut, level, level + size)
        return SeriesChange(series, "step", size, (size - half, size + half), p, low, high)


@dataclass(frozen=True)
class _Side:
    """Distances of earlier runs on one side: [series, points].

    They are from the middle before each, in units of noise.
    """

    away: Values

    @cached_property
    def runs(self) -> Values:
        """The number of runs of each series."""
        runs: Values = numpy.count_nonzero(~numpy.isnan(self.away), axis=1)
        return runs

    @cached_property
    def pool(self) -> Values:
        """The distances of all series, sorted."""
        pool: Values = numpy.sort(self.away[~numpy.isnan(self.away)])
        return pool

    @cached_property
    def follows(self) -> Values:
        """The excess chance that such a run follows another. It is given at each of `DISTANCES`.

        By pairs of neighbours, less those of runs `APART` from each other: restless series and old steps make both.
        """
        shares = []
        for distance in DISTANCES:
            far = self.away >= distance
            near, distant = (
                numpy.count_nonzero(far[:, lag:] & far[:, :-lag]) for lag in (1, UNRELATED_LAG)
            )
            surplus = near - distant - math.sqrt(near + distant)
            shares.append(max(0.0, surplus) / max(1, far.sum()))
        return numpy.array(shares)

    def counts(self, distances: Values, level: Values) -> tuple[Values, Values]:
        """Return how many runs lie at a distance or beyond.

        They are those of each series, and of all others.

        Of a series more count where more lie so far from the level of today: one with two modes has two levels.
        """
        own_count = (self.away >= distances[:, None]).sum(axis=1)
        pooled_count = len(self.pool) - numpy.searchsorted(self.pool, distances) - own_count
        today = numpy.minimum(self.runs, (level >= distances[:, None]).sum(axis=1))
        return numpy.maximum(own_count, today), pooled_count

    def chance(self, distances: Values, level: Values, number: int, count: int) -> Values:
        """Return the chance of `number` distant runs among `count`.

        The share of runs that are outliers, and that of outliers that lie so far away, are known by counts alone. So
        each has a beta distribution: the series' own counts, and those of all others as so many runs.

        Args:
            distances: of each series, from the level before the place.
            level: distances of all earlier runs from that level, [series, points].
        """
        outliers = self.counts(numpy.minimum(distances, OUTLIER), level)
        further = self.counts(distances, level)
        totals = self.runs, len(self.pool) - self.runs
        powers = _power(outliers, totals, number) * _power(further, outliers, number)
        share = powers ** (1 / number)
        index = numpy.searchsorted(DISTANCES, distances, side="right") - 1
        follower_share = numpy.minimum(1.0, share + self.follows[numpy.maximum(index, 0)])
        p = math.comb(count, number) * share * follower_share ** (number - 1)
        return numpy.where(distances > 0, p, 1.0)


def _power(counts: tuple[Values, Values], totals: tuple[Values, Values], exponent: int) -> Values:
    """Return the mean of a share to a power.

    A series' own count is joined with those of all others, which are worth `SHARED_RUNS`.
    """
    share = (counts[1] + 1) / (totals[1] + 1)
    weight = numpy.clip(totals[1], 1, SHARED_RUNS)
    first, total = weight * share + counts[0], weight + totals[0]
    steps = numpy.arange(exponent)[:, None]
    powers: Values = numpy.prod((first + steps) / (total + steps), axis=0)
    return powers
