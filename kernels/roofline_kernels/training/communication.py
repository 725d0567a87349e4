"""The share of a step that goes into communication between ranks, from a profile: all of it, and the exposed part.

*Communication* is the union of all times in which a collective is on its way: on an accelerator its kernels are on the
device; over Gloo it is under way from when it is handed to Gloo's threads until it is done. Waiting for a slower rank
is in it. What is *exposed* of it is the part in which this rank computes nothing: on an accelerator no other kernel or
copy is on it, on a CPU the training thread is in no operator.

A profiler makes steps slower, and a CPU's more than an accelerator's: shares are taken of profiled steps, and nothing
here is a measured time.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol

import torch
from torch.profiler import ProfilerActivity, profile, record_function

from .intervals import Interval, common, length, union, without

# The range around each step, which has its name from here only.
STEP = "roofline: training step"
# Kernels of NCCL and RCCL, whatever the release: ncclDevKernel_AllReduce_Sum_f32_RING_LL, ncclKernel_AllReduce_….
_DEVICE_COLLECTIVE = ("nccl", "rccl")
_HOST_COLLECTIVE = "gloo:"
# Operators that work on this rank's own data; ranges that only surround them, or that wait, have other names.
_HOST_WORK = (
    "aten::",
    "fsdp::",
    "torch::distributed::reducer::",
    "torch.distributed.ddp.reducer::",
)


class _Span(Protocol):
    start: float
    end: float


class _Kind(Protocol):
    name: str


class Event(Protocol):
    """The part of an event of `torch.profiler` that is used here; times are in microseconds."""

    @property
    def name(self) -> str: ...
    @property
    def time_range(self) -> _Span: ...
    @property
    def device_type(self) -> _Kind: ...


@dataclass(frozen=True, slots=True)
class Communication:
    """Seconds of profiled steps on one rank.

    Args:
        step_s: all of them together.
        communication_s: during which a collective was on its way.
        exposed_s: of those, during which this rank computed nothing.
    """

    step_s: float
    communication_s: float
    exposed_s: float

    @property
    def share(self) -> float:
        """Communication as a share of the step."""
        return self.communication_s / self.step_s

    @property
    def exposed_share(self) -> float:
        """Exposed communication as a share of the step."""
        return self.exposed_s / self.step_s


def profiled(step: Callable[[], object], device: torch.device, steps: int) -> Communication:
    """Run steps under torch's profiler, and return the seconds of their communication.

    Args:
        step: one training step, warmed up.
        device: where it runs.
        steps: how many, one after the other.

    Raises:
        ValueError: the profiler saw no step.
    """
    activities = [ProfilerActivity.CPU]
    if device.type in ("cuda", "xpu"):
        activities.append(getattr(ProfilerActivity, device.type.upper()))
    with profile(activities=activities) as profiler:
        for _ in range(steps):
            with record_function(STEP):
                step()
                if device.type != "cpu":
                    # The queued work of a step is a part of it.
                    getattr(torch, device.type).synchronize(device)
    return communication_of(profiler.events() or ())


def communication_of(events: Iterable[Event]) -> Communication:
    """Return the seconds of communication of the steps in a profile.

    Raises:
        ValueError: there is no step in it.
    """
    host: list[Event] = []
    device: list[Event] = []
    for event in events:
        (host if event.device_type.name == "CPU" else device).append(event)
    steps = union(_times(host, lambda name: name == STEP))
    if not steps:
        raise ValueError(f"the profile has no range {STEP!r}; expected one around each step")
    collectives, work = _on_device(device, {event.name for event in host})
    if not device:
        collectives = _times(host, lambda name: name.startswith(_HOST_COLLECTIVE))
        work = _times(host, lambda name: name.startswith(_HOST_WORK))
    communication = common(collectives, steps)
    return Communication(
        step_s=length(steps) * 1e-6,
        communication_s=length(communication) * 1e-6,
        exposed_s=length(without(communication, work)) * 1e-6,
    )


def _on_device(device: list[Event], ranges: set[str]) -> tuple[list[Interval], list[Interval]]:
    """Return the times of collectives, and those of other kernels and copies, on a device.

    The profiler also shows the host's named `ranges` on the device; they are left out.
    """
    collectives = _times(device, lambda name: name not in ranges and _is_collective(name))
    work = _times(device, lambda name: name not in ranges and not _is_collective(name))
    return collectives, work


def _is_collective(kernel: str) -> bool:
    """Return whether a kernel is one of NCCL or RCCL, by its name."""
    return any(word in kernel.lower() for word in _DEVICE_COLLECTIVE)


def _times(events: Iterable[Event], is_wanted: Callable[[str], bool]) -> list[Interval]:
    """Return the times of events with a wanted name.

    An event that ends before it starts is left out: its clocks did not agree.
    """
    spans = (event.time_range for event in events if is_wanted(event.name))
    return [(span.start, span.end) for span in spans if span.start <= span.end]
