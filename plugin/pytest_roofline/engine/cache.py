"""Cache policy: warm buffers, buffers in rotation, or a flush before every call; and whether it holds."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ..core.errors import NoRoom
from ..core.units import format_amount
from ..core.work import Work
from .devices import Device
from .peers import Peers, Room, agreed_room
from .request import Request

# A rotation must touch this many times the last-level cache before it comes back to a buffer.
ROTATION_FACTOR = 4
# More cost more in set-up than they can tell: so many of 4 KiB go through the largest known cache, 256 MiB.
MOST_SETS = (1 << 18) + 1
# The flush writes and reads this many times the last-level cache.
FLUSH_FACTOR = 2
# Of a device's whole memory. What is free changes from run to run, and runs of one command must be of one kind.
MEMORY_SHARE = 0.5
# Who waits so long for argument sets is told how long it will take.
SLOW_S = 10.0


def bytes_per_set(work: Work) -> int:
    """Memory that one call touches: what it reads and writes, or carries."""
    return max(work.traffic_bytes, work.payload_bytes, work.wire_bytes, work.algbw_bytes)


def bytes_held(work: Work, arguments: tuple[object, ...]) -> int:
    """Memory that one set of arguments takes: what a call touches or, where that is more, what its tensors hold.

    A view counts by itself, since other sets may be views of the same allocation.
    """
    held: int = sum(min(one.nbytes, one.untyped_storage().nbytes()) for one in dense(arguments))
    return max(bytes_per_set(work), held)


def dense(value: object) -> Iterator[Any]:
    """Every dense tensor in nested tuples, lists and mappings; known by what it can do, as torch may not be there."""
    if isinstance(value, Mapping):
        value = tuple(value.values())
    if isinstance(value, tuple | list):
        for inner in value:
            yield from dense(inner)
    elif str(getattr(value, "layout", "")) == "torch.strided" and not hasattr(value, "__tensor_flatten__"):
        yield value


def rotation_sets(work: Work, cache_bytes: int, memory_bytes: int | None, set_bytes: int = 0) -> int:
    """How many argument sets a rotation needs so that a buffer has left the cache when its turn comes again.

    A matter of sizes alone, as is `is_cold`: neither free memory nor the host's speed has a say, since what was timed
    warm in one run and cold in the next cannot be compared. Fewer than needed where half of the memory does not hold
    them.

    Args:
        work: of one call.
        cache_bytes: the last-level cache.
        memory_bytes: all of the device's memory, free or not; None where it does not tell.
        set_bytes: that one set takes of it, where that is more than a call touches.
    """
    touched = bytes_per_set(work)
    if touched == 0 or touched >= ROTATION_FACTOR * cache_bytes:
        return 1
    needed = math.ceil(ROTATION_FACTOR * cache_bytes / touched) + 1
    held = MOST_SETS if memory_bytes is None else max(1, int(memory_bytes * MEMORY_SHARE // max(touched, set_bytes)))
    return min(needed, held, MOST_SETS)


def no_room(sets: int, set_bytes: int, free_bytes: int) -> str:
    """Why so many argument sets cannot be made now; empty where they can, and of one, which is what was asked for."""
    needed = sets * set_bytes
    if sets == 1 or needed <= free_bytes:
        return ""
    return (
        f"needs {format_amount(needed)} of free memory to rotate through {sets} sets of arguments, found "
        f"{format_amount(free_bytes)}; free what others hold, or use cache='flush', which takes one set"
    )


def is_cold(sets: int, work: Work, cache_bytes: int) -> bool:
    """Whether a rotation through so many sets really leaves the cache; one call that overflows it needs no second."""
    between = max(1, sets - 1) * bytes_per_set(work)
    return (sets > 1 or bytes_per_set(work) >= ROTATION_FACTOR * cache_bytes) and (
        between >= ROTATION_FACTOR * cache_bytes
    )


def fill(
    sets: list[tuple[object, ...]], request: Request, device: Device, peers: Peers, tell: Callable[[str], object]
) -> bool:
    """Make the argument sets of a request, as many on every rank, however long that takes.

    Args:
        sets: an empty list, which is filled.
        request: what to make them for.
        device: that holds them.
        peers: the ranks that measure together.
        tell: told once, after `SLOW_S`, how long it will take, and what would be faster.

    Returns:
        Whether what a call touches has left the cache when its turn comes.

    Raises:
        NoRoom: they do not fit into what is free.
    """
    timed, work, facts = request.target, request.work, device.facts()
    cache_bytes = facts.last_level_cache_bytes or 0
    if request.cache != "rotate":
        sets.append(timed.arguments())
        return request.cache == "flush" or is_cold(1, work, cache_bytes)
    free_bytes, began_s = device.free_bytes(), device.host_s()
    sets.append(timed.arguments())
    held_bytes = bytes_held(work, sets[0])
    room = agreed_room(peers, Room(free_bytes, cache_bytes, facts.memory_bytes, held_bytes, facts.type == "cpu"))
    count = rotation_sets(work, room.cache_bytes, room.memory_bytes, room.set_bytes)
    # All ranks have the same figures, so all of them give up.
    if why_not := no_room(count, room.set_bytes, room.free_bytes):
        raise NoRoom(why_not)
    slow = False
    while len(sets) < count:
        sets.append(timed.arguments())
        took_s = device.host_s() - began_s
        if took_s > SLOW_S and not slow and len(sets) < count:
            slow = True
            tell(
                f"make_args took {took_s:.0f} s for {len(sets)} of the {count} sets of arguments to rotate through: "
                f"about {took_s / len(sets) * count:.0f} s for all; let it return parts of one allocation, or use "
                "cache='flush', which takes one set"
            )
    return is_cold(count, work, room.cache_bytes)
