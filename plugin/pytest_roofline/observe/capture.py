"""The untimed pass after a measurement: some calls under a profiler, with the parts of the model as
ranges.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from ..engine.host import attached_profiler
from .shares import CALL, analyse

# The names that torch gives to a module inside a compiled, a sharded and a checkpointed one. No author uses them.
WRAPPERS = ("_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")
# The name of the only child of a data parallel module.
PARALLEL = "module"
# Calls to profile, and the seconds that they may take together.
MOST_CALLS, LONGEST_S = 3, 2.0
NO_DEVICE_ACTIVITIES = (
    "kernels on {kind}: torch.profiler does not record these kernels, so "
    "operators on the host are shown instead"
)
HIP_NEVER_STOPS = (
    "begin and end for the profiler, since torch's start and stop do nothing on ROCm. Select the ROCTX range `{CALL}` "
    "in the profiler; this range marks the profiled calls"
)
ELSEWHERE = "everything except the time of a call, since the external profiler records it"


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls to profile.

    Args:
        fn: the function that was measured.
        sets: sets of arguments to call it with, in turn.
        model: the model whose parts become ranges; None for none.
        call_s: the seconds of a measured call.
    """

    fn: Callable[..., object]
    sets: Sequence[tuple[object, ...]]
    model: nn.Module | None
    call_s: float

    @property
    def count(self) -> int:
        """Return the number of calls to profile.

        It is three, or as many as fit into two seconds, and one at least.
        """
        if self.call_s <= 0:
            return MOST_CALLS
        fitting_count = int(LONGEST_S / self.call_s)
        return max(1, min(MOST_CALLS, fitting_count))

    def call(self, index: int) -> None:
        """Call the function once, and drop its result."""
        self.fn(*self.sets[index % len(self.sets)])


def is_bracketed(device: str) -> bool:
    """Return whether a device can mark calls for an external profiler.

    CUDA and ROCm can; torch names the devices of both `cuda`.
    """
    return device.partition(":")[0] == "cuda"


def tool_for(choice: str, environment: Mapping[str, str], device: str) -> tuple[Tool, str]:
    """Return the profiler to use, and a remark.

    The remark is empty if it is the user's choice. Two profilers cannot both use one driver (a rule of CUPTI and
    ROCprofiler). So under an external profiler, torch's is used only for devices without such a driver.
    """
    if choice == "external":
        return "external", ""
    profiler = attached_profiler(environment) if is_bracketed(device) else ""
    if not profiler:
        return "torch", ""
    return "external", (
        f"this process runs under {profiler}, which excludes torch.profiler, so the ranges are set for {profiler} "
        "(--roofline-profile=external)"
    )


def watches(device: Device) -> bool:
    """Return whether torch.profiler hooks into this device's driver."""
    return len(_activities(device)) > 1


def take(device: Device, tool: Tool, calls: Calls, empty: Profile, trace: Path | None) -> Profile:
    """Profile some calls, and return `empty` with the findings.

    Args:
        device: that runs the calls.
        tool: the profiler.
        calls: to profile.
        empty: the profile of the test, without findings.
        trace: the file for torch's trace; None for none.

    Raises:
        RooflineError: the profiler cannot be used here, or recorded nothing.
    """
    profile = replace(
        empty, tool=tool, calls=calls.count, missing=tuple(_blind_spots(device, tool))
    )
    if tool == "external":
        return replace(profile, profiled_s=_under_external(device, calls))
    profiled_s, events = _under_torch(device, calls, trace)
    profile = replace(profile, profiled_s=profiled_s, trace=str(trace or ""))
    profile = analyse(profile, events, has_model=calls.model is not None)
    if not profile.kernels:
        raise RooflineError("the trace holds no activity; expected kernels or operators")
    return profile


def _blind_spots(device: Device, tool: Tool) -> list[str]:
    """Return sentences on what a profiler cannot record here."""
    if tool == "external":
        return [ELSEWHERE, *([HIP_NEVER_STOPS] if torch.version.hip is not None else [])]
    kind, _, _ = device.name.partition(":")
    if watches(device) or kind in ("cpu", "fake"):
        return []
    return [NO_DEVICE_ACTIVITIES.format(kind=kind)]


