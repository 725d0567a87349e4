"""Measuring on all ranks in lockstep, with the steps of one process. Also which rank is late.

Every rank measures the same request on its own device, and all that decides how many calls are made is agreed upon
(`engine.sizing.peers`). Runs on a rank; the controller gets `RankTimes` from each, and `progress` after every block.

The time of a call does not tell which rank made it long: ranks that come early wait for the late one, so the call takes
as long on all. The straggler shows in the time that a rank spends outside of collectives and of waits for them. That
time is taken in a pass of its own after timing, since it costs time to watch every operation.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from ..core.errors import BadInput, NoRoom
from ..core.samples import Samples
from ..engine.devices import Device, Stamp
from ..engine.log import LatestBlock, Log
from ..engine.log import samples_of as samples_of_blocks
from ..engine.measure import MeasuredRequest, Observer, measure_request
from ..engine.request import Request, Timed
from .worlds import Rank

# The kinds of what a rank function may return, in words.
KINDS = (
    "neither a function nor a Timed",
    "a function",
    "a Timed without make_args",
    "a Timed",
)


@dataclass(frozen=True, slots=True)
class RankTimes:
    """The measurement of a rank.

    Args:
        measured: the rank's own times, and the results that all ranks agree on.
        straggler: the rank that the others wait for; None where none stands out, or none was looked for.
        lag_s: by rank, how much longer than the fastest it needs for its own part of a call, in seconds. Empty where no
            straggler was looked for: there is one rank alone, or the data are wrong.
    """

    measured: MeasuredRequest
    straggler: int | None = None
    lag_s: tuple[float, ...] = ()


def measure(
    rank: Rank,
    fn: Callable[..., object],
    args: tuple[object, ...],
    request: Request,
    tell: Callable[[LatestBlock], None],
) -> RankTimes:
    """Measure the function that `fn(rank, *args)` returns.

    Every rank of the world must call this with the same request. `tell` takes every block.

    The result has the measurement, the straggler (the rank that the others wait for) and the lag of each rank.
    """
    observer = _RankObserver(rank, request, tell)
    try:
        timed = timed_work(rank, fn, args)
        measured = measure_request(rank.meter, replace(request, timed=timed), observer, rank)
    except NoRoom as error:
        rank.skip(f"a rank {error}")
    return RankTimes(measured, *observer.lateness)


def timed_work(rank: Rank, fn: Callable[..., object], args: tuple[object, ...]) -> Timed:
    """Return the work to time, which the user's rank function gives.

    It is the `Timed` or the function that `fn(rank, *args)` returns. If it returns neither, the call
    `fn(rank, *args)` itself is timed.

    Raises:
        BadInput: ranks returned different kinds.
    """
    output = fn(rank, *args)
    # Ranks exchange numbers only, so the kind is sent as its index in `KINDS`.
    kind = KINDS.index(_kind_of(output))
    rows = rank.gather((kind, isinstance(output, Timed) and output.on_host))
    first_kind, _ = rows[0]
    for number, (other_kind, _) in enumerate(rows):
        if other_kind != first_kind:
            raise BadInput(
                f"on rank 0 the rank function returned {KINDS[int(first_kind)]}, "
                f"on rank {number} {KINDS[int(other_kind)]}; "
                "expected the same kind on every rank"
            )
    if not isinstance(output, Timed):
        return Timed(output if callable(output) else lambda: fn(rank, *args))
    return replace(output, on_host=any(on_host for _, on_host in rows))


def _kind_of(output: object) -> str:
    """Return the kind of what a rank function returned, one of `KINDS`."""
    if isinstance(output, Timed):
        return "a Timed without make_args" if output.make_args is None else "a Timed"
    return "a function" if callable(output) else "neither a function nor a Timed"


def run_once(rank: Rank, fn: Callable[..., object], args: tuple[object, ...]) -> None:
    """Do the work of a rank function once, without timing it.

    `fn(rank, *args)` is called. If it returns a `Timed` or a function, as for `measure_ranks`, that is called once too.
    """
    output = fn(rank, *args)
    if isinstance(output, Timed):
        output.call(*output.arguments())
    elif callable(output):
        output()
    rank.meter.synchronize()


class _RankObserver(Observer):
    """Sends every block to the controller, and looks for the straggler."""

    def __init__(self, rank: Rank, request: Request, tell: Callable[[LatestBlock], None]) -> None:
        """Prepare to hear of a request's measurement on this rank; `tell` takes each block."""
        self._rank = rank
        self._request = request
        self._tell = tell
        # The straggler and the lag of every rank, as in `RankTimes`.
        self.lateness: tuple[int | None, tuple[float, ...]] = None, ()

    def block_added(self, log: Log) -> None:
        """Send the newest block, and what holds for all so far."""
        blocks = log.timed_blocks
        self._tell(LatestBlock(len(blocks) - 1, blocks[-1], log.common()))

    def finished(
        self,
        measured: MeasuredRequest,
        fn: Callable[..., object],
        sets: Sequence[tuple[object, ...]],
    ) -> None:
        """Look for the straggler after the measurement, unless its data are wrong."""
        if self._rank.size > 1 and not measured.wrong:
            call_s, budget_s = measured.samples.median_s, self._request.budget_s
            self.lateness = find_straggler(self._rank, fn, sets, call_s, budget_s)


