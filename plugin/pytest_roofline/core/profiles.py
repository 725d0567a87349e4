"""Parts of the time of a call, from an untimed profiled pass."""

import math
import re
from dataclasses import dataclass
from typing import Literal, get_args

from .amounts import Count
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
# Calls that launch a kernel, in the runtimes of both vendors.
LAUNCH = re.compile(r"(cu|cuda|hip)\w*LaunchKernel\w*")


@dataclass(frozen=True, slots=True)
class ClassTime:
    """The time of one class of activity.

    Args:
        share: of the span of the calls, which streams that overlap can exceed.
        count: kernels, copies and fills (on a CPU: operators), of all calls.
        largest: the names that took most of it, the first the longest.
    """

    name: ActivityClass
    total_s: float
    share: float
    count: int = 0
    largest: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelTime:
    """The launches of one kernel, of all profiled calls, in seconds.

    On a CPU they are the calls of one operator.
    """

    name: str
    kind: ActivityClass
    total_s: float
    share: float
    count: Count


@dataclass(frozen=True, slots=True)
class OperatorTime:
    """The times of one name on the host, of all profiled calls, in seconds.

    The name is an operator, a function of autograd, a call of the vendor's runtime
    (`cudaLaunchKernel`), or the step of an optimizer.

    Args:
        self_cpu_s: without what is inside it; `share` is that of the host's whole time.
        cpu_s: with what is inside it, as torch.profiler counts.
        self_device_s: the kernels that it launched itself, with those of what is inside it in `device_s`.
    """

    name: str
    self_cpu_s: float
    share: float
    cpu_s: float
    count: int
    self_device_s: float = 0.0
    device_s: float = 0.0


@dataclass(frozen=True, slots=True)
class PartTime:
    """The time of one part of the model, in seconds of all calls.

    The parts inside it are not counted.

    `part` is a range, with `*` for the numbers of layers; empty for what belongs to none.
    """

    part: str
    forward_s: float
    backward_s: float


@dataclass(frozen=True, slots=True)
class AttentionTime:
    """Seconds and FLOPs inside attention, of all profiled calls together. FLOPs need known shapes.

    Args:
        products_s: matrix products of queries with keys and of probabilities with values, and of their gradients.
        fused_s: kernels that do both products and the softmax in one, which cannot be told apart.
        softmax_flops: 5 a score forward (maximum, subtraction, exponential, sum, division), 4 backward.
    """

    phase: Phase
    softmax_s: float = 0.0
    products_s: float = 0.0
    projections_s: float = 0.0
    fused_s: float = 0.0
    other_s: float = 0.0
    softmax_flops: int | None = None
    products_flops: int | None = None
    projections_flops: int | None = None


@dataclass(frozen=True, slots=True)
class Profile:
    """The activities of one measurement's calls under a profiler.

    Its times are the profiler's: never judged, never a baseline.

    Args:
        tool: `torch` is torch.profiler; `external` one that watches from outside, and only it knows what it saw.
        on_device: whether the activities are the device's kernels and copies; else operators on the host.
        measured_s: a call as the measurement took it, without a profiler.
        profiled_s: a call under the profiler by the host's clock, until the device is done; a median.
        span_s: in the trace, all profiled calls together, each until the device is done.
        busy_s: what the activities add up to, streams that overlap counted each.
        host_s: what operators took on the host, without each other.
        classes: the longest first, idle last: what the activities leave of the span.
        kernels: the longest first; `distinct` says how many there were.
        operators: what ran on the host, those first that kept the device (on a CPU: the host) busy longest.
        trace: path of the Chrome trace; empty where there is none.
    """

    test_id: str
    label: str
    process: str
    device: str
    calls: Count
    name: str = ""
    tool: Tool = "torch"
    on_device: bool = False
    measured_s: float | None = None
    profiled_s: float | None = None
    span_s: float = 0.0
    busy_s: float = 0.0
    host_s: float = 0.0
    classes: tuple[ClassTime, ...] = ()
    kernels: tuple[KernelTime, ...] = ()
    distinct: int = 0
    parts: tuple[PartTime, ...] = ()
    attention: tuple[AttentionTime, ...] = ()
    trace: str = ""
    missing: tuple[str, ...] = ()
    operators: tuple[OperatorTime, ...] = ()


Unit = Literal["B", "s", "share", "count", "FLOP", "tokens/s", "x", "B/s"]
UNITS: tuple[Unit, ...] = get_args(Unit)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one test, in one process.

    Args:
        test_id: node id of the test.
        label: the test as people call it.
        process: which process found it.
        name: what it is, unique within the test.
        value: in `unit`.
        unit: one of `UNITS`; a share is of 1, and `x` a factor.
    """

    test_id: str
    label: str
    process: str
    name: str
    value: float
    unit: Unit

    def __post_init__(self) -> None:
        """Raise BadInput unless the figure has a name, a known unit and a finite value."""
        if not self.name:
            raise BadInput("a figure has no name; expected a name that says what the figure is")
        if self.unit not in UNITS:
            raise BadInput(
                f"the unit of {self.name!r} is {self.unit!r}; expected one of {', '.join(UNITS)}"
            )
        if isinstance(self.value, bool) or not math.isfinite(self.value):
            raise BadInput(f"{self.name!r} is {self.value!r}; expected a finite number")
