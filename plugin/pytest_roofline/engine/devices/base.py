"""The interface between the timing engine and a device. It is small, so that a fake with a scripted
clock can stand in for it.
"""

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol, runtime_checkable

from ...core.errors import DeviceError
from ...core.facts import DeviceFacts, Gpu

Stamp = Any
"""What marks a point in a device's work: an event, or a time."""

# AMD's MI300 class reports the 4 MiB L2 of one die, while 256 MiB of Infinity Cache stand between it and memory.
INFINITY_CACHE_BYTES = 256 * 2**20
INFINITY_CACHE_ARCHITECTURES = ("gfx940", "gfx941", "gfx942", "gfx950")
# Where a device does not tell: no known one has more, apart from those above.
ASSUMED_CACHE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Traits:
    """The abilities of a kind of device, and how it must be asked.

    Args:
        tick_s: the documented resolution of its clock, in seconds.
        shortest_span_s: the shortest span between two stamps that it should be asked for, in seconds.
        queues: whether work is queued behind the host; without, a call has done its work when it returns.
        spins: whether it can be kept busy for a number of cycles while the host runs ahead.
        spin_is_clock: whether spinning counts cycles of the clock that kernels run by.
        graphs: whether calls can be captured and replayed.
        stamps: whether its stamps time its work; without, the host's clock does, which waits for all of it.
        warmup_floor_s: the least time of warming up, in seconds.
        precision: how well the median is to be known, as a share; finer than processes differ tells nothing.
        repeatability: how far two measurements in a row may be apart, as a share, before something is wrong.
    """

    tick_s: float
    shortest_span_s: float
    queues: bool = True
    spins: bool = False
    spin_is_clock: bool = True
    graphs: bool = False
    stamps: bool = True
    warmup_floor_s: float = 0.1
    precision: float = 0.01
    repeatability: float = 0.02


@dataclass(frozen=True, slots=True)
class Counters:
    """The state that a device tells of itself at one moment. None is unknown, never "fine".

    Args:
        active: the causes active right now, and the power cap.
        seconds: how long each of them was active since boot, in seconds; only those that the device counts.
        others_bytes: memory that other processes hold.
        others_busy: the share of the time that other processes kept the device working, lately.
        preemptions: how often the scheduler took the processor from this process against its will.
        others_core_s: how long others have kept its processors busy, in seconds, counted from any one moment.
        renewals: a count that grows whenever the device renews `seconds`; None where they are those of the moment.
    """

    active: frozenset[str] | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    others_bytes: int | None = None
    others_busy: float | None = None
    preemptions: int | None = None
    others_core_s: float | None = None
    renewals: int | None = None


@dataclass(frozen=True, slots=True)
class AllocatedBytes:
    """The bytes that torch's allocator has handed out on a device. Now, and the most since its
    record was reset.

    None is unknown, as on a CPU, whose allocator keeps no record.
    """

    now_bytes: int | None = None
    most_bytes: int | None = None


