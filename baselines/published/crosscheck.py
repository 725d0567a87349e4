"""Whether the limits that ship are passed by what others measured on the same hardware: a wrong mapping shows here.

A limit that a sound machine misses is worse than none: it turns every run there red.
"""

from dataclasses import dataclass

from entries import Account, PublishedEntry

from pytest_roofline.core.facts import HardwareKey

# Of these, a figure is of something else than what the limit is of; all other differences make it less alike only.
OTHER = {"engine", "direction", "operation", "type", "counting"}
# Below this, a copy is bound by its latency.
BANDWIDTH_FROM_BYTES = 2**24


@dataclass(frozen=True, slots=True)
class Missed:
    """A limit that gates, and a measured figure that lies below it."""

    limit: PublishedEntry
    figure: PublishedEntry

    def __str__(self) -> str:
        mine, other = self.limit.entry, self.figure.entry
        return (
            f"{mine.label} of {mine.hardware}: {other.value} {other.unit} was measured ({other.source}), and the limit "
            f"is {mine.value} ({mine.source}); expected every sound figure to pass: see what differs, let it not gate"
        )


def pairs(found: Account) -> list[Missed]:
    """Every limit that gates with every measured figure of high confidence that it can be held against."""
    return [
        Missed(limit, figure)
        for limit in found.entries
        if limit.entry.gates
        for figure in found.entries
        if figure.entry.confidence == "high"
        and comparable(limit, figure)
        and limit.family == figure.family
        and may_be_the_same(limit.entry.hardware, figure.entry.hardware)
    ]


def missed(found: Account) -> list[Missed]:
    """The limits that a published figure misses; there must be none."""
    return [pair for pair in pairs(found) if _rate(pair.figure) < _rate(pair.limit)]


def impossible(found: Account) -> list[str]:
    """Limits that nobody can pass, since they lie above the datasheet's peak; there must be none."""
    return [
        f"{one.entry.label} of {one.entry.hardware}: a limit of {one.entry.value} ({one.entry.source}), but "
        f"{one.entry.implausible}; expected one that can be reached: see how its source counts"
        for one in found.entries
        if one.entry.kind == "threshold" and one.entry.implausible
    ]


def _rate(one: PublishedEntry) -> float:
    assert isinstance(one.entry.value, int | float)
    return float(one.entry.value)


def comparable(limit: PublishedEntry, figure: PublishedEntry) -> bool:
    """Whether a measured figure is of what a limit is of, on whatever hardware.

    That is the same benchmark and operation, engine, direction, type and counting; large enough for its bandwidth; a
    number that can be true. How its calls were summed up, and under which conditions, may differ.
    """
    measured = figure.figure is not None and figure.figure.kind == "measured"
    if (
        not measured
        or figure.meaning is None
        or figure.entry.implausible
        or OTHER & figure.meaning.apart.keys()
    ):
        return False
    mine, other = limit.entry, figure.entry
    if mine.unit != other.unit or not isinstance(other.value, int | float):
        return False
    # Arrays of 268 MB and of 2.15 GB are both far larger than any cache.
    alike = {"stream": "stream_large"}
    same = alike.get(mine.benchmark, mine.benchmark) == alike.get(other.benchmark, other.benchmark)
    size = other.parameters.get("size_bytes")
    bound = not isinstance(size, int) or size >= BANDWIDTH_FROM_BYTES
    return same and bound and mine.parameters.get("operation") == other.parameters.get("operation")


def may_be_the_same(first: HardwareKey, second: HardwareKey) -> bool:
    """Whether two patterns may mean the same product: nothing that both name differs."""
    return all(
        None in (getattr(first, name), getattr(second, name))
        or getattr(first, name) == getattr(second, name)
        for name in ("product", "memory")
    )
