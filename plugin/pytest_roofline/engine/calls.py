"""A function and its argument sets: made, called in turn, rotated past the cache, and verified on every rank."""

import contextlib
import functools
import inspect
import itertools
import math
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol, runtime_checkable

from ..core.errors import BadInput, NoRoom
from ..core.units import format_amount
from ..core.work import Work
from .devices import Device
from .devices.cpu import Neighbours, too_busy
from .peers import Peers, Room, agreed_room, of_ranks
from .request import Request, Timed

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


class CallSequence:
    """Calls a function with the next argument set, and the next, and counts.

    It holds no set beside the list that it was given: whoever empties that list has freed the buffers.
    """

    def __init__(self, fn: Callable[..., object], sets: Sequence[tuple[object, ...]]) -> None:
        self.fn = fn
        self.sets = sets
        self.made = 0

    def first(self) -> None:
        """The very first call: whatever only promises to work is found out here."""
        self.made += 1
        refuse_promise(self.fn(*self.sets[0]))

    def __call__(self, count: int) -> None:
        # What this loop costs is in every sample of a CPU, so it does no arithmetic between two calls.
        fn, sets = self.fn, self.sets
        if len(sets) == 1:
            arguments = sets[0]
            for _ in itertools.repeat(None, count):
                fn(*arguments)
        else:
            at, left = self.made % len(sets), count
            while left:
                turn = sets[at : at + left]
                for arguments in turn:
                    fn(*arguments)
                at, left = 0, left - len(turn)
        self.made += count

    def kept(self) -> object:
        """One call, with its result."""
        arguments = self.sets[self.made % len(self.sets)]
        self.made += 1
        return self.fn(*arguments)

    def restart(self) -> None:
        """Begin with the first set again: the sets were replaced."""
        self.made = 0

    @property
    def touched(self) -> Sequence[tuple[object, ...]]:
        """The sets that were called with since the last restart."""
        return self.sets[: self.made]


# What stands for work that another thread, process or stream does, and the call that waits for it.
_WAITS_BY = {
    "concurrent.futures._base.Future": "result()",
    "torch.Future": "wait()",
    "torch._C.Future": "wait()",
    "torch.distributed.distributed_c10d.Work": "wait()",
    "torch._C._distributed_c10d.Work": "wait()",
    "torch.distributed._functional_collectives.AsyncCollectiveTensor": "wait()",
    "multiprocessing.pool.ApplyResult": "get()",
    "mpi4py.MPI.Request": "Wait()",
}


def refuse_promise(result: object) -> None:
    """Refuse what only promises to work, or works where nothing can be computed."""
    if isinstance(result, list | tuple):
        for one in result:
            refuse_promise(one)
        return
    kind = type(result).__name__
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise BadInput(
            f"the measured function returned {kind}, which does its work only when awaited; expected "
            "a plain function that returns when the work is submitted or done"
        )
    if inspect.isgenerator(result) or inspect.isasyncgen(result):
        raise BadInput(
            f"the measured function returned a {kind}, which does its work only when something takes its values; "
            "expected a plain function: take out `yield`, or call list() on it inside"
        )
    named = (f"{base.__module__}.{base.__qualname__}" for base in type(result).__mro__)
    if wait := next((_WAITS_BY[name] for name in named if name in _WAITS_BY), ""):
        raise BadInput(
            f"the measured function returned {kind}, whose work may not be done yet; expected a function that waits "
            f"for it: call .{wait} on it inside, also after async_op=True"
        )
    if getattr(getattr(result, "device", None), "type", "") == "meta":
        raise BadInput(
            "the measured function returned a tensor on `meta`, which holds no data, so nothing was computed; expected "
            "tensors on the device that is measured: make them with device=roofline.device"
        )


def held_by(fn: object) -> tuple[object, ...]:
    """Tensors that a function reads without being given them: of its closure, a partial's, and globals that it names.

    Not what stands in a list or mapping there, where results are remembered.
    """
    if isinstance(fn, functools.partial):
        return (*fn.args, *fn.keywords.values(), *held_by(fn.func))
    if not isinstance(fn, types.FunctionType):
        return ()
    values = [fn.__globals__.get(name) for name in fn.__code__.co_names] + [
        *(fn.__defaults__ or ())
    ]
    for cell in fn.__closure__ or ():
        # A name that the function's surroundings have not set yet.
        with contextlib.suppress(ValueError):
            values.append(cell.cell_contents)
    return tuple(value for value in values if isinstance(value, tuple) or hasattr(value, "layout"))


@runtime_checkable
class ForAll(Protocol):
    """What a `verify` may have besides: both of its tasks for many argument sets at once."""

    def spoil(self, sets: Sequence[tuple[object, ...]]) -> object:
        """Ruin what the calls left in these sets, so that only new calls can make them right again."""

    def first_wrong(self, sets: Sequence[tuple[object, ...]]) -> int | None:
        """The index of the first set with wrong data; None where all are right."""


