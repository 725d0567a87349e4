"""Warming up until nothing moves any more.

A fixed time is too short for a clock that droops for 300 ms, and too long for everything else.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from statistics import median

from ..devices import Traits

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


@dataclass(slots=True)
class _Window:
    seconds: list[float] = field(default_factory=list)
    lasted_s: float = 0.0
    clock_hz: float | None = None


class WarmUp:
    """Calls in spans of growing count, gathered into windows. `on_every_rank` tells whether every
    rank agrees.
    """

    def __init__(
        self,
        traits: Traits,
        budget_s: float,
        most_calls: int,
        on_every_rank: Callable[[bool], bool] = bool,
    ) -> None:
        self.cap_s = (SHARE_QUEUED if traits.queues else SHARE_DIRECT) * budget_s
        self.floor_s = min(traits.warmup_floor_s, self.cap_s)
        self.precision = traits.precision
        self.calls = 0
        self.lasted_s = 0.0
        self._window_s = WINDOW_SHARE * self.floor_s
        self._shortest_s = max(traits.shortest_span_s, self._window_s / SPANS)
        self._most_calls = most_calls
        self._on_every_rank = on_every_rank
        self._windows = [_Window()]
        self._last_s = 0.0
        self.beside_s = 0.0
        """Host seconds of the last span that were not the span's own: a flush in front of it."""

    def run(
        self,
        span_s: Callable[[int], float],
        clock_hz: Callable[[], float | None],
        host_s: Callable[[], float],
    ) -> float:
        """Return the seconds per call at the end of the warm-up. `span_s` makes so many calls and
        returns the seconds that they took.
        """
        began_s, count, readable = host_s(), 1, False
        while not (self.lasted_s >= self.cap_s or (readable and self._has_converged)):
            before_s = host_s()
            calls_s = span_s(count)
            self.calls += count
            self.beside_s = max(0.0, host_s() - before_s - calls_s)
            self._add(calls_s / count, host_s() - before_s, clock_hz)
            self.lasted_s = host_s() - began_s
            readable = calls_s >= self._shortest_s or count == self._most_calls
            if not readable:
                count = min(2 * count, self._most_calls)
            if self.lasted_s == 0 and self.calls >= FEWEST_CALLS * self._most_calls:
                break  # Nothing moves any clock, which only a scripted one can do.
        return self._last_s

    def _add(self, seconds: float, lasted_s: float, clock_hz: Callable[[], float | None]) -> None:
        window = self._windows[-1]
        window.seconds.append(seconds)
        window.lasted_s += lasted_s
        self._last_s = median(window.seconds)
        if window.lasted_s >= self._window_s:
            window.clock_hz = clock_hz()
            self._windows = [*self._windows[-2:], _Window()]

    @property
    def _has_converged(self) -> bool:
        enough_calls = self.calls >= FEWEST_CALLS or self.lasted_s >= 2 * self.floor_s
        if self.lasted_s < self.floor_s or not enough_calls or len(self._windows) < 3:
            return False
        before, last = self._windows[-3], self._windows[-2]
        before_s, last_s = median(before.seconds), median(last.seconds)
        if abs(last_s - before_s) > self.precision * before_s:
            return False
        probed = last.clock_hz is not None and before.clock_hz is not None
        agree = not probed or abs(last.clock_hz / before.clock_hz - 1) <= CLOCK_AGREEMENT  # type: ignore[operator]
        # All ranks come here, since all that was asked so far is agreed upon.
        return self._on_every_rank(agree)
