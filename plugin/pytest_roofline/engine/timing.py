"""The timing engine: warm up, find out how to time, take blocks. Warm-up ends when nothing moves,
the blocks when the median is known.

The engine asks a device for nothing but the `Device` protocol, so all of it is proven on a fake. The order of things:

    first calls → warm-up → (warm calls alone) → shape of a block → (graph) → blocks, each kept, excluded by cause only
    → Samples
"""

import contextlib
import gc
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..core.keys import Timing
from ..core.samples import Block, Samples
from .blocks.conditions import HOST_GAP, STOPPED, BlockState, Conditions, agreed_state
from .devices import Device
from .log import (
    FEWEST_BLOCKS,
    Log,
    TimedBlock,
    is_known,
    samples_of,
    sets_the_pace,
)
from .sizing.calibration import calibrate_ranks
from .sizing.peers import ALONE, Peers
from .sizing.plans import Sizing
from .sizing.sequence import CallSequence
from .sizing.shape import BlockPlan
from .sizing.stopwatch import BlockTimes, Stopwatch
from .sizing.warm_up import SHARE_DIRECT

# Of the budget, before agreeing blocks may be believed: a burst is no steady state. Clocks settle, and a virtual
# machine changes its speed for half a second at a time (measured).
EARLIEST_STOP = 0.2
# A device that goes on after its last stamp for so long, and so large a share of a block, does work that is not timed.
LEAST_LEFT_S, LEFT_SHARE = 2e-4, 0.05
# The cause of a block whose device failed when it was asked about itself.
UNKNOWN = "state of the device unknown"


@dataclass(frozen=True, slots=True)
class Plan:
    """The function to time, and how. `sets` are the argument tuples to call with, in turn."""

    fn: Callable[..., object]
    sets: Sequence[tuple[object, ...]]
    budget_s: float
    timing: Timing = "device"
    flush: Callable[[], object] | None = None
    renew: Callable[[int], object] | None = None
    """Replaces the first so many sets by fresh ones, so that what the warm-up left behind is not what is verified."""
    refill: Callable[[int], object] | None = None
    """Gives the set of an index other values, before every sample, which is then a call of its own."""
    graph: bool | None = None
    """Whether to replay a graph, as what it is compared with was; None leaves it to the length of a call. Never with
    peers: a rank whose capture fails would have made other calls than the rest."""
    peers: Peers = ALONE
    """The ranks that measure together, each with an engine and the same plan."""
    isolated: bool = False
    """Whether every call is a sample of its own, behind a barrier of the ranks and on idle devices."""
    after_block: "Callable[[Engine], object] | None" = None
    """Called with the engine when its log holds one block more."""
    first_calls: int = 0
    """How many of the very first calls to time alone and to keep; with 0, one is made and not kept."""


