"""A profile from the events of torch.profiler: classes, kernels, parts of the model, attention."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from ..core.groups import group_by
from ..core.profiles import (
    LAUNCH,
    AttentionTime,
    ClassTime,
    KernelTime,
    OperatorTime,
    PartTime,
    Phase,
    Profile,
)
from .classes import class_of, in_attention

if TYPE_CHECKING:
    from torch.autograd.profiler_util import FunctionEvent

# The name of the range around each profiled call, which lasts until the device is done.
CALL = "roofline call"
# The most kernels, operators, functions of autograd and parts of a profile, and the names that are listed with a class.
MOST_KERNELS, MOST_OPERATORS, MOST_FUNCTIONS, MOST_PARTS, MOST_NAMES = 20, 40, 4, 40, 3
# FLOPs of a softmax for each score. This is a convention: an exponential takes many instructions, a maximum none that
# counts.
SOFTMAX_FLOPS: dict[Phase, int] = {"forward": 5, "backward": 4}
_SOFTMAX_OPERATORS = ("aten::_softmax", "aten::_softmax_backward_data", "aten::exp", "aten::exp_")
# Batched products, which multiply activations with each other. Products with weights are batched in a linear layer
# only.
_BATCHED = ("aten::bmm", "aten::baddbmm")
# The scope that torch gives to a node of autograd's backward pass.
_BACKWARD_FUNCTION = 1
# The names of ranges that torch itself makes; they are no parts of a model.
_NOT_PARTS = re.compile(
    rf"{CALL}|ProfilerStep[*#].*|PyTorch Profiler.*|Optimizer\..*|enumerate\(DataLoader\).*|"
    r"(nccl|gloo|mpi|ucc|xccl):.*|## .* ##|"
    r"Torch-Compiled Region.*|TorchDynamo.*|.*CompiledFxGraph.*|Pregraph bytecode|Iteration Start.*"
)
# The share of the device's time up to which kernels may have no known operator without a remark: libraries that the
# profiler does not watch launch some.
FEW_UNKNOWN = 0.05

NO_RANGES = (
    "shares by part, since no range names a part of the model ({why}). Every softmax outside of a loss "
    "counts as attention"
)
NO_MODEL = "pass measure(model=…)"
NOT_RUN = (
    "no part of the model ran its forward pass in Python; only backward or the optimizer is measured, "
    "or the model is compiled or replayed as a graph"
)
NO_ATTENTION = (
    "the comparison of softmax and matrix products in attention, since no part of the model is named "
    "attention or attn"
)
FUSED = "softmax and matrix products of attention as two times, since one fused kernel does the work of both"
NO_LAUNCHES = (
    "the operators of {share:.0%} of the device's time, as in a graph; these kernels are "
    "sorted by name only"
)


@dataclass(frozen=True, slots=True)
class Activity:
    """One piece of work within a profiled call. It is a kernel, a copy or a fill; on a CPU an
    operator's own time.

    Args:
        name: of the kernel or operator.
        kind: its class.
        seconds: that it took.
        event: the operator that launched it, or the operator itself; None where it is unknown.
        ranges: the model's parts around it, the outermost first. Backward work has those of its forward operator.
        backward: whether it belongs to the backward pass.
        count: the number of launches; more than one only where the operator is unknown.
        is_first: whether it is the first of its operator, so that the operator's FLOPs are counted once.
    """

    name: str
    kind: str
    seconds: float
    event: "FunctionEvent | None" = None
    ranges: tuple[str, ...] = ()
    backward: bool = False
    count: int = 1
    is_first: bool = True

    @property
    def is_of_activations(self) -> bool:
        """Return whether a matrix product multiplies activations with each other.

        It is then a batched product, as of scores and values, outside of a linear layer. All other products are with
        weights.
        """
        if self.event is None:
            return False
        is_in_linear = any(operator.name == "aten::linear" for operator in _upward(self.event))
        # The event may be the batched product itself, or the operator that calls it.
        candidates = (self.event, *self.event.cpu_children)
        return not is_in_linear and any(operator.name in _BATCHED for operator in candidates)


def analyse(profile: Profile, events: Iterable["FunctionEvent"], *, has_model: bool) -> Profile:
    """Return a profile with its shares of time.

    They come from the events that torch's profiler recorded in its calls. Times are of the device's work; without a
    device they are of the operators on the host.
    """
    events_in_calls = _in_calls(events)
    host = [event for event in events_in_calls if _is_on_host(event)]
    device = [event for event in events_in_calls if not _is_on_host(event)]
    places = _places(host)
    host_activities = list(_host_activities(host, places))
    activities = list(_device_activities(device, host, places)) if device else host_activities
    calls = [event for event in host if event.name == CALL]
    span_s = sum(event.time_range.elapsed_us() for event in calls) * 1e-6
    kernels = _kernel_times(activities, span_s)
    attention = _attention_times(activities)
    return replace(
        profile,
        on_device=bool(device),
        calls=len(calls),
        span_s=span_s,
        busy_s=_seconds(activities),
        host_s=_seconds(host_activities),
        classes=tuple(_class_times(activities, span_s)),
        kernels=tuple(kernels[:MOST_KERNELS]),
        distinct=len(kernels),
        operators=tuple(
            _operator_times(host, {event.name for event in device if event.is_user_annotation})
        ),
        parts=tuple(_part_times(activities)[:MOST_PARTS]),
        attention=tuple(attention),
        missing=(*profile.missing, *_missing(activities, attention, has_model)),
    )


def _in_calls(events: Iterable["FunctionEvent"]) -> list["FunctionEvent"]:
    """Return the events that began within a profiled call, in order.

    Each call lasts until the device is done, so its kernels are within it too.
    """
    ordered = sorted(events, key=lambda event: (event.time_range.start, -event.time_range.end))
    calls = [event.time_range for event in ordered if event.name == CALL and _is_on_host(event)]
    return [
        event
        for event in ordered
        if any(call.start <= event.time_range.start <= call.end for call in calls)
    ]


def _is_on_host(event: "FunctionEvent") -> bool:
    return bool(event.device_type.name == "CPU")


# The ranges around an event, and whether it is backward work.
Ranges = tuple[tuple[str, ...], bool]


def _places(host: Iterable["FunctionEvent"]) -> dict[int, Ranges]:
    """Return the ranges around each event of the host.

    They stand by the event's `id`, with whether it is of the backward pass. A node of the backward pass gets the ranges
    of its forward operator. Both have the same number, which autograd counts in each thread.
    """
    places: dict[int, Ranges] = {}
    forward_places: dict[tuple[int, int | None], Ranges] = {}
    # Events are in the order of their beginning, so the parent of an event comes before it.
    for event in host:
        ranges, backward = places.get(id(event.cpu_parent), ((), False))
        if event.is_user_annotation:
            ranges = ranges if _NOT_PARTS.fullmatch(event.name) else (*ranges, event.name)
        elif event.scope == _BACKWARD_FUNCTION or event.name.startswith("autograd::engine::"):
            forward_place = forward_places.get((event.sequence_nr, event.fwd_thread))
            if forward_place is not None:
                ranges, _ = forward_place
            backward = True
        elif event.sequence_nr >= 0:
            # Several operators have the same number; the last of them made the node, so it replaces the others.
            forward_places[event.sequence_nr, event.thread] = ranges, backward
        places[id(event)] = ranges, backward
    return places


def _upward(event: "FunctionEvent | None") -> Iterator["FunctionEvent"]:
    """Yield an event and all events around it, the innermost first."""
    while event is not None:
        yield event
        event = event.cpu_parent


def _names_around(event: "FunctionEvent") -> list[str]:
    """Return the operators around an operator, outermost first.

    Its own name is the last. Ranges that are parts of the model are left out.
    """
    innermost_first = [
        operator.name
        for operator in _upward(event)
        if not operator.is_user_annotation or _NOT_PARTS.fullmatch(operator.name)
    ]
    return innermost_first[::-1]


def _host_activities(
    host: Iterable["FunctionEvent"], places: dict[int, Ranges]
) -> Iterator[Activity]:
    """Yield the operators of the host as activities.

    Each has its time less that of operators inside it.
    """
    for event in host:
        # A wait for the device is no work of an operator.
        if event.is_user_annotation or event.is_async or "Synchronize" in event.name:
            continue
        ranges, backward = places[id(event)]
        kind = class_of(_names_around(event), ranges)
        # The profiler gives microseconds.
        seconds = max(0.0, event.self_cpu_time_total) * 1e-6
        yield Activity(event.name, kind, seconds, event, ranges, backward)


def _device_activities(
    device: Sequence["FunctionEvent"], host: Iterable["FunctionEvent"], places: dict[int, Ranges]
) -> Iterator[Activity]:
    """Yield the kernels and copies of the device as activities.

    First come kernels that a known operator launched. All launches that remain are then yielded as
    one activity for each name, since only their name is known.
    """
    # The profiler repeats ranges among the device's events; they are no kernels.
    range_names = {event.name for event in device if event.is_user_annotation}
    # By name, the seconds and the number of launches without a known operator.
    remaining_s: dict[str, float] = defaultdict(float)
    remaining_count: Counter[str] = Counter()
    for event in device:
        if not event.is_user_annotation:
            remaining_s[event.name] += event.time_range.elapsed_us() * 1e-6
            remaining_count[event.name] += 1
    for event in host:
        ranges, backward = places[id(event)]
        kernels = [kernel for kernel in event.kernels if kernel.name not in range_names]
        for index, kernel in enumerate(kernels):
            kind = class_of(_names_around(event), ranges, kernel.name)
            seconds = kernel.duration * 1e-6
            yield Activity(kernel.name, kind, seconds, event, ranges, backward, is_first=index == 0)
            remaining_s[kernel.name] -= seconds
            remaining_count[kernel.name] -= 1
    for name, launch_count in remaining_count.items():
        if launch_count > 0:
            kind = class_of((), (), name)
            yield Activity(name, kind, max(0.0, remaining_s[name]), count=launch_count)


BY_KIND, BY_NAME = attrgetter("kind"), attrgetter("name")


def _seconds(activities: Iterable[Activity]) -> float:
    return sum(activity.seconds for activity in activities)


def _groups(
    activities: Iterable[Activity], key: Callable[[Activity], str]
) -> dict[str, list[Activity]]:
    """Return activities in groups by a key. The group with the longest time in all is first."""
    groups = group_by(activities, key)
    longest_first = sorted(groups, key=lambda name: -_seconds(groups[name]))
    return {name: groups[name] for name in longest_first}


def _times(activities: Sequence[Activity], span_s: float) -> tuple[float, float, int]:
    """Return seconds, share of the span, and launches."""
    total_s = _seconds(activities)
    return total_s, _share(total_s, span_s), sum(activity.count for activity in activities)


def _share(seconds: float, span_s: float) -> float:
    return seconds / span_s if span_s > 0 else 0.0


def _class_times(activities: Sequence[Activity], span_s: float) -> list[ClassTime]:
    """Return the time and share of each class of work.

    The longest is first, and the idle time comes at the end.
    """
    times = []
    for kind, group in _groups(activities, BY_KIND).items():
        longest_names = tuple(_groups(group, BY_NAME))[:MOST_NAMES]
        times.append(ClassTime(kind, *_times(group, span_s), longest_names))  # type: ignore[arg-type]
    idle_s = max(0.0, span_s - _seconds(activities))
    return [*times, ClassTime("idle", idle_s, _share(idle_s, span_s))]


def _kernel_times(activities: Sequence[Activity], span_s: float) -> list[KernelTime]:
    """Return the times of every kernel by name, the longest first.

    Launches of one name may have several classes; the class is the one with the longest time.
    """
    times = []
    for name, group in _groups(activities, BY_NAME).items():
        longest_kind, *_ = _groups(group, BY_KIND)
        times.append(KernelTime(name, longest_kind, *_times(group, span_s)))  # type: ignore[arg-type]
    return times


def _operator_times(host: Iterable["FunctionEvent"], ranges: set[str]) -> list[OperatorTime]:
    """Return the operators on the host, by name.

    They are the operators with the longest times on the device and on the host. Launches, the
    optimizer's step and the longest functions of autograd are kept however short their own times are:
    a function spends its time in the operators inside it.

    Args:
        host: the events on the host.
        ranges: the names of ranges, which the profiler repeats among the kernels.
    """
    groups = _operators_by_name(host)
    self_s = {
        name: sum(max(0.0, event.self_cpu_time_total) for event in named_events) * 1e-6
        for name, named_events in groups.items()
    }
    total_s = sum(self_s.values())
    rows = [
        OperatorTime(
            name,
            self_cpu_s=self_s[name],
            share=_share(self_s[name], total_s),
            cpu_s=sum(event.cpu_time_total for event in named_events) * 1e-6,
            count=len(named_events),
            self_device_s=sum(_launched_us(event, ranges) for event in named_events) * 1e-6,
            device_s=sum(_launched_us(event, ranges, inside=True) for event in named_events) * 1e-6,
        )
        for name, named_events in groups.items()
    ]
    # The first rows are those with the longest times on the device.
    rows.sort(key=lambda row: (-row.device_s, -row.self_cpu_s))
    functions = {name for name, events in groups.items() if events[0].scope == _BACKWARD_FUNCTION}
    kept_names = _kept_names(rows, functions)
    kept_rows = [
        row for number, row in enumerate(rows) if number < MOST_KERNELS or row.name in kept_names
    ]
    return kept_rows[:MOST_OPERATORS]


def _operators_by_name(host: Iterable["FunctionEvent"]) -> "dict[str, list[FunctionEvent]]":
    """Return the events of operators on the host, by name.

    Ranges are left out, but for the optimizer's; so are waits for the device.
    """

    def is_operator(event: "FunctionEvent") -> bool:
        is_range = event.is_user_annotation and not event.name.startswith("Optimizer.")
        return not (is_range or event.is_async or "Synchronize" in event.name)

    return group_by(filter(is_operator, host), BY_NAME)


def _kept_names(rows: Sequence[OperatorTime], functions: Collection[str]) -> set[str]:
    """Return the names of rows that are always kept.

    Their times on the device may be short. They are the operators that keep the host busy the longest, the longest
    functions of autograd, launches, and the optimizer's step. `functions` has the names of all functions of autograd.
    """
    by_self_time = sorted(rows, key=lambda row: -row.self_cpu_s)
    busiest = {row.name for row in by_self_time[:MOST_KERNELS]}
    function_rows = [row for row in rows if row.name in functions]
    by_whole_time = sorted(function_rows, key=lambda row: -row.cpu_s)
    longest = {row.name for row in by_whole_time[:MOST_FUNCTIONS]}
    special = {
        row.name
        for row in rows
        if LAUNCH.fullmatch(row.name) or row.name.startswith("Optimizer.step")
    }
    return busiest | longest | special


def _launched_us(event: "FunctionEvent", ranges: set[str], *, inside: bool = False) -> float:
    """Return the microseconds of the kernels that an operator launched.

    With `inside`, kernels of the operators inside it count too.
    """
    total: float = sum(kernel.duration for kernel in event.kernels if kernel.name not in ranges)
    if inside:
        total += sum(_launched_us(child, ranges, inside=True) for child in event.cpu_children)
    return total


def _part_times(activities: Sequence[Activity]) -> list[PartTime]:
    """Return the times of every part of the model.

    The parts inside it are left out. Layers that differ only in their number are one part. The list is empty without
    any part.
    """
    parts = [
        PartTime(
            name,
            forward_s=_seconds(activity for activity in group if not activity.backward),
            backward_s=_seconds(activity for activity in group if activity.backward),
        )
        for name, group in _groups(activities, _part_of).items()
    ]
    if not any(part.part for part in parts):
        return []
    return sorted(parts, key=lambda part: (-part.forward_s - part.backward_s, part.part))


def _part_of(activity: Activity) -> str:
    """Return the innermost part around an activity, as `blocks.*.attention`.

    Numbers between dots become `*`. It is empty outside of any part.
    """
    if not activity.ranges:
        return ""
    *_, innermost = activity.ranges
    return ".".join("*" if word.isdecimal() else word for word in innermost.split("."))


def _attention_times(activities: Sequence[Activity]) -> list[AttentionTime]:
    """Return the times of attention, forward and backward.

    A phase without activities is left out. The list is empty where no range is attention.
    """
    attention_activities = [
        activity for activity in activities if activity.ranges and in_attention(activity.ranges)
    ]
    times: list[AttentionTime] = []
    score_count: int | None = None
    for phase in SOFTMAX_FLOPS:
        phase_activities = [
            activity
            for activity in attention_activities
            if activity.backward == (phase == "backward")
        ]
        if phase_activities:
            # Backward work may not tell the number of scores; it is the same as forward.
            score_count = _score_count(phase_activities) or score_count
            times.append(_attention_time(phase, phase_activities, score_count))
    return times


def _attention_time(
    phase: Phase, activities: Sequence[Activity], score_count: int | None
) -> AttentionTime:
    """Return the times and FLOPs of attention in one phase.

    `score_count` is the number of elements of the softmax; None where it is unknown.
    """
    activities_by_kind = _groups(activities, BY_KIND)
    # `pop`, so that the kinds that remain are the other work.
    softmax = activities_by_kind.pop("attention softmax", [])
    fused = activities_by_kind.pop("attention fused", [])
    products = activities_by_kind.pop("matrix product", [])
    # Products of scores and values, and products with weights.
    activation_products = [product for product in products if product.is_of_activations]
    weight_products = [product for product in products if not product.is_of_activations]
    return AttentionTime(
        phase=phase,
        softmax_s=_seconds(softmax),
        products_s=_seconds(activation_products),
        projections_s=_seconds(weight_products),
        fused_s=_seconds(fused),
        other_s=sum(map(_seconds, activities_by_kind.values())),
        softmax_flops=SOFTMAX_FLOPS[phase] * score_count if score_count and softmax else None,
        products_flops=_flops(activation_products),
        projections_flops=_flops(weight_products),
    )


def _flops(products: Iterable[Activity]) -> int | None:
    """Return the FLOPs of matrix products.

    torch counts them from the shapes as 2·b·m·n·k. It is None if torch has no formula for any of the operators.
    """
    total = sum(
        product.event.flops or 0
        for product in products
        # An operator may launch several kernels; its FLOPs count with the first of them.
        if product.event is not None and product.is_first
    )
    return total or None


def _score_count(activities: Iterable[Activity]) -> int | None:
    """Return the number of scores of the softmax, or None.

    It comes from the shapes of the softmax, or of the exponential where the softmax is written out.
    """
    shapes: list[Any] = [
        activity.event.input_shapes
        for activity in activities
        if activity.kind == "attention softmax"
        and activity.is_first
        and activity.event is not None
        and activity.event.name in _SOFTMAX_OPERATORS
    ]
    # The first input of a softmax is the scores. A number of 0 means that no shape is known.
    score_shapes = [inputs[0] for inputs in shapes if inputs]
    return sum(math.prod(shape) for shape in score_shapes) or None


def _missing(
    activities: Sequence[Activity], attention: Sequence[AttentionTime], has_model: bool
) -> Iterator[str]:
    """Yield sentences on facts that a profile lacks.

    An example is the parts of a model.
    """
    if not any(activity.ranges for activity in activities):
        yield NO_RANGES.format(why=NOT_RUN if has_model else NO_MODEL)
    elif not attention:
        yield NO_ATTENTION
    if any(activity.kind == "attention fused" for activity in activities):
        yield FUSED
    total_s = _seconds(activities)
    # An activity without an event, or with ranges only, has no known operator.
    unknown_s = _seconds(
        activity
        for activity in activities
        if all(event.is_user_annotation for event in _upward(activity.event))
    )
    if unknown_s > FEW_UNKNOWN * total_s:
        yield NO_LAUNCHES.format(share=unknown_s / total_s)
