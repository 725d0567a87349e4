"""The untimed pass behind a measurement: some calls under a profiler. The model's parts become
ranges.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch import nn
from torch.autograd.profiler_util import FunctionEvent
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from ..core.errors import RooflineError
from ..core.profiles import Profile, Tool
from ..engine.devices import Device
from .external import is_bracketed
from .shares import CALL, analyse

# No author of a model gives a part one of these names: compiled, sharded, checkpointed.
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# Data parallel modules have it alone, and nothing beside it.
PARALLEL = "module"
# So many calls tell of a step, as long as they fit into this time, in seconds.
MOST_CALLS, LONGEST_S = 3, 2.0
NO_DEVICE_ACTIVITIES = (
    "kernels on {kind}: torch.profiler does not record them, so "
    "operators on the host are shown instead"
)
HIP_NEVER_STOPS = (
    "begin and end for the profiler: torch's start and stop do nothing on ROCm; select the ROCTX range `{CALL}` "
    "in the profiler, which marks the profiled calls"
)
ELSEWHERE = "everything except the time of a call, since the external profiler records it"


class NoProfile(RooflineError):
    """A profile could not be taken; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls to profile.

    Args:
        fn: the function that was measured.
        sets: arguments to call it with, in turn.
        model: whose parts become ranges; None for none.
        call_s: how long a measured call took, in seconds.
    """

    fn: Callable[..., object]
    sets: Sequence[tuple[object, ...]]
    model: nn.Module | None
    call_s: float

    @property
    def count(self) -> int:
        """Return how many calls to profile. There are three, or as many as fit into two seconds,
        one at least.
        """
        return (
            max(1, min(MOST_CALLS, int(LONGEST_S / self.call_s))) if self.call_s > 0 else MOST_CALLS
        )

    def call(self, index: int) -> None:
        """One call; what it returns is let go at once."""
        self.fn(*self.sets[index % len(self.sets)])


def watches(device: Device) -> bool:
    """Return whether torch.profiler hooks into this device's driver."""
    return len(_activities(device)) > 1


def take(device: Device, tool: Tool, calls: Calls, empty: Profile, trace: Path | None) -> Profile:
    """Return `empty` with the findings of a pass over some calls. `empty` names what was measured."""
    profile = replace(
        empty, tool=tool, calls=calls.count, missing=tuple(_blind_spots(device, tool))
    )
    if tool == "external":
        return replace(profile, profiled_s=_under_external(device, calls))
    profiled_s, events = _under_torch(device, calls, trace)
    profile = replace(profile, profiled_s=profiled_s, trace=str(trace or ""))
    profile = analyse(profile, events, has_model=calls.model is not None)
    if not profile.kernels:
        raise NoProfile("the trace holds no activity; expected kernels or operators")
    return profile


def _blind_spots(device: Device, tool: Tool) -> list[str]:
    """Return what a profiler cannot tell of this device, in sentences."""
    if tool == "external":
        return [ELSEWHERE, *([HIP_NEVER_STOPS] if torch.version.hip is not None else [])]
    kind = device.name.partition(":")[0]
    return (
        []
        if watches(device) or kind in ("cpu", "fake")
        else [NO_DEVICE_ACTIVITIES.format(kind=kind)]
    )


def _under_torch(
    device: Device, calls: Calls, trace: Path | None
) -> tuple[float, list[FunctionEvent]]:
    """Return the seconds of a call, and the events of all calls. The seconds are a median by the
    host's clock.
    """
    if torch._C._autograd._profiler_enabled():
        raise NoProfile("another profiler runs in this process, and torch allows only one")
    steps = schedule(wait=0, warmup=1, active=calls.count, repeat=1)
    seconds: list[float] = []
    with (
        annotate(calls.model, nvtx_of(device.name)),
        profile(
            activities=_activities(device), schedule=steps, record_shapes=True, with_flops=True
        ) as profiler,
    ):
        _warm_up(device, calls)
        profiler.step()
        for index in range(calls.count):
            seconds.append(_bracketed_call(device, calls, 1 + index))
            profiler.step()
    if trace is not None:
        profiler.export_chrome_trace(str(trace))
    return median(seconds), list(profiler.events() or ())