class Engine:
    """Times one function on one device."""

    def __init__(self, device: Device, plan: Plan) -> None:
        self.device = device
        self.plan = plan
        self.log = Log(len(plan.sets), plan.first_calls)
        if plan.timing == "device" and not device.traits.stamps:
            self.log.labels.add("wall_clock")
        self.calls = CallSequence(plan.fn, plan.sets)
        before = plan.flush if plan.refill is None else self._refill
        self._watch = Stopwatch(device, plan.timing == "wall", before, plan.peers, plan.isolated)
        self._conditions = Conditions(device, self._watch.stops)
        self._late_work: list[bool] = []

    def run(self) -> None:
        """Take the samples. Whatever is raised meanwhile, `log` keeps what there is."""
        with _collector_off(), self._watch.stops:
            log = self.log
            log.calibration = calibrate_ranks(self._watch)
            self._conditions.pace()
            sizing = Sizing(self._watch, self.calls, log, self.plan.budget_s)
            slow = sizing.warm_up.make_first_calls(self.plan.first_calls)
            if not (slow and self._is_slow_for_good(sizing.plan_single_calls())):
                block_plan = sizing.prepare(
                    self.plan.graph,
                    self.plan.renew,
                    flushes=self.plan.flush is not None,
                    warm_calls=self.plan.first_calls > 0,
                )
                self._take(block_plan)
            log.say(self.device.traits.precision)

    def _refill(self) -> None:
        """Prepare a sample: give the next set other values, then flush. The flush evicts them, if
        one was asked for.
        """
        assert self.plan.refill is not None
        self.plan.refill(self.calls.made % len(self.plan.sets))
        if self.plan.flush is not None:
            self.plan.flush()

    def close(self) -> None:
        """Let go of every buffer. A traceback that holds on to this engine does not hold on to them
        then.
        """
        self._watch.flush = None
        self.plan = replace(
            self.plan, flush=None, refill=None, renew=None, after_block=None, sets=()
        )

    def settle(self) -> None:
        """Wait until everything that was called is done."""
        self._watch.settle()

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

    def peak_bytes(self) -> int | None:
        """Return the most memory that one call holds, by a call of its own. It counts above what is
        allocated before the call.
        """
        made = self.calls.made
        with _collector_off():
            peak_bytes = self.device.peak_bytes(lambda: self.calls(1))
            if self.calls.made == made and not self._watch.agreement.alone:
                # A device that does not tell makes no call, but the other ranks may have made theirs.
                self.calls(1)
        return peak_bytes

    def held_bytes(self) -> int | None:
        """Return what one call leaves allocated, by a call of its own. Its result is kept
        meanwhile. Never with peers.
        """
        with _collector_off():
            return self.device.held_bytes(self.calls.call_and_keep)

    def samples(self) -> Samples | None:
        """Return the record of all blocks; None if there is no sample."""
        return (
            samples_of(self.log.timed_blocks, self.log.common()) if self.log.timed_blocks else None
        )

    def _is_slow_for_good(self, block_plan: BlockPlan) -> bool:
        """Return whether the calls after a slow first one are slow too. The first may have been
        slow because it compiled.

        Then they are the samples, and warming up would only add to the wait. As soon as one is fast, those before it
        count as warm-up.
        """
        log, budget_s = self.log, self.plan.budget_s
        while not self._enough():
            self._conditions.begin(anew=not log.timed_blocks)
            times = self._watch.block(block_plan.submit, block_plan.shape)
            if times.wall_s < SHARE_DIRECT * budget_s:
                log.forget(1, times.wall_s)
                return False
            log.measuring_s += times.wall_s
            self._keep(times, block_plan)
        return True

    def _take(self, block_plan: BlockPlan) -> None:
        """Take blocks until the median is known, or the budget is spent."""
        log = self.log
        log.labels |= block_plan.labels
        self._conditions.begin(anew=True)
        began_s = self._watch.agreement.meet_s()
        while not self._enough():
            if log.timed_blocks:
                self._conditions.begin()
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
        if not (self.log.timed_blocks and self._at_an_end()):
            return False
        agreement = self._watch.agreement
        any_asked = self._conditions.end_row()
        if not any_asked and agreement.alone:
            return True
        self.log.state = agreed_state(agreement, self._conditions.state("", agreement.alone))
        self.log.judge(self.log.state)
        return self._at_an_end()

    def _keep(self, times: BlockTimes, block_plan: BlockPlan) -> str:
        """Write a block down, whatever goes wrong. Return the cause for which it does not count."""
        log, calls = self.log, block_plan.shape.calls
        log.iterations, log.mode, log.overhead_s = calls, block_plan.mode, block_plan.overhead_s
        log.device_s = block_plan.device_s
        rank_times = times.rank_times or times
        self._late_work.append(
            rank_times.left_s > max(LEAST_LEFT_S, LEFT_SHARE * rank_times.wall_s)
        )
        clock_hz = (
            times.clocks_hz[1] if times.clocks_hz and self.device.traits.spin_is_clock else None
        )
        wall_s = times.wall_s / (calls * len(times.spans))
        # Of a call that waits inside, the host's time is the device's too: that label stands for both.
        free = (
            not block_plan.ahead
            and block_plan.mode == "events"
            and "waits_inside" not in block_plan.labels
        )
        paced = free and sets_the_pace(times, calls)
        state = BlockState(UNKNOWN, cause_text=UNKNOWN)
        try:
            cause = self._conditions.cause(
                rank_times.ahead,
                rank_times.clocks_hz,
                rank_times.wall_s,
                math.fsum(rank_times.spans),
            )
            agreement = self._watch.agreement
            own_state = self._conditions.state(cause, agreement.alone)
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
        if self.plan.after_block is not None:
            self.plan.after_block(self)
        return state.cause

    def _at_an_end(self) -> bool:
        """Return whether the budget is spent, or the median known. Or no clock moves, which only a
        scripted one can do.
        """
        log, budget_s = self.log, self.plan.budget_s
        if log.measuring_s + log.preparing_s >= budget_s:
            return True
        if log.measuring_s == 0 and len(log.timed_blocks) >= FEWEST_BLOCKS:
            return True
        if log.measuring_s < EARLIEST_STOP * budget_s:
            return False
        horizon = (budget_s - log.preparing_s) / log.measuring_s if log.measuring_s else 1.0
        return is_known(log.counted_medians(), self.device.traits.precision, horizon)


def time_plan(device: Device, plan: Plan, *labels: str) -> Samples:
    """Return the samples of a plan, with these labels."""
    engine = Engine(device, plan)
    engine.log.labels |= {*labels}
    engine.run()
    samples = engine.samples()
    assert samples is not None
    return samples


@contextlib.contextmanager
def _collector_off() -> Iterator[None]:
    """No garbage collection inside a sample; restored after, whatever happened."""
    was_on = gc.isenabled()
    # Recent garbage only: a full collection visits torch's 200 000 objects, which takes longer than many a measurement.
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
