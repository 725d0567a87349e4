"""The argument sets of a function: their number, their making, and their verification.

There must be so many sets that a buffer has left the cache when its turn comes again. All ranks verify together.
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

# So many sets are refilled and verified once more. That is enough to show work that was done only once.
MOST_REFILLED = 4
# A rotation must touch this many times the last-level cache before it comes back to a buffer.
ROTATION_FACTOR = 4
# The most sets. So many of 4 KiB go through the largest known cache, 256 MiB; more would only take longer to make.
MOST_SETS = (1 << 18) + 1
# The flush writes and reads this many times the last-level cache.
FLUSH_FACTOR = 2
# The share of a device's whole memory that argument sets may take. Free memory would be a bad measure: it changes
# between runs, and so would the number of sets.
MEMORY_SHARE = 0.5
# After so many seconds of making argument sets, the user is told how long it will take.
SLOW_S = 10.0


def tensors_of(fn: object) -> tuple[object, ...]:
    """Return the tensors that a function can read without an argument.

    They are in its closure, its defaults, the arguments of a `partial`, and globals that it names. Tuples there are
    returned whole. Lists and mappings are left out, since functions remember results in them.
    """
    if isinstance(fn, functools.partial):
        return (*fn.args, *fn.keywords.values(), *tensors_of(fn.func))
    if not isinstance(fn, types.FunctionType):
        return ()
    candidates = [fn.__globals__.get(name) for name in fn.__code__.co_names] + [
        *(fn.__defaults__ or ())
    ]
    for cell in fn.__closure__ or ():
        # A cell is empty if the enclosing function has not set the name yet.
        with contextlib.suppress(ValueError):
            candidates.append(cell.cell_contents)
    return tuple(
        candidate
        for candidate in candidates
        if isinstance(candidate, tuple) or hasattr(candidate, "layout")
    )


@runtime_checkable
class ForAll(Protocol):
    """A `verify` that can handle many argument sets at once."""

    def spoil(self, sets: Sequence[tuple[object, ...]]) -> object:
        """Overwrite the results in these sets, so that only new calls can make them right."""

    def first_wrong(self, sets: Sequence[tuple[object, ...]]) -> int | None:
        """Return the index of the first set with wrong data. None if all are right."""


def renewal(
    peers: Peers, timed: Timed, sets: list[tuple[object, ...]]
) -> Callable[[int], None] | None:
    """Return a function that renews argument sets.

    It renews the first so many, after the warm-up has used them. Only what the timed calls write is then verified. The
    function spoils the results in the sets if `verify` can do so on every rank, else it makes the sets once more. If
    one rank verifies, all ranks renew, since making a set may take a collective. None if no rank verifies, or if sets
    cannot be made.
    """
    rows = peers.gather((timed.verify is not None, isinstance(timed.verify, ForAll)))
    any_verifies = any(verifies for verifies, _ in rows)
    all_can_spoil = all(can_spoil for _, can_spoil in rows)
    if timed.make_args is None or not any_verifies:
        return None

    def renew(count: int) -> None:
        """Spoil the results in the first `count` argument sets, or make these sets once more."""
        if all_can_spoil and isinstance(timed.verify, ForAll):
            timed.verify.spoil(sets[:count])
            return
        for index in range(count):
            # The old buffers are freed first, since there may be no room for both.
            sets[index] = ()
            sets[index] = timed.arguments()

    return renew


def verify_data(
    peers: Peers, device: Device, timed: Timed, sets: Sequence[tuple[object, ...]]
) -> tuple[bool | None, str]:
    """Return whether the data of every rank are right, and what is wrong.

    All ranks call this when their devices are done, and all get the same answer. The text is that of this rank's own
    `verify` if that found wrong data, else it names the ranks with wrong data. None, and no text, if no rank verifies.

    Data are verified as the timed calls left them, unless the test says that they change in each call (`as_timed`), and
    once more after a refill if the test has one.

    Args:
        sets: those that calls have used.
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
    """Return the sentence on the first set with wrong data; empty if all are right."""
    if isinstance(verify, ForAll):
        first = verify.first_wrong(sets)
        if first is None:
            return ""
        # `verify` checks this set once more by itself, for its own words on the fault.
        fault = _verdict_text(verify, sets[first], len(sets)) or ": reported by first_wrong"
        return f"wrong data in argument set {first}{fault}"
    texts = (_verdict_text(verify, arguments, len(sets)) for arguments in sets)
    return next(
        (f"wrong data in argument set {index}{text}" for index, text in enumerate(texts) if text),
        "",
    )


