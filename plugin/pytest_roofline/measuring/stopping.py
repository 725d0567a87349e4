"""When enough was measured: how well a median is known, whether it drifts. Pure arithmetic on seconds per call."""

import math
from collections.abc import Sequence
from statistics import median

FEWEST_BLOCKS = 5
# A first and a second half that differ by more than this have a trend, however narrow the interval is.
TREND = 0.01


def median_half_width(seconds: Sequence[float]) -> float:
    """Half the width of a 95 % interval of the median, as a share of it.

    Distribution-free, from order statistics: ranks n/2 ± 1.96·√n/2 (Conover, Practical Nonparametric Statistics, 3.2).
    """
    ordered = sorted(seconds)
    low, high = _interval(ordered)
    return (high - low) / 2 / ordered[len(ordered) // 2]


def _interval(ordered: Sequence[float]) -> tuple[float, float]:
    count = len(ordered)
    reach = 1.96 * math.sqrt(count) / 2
    return ordered[max(0, math.floor(count / 2 - reach))], ordered[min(count - 1, math.ceil(count / 2 + reach))]


def trend(seconds: Sequence[float]) -> float:
    """How much slower the second half is than the first, as a share: medians of the two; 0 below four values."""
    if len(seconds) < 4:
        return 0.0
    middle = len(seconds) // 2
    return median(seconds[middle:]) / median(seconds[:middle]) - 1


def known(seconds: Sequence[float], precision: float) -> bool:
    """Whether the medians of blocks, in the order taken, are enough, agree and do not drift."""
    return (
        len(seconds) >= FEWEST_BLOCKS
        and median_half_width(seconds) <= precision
        and abs(trend(seconds)) <= max(TREND, precision)
    )


def ending(seconds: Sequence[float], precision: float) -> str:
    """What to say where the budget ended a measurement: `drifting`, `noisy`, or nothing.

    Drifting needs a trend that noise does not explain: two halves whose intervals have nothing in common.
    """
    if known(seconds, precision):
        return ""
    if not seconds:
        return "noisy"
    middle = len(seconds) // 2
    if len(seconds) >= 2 * FEWEST_BLOCKS and abs(trend(seconds)) > max(TREND, precision):
        (low, high), (later_low, later_high) = _interval(sorted(seconds[:middle])), _interval(sorted(seconds[middle:]))
        if high < later_low or later_high < low:
            return "drifting"
    return "noisy"
