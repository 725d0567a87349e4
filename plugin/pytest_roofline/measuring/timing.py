"""The timing engine: warm up, size the samples, take them until the median is known or the budget is spent.

A sample is `iterations` calls between two stamps, long enough for the clock; every sample is kept. This is the engine
in its basics: events or the host's clock, cache rotation or flush, raw samples. It asks a device for nothing but the
`Device` protocol.
"""

import contextlib
import gc
import inspect
import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from ..core.errors import BadInput, DeviceError
from ..core.keys import Cache, Timing
from ..core.records import Samples
from .devices import Device, Stamp

# A sample must span this many ticks of the clock, or its value is the clock's and not the device's.
TICKS_PER_SAMPLE = 200
# More calls between two stamps tell nothing new, and a function without work must come to an end.
MOST_CALLS = 1 << 15
WARMUP_CALLS = 20
WARMUP_SHARE = 0.2
WARMUP_FLOOR_S = 0.1
FEWEST_SAMPLES = 5
ENOUGH_SAMPLES = 20
# Stop early only after this share of the budget: a burst of agreeing samples is no steady state.
EARLIEST_STOP = 0.25
# Half the width of the median's interval, as a share of it.
ENOUGH_PRECISION = 0.01
# More samples than this tell nothing new about one process.
SAMPLES_AIMED_AT = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """What to time and how. `sets` are the argument tuples to call with, in turn."""

    fn: Callable[..., object]
    sets: Sequence[tuple[object, ...]]
    budget_s: float
    cache: Cache = "warm"
    timing: Timing = "device"
    flush: Callable[[], object] | None = None
    renew: Callable[[int], object] | None = None
    """Replaces the first so many sets by fresh ones, so that what the warm-up left behind is not what is verified."""


@dataclass(slots=True)
class Log:
    """What was taken so far; readable after an exception or Ctrl-C in the middle."""

    seconds: list[float] = field(default_factory=list)
    iterations: int = 1
    warmup_iterations: int = 0
    warmup_s: float = 0.0
    measuring_s: float = 0.0
    calls: int = 0
    labels: set[str] = field(default_factory=set)


