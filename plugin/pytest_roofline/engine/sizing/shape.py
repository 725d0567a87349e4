"""The choice of a block's shape: calls per sample, samples per block, and spin.

The spin keeps the device busy while the host submits the block.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ...core.samples import Mode
from ..devices import Traits
from .stopwatch import LONGEST_SPIN_S, BlockShape

# A sample is planned longer than it must be by this factor: noise can also make it shorter than planned.
PLANNED_LONGER = 1.1
# More calls between two stamps improve nothing. For a function without work the doubling of calls ends here.
MOST_CALLS = 1 << 15
# A block takes this share of the budget: enough of them fit to see a trend.
BLOCK_SHARE = 1 / 25
LONGEST_BLOCK_S = 0.05
# Where the host waits for every sample, a block is as long as a few time slices of the scheduler.
DIRECT_BLOCK_S = 0.01
DIRECT_SHARE = 1 / 10
# More samples in a block improve nothing. Instead, the samples of a long block hold more calls.
MOST_SAMPLES = 50
# The spin outlasts the host's submitting by this, so that a hiccup does not spoil the block.
SPIN_FACTOR = 1.5
SPIN_MARGIN_S = 2e-4
# The depth of a queue whose end was not reached or not searched (torch's own search assumes no less).
ASSUMED_DEPTH = 512
# A kernel that takes fewer ticks of the documented clock is short, and is better timed in a graph: below 20 µs by the
# events of CUDA, 40 µs by those of HIP. By the calibrated tick, processes would time one test in different modes.
SHORT_TICKS = 40
GRAPH_SPAN_S = 1e-3
MOST_GRAPH_CALLS = 4096


def direct_shape(
    call_s: float,
    span_s: float,
    budget_s: float,
    most_calls: int,
    flush_s: float = 0.0,
    batch: bool = True,
) -> BlockShape:
    """Return the shape of a block without a spin.

    Args:
        call_s: seconds of a call.
        span_s: the least seconds of a sample.
        budget_s: seconds of the whole measurement.
        most_calls: the most calls in a sample.
        flush_s: seconds of a flush in front of every sample.
        batch: whether to put more calls into a sample than the clock needs. Not where the host waits for each
            sample, since the calls would share one wait.
    """
    aim_s = min(DIRECT_SHARE * budget_s, DIRECT_BLOCK_S)
    # Samples of this length fill the block with as many of them as it may have.
    batch_s = aim_s / MOST_SAMPLES if batch else 0.0
    calls = _calls(call_s, max(span_s, batch_s), most_calls)
    return BlockShape(calls, _samples(calls * call_s + flush_s, aim_s))


def queued_shape(
    call_s: float,
    host_s: float,
    span_s: float,
    budget_s: float,
    most_calls: int,
    depth: int | None,
    flush_s: float = 0.0,
) -> BlockShape:
    """Return the shape of a block that the host submits behind a spin.

    The spin keeps the device busy until all calls are submitted. The block uses half of the queue's `depth`, since a
    call may make more than one entry. `host_s` are the host's seconds to submit a call; all others are as in
    `direct_shape`.
    """
    room = (depth or ASSUMED_DEPTH) // 2
    aim_s = min(BLOCK_SHARE * budget_s, LONGEST_BLOCK_S)
    # Each call adds its part of the spin, which covers the host's submitting, and the device's time for it.
    per_call_s = SPIN_FACTOR * host_s + call_s
    calls = max(
        _calls(call_s, span_s, most_calls), _calls(per_call_s, aim_s / MOST_SAMPLES, most_calls)
    )
    # A full queue must be avoided first, then short samples, then few samples.
    # The two stamps of a sample are entries of the queue as well.
    calls = min(calls, max(1, room - 2))
    samples = min(_samples(calls * per_call_s + flush_s, aim_s), max(1, room // (calls + 2)))
    return BlockShape(calls, samples, spin_for(calls * samples * host_s))


def spin_for(host_s: float) -> float:
    """Return the seconds to spin in front of a block.

    The host takes `host_s` to submit it.
    """
    return min(SPIN_FACTOR * host_s + SPIN_MARGIN_S, LONGEST_SPIN_S)


def _calls(call_s: float, span_s: float, most_calls: int) -> int:
    """Return how many calls last `span_s`, at most `most_calls`."""
    return min(max(1, math.ceil(span_s / call_s)), most_calls)


def _samples(sample_s: float, aim_s: float) -> int:
    """Return how many samples fit into `aim_s`, from one to `MOST_SAMPLES`."""
    return max(1, min(MOST_SAMPLES, int(aim_s / sample_s)))


def is_short(call_s: float, traits: Traits) -> bool:
    """Return whether a call is so short that stamps and launches matter."""
    return call_s < SHORT_TICKS * traits.tick_s


def graph_calls(call_s: float, sets: int) -> int | None:
    """Return how many calls to put into one graph.

    They last about a millisecond, and go through all argument sets the same number of times: a graph of some of the
    sets would find these in the cache. None if a single turn through the sets does not fit into a graph.
    """
    turns = math.ceil(max(1, GRAPH_SPAN_S / call_s) / sets)
    most_turns = MOST_GRAPH_CALLS // sets
    return min(turns, most_turns) * sets if most_turns else None


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """The plan for the blocks of a measurement.

    `submit` submits one sample. The stamps add `overhead_s` to each call.
    """

    shape: BlockShape
    submit: Callable[[], None]
    mode: Mode
    labels: frozenset[str] = frozenset()
    call_s: float = 0.0
    overhead_s: float = 0.0
    device_s: float | None = None
    """Device seconds of a call that waits for the device inside; None if a call does not wait."""
