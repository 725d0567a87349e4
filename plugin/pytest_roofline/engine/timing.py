"""The timing engine: warm up, find out how to time, take blocks.

The warm-up ends when times are steady, and the blocks end when the median is known. The engine uses only the `Device`
protocol, so that tests can run all of it on a fake device. The order is:

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
    """The function to time, and how to time it. It is called with each of `sets` in turn."""

    fn: Callable[..., object]
    sets: Sequence[tuple[object, ...]]
    budget_s: float
    timing: Timing = "device"
    flush: Callable[[], object] | None = None
    renew: Callable[[int], object] | None = None
    """Renews the first so many sets after the warm-up, so that `verify` does not see results of the warm-up."""
    refill: Callable[[int], object] | None = None
    """Gives the set with an index new values, before every sample. Each sample is then a single call."""
    graph: bool | None = None
    """Whether to replay a graph, as the measurement to compare with did; None leaves it to the length of a call. Never
    with peers: a rank whose capture fails would make other calls than the other ranks."""
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
        """Prepare to time the plan's function on a device. Nothing is called yet."""
        self.device = device
        self.plan = plan
        self.log = Log(len(plan.sets), plan.first_calls)
        if plan.timing == "device" and not device.traits.stamps:
            self.log.labels.add("wall_clock")
        self.calls = CallSequence(plan.fn, plan.sets)
        # What is done before each sample.
        before = plan.flush if plan.refill is None else self._refill
        self.watch = Stopwatch(device, plan.timing == "wall", before, plan.peers, plan.isolated)
        self.blocks = Blocks(self.watch, self.log, plan.budget_s, plan.after_block)

    def run(self) -> None:
        """Take the samples into `log`. If an error ends it, the log keeps the blocks so far."""
        with _collector_off(), self.watch.stops:
            log = self.log
            log.calibration = calibrate_ranks(self.watch)
            self.blocks.conditions.learn_pace()
            sizing = Sizing(self.watch, self.calls, log, self.plan.budget_s)
            slow = sizing.warm_up.make_first_calls(self.plan.first_calls)
            # If a later call turns out to be fast, the slow first one only compiled: then warm up as usual.
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
        """Give the next set new values.

        The cache is then flushed if the plan asks for it.
        """
        assert self.plan.refill is not None
        self.plan.refill(self.calls.made % len(self.plan.sets))
        if self.plan.flush is not None:
            self.plan.flush()

    def close(self) -> None:
        """Drop every reference to a buffer.

        A traceback with this engine then keeps none alive.
        """
        self.watch.flush = None
        self.plan = replace(
            self.plan, flush=None, refill=None, renew=None, after_block=None, sets=()
        )

    def peak_bytes(self) -> int | None:
        """Return the most memory that one call holds, above what is allocated before it.

        One more call is made for it. None if the device does not report it.
        """
        calls_before = self.calls.made
        with _collector_off():
            peak_bytes = self.device.peak_bytes(lambda: self.calls(1))
            if self.calls.made == calls_before and not self.watch.agreement.is_alone:
                # This device does not report memory and made no call. Other ranks may have made theirs.
                self.calls(1)
        return peak_bytes

    def held_bytes(self) -> int | None:
        """Return the memory that one call leaves allocated while its result is kept.

        One more call is made for it, so it must not be used with peers. None if the device does not report it.
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
    """Turn garbage collection off, so that none happens inside a sample. Restore it afterwards."""
    was_on = gc.isenabled()
    # Collect recent garbage only. A full collection visits torch's 200 000 objects and takes longer than many
    # measurements.
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