def samples_of(progress: Sequence[LatestBlock]) -> Samples | None:
    """Return a rank's samples, by the blocks that it told of. None if there is no sample yet."""
    blocks = _measured_blocks(progress)
    if not blocks:
        return None
    return samples_of_blocks([latest.block for latest in blocks], blocks[-1].common)


def rank_seconds(progress: Sequence[LatestBlock]) -> tuple[float, ...]:
    """Return every sample of one rank, in seconds per call."""
    return tuple(
        seconds for latest in _measured_blocks(progress) for seconds in latest.block.rank_seconds
    )


def _measured_blocks(progress: Sequence[LatestBlock]) -> list[LatestBlock]:
    """Return the blocks that count, without the warm-up. An index that comes again makes the blocks
    from there on a part of the warm-up.
    """
    blocks: list[LatestBlock] = []
    for latest in progress:
        del blocks[latest.index :]
        blocks.append(latest)
    return blocks


# The operations of torch.distributed, by the namespaces that torch registers them under.
NAMESPACES = ("c10d", "_c10d_functional")
# A rank is named only if it lags by more than this share of a call,
SHARE_OF_CALL = 0.05
# and this many times as much as the others do in the median,
TIMES_THE_OTHERS = 3
# and more than ranks leave a barrier apart, in seconds: on busy cores 0.17 ms were seen.
BARRIER_SPREAD_S = 250e-6
# The number of calls in the pass that looks for the straggler, by the share of the budget that a call exceeds: the
# longer a call, the fewer.
CALLS = ((1 / 5, 1), (1 / 25, 3), (0.0, 5))


def straggler(
    calls: Sequence[Sequence[tuple[float, float]]],
) -> tuple[int | None, tuple[float, ...]]:
    """Return the straggler, and by how much each rank lags.

    The straggler is the rank that all others wait for.

    Args:
        calls: for each call, by rank, the seconds outside of collectives and the seconds in all.

    Returns:
        The rank, or None where none stands out; and the median lag of each rank behind the fastest, in seconds.
    """
    # For each call, how much longer each rank needs outside of collectives than the fastest rank.
    lags_by_call = []
    for times_by_rank in calls:
        fastest_s = min(outside_s for outside_s, _ in times_by_rank)
        lags_by_call.append([outside_s - fastest_s for outside_s, _ in times_by_rank])
    lags_s = tuple(median(lags_of_rank) for lags_of_rank in zip(*lags_by_call, strict=True))
    call_s = median(max(whole_s for _, whole_s in times_by_rank) for times_by_rank in calls)
    latest = max(range(len(lags_s)), key=lambda rank: lags_s[rank])
    other_lags_s = [lag_s for rank, lag_s in enumerate(lags_s) if rank != latest]
    if not other_lags_s:
        return None, lags_s
    # A lag below this may be chance: ranks leave a barrier some time apart, and all calls vary.
    noise_s = max(SHARE_OF_CALL * call_s, BARRIER_SPREAD_S, TIMES_THE_OTHERS * median(other_lags_s))
    return (latest if lags_s[latest] > noise_s else None), lags_s


