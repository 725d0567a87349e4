"""The argument sets of a function: how many it takes to leave the cache, and their verification
over every rank.
"""

import contextlib
import functools
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, runtime_checkable

from ..core.errors import NoRoom
from ..core.units import format_amount
from ..core.work import Work
from .devices import Device
from .devices.cpu import Neighbours, too_busy
from .request import Request, Timed
from .sizing.peers import Peers, host_number, of_ranks

# Sets that are filled again: enough to see work that was done only once.
MOST_REFILLED = 4
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


def tensors_of(fn: object) -> tuple[object, ...]:
    """Return the tensors that a function reads without an argument. They are in its closure, a
    partial's arguments, and globals that it names.

    Not what stands in a list or mapping there, where results are remembered.
    """
    if isinstance(fn, functools.partial):
        return (*fn.args, *fn.keywords.values(), *tensors_of(fn.func))
    if not isinstance(fn, types.FunctionType):
        return ()
    candidates = [fn.__globals__.get(name) for name in fn.__code__.co_names] + [
        *(fn.__defaults__ or ())
    ]
    for cell in fn.__closure__ or ():
        # A name that the function's surroundings have not set yet.
        with contextlib.suppress(ValueError):
            candidates.append(cell.cell_contents)
    return tuple(
        candidate
        for candidate in candidates
        if isinstance(candidate, tuple) or hasattr(candidate, "layout")
    )


@runtime_checkable
class ForAll(Protocol):
    """A `verify` that does both of its tasks for many argument sets."""

    def spoil(self, sets: Sequence[tuple[object, ...]]) -> object:
        """Ruin what the calls left in these sets. Only new calls can make them right again."""

    def first_wrong(self, sets: Sequence[tuple[object, ...]]) -> int | None:
        """Return the index of the first set with wrong data. None if all are right."""


def renewal(
    peers: Peers, timed: Timed, sets: list[tuple[object, ...]]
) -> Callable[[int], None] | None:
    """Return a function that makes the first so many sets as new. It ruins them all at once if
    `verify` can, else it makes them once more.

    None where no rank verifies, or nothing makes them. Where one rank does so all do: it may take a collective.
    """
    rows = peers.gather((timed.verify is not None, isinstance(timed.verify, ForAll)))
    at_once = timed.verify if all(row[1] for row in rows) else None
    if timed.make_args is None or not any(row[0] for row in rows):
        return None

    def renew(count: int) -> None:
        if isinstance(at_once, ForAll):
            at_once.spoil(sets[:count])
            return
        for index in range(count):
            # The old buffers go first: there may be no room for both.
            sets[index] = ()
            sets[index] = timed.arguments()

    return renew


def verify_data(
    peers: Peers, device: Device, timed: Timed, sets: Sequence[tuple[object, ...]]
) -> tuple[bool | None, str]:
    """Return whether every rank's data are right, and what is wrong. This is about the sets that
    were called with.

    Every rank comes here once its device is done, and all learn the same, in the words of this rank's own `verify`
    where that found it; None where no rank verifies.
    """
    rows = peers.gather((timed.verify is not None, timed.refill is not None))
    if not any(verifies for verifies, _ in rows):
        return None, ""
    rank_text = (
        wrong_data(timed.verify, sets) if timed.verify is not None and timed.as_timed else ""
    )
    wrong = _agree_on_wrong(peers, rank_text)
    if not wrong and any(refills for _, refills in rows):
        wrong = _agree_on_wrong(peers, _after_refill(peers, device, timed, sets[:MOST_REFILLED]))
    return not wrong, wrong


def wrong_data(verify: Callable[..., object], sets: Sequence[tuple[object, ...]]) -> str:
    """Return which of these sets holds wrong data first. The text of `verify` follows. Empty if all
    are right.
    """
    if isinstance(verify, ForAll):
        first = verify.first_wrong(sets)
        if first is None:
            return ""
        verdict = _verdict_text(verify, sets[first], len(sets))
        return f"wrong data in argument set {first}{verdict or ': found by first_wrong'}"
    texts = (_verdict_text(verify, arguments, len(sets)) for arguments in sets)
    return next(
        (f"wrong data in argument set {index}{text}" for index, text in enumerate(texts) if text),
        "",
    )


