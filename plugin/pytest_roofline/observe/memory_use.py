"""The use of memory by one call. Torch's own tracker follows the storages of its operators."""

import gc
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import torch
from torch import nn
from torch.optim.optimizer import Optimizer
from torch.utils._pytree import tree_leaves

from ..core.errors import BadInput
from ..core.memory import MemoryUse
from ..engine.devices import Device, torch_device
from .over_time import allocator_trace, thin_out

if TYPE_CHECKING:
    from .tracker import Tracker

# Devices whose work can be replayed as a graph, which runs no operators.
WITH_GRAPHS = ("cuda", "xpu")
NO_TRACKER = (
    "roofline.memory needs torch.distributed._tools.mem_tracker.MemTracker, which torch {version} does not have here "
    "({why}). To measure only the peak, use measure(peak_bytes=True)"
)
UNCOUNTED = "the device's own peak, since {device} reports no peak"
UNCOMPILED = "the allocations of compiled code, since the operators ran one by one"
UNSEEN = "allocations outside of operators, as in a replayed graph; no operator of the call allocated anything"


@dataclass(frozen=True, slots=True)
class FollowedCall:
    """The call to follow.

    Args:
        fn: called once, as `fn(*arguments)`; its result is kept until the end.
        arguments: its arguments.
        model: its parameters, gradients and buffers are known from the start; without it, from its forward pass on.
        optimizer: its state is known from the start; without it, from its first step on.

    Raises:
        BadInput: `model` is no module, or `optimizer` no optimizer.
    """

    fn: Callable[..., object]
    arguments: Sequence[object] = ()
    model: nn.Module | None = None
    optimizer: Optimizer | None = None

    def __post_init__(self) -> None:
        """Raise BadInput for a model or an optimizer of another type."""
        if self.model is not None and not isinstance(self.model, nn.Module):
            raise BadInput(f"model is a {type(self.model).__name__}; expected a torch.nn.Module")
        if self.optimizer is not None and not isinstance(self.optimizer, Optimizer):
            raise BadInput(
                f"optimizer is a {type(self.optimizer).__name__}; expected a torch.optim.Optimizer"
            )


def follow(device: Device, call: FollowedCall, empty: MemoryUse) -> MemoryUse:
    """Make a call, and return the figures of its memory.

    The call is followed operator by operator. The figures are put into `empty`.

    Args:
        device: that the call computes on.
        call: to make.
        empty: the record of the test, without figures.

    Raises:
        BadInput: this torch has no tracker, or the call allocated nothing on the device.
    """
    tracker = _tracker(device)
    # Objects that only a garbage collection would free are none of the call's memory.
    gc.collect()
    device.synchronize()
    counted_bytes = device.allocated().now_bytes
    try:
        leaves = tree_leaves(call.arguments)
        tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        tracker.meet(tensors, call.optimizer, call.model)
        began_s = time.time()
        with allocator_trace(device, began_s) as allocator:
            rise_bytes = _measure_rise(device, call, tracker)
    finally:
        tracker.close()
    categories, peaks = tracker.categories, tracker.phase_peaks
    # The device's counter may not tell the memory before the call; then the tracker's stands in for it.
    device_peak_bytes = None
    if rise_bytes is not None:
        device_peak_bytes = (counted_bytes or tracker.before_bytes) + rise_bytes
    if not categories:
        raise BadInput(
            f"the call allocated no tensor on {device.name}; expected a function that computes on roofline.device"
        )
    return replace(
        empty,
        peak_bytes=sum(categories.values()),
        phase=max(peaks, key=lambda phase: peaks[phase], default="forward"),
        categories=categories,
        before_bytes=tracker.before_bytes,
        phase_peaks=dict(peaks),
        device_peak_bytes=device_peak_bytes,
        device_before_bytes=counted_bytes,
        missing=tuple(_missing(device, call, tracker, rise_bytes)),
        over_time=thin_out(tracker.over_time(began_s), lambda point: point.total_bytes),
        allocator=tuple(allocator),
    )


def _missing(
    device: Device, call: FollowedCall, tracker: "Tracker", rise_bytes: int | None
) -> list[str]:
    """Return sentences on facts that the record lacks."""
    kind, _, _ = device.name.partition(":")
    # No operator ran, or those that ran allocated nothing, as beside a graph that is replayed.
    has_unseen_allocations = not tracker.seen or (kind in WITH_GRAPHS and not tracker.allocated)
    applies_by_sentence = {
        UNSEEN: has_unseen_allocations,
        UNCOUNTED.format(device=device.name): rise_bytes is None,
        UNCOMPILED: is_compiled(call.fn) or is_compiled(call.model),
    }
    return [sentence for sentence, applies in applies_by_sentence.items() if applies]


def _tracker(device: Device) -> "Tracker":
    """Return a tracker for a device.

    BadInput is raised if this torch has none.
    """
    try:
        from .tracker import Tracker
    except ImportError as error:
        raise BadInput(NO_TRACKER.format(version=torch.__version__, why=error)) from None
    return Tracker(torch_device(device))


def _measure_rise(device: Device, call: FollowedCall, tracker: "Tracker") -> int | None:
    """Make the call, and return its rise in memory.

    The device's counter tells it. The tracker follows the call. The rise is None if the device has no counter.
    """
    outputs: list[object] = []

    def run() -> None:
        """Make the call under the tracker, without torch's compiler."""
        with torch.compiler.set_stance("force_eager"), tracker:
            outputs.append(call.fn(*call.arguments))
        tracker.note_end()

    try:
        rise_bytes = device.peak_bytes(run)
        if not outputs:
            # A device without a counter has not made the call.
            run()
    finally:
        # The traceback of a failure keeps this list, and with it the memory of the results.
        outputs.clear()
    return rise_bytes


def is_compiled(function: object) -> bool:
    """Return whether torch.compile made a function, or any part of a module."""
    if isinstance(function, nn.Module):
        return any(
            hasattr(module, "_orig_mod") or getattr(module, "_compiled_call_impl", None)
            for module in function.modules()
        )
    return hasattr(function, "_torchdynamo_orig_callable")