def find_straggler(
    rank: Rank,
    fn: Callable[..., object],
    sets: Sequence[tuple[object, ...]],
    call_s: float,
    budget_s: float,
) -> tuple[int | None, tuple[float, ...]]:
    """Return the straggler and every rank's lag, from a few more calls.

    Every rank must call this, and every rank gets the same result.

    Args:
        rank: this rank.
        fn: the function that was measured.
        sets: its sets of arguments, used in turn.
        call_s: the seconds that a call takes.
        budget_s: the seconds of the test's budget.
    """
    # The longer a call, the fewer calls. The last share is 0, so that the shortest call has a number too.
    call_count = next(
        number for share, number in CALLS if call_s > share * budget_s or share == 0.0
    )
    calls = []
    inside = Inside(rank.meter)
    with inside.watching():
        for index in range(call_count):
            rank.meter.synchronize()
            rank.barrier()
            call_seconds = _once(rank.meter, inside, fn, sets[index % len(sets)])
            seconds_by_rank = rank.gather(call_seconds)
            calls.append([(outside_s, whole_s) for outside_s, whole_s in seconds_by_rank])
    return straggler(calls)


def _once(
    device: Device, inside: "Inside", fn: Callable[..., object], arguments: tuple[object, ...]
) -> tuple[float, float]:
    """Return the seconds of one call outside of collectives, and in all."""
    inside.marks.clear()
    start = device.stamp()
    fn(*arguments)
    end = device.stamp()
    device.synchronize()
    whole_s = device.elapsed_s(start, end)
    # The marks are the entries into collectives and the exits from them, in turn.
    entries, exits = inside.marks[::2], inside.marks[1::2]
    within_s = sum(
        device.elapsed_s(entered, left) for entered, left in zip(entries, exits, strict=True)
    )
    return max(0.0, whole_s - within_s), whole_s


class Inside:
    """Records when this thread enters and leaves a collective, or a wait for one."""

    def __init__(self, device: Device) -> None:
        """Prepare to stamp the entries into collectives and the exits from them on this thread."""
        self.marks: list[Stamp] = []
        """The stamps of entries and exits in turn."""
        self._device = device
        self._depth = 0
        self._thread = threading.get_ident()

    @contextlib.contextmanager
    def collective(self) -> Iterator[None]:
        """Record when this block is entered and left.

        It runs a collective or waits for one. A collective inside of another is not recorded (`_depth` counts the open
        ones), nor one on another thread.
        """
        if threading.get_ident() != self._thread:
            yield
            return
        self._mark()
        self._depth += 1
        try:
            yield
        finally:
            self._depth -= 1
            self._mark()

    def _mark(self) -> None:
        """Stamp the present moment, unless an outer collective is open."""
        if not self._depth:
            self.marks.append(self._device.stamp())

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Record every collective in this block.

        Operations are seen by torch's dispatcher, waits by a replacement of `dist.Work.wait`. Both
        are needed: Gloo's all_reduce returns at once, and the work's handle is waited for.
        """
        original = dist.Work.wait

        def wait(work: dist.Work, *arguments: Any, **named: Any) -> Any:
            """Wait as `dist.Work.wait` does, and record the wait."""
            with self.collective():
                return original(work, *arguments, **named)

        dist.Work.wait = wait  # type: ignore[method-assign, assignment]
        try:
            with _Operations(self):
                yield
        finally:
            dist.Work.wait = original  # type: ignore[method-assign]


class _Operations(TorchDispatchMode):
    """Records the operations of torch.distributed; all others pass unchanged."""

    def __init__(self, inside: Inside) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._inside = inside

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Return whether torch keeps its compiler out of `__torch_dispatch__`."""
        # True would import the compiler, to keep it out of the method below. That takes two seconds, and the compiler
        # never gets there anyway.
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """Return True, so that compiled functions run without being watched."""
        return True

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation of torch, and record it if it is a collective."""
        if getattr(func, "namespace", "") not in NAMESPACES:
            return func(*args, **(kwargs or {}))
        with self._inside.collective():
            return func(*args, **(kwargs or {}))