def _under_torch(
    device: Device, calls: Calls, trace: Path | None
) -> tuple[float, list[FunctionEvent]]:
    """Profile calls by torch. Return the median seconds of a call, and the events of all calls.

    The seconds are by the host's clock.
    """
    if torch._C._autograd._profiler_enabled():
        raise RooflineError("another profiler runs in this process, and torch allows only one")
    # The profiler drops the events of the first step, in which it starts itself.
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
    """Make calls that an external profiler records.

    Return the median seconds of a call. The calls stand between cudaProfilerStart and cudaProfilerStop (HIP's of that
    name), so that the profiler can be told to record only them: `--capture-range=cudaProfilerApi`.
    """
    with annotate(calls.model, nvtx_of(device.name)):
        _warm_up(device, calls)
        torch.cuda.profiler.start()
        try:
            seconds = [_bracketed_call(device, calls, index) for index in range(calls.count)]
        finally:
            torch.cuda.profiler.stop()
    return median(seconds)


def _activities(device: Device) -> list[ProfilerActivity]:
    """Return the activities that torch.profiler can record here.

    They are the operators of the host, and the work of the device where torch supports it.
    """
    names = {"CPU", device.name.partition(":")[0].upper()}
    return [
        activity for activity in torch.profiler.supported_activities() if activity.name in names
    ]


def _warm_up(device: Device, calls: Calls) -> None:
    """Call the function once without the profiler, unless a call takes long."""
    if calls.call_s <= LONGEST_S:
        calls.call(0)
        device.synchronize()


def _bracketed_call(device: Device, calls: Calls, index: int) -> float:
    """Make one call as a range, and return its seconds.

    The range and the time end when the device is done. The seconds are by the host's clock.
    """
    began_s = device.host_s()
    with _mark(CALL, nvtx_of(device.name)), record_function(CALL):
        calls.call(index)
        device.synchronize()
    return device.host_s() - began_s


# The functions that begin a range with a name, and that end it.
Marks = tuple[Callable[[str], object], Callable[[], object]]


def nvtx_of(device: str) -> Marks | None:
    """Return the functions that show ranges to an external profiler.

    They are those of NVTX, which torch maps to ROCTX under ROCm. It is None for other devices.
    """
    return (torch.cuda.nvtx.range_push, torch.cuda.nvtx.range_pop) if is_bracketed(device) else None


@contextlib.contextmanager
def _mark(name: str, marks: Marks | None) -> Iterator[None]:
    """Show this block to an external profiler as a range.

    Nothing is shown if it cannot see ranges.
    """
    if marks is None:
        yield
        return
    push_range, pop_range = marks
    push_range(name)
    try:
        yield
    finally:
        pop_range()


@contextlib.contextmanager
def annotate(model: nn.Module | None, marks: Marks | None) -> Iterator[None]:
    """Make every part of a model a range within this block.

    Hooks of the model's modules do it. They are removed at the end of the block, so they cost a timed call nothing.
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
    """Return the hooks that show a module as a range.

    One opens it before a call, one closes it afterwards.
    """
    # A list, since a part may be called within itself.
    open_ranges: list[Any] = []

    def before(*_: object) -> None:
        """Open the range; torch passes the module and its arguments."""
        if not torch.compiler.is_compiling():
            ranges = contextlib.ExitStack()
            ranges.enter_context(_mark(name, marks))
            ranges.enter_context(record_function(name))
            open_ranges.append(ranges)

    def after(*_: object) -> None:
        """Close the range that was opened last."""
        # This hook also runs after a call that failed, perhaps before its range was opened.
        if not torch.compiler.is_compiling() and open_ranges:
            open_ranges.pop().close()

    return before, after


def part_names(model: nn.Module) -> Callable[[str], str]:
    """Return a function from a module's path to the name that its author gave it.

    A path is one of `named_modules` or `named_parameters`. The names
    of wrappers are removed from it: in a data parallel model, `module.blocks.3.attention` becomes `blocks.3.attention`,
    and `module` becomes empty.
    """
    _, wrapper_count = _unwrap(model)

    def plain(path: str) -> str:
        """Return a path without the names of wrappers."""
        parts = path.split(".")[wrapper_count:]
        return ".".join(part for part in parts if part not in WRAPPERS)

    return plain


def class_name(model: nn.Module) -> str:
    """Return the class of a model inside its wrappers."""
    inner, _ = _unwrap(model)
    return type(inner).__name__


def _unwrap(model: nn.Module) -> tuple[nn.Module, int]:
    """Return the model inside its wrappers, and their number."""
    children = dict(model.named_children())
    # A wrapper has one child, whose name shows that it is a wrapper.
    if len(children) != 1 or not children.keys() <= {PARALLEL, *WRAPPERS}:
        return model, 0
    (child,) = children.values()
    inner, wrapper_count = _unwrap(child)
    return inner, wrapper_count + 1