def renewal(
    peers: Peers, timed: Timed, sets: list[tuple[object, ...]]
) -> Callable[[int], None] | None:
    """What makes the first so many sets as new: ruined all at once where `verify` can, else made once more.

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


def verified(
    peers: Peers, device: Device, timed: Timed, sets: Sequence[tuple[object, ...]]
) -> tuple[bool | None, str]:
    """Whether every rank's data are right in the sets that were called with, and what is wrong where not.

    Every rank comes here once its device is done, and all learn the same, in the words of this rank's own `verify`
    where that found it; None where no rank verifies.
    """
    rows = peers.gather((timed.verify is not None, timed.refill is not None))
    if not any(verifies for verifies, _ in rows):
        return None, ""
    own = wrong_data(timed.verify, sets) if timed.verify is not None and timed.as_timed else ""
    wrong = _agreed(peers, own)
    if not wrong and any(refills for _, refills in rows):
        wrong = _agreed(peers, _after_refill(peers, device, timed, sets[:MOST_REFILLED]))
    return not wrong, wrong


def wrong_data(verify: Callable[..., object], sets: Sequence[tuple[object, ...]]) -> str:
    """Which of these sets is the first to hold wrong data, and what `verify` says of it; empty where all are right."""
    if isinstance(verify, ForAll):
        first = verify.first_wrong(sets)
        if first is None:
            return ""
        return f"wrong data in argument set {first}{_said(verify, sets[first], len(sets)) or ': first_wrong named it'}"
    said = (_said(verify, arguments, len(sets)) for arguments in sets)
    return next(
        (f"wrong data in argument set {index}{text}" for index, text in enumerate(said) if text), ""
    )


def _said(verify: Callable[..., object], arguments: tuple[object, ...], count: int) -> str:
    """How a sentence about one set ends; empty where its data are right."""
    try:
        answer = verify(*arguments)
    except AssertionError as error:
        return f": {error}" if str(error) else ": verify raised AssertionError"
    # Functions that assert return None; everything else is taken at its truth.
    return "" if answer is None or answer else f" of {count}: verify returned {answer!r}"


def _after_refill(
    peers: Peers, device: Device, timed: Timed, sets: Sequence[tuple[object, ...]]
) -> str:
    """One more call on each set with new data in it. Every rank makes all of them, whatever it finds."""
    first = ""
    for index, arguments in enumerate(sets):
        if timed.refill is not None:
            timed.refill(*arguments)
        device.synchronize()
        peers.barrier()
        timed.call(*arguments)
        device.synchronize()
        said = _said(timed.verify, arguments, len(sets)) if timed.verify is not None else ""
        first = first or (
            said and f"wrong data in argument set {index}, filled again after timing{said}"
        )
    return first


def _agreed(peers: Peers, own: str) -> str:
    """What is wrong on this rank, or that it is another's data."""
    wrong = [number for number, row in enumerate(peers.gather((bool(own),))) if row[0]]
    return own or (
        f"wrong data{of_ranks(wrong, peers.size)}; those of this rank are right" if wrong else ""
    )


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
    elif str(getattr(value, "layout", "")) == "torch.strided" and not hasattr(
        value, "__tensor_flatten__"
    ):
        yield value


def rotation_sets(
    work: Work, cache_bytes: int, memory_bytes: int | None, set_bytes: int = 0
) -> int:
    """How many argument sets a rotation needs so that a buffer has left the cache when its turn comes again.

    A matter of sizes alone, as is `is_cold`: neither free memory nor the host's speed has a say, since what was timed
    warm in one run and cold in the next cannot be compared. Fewer than needed where half of all the device's memory,
    free or not (None where it does not tell), does not hold them.
    """
    touched = bytes_per_set(work)
    if touched == 0 or touched >= ROTATION_FACTOR * cache_bytes:
        return 1
    needed = math.ceil(ROTATION_FACTOR * cache_bytes / touched) + 1
    held = (
        MOST_SETS
        if memory_bytes is None
        else max(1, int(memory_bytes * MEMORY_SHARE // max(touched, set_bytes)))
    )
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
    sets: list[tuple[object, ...]],
    request: Request,
    device: Device,
    peers: Peers,
    tell: Callable[[str], object],
) -> bool:
    """Make the argument sets of a request in an empty list, as many on every rank, however long that takes.

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
            set_bytes=bytes_held(work, sets[0]),
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
                f"about {took_s / len(sets) * count:.0f} s for all; let it return parts of one allocation, or use "
                "cache='flush', which takes one set"
            )
    return is_cold(count, work, room.cache_bytes)
