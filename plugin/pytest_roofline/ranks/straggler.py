"""Who is late: the rank that spends more time of its own, while the others wait for it inside a collective.

A time that is the longest over the ranks does not tell which of them made it long: whoever comes early waits for the
late one, so all take as long. What tells is the time that a rank spends outside of collectives and of waiting for them.
Taken in a pass of its own after timing, since looking at every operation costs time.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Sequence
from statistics import median
from typing import Any

import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from ..engine.devices import Device, Stamp
from .context import Rank

# The operations of torch.distributed, by the namespaces that torch registers them under.
NAMESPACES = ("c10d", "_c10d_functional")
# A rank is named only if it lags by more than this share of a call,
SHARE_OF_CALL = 0.05
# and this many times as much as the others do in the median,
TIMES_THE_OTHERS = 3
# and more than ranks leave a barrier apart, in seconds: on busy cores 0.17 ms were seen.
BARRIER_SPREAD_S = 250e-6
# Calls in the pass: fewer for long ones, by the share of the budget that a call takes.
CALLS = ((1 / 5, 1), (1 / 25, 3), (0.0, 5))


def straggler(calls: Sequence[Sequence[tuple[float, float]]]) -> tuple[int | None, tuple[float, ...]]:
    """The late rank, and by how much each one lags.

    Args:
        calls: of every call, by rank: seconds outside of collectives, and seconds of the whole call.

    Returns:
        The rank that is later than noise explains, or None; by rank, how much longer than the fastest it needs for
        its own part, in seconds: the median over the calls.
    """
    lags = [[own_s - min(own_s for own_s, _ in row) for own_s, _ in row] for row in calls]
    lag_s = tuple(median(column) for column in zip(*lags, strict=True))
    call_s = median(max(whole_s for _, whole_s in row) for row in calls)
    late = max(range(len(lag_s)), key=lag_s.__getitem__)
    others = [each for rank, each in enumerate(lag_s) if rank != late]
    noise_s = max(SHARE_OF_CALL * call_s, BARRIER_SPREAD_S, TIMES_THE_OTHERS * median(others) if others else 0.0)
    return (late if others and lag_s[late] > noise_s else None), lag_s


def find(
    rank: Rank, fn: Callable[..., object], sets: Sequence[tuple[object, ...]], call_s: float, budget_s: float
) -> tuple[int | None, tuple[float, ...]]:
    """The late rank and every rank's lag, by a few calls that are not timed; all ranks must come here, and all learn.

    Args:
        rank: this one.
        fn: the measured function.
        sets: its argument sets, called with in turn.
        call_s: how long a call takes, in seconds, as all ranks agreed.
        budget_s: of the measurement.
    """
    count = next(count for share, count in CALLS if call_s > share * budget_s or not share)
    calls = []
    inside = Inside(rank.meter)
    with inside.watching():
        for index in range(count):
            rank.meter.synchronize()
            rank.barrier()
            own = _once(rank.meter, inside, fn, sets[index % len(sets)])
            calls.append([(row[0], row[1]) for row in rank.gather(own)])
    return straggler(calls)


def _once(
    device: Device, inside: "Inside", fn: Callable[..., object], arguments: tuple[object, ...]
) -> tuple[float, float]:
    """Seconds of one call outside of collectives, and of the whole of it."""
    inside.marks.clear()
    start = device.stamp()
    fn(*arguments)
    end = device.stamp()
    device.synchronize()
    whole_s = device.elapsed_s(start, end)
    within_s = sum(device.elapsed_s(*pair) for pair in zip(inside.marks[::2], inside.marks[1::2], strict=True))
    return max(0.0, whole_s - within_s), whole_s


class Inside:
    """Stamps a device where this thread enters a collective or a wait for one, and where it leaves it again."""

    def __init__(self, device: Device) -> None:
        self.marks: list[Stamp] = []
        """Entry and exit in turn."""
        self._device = device
        self._depth = 0
        self._thread = threading.get_ident()

    @contextlib.contextmanager
    def collective(self) -> Iterator[None]:
        """Inside of one; only the outermost counts."""
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
        if not self._depth:
            self.marks.append(self._device.stamp())

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """See every collective from here on: operations by torch's dispatcher, waits by the handle's method.

        Gloo's all_reduce returns from its operation at once and waits on the handle, so both are needed.
        """
        original = dist.Work.wait

        def wait(work: dist.Work, *arguments: Any, **named: Any) -> Any:
            with self.collective():
                return original(work, *arguments, **named)

        dist.Work.wait = wait  # type: ignore[method-assign, assignment]
        try:
            with _Operations(self):
                yield
        finally:
            dist.Work.wait = original  # type: ignore[method-assign]


class _Operations(TorchDispatchMode):
    """Marks what torch.distributed submits; everything else passes."""

    def __init__(self, inside: Inside) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._inside = inside

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        # Keeping the compiler out of the method below imports it, which takes two seconds; it never gets there.
        return False

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """A compiled function may run as it is: it is not looked into."""
        return True

    def __torch_dispatch__(self, func: Any, _types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """One operation of torch."""
        if getattr(func, "namespace", "") not in NAMESPACES:
            return func(*args, **(kwargs or {}))
        with self._inside.collective():
            return func(*args, **(kwargs or {}))
