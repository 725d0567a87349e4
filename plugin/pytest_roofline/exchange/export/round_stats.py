"""The statistics of pytest-benchmark's files, by its own definitions (`pytest_benchmark/stats.py`, 5.3)."""

import statistics
from collections.abc import Sequence
from typing import Any

# Beyond so many interquartile ranges from the quartiles a round is an outlier, as Tukey's box plots have it.
_FENCE = 1.5


def round_stats(seconds: Sequence[float]) -> dict[str, Any]:
    """Every figure that such a file holds of the rounds of a test, but the rounds themselves.

    Args:
        seconds: of each round, per call; at least one.
    """
    ordered = sorted(seconds)
    mean, total = statistics.mean(ordered), sum(seconds)
    stddev = statistics.stdev(ordered) if len(ordered) > 1 else 0.0
    q1, q3 = _lower_quartile(ordered), _lower_quartile(ordered[::-1])
    low, high = q1 - _FENCE * (q3 - q1), q3 + _FENCE * (q3 - q1)
    far, outside = _beyond(ordered, mean - stddev, mean + stddev), _beyond(ordered, low, high)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": stddev,
        "rounds": len(ordered),
        "median": statistics.median(ordered),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": outside,
        "stddev_outliers": far,
        "outliers": f"{far};{outside}",
        "ld15iqr": min(value for value in ordered if value >= min(low, ordered[-1])),
        "hd15iqr": max(value for value in ordered if value <= max(high, ordered[0])),
        "ops": len(ordered) / total,
        "total": total,
    }


def _lower_quartile(ordered: Sequence[float]) -> float:
    """The first quartile; of values in falling order the third.

    Of an even count the median of its half. Of an odd one a weighted mean of two neighbours, which lies between the
    halves with and without the value in the middle.
    """
    count = len(ordered)
    if count == 1:
        return ordered[0]
    if count % 2 == 0:
        return statistics.median(ordered[: count // 2])
    at, weight = (count // 4 - 1, 0.25) if count % 4 == 1 else (count // 4, 0.75)
    return weight * ordered[at] + (1 - weight) * ordered[at + 1]


def _beyond(values: Sequence[float], low: float, high: float) -> int:
    return sum(value < low or value > high for value in values)
