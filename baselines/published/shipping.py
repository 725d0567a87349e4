"""Which entries go into the files: limits that gate, and the best records of each product and benchmark.

All others stand in the tables of the page alone: a file that every run reads holds what is likely to be looked at.
"""

from entries import Account, PublishedEntry

# Of one product, benchmark and metric, so many records ship.
MOST = 2
# The family of figures whose source does not name its hardware: no device looks there.
UNNAMED = "unnamed"
_CERTAINTY = ("high", "medium", "low", "recalled")


def shipped(found: Account) -> list[PublishedEntry]:
    """The entries of the files, in the order of the records."""
    groups: dict[tuple[object, ...], list[PublishedEntry]] = {}
    for one in found.entries:
        if not one.entry.gates and _fit(one):
            key = one.family, one.entry.hardware.product, one.entry.benchmark, one.entry.metric
            groups.setdefault(key, []).append(one)
    best = {id(one) for group in groups.values() for one in sorted(group, key=_rank)[:MOST]}
    return [one for one in found.entries if one.entry.gates or id(one) in best]


def _fit(one: PublishedEntry) -> bool:
    """Whether a figure can be true, is a number or a range, and is of hardware with a name."""
    return (
        not one.entry.implausible
        and isinstance(one.entry.value, int | float | tuple)
        and one.family != UNNAMED
    )


def _rank(one: PublishedEntry) -> tuple[bool, int, int, float]:
    """The exact product first, then the surest, then what differs least from our measurement, then the best value."""
    entry, hardware = one.entry, one.entry.hardware
    apart = (
        one.meaning.apart
        if one.meaning is not None
        else [note for note in entry.note.split(";") if note]
    )
    value = max(entry.value) if isinstance(entry.value, tuple) else entry.value
    assert isinstance(value, int | float)
    sign = 1 if entry.unit in ("s", "B", "bytes") else -1
    return (
        None in (hardware.product, hardware.memory),
        _CERTAINTY.index(entry.confidence),
        len(apart),
        sign * value,
    )