class Engine:
    """Times one function on one device."""

    def __init__(self, device: Device, plan: Plan) -> None:
        self.device = device
        self.plan = plan
        self.log = Log()
        self._turn = itertools.cycle(plan.sets)

    def run(self) -> None:
        """Take the samples; whatever is raised on the way, `log` keeps what there is."""
        with _collector_off():
            if self._first_call_s() < self.plan.budget_s:
                self.log.iterations = self._iterations(self._warm_up(0.0))
                self._renew()
                self._take()
            else:
                self._take_after_a_long_first_call()

    def _renew(self) -> None:
        if self.plan.renew is not None:
            self.settle()
            self.plan.renew(min(self.log.calls, len(self.plan.sets)))
            self._turn = itertools.cycle(self.plan.sets)
            self.log.calls = 0

    @property
    def sets_touched(self) -> Sequence[tuple[object, ...]]:
        """The argument sets that were called with, since they were last renewed."""
        return self.plan.sets[: self.log.calls]

    def samples(self) -> Samples | None:
        """The record of what was taken; None where there is no sample yet."""
        log = self.log
        if not log.seconds:
            return None
        return Samples(
            seconds=tuple(log.seconds),
            iterations=log.iterations,
            tick_s=self.device.tick_s,
            warmup_iterations=log.warmup_iterations,
            warmup_s=log.warmup_s,
            measuring_s=log.measuring_s,
            argument_sets=len(self.plan.sets),
            labels=tuple(sorted(log.labels)),
        )

    def _span_s(self, count: int) -> float:
        """Seconds between the stamps around `count` calls."""
        if self.plan.flush is not None:
            self.plan.flush()
        if self.plan.timing == "wall":
            self.settle()
            start_s = self.device.host_s()
            self._call(count)
            self.settle()
            return self.device.host_s() - start_s
        start = self._stamp()
        self._call(count)
        end = self._stamp()
        with self._answering():
            return self.device.elapsed_s(start, end)

    def settle(self) -> None:
        """Wait until everything that was called is done."""
        with self._answering():
            self.device.synchronize()

    def _call(self, count: int) -> None:
        fn = self.plan.fn
        if self.log.warmup_iterations == 1:
            _refuse_awaitable(fn(*next(self._turn)))
        else:
            for arguments in itertools.islice(self._turn, count):
                fn(*arguments)
        self.log.calls += count

    def _stamp(self) -> Stamp:
        with self._answering():
            return self.device.stamp()

    @contextlib.contextmanager
    def _answering(self) -> Iterator[None]:
        """Name the device where it, and not the measured function, fails."""
        try:
            yield
        except DeviceError:
            raise
        except Exception as error:
            raise DeviceError(f"{self.device.name} stopped answering: {error}") from error

    def _first_call_s(self) -> float:
        """Seconds of the very first call, which stands alone: it may compile or load."""
        began_s = self.device.host_s()
        span_s = self._warm_up_span_s(1)
        self.log.warmup_s = self.device.host_s() - began_s
        return max(span_s, self.log.warmup_s)

    def _warm_up(self, span_s: float) -> float:
        """Call until 0.1 s and 20 calls, or a fifth of the budget, have gone by; the last span's seconds per call.

        Args:
            span_s: seconds of the call before, which stand if there is no time for another.
        """
        log, device = self.log, self.device
        cap_s = WARMUP_SHARE * self.plan.budget_s
        floor_s = min(WARMUP_FLOOR_S, cap_s)
        before_s, began_s = log.warmup_s, device.host_s()
        count, warm_s = 1, 0.0
        while warm_s < cap_s:
            span_s = self._warm_up_span_s(count)
            warm_s = device.host_s() - began_s
            log.warmup_s = before_s + warm_s
            readable = span_s >= self._shortest_span_s or count == self._longest_batch
            long_enough = warm_s >= floor_s or warm_s == 0
            if readable and long_enough and log.warmup_iterations >= WARMUP_CALLS:
                break
            if span_s < self._shortest_span_s:
                count = min(2 * count, self._longest_batch)
        return max(span_s, device.tick_s) / count

    def _warm_up_span_s(self, count: int) -> float:
        self.log.warmup_iterations += count
        return self._span_s(count)

    @property
    def _shortest_span_s(self) -> float:
        return max(self.device.shortest_span_s, TICKS_PER_SAMPLE * self.device.tick_s)

    @property
    def _longest_batch(self) -> int:
        # A flush goes before every call, so each call is a sample of its own.
        return 1 if self.plan.flush is not None else MOST_CALLS

    def _take_after_a_long_first_call(self) -> None:
        """A first call as long as the budget: either it compiled, or the function is just as slow ever after."""
        began_s = self.device.host_s()
        span_s = self._span_s(1)
        if span_s >= WARMUP_SHARE * self.plan.budget_s:
            # Slow for good: the second call is the first sample, and warming up would only add to the wait.
            self.log.measuring_s = self.device.host_s() - began_s
            self._keep(span_s)
            self._take()
            return
        self.log.warmup_iterations += 1
        self.log.warmup_s += self.device.host_s() - began_s
        self.log.iterations = self._iterations(self._warm_up(span_s))
        self._renew()
        self._take()

    def _iterations(self, estimate_s: float) -> int:
        """Calls per sample: enough for the clock, and no more samples in the budget than tell something."""
        span_s = max(self._shortest_span_s, self.plan.budget_s / SAMPLES_AIMED_AT / 2)
        return min(max(1, math.ceil(span_s / estimate_s)), self._longest_batch)

    def _take(self) -> None:
        """Samples until the median is known well enough, or the budget is spent."""
        log, device = self.log, self.device
        began_s = device.host_s() - log.measuring_s
        while not (log.seconds and self._at_an_end()):
            span_s = self._span_s(log.iterations)
            log.measuring_s = device.host_s() - began_s
            if log.seconds or not self._enlarge(span_s):
                self._keep(span_s)
        if not self._precise():
            log.labels.add("noisy")

    def _keep(self, span_s: float) -> None:
        """Write a sample down, whatever it is."""
        if span_s < TICKS_PER_SAMPLE * self.device.tick_s:
            self.log.labels.add("unresolved")
        # Below one tick: the time is certainly not above it.
        self.log.seconds.append(max(span_s, self.device.tick_s) / self.log.iterations)

    def _at_an_end(self) -> bool:
        """Whether the budget is spent, the median known, or no clock moves (which only a scripted one can do)."""
        log, budget_s = self.log, self.plan.budget_s
        if log.measuring_s >= budget_s:
            return True
        if log.measuring_s >= EARLIEST_STOP * budget_s and self._precise():
            return True
        return log.measuring_s == 0 and len(log.seconds) >= FEWEST_SAMPLES

    def _enlarge(self, span_s: float) -> bool:
        """Make samples longer where the very first shows that the warm-up misjudged them; it counts as warm-up then."""
        log = self.log
        if span_s >= self._shortest_span_s or log.measuring_s >= self.plan.budget_s:
            return False
        larger = self._iterations(max(span_s, self.device.tick_s) / log.iterations)
        if larger <= log.iterations:
            return False
        log.warmup_iterations += log.iterations
        log.iterations = larger
        return True

    def _precise(self) -> bool:
        count = len(self.log.seconds)
        return count >= FEWEST_SAMPLES and median_half_width(self.log.seconds) <= ENOUGH_PRECISION and (
            count >= ENOUGH_SAMPLES or self.log.iterations == 1
        )  # fmt: skip


def median_half_width(seconds: Sequence[float]) -> float:
    """Half the width of a 95 % interval of the median, as a share of it.

    Distribution-free, from order statistics: ranks n/2 ± 1.96·√n/2 (Conover, Practical Nonparametric Statistics, 3.2).
    """
    ordered = sorted(seconds)
    count = len(ordered)
    reach = 1.96 * math.sqrt(count) / 2
    low = max(0, math.floor(count / 2 - reach))
    high = min(count - 1, math.ceil(count / 2 + reach))
    return (ordered[high] - ordered[low]) / 2 / ordered[count // 2]


def _refuse_awaitable(result: object) -> None:
    """Refuse what only promises to work: an async function hidden in another one."""
    if inspect.isawaitable(result):
        if inspect.iscoroutine(result):
            result.close()
        raise BadInput(
            f"the measured function returned {type(result).__name__}, which does its work only when awaited; expected "
            "a plain function that returns when the work is submitted or done"
        )


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    """No garbage collection inside a sample; restored after, whatever happened."""
    was_on = gc.isenabled()
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
