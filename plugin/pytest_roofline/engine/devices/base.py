"""The interface between the timing engine and a device.

It is small, so that a fake device with a scripted clock can implement it.
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
"""A mark of a point in a device's work: an event, or a time."""

# AMD's MI300 class reports the 4 MiB L2 of one die, while 256 MiB of Infinity Cache stand between it and memory.
INFINITY_CACHE_BYTES = 256 * 2**20
INFINITY_CACHE_ARCHITECTURES = ("gfx940", "gfx941", "gfx942", "gfx950")
# The cache of a device that does not report it. Apart from those above, no known device has a larger one.
ASSUMED_CACHE_BYTES = 64 * 2**20


@dataclass(frozen=True, slots=True)
class Traits:
    """The abilities of a kind of device, and how it must be timed.

    Args:
        tick_s: the documented resolution of its clock, in seconds.
        shortest_span_s: the shortest span between two stamps that is precise enough, in seconds.
        queues: whether it works behind the host; without a queue, a call has done its work when it returns.
        spins: whether it can be kept busy for a number of cycles while the host runs ahead.
        spin_is_clock: whether spinning counts cycles of the clock that kernels run by.
        graphs: whether calls can be captured and replayed.
        stamps: whether its stamps time its work; if not, the host waits for the work and takes its own clock.
        warmup_floor_s: the least time of warming up, in seconds.
        precision: how precisely the median must be known, as a share; it need not be finer than processes differ.
        repeatability: how far two measurements in a row of a sound device may be apart, as a share.
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
    """The state that a device reports at one moment. None is unknown, never "fine".

    Args:
        active: the causes that slow it down now, and the power cap.
        seconds: seconds since boot for which each cause was active; only the causes that the device counts.
        others_bytes: memory that other processes hold.
        others_busy: the share of the time that other processes kept the device working, lately.
        preemptions: how often the scheduler took the processor from this process against its will.
        others_core_s: seconds for which other processes kept its processors busy, counted from some fixed moment.
        renewals: a count that grows whenever the device renews `seconds`; None if they are always up to date.
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
    """The bytes that torch's allocator has handed out on a device.

    `most_bytes` is the most since its record was reset. None is unknown, as on a CPU, whose allocator keeps no record.
    """

    now_bytes: int | None = None
    most_bytes: int | None = None


class Device(Protocol):
    """The interface of a device to the timing engine.

    A stamp marks a point in the order of the device's own work. Only `elapsed_s` reads its time, after waiting for it.
    """

    name: str
    """The name that the user gives: `cpu`, `cuda:0`."""

    traits: Traits

    def __hash__(self) -> int:
        """Hash by identity, since a calibration belongs to this very object."""

    def stamp(self) -> Stamp:
        """Return a stamp behind all work that has been submitted so far."""

    def reached(self, stamp: Stamp) -> bool:
        """Return whether the device has come to a stamp, without waiting."""

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        """Wait for two stamps, and return the seconds between them."""

    def synchronize(self) -> None:
        """Wait until all submitted work is done."""

    def spin(self, cycles: int) -> None:
        """Keep the device busy for so many cycles, behind all work so far."""

    def capture(self, submit: Callable[[], None]) -> Callable[[], None]:
        """Return a function that replays the work of `submit`. The capture itself does no work."""

    def flusher(self, size_bytes: int) -> Callable[[], None]:
        """Return a function that evicts a last-level cache of half this size.

        It writes so many bytes, then reads them.
        """

    def counters(self) -> Counters:
        """Return the present state of the device."""

    def host_s(self) -> float:
        """Return the host's clock in seconds, for budgets."""

    def free_bytes(self) -> int:
        """Return the bytes that an allocation on the device can still get."""

    def peak_bytes(self, call: Callable[[], object]) -> int | None:
        """Return the most memory that `call` held, above what was allocated before it.

        None if the device does not report it; `call` is then not made.
        """

    def held_bytes(self, call: Callable[[], object]) -> int | None:
        """Return the memory that `call` leaves allocated, above what was allocated before it.

        Its result is kept meanwhile. None if the device does not report it; `call` is then not made.
        """

    def allocated(self) -> AllocatedBytes:
        """Return the bytes that torch's allocator has handed out."""

    def release(self) -> None:
        """Give cached memory back, so that the next test finds it free."""

    def facts(self) -> DeviceFacts:
        """Return the facts of the device in its present state."""

    def gpu(self) -> Gpu | None:
        """Return the present facts from a management library; None without one. Never raise."""


class Silent(Exception):
    """A vendor's management library cannot be asked, for a reason in words."""


@runtime_checkable
class SiblingDevice(Protocol):
    """A device of a kind of which a process may see several."""

    def siblings(self) -> tuple[str, ...]:
        """Return the names of all visible devices of this kind, its own among them: `cuda:0` …."""

    def current(self) -> AbstractContextManager[object]:
        """Make this the current device, on which launches go that name no device."""

    def busy_siblings(self) -> dict[str, float]:
        """Return the share of recent time that each other device worked.

        The names are `GPU 3 (GPU-8c2f…)`. A device that does not report it is left out. Never raise.
        """


