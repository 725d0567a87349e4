"""What the memory of a call goes into, at its peak: by category, by allocation, and outputs beside predictions."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from .checks import require_amounts
from .errors import BadInput

# What a call is doing: inside autograd's backward, inside an optimizer's step, or before and between these.
Step = Literal["forward", "backward", "optimizer", "other"]
STEPS: tuple[Step, ...] = get_args(Step)
# Where something was allocated: in one of these, or before the call.
Made = Literal["before", "forward", "backward", "optimizer", "other"]
# docs/writing-tests.md defines each.
Category = Literal["parameters", "buffers", "gradients", "optimizer", "activations", "temporaries", "inputs", "other"]
CATEGORIES: tuple[Category, ...] = get_args(Category)
# How many of the largest allocations a record keeps.
LARGEST = 5


@dataclass(frozen=True, slots=True)
class Allocation:
    """One block of memory that was alive at the peak.

    Args:
        size_bytes: of the storage, which may be larger than the tensor.
        category: what it is.
        made: what the call was doing when it was allocated; `before` the call.
        shape: of the first tensor that was seen on it.
        dtype: of that tensor: `float32`.
        operator: what allocated it: `aten.mm`; empty where that was before the call.
        place: the submodule that it was made in, in backward the one whose backward it is, and of parameters,
            gradients and optimizer state the parameter; empty where nobody knows.
    """

    size_bytes: int
    category: Category
    made: Made
    shape: tuple[int, ...]
    dtype: str
    operator: str = ""
    place: str = ""

    def __post_init__(self) -> None:
        require_amounts(self, from_zero=("shape",))


@dataclass(frozen=True, slots=True)
class OutputBytes:
    """The tensors that a submodule returned, of the largest of its calls, beside what was predicted for them.

    `measured_bytes` is None where the submodule was not called, or inside compiled code.
    """

    module: str
    predicted_bytes: int
    measured_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The peak of one call and what it is made of. Sizes are in bytes and count what was allocated before the call too.

    Args:
        test_id: the test.
        label: the test and the name, as people call it.
        process: which process of the run.
        device: as the user names it: `cuda:0`.
        name: tells several calls of one test apart.
        peak_bytes: the most that was alive at once in storages that operators of the call made or used.
        phase: what the call was doing at the peak, the first time that it was reached.
        categories: the peak by category, which add up to it; those without a byte are left out.
        largest: the largest allocations alive at the peak, largest first.
        largest_made: the largest of those that the call itself made: what could be saved by changing it.
        before_bytes: of those storages, what existed before the call.
        phase_peaks: the most that was alive in each of the call's phases.
        outputs: submodules' outputs beside what was predicted.
        device_peak_bytes: the same peak by the device's own counter; None where it has none.
        device_before_bytes: what that counter said before the call; None where it counts changes alone, and then
            `before_bytes` stands in for it.
        missing: what could not be found here, and why.
    """

    test_id: str
    label: str
    process: str
    device: str
    name: str
    peak_bytes: int
    phase: Step = "forward"
    categories: dict[str, int] = field(default_factory=dict)
    largest: tuple[Allocation, ...] = ()
    largest_made: tuple[Allocation, ...] = ()
    before_bytes: int = 0
    phase_peaks: dict[str, int] = field(default_factory=dict)
    outputs: tuple[OutputBytes, ...] = ()
    device_peak_bytes: int | None = None
    device_before_bytes: int | None = None
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        require_amounts(self, from_zero=("device_peak_bytes", "device_before_bytes"))
        _refuse_negative(self)
        unknown = sorted(set(self.categories) - set(CATEGORIES)) + sorted({*self.phase_peaks, self.phase} - set(STEPS))
        if unknown:
            raise BadInput(f"memory use names {', '.join(unknown)}; expected some of {', '.join(CATEGORIES + STEPS)}")
        total = sum(self.categories.values())
        if total != self.peak_bytes:
            raise BadInput(f"the categories add up to {total} bytes; expected the peak, {self.peak_bytes}")
        most = max(self.phase_peaks.values(), default=self.peak_bytes)
        if most != self.peak_bytes:
            raise BadInput(f"the highest peak of a phase is {most} bytes; expected the peak, {self.peak_bytes}")
        _refuse_disorder(self.largest, self.peak_bytes)
        _refuse_disorder(self.largest_made, self.peak_bytes)
        if any(one.made == "before" for one in self.largest_made):
            raise BadInput("an allocation that the call made is from before the call; expected one of its phases")

    @property
    def outside_bytes(self) -> int | None:
        """What was on the device before the call, and no operator of the call used; None where nobody counts that."""
        return None if self.device_before_bytes is None else self.device_before_bytes - self.before_bytes

    @property
    def unseen_bytes(self) -> int | None:
        """How much more the call took by the device's counter than its operators show; None where there is no counter.

        That is what libraries and fused kernels take for themselves, and what the allocator rounds up. A counter that
        sees only what comes during the call, as a CPU's, adds what was there before and was given back in it.
        """
        if self.device_peak_bytes is None:
            return None
        before = self.before_bytes if self.device_before_bytes is None else self.device_before_bytes
        return (self.device_peak_bytes - before) - (self.peak_bytes - self.before_bytes)


def _refuse_disorder(largest: tuple[Allocation, ...], peak_bytes: int) -> None:
    sizes = [allocation.size_bytes for allocation in largest]
    if sizes != sorted(sizes, reverse=True) or sum(sizes) > peak_bytes:
        raise BadInput(f"the largest allocations are {sizes}; expected them in order, together at most the peak")


def _refuse_negative(use: MemoryUse) -> None:
    sizes = {"peak_bytes": use.peak_bytes, "before_bytes": use.before_bytes, **use.categories, **use.phase_peaks}
    sizes |= {f"largest[{index}]": one.size_bytes for index, one in enumerate(use.largest + use.largest_made)}
    for index, output in enumerate(use.outputs):
        sizes |= {f"outputs[{index}]": min(output.predicted_bytes, output.measured_bytes or 0)}
    culprit = next((name for name, size in sizes.items() if size < 0), None)
    if culprit is not None:
        raise BadInput(f"{culprit} is {sizes[culprit]} bytes; expected zero or more")