def _under_external(device: Device, calls: Calls) -> float:
    """Return the seconds of a call while a profiler watches from outside. The pass is the same; the
    profiler is told when to look.

    It looks between cudaProfilerStart and cudaProfilerStop (HIP's of that name): `--capture-range=cudaProfilerApi`.
    """
    if not is_bracketed(device.name):
        raise NoProfile(
            f"an external profiler needs CUDA or ROCm to mark the calls, and this device is {device.name}"
        )
    with annotate(calls.model, nvtx_of(device.name)):
        _warm_up(device, calls)
        torch.cuda.profiler.start()
        try:
            seconds = [_bracketed_call(device, calls, index) for index in range(calls.count)]
        finally:
            torch.cuda.profiler.stop()
    return median(seconds)


def _activities(device: Device) -> list[ProfilerActivity]:
    """Return what torch.profiler can record here. It is the host's operators, and the device's
    work.
    """
    names = {"CPU", device.name.partition(":")[0].upper()}
    return [
        activity for activity in torch.profiler.supported_activities() if activity.name in names
    ]


def _warm_up(device: Device, calls: Calls) -> None:
    """One call that no profiler looks at, unless that takes long."""
    if calls.call_s <= LONGEST_S:
        calls.call(0)
        device.synchronize()


def _bracketed_call(device: Device, calls: Calls, index: int) -> float:
    """Make one call as a range, and return its seconds. The range lasts until the device is done;
    the seconds are by the host's clock.
    """
    began_s = device.host_s()
    with _mark(CALL, nvtx_of(device.name)), record_function(CALL):
        calls.call(index)
        device.synchronize()
    return device.host_s() - began_s


Marks = tuple[Callable[[str], object], Callable[[], object]]


def nvtx_of(device: str) -> Marks | None:
    """Return the functions that show ranges to an external profiler. It is NVTX, which torch maps
    to ROCTX under ROCm; None if neither.
    """
    return (torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop) if is_bracketed(device) else None


@contextlib.contextmanager
def _mark(name: str, marks: Marks | None) -> Iterator[None]:
    if marks is None:
        yield
        return
    marks[0](name)
    try:
        yield
    finally:
        marks[1]()


@contextlib.contextmanager
def annotate(model: nn.Module | None, marks: Marks | None) -> Iterator[None]:
    """Make every part of a model a range, within this block. The hooks are gone behind it, whatever
    happens.

    They are set only as long as the profiled calls last: a timed call pays nothing for them.
    """
    with contextlib.ExitStack() as hooks:
        if model is not None:
            plain = part_names(model)
            for path, module in model.named_modules():
                before, after = _hooks(plain(path) or class_name(model), marks)
                hooks.callback(module.register_forward_pre_hook(before, prepend=True).remove)
                hooks.callback(module.register_forward_hook(after, always_call=True).remove)
        yield


def _hooks(name: str, marks: Marks | None) -> tuple[Callable[..., None], Callable[..., None]]:
    """Return the hooks that open and close a range. A part may be called within itself."""
    open_ranges: list[Any] = []

    def before(*_: object) -> None:
        if not torch.compiler.is_compiling():
            ranges = contextlib.ExitStack()
            ranges.enter_context(_mark(name, marks))
            ranges.enter_context(record_function(name))
            open_ranges.append(ranges)

    def after(*_: object) -> None:
        # A failed call ends its ranges too, and those that were never opened have no end.
        if not torch.compiler.is_compiling() and open_ranges:
            open_ranges.pop().close()

    return before, after


def part_names(model: nn.Module) -> Callable[[str], str]:
    """Return a function from a module's path to its author's name. The path is of `named_modules`
    or `named_parameters`.

    The model itself has an empty name: `module.blocks.3.attention` becomes `blocks.3.attention`, `module` nothing.
    """
    _, wrapped = _unwrap(model)

    def plain(path: str) -> str:
        return ".".join(part for part in path.split(".")[wrapped:] if part not in WRAPPERS)

    return plain


def class_name(model: nn.Module) -> str:
    """The class of a model inside its wrappers."""
    return type(_unwrap(model)[0]).__name__


def _unwrap(model: nn.Module) -> tuple[nn.Module, int]:
    """Return the model inside its wrappers, and how many there are."""
    children = dict(model.named_children())
    if len(children) != 1 or not children.keys() <= {PARALLEL, *WRAPPERS}:
        return model, 0
    inner, wrapper_count = _unwrap(*children.values())
    return inner, wrapper_count + 1
