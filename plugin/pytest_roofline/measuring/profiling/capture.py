"""The untimed pass: some calls by the host's clock and the device's stamps, then some under a profiler.

The numbers of this pass are no measurement: nothing is warmed up, rotated or repeated until it is known.
"""

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function, schedule

from ...core.errors import DeviceError, RooflineError
from ...core.profiles import Timers
from ..devices import Device
from .external import bracketed, is_bracketed
from .ranges import annotated, nvtx_of
from .trace import CALL

# So many calls tell of a step, as long as they fit into this time, in seconds.
MOST_CALLS, LONGEST_S = 3, 2.0

NO_DEVICE_ACTIVITIES = (
    "kernels on {kind}: torch.profiler does not see them there, so its operators on the host stand in"
)
NO_STAMPS = "the device's timer: {why}"
ELSEWHERE = "everything but the clocks: the external profiler has it"


class NoProfile(RooflineError):
    """A profile could not be taken; the sentence says why."""


@dataclass(frozen=True, slots=True)
class Subject:
    """What is profiled.

    Args:
        fn: the function that was measured.
        sets: arguments to call it with, in turn.
        model: whose parts become ranges; None for none.
        call_s: about how long a call takes, in seconds.
    """

    fn: Callable[..., object]
    sets: Sequence[tuple[object, ...]]
    model: Any
    call_s: float

    @property
    def calls(self) -> int:
        """How many calls are profiled: three, or as many as fit into two seconds, one at least."""
        return max(1, min(MOST_CALLS, int(LONGEST_S / self.call_s))) if self.call_s > 0 else MOST_CALLS

    def call(self, index: int) -> None:
        """One call; what it returns is let go at once."""
        self.fn(*self.sets[index % len(self.sets)])


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
    host_s, device_s, why = _unprofiled(device, subject)
    seconds: list[float] = []
    steps = schedule(wait=0, warmup=1, active=subject.calls, repeat=1)
    with (
        annotated(subject.model, nvtx_of(device.name)),
        profile(activities=kinds, schedule=steps, record_shapes=True) as profiler,
    ):
        for index in range(1 + subject.calls):
            seconds.append(_bracketed_call(device, subject, index))
            profiler.step()
    profiler.export_chrome_trace(str(path))
    timers = Timers(host_s, device_s, median(seconds[1:]))
    return Captured(timers, (*missing, *why))


def capture_external(device: Device, subject: Subject) -> Captured:
    """The same pass for a profiler that watches from outside, which is told when to look.

    Raises:
        NoProfile: none can be told so on this device.
        Exception: whatever the function raises.
    """
    if not is_bracketed(device.name):
        raise NoProfile(f"an external profiler is told what to look at through CUDA or ROCm, and this is {device.name}")
    host_s, device_s, why = _unprofiled(device, subject)
    seconds: list[float] = []
    with annotated(subject.model, nvtx_of(device.name)):
        _bracketed_call(device, subject, 0)
        with bracketed():
            seconds = [_bracketed_call(device, subject, index) for index in range(subject.calls)]
    return Captured(Timers(host_s, device_s, median(seconds)), (ELSEWHERE, *why))


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


def _unprofiled(device: Device, subject: Subject) -> tuple[float, float | None, tuple[str, ...]]:
    """Seconds of a call by the host's clock and by the device's stamps, medians; and why none by the latter."""
    host: list[float] = []
    stamped: list[float] = []
    why = "reading its stamps can hang here" if device.traits.watchdog_s is not None else ""
    device.synchronize()
    for index in range(subject.calls):
        began_s = device.host_s()
        start = None if why else device.stamp()
        subject.call(index)
        end = None if why else device.stamp()
        device.synchronize()
        host.append(device.host_s() - began_s)
        if start is not None and end is not None:
            try:
                stamped.append(device.elapsed_s(start, end))
            except DeviceError as error:
                why = str(error)
    complete = len(stamped) == subject.calls
    return median(host), median(stamped) if complete else None, () if complete else (NO_STAMPS.format(why=why),)
