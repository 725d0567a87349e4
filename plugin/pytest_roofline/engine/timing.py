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
from functools import partial

from ..core.keys import Timing
from ..core.samples import PREEMPTED, Block, Calibration, Samples
from .blocks.conditions import HOST_GAP, STOPPED, BlockState, Conditions, agreed_state
from .blocks.log import (
    FEWEST_BLOCKS,
    Log,
    TimedBlock,
    is_known,
    samples_of,
    sets_the_pace,
)
from .blocks.peers import ALONE, Peers
from .blocks.sequence import CallSequence
from .blocks.stopwatch import BlockTimes, Stopwatch
from .devices import Device
from .sizing.calibration import agreed_calibration, calibrate, require_alike
from .sizing.plans import BlockPlan, Sizing
from .sizing.warm_up import SHARE_DIRECT, WarmUp

# Of the budget, before agreeing blocks may be believed: a burst is no steady state. Clocks settle, and a virtual
# machine changes its speed for half a second at a time (measured).
EARLIEST_STOP = 0.2
# A device that goes on after its last stamp for so long, and so large a share of a block, does work that is not timed.
LEAST_LEFT_S, LEFT_SHARE = 2e-4, 0.05
# Warm calls to compare the first with, and the share of the budget from which on one is enough.
WARM_CALLS, WARM_SHARE = 5, 0.1
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
        self._conditions = Conditions(device)
        # The reason that there was no graph, if a graph was to be used.
        self.graph_refusal = ""
        # Seconds of the budget that went by before the first block.
        self._before_s = 0.0
        self._late_work: list[bool] = []

    def run(self) -> None:
        """Take the samples. Whatever is raised meanwhile, `log` keeps what there is."""
        with _collector_off(), self._conditions.stops:
            calibration = self.log.calibration = self._calibrate()
            sizing = Sizing(self._watch, self.calls, calibration, self.plan.budget_s)
            if not self._first_calls() or not self._slow_for_good(sizing):
                block_plan = self._warm_up(sizing)
                if self.plan.first_calls:
                    self._warm_calls()
                if self.plan.renew is not None:
                    self._renew(self.plan.renew)
                self._take(
                    sizing,
                    self._plan_with_graph(sizing, block_plan)
                    if self.device.traits.graphs
                    else block_plan,
                )
            self.log.say(self.device.traits.precision)

    def _refill(self) -> None:
        """Prepare a sample: give the next set other values, then flush. The flush evicts them, if
        one was asked for.
        """
        assert self.plan.refill is not None
        self.plan.refill(self.calls.made % len(self.plan.sets))
        if self.plan.flush is not None:
            self.plan.flush()

    def _calibrate(self) -> Calibration:
        with self._watch.answering():
            calibration = calibrate(self.device)
            self._conditions.pace()
        if self._watch.agreement.alone:
            return calibration
        require_alike(self._watch.agreement, self.device.traits)
        return agreed_calibration(self._watch.agreement, calibration)

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

    def _first_calls(self) -> bool:
        """Make the very first calls, each alone. They may compile or load. Return whether the last
        was too slow to warm up.

        A single one that is as long as the budget is slow. Of several, the last is warm already: on a device that is
        waited for anyway it is enough that the next would be all of the warm-up.
        """
        log, count = self.log, self.plan.first_calls
        for index in range(max(1, count)):
            log.warmup_iterations += 1
            log.first_calls_s.append(
                self._watch.alone_s(self.calls.first if index == 0 else partial(self.calls, 1))
            )
            log.warmup_s += log.first_calls_s[-1]
        warm = count > 1 and not self.device.traits.queues
        return log.first_calls_s[-1] >= (SHARE_DIRECT if warm else 1) * self.plan.budget_s

    def _warm_calls(self) -> None:
        """Time a few warm calls as the first were timed. Only where samples are timed in another
        way: behind a queue, or across ranks.
        """
        log, in_a_row = self.log, not (self.plan.isolated or self._watch.agreement.alone)
        if not (self.device.traits.queues or in_a_row):
            return
        while (
            len(log.warm_calls_s) < WARM_CALLS
            and sum(log.warm_calls_s) < WARM_SHARE * self.plan.budget_s
        ):
            log.warmup_iterations += 1
            log.warm_calls_s.append(self._watch.alone_s(partial(self.calls, 1)))
        log.warmup_s += sum(log.warm_calls_s)

    def _slow_for_good(self, sizing: Sizing) -> bool:
        """Return whether the calls after a slow first one are slow too. The first may have been
        slow because it compiled.

        Then they are the samples, and warming up would only add to the wait. As soon as one is fast, those before it
        count as warm-up.
        """
        log, block_plan, budget_s = self.log, sizing.plan_single_calls(), self.plan.budget_s
        while not self._enough():
            with self._watch.answering():
                self._conditions.begin(anew=not log.timed_blocks)
            times = sizing.block(block_plan)
            if times.wall_s < SHARE_DIRECT * budget_s:
                log.forget(1, times.wall_s)
                return False
            log.measuring_s += times.wall_s
            self._keep(times, block_plan)
        return True

    def _warm_up(self, sizing: Sizing) -> BlockPlan:
        """Call until nothing moves any more, then find out how to time."""
        log, first_s = self.log, self.log.warmup_s
        on_every_rank = self._watch.agreement.on_every_rank
        warm = WarmUp(self.device.traits, self.plan.budget_s, sizing.most_calls, on_every_rank)

        idle_s = math.inf

        def span_s(count: int) -> float:
            nonlocal idle_s
            log.warmup_iterations += count
            lasted_s = self._watch.span_s(partial(self.calls, count))
            # The least is that of a span too short to fill the queue.
            idle_s = min(idle_s, self._watch.submit_s / count)
            return lasted_s

        began_s = self._watch.agreement.now_s()
        try:
            call_s = warm.run(span_s, sizing.clock_hz, self._watch.agreement.now_s)
            flush_s = warm.beside_s if self.plan.flush is not None else 0.0
            return sizing.plan_blocks(call_s, idle_s, flush_s, began_s + self.plan.budget_s)
        finally:
            log.warmup_iterations += sizing.calls_made
            lasted_s = self._watch.agreement.now_s() - began_s
            # How long a stop in it was is not known.
            self._before_s = min(lasted_s, warm.cap_s) if self._conditions.stops.count else lasted_s
            log.warmup_s = first_s + self._before_s

    def _plan_with_graph(self, sizing: Sizing, block_plan: BlockPlan) -> BlockPlan:
        """Return the plan by a graph, if that is better. The budget pays for it too."""
        before, began_s = sizing.calls_made, self._watch.agreement.now_s()
        graph = self.plan.graph if self._watch.agreement.alone else False
        try:
            return sizing.plan_graph(
                block_plan, graph, began_s + self.plan.budget_s - self._before_s
            )
        finally:
            lasted_s = self._watch.agreement.now_s() - began_s
            self._before_s += lasted_s
            self.log.warmup_iterations += sizing.calls_made - before
            self.log.warmup_s += lasted_s - sizing.capturing_s
            self.graph_refusal = sizing.graph_refusal

    def _renew(self, renew: Callable[[int], object]) -> None:
        self.settle()
        # Nobody frees what another rank still reads.
        self._watch.agreement.barrier()
        renew(min(self.calls.made, len(self.plan.sets)))
        self.calls.restart()

    def _take(self, sizing: Sizing, block_plan: BlockPlan) -> None:
        """Take blocks until the median is known, or the budget is spent."""
        log = self.log
        log.labels |= block_plan.labels
        with self._watch.answering():
            self._conditions.begin(anew=True)
        began_s = self._watch.agreement.meet_s()
        while not self._enough():
            if log.timed_blocks:
                with self._watch.answering():
                    self._conditions.begin()
            times = sizing.block(block_plan)
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
        with self._watch.answering():
            any_asked = self._conditions.end_row()
        if not any_asked and self._watch.agreement.alone:
            return True
        self.log.state = agreed_state(self._watch.agreement, self._own_state(""))
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
            with self._watch.answering():
                cause = self._conditions.cause(
                    rank_times.ahead,
                    rank_times.clocks_hz,
                    rank_times.wall_s,
                    math.fsum(rank_times.spans),
                )
            state = log.state = agreed_state(self._watch.agreement, self._own_state(cause))
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

    def _own_state(self, cause: str) -> BlockState:
        """Return what this rank's device tells of the blocks so far. The block that ends now is one
        of them.
        """
        conditions = self._conditions
        # A collective wakes its own threads some 4000 times a second (measured), which tells of no neighbour.
        harmless = PREEMPTED if not self._watch.agreement.alone else ""
        cause, spoiled = ("" if code == harmless else code for code in (cause, conditions.spoiled))
        return BlockState(
            cause,
            conditions.power_capped,
            conditions.neighbours,
            conditions.throttle_known,
            spoiled=spoiled,
            judged=conditions.judged,
            clock_moved=conditions.clock_moved,
        )

    def _at_an_end(self) -> bool:
        """Return whether the budget is spent, or the median known. Or no clock moves, which only a
        scripted one can do.
        """
        log, budget_s = self.log, self.plan.budget_s
        if log.measuring_s + self._before_s >= budget_s:
            return True
        if log.measuring_s == 0 and len(log.timed_blocks) >= FEWEST_BLOCKS:
            return True
        if log.measuring_s < EARLIEST_STOP * budget_s:
            return False
        horizon = (budget_s - self._before_s) / log.measuring_s if log.measuring_s else 1.0
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
