"""Causes of a slower run: a shift of all tests, the clock, two modes of processes."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import fmean, geometric_mean, median, median_low

from ..core.verdicts import Verdict
from .outlook import WORTH_REPORTING

# With fewer tests nobody can say that all of them moved.
FEWEST_SHIFTED = 5
# The least share of tests that moved in the same direction, each by at least half of the median shift.
MOST_SHIFTED = 0.9
# The median shift must be at least so many standard errors of one test.
SURELY = 2.0
# A clock that changed by a smaller share explains nothing.
CLOCK_SHARE = 0.01
# Fewer processes cannot show two modes.
FEWEST_BIMODAL = 8
DIP_LEVEL = 0.04
# A single process is an outlier and no mode.
FEWEST_IN_A_MODE = 2
# The coarsest tick of a clock, as a share of the time. A sample spans 200 ticks, so medians further apart than this
# differ by more than rounding.
COARSEST_TICK = 0.01
# The least share of the distance between the centres of two modes that holds no process. Two sides that merely differ
# overlap or nearly touch.
CLEARLY = 0.7


@dataclass(frozen=True, slots=True)
class Shift:
    """A shift of the whole suite.

    Args:
        estimate: the median shift, in log seconds.
        moved: how many of the `tests` tests moved that way.
    """

    estimate: float
    moved: int
    tests: int


@dataclass(frozen=True, slots=True)
class ClockChange:
    """A change of the device's clock, before and after in Hz.

    `in_cycles` is the difference that is left where calls are timed in cycles, as a logarithm.
    """

    before_hz: float
    after_hz: float
    in_cycles: float

    def explains(self, tolerance: float) -> bool:
        """Return True where the clock explains the change in time.

        The difference in cycles is within the tolerance, or the clock explains more than there is.
        """
        return abs(self.in_cycles) < math.log1p(tolerance) or self.overshoots(tolerance)

    def overshoots(self, tolerance: float) -> bool:
        """Return True where the clock alone explains more than the change."""
        clock_logs = math.log(self.after_hz / self.before_hz)
        is_beyond = abs(self.in_cycles) >= math.log1p(tolerance)
        # `in_cycles` is the change in log seconds plus that of the clock. The clock alone would change the log seconds
        # by `-clock_logs`; this is the share of that which was observed.
        observed_share = 1 - self.in_cycles / clock_logs
        return is_beyond and 0 < observed_share < 1


@dataclass(frozen=True, slots=True)
class Modes:
    """Processes in two groups, a fast and a slow one.

    Args:
        fast_s: the centre of the fast group, in seconds; `slow_s` that of the slow group.
        slow_before: how many of the baseline's `before` processes are in the slow group.
        slow_now: how many of the `now` new processes are.
    """

    fast_s: float
    slow_s: float
    slow_before: int
    before: int
    slow_now: int
    now: int


def common_shift(verdicts: Iterable[Verdict]) -> Shift | None:
    """Return the shift of all tests of a run together, or None.

    The shift is more than the smallest slowdown worth reporting.
    """
    compared = [verdict for verdict in verdicts if verdict.compared]
    # The shared change that was removed from each test is part of its shift.
    estimates = [(verdict.estimate or 0.0) + shift_of(verdict) for verdict in compared]
    if len(estimates) < FEWEST_SHIFTED:
        return None
    middle = median(estimates)
    tolerance = min(verdict.tolerance for verdict in compared)
    # A slow process slows all of its tests, so many tests are no more certain of the shift than one.
    least = max(
        math.log1p(WORTH_REPORTING * tolerance),
        SURELY * median(verdict.difference.error for verdict in compared if verdict.difference),
    )
    # A test moves with the others where the quotient is 0.5 or more: the same direction, at least half as far.
    shifted_count = sum(estimate / middle >= 0.5 for estimate in estimates) if middle else 0
    if abs(middle) < least or shifted_count < MOST_SHIFTED * len(estimates):
        return None
    return Shift(middle, shifted_count, len(estimates))


def shift_of(verdict: Verdict) -> float:
    """Return the shared slowdown that the verdict leaves out, in log seconds."""
    return verdict.reference.shift if verdict.reference is not None else 0.0


def clock_change(verdict: Verdict) -> ClockChange | None:
    """Return the change of the clock since the baseline, or None.

    None where either clock is unknown, or they are alike. Time × clock is cycles, so the difference
    in cycles is that in log seconds plus that in log clock.
    """
    before = verdict.reference.clock_hz if verdict.reference is not None else None
    now = verdict.subject.clock_hz
    if before is None or now is None or verdict.estimate is None:
        return None
    clock_logs = math.log(now / before)
    if abs(clock_logs) < CLOCK_SHARE:
        return None
    return ClockChange(before, now, verdict.estimate + clock_logs)


def modes(old_s: Sequence[float], new_s: Sequence[float], tolerance: float) -> Modes | None:
    """Return two modes of the processes of one or both sides.

    They are those of the baseline, or of both sides together. None where there is one mode.

    Args:
        old_s: the medians of the baseline's processes, in seconds.
        new_s: those of the new ones.
        tolerance: as a share of time; modes closer than the smallest change worth reporting are one.
    """
    for medians_s in (sorted(old_s), sorted([*old_s, *new_s])):
        fast_count = _fast_mode_size(medians_s, tolerance)
        if not fast_count:
            continue
        border = math.sqrt(medians_s[fast_count] * medians_s[fast_count - 1])
        slow_before, slow_now = (
            sum(median_s > border for median_s in side) for side in (old_s, new_s)
        )
        # One side at least lies in both groups; otherwise the groups are just the two sides.
        if 0 < slow_before < len(old_s) or 0 < slow_now < len(new_s):
            fast_s = geometric_mean(medians_s[:fast_count])
            slow_s = geometric_mean(medians_s[fast_count:])
            return Modes(
                fast_s=fast_s,
                slow_s=slow_s,
                slow_before=slow_before,
                before=len(old_s),
                slow_now=slow_now,
                now=len(new_s),
            )
    return None


def _fast_mode_size(medians_s: Sequence[float], tolerance: float) -> int:
    """Return how many sorted values are in the fast mode.

    It is 0 where there is one mode. Hartigan's dip test says whether there is more than one. It
    takes equal values for a separate mode, so values that the clock rounded to the same tick are
    spread over the tick first.
    """
    if len(medians_s) < FEWEST_BIMODAL or medians_s[0] == medians_s[-1]:
        return 0
    import diptest
    import numpy as np

    logs = [math.log(median_s) for median_s in _spread_ties(medians_s)]
    _, p = diptest.diptest(np.array(logs))
    if p > DIP_LEVEL:
        return 0
    # The modes are divided at the widest gap between neighbouring values.
    fast_count = max(range(1, len(logs)), key=lambda index: logs[index] - logs[index - 1])
    gap = logs[fast_count] - logs[fast_count - 1]
    distance = fmean(logs[fast_count:]) - fmean(logs[:fast_count])
    # Two modes need several processes each, centres that differ by more than noise, and a gap that is nearly empty.
    enough = FEWEST_IN_A_MODE <= fast_count <= len(logs) - FEWEST_IN_A_MODE
    far = distance > math.log1p(WORTH_REPORTING * tolerance)
    return fast_count if enough and far and gap >= CLEARLY * distance else 0


def _spread_ties(medians_s: Sequence[float]) -> list[float]:
    """Return the sorted values with ties spread over the clock's tick.

    The tick is the smallest distance between two values that differ, and at most 1 % of the smallest value.
    """
    counts = Counter(medians_s)
    distinct = sorted(counts)
    tick = min(after - before for before, after in pairwise(distinct))
    tick = min(tick, COARSEST_TICK * distinct[0])
    # Equal values are placed at even distances over one tick, with their value in its middle.
    return [
        median_s + tick * ((place + 0.5) / counts[median_s] - 0.5)
        for median_s in distinct
        for place in range(counts[median_s])
    ]


def detectable_effects(verdicts: Sequence[Verdict]) -> list[tuple[float, int, int]]:
    """Return the slowdowns that a run could detect: one in half of its tests, one in all.

    Each is detected 80 times in 100. They are the median and the largest over its tests, rounded
    up, each as (slowdown, number of tests that would show it, number of tests). A verdict's `reach` is
    the slowdown that its own test could show.
    """
    reaches = sorted(verdict.reach for verdict in verdicts if verdict.reach is not None)
    if not reaches:
        return []
    # Of two in the middle the smaller counts.
    median_reach, largest_reach = median_low(reaches), reaches[-1]
    # Both may be the same after rounding.
    slowdowns = dict.fromkeys([_round_up(median_reach), _round_up(largest_reach)])
    return [
        (slowdown, sum(reach <= slowdown for reach in reaches), len(reaches))
        for slowdown in slowdowns
    ]


def _round_up(share: float) -> float:
    """Return the next of the round shares.

    These are 1, 2, 3, 4, 5, 6, 8, 10, 15, 20, 25, 30, 40, 50, 60, 80, 100 % and so on.
    """
    # The small numbers keep a share that is round already, but for the rounding of floats.
    scale = 10 ** math.floor(math.log10(max(share, 0.01)) + 1e-9)
    steps = (1, 2, 3, 4, 5, 6, 8, 10) if scale < 0.1 else (1, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
    return float(next(step * scale for step in steps if step * scale >= share - 1e-9))
