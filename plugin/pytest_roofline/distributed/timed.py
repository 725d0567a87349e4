"""What is timed on a rank, with which buffers, and whether they hold what they should: alike on every rank."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

from ..core.errors import BadInput
from ..core.keys import Cache
from ..core.work import Work
from ..measuring import cache
from ..measuring.calls import wrong_data
from ..measuring.peers import of_ranks
from .context import Rank

_KINDS = ("something else than a function or a Timed", "a function", "a Timed without make_args", "a Timed")
# Sets that are filled again: enough to see work that was done only once.
MOST_REFILLED = 4


@dataclass(frozen=True, slots=True)
class Timed:
    """What to time on a rank, with its buffers and how to check them.

    Args:
        call: timed as `call(*arguments)`; its result is ignored.
        make_args: makes one fresh set of arguments; None calls `call()`.
        verify: called as `verify(*arguments)` on every set that was timed, after timing; False or an AssertionError
            means wrong data. As that of `roofline.measure`, it may look at all sets at once. It must contain no
            collective: where one rank's data are wrong, the others would wait for it in vain.
        refill: called as `refill(*arguments)` on sets that were timed; `call` and `verify` then see new data in those
            very buffers, so that work which was only done once shows.
        as_timed: whether `verify` holds for buffers as the timing left them. Not so where every call changes its own
            input, as a sum in place does: then only the pass after `refill` is verified.
        on_host: whether the call does its work on the host and has done it when it returns, as MPI and Gloo do: it is
            then timed by the host's clock, also where the rank owns an accelerator.
    """

    call: Callable[..., object]
    make_args: Callable[[], object] | None = None
    verify: Callable[..., object] | None = None
    refill: Callable[..., object] | None = None
    as_timed: bool = True
    on_host: bool = False

    def __post_init__(self) -> None:
        for name in ("call", "make_args", "verify", "refill"):
            value = getattr(self, name)
            if not callable(value) and not (value is None and name != "call"):
                raise BadInput(f"Timed.{name} is {value!r}; expected a function")
        if self.refill is not None and self.verify is None:
            raise BadInput("Timed has refill and no verify; expected verify, which looks at what was refilled")
        if not self.as_timed and self.verify is not None and self.refill is None:
            raise BadInput("Timed has as_timed=False and no refill; expected refill, or nothing would ever be verified")


def run_once(rank: Rank, fn: Callable[..., object], args: tuple[object, ...]) -> None:
    """Call `fn(rank, *args)`; where that gives something to time, as for `measure_ranks`, do that once."""
    given = fn(rank, *args)
    if isinstance(given, Timed):
        given.call(*(cache.as_tuple(given.make_args()) if given.make_args is not None else ()))
    elif callable(given):
        given()
    rank.meter.synchronize()


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
                f"on rank 0 the rank function returned {_KINDS[kinds[0]]}, on rank {number} {_KINDS[other]}; expected "
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


def verified(rank: Rank, timed: Timed, sets: Sequence[tuple[object, ...]]) -> tuple[bool | None, str]:
    """Whether every rank's data are right; every rank comes here, and all learn the same.

    `verify` itself must contain no collective: where one rank's data are wrong, the others would wait for it in vain.

    Args:
        rank: this one.
        timed: what was timed, as it was timed.
        sets: the argument sets that were called with.

    Returns:
        None where no rank verifies; and what is wrong, in the words of this rank's own `verify` where that found it.
    """
    rows = rank.gather((timed.verify is not None, timed.refill is not None))
    if not any(verifies for verifies, _ in rows):
        return None, ""
    own = wrong_data(timed.verify, sets) if timed.verify is not None and timed.as_timed else ""
    wrong = _agreed(rank, own)
    if not wrong and any(refills for _, refills in rows):
        wrong = _agreed(rank, _after_refill(rank, timed, sets[:MOST_REFILLED]))
    return not wrong, wrong


def _after_refill(rank: Rank, timed: Timed, sets: Sequence[tuple[object, ...]]) -> str:
    """One more call on each set with new data in it. Every rank makes all of them, whatever it finds."""
    first = ""
    for index, arguments in enumerate(sets):
        if timed.refill is not None:
            timed.refill(*arguments)
        rank.meter.synchronize()
        rank.barrier()
        timed.call(*arguments)
        rank.meter.synchronize()
        said = _wrong(timed, arguments)
        first = first or (f"wrong data in argument set {index}, filled again after timing: {said}" if said else "")
    return first


def _wrong(timed: Timed, arguments: tuple[object, ...]) -> str:
    """What `verify` says of a set; empty where it is right."""
    if timed.verify is None:
        return ""
    try:
        answer = timed.verify(*arguments)
    except AssertionError as error:
        return str(error) or "verify raised AssertionError"
    # Functions that assert return None; everything else is taken at its truth.
    return "" if answer is None or answer else f"verify returned {answer!r}"


def _agreed(rank: Rank, own: str) -> str:
    """What is wrong on this rank, or that it is another's data."""
    wrong = [number for number, row in enumerate(rank.gather((bool(own),))) if row[0]]
    return own or (f"wrong data{of_ranks(wrong, rank.size)}; those of this rank are right" if wrong else "")
