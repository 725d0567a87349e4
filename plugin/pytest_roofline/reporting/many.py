"""What reports of many runs have in common: what does not count, and numbers as a trend."""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from statistics import median

from ..core.units import printable
from ..judging.many import Many

TICKS = "▁▂▃▄▅▆▇█"
# Log seconds from the lowest tick to the highest, at least.
LEAST_REACH = 0.04
# Reasons for which measurements do not count.
MOST_REASONS = 3


def trend(logs: Sequence[float], width: int = 16) -> str:
    """Log seconds in the order of time as ticks of eight heights, the middle of each stretch where there are many.

    From the lowest tick to the highest it is 4 % of time at least, so that noise does not look like a mountain.
    """
    if not logs:
        return ""
    count = min(width, len(logs))
    cuts = [len(logs) * place // count for place in range(count + 1)]
    heights = [median(logs[start:end]) for start, end in pairwise(cuts)]
    middle, reach = (min(heights) + max(heights)) / 2, max(LEAST_REACH, max(heights) - min(heights))
    return "".join(TICKS[round(((height - middle) / reach + 0.5) * (len(TICKS) - 1))] for height in heights)


def unfit_lines(many: Many) -> list[str]:
    """Why measurements do not count, those that differ in numbers only as one; empty where all do."""
    counts: Counter[str] = Counter()
    example: dict[str, str] = {}
    for reason, count in many.unfit.items():
        kind = re.sub(r"\d[\d.]*", "#", reason)
        counts[kind] += count
        example.setdefault(kind, reason)
    if not counts:
        return []
    told = [f"{count} × {printable(example[kind])}" for kind, count in counts.most_common(MOST_REASONS)]
    more = len(counts) - len(told)
    return [
        f"{sum(counts.values())} of {len(many.rows)} measurements do not count: {'; '.join(told)}"
        + (f"; and {more} other reasons" if more > 0 else "")
    ]


def joined(names: Sequence[str], most: int = 3) -> str:
    """`a, b, c and 4 more`."""
    shown = ", ".join(printable(name) for name in names[:most])
    return shown + (f" and {len(names) - most} more" if len(names) > most else "")


def as_percent(low: float, high: float) -> str:
    """An interval of shares: `5.2 … 7.0`."""
    return f"{low * 100:.1f} … {high * 100:.1f}"
