"""Devices that changed otherwise than the rest of their side: where one decides, or is broken, a mean hides it."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median

from .looks import FALSE_RED, FEWEST_TESTS
from .qualifying_sides import Change
from .spread import Prior

# Of fewer devices none stands out: their median is half of two of them. That they disagree can still be seen.
FEWEST_COMPARED = 4
# Robust standard deviations by which a device stands out; many tests of many devices are looked at.
STANDS_OUT = 5.0
# Errors of a difference by which two devices disagree.
DISAGREE = 3.0
# How well a median deviation tells a standard deviation, against how well the deviations themselves would.
EFFICIENCY = 0.37


@dataclass(frozen=True, slots=True)
class Outlier:
    """A device whose change is far from that of the others of its side.

    Args:
        slower: whether it got slower by more than the tolerance, beyond what the controls did.
        before: whether its time stood out before the upgrade as well; None where too few devices tell.
    """

    change: Change
    slower: bool
    before: bool | None


@dataclass(frozen=True, slots=True)
class Apart:
    """What is strange on one side of one test.

    Args:
        outliers: devices that stand out among four or more, farthest first.
        torn: all devices, slowest first, where there are two or three that disagree; else none.
        rest: the least and the largest change of the devices that do not stand out.
        slower: the devices among both that got slower by more than the tolerance, beyond what the controls did; of
            torn ones only where chance is no excuse.
    """

    outliers: tuple[Outlier, ...] = ()
    torn: tuple[Change, ...] = ()
    rest: tuple[float, float] = (0.0, 0.0)
    slower: tuple[Change, ...] = ()

    @property
    def strange(self) -> bool:
        """Whether anything is."""
        return bool(self.outliers or self.torn)


def apart(
    changes: Sequence[Change],
    controls: Sequence[Change],
    everyone: Sequence[Change],
    tolerance: float,
    among: Prior | None,
) -> Apart:
    """What is strange among the devices of a side.

    Args:
        changes: of the side.
        controls: whose median change is what time itself did.
        everyone: the devices of both sides, for what was strange before.
        tolerance: below which nothing is.
        among: how the changes of devices differ in the other tests; None where too few tests tell.
    """
    limit = math.log1p(tolerance)
    drift = median(change.estimate for change in controls) if controls else 0.0
    torn, surely = _torn(changes, limit, among)
    found = [
        Outlier(change, change.estimate - drift > limit, _stood_out(change, everyone, limit))
        for change in _outliers(changes, limit, among)
    ]
    rest = [c.estimate for c in changes if not any(c is outlier.change for outlier in found)]
    slower = [outlier.change for outlier in found if outlier.slower]
    slower += [change for change in torn if surely and change.estimate - drift > limit]
    return Apart(tuple(found), tuple(torn), (min(rest), max(rest)) if rest else (0.0, 0.0), tuple(slower))


def _outliers(changes: Sequence[Change], limit: float, among: Prior | None) -> list[Change]:
    """Devices whose own change lies far from the others', in robust standard deviations and beyond the tolerance."""
    if len(changes) < FEWEST_COMPARED:
        return []
    estimates = [change.estimate for change in changes]
    middle, spread = _robust(estimates)
    if among is not None:
        weight = EFFICIENCY * (len(changes) - 1)
        joined = (weight * spread**2 + among.freedom * among.process**2) / (weight + among.freedom)
        spread = math.sqrt(joined)
    # Devices that agree by chance make any other stand out; none differs less than runs of itself do.
    least = median(change.assumed.error for change in changes)
    beyond = max(STANDS_OUT * max(spread, least), limit)
    found = [change for change in changes if abs(change.estimate - middle) > beyond]
    return sorted(found, key=lambda change: -abs(change.estimate - middle))


def _torn(changes: Sequence[Change], limit: float, among: Prior | None) -> tuple[list[Change], bool]:
    """Two or three devices that lie farther apart than their runs and the other tests explain, slowest first.

    With it, whether that holds although the spread is itself hardly known: by Tukey's studentized range.
    """
    if not 1 < len(changes) < FEWEST_COMPARED:
        return [], False
    estimates = [change.estimate for change in changes]
    error, freedom = fmean(c.assumed.error for c in changes), min(c.assumed.freedom for c in changes)
    if among is not None and among.process > error:
        error, freedom = among.process, among.freedom
    span = max(estimates) - min(estimates)
    if span <= max(DISAGREE * math.sqrt(2) * error, limit):
        return [], False
    from scipy.stats import studentized_range

    chance = float(studentized_range.sf(span / error, len(changes), freedom))
    return sorted(changes, key=lambda change: -change.estimate), chance < FALSE_RED / FEWEST_TESTS


def _stood_out(change: Change, everyone: Sequence[Change], limit: float) -> bool | None:
    """Whether a device's time was far from the other devices' before the upgrade already."""
    if len(everyone) < FEWEST_COMPARED:
        return None
    middle, spread = _robust([math.log(other.assumed.reference_s) for other in everyone])
    return abs(math.log(change.assumed.reference_s) - middle) > max(STANDS_OUT * spread, limit)


def _robust(values: Sequence[float]) -> tuple[float, float]:
    """The median, and the median absolute deviation as the standard deviation that goes with it."""
    from scipy.stats import median_abs_deviation

    return median(values), float(median_abs_deviation(values, scale="normal"))