def _verdict_text(verify: Callable[..., object], arguments: tuple[object, ...], count: int) -> str:
    """Return the end of a sentence about one set's data. Empty if its data are right."""
    try:
        answer = verify(*arguments)
    except AssertionError as error:
        return f": {error}" if str(error) else ": verify raised AssertionError"
    # Functions that assert return None; everything else is taken at its truth.
    return "" if answer is None or answer else f" of {count}: verify returned {answer!r}"


def _after_refill(
    peers: Peers, device: Device, timed: Timed, sets: Sequence[tuple[object, ...]]
) -> str:
    """Call once more on each set, with new data in it. Every rank makes all calls, whatever they
    show.
    """
    first = ""
    for index, arguments in enumerate(sets):
        if timed.refill is not None:
            timed.refill(*arguments)
        device.synchronize()
        peers.barrier()
        timed.call(*arguments)
        device.synchronize()
        verdict_text = (
            _verdict_text(timed.verify, arguments, len(sets)) if timed.verify is not None else ""
        )
        first = first or (
            verdict_text
            and f"wrong data in argument set {index}, filled again after timing{verdict_text}"
        )
    return first


def _agree_on_wrong(peers: Peers, rank_text: str) -> str:
    """Return what is wrong on this rank, or names of wrong ranks."""
    wrong = [number for number, row in enumerate(peers.gather((bool(rank_text),))) if row[0]]
    return rank_text or (
        f"wrong data{of_ranks(wrong, peers.size)}; the data of this rank are right" if wrong else ""
    )


def bytes_per_set(work: Work) -> int:
    """Return the memory that one call touches: read, written or carried."""
    return max(work.traffic_bytes, work.payload_bytes, work.wire_bytes, work.algbw_bytes)


def argument_bytes(work: Work, arguments: tuple[object, ...]) -> int:
    """Return the memory that one set of arguments takes. It is what a call touches or, if more,
    what the tensors hold.

    A view counts by itself, since other sets may be views of the same allocation.
    """
    tensor_bytes: int = sum(
        min(tensor.nbytes, tensor.untyped_storage().nbytes()) for tensor in dense_tensors(arguments)
    )
    return max(bytes_per_set(work), tensor_bytes)


def dense_tensors(arguments: object) -> Iterator[Any]:
    """Yield every dense tensor in nested tuples, lists and mappings. It knows a tensor by what it
    can do, as torch may not be there.
    """
    if isinstance(arguments, Mapping):
        arguments = tuple(arguments.values())
    if isinstance(arguments, tuple | list):
        for member in arguments:
            yield from dense_tensors(member)
    elif str(getattr(arguments, "layout", "")) == "torch.strided" and not hasattr(
        arguments, "__tensor_flatten__"
    ):
        yield arguments


