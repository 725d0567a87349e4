"""Whether the timed buffers hold what they should, on every rank: as timing left them, and with new data in them."""

from collections.abc import Callable, Sequence
from typing import Protocol, runtime_checkable

from .devices import Device
from .peers import Peers, of_ranks
from .request import Timed

# Sets that are filled again: enough to see work that was done only once.
MOST_REFILLED = 4


@runtime_checkable
class ForAll(Protocol):
    """What a `verify` may have besides: both of its tasks for many argument sets at once."""

    def spoil(self, sets: Sequence[tuple[object, ...]]) -> object:
        """Ruin what the calls left in these sets, so that only new calls can make them right again."""

    def first_wrong(self, sets: Sequence[tuple[object, ...]]) -> int | None:
        """The index of the first set with wrong data; None where all are right."""


def renewal(peers: Peers, timed: Timed, sets: list[tuple[object, ...]]) -> Callable[[int], None] | None:
    """What makes the first so many sets as new: ruined all at once where `verify` can, else made once more.

    None where no rank verifies, or nothing makes them. Where one rank makes its sets anew all of them do, since making
    them may take a collective.
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


def verified(peers: Peers, device: Device, timed: Timed, sets: Sequence[tuple[object, ...]]) -> tuple[bool | None, str]:
    """Whether every rank's data are right; every rank comes here, and all learn the same.

    Args:
        peers: the ranks that measured together.
        device: that was measured; all of its work is done.
        timed: what was timed, as it was timed.
        sets: the argument sets that were called with.

    Returns:
        None where no rank verifies; and what is wrong, in the words of this rank's own `verify` where that found it.
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
    return next((f"wrong data in argument set {index}{text}" for index, text in enumerate(said) if text), "")


def _said(verify: Callable[..., object], arguments: tuple[object, ...], count: int) -> str:
    """How a sentence about one set ends; empty where its data are right."""
    try:
        answer = verify(*arguments)
    except AssertionError as error:
        return f": {error}" if str(error) else ": verify raised AssertionError"
    # Functions that assert return None; everything else is taken at its truth.
    return "" if answer is None or answer else f" of {count}: verify returned {answer!r}"


def _after_refill(peers: Peers, device: Device, timed: Timed, sets: Sequence[tuple[object, ...]]) -> str:
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
        first = first or (said and f"wrong data in argument set {index}, filled again after timing{said}")
    return first


def _agreed(peers: Peers, own: str) -> str:
    """What is wrong on this rank, or that it is another's data."""
    wrong = [number for number, row in enumerate(peers.gather((bool(own),))) if row[0]]
    return own or (f"wrong data{of_ranks(wrong, peers.size)}; those of this rank are right" if wrong else "")
