"""Running out of memory as a result.

The module knows the errors, the sizes in them, and the records in a run.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, get_args

from .amounts import AboveZero, Amount, Count, FromZero
from .errors import BadInput
from .keys import Scalar
from .units import format_memory
from .verdicts import Kind

# The phases of a measurement, in order, and `memory`, which is a call whose memory is recorded.
Phase = Literal["arguments", "calls", "peak_bytes", "held_bytes", "verify", "memory"]

WORD = "OUT OF MEMORY"
# torch raises a class of this name for its own allocators (CUDA, ROCm, XPU), and a plain RuntimeError for all others.
_CLASS = "OutOfMemoryError"
_TEXTS = (
    "DefaultCPUAllocator: can't allocate memory",
    # macOS and Windows.
    "DefaultCPUAllocator: not enough memory",
    "MPS backend out of memory",
    # Metal: beyond its largest buffer.
    "Invalid buffer size:",
    # Drivers, for what does not pass through torch's allocator: pinned memory, events, a library's workspace.
    "CUDA error: out of memory",
    "HIP error: out of memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "HIPBLAS_STATUS_ALLOC_FAILED",
    "CUDNN_STATUS_ALLOC_FAILED",
    "UR_RESULT_ERROR_OUT_OF_DEVICE_MEMORY",
    "UR_RESULT_ERROR_OUT_OF_HOST_MEMORY",
    "std::bad_alloc",
)
# Triton's message if there is no memory to load or launch a kernel.
_TRITON = re.compile(r"Triton Error \[(?:CUDA|HIP)\]:.*out of memory")
# All units are powers of 1024. The MPS allocator of torch before 2.6 wrote GB for GiB.
_UNITS = {
    "bytes": 1,
    "B": 1,
    "KB": 2**10,
    "KiB": 2**10,
    "MB": 2**20,
    "MiB": 2**20,
    "GB": 2**30,
    "GiB": 2**30,
}
_UNITS |= {"TB": 2**40, "TiB": 2**40, "PiB": 2**50}
_SIZE = rf"([0-9]+(?:\.[0-9]*)?) ?({'|'.join(_UNITS)})\b"
_ASKED = re.compile(rf"(?:[Tt]ried to allocate|Unable to allocate|Invalid buffer size:) {_SIZE}")
# `of which 1.10 GiB is free`, and before torch 2.1 `1.10 GiB free;`.
_FREE = re.compile(rf"{_SIZE} (?:is )?free\b")


@dataclass(frozen=True, slots=True)
class FailedAllocation:
    """An allocation that found no memory. Sizes are in bytes; None is unknown.

    Args:
        message: the first line of its error.
        asked_bytes: its size, rounded as in the error.
        free_bytes: what an allocation could still get when it happened.
        allocated_bytes: what torch's allocator had handed out when it happened.
        peak_bytes: the most that it had handed out since its record was reset, which `measure(peak_bytes=True)` does.
    """

    message: str
    asked_bytes: Amount | None = None
    free_bytes: Amount | None = None
    allocated_bytes: Amount | None = None
    peak_bytes: Amount | None = None

    @property
    def sizes(self) -> str:
        """The known sizes: `asked for 2.00 GiB, 1.10 GiB free`."""
        requested = (
            [] if self.asked_bytes is None else [f"asked for {format_memory(self.asked_bytes)}"]
        )
        free = [] if self.free_bytes is None else [f"{format_memory(self.free_bytes)} free"]
        return ", ".join(requested + free)


@dataclass(frozen=True, slots=True)
class LostResults:
    """Results that the baseline has of a test, and that the test no longer gives.

    Args:
        times: seconds by the name of a measurement.
        kernels: labels of compiled kernels.
    """

    times: dict[str, AboveZero] = field(default_factory=dict)
    kernels: tuple[str, ...] = ()


NOTHING_LOST = LostResults()


@dataclass(frozen=True, slots=True)
class OutOfMemory:
    """A test that ran out of memory.

    Args:
        recorded: whether the test's marker says `oom="record"`; without, the test has failed for it.
        name: of the measurement that ran out; None where the test was outside of `measure`.
        phase: what that measurement was doing; `memory` in a call whose memory was recorded.
    """

    test_id: str
    benchmark: str
    parameters: dict[str, Scalar]
    label: str
    device: str
    allocation: FailedAllocation
    round: Count = 1
    recorded: bool = True
    name: str | None = None
    phase: Phase | None = None
    lost: LostResults = NOTHING_LOST

    @property
    def red(self) -> bool:
        """True if running out of memory fails the test.

        The baseline then has a time or a kernel of the test that is missing now (`lost`).
        """
        return self.recorded and self.lost != NOTHING_LOST

    @property
    def words(self) -> tuple[str, ...]:
        """The words of its verdict and its effect."""
        return (WORD, Kind.REGRESSED) if self.red else (WORD,)

    @property
    def word(self) -> str:
        """The word for the test in a table."""
        return "FAILED" if not self.recorded else self.words[-1]


def out_of_memory(error: BaseException | None) -> BaseException | None:
    """Return the error that memory ran out.

    It is this one, or one of its causes; None without one. A group of errors counts only if memory ran out in all of
    its members.
    """
    visited: set[int] = set()
    # Each error is visited once, as causes may form a circle. An AssertionError is a statement of the test itself, so
    # its causes do not count.
    while (
        isinstance(error, Exception)
        and not isinstance(error, AssertionError)
        and id(error) not in visited
    ):
        visited.add(id(error))
        if _tells_of_memory(error):
            return error
        if isinstance(error, ExceptionGroup):
            memory_errors = [out_of_memory(member) for member in error.exceptions]
            if None not in memory_errors:
                return memory_errors[0]
        error = error.__cause__
    return None


def _tells_of_memory(error: Exception) -> bool:
    """Return whether an error itself, by its type or message, says that memory ran out."""
    # torch's class is found by its name, since torch may not be installed.
    if isinstance(error, MemoryError) or any(
        base.__name__ == _CLASS for base in type(error).__mro__
    ):
        return True
    if not isinstance(error, RuntimeError):
        return False
    return _TRITON.search(str(error)) is not None or any(text in str(error) for text in _TEXTS)


def parse_sizes(message: str) -> tuple[int | None, int | None]:
    """Return the bytes that an allocation asked for, and the free ones, from its error."""
    return _size(_ASKED.search(message)), _size(_FREE.search(message))


def _size(match: re.Match[str] | None) -> int | None:
    """Return the bytes of a match, which has a number and its unit.

    It is None without a match.
    """
    if match is None:
        return None
    number, unit = match.groups()
    return round(float(number) * _UNITS[unit])


# The part of a call: autograd's backward, an optimizer's step, or else (before and between these) forward.
Step = Literal["forward", "backward", "optimizer"]
# docs/reference/measuring.md defines each.
Category = Literal[
    "parameters",
    "buffers",
    "gradients",
    "optimizer",
    "activations",
    "temporaries",
    "other",
]
CATEGORIES: tuple[Category, ...] = get_args(Category)


@dataclass(frozen=True, slots=True)
class MemoryPoint:
    """The bytes alive at a moment of a call, by category.

    Categories add up. `at_s` is in seconds from the beginning of the call. The clock is the host's,
    and a followed call takes longer than one that is not.
    """

    at_s: FromZero
    step: Step
    categories: dict[str, Amount]

    @property
    def total_bytes(self) -> int:
        """All categories together."""
        return sum(self.categories.values())


@dataclass(frozen=True, slots=True)
class AllocatorPoint:
    """Bytes of torch's allocator at a moment of a call. They come from the allocator's own trace."""

    at_s: FromZero
    allocated_bytes: Amount
    reserved_bytes: Amount


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """The peak of one call, by category.

    Sizes are in bytes and count what was allocated before the call too.

    Args:
        peak_bytes: the most that was alive at once in storages that operators of the call made or used.
        phase: what the call was doing at the peak, the first time that it was reached.
        categories: the peak by category, which add up to it; those without a byte are left out.
        before_bytes: of those storages, what was given to the call: model, optimizer and arguments.
        device_peak_bytes: the same peak by the device's own counter; None where it has none.
        device_before_bytes: what that counter said before the call; None where it counts changes alone, and then
            `before_bytes` stands in for it.
        over_time: the fullest of each of some hundred equal parts of the call, and its ends.
        allocator: the same of the allocator's trace; empty where the device has none.
    """

    test_id: str
    label: str
    process: str
    device: str
    name: str
    peak_bytes: Amount
    phase: Step = "forward"
    categories: dict[str, Amount] = field(default_factory=dict)
    before_bytes: Amount = 0
    phase_peaks: dict[Step, Amount] = field(default_factory=dict)
    device_peak_bytes: Amount | None = None
    device_before_bytes: Amount | None = None
    missing: tuple[str, ...] = ()
    over_time: tuple[MemoryPoint, ...] = ()
    allocator: tuple[AllocatorPoint, ...] = ()

    def __post_init__(self) -> None:
        """Raise BadInput for a peak of zero bytes that is divided into categories."""
        # A share of an empty peak cannot be computed.
        if self.categories and not self.peak_bytes:
            raise BadInput(
                "peak_bytes is 0 but has categories; expected a finite number above zero"
            )

    @property
    def unseen_bytes(self) -> int | None:
        """Bytes of the call that the device's counter shows and no operator made.

        None without a counter.
        """
        if self.device_peak_bytes is None:
            return None
        device_before_bytes = (
            self.before_bytes if self.device_before_bytes is None else self.device_before_bytes
        )
        device_growth = self.device_peak_bytes - device_before_bytes
        operators_growth = self.peak_bytes - self.before_bytes
        return device_growth - operators_growth