class Device(Protocol):
    """The questions of the timing engine to a device.

    A stamp marks a point in the device's own work, in order. Its time is read only after `elapsed_s` has waited for it.
    """

    name: str
    """As the user names it: `cpu`, `cuda:0`."""

    traits: Traits

    def __hash__(self) -> int:
        """Hash by identity. What was calibrated once is this very device."""

    def stamp(self) -> Stamp:
        """Mark this point behind all work submitted so far."""

    def reached(self, stamp: Stamp) -> bool:
        """Return whether the device has come to a stamp, without waiting."""

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        """Seconds between two stamps, after waiting for both."""

    def synchronize(self) -> None:
        """Wait until all submitted work is done."""

    def spin(self, cycles: int) -> None:
        """Keep the device busy for so many cycles, behind all work so far."""

    def capture(self, submit: Callable[[], None]) -> Callable[[], None]:
        """Return what `submit` submits, as one replay. Nothing runs before the first replay."""

    def flusher(self, size_bytes: int) -> Callable[[], None]:
        """Return a function that evicts a last-level cache of half this size. It writes so many
        bytes, then reads them.
        """

    def counters(self) -> Counters:
        """The device's own state right now."""

    def host_s(self) -> float:
        """The host's clock in seconds, for budgets."""

    def free_bytes(self) -> int:
        """Memory that an allocation on the device can still get."""

    def peak_bytes(self, call: Callable[[], object]) -> int | None:
        """Return the most memory that `call` held. It counts above what was allocated before. None
        if the device does not tell.
        """

    def held_bytes(self, call: Callable[[], object]) -> int | None:
        """Return what is allocated when `call` has returned. Its result is kept, and what was
        allocated before does not count. None as above.
        """

    def allocated(self) -> AllocatedBytes:
        """Return what is allocated now."""

    def release(self) -> None:
        """Give cached memory back, so that the next test finds it free."""

    def facts(self) -> DeviceFacts:
        """Return the facts of the device, as running."""

    def gpu(self) -> Gpu | None:
        """Return what its management library tells of this device now. None if no library does.
        Never raises.
        """


class Silent(Exception):
    """A vendor's management library cannot be asked, for a reason in words."""


@runtime_checkable
class SiblingDevice(Protocol):
    """A device of a kind of which a process may see several."""

    def siblings(self) -> tuple[str, ...]:
        """Return the names of all visible devices, its own among them. For example `cuda:0`,
        `cuda:1`.
        """

    def current(self) -> AbstractContextManager[object]:
        """Make this the device of launches that name none."""

    def busy_siblings(self) -> dict[str, float]:
        """Return how busy each other device of the machine was lately. They are shares of the
        time, by `GPU 3 (GPU-8c2f…)`.

        One that does not tell is left out. Never raises.
        """


@runtime_checkable
class ManagedDevice(Protocol):
    """A device that a management library knows. The library may be missing, or find no driver."""

    def silent_library(self) -> str:
        """Return why that library cannot be asked; empty if it can."""


def last_level_cache(reported_bytes: int, architecture: str) -> int:
    """Return the bytes to evict before a buffer is cold. They are as reported (0 is unknown), but
    never less than its class has.
    """
    floor = (
        INFINITY_CACHE_BYTES if architecture.split(":")[0] in INFINITY_CACHE_ARCHITECTURES else 0
    )
    return max(reported_bytes, floor) or ASSUMED_CACHE_BYTES


