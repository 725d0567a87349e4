"""What is timed on a rank, and with which buffers: the same kind and number on every rank."""

from collections.abc import Callable
from zlib import crc32

from ..core.errors import BadInput
from ..core.keys import Cache
from ..core.work import Work
from ..measuring import cache
from .context import Rank
from .timed import Timed

KINDS = ("something else than a function or a Timed", "a function", "a Timed without make_args", "a Timed")


def what_is_timed(rank: Rank, fn: Callable[..., object], args: tuple[object, ...]) -> Timed:
    """What `fn(rank, *args)` gives to time: a `Timed` or a function; if neither, that very call.

    Raises:
        BadInput: on every rank, where the ranks have different kinds of thing timed.
    """
    given = fn(rank, *args)
    kind = 2 + (given.make_args is not None) if isinstance(given, Timed) else int(callable(given))
    kinds = [int(row[0]) for row in rank.gather((kind,))]
    for number, other in enumerate(kinds):
        if other != kinds[0]:
            raise BadInput(
                f"on rank 0 the rank function returned {KINDS[kinds[0]]}, on rank {number} {KINDS[other]}; expected "
                "the same on every rank, since all of them make the same calls"
            )
    if isinstance(given, Timed):
        return given
    return Timed(given if callable(given) else lambda: fn(rank, *args))


def fill(rank: Rank, timed: Timed, work: Work, policy: Cache, sets: list[tuple[object, ...]]) -> set[str]:
    """Make the argument sets, as many on every rank.

    Args:
        rank: this one.
        timed: makes them.
        work: of one call.
        policy: `warm` makes one, `rotate` as many as the largest cache of the ranks asks for, and the memory of all
            allows.
        sets: an empty list, which is filled.

    Returns:
        The labels that say what they are.
    """
    if policy == "rotate" and timed.make_args is None:
        raise BadInput(
            "cache='rotate' needs a Timed with make_args, which makes each fresh set of arguments to rotate through; "
            "the rank function returned none"
        )
    own_bytes = rank.meter.facts().last_level_cache_bytes or 0
    # Ranks on the processors of one host share its memory; each device has its own.
    pool = host_number(rank) if rank.device.type == "cpu" else -1.0 - rank
    rows = rank.gather((rank.meter.free_bytes(), own_bytes, pool))
    pools = [row[2] for row in rows]
    free_bytes = int(min(row[0] / pools.count(row[2]) for row in rows))
    cache_bytes = int(max(row[1] for row in rows))
    _make(rank, timed, cache.rotation_sets(work, cache_bytes, free_bytes) if policy == "rotate" else 1, sets)
    return set() if cache.is_cold(len(sets), work, cache_bytes) else {"cache_resident"}


def _make(rank: Rank, timed: Timed, count: int, sets: list[tuple[object, ...]]) -> None:
    """Up to `count` sets, as many on every rank at any time, so that `make_args` may hold collectives."""
    make = timed.make_args or tuple
    began_s = rank.meter.host_s()
    # Doubled and not one by one, so that agreeing on the time costs little.
    sets.append(cache.as_tuple(make()))
    while len(sets) < count and max(rank.gather((rank.meter.host_s() - began_s,)))[0] < cache.SETUP_S:
        sets.extend([cache.as_tuple(make()) for _ in range(min(len(sets), count - len(sets)))])


def host_number(rank: Rank) -> float:
    """The rank's host as a number, which ranks can exchange."""
    return float(crc32(rank.host.encode()))