def _verdict_text(verify: Callable[..., object], arguments: tuple[object, ...], count: int) -> str:
    """Return the end of the sentence on one set's wrong data.

    Empty if they are right. Wrong data are an AssertionError, or a result that is neither None nor true. `count` is the
    number of all sets.
    """
    try:
        answer = verify(*arguments)
    except AssertionError as error:
        return f": {error}" if str(error) else ": verify raised AssertionError"
    # A function that asserts returns None, which is no complaint.
    return "" if answer is None or answer else f" of {count}: verify returned {answer!r}"


def _after_refill(
    peers: Peers, device: Device, timed: Timed, sets: Sequence[tuple[object, ...]]
) -> str:
    """Refill each set, call once more, and return the first wrong data; empty without any.

    Every rank makes all calls, even after wrong data, since a call may be a collective.
    """
    first_wrong_text = ""
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
        if verdict_text and not first_wrong_text:
            first_wrong_text = (
                f"wrong data in argument set {index}, after refill changed it{verdict_text}"
            )
    return first_wrong_text


def _agree_on_wrong(peers: Peers, rank_text: str) -> str:
    """Return this rank's text on wrong data; without one, the ranks with wrong data.

    Empty if no rank has wrong data.
    """
    rows = peers.gather((bool(rank_text),))
    wrong_ranks = [rank for rank, (is_wrong,) in enumerate(rows) if is_wrong]
    if rank_text or not wrong_ranks:
        return rank_text
    return f"wrong data{of_ranks(wrong_ranks, peers.size)}; the data of this rank are right"


def bytes_per_set(work: Work) -> int:
    """Return the bytes of memory that one call touches, by its work."""
    return max(work.traffic_bytes, work.payload_bytes, work.wire_bytes, work.algbw_bytes)


def argument_bytes(work: Work, arguments: tuple[object, ...]) -> int:
    """Return the bytes of memory that one set of arguments takes.

    It is what a call touches, or what the tensors hold if that is more. A view counts with its own size, since other
    sets may be views of the same allocation.
    """
    tensor_bytes: int = sum(
        min(tensor.nbytes, tensor.untyped_storage().nbytes()) for tensor in dense_tensors(arguments)
    )
    return max(bytes_per_set(work), tensor_bytes)


def dense_tensors(arguments: object) -> Iterator[Any]:
    """Yield every dense tensor in nested tuples, lists and mappings.

    A tensor is known by its attributes, since torch may not be installed.
    """
    if isinstance(arguments, Mapping):
        arguments = tuple(arguments.values())
    if isinstance(arguments, tuple | list):
        for member in arguments:
            yield from dense_tensors(member)
    elif _is_dense(arguments):
        yield arguments


def _is_dense(candidate: object) -> bool:
    """Return whether an object is a tensor with values of its own in memory.

    A tensor's subclass with `__tensor_flatten__` only wraps other tensors.
    """
    is_strided = str(getattr(candidate, "layout", "")) == "torch.strided"
    return is_strided and not hasattr(candidate, "__tensor_flatten__")


