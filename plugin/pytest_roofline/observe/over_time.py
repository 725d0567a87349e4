"""Memory over the time of a call: points for a plot, and the trace of torch's own allocator."""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from ..core.memory import AllocatorPoint
from ..engine.devices import Device, torch_device

# Equal parts that the points of a call are divided into; of each part the largest point is kept.
PARTS = 120
# Entries that the allocator's trace may have; a training step of billions of parameters has some ten thousand.
MOST_ENTRIES = 1_000_000
Point = TypeVar("Point")
# The actions of the trace that change the memory that is handed out, and that change the reserved memory, with signs.
_ALLOCATED = {"alloc": 1, "free_requested": -1}
_RESERVED = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


def thin_out(points: Sequence[Point], size: Callable[[Point], int]) -> tuple[Point, ...]:
    """Return fewer points, so that no peak is lost.

    These are the first, the last, and the largest of each part between.
    """
    if len(points) <= PARTS + 2:
        return tuple(points)
    # Bounds of the parts of the points between the first and the last.
    inner_count = len(points) - 2
    bounds = [1 + number * inner_count // PARTS for number in range(PARTS + 1)]
    parts = (points[low:high] for low, high in itertools.pairwise(bounds))
    return (points[0], *(max(part, key=size) for part in parts), points[-1])


@contextlib.contextmanager
def allocator_trace(device: Device, began_s: float) -> Iterator[list[AllocatorPoint]]:
    """Yield a list for the points of torch's allocator.

    It is filled after the block. Times count from `began_s`, in seconds of the system's clock, as in the trace. The
    list stays empty for devices without a trace, and where the user records the trace already.
    """
    points: list[AllocatorPoint] = []
    torch_place = torch_device(device)
    if torch_place.type != "cuda" or torch._C._cuda_isHistoryEnabled():
        yield points
        return
    index = torch_place.index or 0
    before = torch.cuda.memory_allocated(index), torch.cuda.memory_reserved(index)
    # Without `context` torch records no stacks, which would take time.
    torch.cuda.memory._record_memory_history(context=None, max_entries=MOST_ENTRIES)
    try:
        yield points
        entries = torch.cuda.memory._snapshot()["device_traces"][index]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)
    points += thin_out(
        _points(entries, before, began_s),
        lambda point: point.reserved_bytes + point.allocated_bytes,
    )


def _points(
    entries: Sequence[dict[str, Any]], before: tuple[int, int], began_s: float
) -> list[AllocatorPoint]:
    """Return the bytes after each action of torch's allocator.

    They are those that are handed out, and those that are reserved.

    Args:
        entries: of the trace.
        before: the bytes that were handed out and reserved before the trace.
        began_s: the time that points count from.
    """
    allocated, reserved = before
    points = [AllocatorPoint(0.0, allocated, reserved)]
    for entry in entries:
        # The sign is 0 for an action that does not change this kind of memory.
        allocated_sign = _ALLOCATED.get(entry["action"], 0)
        reserved_sign = _RESERVED.get(entry["action"], 0)
        if allocated_sign or reserved_sign:
            allocated += allocated_sign * entry["size"]
            reserved += reserved_sign * entry["size"]
            at_s = max(0.0, entry["time_us"] * 1e-6 - began_s)
            points.append(AllocatorPoint(at_s, max(0, allocated), max(0, reserved)))
    return points
