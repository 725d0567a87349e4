"""Blocks are taken until the median is known, or the budget is spent.

Each is kept, and excluded by cause only.
"""

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from statistics import fmean, median

from ...core.samples import Block
from ..log import BlockState, Log, TimedBlock
from ..sizing.shape import BlockPlan
from ..sizing.stopwatch import TICKS_PER_SAMPLE, BlockTimes, Stopwatch
from ..sizing.warm_up import SHARE_DIRECT
from .conditions import HOST_GAP, STOPPED, Conditions, agreed_state

# Of the budget, before agreeing blocks may be believed: a burst is no steady state. Clocks settle, and a virtual
# machine changes its speed for half a second at a time (measured).
EARLIEST_STOP = 0.2
# A device that goes on after its last stamp for so long, and so large a share of a block, does work that is not timed.
LEAST_LEFT_S, LEFT_SHARE = 2e-4, 0.05
# The cause of a block whose device failed when it was asked about itself.
UNKNOWN = "state of the device unknown"
# Without a spin, a device that is done so many calls after the host was never behind it.
ONE_CALL = 1.5
# A launch inside a sample that is a larger share of it is not the device's time any more.
GAP_SHARE = 0.02
# Of fewer calls or samples in a row, the first, which began on an idle device, decides.
FEW = 3
FEWEST_BLOCKS = 5
# A first and a second half that differ by more than this have a trend, however narrow the interval is.
TREND = 0.01


class Blocks:
    """Takes blocks and writes each into the log. `after_block` is then called with the log."""

    def __init__(
        self,
        watch: Stopwatch,
        log: Log,
        budget_s: float,
        after_block: Callable[[Log], object] | None,
    ) -> None:
        self.conditions = Conditions(watch.device, watch.stops)
        self._watch = watch
        self._log = log
        self._budget_s = budget_s
        self._after_block = after_block
        self._traits = watch.device.traits
        self._late_work: list[bool] = []

    @property
    def left_running(self) -> str:
        """Return what is wrong if work went on after the last stamps. This is about most blocks;
        empty if they had no such work.
        """
        if 2 * sum(self._late_work) <= len(self._late_work):
            return ""
        return (
            "the device went on working after the calls were timed: what they submit to another stream is not in "
            "their time; expected the current stream to wait for it: call "
            "torch.cuda.current_stream().wait_stream(other) inside"
        )

    def take_slow_calls(self, block_plan: BlockPlan) -> bool:
        """Take calls after a slow first one, and return whether they are slow too. The first may
        have been slow because it compiled.

        Then they are the samples, and warming up would only add to the wait. As soon as one is fast, those before it
        count as warm-up.
        """
        log, budget_s = self._log, self._budget_s
        while not self._enough():
            self.conditions.begin(anew=not log.timed_blocks)
            times = self._watch.block(block_plan.submit, block_plan.shape)
            if times.wall_s < SHARE_DIRECT * budget_s:
                log.forget(1, times.wall_s)
                return False
            log.measuring_s += times.wall_s
            self._keep(times, block_plan)
        return True

    def take_until_known(self, block_plan: BlockPlan) -> None:
        """Take blocks until the median is known, or the budget is spent."""
        log = self._log
        log.labels |= block_plan.labels
        self.conditions.begin(anew=True)
        began_s = self._watch.agreement.meet_s()
        while not self._enough():
            if log.timed_blocks:
                self.conditions.begin()
            times = self._watch.block(block_plan.submit, block_plan.shape)
            log.measuring_s = self._watch.agreement.now_s() - began_s
            cause = self._keep(times, block_plan)
            if cause == HOST_GAP:
                block_plan = replace(block_plan, shape=block_plan.shape.relaxed())
            if cause == STOPPED:
                # Nothing was measured meanwhile.
                began_s, log.measuring_s = began_s + times.wall_s, log.measuring_s - times.wall_s

    def _enough(self) -> bool:
        """Return whether to stop. Before that, blocks of which nobody was asked are asked about:
        they may not count.
        """
        if not (self._log.timed_blocks and self._at_an_end()):
            return False
        agreement = self._watch.agreement
        any_asked = self.conditions.end_row()
        if not any_asked and agreement.alone:
            return True
        self._log.state = agreed_state(agreement, self.conditions.state("", agreement.alone))
        self._log.judge(self._log.state)
        return self._at_an_end()

    def _keep(self, times: BlockTimes, block_plan: BlockPlan) -> str:
        """Write a block down, whatever goes wrong. Return the cause for which it does not count."""
        log, calls = self._log, block_plan.shape.calls
        log.iterations, log.mode, log.overhead_s = calls, block_plan.mode, block_plan.overhead_s
        log.device_s = block_plan.device_s
        rank_times = times.rank_times or times
        self._late_work.append(
            rank_times.left_s > max(LEAST_LEFT_S, LEFT_SHARE * rank_times.wall_s)
        )
        clock_hz = times.clocks_hz[1] if times.clocks_hz and self._traits.spin_is_clock else None
        wall_s = times.wall_s / (calls * len(times.spans))
        # Of a call that waits inside, the host's time is the device's too: that label stands for both.
        free = (
            not block_plan.shape.spin_s
            and block_plan.mode == "events"
            and "waits_inside" not in block_plan.labels
        )
        paced = free and sets_the_pace(times, calls)
        state = BlockState(UNKNOWN, cause_text=UNKNOWN)
        try:
            cause = self.conditions.cause(
                rank_times.ahead,
                rank_times.clocks_hz,
                rank_times.wall_s,
                math.fsum(rank_times.spans),
            )
            agreement = self._watch.agreement
            own_state = self.conditions.state(cause, agreement.alone)
            state = log.state = agreed_state(agreement, own_state)
        finally:
            # Below one tick: the time is certainly not above it.
            seconds, own_s = (
                tuple(max(s, log.tick_s) / calls for s in block_times.spans)
                for block_times in (times, rank_times)
            )
            block = Block(len(times.spans), state.cause_text, clock_hz, state.power_capped)
            log.timed_blocks.append(TimedBlock(block, seconds, wall_s, paced, own_s))
        log.judge(state)
        if self._after_block is not None:
            self._after_block(log)
        return state.cause

    def _at_an_end(self) -> bool:
        """Return whether the budget is spent, or the median known. Or no clock moves, which only a
        scripted one can do.
        """
        log, budget_s = self._log, self._budget_s
        if log.measuring_s + log.preparing_s >= budget_s:
            return True
        if log.measuring_s == 0 and len(log.timed_blocks) >= FEWEST_BLOCKS:
            return True
        if log.measuring_s < EARLIEST_STOP * budget_s:
            return False
        horizon = (budget_s - log.preparing_s) / log.measuring_s if log.measuring_s else 1.0
        return is_known(log.counted_medians(), self._traits.precision, horizon)

    def label(self) -> None:
        """Label what a reader must know of the samples."""
        log = self._log
        label = ending(log.counted_medians(), self._traits.precision)
        log.labels |= {label} if label else set()
        if log.state.clock_moved:
            log.labels.add("clock_moved")
        counted_blocks = [
            timed_block for timed_block in log.timed_blocks if not timed_block.block.excluded
        ] or log.timed_blocks
        # Of most blocks, since one hiccup of the host says nothing of the rest.
        if 2 * sum(timed_block.paced for timed_block in counted_blocks) > len(counted_blocks):
            log.labels.add("host_bound")
        span_s = (
            median(median(timed_block.seconds) for timed_block in counted_blocks) * log.iterations
        )
        if span_s < TICKS_PER_SAMPLE * log.tick_s:
            log.labels.add("unresolved")


