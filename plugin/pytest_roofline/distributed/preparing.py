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
        policy: `warm` makes one, `rotate` as many as the largest cache of the ranks asks for, and half of the smallest
            memory holds.
        sets: an empty list, which is filled.

    Returns:
        The labels that say what they are.

    Raises:
        BadInput: a rotation without what makes its sets.
        Skipped: they need more memory than a rank has free now.
    """
    if policy == "rotate" and timed.make_args is None:
        raise BadInput(
            "cache='rotate' needs a Timed with make_args, which makes each fresh set of arguments to rotate through; "
            "the rank function returned none"
        )
    facts = rank.meter.facts()
    # Ranks on the processors of one host share its memory; each device has its own.
    pool = host_number(rank) if rank.device.type == "cpu" else -1.0 - rank
    told = float("inf") if facts.memory_bytes is None else facts.memory_bytes
    make_args, free = timed.make_args or tuple, rank.meter.free_bytes()
    sets.append(cache.as_tuple(make_args()))
    held = cache.bytes_held(work, sets[0])
    rows = rank.gather((free, facts.last_level_cache_bytes or 0, pool, told, held))
    pools = [row[2] for row in rows]
    free_bytes, memory_bytes = (min(row[column] / pools.count(row[2]) for row in rows) for column in (0, 3))
    cache_bytes = int(max(row[1] for row in rows))
    set_bytes = int(max(row[4] for row in rows))
    whole = None if memory_bytes == float("inf") else int(memory_bytes)
    count = cache.rotation_sets(work, cache_bytes, whole, set_bytes) if policy == "rotate" else 1
    # All ranks have the same figures, so all of them skip.
    why_not = cache.no_room(count, set_bytes, int(free_bytes))
    if why_not:
        rank.skip(f"a rank {why_not}")
    sets.extend(cache.as_tuple(make_args()) for _ in range(count - 1))
    return set() if cache.is_cold(count, work, cache_bytes) else {"cache_resident"}


def host_number(rank: Rank) -> float:
    """The rank's host as a number, which ranks can exchange."""
    return float(crc32(rank.host.encode()))