def rotation_sets(
    work: Work, cache_bytes: int, memory_bytes: int | None, set_bytes: int = 0
) -> int:
    """Return how many argument sets a rotation needs. A buffer has left the cache when its turn
    comes again.

    A matter of sizes alone, as is `is_cold`: neither free memory nor the host's speed has a say, since what was timed
    warm in one run and cold in the next cannot be compared. Fewer than needed where half of all the device's memory,
    free or not (None where it does not tell), does not hold them.
    """
    call_bytes = bytes_per_set(work)
    if call_bytes == 0 or call_bytes >= ROTATION_FACTOR * cache_bytes:
        return 1
    needed_sets = math.ceil(ROTATION_FACTOR * cache_bytes / call_bytes) + 1
    most_sets = (
        MOST_SETS
        if memory_bytes is None
        else max(1, int(memory_bytes * MEMORY_SHARE // max(call_bytes, set_bytes)))
    )
    return min(needed_sets, most_sets, MOST_SETS)


def no_room(sets: int, set_bytes: int, free_bytes: int) -> str:
    """Return why so many argument sets cannot be made now. Empty if they can, and for one set,
    which is what was asked for.
    """
    needed = sets * set_bytes
    if sets == 1 or needed <= free_bytes:
        return ""
    return (
        f"needs {format_amount(needed)} of free memory to rotate through {sets} sets of arguments, found "
        f"{format_amount(free_bytes)}; end other processes on the device, or use cache='flush', which "
        "needs one set only"
    )


def is_cold(sets: int, work: Work, cache_bytes: int) -> bool:
    """Return whether a rotation through so many sets leaves the cache. One call that overflows it
    needs no second set.
    """
    between = max(1, sets - 1) * bytes_per_set(work)
    return (sets > 1 or bytes_per_set(work) >= ROTATION_FACTOR * cache_bytes) and (
        between >= ROTATION_FACTOR * cache_bytes
    )


def fill(
    sets: list[tuple[object, ...]],
    request: Request,
    device: Device,
    peers: Peers,
    tell: Callable[[str], object],
) -> bool:
    """Make a request's argument sets in an empty list. Every rank makes as many, however long that
    takes.

    `tell` is told once, after `SLOW_S`, how long it will take, and what would be faster.

    Returns:
        Whether what a call touches has left the cache when its turn comes, or nobody told what it touches.
    """
    timed, work, facts = request.target, request.work, device.facts()
    cache_bytes = facts.last_level_cache_bytes or 0
    if request.cache != "rotate":
        sets.append(timed.arguments())
        return request.cache == "flush" or work.metric == "time_s" or is_cold(1, work, cache_bytes)
    free_bytes, began_s, neighbours = device.free_bytes(), device.host_s(), Neighbours()
    sets.append(timed.arguments())
    room = agreed_room(
        peers,
        Room(
            free_bytes,
            cache_bytes,
            facts.memory_bytes,
            set_bytes=argument_bytes(work, sets[0]),
            on_host=facts.type == "cpu",
        ),
    )
    if work.metric == "time_s":
        # What its tensors hold is all that is known of what a call touches.
        work = replace(work, payload_bytes=room.set_bytes)
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
            if facts.type == "cpu" and too_busy(neighbours.cores_taken()):
                # That is why, and what is measured will be INVALID for it.
                continue
            tell(
                f"make_args took {took_s:.0f} s for {len(sets)} of the {count} sets of arguments to rotate through: "
                f"about {took_s / len(sets) * count:.0f} s for all; return parts of one allocation, or use "
                "cache='flush', which needs one set only"
            )
    return is_cold(count, work, room.cache_bytes)


@dataclass(frozen=True, slots=True)
class Room:
    """The sizes that decide how many argument sets there are, in bytes. These are what is free, the
    cache, all memory, and what one set takes.

    The ranks of a host share its memory (`on_host`); each device has its own.
    """

    free_bytes: int
    cache_bytes: int
    memory_bytes: int | None
    set_bytes: int
    on_host: bool


def agreed_room(peers: Peers, room: Room) -> Room:
    """Return the room that all ranks have. It is the largest cache and set, and of each memory an
    equal part, where that is least.
    """
    if peers.size == 1:
        return room
    pool = host_number(peers) if room.on_host else -1.0 - int(peers)
    memory = float("inf") if room.memory_bytes is None else room.memory_bytes
    rows = peers.gather((room.free_bytes, room.cache_bytes, pool, memory, room.set_bytes))
    pools = [row[2] for row in rows]
    free_bytes, memory_bytes = (
        min(row[column] / pools.count(row[2]) for row in rows) for column in (0, 3)
    )
    return Room(
        int(free_bytes),
        int(max(row[1] for row in rows)),
        None if memory_bytes == float("inf") else int(memory_bytes),
        int(max(row[4] for row in rows)),
        room.on_host,
    )
