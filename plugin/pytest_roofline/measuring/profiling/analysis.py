"""From a trace to what a profile says: spans, classes, kernels, parts of the model, attention. Linear in the events."""

import gc
import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from ...core.profiles import AttentionTime, ClassTime, KernelTime, PartTime
from .activities import Activity, Windows, busy_s, calls_of, device_activities, host_activities
from .attention import attention_times
from .classes import Classifier
from .events import Trace
from .kernels import MOST_KERNELS, class_times, kernel_times
from .nesting import Nest
from .trace import load_trace

MOST_PARTS = 40
_NUMBER = re.compile(r"\d+")

NO_RANGES = (
    "no range names a part of the model, so nothing is told by part or of attention, and every softmax but a loss's is "
    "taken for attention's: {why}"
)
NO_MODEL = "give measure(model=…)"
NOT_RUN = (
    "no part of the model that was given ran its forward pass in Python here, as when only backward or the optimizer "
    "is measured, or when the model is compiled or replayed as a graph"
)
NO_ATTENTION = "no part of the model is named attention or attn, so softmax and matrix products are not compared there"
FUSED = "attention is fused: one kernel does both its matrix products and its softmax, which cannot be told apart"
NO_LAUNCHES = "{share:.0%} of the device's time was launched by no known operator, as in a graph: known by name alone"
# A few kernels are launched by libraries that the profiler does not watch.
FEW_UNKNOWN = 0.05


@dataclass(frozen=True, slots=True)
class Findings:
    """What a trace tells, as fields of a profile."""

    calls: int
    on_device: bool
    span_s: float
    busy_s: float
    overlap_s: float
    streams: int
    classes: tuple[ClassTime, ...]
    kernels: tuple[KernelTime, ...]
    distinct: int
    parts: tuple[PartTime, ...]
    attention: tuple[AttentionTime, ...]
    missing: tuple[str, ...]


def analyse_file(path: Path, *, has_model: bool = False) -> Findings:
    """Everything that a profile says of the trace in a file.

    Args:
        path: of the trace.
        has_model: whether a model was given, so that its parts would be ranges if they ran.

    Raises:
        BadFile: it cannot be read, or is no Chrome trace.
    """
    # A million objects without a cycle among them: looking for some takes longer than all the rest.
    was_on = gc.isenabled()
    gc.disable()
    try:
        return analyse(load_trace(path), has_model=has_model)
    finally:
        if was_on:
            gc.enable()


def analyse(trace: Trace, *, has_model: bool = False) -> Findings:
    """Everything that a profile says of the calls in a trace; of one without any call of ours, of all of it."""
    calls, nest = calls_of(trace), Nest(trace)
    windows, classes = Windows(calls), Classifier(nest.nodes)
    on_device = bool(trace.device)
    if on_device:
        activities = device_activities(trace, nest, classes, windows)
    else:
        activities = host_activities(nest, classes, windows, calls)
    span_s = sum(end_s - start_s for start_s, end_s in windows.spans(activities))
    busy, total_s = busy_s(activities), sum(activity.seconds for activity in activities)
    kernels = kernel_times(activities, span_s, on_device=on_device)
    attention = attention_times(activities)
    return Findings(
        calls=max(1, len(calls)),
        on_device=on_device,
        span_s=span_s,
        busy_s=busy,
        # Below a nanosecond it is the rounding of a sum.
        overlap_s=max(0.0, total_s - busy) if total_s - busy > 1e-9 else 0.0,
        streams=len({activity.stream for activity in activities}),
        classes=tuple(class_times(activities, span_s, busy)),
        kernels=tuple(kernels[:MOST_KERNELS]),
        distinct=len(kernels),
        parts=tuple(part_times(activities)[:MOST_PARTS]),
        attention=tuple(attention),
        missing=tuple(_missing(activities, attention, has_model)),
    )


def part_times(activities: Iterable[Activity]) -> list[PartTime]:
    """Every part of the model with what happened in it and in no part inside it; layers of one name together."""
    folded: dict[str, str] = {}
    forward: dict[str, float] = defaultdict(float)
    backward: dict[str, float] = defaultdict(float)
    for activity in activities:
        name = activity.ranges[-1] if activity.ranges else ""
        if name not in folded:
            folded[name] = ".".join("*" if _NUMBER.fullmatch(part) else part for part in name.split("."))
        (backward if activity.in_backward else forward)[folded[name]] += activity.seconds
    names = forward.keys() | backward.keys()
    if names <= {""}:
        return []
    parts = [PartTime(name, forward.get(name, 0.0), backward.get(name, 0.0)) for name in names]
    return sorted(parts, key=lambda part: (-part.total_s, part.part))


def _missing(activities: list[Activity], attention: list[AttentionTime], has_model: bool) -> list[str]:
    missing = []
    if not any(activity.ranges for activity in activities):
        missing.append(NO_RANGES.format(why=NOT_RUN if has_model else NO_MODEL))
    elif not attention:
        missing.append(NO_ATTENTION)
    if any(activity.kind == "attention fused" for activity in activities):
        missing.append(FUSED)
    total_s = sum(activity.seconds for activity in activities)
    unknown_s = sum(activity.seconds for activity in activities if not activity.has_operator)
    if unknown_s > FEW_UNKNOWN * total_s:
        missing.append(NO_LAUNCHES.format(share=unknown_s / total_s))
    return missing
