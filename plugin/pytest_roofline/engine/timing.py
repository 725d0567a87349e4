"""The timing engine: warm up, find out how to time, take blocks. Warm-up ends when nothing moves,
the blocks when the median is known.

The engine asks a device for nothing but the `Device` protocol, so all of it is proven on a fake. The order of things:

    first calls → warm-up → (warm calls alone) → shape of a block → (graph) → blocks, each kept, excluded by cause only
    → Samples
"""

import contextlib
import gc
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from ..core.keys import Timing
from ..core.samples import Samples
from .blocks.taking import Blocks
from .devices import Device
from .log import Log, samples_of
from .sizing.calibration import calibrate_ranks
from .sizing.peers import ALONE, Peers
from .sizing.plans import Sizing
from .sizing.sequence import CallSequence
from .sizing.stopwatch import Stopwatch


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
    after_block: Callable[[Log], object] | None = None
    """Called with the log when it holds one block more."""
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
        self.watch = Stopwatch(device, plan.timing == "wall", before, plan.peers, plan.isolated)
        self.blocks = Blocks(self.watch, self.log, plan.budget_s, plan.after_block)

    def run(self) -> None:
        """Take the samples. Whatever is raised meanwhile, `log` keeps what there is."""
        with _collector_off(), self.watch.stops:
            log = self.log
            log.calibration = calibrate_ranks(self.watch)
            self.blocks.conditions.learn_pace()
            sizing = Sizing(self.watch, self.calls, log, self.plan.budget_s)
            slow = sizing.warm_up.make_first_calls(self.plan.first_calls)
            if not (slow and self.blocks.take_slow_calls(sizing.plan_single_calls())):
                block_plan = sizing.prepare(
                    self.plan.graph,
                    self.plan.renew,
                    flushes=self.plan.flush is not None,
                    warm_calls=self.plan.first_calls > 0,
                )
                self.blocks.take_until_known(block_plan)
            self.blocks.label()

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
        self.watch.flush = None
        self.plan = replace(
            self.plan, flush=None, refill=None, renew=None, after_block=None, sets=()
        )

    def peak_bytes(self) -> int | None:
        """Return the most memory that one call holds, by a call of its own. It counts above what is
        allocated before the call.
        """
        made = self.calls.made
        with _collector_off():
            peak_bytes = self.device.peak_bytes(lambda: self.calls(1))
            if self.calls.made == made and not self.watch.agreement.is_alone:
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
