"""Warming up until neither a call's time nor the clock changes any more.

A fixed time would be too short for a clock that falls for 300 ms, and too long for everything else.
"""

import math
from dataclasses import dataclass, field
from functools import partial
from statistics import median

from ..log import Log
from .sequence import CallSequence
from .stopwatch import Stopwatch

# The warm-up makes at least so many calls, unless they take longer than twice its floor.
FEWEST_CALLS = 20
# The most that the warm-up may take of the budget, with and without a queue, so that time is left to measure.
SHARE_QUEUED = 0.5
SHARE_DIRECT = 0.2
# A window lasts this share of the floor. The last two windows must agree.
WINDOW_SHARE = 0.25
# Spans in a window, so that its median means something.
SPANS = 5
# Two clocks agree if they differ by no more than this share.
CLOCK_AGREEMENT = 0.02
# So many warm calls are timed to compare the first call with, unless they take this share of the budget before.
WARM_CALLS, WARM_SHARE = 5, 0.1


@dataclass(slots=True)
class _Window:
    """A part of the warm-up: seconds per call of each span, and the clock at its end."""

    seconds: list[float] = field(default_factory=list)
    lasted_s: float = 0.0
    clock_hz: float | None = None


class WarmUp:
    """The calls before the first block. The log counts them all.

    They are the first calls, each timed alone; then spans with more and more calls, until the medians of two windows
    of spans agree; then warm calls, each timed alone.
    """

    def __init__(
        self, watch: Stopwatch, calls: CallSequence, log: Log, budget_s: float, most_calls: int
    ) -> None:
        """Prepare to warm up with `calls`, at most `most_calls` in a span. The log counts them as warm-up."""
        self._watch = watch
        self._sequence = calls
        self._log = log
        self._budget_s = budget_s
        self._most_calls = most_calls
        self._traits = traits = watch.device.traits
        self.longest_s = (SHARE_QUEUED if traits.queues else SHARE_DIRECT) * budget_s
        self.shortest_s = min(traits.warmup_floor_s, self.longest_s)
        self.call_count = 0
        self.lasted_s = 0.0
        self._window_s = WINDOW_SHARE * self.shortest_s
        self._shortest_span_s = max(traits.shortest_span_s, self._window_s / SPANS)
        self._windows = [_Window()]
        self._median_call_s = 0.0
        self.outside_span_s = 0.0
        """Host seconds around the last span, such as those of the flush in front of it."""
        self.idle_s = math.inf
        """Host seconds to submit a call while the queue has room."""

    def make_first_calls(self, count: int) -> bool:
        """Make the very first calls, each timed alone, and return whether calls are slow.

        A call is slow if no time would be left to warm up. The first call may compile or load, so a single one is slow
        if it takes the whole budget. After several first calls the last one is warm: on a device without a queue it is
        slow if it takes the share of the budget that the warm-up may have.
        """
        log = self._log
        for index in range(max(1, count)):
            log.warmup_iterations += 1
            submit = self._sequence.first if index == 0 else partial(self._sequence, 1)
            call_s = self._watch.alone_s(submit)
            log.first_calls_s.append(call_s)
            log.warmup_s += call_s
        last_call_s = log.first_calls_s[-1]
        last_is_warm = count > 1 and not self._traits.queues
        return last_call_s >= (SHARE_DIRECT if last_is_warm else 1) * self._budget_s

    def time_warm_calls(self) -> None:
        """Time a few warm calls in the same way as the first calls.

        Nothing happens if the samples are timed in that way too: without a queue, unless ranks make calls in a row.
        """
        log, watch = self._log, self._watch
        is_pipelined = not (watch.isolated or watch.agreement.is_alone)
        if not (self._traits.queues or is_pipelined):
            return
        while (
            len(log.warm_calls_s) < WARM_CALLS
            and sum(log.warm_calls_s) < WARM_SHARE * self._budget_s
        ):
            log.warmup_iterations += 1
            log.warm_calls_s.append(watch.alone_s(partial(self._sequence, 1)))
        log.warmup_s += sum(log.warm_calls_s)

    def call_until_steady(self) -> float:
        """Warm up, and return the seconds per call at its end.

        Spans hold one call at first, and twice as many whenever a span is too short for the clock.
        """
        now_s = self._watch.agreement.now_s
        began_s, count, is_long_enough = now_s(), 1, False
        while not (self.lasted_s >= self.longest_s or (is_long_enough and self._has_converged)):
            before_s = now_s()
            self._log.warmup_iterations += count
            calls_s = self._watch.span_s(partial(self._sequence, count))
            # In long spans the host waits for a full queue. The shortest time per call is without such a wait.
            self.idle_s = min(self.idle_s, self._watch.submit_s / count)
            self.call_count += count
            self.outside_span_s = max(0.0, now_s() - before_s - calls_s)
            self._add(calls_s / count, now_s() - before_s)
            self.lasted_s = now_s() - began_s
            is_long_enough = calls_s >= self._shortest_span_s or count == self._most_calls
            if not is_long_enough:
                count = min(2 * count, self._most_calls)
            if self.lasted_s == 0 and self.call_count >= FEWEST_CALLS * self._most_calls:
                break  # No time has passed at all. Only a scripted clock can stand still.
        return self._median_call_s

    def _add(self, seconds: float, lasted_s: float) -> None:
        """Add a span to the last window.

        A full window is followed by a new one.

        Args:
            seconds: per call of the span.
            lasted_s: host seconds of the span and of the flush in front of it.
        """
        window = self._windows[-1]
        window.seconds.append(seconds)
        window.lasted_s += lasted_s
        self._median_call_s = median(window.seconds)
        if window.lasted_s >= self._window_s:
            window.clock_hz = self._watch.clock_hz()
            # Only the last two full windows are compared.
            self._windows = [*self._windows[-2:], _Window()]

    @property
    def _has_converged(self) -> bool:
        """True if the last two full windows of the warm-up agree.

        They must do so in time and clock, on every rank. A window holds the spans of calls in a stretch of time.
        """
        enough_calls = self.call_count >= FEWEST_CALLS or self.lasted_s >= 2 * self.shortest_s
        if self.lasted_s < self.shortest_s or not enough_calls or len(self._windows) < 3:
            return False
        # The newest window is not full yet.
        before, last, _ = self._windows[-3:]
        before_s, last_s = median(before.seconds), median(last.seconds)
        if abs(last_s - before_s) > self._traits.precision * before_s:
            return False
        was_probed = last.clock_hz is not None and before.clock_hz is not None
        clocks_agree = not was_probed or abs(last.clock_hz / before.clock_hz - 1) <= CLOCK_AGREEMENT  # type: ignore[operator]
        # The times above are the same on all ranks, so all of them take part in this exchange of their own clocks.
        return self._watch.agreement.on_every_rank(clocks_agree)
