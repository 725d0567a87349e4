"""Taking blocks until the median is known, or the budget is spent.

The log keeps every block. A block is excluded only for a cause, never for its values.
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

# Blocks are not believed before this share of the budget, however well they agree. Clocks need time to settle, and a
# virtual machine changes its speed for half a second at a time (measured).
EARLIEST_STOP = 0.2
# A device that works longer than both after its last stamp, in seconds and as a share of the block, does untimed work.
LEAST_LATE_WORK_S, LATE_WORK_SHARE = 2e-4, 0.05
# The cause of a block whose device failed when it was asked about itself.
UNKNOWN = "state of the device unknown"
# Without a spin: if the device is done within so many calls after the host, it never had more than one to do.
ONE_CALL = 1.5
# A launch that takes a larger share of a sample makes the sample longer than the device's own time.
GAP_SHARE = 0.02
# In a row of fewer calls or samples, the first one matters, which began on an idle device.
FEW = 3
# The fewest blocks from which a median is known.
FEWEST_BLOCKS = 5
# A first and a second half that differ by more than this have a trend, however narrow the interval is.
TREND = 0.01


class Blocks:
    """The blocks of a measurement. Each is written into the log; `after_block` then gets the log."""

    def __init__(
        self,
        watch: Stopwatch,
        log: Log,
        budget_s: float,
        after_block: Callable[[Log], object] | None,
    ) -> None:
        """Prepare to take blocks into a log.

        Args:
            watch: times the blocks, on its device.
            log: gets the blocks.
            budget_s: the most seconds of the whole measurement.
            after_block: called after each block; None calls nothing.
        """
        self.conditions = Conditions(watch.device, watch.stops)
        self._watch = watch
        self._log = log
        self._budget_s = budget_s
        self._after_block = after_block
        self._traits = watch.device.traits
        # For each block, whether the device went on working after its last stamp.
        self._late_work: list[bool] = []

    @property
    def left_running(self) -> str:
        """The error of calls whose work goes on after the last stamp.

        Empty if at most half of the blocks had such work.
        """
        if 2 * sum(self._late_work) <= len(self._late_work):
            return ""
        return (
            "the device still worked after the timed calls, so the time lacks work on another stream; expected the "
            "current stream to wait for the other stream. Call torch.cuda.current_stream().wait_stream(other) inside "
            "the function"
        )

    def take_slow_calls(self, block_plan: BlockPlan) -> bool:
        """Take calls after a slow first one, and return whether all are slow.

        Slow calls are the samples, since a warm-up would only make the user wait longer. The first call may have been
        slow because it compiled: as soon as a later call is fast, all calls so far count as warm-up.
        """
        log, budget_s = self._log, self._budget_s
        while not self._is_done():
            self.conditions.begin(anew=not log.timed_blocks)
            times = self._watch.block(block_plan.submit, block_plan.shape)
            # A call below this share of the budget is fast, so that a warm-up is affordable.
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
        while not self._is_done():
            if log.timed_blocks:
                self.conditions.begin()
            times = self._watch.block(block_plan.submit, block_plan.shape)
            log.measuring_s = self._watch.agreement.now_s() - began_s
            cause = self._keep(times, block_plan)
            if cause == HOST_GAP:
                # The device had to wait for the host, so the host gets more time for the next blocks.
                block_plan = replace(block_plan, shape=block_plan.shape.relaxed())
            if cause == STOPPED:
                # The block of a stop counts for nothing, so its time is given back to the budget.
                began_s, log.measuring_s = began_s + times.wall_s, log.measuring_s - times.wall_s

    def _is_done(self) -> bool:
        """Return whether no further block is needed.

        Before that, the device is asked about the newest blocks, which have not been judged yet. If they do not count,
        more blocks may be needed after all.
        """
        if not (self._log.timed_blocks and self._may_end()):
            return False
        agreement = self._watch.agreement
        was_asked = self.conditions.end_row()
        if not was_asked and agreement.is_alone:
            return True
        # Other ranks may have asked their devices, so all ranks exchange what they know.
        self._log.state = agreed_state(agreement, self.conditions.state("", agreement.is_alone))
        self._log.judge(self._log.state)
        return self._may_end()

    def _keep(self, times: BlockTimes, block_plan: BlockPlan) -> str:
        """Add a block to the log, and return its cause.

        The cause is why it does not count; empty if it counts. The block is added even if the device fails when it is
        asked about itself.
        """
        log, calls = self._log, block_plan.shape.calls
        log.iterations, log.mode, log.overhead_s = calls, block_plan.mode, block_plan.overhead_s
        log.device_s = block_plan.device_s
        # `times` are what all ranks agree upon. Alone, they are this rank's own.
        rank_times = times.rank_times or times
        # Below these limits it is only the time of the wait itself.
        self._late_work.append(
            rank_times.late_work_s > max(LEAST_LATE_WORK_S, LATE_WORK_SHARE * rank_times.wall_s)
        )
        clock_hz = None
        if times.clocks_hz and self._traits.spin_is_clock:
            _, clock_hz = times.clocks_hz
        wall_s = times.wall_s / (calls * len(times.spans))
        paced = _may_be_paced(block_plan) and sets_the_pace(times, calls)
        # This state stays if the device fails before it has told its own.
        state = BlockState(UNKNOWN, cause_text=UNKNOWN)
        try:
            cause = self.conditions.end_block(
                rank_times.host_was_ahead,
                rank_times.clocks_hz,
                wall_s=rank_times.wall_s,
                samples_s=math.fsum(rank_times.spans),
            )
            agreement = self._watch.agreement
            own_state = self.conditions.state(cause, agreement.is_alone)
            state = log.state = agreed_state(agreement, own_state)
        finally:
            # A sample below one tick of the clock counts as one tick, which is an upper bound of its time.
            seconds, rank_seconds = (
                tuple(max(span_s, log.tick_s) / calls for span_s in block_times.spans)
                for block_times in (times, rank_times)
            )
            block = Block(len(times.spans), state.cause_text, clock_hz, state.power_capped)
            log.timed_blocks.append(TimedBlock(block, seconds, wall_s, paced, rank_seconds))
        log.judge(state)
        if self._after_block is not None:
            self._after_block(log)
        return state.cause

    def _may_end(self) -> bool:
        """Return whether the budget is spent, or the median known.

        True too if no time passes at all, which only a scripted clock can do.
        """
        log, budget_s = self._log, self._budget_s
        if log.measuring_s + log.preparing_s >= budget_s:
            return True
        if log.measuring_s == 0 and len(log.timed_blocks) >= FEWEST_BLOCKS:
            return True
        if log.measuring_s < EARLIEST_STOP * budget_s:
            return False
        # The time for all blocks, as a multiple of the time so far.
        horizon = (budget_s - log.preparing_s) / log.measuring_s if log.measuring_s else 1.0
        return is_known(log.counted_medians(), self._traits.precision, horizon)

    def label(self) -> None:
        """Add the labels that follow from all blocks to the log."""
        log = self._log
        label = ending(log.counted_medians(), self._traits.precision)
        log.labels |= {label} if label else set()
        if log.state.clock_moved:
            log.labels.add("clock_moved")
        # If every block was excluded, the labels describe all of them.
        counted_blocks = [
            timed_block for timed_block in log.timed_blocks if not timed_block.block.excluded
        ] or log.timed_blocks
        # The host must have set the pace of most blocks: a single hiccup is no reason for the label.
        if 2 * sum(timed_block.paced for timed_block in counted_blocks) > len(counted_blocks):
            log.labels.add("host_bound")
        # A sample of all its calls must last so many ticks of the clock.
        span_s = (
            median(median(timed_block.seconds) for timed_block in counted_blocks) * log.iterations
        )
        if span_s < TICKS_PER_SAMPLE * log.tick_s:
            log.labels.add("unresolved")


def _may_be_paced(block_plan: BlockPlan) -> bool:
    """Return whether a block may be slow because the device waits for the host's launches.

    That cannot be behind a spin, in a graph and by the host's clock. A call that waits inside has a label of its own
    for that.
    """
    return (
        not block_plan.shape.spin_s
        and block_plan.mode == "events"
        and "waits_inside" not in block_plan.labels
    )


def sets_the_pace(times: BlockTimes, calls: int) -> bool:
    """Return whether the host decided how long a block without a spin took.

    There are two ways. In a row of calls, the device was done within a call after the host. Or each sample began on an
    idle device, so that it holds the launch of its first call, and that launch is a large part of it.
    """
    samples, span_s = len(times.spans), median(times.spans)
    calls_in_a_row = calls if times.one_by_one else samples * calls
    # How long after the host the device was done, with a sample or with the whole row.
    behind_s = (
        fmean(times.spans) - times.host_s / samples
        if times.one_by_one
        else times.wall_s - times.host_s
    )
    if calls_in_a_row >= FEW and behind_s <= ONE_CALL * span_s / calls:
        return True
    launch_s = times.host_s / (samples * calls)
    return (times.one_by_one or samples < FEW) and launch_s > GAP_SHARE * span_s


def median_half_width(seconds: Sequence[float]) -> float:
    """Return half the width of a 95 % interval of the median. It is a share of the median.

    Its ends are the values at positions n/2 ± 1.96·√n/2 of the sorted ones, so no distribution is assumed (Conover,
    Practical Nonparametric Statistics, 3.2).
    """
    ordered, count = sorted(seconds), len(seconds)
    half_count = 1.96 * math.sqrt(count) / 2
    low, high = (
        max(0, math.floor(count / 2 - half_count)),
        min(count - 1, math.ceil(count / 2 + half_count)),
    )
    return (ordered[high] - ordered[low]) / 2 / ordered[count // 2]


def trend(seconds: Sequence[float]) -> float:
    """Return how much slower the second half is than the first, as a share.

    It compares the medians of the halves. Below four values it is 0.
    """
    if len(seconds) < 4:
        return 0.0
    middle = len(seconds) // 2
    first_half, second_half = seconds[:middle], seconds[middle:]
    return median(second_half) / median(first_half) - 1


def is_steady(seconds: Sequence[float], precision: float, horizon: float = 1.0) -> bool:
    """Return whether a call's time drifts too little to matter.

    A drift matters if the two halves of the medians differ by more than the precision. It also matters if it is more
    than noise, and the halves would differ by so much at the end of the budget if the drift went on.

    Args:
        seconds: medians of blocks, in the order in which the blocks ran.
        precision: the relative difference that may stay unknown, as a share.
        horizon: how many times as long as the blocks so far the whole budget is.
    """
    limit = max(TREND, precision)
    drift = abs(trend(seconds))
    return drift <= limit and (drift * horizon <= limit or not _rises_or_falls(seconds))


def _rises_or_falls(seconds: Sequence[float]) -> bool:
    """Return whether values have a trend, by the Mann-Kendall test at 5 %.

    The score is the number of rising pairs less that of falling ones (Kendall, Rank Correlation Methods).
    """
    count = len(seconds)
    if count < 2:
        return False
    score = 0
    for earlier, later in itertools.combinations(seconds, 2):
        if later > earlier:
            score += 1
        elif later < earlier:
            score -= 1
    # The standard deviation of the score of values without a trend.
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return (abs(score) - 1) / spread > 1.96


def is_known(seconds: Sequence[float], precision: float, horizon: float = 1.0) -> bool:
    """Return whether the median is known from the medians of blocks.

    There must be enough blocks, in the order taken; they must agree, and must not drift.
    """
    return (
        len(seconds) >= FEWEST_BLOCKS
        and median_half_width(seconds) <= precision
        and is_steady(seconds, precision, horizon)
    )


def ending(seconds: Sequence[float], precision: float) -> str:
    """Return the label of a measurement by the medians of its blocks.

    It is empty if the median is known, else `drifting` or `noisy`: the budget ended the measurement.
    """
    if is_known(seconds, precision):
        return ""
    drifts = abs(trend(seconds)) > max(TREND, precision)
    return "drifting" if drifts and _rises_or_falls(seconds) else "noisy"
