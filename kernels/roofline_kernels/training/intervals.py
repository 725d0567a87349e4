"""Sets of half-open intervals of time: how long something lasted, however often its parts overlap."""

from collections.abc import Iterable, Sequence

Interval = tuple[float, float]


def union(intervals: Iterable[Interval]) -> list[Interval]:
    """The same times as disjoint intervals in order; those that touch become one, and empty ones go.

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


def common(some: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """What both cover, as disjoint intervals in order."""
    left, right = union(some), union(others)
    shared: list[Interval] = []
    i = j = 0
    while i < len(left) and j < len(right):
        start, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if start < end:
            shared.append((start, end))
        # Whichever ends first has nothing more to share.
        if left[i][1] <= right[j][1]:
            i += 1
        else:
            j += 1
    return shared


def without(some: Iterable[Interval], others: Iterable[Interval]) -> list[Interval]:
    """What the first cover and the others do not, as disjoint intervals in order."""
    taken = union(others)
    left: list[Interval] = []
    first = 0
    for start, end in union(some):
        while first < len(taken) and taken[first][1] <= start:
            first += 1
        left += _cut(start, end, taken, first)
    return left


def length(intervals: Iterable[Interval]) -> float:
    """How long they last together; what is covered twice counts once."""
    return sum((end - start for start, end in union(intervals)), 0.0)


def _cut(start: float, end: float, taken: Sequence[Interval], first: int) -> list[Interval]:
    """What is left of one interval, where those from the first on are taken from it."""
    left: list[Interval] = []
    for index in range(first, len(taken)):
        begin, stop = taken[index]
        if begin >= end:
            break
        if start < begin:
            left.append((start, begin))
        start = max(start, stop)
    return [*left, (start, end)] if start < end else left
