"""Where the time of a call goes: what an untimed pass under a profiler found."""

from dataclasses import dataclass
from typing import Literal, get_args

from .checks import require_amounts
from .errors import BadInput

Tool = Literal["torch", "external"]
Phase = Literal["forward", "backward"]
ActivityClass = Literal[
    "matrix product",
    "attention softmax",
    "attention fused",
    "elementwise",
    "reduction",
    "embedding and gather",
    "copy",
    "optimizer",
    "communication",
    "other",
    "idle",
]
CLASSES: tuple[ActivityClass, ...] = get_args(ActivityClass)


@dataclass(frozen=True, slots=True)
class Timers:
    """The same call by several clocks, each in seconds a call. None is not known.

    Args:
        host_s: unprofiled, by the host's clock, from the call until the device is done; a median.
        device_s: unprofiled, between two stamps of the device around the call; a median.
        profiled_host_s: under the profiler, by the host's clock, as `host_s`; a median.
        span_s: in the trace, from the begin of the call on the host to the end of the last that belongs to it; a mean.
        busy_s: in the trace, how long at least one kernel (on a CPU: operator) was at work in that span; a mean.
    """

    host_s: float
    device_s: float | None = None
    profiled_host_s: float | None = None
    span_s: float | None = None
    busy_s: float | None = None

    def __post_init__(self) -> None:
        require_amounts(self, from_zero=("host_s", "device_s", "profiled_host_s", "span_s", "busy_s"))


@dataclass(frozen=True, slots=True)
class ClassTime:
    """The time of one class of activity.

    Args:
        name: one of `CLASSES`.
        total_s: in seconds, of all profiled calls together.
        share: of the span of the calls, which streams that overlap can exceed.
        count: kernels, copies and fills (on a CPU: operators), of all calls.
        flops: of the matrix products, from the shapes of their inputs; None of other classes, and where any product
            of the class does not tell its own.
        largest: the names that took most of it, the first the longest.
    """

    name: ActivityClass
    total_s: float
    share: float
    count: int = 0
    flops: int | None = None
    largest: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.name not in CLASSES:
            raise BadInput(f"class is {self.name!r}; expected one of {', '.join(CLASSES)}")
        require_amounts(self, from_zero=("total_s", "share", "count", "flops"))


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The launches of one kernel, of all profiled calls together; times in seconds. On a CPU: of one operator.

    Args:
        share: of the span of the calls.
        cpu_s: host time of the operators that launched it, each once and in full; of an operator on a CPU its own time
            with that of all below it, while the other columns count its own alone.
        grid: blocks, as most launches had it; `grids` tells how many different ones there were.
    """

    name: str
    kind: ActivityClass
    total_s: float
    share: float
    count: int
    median_s: float
    min_s: float
    max_s: float
    deviation_s: float
    cpu_s: float | None = None
    grid: tuple[int, ...] = ()
    grids: int = 0
    block: tuple[int, ...] = ()
    blocks: int = 0

    def __post_init__(self) -> None:
        times = ("total_s", "median_s", "min_s", "max_s", "deviation_s", "cpu_s")
        require_amounts(self, from_zero=(*times, "share", "grid", "grids", "block", "blocks"))
        if self.count < 1:
            raise BadInput(f"count is {self.count!r}; expected one launch or more")

    @property
    def mean_s(self) -> float:
        """Seconds a launch."""
        return self.total_s / self.count


@dataclass(frozen=True, slots=True)
class PartTime:
    """The time of one part of the model, in seconds of all calls, without that of the parts inside it.

    `part` is a range, with `*` for the numbers of layers; empty for what belongs to none.
    """

    part: str
    forward_s: float
    backward_s: float

    def __post_init__(self) -> None:
        require_amounts(self, from_zero=("forward_s", "backward_s"))

    @property
    def total_s(self) -> float:
        """Forward and backward together."""
        return self.forward_s + self.backward_s


@dataclass(frozen=True, slots=True)
class AttentionTime:
    """What is inside attention, of all profiled calls together: seconds, and FLOPs where the shapes tell them.

    Args:
        products_s: matrix products of queries with keys and of probabilities with values, and of their gradients.
        projections_s: matrix products with weights.
        fused_s: kernels that do both products and the softmax in one, which cannot be told apart.
        other_s: all else: masks, rotary embedding, copies.
        softmax_flops: 5 a score forward (maximum, subtraction, exponential, sum, division), 4 backward.
    """

    phase: Phase
    softmax_s: float
    products_s: float
    projections_s: float
    fused_s: float
    other_s: float
    softmax_flops: int | None = None
    products_flops: int | None = None
    projections_flops: int | None = None

    def __post_init__(self) -> None:
        times = ("softmax_s", "products_s", "projections_s", "fused_s", "other_s")
        require_amounts(self, from_zero=(*times, "softmax_flops", "products_flops", "projections_flops"))


@dataclass(frozen=True, slots=True)
class Profile:
    """What a profiler saw of one measurement's calls. Its times are the profiler's: never judged, never a baseline.

    Args:
        device: as the user names it: `cuda:0`.
        calls: so many were profiled.
        name: of the measurement within its test.
        tool: `torch` is torch.profiler; `external` one that watches from outside, and only it knows what it saw.
        on_device: whether the activities are the device's kernels and copies; else operators on the host.
        timers: the same call by several clocks.
        span_s: seconds of all calls, as `Timers.span_s`.
        busy_s: as `Timers.busy_s`, of all calls.
        overlap_s: what the classes add up to beyond `busy_s`, since streams worked at the same time.
        streams: on which anything ran; on a CPU threads.
        classes: the longest first, idle last. They add up to the span, and to `overlap_s` more.
        kernels: the longest first; `distinct` says how many there were.
        parts: of the model, the longest first.
        trace: path of the Chrome trace; empty where there is none.
        missing: what could not be had, and why, a sentence each.
    """

    test_id: str
    label: str
    process: str
    device: str
    calls: int
    name: str = ""
    tool: Tool = "torch"
    on_device: bool = False
    timers: Timers | None = None
    span_s: float = 0.0
    busy_s: float = 0.0
    overlap_s: float = 0.0
    streams: int = 0
    classes: tuple[ClassTime, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    distinct: int = 0
    parts: tuple[PartTime, ...] = ()
    attention: tuple[AttentionTime, ...] = ()
    trace: str = ""
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.calls < 1:
            raise BadInput(f"calls is {self.calls!r}; expected one profiled call or more")
        require_amounts(self, from_zero=("span_s", "busy_s", "overlap_s", "streams", "distinct"))