def sets_the_pace(times: BlockTimes, calls: int) -> bool:
    """Return whether the host decided how long a block without a spin took.

    Either the device was done as soon as the host was, within a call; or samples stand alone, each begins on an idle
    device, and the launch of its first call is a part of it that matters.
    """
    samples, span_s = len(times.spans), median(times.spans)
    together = calls if times.alone else samples * calls
    behind_s = (
        fmean(times.spans) - times.host_s / samples if times.alone else times.wall_s - times.host_s
    )
    if together >= FEW and behind_s <= ONE_CALL * span_s / calls:
        return True
    launch_s = times.host_s / (samples * calls)
    return (times.alone or samples < FEW) and launch_s > GAP_SHARE * span_s


def median_half_width(seconds: Sequence[float]) -> float:
    """Return half the width of a 95 % interval of the median. It is a share of the median.

    Distribution-free, from order statistics: ranks n/2 ± 1.96·√n/2 (Conover, Practical Nonparametric Statistics, 3.2).
    """
    ordered, count = sorted(seconds), len(seconds)
    half_count = 1.96 * math.sqrt(count) / 2
    low, high = (
        max(0, math.floor(count / 2 - half_count)),
        min(count - 1, math.ceil(count / 2 + half_count)),
    )
    return (ordered[high] - ordered[low]) / 2 / ordered[count // 2]


def trend(seconds: Sequence[float]) -> float:
    """Return how much slower the second half is than the first. It is a share, of the medians of
    the two; 0 below four values.
    """
    if len(seconds) < 4:
        return 0.0
    middle = len(seconds) // 2
    return median(seconds[middle:]) / median(seconds[:middle]) - 1


def is_steady(seconds: Sequence[float], precision: float, horizon: float = 1.0) -> bool:
    """Return whether a call's time drifts too little to matter. It must not matter by the end of
    the budget.

    A drift matters if the two halves of the medians differ by more than the precision. It also matters if it is more
    than noise, and the halves of the whole budget would differ so if it went on.

    Args:
        seconds: medians of blocks, in the order in which the blocks ran.
        precision: the relative difference that may stay unknown, as a share.
        horizon: how many times as long as the blocks so far the whole budget is.
    """
    limit = max(TREND, precision)
    drift = abs(trend(seconds))
    return drift <= limit and (drift * horizon <= limit or not _rises_or_falls(seconds))


def _rises_or_falls(seconds: Sequence[float]) -> bool:
    """Return the outcome of the Mann-Kendall test at 5 %. It weighs pairs in order against pairs
    out of order (Kendall, Rank Correlation Methods).
    """
    count = len(seconds)
    score = sum(
        (later > earlier) - (later < earlier)
        for earlier, later in itertools.combinations(seconds, 2)
    )
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return (abs(score) - 1) / spread > 1.96 if count > 1 else False


def is_known(seconds: Sequence[float], precision: float, horizon: float = 1.0) -> bool:
    """Return whether the median is known from these medians of blocks. They are enough, agree and
    do not drift; they stand in the order taken.
    """
    return (
        len(seconds) >= FEWEST_BLOCKS
        and median_half_width(seconds) <= precision
        and is_steady(seconds, precision, horizon)
    )


def ending(seconds: Sequence[float], precision: float) -> str:
    """Return a label of a measurement that the budget ended. It is `drifting`, `noisy`, or empty."""
    if is_known(seconds, precision):
        return ""
    drifts = abs(trend(seconds)) > max(TREND, precision)
    return "drifting" if drifts and _rises_or_falls(seconds) else "noisy"
