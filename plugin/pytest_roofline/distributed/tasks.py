"""What the controller asks of ranks for itself, as ordinary rank functions."""

from .context import Rank


def free_bytes(rank: Rank) -> int:
    """Memory that an allocation on this rank's device can still get."""
    rank.meter.release()
    return rank.meter.free_bytes()


def last_level_cache_bytes(rank: Rank) -> int:
    """Size of the last-level cache of this rank's device; 0 where it does not tell."""
    return rank.meter.facts().last_level_cache_bytes or 0
