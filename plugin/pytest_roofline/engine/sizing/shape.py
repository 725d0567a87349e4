"""The shape of a block: calls per sample, samples per block, and spin. The spin keeps the device
busy in front of it.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from ...core.samples import Mode
from ..devices import Traits
from .stopwatch import LONGEST_SPIN_S, BlockShape

# A sample is planned longer than it must be by this, since noise goes both ways.
PLANNED_LONGER = 1.1
# More calls between two stamps tell nothing new, and a function without work must come to an end.
MOST_CALLS = 1 << 15
# A block takes this share of the budget: enough of them fit to see a trend.
BLOCK_SHARE = 1 / 25
LONGEST_BLOCK_S = 0.05
# Of a device that is waited for sample by sample, a block is as long as a few time slices of the scheduler.
DIRECT_BLOCK_S = 0.01
DIRECT_SHARE = 1 / 10
# More samples in a block tell nothing new; they hold more calls instead.
MOST_SAMPLES = 50
# The spin outlasts the host's submitting by this, so that a hiccup does not spoil the block.
SPIN_FACTOR = 1.5
SPIN_MARGIN_S = 2e-4
# A device whose queue has no end that was found, or that was not searched (torch's own search assumes no less).
ASSUMED_DEPTH = 512
# A kernel is short, and its launches are better captured, below so many ticks of the clock as documented: 20 µs of
# CUDA's events, 40 µs of HIP's. What is calibrated differs from process to process, and would decide what is compared.
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
    """Return the shape for a device without a queue, or without a spin. Samples last `span_s` or
    more, and are waited for one by one.

    Times are of a call and of a flush in front of every sample, in seconds. Unless they `batch`, no more calls than the
    clock needs share a sample, since their waits would be shared too.
    """
    aim_s = min(DIRECT_SHARE * budget_s, DIRECT_BLOCK_S)
    calls = _calls(call_s, max(span_s, batch * aim_s / MOST_SAMPLES), most_calls)
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
    """Return the shape for a device that is busy while the host submits. The host needs `host_s`
    for a call, and submits the whole block.

    Of the queue's depth half is used, since how many entries a call makes is not known.
    """
    room = (depth or ASSUMED_DEPTH) // 2
    aim_s = min(BLOCK_SHARE * budget_s, LONGEST_BLOCK_S)
    # The host submits while the device spins, and the device works while the host waits.
    per_call_s = SPIN_FACTOR * host_s + call_s
    calls = max(
        _calls(call_s, span_s, most_calls), _calls(per_call_s, aim_s / MOST_SAMPLES, most_calls)
    )
    # Better few samples than short ones, and better short ones than a full queue.
    calls = min(calls, max(1, room - 2))
    samples = min(_samples(calls * per_call_s + flush_s, aim_s), max(1, room // (calls + 2)))
    return BlockShape(calls, samples, spin_for(calls * samples * host_s))


def spin_for(host_s: float) -> float:
    """Return the seconds to spin in front of a block. The host submits it in `host_s`."""
    return min(SPIN_FACTOR * host_s + SPIN_MARGIN_S, LONGEST_SPIN_S)


def _calls(call_s: float, span_s: float, most_calls: int) -> int:
    return min(max(1, math.ceil(span_s / call_s)), most_calls)


def _samples(each_s: float, aim_s: float) -> int:
    return max(1, min(MOST_SAMPLES, int(aim_s / each_s)))


def is_short(call_s: float, traits: Traits) -> bool:
    """Return whether stamps and launches matter to so short a call."""
    return call_s < SHORT_TICKS * traits.tick_s


def graph_calls(call_s: float, sets: int) -> int | None:
    """Return how many calls to put into one graph. A millisecond of them, and whole turns through
    the sets, or a rotation would stay warm.

    None where a whole turn does not fit.
    """
    turns = math.ceil(max(1, GRAPH_SPAN_S / call_s) / sets)
    most = MOST_GRAPH_CALLS // sets
    return min(turns, most) * sets if most else None


@dataclass(frozen=True, slots=True)
class BlockPlan:
    """The plan for the blocks of a measurement: `submit` submits a sample, to which stamps add `overhead_s`."""

    shape: BlockShape
    submit: Callable[[], None]
    mode: Mode
    labels: frozenset[str] = frozenset()
    call_s: float = 0.0
    overhead_s: float = 0.0
    device_s: float | None = None
    """Seconds of a call that waits inside in which the device works; None of one that does not wait."""
