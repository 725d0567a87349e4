"""Whether the buffers of all ranks hold what they should, after timing and with new data in the timed buffers."""

from collections.abc import Sequence

from ..measuring.calls import wrong_data
from ..measuring.peers import of_ranks
from .context import Rank
from .timed import Timed

# Sets that are filled again: enough to see work that was done only once.
MOST_REFILLED = 4


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