class RealDevice:
    """The common part of every real device: the host's clock. For a start it has no spin, no graph,
    no counters.
    """

    name = ""

    def host_s(self) -> float:
        return time.perf_counter()

    def reached(self, stamp: Stamp) -> bool:
        """Without a spin nobody asks."""
        raise NotImplementedError

    def spin(self, cycles: int) -> None:
        """Cannot be kept busy."""
        raise NotImplementedError

    def capture(self, submit: Callable[[], None]) -> Callable[[], None]:
        """Has no graphs."""
        raise NotImplementedError

    def flusher(self, size_bytes: int) -> Callable[[], None]:
        """Return a function that writes and reads a buffer of its own. What is only written would
        leave dirty lines to evict while timing.
        """
        import torch

        buffer = torch.empty(max(1, size_bytes // 4), dtype=torch.int32, device=self.name)

        def flush() -> None:
            buffer.zero_()
            buffer.sum()

        return flush

    def counters(self) -> Counters:
        return Counters()

    def peak_bytes(self, call: Callable[[], object]) -> int | None:  # noqa: ARG002
        return None

    def held_bytes(self, call: Callable[[], object]) -> int | None:  # noqa: ARG002
        return None

    def allocated(self) -> AllocatedBytes:
        return AllocatedBytes()

    def gpu(self) -> Gpu | None:
        return None


class EventDevice(RealDevice):
    """A GPU behind torch's events, on its current stream. Torch's allocator counts what it handed
    out.
    """

    library: ModuleType
    """`torch.cuda` or `torch.xpu`."""

    def __init__(self, index: int) -> None:
        self.name = f"{self.library.__name__.removeprefix('torch.')}:{index}"
        self.index = index

    def stamp(self) -> Stamp:
        event = self.library.Event(enable_timing=True)
        event.record()
        return event

    def reached(self, stamp: Stamp) -> bool:
        return bool(stamp.query())

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        end.synchronize()
        return float(start.elapsed_time(end)) * 1e-3

    def synchronize(self) -> None:
        """Wait for every stream of the device."""
        self.library.synchronize(self.index)

    def peak_bytes(self, call: Callable[[], object]) -> int:
        return self._count_allocations(call)[0]

    def held_bytes(self, call: Callable[[], object]) -> int:
        return self._count_allocations(call)[1]

    def _count_allocations(self, call: Callable[[], object]) -> tuple[int, int]:
        """Return the most that was allocated during a call, and what is behind it. Both count above
        what was allocated before.
        """
        self.synchronize()
        before = self.library.memory_allocated(self.index)
        self.library.reset_peak_memory_stats(self.index)
        output = call()
        self.synchronize()
        now = self.allocated()
        del output
        return max(0, int(now.most_bytes or 0) - before), max(0, int(now.now_bytes or 0) - before)

    def allocated(self) -> AllocatedBytes:
        return AllocatedBytes(
            self.library.memory_allocated(self.index), self.library.max_memory_allocated(self.index)
        )

    def release(self) -> None:
        self.library.empty_cache()


# What a process's context takes beside torch's allocator: 0.45 to 0.6 GB under CUDA, and more with cuBLAS and cuDNN.
OWN_CONTEXT_BYTES = 2**30
_starters: set[int] = set()


def started_by(process: int) -> None:
    """Count a process as one that this one works for. Every other process that it started works for
    it too.
    """
    _starters.add(process)


def others_bytes(
    used_bytes: int, torch_bytes: int, holders: Mapping[int, int], before_bytes: int | None = None
) -> int | None:
    """Return the memory of processes outside of this run. None if it cannot be known.

    Of what is in use, torch's allocator in this process has reserved `torch_bytes`. The `holders` that the driver lists
    are blind in containers, where this process is not on the list. `before_bytes` were in use when it had no context
    yet, None where nobody looked; where less is in use by now, it tells nothing any more.
    """
    if os.getpid() in holders:
        return max(
            0, used_bytes - sum(size for process, size in holders.items() if _is_own(process))
        )
    other_use_bytes = max(0, used_bytes - torch_bytes)
    # One that started this process has an idle context too.
    helpers_bytes = OWN_CONTEXT_BYTES * bool(_starters)
    if before_bytes is None or other_use_bytes < before_bytes:
        return (
            None if _communicates() else max(0, other_use_bytes - OWN_CONTEXT_BYTES - helpers_bytes)
        )
    added_bytes = (
        0 if _communicates() else max(0, other_use_bytes - before_bytes - OWN_CONTEXT_BYTES)
    )
    return max(0, before_bytes - helpers_bytes) + added_bytes


def _is_own(process: int) -> bool:
    ours = {os.getpid(), *_starters}
    return process in ours or _parent(process) in ours


def _parent(process: int) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The name, in parentheses, may hold anything.
        content = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return int(content.rpartition(")")[2].split()[1])
    return None


def _communicates() -> bool:
    """Return whether NCCL may be here. Torch's allocator does not count its buffers."""
    import torch

    return torch.distributed.is_available() and torch.distributed.is_initialized()


@contextlib.contextmanager
def answering(device: Device) -> Iterator[None]:
    """Name the device if it fails, and not the measured function."""
    try:
        yield
    except DeviceError:
        raise
    except Exception as error:
        raise DeviceError(f"{device.name} stopped answering: {error}") from error
