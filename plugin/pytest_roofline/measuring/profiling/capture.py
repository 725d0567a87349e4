"""The untimed pass: some calls by the host's clock and the device's stamps, then some under a profiler.

The numbers of this pass are no measurement: nothing is warmed up, rotated or repeated until it is known.
"""

import contextlib
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from ...core.errors import RooflineError
from ...core.profiles import Timers
from ..devices import Device
from .clocks import Subject, unprofiled
from .events import CALL
from .external import bracketed, is_bracketed
from .ranges import annotated, nvtx_of

NO_DEVICE_ACTIVITIES = (
    "kernels on {kind}: torch.profiler does not see them there, so its operators on the host stand in"
)
HIP_NEVER_STOPS = (
    "begin and end for the profiler: torch's calls for them do nothing on ROCm, so look by the ROCTX range "
    f"`{CALL}`, which is around the profiled calls alone"
)
ELSEWHERE = "everything but the clocks: the external profiler has it"


class NoProfile(RooflineError):
    """A profile could not be taken; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Captured:
    """What the pass left behind: the clocks, and what could not be had."""

    timers: Timers
    missing: tuple[str, ...]


def capture_torch(device: Device, subject: Subject, path: Path) -> Captured:
    """Profile with torch.profiler and write its Chrome trace.

    Args:
        device: the one that is measured.
        subject: what to call.
        path: of the trace, ending in `.gz` to be compressed.

    Raises:
        NoProfile: another profiler is at work in this process.
        Exception: whatever the function or the profiler raises.
    """
    if torch._C._autograd._profiler_enabled():
        raise NoProfile("a profiler is at work in this process already, and torch has one at a time")
    kinds, missing = _activities(device)
    host_s, device_s, why = unprofiled(device, subject)
    seconds: list[float] = []
    steps = schedule(wait=0, warmup=1, active=subject.calls, repeat=1)
    with (
        annotated(subject.model, nvtx_of(device.name)),
        profile(activities=kinds, schedule=steps, record_shapes=True) as profiler,
    ):
        _warm_up(device, subject)
        profiler.step()
        for index in range(subject.calls):
            seconds.append(_bracketed_call(device, subject, 1 + index))
            profiler.step()
    profiler.export_chrome_trace(str(path))
    return Captured(Timers(host_s, device_s, median(seconds)), (*missing, *why))


def capture_external(device: Device, subject: Subject) -> Captured:
    """The same pass for a profiler that watches from outside, which is told when to look.

    Raises:
        NoProfile: none can be told so on this device.
        Exception: whatever the function raises.
    """
    if not is_bracketed(device.name):
        raise NoProfile(f"an external profiler is told what to look at through CUDA or ROCm, and this is {device.name}")
    host_s, device_s, why = unprofiled(device, subject)
    if torch.version.hip is not None:
        why = (*why, HIP_NEVER_STOPS)
    with annotated(subject.model, nvtx_of(device.name)):
        _warm_up(device, subject)
        with bracketed():
            seconds = [_bracketed_call(device, subject, index) for index in range(subject.calls)]
    return Captured(Timers(host_s, device_s, median(seconds)), (ELSEWHERE, *why))


def watches(device: Device) -> bool:
    """Whether torch.profiler hooks into the driver of this device to profile it."""
    return len(_activities(device)[0]) > 1


def _activities(device: Device) -> tuple[list[ProfilerActivity], list[str]]:
    """What torch.profiler records of this device, and what it cannot."""
    kind = device.name.partition(":")[0]
    known = {"cuda": "CUDA", "xpu": "XPU"}
    wanted = getattr(ProfilerActivity, known[kind], None) if kind in known else None
    supported = torch.profiler.supported_activities()
    if wanted is not None and wanted in supported:
        return [ProfilerActivity.CPU, wanted], []
    on_host = kind in ("cpu", "fake")
    return [ProfilerActivity.CPU], [] if on_host else [NO_DEVICE_ACTIVITIES.format(kind=kind)]


def _warm_up(device: Device, subject: Subject) -> None:
    """One call that no profiler looks at, unless that takes long."""
    if not subject.is_long:
        subject.call(0)
        device.synchronize()


def _bracketed_call(device: Device, subject: Subject, index: int) -> float:
    """One call as a range, and the wait behind it; seconds by the host's clock."""
    marks = nvtx_of(device.name)
    began_s = device.host_s()
    with contextlib.ExitStack() as stack:
        if marks is not None:
            marks[0](CALL)
            stack.callback(marks[1])
        with record_function(CALL):
            subject.call(index)
    device.synchronize()
    return device.host_s() - began_s
