"""Memory over the time of a call. Points are thinned to what a plot shows; the trace is of torch's
own allocator.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import torch

from ..core.memory import AllocatorPoint
from ..engine.devices import Device, torch_device

# Of so many equal parts of a call the fullest moment is kept.
PARTS = 120
# What the allocator remembers of one call: a step of billions of parameters has some ten thousand.
MOST_ENTRIES = 1_000_000
Point = TypeVar("Point")
# What an entry of the trace adds to memory that is handed out, and to memory that is reserved.
_ALLOCATED = {"alloc": 1, "free_requested": -1}
_RESERVED = {"segment_alloc": 1, "segment_map": 1, "segment_free": -1, "segment_unmap": -1}


def thin_out(points: Sequence[Point], size: Callable[[Point], int]) -> tuple[Point, ...]:
    """Return the first and last point, and each part's largest between."""
    if len(points) <= PARTS + 2:
        return tuple(points)
    bounds = [1 + number * (len(points) - 2) // PARTS for number in range(PARTS + 1)]
    parts = (points[low:high] for low, high in itertools.pairwise(bounds))
    return (points[0], *(max(part, key=size) for part in parts), points[-1])


@contextlib.contextmanager
def allocator_trace(device: Device, began_s: float) -> Iterator[list[AllocatorPoint]]:
    """Yield points of torch's allocator, complete when the block has ended. There are none if it
    has no trace.

    They begin at a time of the system's clock, as the trace's own are. Where somebody else has switched the history
    on, it is left alone.
    """
    points: list[AllocatorPoint] = []
    place = torch_device(device)
    if place.type != "cuda" or torch._C._cuda_isHistoryEnabled():
        yield points
        return
    index = place.index or 0
    before = torch.cuda.memory_allocated(index), torch.cuda.memory_reserved(index)
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
    """Return running sums over one device's trace, from `before` on."""
    allocated, reserved = before
    points = [AllocatorPoint(0.0, allocated, reserved)]
    for entry in entries:
        allocated_sign, reserved_sign = (
            _ALLOCATED.get(entry["action"], 0),
            _RESERVED.get(entry["action"], 0),
        )
        if allocated_sign or reserved_sign:
            allocated, reserved = (
                allocated + allocated_sign * entry["size"],
                reserved + reserved_sign * entry["size"],
            )
            points.append(
                AllocatorPoint(
                    max(0.0, entry["time_us"] * 1e-6 - began_s), max(0, allocated), max(0, reserved)
                )
            )
    return points
