"""When enough was measured: how well a median is known, whether it drifts. Pure arithmetic on seconds per call."""

import itertools
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


def is_steady(seconds: Sequence[float], precision: float, horizon: float = 1.0) -> bool:
    """Whether nothing drifts that would matter by the end of the budget.

    A drift matters if the halves of what was measured differ by more than is to be known; or if it is more than noise,
    and going on like this the halves of the whole budget would.

    Args:
        seconds: medians of blocks, in the order taken.
        precision: how well the median is to be known, as a share.
        horizon: how many times longer than so far the whole budget is.
    """
    limit = max(TREND, precision)
    moved = abs(trend(seconds))
    return moved <= limit and (moved * horizon <= limit or not _rises_or_falls(seconds))


def _rises_or_falls(seconds: Sequence[float]) -> bool:
    """The Mann-Kendall test at 5 %: pairs in order against pairs out of order (Kendall, Rank Correlation Methods)."""
    count = len(seconds)
    score = sum((later > earlier) - (later < earlier) for earlier, later in itertools.combinations(seconds, 2))
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return (abs(score) - 1) / spread > 1.96 if count > 1 else False


def known(seconds: Sequence[float], precision: float, horizon: float = 1.0) -> bool:
    """Whether the medians of blocks, in the order taken, are enough, agree and do not drift."""
    return (
        len(seconds) >= FEWEST_BLOCKS
        and median_half_width(seconds) <= precision
        and is_steady(seconds, precision, horizon)
    )


def ending(seconds: Sequence[float], precision: float) -> str:
    """What to say where the budget ended a measurement: `drifting`, `noisy`, or nothing."""
    if known(seconds, precision):
        return ""
    moved = abs(trend(seconds)) > max(TREND, precision)
    return "drifting" if moved and _rises_or_falls(seconds) else "noisy"
