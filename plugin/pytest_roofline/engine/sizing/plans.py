"""The search for a plan to time a function.

Calls go behind a spin if the host can get ahead of the device. Else the plan keeps the gaps that the host leaves.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

from ...core.samples import Mode
from ...core.units import format_seconds
from ..log import Log
from .graphs import capture
from .sequence import CallSequence
from .shape import (
    BLOCK_SHARE,
    MOST_CALLS,
    MOST_SAMPLES,
    PLANNED_LONGER,
    BlockPlan,
    direct_shape,
    graph_calls,
    is_short,
    queued_shape,
    spin_for,
)  # fmt: skip
from .stopwatch import LEAD_IN_S, LONGEST_SPIN_S, PROBE_S, TICKS_PER_SAMPLE, BlockShape, Stopwatch
from .warm_up import WarmUp

# Attempts at a block that the host stays ahead of. Each failure takes three quarters of the entries away.
TRIES = 12
# How many of these attempts may be made with a single call. The spin doubles at each.
LAST_TRIES = 3
# A call waited for the spin if at least this share of the spin is in the call's host time.
WAITED_SHARE = 0.5
# A host that needs more than this share of the budget for a call cannot be given a head start of several.
DEAREST_SHARE = 1 / 20
# The fewest calls of a search for a plan, and the share of the budget that it may take.
TRIAL_CALLS = 6
SIZING_SHARE = 0.25
# Seconds of the spin that shows whether a call waits for the device.
TRIAL_SPIN_S = 1e-3
# A replay saves the time between launches, which can be most of a short call's. A replay that takes less than this
# share of its calls has not captured their work. Only `verify` shows whether a replay does all of it; a time cannot.
LEAST_LEFT = 0.25
# A replay that takes longer than its calls by more than this share has done something else.
MOST_LOST = 0.10
# Timed replays of a graph. One more goes before them, which uploads the graph.
REPLAYS = 3
# Replays of an empty graph, to learn what a replay costs.
EMPTY_REPLAYS = 20


class Sizing:
    """The search for the shape of a function's blocks. It tries blocks, within a budget."""

    def __init__(self, watch: Stopwatch, calls: CallSequence, log: Log, budget_s: float) -> None:
        """Prepare to find a plan for `calls`, timed by `watch` within `budget_s`. The log counts the calls made."""
        self.watch = watch
        self.calls = calls
        self.log = log
        assert log.calibration is not None
        self.calibration = log.calibration
        self.budget_s = budget_s
        self.traits = watch.device.traits
        # The shortest sample that the clock resolves.
        self.resolved_s = max(
            self.traits.shortest_span_s, TICKS_PER_SAMPLE * self.calibration.tick_s
        )
        # A flush or a barrier goes before every call, so each call is a sample of its own.
        self.most_calls = 1 if watch.flush is not None or watch.isolated else MOST_CALLS
        self.warm_up = WarmUp(watch, calls, log, budget_s, self.most_calls)
        self._capturing_s = 0.0
        self._flush_s = 0.0

    def prepare(
        self,
        graph: bool | None,
        renew: Callable[[int], object] | None,
        *,
        flushes: bool,
        warm_calls: bool,
    ) -> BlockPlan:
        """Warm up, and return the plan for the blocks.

        Args:
            graph: whether to replay a graph; None leaves it to the length of a call.
            renew: renews the first so many argument sets; None leaves them as they are.
            flushes: whether a flush goes before every call.
            warm_calls: whether to time a few warm calls alone, as the first were.
        """
        plan = self._warm_up(flushes)
        if warm_calls:
            self.warm_up.time_warm_calls()
        if renew is not None:
            self._renew(renew)
        return self._with_graph(plan, graph) if self.traits.graphs else plan

    def _warm_up(self, flushes: bool) -> BlockPlan:
        """Call until times are steady, and return a plan without a graph.

        The log's seconds of preparing and of warming up are set, whatever is raised.
        """
        log, first_calls_s = self.log, self.log.warmup_s
        began_s = self.watch.agreement.now_s()
        try:
            call_s = self.warm_up.call_until_steady()
            flush_s = self.warm_up.outside_span_s if flushes else 0.0
            return self._plan_blocks(call_s, self.warm_up.idle_s, flush_s, began_s + self.budget_s)
        finally:
            lasted_s = self.watch.agreement.now_s() - began_s
            # The length of a stop is unknown. After one, no more than the longest warm-up counts.
            was_stopped = self.watch.stops.count > 0
            log.preparing_s = min(lasted_s, self.warm_up.longest_s) if was_stopped else lasted_s
            log.warmup_s = first_calls_s + log.preparing_s

    def _renew(self, renew: Callable[[int], object]) -> None:
        """Renew the argument sets that calls have used, and begin with the first set again."""
        self.watch.wait_until_done()
        # Renewing may free a buffer that another rank still reads.
        self.watch.agreement.barrier()
        renew(min(self.calls.made, len(self.calls.sets)))
        self.calls.restart()

    def _with_graph(self, plan: BlockPlan, graph: bool | None) -> BlockPlan:
        """Return the plan that replays a graph.

        It is the same plan if that is no better. The time for it counts against the budget. Ranks never use a graph.
        """
        log, began_s = self.log, self.watch.agreement.now_s()
        try:
            until_s = began_s + self.budget_s - log.preparing_s
            use_graph = graph if self.watch.agreement.is_alone else False
            return self._plan_graph(plan, use_graph, until_s)
        finally:
            lasted_s = self.watch.agreement.now_s() - began_s
            log.preparing_s += lasted_s
            # A capture makes the device do no work, so it is no warm-up.
            log.warmup_s += lasted_s - self._capturing_s

    def shortest_s(self, call_s: float) -> float:
        """Return the seconds of the shortest sample to plan.

        A call that is long enough for the clock is a sample by itself. Shorter calls share a sample, which is planned
        somewhat longer.
        """
        return self.resolved_s if call_s >= self.resolved_s else PLANNED_LONGER * self.resolved_s

    def plan_single_calls(self) -> BlockPlan:
        """Return a plan of one call a sample.

        It is for a function as slow as the budget.
        """
        return self._plan(
            BlockShape(1, 1), "events" if self.traits.queues and not self.watch.wall else "host"
        )

    def _plan_blocks(
        self, call_s: float, idle_s: float, flush_s: float, until_s: float
    ) -> BlockPlan:
        """Return the plan for a function.

        Args:
            call_s: seconds of a call, from the warm-up.
            idle_s: the host's seconds to submit a call to an idle device.
            flush_s: seconds of a flush and of the wait for it.
            until_s: the end of the budget, by the stopwatch's clock.
        """
        call_s = max(call_s, self.calibration.tick_s / MOST_CALLS)
        self._flush_s = flush_s
        if not self.watch.spins:
            return self._plan_directly(call_s, until_s)
        now_s = self.watch.agreement.now_s()
        remaining_s = until_s - now_s
        if idle_s > DEAREST_SHARE * self.budget_s or TRIAL_CALLS * (call_s + flush_s) > remaining_s:
            # There is no time for several attempts. Try one call behind a spin, if there is time for that.
            fits = LEAD_IN_S + spin_for(idle_s) + call_s + PROBE_S + flush_s <= remaining_s
            one_ahead = self._plan_one_ahead(idle_s) if fits else None
            return one_ahead or self._plan_behind(call_s)
        if self._waits_inside(idle_s):
            # The call synchronizes, or it submits more work than the queue holds.
            plan = self._plan_behind(call_s, "waits_inside")
            return replace(plan, device_s=self._working_s(idle_s))
        search = self._plan_each_ahead if self.watch.isolated else self._plan_queued
        ahead_plan = search(call_s, idle_s, now_s + min(SIZING_SHARE * self.budget_s, remaining_s))
        return ahead_plan or self._plan_behind(call_s)

    def _plan_one_ahead(self, idle_s: float) -> BlockPlan | None:
        """Return a plan of single calls behind a spin, after one attempt.

        The spin keeps the device busy while the host submits the call, so that the host is ahead of it.
        None if the host was not ahead of the call, or if the clock cannot resolve the call.
        """
        shape = BlockShape(1, 1, spin_for(idle_s))
        self.log.warmup_iterations += 1
        times = self.watch.time_ahead(partial(self.calls, 1), shape)
        (call_s,) = times.spans
        if not times.host_was_ahead or call_s < self.resolved_s:
            return None
        return self._plan(shape, "events", call_s=call_s)

    def _plan(
        self,
        shape: BlockShape,
        mode: Mode,
        labels: frozenset[str] = frozenset(),
        call_s: float = 0.0,
    ) -> BlockPlan:
        """Return a plan that makes the calls of a sample one after the other."""
        # The two stamps around a sample add their own time to it.
        overhead_s = self.calibration.event_pair_s / shape.calls if mode == "events" else 0.0
        submit = partial(self.calls, shape.calls)
        return BlockPlan(shape, submit, mode, labels, call_s, overhead_s)

    def _plan_directly(self, call_s: float, until_s: float) -> BlockPlan:
        """Return a plan without a spin, of samples that are long enough for the clock.

        The warm-up may have misjudged a call, so the sample is timed up to three times if there is time.
        """
        for _ in range(3):
            shape = self._direct_shape(call_s)
            if self.watch.agreement.now_s() + shape.calls * call_s + self._flush_s > until_s:
                break
            self.log.warmup_iterations += shape.calls
            span_s = self.watch.span_s(partial(self.calls, shape.calls))
            if span_s >= self.resolved_s or shape.calls == self.most_calls:
                break
            call_s = max(span_s, self.calibration.tick_s) / shape.calls
        mode: Mode = "events" if self.traits.queues and not self.watch.wall else "host"
        return self._plan(shape, mode, call_s=call_s)

    def _direct_shape(self, call_s: float) -> BlockShape:
        """Return the shape of a block without a spin, for calls of so many seconds."""
        # By the host's clock each sample is waited for, and calls of a larger sample would share that wait.
        span_s, batch = self.shortest_s(call_s), not self.watch.wall
        return direct_shape(
            call_s, span_s, self.budget_s, self.most_calls, self._flush_s, batch=batch
        )

    def _plan_behind(self, call_s: float, *labels: str) -> BlockPlan:
        """Return a plan without a spin in front of the calls.

        The samples hold the gaps in which the device waits for the host. The blocks show later whether the host set
        the pace.
        """
        return self._plan(self._direct_shape(call_s), "events", labels=frozenset(labels))

    def _waits_inside(self, idle_s: float) -> bool:
        """Return whether a call waits for the device.

        One call is made behind a spin, which keeps the device busy. If it waits, its host time holds the length of
        the spin.
        """
        spin_s = _trial_spin_s(idle_s)
        self.log.warmup_iterations += 1
        host_s = self.watch.host_cost_s(partial(self.calls, 1), spin_s)
        return host_s - idle_s >= WAITED_SHARE * spin_s

    def _working_s(self, idle_s: float) -> float:
        """Return the device seconds of a call that waits for the device inside, at most.

        The call goes behind a spin, so that the host submits its work up to the first wait while the device is busy.
        A second spin with nothing but a wait behind it shows how long the host takes to notice that the device is
        done. That is subtracted. Gaps after the first wait of the call are still counted, so the figure is a bound.
        """
        shape = BlockShape(1, 1, _trial_spin_s(idle_s))
        self.log.warmup_iterations += 1
        (call_s,) = self.watch.time_ahead(partial(self.calls, 1), shape).spans
        (wait_s,) = self.watch.time_ahead(self.watch.device.synchronize, shape).spans
        return max(0.0, call_s - wait_s)

    def _plan_queued(self, call_s: float, host_s: float, until_s: float) -> BlockPlan | None:
        """Return a plan of blocks that the host stays ahead of.

        A spin before a block keeps the device busy while the host submits the calls. Blocks are tried until one
        succeeds: after a success the next has more calls if the clock needs them, after a failure it is smaller, and
        once it is a single call its spin doubles. None if none succeeds by `until_s`.
        """
        most_calls, failures = self.most_calls, 0
        shape = self._queued_shape(call_s, host_s, most_calls)
        for attempt in range(TRIES):
            if attempt and self.watch.agreement.now_s() > until_s:
                break
            self.log.warmup_iterations += shape.calls * shape.samples
            times = self.watch.time_ahead(partial(self.calls, shape.calls), shape)
            if times.host_was_ahead:
                call_s = max(median(times.spans), self.calibration.tick_s) / shape.calls
                next_shape = self._queued_shape(
                    call_s, times.host_s / (shape.calls * shape.samples), most_calls
                )
                if next_shape.calls <= shape.calls or call_s * shape.calls >= self.resolved_s:
                    # A larger block than the one that was tried might fill the queue.
                    shape = replace(shape, samples=min(next_shape.samples, shape.samples))
                    return self._plan(shape, "events", call_s=call_s)
                shape = next_shape
            elif (smaller := shape.smaller()) is not None:
                # The host also waited for the end of the spin, which is no part of a call's cost.
                per_call_s = max(
                    host_s, (times.host_s - shape.spin_s) / (shape.calls * shape.samples)
                )
                most_calls = smaller.calls if shape.samples == 1 else most_calls
                spin_s = max(shape.spin_s, spin_for(per_call_s * smaller.calls * smaller.samples))
                shape = replace(smaller, spin_s=spin_s)
            elif failures < LAST_TRIES:
                failures += 1
                shape = BlockShape(1, 1, 2 * shape.spin_s)
            else:
                break
        return None

    def _plan_each_ahead(self, _call_s: float, host_s: float, until_s: float) -> BlockPlan | None:
        """Return a plan of isolated samples, each a single call behind its own spin.

        None if no spin is long enough for the host. The call's seconds are a parameter only because `_plan_queued`,
        which is called in its place, needs them.
        """
        spin_s = spin_for(host_s)
        for _ in range(1 + LAST_TRIES):
            self.log.warmup_iterations += 1
            times = self.watch.time_ahead(partial(self.calls, 1), BlockShape(1, 1, spin_s))
            if times.host_was_ahead:
                (span_s,) = times.spans
                call_s = max(span_s, self.calibration.tick_s)
                sample_count = int(BLOCK_SHARE * self.budget_s / (spin_s + call_s))
                shape = BlockShape(1, max(1, min(MOST_SAMPLES, sample_count)), spin_s)
                return self._plan(shape, "events", call_s=call_s)
            if self.watch.agreement.now_s() > until_s:
                break
            spin_s = min(2 * spin_s, LONGEST_SPIN_S)
        return None

    def _queued_shape(self, call_s: float, host_s: float, most_calls: int) -> BlockShape:
        """Return the shape of a block behind a spin, for this device and budget."""
        depth, span_s = self.calibration.queue_depth, self.shortest_s(call_s)
        return queued_shape(call_s, host_s, span_s, self.budget_s, most_calls, depth, self._flush_s)

    def _plan_graph(self, plan: BlockPlan, use_graph: bool | None, until_s: float) -> BlockPlan:
        """Return a plan that replays a graph, or the same plan.

        A graph is used on request. If `use_graph` is None, it is used for short calls and unresolved samples.
        The budget is spent at `until_s`; one replay is timed in any case.
        """
        if use_graph is None:
            is_unresolved = plan.call_s * plan.shape.calls < self.resolved_s
            use_graph = is_unresolved or is_short(plan.call_s, self.traits)
        # Without a spin the host was never ahead of the device. One call in a sample (after a flush or a barrier) needs
        # no graph.
        if not (plan.shape.spin_s and use_graph and self.most_calls > 1):
            return plan
        count, calls_made = graph_calls(plan.call_s, len(self.calls.sets)), self.calls.made
        # A graph that used only some of the argument sets would find these in the cache.
        if count is None:
            return plan
        replay = self._capture(partial(self.calls, count))
        replay_times = None
        if replay is not None:
            replay_times = self._time_replay(replay, plan.call_s * count, count, until_s)
        if replay is None or replay_times is None:
            # A capture does not do its work, so the sets of its calls do not count as used.
            self.calls.made = calls_made
            return replace(plan, labels=plan.labels | {"graph_refused"})
        span_s, host_s = replay_times
        # To the host a replay is one call, whatever it holds.
        shape = self._queued_shape(span_s, host_s, 1)
        overhead_s = self._empty_replay_s(until_s) / count
        return replace(
            plan, shape=replace(shape, calls=count), submit=replay, mode="graph", call_s=span_s / count,
            overhead_s=overhead_s,
        )  # fmt: skip

    def _time_replay(
        self, replay: Callable[[], None], calls_s: float, count: int, until_s: float
    ) -> tuple[float, float] | None:
        """Return the device's seconds of a replay, and the host's to submit it.

        None if the host is never ahead of a replay, or if the time of a replay does not fit its calls; the reason is
        then in the log's `graph_refusal`.

        Args:
            calls_s: seconds of the same calls without a graph.
            count: the number of calls in a replay.
        """
        self.log.warmup_iterations += count
        # The first replay uploads the graph, so only the host's time of it is used.
        host_s, lasted_s = self.watch.host_cost_s(replay, 0), 0.0
        spans: list[float] = []
        for _ in range(REPLAYS):
            if spans and self.watch.agreement.now_s() + lasted_s > until_s:
                break
            self.log.warmup_iterations += count
            times = self.watch.time_ahead(replay, BlockShape(count, 1, spin_for(host_s)))
            host_s, lasted_s = times.host_s, times.wall_s
            if times.host_was_ahead:
                spans += times.spans
        if not spans:
            self.log.graph_refusal = "the host is never ahead of a replay"
            return None
        span_s = max(median(spans), self.calibration.tick_s)
        longest_s = (
            (1 + MOST_LOST) * calls_s + self.calibration.event_pair_s + self.calibration.tick_s
        )
        # A much shorter replay lacks some of the calls' work, a much longer one does other work.
        if not LEAST_LEFT * calls_s <= span_s <= longest_s:
            self.log.graph_refusal = (
                f"a replay takes {format_seconds(span_s)}, but the same calls without a graph take "
                f"{format_seconds(calls_s)}"
            )
            return None
        return span_s, host_s

    def _capture(self, submit: Callable[[], None]) -> Callable[[], None] | None:
        """Return a replay of the work that `submit` submits.

        None if that work cannot be captured; the reason is then in the log's `graph_refusal`.
        """
        began_s = self.watch.agreement.now_s()
        try:
            replay, self.log.graph_refusal = capture(self.watch, submit)
            return replay
        finally:
            self._capturing_s += self.watch.agreement.now_s() - began_s

    def _empty_replay_s(self, until_s: float) -> float:
        """Return the seconds between two stamps around an empty graph's replay.

        If there is no time left, the result is the seconds between two stamps alone.
        """
        fits = self.watch.agreement.now_s() + 2 * TRIAL_SPIN_S <= until_s
        replay = self._capture(lambda: None) if fits else None
        if replay is None:
            return self.calibration.event_pair_s
        times = self.watch.time_ahead(replay, BlockShape(1, EMPTY_REPLAYS, TRIAL_SPIN_S))
        return max(0.0, median(times.spans))


def _trial_spin_s(idle_s: float) -> float:
    """Return the seconds of a spin that lasts longer than submitting a call."""
    return max(TRIAL_SPIN_S, 4 * idle_s)
