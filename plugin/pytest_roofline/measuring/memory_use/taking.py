"""One call, followed: its peak by the operators' storages, beside the peak by the device's own counter."""

import contextlib
import difflib
import gc
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.optim.optimizer import Optimizer

from ...core.errors import BadInput
from ...core.memory_use import Allocation, OutputBytes, Step
from ..devices import Device, torch_device
from .blocks import find_peak
from .classify import categories, largest, made_by_call
from .missing import uncompiled, uncounted, unseen
from .places import Places
from .storages import tensors_in
from .tracking import Tracker


@dataclass(frozen=True, slots=True)
class Found:
    """What was found of one call: see `core.memory_use.MemoryUse`."""

    peak_bytes: int
    phase: Step
    categories: dict[str, int]
    largest: tuple[Allocation, ...]
    largest_made: tuple[Allocation, ...]
    before_bytes: int
    phase_peaks: dict[str, int]
    outputs: tuple[OutputBytes, ...]
    device_peak_bytes: int | None
    device_before_bytes: int | None
    missing: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """What to follow.

    Args:
        fn: called once, as `fn(*arguments)`; what it returns is kept to the end.
        arguments: its arguments.
        model: whose submodules tell places; None where there is none.
        optimizer: whose state is known from the start; one that is not given is known from its first step on.
        predicted: bytes that a submodule's output should have, by its name.

    Raises:
        BadInput: the model or the optimizer is none, or `predicted` names what is no submodule.
    """

    fn: Callable[..., object]
    arguments: Sequence[object] = ()
    model: nn.Module | None = None
    optimizer: Optimizer | None = None
    predicted: Mapping[str, int] | None = None

    def __post_init__(self) -> None:
        if self.model is not None and not isinstance(self.model, nn.Module):
            raise BadInput(f"model is a {type(self.model).__name__}; expected a torch.nn.Module")
        if self.optimizer is not None and not isinstance(self.optimizer, Optimizer):
            raise BadInput(f"optimizer is a {type(self.optimizer).__name__}; expected a torch.optim.Optimizer")
        if self.predicted and self.model is None:
            raise BadInput("predicted is given without model; expected the model whose submodules it names")
        for name, size_bytes in (self.predicted or {}).items():
            if isinstance(size_bytes, bool) or not isinstance(size_bytes, int) or size_bytes < 0:
                raise BadInput(f"predicted has {size_bytes!r} for {name!r}; expected whole bytes, zero or more")


def take(device: Device, call: Call) -> Found:
    """Make the call and tell what its memory went into.

    Raises:
        BadInput: `predicted` names what is no submodule, or nothing of the call lies on the device.
        Exception: whatever the function raises; the model, the optimizer and torch are then as they were before.
    """
    places = Places(call.model, call.predicted or {})
    _refuse_unknown(places, call)
    tracker = Tracker(torch_device(device), places)
    # What only a collection would let go of is nothing that the call needs.
    gc.collect()
    device.synchronize()
    before_bytes = device.allocated().now_bytes
    rise_bytes = _follow(device, call, tracker, places)
    peak = find_peak(tracker.log)
    if not peak.alive:
        raise BadInput(f"memory saw no tensor on {device.name}; expected a function that works on roofline.device")
    tracked_before = peak.before_bytes if before_bytes is None else before_bytes
    return Found(
        peak_bytes=peak.size_bytes,
        phase=peak.step,
        categories=categories(peak, tracker.log),
        largest=largest(peak.alive, tracker.log),
        largest_made=largest(made_by_call(peak), tracker.log),
        before_bytes=peak.before_bytes,
        phase_peaks=peak.by_step,
        outputs=tuple(
            OutputBytes(name, size_bytes, places.outputs[name]) for name, size_bytes in (call.predicted or {}).items()
        ),
        device_peak_bytes=None if rise_bytes is None else tracked_before + rise_bytes,
        device_before_bytes=before_bytes,
        missing=(
            *unseen(device, tracker),
            *uncounted(device, rise_bytes, peak.returned_bytes if before_bytes is None else 0),
            *uncompiled(call.fn, call.model),
        ),
    )


def _follow(device: Device, call: Call, tracker: Tracker, places: Places) -> int | None:
    """The rise in memory by the device's own counter, while the tracker follows the call; None where it has none."""
    kept: list[object] = []
    try:
        rise_bytes = device.peak_bytes(lambda: _run(call, tracker, places, kept))
        if not kept:
            # A device that does not tell makes no call.
            _run(call, tracker, places, kept)
    finally:
        # The traceback of a failure holds on to this list.
        kept.clear()
    return rise_bytes


def _refuse_unknown(places: Places, call: Call) -> None:
    unknown = [name for name in call.predicted or {} if name not in places.names]
    if unknown:
        near = difflib.get_close_matches(unknown[0], places.names, n=3, cutoff=0.5)
        like = f", such as {', '.join(near)}" if near else ""
        raise BadInput(f"predicted names {unknown[0]!r}; expected a submodule of {type(call.model).__name__}{like}")


def _run(call: Call, tracker: Tracker, places: Places, kept: list[object]) -> None:
    with _uncompiled(), places.followed(), tracker.following():
        _mark(call, tracker)
        kept.append(call.fn(*call.arguments))
        tracker.mark_stored()
        _mark(call, tracker)


def _mark(call: Call, tracker: Tracker) -> None:
    if call.model is not None:
        tracker.mark_model(call.model)
    if call.optimizer is not None:
        tracker.mark_optimizer(call.optimizer)
    for tensor in tensors_in(call.arguments):
        tracker.mark(tensor, "inputs")


@contextlib.contextmanager
def _uncompiled() -> Iterator[None]:
    """Without compiled code: its operators cannot be followed, and torch would never compile again what it meets here.

    (torch 2.13: a frame that is called under a dispatch mode is skipped, and stays skipped when the mode is gone.)
    """
    with torch.compiler.set_stance("force_eager"):
        yield
