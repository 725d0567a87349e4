"""Warming up until nothing moves any more.

A fixed time is too short for a clock that droops for 300 ms, and too long for everything else.
"""

import math
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from ..log import Log
from .sequence import CallSequence
from .stopwatch import Stopwatch

# Calls, unless so many take longer than twice the floor.
FEWEST_CALLS = 20
# Of the measurement's budget, so that something is left to measure with.
SHARE_QUEUED = 0.5
SHARE_DIRECT = 0.2
# A window is this share of the floor; two of them must agree.
WINDOW_SHARE = 0.25
# Spans in a window, so that its median means something.
SPANS = 5
CLOCK_AGREEMENT = 0.02
# Warm calls to compare the first with, and the share of the budget from which on one is enough.
WARM_CALLS, WARM_SHARE = 5, 0.1


@dataclass(slots=True)
class _Window:
    seconds: list[float] = field(default_factory=list)
    lasted_s: float = 0.0
    clock_hz: float | None = None


class WarmUp:
    """First calls, each alone; calls in spans of growing count, gathered into windows; warm calls,
    each alone. The log counts them all.
    """

    def __init__(
        self, watch: Stopwatch, calls: CallSequence, log: Log, budget_s: float, most_calls: int
    ) -> None:
        self._watch = watch
        self._calls = calls
        self._log = log
        self._budget_s = budget_s
        self._most_calls = most_calls
        self._traits = traits = watch.device.traits
        self.cap_s = (SHARE_QUEUED if traits.queues else SHARE_DIRECT) * budget_s
        self.floor_s = min(traits.warmup_floor_s, self.cap_s)
        self.calls = 0
        self.lasted_s = 0.0
        self._window_s = WINDOW_SHARE * self.floor_s
        self._shortest_s = max(traits.shortest_span_s, self._window_s / SPANS)
        self._windows = [_Window()]
        self._last_s = 0.0
        self.beside_s = 0.0
        """Host seconds of the last span that were not the span's own: a flush in front of it."""
        self.idle_s = math.inf
        """Host seconds to submit a call to an idle device."""

    def make_first_calls(self, count: int) -> bool:
        """Make the very first calls, each alone. They may compile or load. Return whether the last
        was too slow to warm up.

        A single one that is as long as the budget is slow. Of several, the last is warm already: on a device that is
        waited for anyway it is enough that the next would be all of the warm-up.
        """
        log = self._log
        for index in range(max(1, count)):
            log.warmup_iterations += 1
            log.first_calls_s.append(
                self._watch.alone_s(self._calls.first if index == 0 else partial(self._calls, 1))
            )
            log.warmup_s += log.first_calls_s[-1]
        warm = count > 1 and not self._traits.queues
        return log.first_calls_s[-1] >= (SHARE_DIRECT if warm else 1) * self._budget_s

    def time_warm_calls(self) -> None:
        """Time a few warm calls as the first were timed. Only where samples are timed in another
        way: behind a queue, or across ranks.
        """
        log, watch = self._log, self._watch
        in_a_row = not (watch.isolated or watch.agreement.alone)
        if not (self._traits.queues or in_a_row):
            return
        while (
            len(log.warm_calls_s) < WARM_CALLS
            and sum(log.warm_calls_s) < WARM_SHARE * self._budget_s
        ):
            log.warmup_iterations += 1
            log.warm_calls_s.append(watch.alone_s(partial(self._calls, 1)))
        log.warmup_s += sum(log.warm_calls_s)

    def call_until_steady(self) -> float:
        """Return the seconds per call at the end of the warm-up."""
        now_s = self._watch.agreement.now_s
        began_s, count, readable = now_s(), 1, False
        while not (self.lasted_s >= self.cap_s or (readable and self._has_converged)):
            before_s = now_s()
            self._log.warmup_iterations += count
            calls_s = self._watch.span_s(partial(self._calls, count))
            # The least is that of a span too short to fill the queue.
            self.idle_s = min(self.idle_s, self._watch.submit_s / count)
            self.calls += count
            self.beside_s = max(0.0, now_s() - before_s - calls_s)
            self._add(calls_s / count, now_s() - before_s)
            self.lasted_s = now_s() - began_s
            readable = calls_s >= self._shortest_s or count == self._most_calls
            if not readable:
                count = min(2 * count, self._most_calls)
            if self.lasted_s == 0 and self.calls >= FEWEST_CALLS * self._most_calls:
                break  # Nothing moves any clock, which only a scripted one can do.
        return self._last_s

    def _add(self, seconds: float, lasted_s: float) -> None:
        window = self._windows[-1]
        window.seconds.append(seconds)
        window.lasted_s += lasted_s
        self._last_s = median(window.seconds)
        if window.lasted_s >= self._window_s:
            window.clock_hz = self._watch.clock_hz()
            self._windows = [*self._windows[-2:], _Window()]

    @property
    def _has_converged(self) -> bool:
        enough_calls = self.calls >= FEWEST_CALLS or self.lasted_s >= 2 * self.floor_s
        if self.lasted_s < self.floor_s or not enough_calls or len(self._windows) < 3:
            return False
        before, last = self._windows[-3], self._windows[-2]
        before_s, last_s = median(before.seconds), median(last.seconds)
        if abs(last_s - before_s) > self._traits.precision * before_s:
            return False
        probed = last.clock_hz is not None and before.clock_hz is not None
        agree = not probed or abs(last.clock_hz / before.clock_hz - 1) <= CLOCK_AGREEMENT  # type: ignore[operator]
        # All ranks come here, since all that was asked so far is agreed upon.
        return self._watch.agreement.on_every_rank(agree)