def rotation_sets(
    work: Work, cache_bytes: int, memory_bytes: int | None, set_bytes: int = 0
) -> int:
    """Return how many argument sets a rotation takes.

    With so many, a buffer has left the cache when its turn comes again. Fewer are returned if they would not fit into
    half of the device's memory. The number depends on sizes alone, as `is_cold` does. If it depended on free memory or
    on the host's speed, a test could be timed warm in one run and cold in the next.

    Args:
        work: of one call.
        cache_bytes: the last-level cache.
        memory_bytes: all memory of the device, free or not; None if it is unknown.
        set_bytes: the memory that one set takes.
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
    """Return why so many argument sets cannot be made now; empty if they can.

    Empty too for a single set, since the user asked for that one.
    """
    needed = sets * set_bytes
    if sets == 1 or needed <= free_bytes:
        return ""
    return (
        f"needs {format_amount(needed)} of free memory to rotate through {sets} sets of arguments, found "
        f"{format_amount(free_bytes)}; end other processes on the device, or use cache='flush', which "
        "needs only one set"
    )


def is_cold(sets: int, work: Work, cache_bytes: int) -> bool:
    """Return whether a buffer has left the cache when its turn comes again.

    With one set, the call itself must touch enough memory to evict it.
    """
    touched_between_bytes = max(1, sets - 1) * bytes_per_set(work)
    return touched_between_bytes >= ROTATION_FACTOR * cache_bytes


def fill(
    sets: list[tuple[object, ...]],
    request: Request,
    device: Device,
    peers: Peers,
    tell: Callable[[str], object],
) -> bool:
    """Make a request's argument sets, and return whether calls find a cold cache.

    The sets are added to an empty list. All ranks make equally many, however long that takes. True too if the request
    does not rotate and its work is unknown.

    Args:
        tell: called once, after `SLOW_S`, with a sentence on how long it will take and what would be faster.

    Raises:
        NoRoom: the sets do not fit into free memory.
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
        # The work is unknown, so a call counts as touching all that its tensors hold.
        work = replace(work, payload_bytes=room.set_bytes)
    count = rotation_sets(work, room.cache_bytes, room.memory_bytes, room.set_bytes)
    # All ranks have the same figures, so either all of them raise or none does.
    if why_not := no_room(count, room.set_bytes, room.free_bytes):
        raise NoRoom(why_not)
    was_slow = False
    while len(sets) < count:
        sets.append(timed.arguments())
        took_s = device.host_s() - began_s
        if took_s > SLOW_S and not was_slow and len(sets) < count:
            was_slow = True
            if facts.type == "cpu" and too_busy(neighbours.cores_taken()):
                # Busy neighbours are the reason, not `make_args`, and the measurement will be INVALID for them.
                continue
            tell(_slow_text(took_s, len(sets), count))
    return is_cold(count, work, room.cache_bytes)


def _slow_text(took_s: float, made_count: int, count: int) -> str:
    """Return how long `make_args` takes for all of `count` sets, and what would be faster."""
    return (
        f"make_args took {took_s:.0f} s for {made_count} of the {count} sets of arguments to rotate through. "
        f"All sets take about {took_s / made_count * count:.0f} s. Return parts of one allocation, or use "
        "cache='flush', which needs only one set"
    )


@dataclass(frozen=True, slots=True)
class Room:
    """The sizes that decide how many argument sets there are, in bytes.

    Args:
        free_bytes: the memory that is free now.
        cache_bytes: the last-level cache.
        memory_bytes: all memory of the device; None if it is unknown.
        set_bytes: what one set takes.
        on_host: whether it is the host's memory, which all ranks of a host share. Every other device has its own.
    """

    free_bytes: int
    cache_bytes: int
    memory_bytes: int | None
    set_bytes: int
    on_host: bool


def agreed_room(peers: Peers, room: Room) -> Room:
    """Return the room that all ranks have.

    It has the largest cache and the largest set. Ranks that share a memory have equal parts of it; the smallest part of
    all ranks counts.
    """
    if peers.size == 1:
        return room
    # Ranks with the same number share a memory: those of one host, or each rank alone, by the number of the rank.
    pool = host_number(peers) if room.on_host else -1.0 - int(peers)
    memory = float("inf") if room.memory_bytes is None else room.memory_bytes
    rows = peers.gather((room.free_bytes, room.cache_bytes, pool, memory, room.set_bytes))
    # Each name is a column: the number of every rank, by rank.
    free_sizes, cache_sizes, pools, memory_sizes, set_sizes = zip(*rows, strict=True)
    rank_counts = [pools.count(rank_pool) for rank_pool in pools]
    free_bytes, memory_bytes = (
        min(size / rank_count for size, rank_count in zip(sizes, rank_counts, strict=True))
        for sizes in (free_sizes, memory_sizes)
    )
    return Room(
        int(free_bytes),
        int(max(cache_sizes)),
        None if memory_bytes == float("inf") else int(memory_bytes),
        int(max(set_sizes)),
        room.on_host,
    )
