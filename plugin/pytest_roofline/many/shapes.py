"""Series of a history, and what each did: the steps or the slope that explain it best, whatever chance could do.

Steps are located by `ruptures` (exact search with pruning, PELT, of Killick et al. 2012, under squared error) on values
whose single outliers are drawn in. Steps or a slope are chosen by the Bayesian information criterion.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import ndarray

    Values = ndarray[Any, Any]

# Two segments of three runs: fewer cannot show a step that is more than an outlier.
FEWEST_RUNS, SHORTEST = 6, 3
# An outlier is drawn in to so many standard deviations from the middle of its neighbours.
DRAWN_IN, NEIGHBOURS = 3.0, 5
# A step takes two parameters, its place and its size, each at the criterion's price of log(n); one more since its
# place was searched for (Zhang & Siegmund 2007).
STEP_PRICE = 3.0


@dataclass(frozen=True, slots=True)
class RunSeries:
    """One test over time on one unit, or in the middle of all units.

    Args:
        test: number of the test.
        unit: device, node, or empty where all of a hardware are one series.
        runs: number of each point's run, in the order of time; of a common series the last one of each point.
        days: since the first run of the history, of each point.
        logs: log seconds of each point; of a common series, above each unit's own median.
        kind: class of the noise that is assumed: `device` or `host`.
        raw: of a common series, the runs and logs that its points are the middles of, in the order of time.
        steadier: what is assumed of a point's noise, as a share of that of one run.
    """

    test: int
    unit: str
    runs: "Values"
    days: "Values"
    logs: "Values"
    kind: str = "device"
    raw: "tuple[Values, Values] | None" = None
    steadier: float = 1.0

    @property
    def common(self) -> bool:
        """Whether it is the middle of all units."""
        return self.raw is not None

    def around(self, cut: int, low: float, high: float) -> tuple[int, int]:
        """The last run before the step in front of point `cut`, from level `low` to `high`, and the first behind it.

        A point of a common series has a run of every unit; among these the step is where both levels fit best.
        """
        if self.raw is None:
            return int(self.runs[cut - 1]), int(self.runs[cut])
        import numpy

        runs, logs = self.raw
        start = int(numpy.searchsorted(runs, self.runs[cut - 2], side="right")) if cut > 1 else 0
        end = int(numpy.searchsorted(runs, self.runs[cut], side="right"))
        apart = numpy.abs(logs[start:end] - low) - numpy.abs(logs[start:end] - high)
        # At least one run stays on either side.
        place = start + 1 + int(numpy.argmin(numpy.cumsum(apart)[:-1]))
        return int(runs[place - 1]), int(runs[place])


@dataclass(frozen=True, slots=True)
class Shape:
    """Steps before points `cuts` with levels between them, or a slope through all.

    Args:
        cuts: number of the first point behind each step.
        levels: of each segment, in log seconds; none of a slope.
        rest: of each point, what is left of the drawn-in value.
    """

    cuts: tuple[int, ...]
    levels: tuple[float, ...]
    rest: "Values"

    @property
    def bounds(self) -> list[int]:
        """The first point of each segment, and the end."""
        return [0, *self.cuts, len(self.rest)]

    @property
    def freedom(self) -> int:
        """Degrees of freedom of what is left: a slope takes two, with its level."""
        return len(self.rest) - (len(self.levels) or 2)

    @property
    def cost(self) -> float:
        """The Bayesian information criterion; less is better."""
        count = len(self.rest)
        square = max(float(self.rest @ self.rest) / count, 1e-12)
        return count * math.log(square) + (STEP_PRICE * len(self.cuts) + (not self.levels)) * math.log(count)


def stepped(values: "Values", noise: float) -> Shape:
    """The steps that explain a drawn-in series best."""
    import ruptures

    search = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST)
    scaled = ((values - values.mean()) / noise).reshape(-1, 1)
    found = search.fit_predict(scaled, pen=STEP_PRICE * math.log(len(values)))
    return levelled(values, tuple(int(cut) for cut in found[:-1]))


def levelled(values: "Values", cuts: tuple[int, ...]) -> Shape:
    """Steps at these places, with the mean of each segment as its level."""
    import numpy

    parts = numpy.split(values, cuts)
    levels = tuple(float(part.mean()) for part in parts)
    return Shape(cuts, levels, numpy.concatenate([part - level for part, level in zip(parts, levels, strict=True)]))


def sloped(days: "Values", values: "Values") -> Shape:
    """A slope through all of a drawn-in series, by least squares."""
    import numpy

    apart, flat = days - days.mean(), values - values.mean()
    square = float(apart @ apart)
    rest: Values = flat - (float(apart @ flat) / square if square > 0 else 0.0) * apart
    return Shape((), (), numpy.asarray(rest))


def drawn_in(logs: "Values", noise: float) -> "Values":
    """The series with single outliers drawn in towards the middle of their neighbours."""
    import numpy
    from scipy.ndimage import median_filter

    middle = median_filter(logs, size=NEIGHBOURS, mode="nearest")
    drawn: Values = numpy.clip(logs, middle - DRAWN_IN * noise, middle + DRAWN_IN * noise)
    return drawn