@runtime_checkable
class ManagedDevice(Protocol):
    """A device that a management library knows. The library may be missing, or find no driver."""

    def silent_library(self) -> str:
        """Return why that library cannot be asked; empty if it can."""


def last_level_cache(reported_bytes: int, architecture: str) -> int:
    """Return the size of a device's last-level cache.

    It is the reported size (0 is unknown), or the Infinity Cache of its class if that is larger.
    """
    infinity_cache_bytes = (
        INFINITY_CACHE_BYTES if architecture.split(":")[0] in INFINITY_CACHE_ARCHITECTURES else 0
    )
    return max(reported_bytes, infinity_cache_bytes) or ASSUMED_CACHE_BYTES


class RealDevice:
    """The common part of every real device.

    It has the host's clock and a flush, but no spin, no graph and no counters; a kind of device adds what it has.
    """

    name = ""

    def host_s(self) -> float:
        return time.perf_counter()

    def reached(self, stamp: Stamp) -> bool:
        """Raise NotImplementedError, since nothing calls it on a device without a spin."""
        raise NotImplementedError

    def spin(self, cycles: int) -> None:
        """Raise NotImplementedError: the device has no spin."""
        raise NotImplementedError

    def capture(self, submit: Callable[[], None]) -> Callable[[], None]:
        """Raise NotImplementedError: the device has no graphs."""
        raise NotImplementedError

    def flusher(self, size_bytes: int) -> Callable[[], None]:
        """Return a function that writes and reads a buffer of its own.

        Without the read, written lines of the cache would have to be evicted inside the next sample.
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
    """A GPU that is timed by torch's events, on its current stream.

    Torch's allocator counts the memory of a call.
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
        most_bytes, _ = self._count_allocations(call)
        return most_bytes

    def held_bytes(self, call: Callable[[], object]) -> int:
        _, held_bytes = self._count_allocations(call)
        return held_bytes

    def _count_allocations(self, call: Callable[[], object]) -> tuple[int, int]:
        """Return the bytes that a call takes.

        They are the most during it, and those after it while its result is kept. Both count above what was allocated
        before the call.
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


# The memory that a process's context takes beside torch's allocator, at most: 0.45 to 0.6 GB under CUDA, and more with
# cuBLAS and cuDNN.
OWN_CONTEXT_BYTES = 2**30
# Processes that this one works for.
_starters: set[int] = set()


def started_by(process: int) -> None:
    """Note a process that started this one to work for it.

    Its memory, and that of its other children, then counts as memory of this run.
    """
    _starters.add(process)


def others_bytes(
    used_bytes: int, torch_bytes: int, holders: Mapping[int, int], before_bytes: int | None = None
) -> int | None:
    """Return the memory of processes outside of this run; None if it cannot be known.

    Args:
        used_bytes: all memory in use on the device.
        torch_bytes: what torch's allocator in this process has reserved of it.
        holders: memory by process, as the driver lists it. In a container this process is missing there, and then the
            list is not used.
        before_bytes: the memory in use before this process had a context; None if it is unknown. It is not used if less
            is in use by now, since some process has then ended.
    """
    if os.getpid() in holders:
        # The list is complete, so everything that it does not give to this run is of others.
        return max(
            0, used_bytes - sum(size for process, size in holders.items() if _is_own(process))
        )
    other_use_bytes = max(0, used_bytes - torch_bytes)
    # A process that started this one has an idle context too.
    starters_bytes = OWN_CONTEXT_BYTES if _starters else 0
    # The memory of this process's own context is not stated, so the most that a context takes is subtracted. A library
    # that communicates between GPUs takes an unknown amount more.
    if before_bytes is None or other_use_bytes < before_bytes:
        return (
            None
            if _communicates()
            else max(0, other_use_bytes - OWN_CONTEXT_BYTES - starters_bytes)
        )
    added_bytes = (
        0 if _communicates() else max(0, other_use_bytes - before_bytes - OWN_CONTEXT_BYTES)
    )
    return max(0, before_bytes - starters_bytes) + added_bytes


def _is_own(process: int) -> bool:
    """Return whether a process belongs to this run.

    These are this process, those that it works for, and all of their children.
    """
    own_processes = {os.getpid(), *_starters}
    return process in own_processes or _parent(process) in own_processes


def _parent(process: int) -> int | None:
    """Return the number of a process's parent; None if it is unknown."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The parent stands behind the name, which is in parentheses and may hold any character.
        content = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        _, _, behind_name = content.rpartition(")")
        _, parent, *_ = behind_name.split()
        return int(parent)
    return None


def _communicates() -> bool:
    """Return whether NCCL may hold buffers, which torch's allocator does not count."""
    import torch

    return torch.distributed.is_available() and torch.distributed.is_initialized()


@contextlib.contextmanager
def answering(device: Device) -> Iterator[None]:
    """Raise any error inside as a DeviceError that names the device."""
    try:
        yield
    except DeviceError:
        raise
    except Exception as error:
        raise stopped_answering(device, error) from error


def stopped_answering(device: Device, error: Exception) -> DeviceError:
    """Return the error that names a device which raised another one."""
    return DeviceError(f"{device.name} stopped answering: {error}")
