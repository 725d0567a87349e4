"""Sets of half-open intervals of time, whose parts may overlap."""

from collections.abc import Iterable, Sequence

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """Return the same times as disjoint intervals in order.

    Intervals that touch are joined, and empty ones are left out.

    Args:
        intervals: start and end of each, in any order and unit.

    Raises:
        ValueError: an interval ends before it starts.
    """
    joined: list[Interval] = []
    for start, end in sorted(intervals):
        if end < start:
            raise ValueError(
                f"an interval from {start} to {end}; expected an end that is not before the start"
            )
        if start == end:
            continue
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(joined[-1][1], end))
        else:
            joined.append((start, end))
    return joined


def common(first: Iterable[Interval], second: Iterable[Interval]) -> list[Interval]:
    """Return the times that both cover, as disjoint intervals in order."""
    left, right = union(first), union(second)
    shared: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            shared.append((start, end))
        # The interval that ends first cannot overlap any later one.
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return shared


def without(intervals: Iterable[Interval], excluded: Iterable[Interval]) -> list[Interval]:
    """Return the times of intervals outside of the excluded ones, as disjoint intervals in order."""
    cuts = union(excluded)
    remainder: list[Interval] = []
    first_cut = 0
    for start, end in union(intervals):
        # Skip the cuts that end before this interval.
        while first_cut < len(cuts) and cuts[first_cut][1] <= start:
            first_cut += 1
        remainder += _cut(start, end, cuts, first_cut)
    return remainder


def length(intervals: Iterable[Interval]) -> float:
    """Return how long intervals last together. Times that are covered twice count once."""
    return sum((end - start for start, end in union(intervals)), 0.0)


def _cut(start: float, end: float, cuts: Sequence[Interval], first_cut: int) -> list[Interval]:
    """Return the parts of one interval outside of the cuts, from the cut `first_cut` on."""
    parts: list[Interval] = []
    for index in range(first_cut, len(cuts)):
        cut_start, cut_end = cuts[index]
        if cut_start >= end:
            break
        if start < cut_start:
            parts.append((start, cut_start))
        start = max(start, cut_end)
    return [*parts, (start, end)] if start < end else parts
