"""What a series did: the steps and the slope that explain it best, before anybody asks whether chance could have.

Steps are located by `ruptures` (exact search with pruning, PELT, of Killick et al. 2012, under squared error) on values
whose single outliers are drawn in. Steps, a slope, or both are chosen by the Bayesian information criterion.
"""

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from .series import SHORTEST

if TYPE_CHECKING:
    from numpy import ndarray

# An outlier is drawn in to so many standard deviations from the middle of its neighbours.
DRAWN_IN = 3.0
NEIGHBOURS = 5
# The middle absolute deviation of a normal distribution, as a share of its standard deviation; of differences, √2 more.
MAD = 0.6745
# A step takes two parameters, its place and its size, each at the criterion's price of log(n); one more since its
# place was searched for (Zhang & Siegmund 2007).
STEP_PRICE = 3.0
# From one fit to the next: places of steps, then sizes and slope, then places again.
MOST_FITS = 4


@dataclass(frozen=True, slots=True)
class Shape:
    """Steps before points `cuts`, levels between them, and a slope in log seconds a day through all.

    Args:
        cuts: number of the first point behind each step.
        slope: 0 without drift.
        levels: of each segment, once the slope is taken out.
        rest: of each point, what is left of the drawn-in value.
    """

    cuts: tuple[int, ...]
    slope: float
    levels: tuple[float, ...]
    rest: "ndarray[Any, Any]"

    @property
    def freedom(self) -> int:
        """Degrees of freedom of what is left."""
        return len(self.rest) - len(self.levels) - bool(self.slope)

    @property
    def cost(self) -> float:
        """The Bayesian information criterion; less is better."""
        count = len(self.rest)
        square = max(float(self.rest @ self.rest) / count, 1e-12)
        return count * math.log(square) + (STEP_PRICE * len(self.cuts) + bool(self.slope)) * math.log(count)


def noise_of(logs: "ndarray[Any, Any]") -> float:
    """The standard deviation of a series, from the differences of neighbours, which steps and drifts hardly touch."""
    import numpy

    return float(numpy.median(numpy.abs(numpy.diff(logs)))) / MAD / math.sqrt(2)


def draw_in(logs: "ndarray[Any, Any]", noise: float) -> "ndarray[Any, Any]":
    """The series with single outliers drawn in towards the middle of their neighbours."""
    import numpy
    from scipy.ndimage import median_filter

    middle = median_filter(logs, size=NEIGHBOURS, mode="nearest")
    drawn: ndarray[Any, Any] = numpy.clip(logs, middle - DRAWN_IN * noise, middle + DRAWN_IN * noise)
    return drawn


def locate(values: "ndarray[Any, Any]", noise: float) -> tuple[int, ...]:
    """The first points behind each step."""
    import ruptures

    search = ruptures.KernelCPD(kernel="linear", min_size=SHORTEST)
    scaled = ((values - values.mean()) / noise).reshape(-1, 1)
    return tuple(int(cut) for cut in search.fit_predict(scaled, pen=STEP_PRICE * math.log(len(values)))[:-1])


def fit(days: "ndarray[Any, Any]", values: "ndarray[Any, Any]", cuts: tuple[int, ...], *, slope: bool) -> Shape:
    """Levels, and a slope through all of them where one is asked for, by least squares."""
    import numpy

    bounds = [0, *cuts, len(values)]
    parts = [slice(start, end) for start, end in pairwise(bounds)]
    steepness = 0.0
    if slope:
        apart = numpy.concatenate([days[part] - days[part].mean() for part in parts])
        level = numpy.concatenate([values[part] - values[part].mean() for part in parts])
        square = float(apart @ apart)
        steepness = float(apart @ level) / square if square > 0 else 0.0
    flat = values - steepness * days
    levels = tuple(float(flat[part].mean()) for part in parts)
    rest = numpy.concatenate([flat[part] - level for part, level in zip(parts, levels, strict=True)])
    return Shape(cuts, steepness, levels, rest)


def best_shape(days: "ndarray[Any, Any]", values: "ndarray[Any, Any]", noise: float) -> Shape:
    """Of steps, a slope, and both, what explains a drawn-in series best."""
    found = [fit(days, values, locate(values, noise), slope=False), fit(days, values, (), slope=True)]
    if found[0].cuts:
        # A step looks like a slope and a slope like steps, so the search for both begins from either.
        found += [_both(days, values, noise, start) for start in tuple(found)]
    return min(found, key=lambda shape: shape.cost)


def _both(days: "ndarray[Any, Any]", values: "ndarray[Any, Any]", noise: float, start: Shape) -> Shape:
    shape = fit(days, values, start.cuts, slope=True)
    for _ in range(MOST_FITS):
        again = fit(days, values, locate(values - shape.slope * days, noise), slope=True)
        if again.cuts == shape.cuts:
            break
        shape = again
    return shape
