"""Cache policy: warm buffers, buffers in rotation, or a flush before every call; and whether it holds."""

import math
from collections.abc import Callable

from ..core.work import Work

# A rotation must touch this many times the last-level cache before it comes back to a buffer.
ROTATION_FACTOR = 4
# Rotating through more sets than this costs more in set-up than it can tell.
MOST_SETS = 1 << 18
# The flush writes and reads this many times the last-level cache.
FLUSH_FACTOR = 2
# AMD's MI300 class reports the 4 MiB L2 of one die, while 256 MiB of Infinity Cache stand between it and memory.
INFINITY_CACHE_BYTES = 256 * 2**20
INFINITY_CACHE_ARCHITECTURES = ("gfx940", "gfx941", "gfx942", "gfx950")
# Where a device does not tell: no known one has more, apart from those above.
ASSUMED_CACHE_BYTES = 64 * 2**20
# Making argument sets may take so many seconds; no share of the budget, or a smaller one would measure something else.
SETUP_S = 2.0
# Of the free memory, so that the machine does not start to swap under a measurement.
MEMORY_SHARE = 0.5


def last_level_cache(reported_bytes: int, architecture: str) -> int:
    """What must be evicted before a buffer is cold: what the device reports, but never less than its class has.

    Args:
        reported_bytes: as the driver says; 0 is unknown.
        architecture: such as `sm_90` or `gfx942:sramecc+:xnack-`.
    """
    floor = INFINITY_CACHE_BYTES if architecture.split(":")[0] in INFINITY_CACHE_ARCHITECTURES else 0
    return max(reported_bytes, floor) or ASSUMED_CACHE_BYTES


def bytes_per_set(work: Work) -> int:
    """Memory that one call touches: what it reads and writes, or carries."""
    return max(work.traffic_bytes, work.payload_bytes, work.wire_bytes, work.algbw_bytes)


def rotation_sets(work: Work, cache_bytes: int, free_bytes: int) -> int:
    """How many argument sets a rotation needs so that a buffer has left the cache when its turn comes again.

    Fewer where memory does not allow it; `is_cold` tells.
    """
    touched = bytes_per_set(work)
    if touched == 0:
        return 1
    if touched >= ROTATION_FACTOR * cache_bytes:
        return 1
    needed = math.ceil(ROTATION_FACTOR * cache_bytes / touched) + 1
    affordable = max(1, int(free_bytes * MEMORY_SHARE // touched))
    return min(needed, affordable, MOST_SETS)


def is_cold(sets: int, work: Work, cache_bytes: int) -> bool:
    """Whether a rotation through so many sets really leaves the cache; one call that overflows it needs no second."""
    between = max(1, sets - 1) * bytes_per_set(work)
    return (sets > 1 or bytes_per_set(work) >= ROTATION_FACTOR * cache_bytes) and (
        between >= ROTATION_FACTOR * cache_bytes
    )


def make_sets(
    make_args: Callable[[], object], count: int, seconds: float, clock: Callable[[], float]
) -> list[tuple[object, ...]]:
    """Up to `count` fresh argument sets; fewer where making them takes longer than `seconds`."""
    until = clock() + seconds
    sets = [as_tuple(make_args())]
    while len(sets) < count and clock() < until:
        sets.append(as_tuple(make_args()))
    return sets


def as_tuple(arguments: object) -> tuple[object, ...]:
    """Arguments as given: a tuple or list is several, None is none, anything else is one."""
    if arguments is None:
        return ()
    if isinstance(arguments, tuple | list):
        return tuple(arguments)
    return (arguments,)
