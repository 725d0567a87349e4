"""What the memory of a call goes into, at its peak, by category."""

from dataclasses import dataclass, field
from typing import Literal, get_args

from .checks import require_amounts
from .errors import BadInput

# What a call is doing: inside autograd's backward, inside an optimizer's step, or before and between these. `other`
# and the category `inputs` stand in records of older versions alone.
Step = Literal["forward", "backward", "optimizer", "other"]
STEPS: tuple[Step, ...] = get_args(Step)
# docs/writing-tests.md defines each.
Category = Literal["parameters", "buffers", "gradients", "optimizer", "activations", "temporaries", "inputs", "other"]
CATEGORIES: tuple[Category, ...] = get_args(Category)


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
        before_bytes: of those storages, what was given to the call: model, optimizer and arguments.
        phase_peaks: the most that was alive in each of the call's phases.
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
    before_bytes: int = 0
    phase_peaks: dict[str, int] = field(default_factory=dict)
    device_peak_bytes: int | None = None
    device_before_bytes: int | None = None
    missing: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        sizes = ("peak_bytes", "before_bytes", "categories", "phase_peaks", "device_peak_bytes", "device_before_bytes")
        require_amounts(self, from_zero=sizes)
        unknown = sorted(set(self.categories) - set(CATEGORIES)) + sorted({*self.phase_peaks, self.phase} - set(STEPS))
        if unknown:
            raise BadInput(f"memory use names {', '.join(unknown)}; expected some of {', '.join(CATEGORIES + STEPS)}")
        total = sum(self.categories.values())
        if total != self.peak_bytes:
            raise BadInput(f"the categories add up to {total} bytes; expected the peak, {self.peak_bytes}")
        most = max(self.phase_peaks.values(), default=self.peak_bytes)
        if most != self.peak_bytes:
            raise BadInput(f"the highest peak of a phase is {most} bytes; expected the peak, {self.peak_bytes}")

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
