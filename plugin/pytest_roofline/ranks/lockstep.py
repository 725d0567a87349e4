"""Measuring on a rank: the same steps as in one process, on all of them, in lockstep.

Every rank measures the same request on its own device, and all that decides how many calls are made is agreed upon
(`measuring.peers`). Runs on a rank; the controller gets `RankTimes` from each, and `progress` after every block.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ..core.errors import BadInput, NoRoom
from ..core.samples import Samples
from ..engine import log
from ..engine.measure import Measured, Observer, measure_request
from ..engine.request import Request, Timed
from ..engine.timing import Engine
from . import straggler
from .context import Rank

KINDS = ("something else than a function or a Timed", "a function", "a Timed without make_args", "a Timed")


@dataclass(frozen=True, slots=True)
class RankTimes:
    """What a rank measured.

    Args:
        measured: its own times, and what all ranks agree upon.
        straggler: the rank that the others wait for; None where none stands out, or nobody looked.
        lag_s: by rank, how much longer than the fastest it needs for its own part of a call, in seconds; empty where
            nobody looked: one rank alone, or wrong data.
    """

    measured: Measured
    straggler: int | None = None
    lag_s: tuple[float, ...] = ()


def measure(
    rank: Rank,
    fn: Callable[..., object],
    args: tuple[object, ...],
    request: Request,
    tell: Callable[[dict[str, Any]], None],
) -> RankTimes:
    """Time what `fn(rank, *args)` gives; every rank of the world must come here with the same request.

    Args:
        rank: this one.
        fn: called once. A `Timed` or a function that it returns is timed; if it returns anything else, `fn(rank,
            *args)` itself is, called again and again.
        args: for `fn`.
        request: without what is timed.
        tell: called after every block with what `samples_of` and `own_of` understand.

    Raises:
        BadInput: the ranks do not all have the same kind of thing timed, or their devices differ in kind.
        Skipped: the argument sets need more memory than a rank has free now.
        DeviceError: the device stopped answering.
        Exception: whatever `fn` raises; what was held is released.
    """
    observer = _RankObserver(rank, request, tell)
    try:
        timed = what_is_timed(rank, fn, args)
        measured = measure_request(rank.meter, replace(request, timed=timed), observer, rank)
    except NoRoom as error:
        rank.skip(f"a rank {error}")
        raise
    return RankTimes(measured, observer.straggler, observer.lag_s)


def what_is_timed(rank: Rank, fn: Callable[..., object], args: tuple[object, ...]) -> Timed:
    """What `fn(rank, *args)` gives to time: a `Timed` or a function; if neither, that very call.

    Raises:
        BadInput: on every rank, where the ranks have different kinds of thing timed.
    """
    given = fn(rank, *args)
    kind = 2 + (given.make_args is not None) if isinstance(given, Timed) else int(callable(given))
    rows = rank.gather((kind, isinstance(given, Timed) and given.on_host))
    for number, (other, _) in enumerate(rows):
        if other != rows[0][0]:
            raise BadInput(
                f"on rank 0 the rank function returned {KINDS[int(rows[0][0])]}, on rank {number} {KINDS[int(other)]}; "
                "expected the same on every rank, since all of them make the same calls"
            )
    if not isinstance(given, Timed):
        return Timed(given if callable(given) else lambda: fn(rank, *args))
    return replace(given, on_host=any(on_host for _, on_host in rows))


def run_once(rank: Rank, fn: Callable[..., object], args: tuple[object, ...]) -> None:
    """Call `fn(rank, *args)`; where that gives something to time, as for `measure_ranks`, do that once."""
    given = fn(rank, *args)
    if isinstance(given, Timed):
        given.call(*given.arguments())
    elif callable(given):
        given()
    rank.meter.synchronize()


class _RankObserver(Observer):
    """Tells the controller of every block, and looks for the rank that the others wait for."""

    def __init__(self, rank: Rank, request: Request, tell: Callable[[dict[str, Any]], None]) -> None:
        self._rank = rank
        self._request = request
        self._tell = tell
        self.straggler: int | None = None
        self.lag_s: tuple[float, ...] = ()

    def block_taken(self, engine: Engine) -> None:
        """Send the block that was just taken, and what holds for all so far."""
        kept = engine.log.kept
        self._tell({"index": len(kept) - 1, "kept": kept[-1], "common": engine.log.common()})

    def found(self, measured: Measured, fn: Callable[..., object], sets: Sequence[tuple[object, ...]]) -> None:
        """Find the late rank, unless the data are wrong."""
        if self._rank.size > 1 and not measured.wrong:
            call_s, budget_s = measured.samples.median_s, self._request.budget_s
            self.straggler, self.lag_s = straggler.find(self._rank, fn, sets, call_s, budget_s)


def samples_of(progress: Sequence[dict[str, Any]]) -> Samples | None:
    """What had been measured when a rank told this; None where there is no sample yet."""
    told = _counted(progress)
    return log.samples_of([each["kept"] for each in told], told[-1]["common"]) if told else None


def own_of(progress: Sequence[dict[str, Any]]) -> tuple[float, ...]:
    """Every sample of the rank that told this, in seconds per call."""
    return tuple(value for each in _counted(progress) for value in each["kept"].own)


def _counted(progress: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What still counts: an index that comes again says that the blocks from there on were part of the warm-up."""
    told: list[dict[str, Any]] = []
    for each in progress:
        del told[each["index"] :]
        told.append(each)
    return told
