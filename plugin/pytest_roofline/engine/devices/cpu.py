"""The host's processor as a device, and the load of other processes on it.

It needs no accelerator, so everything can be tried and tested on any machine.
"""

import functools
import itertools
import os
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from ...core.facts import DeviceFacts
from ...core.samples import BUSY
from ...core.units import printable
from .. import host
from .base import Counters, RealDevice, Stamp, Traits

# The most that other processes may keep busy: cores, or a share of the usable ones if that is more.
MOST_CORES_TAKEN = 0.25
MOST_SHARE_TAKEN = 0.05
# The kernel counts in hundredths of a second, which is too coarse for a shorter watch.
SHORTEST_WATCH_S = 0.1
# Seconds of a watch for busy processes, how many of them are named, and the fewest cores of a named one.
WATCH_S, NAMED, LEAST_CORES = 1.0, 5, 0.05
QUIETEN = "end the busy processes, or wait until they end"


@functools.cache
def _tick_s() -> float:
    """Return the smallest non-zero step of the clock, in seconds."""
    smallest = 1_000_000
    for _ in range(2000):
        first = time.perf_counter_ns()
        second = time.perf_counter_ns()
        while second == first:
            second = time.perf_counter_ns()
        smallest = min(smallest, second - first)
    return smallest * 1e-9


class CpuDevice(RealDevice):
    """The CPU, timed by `perf_counter_ns`. Its work is done when a call returns."""

    def __init__(self) -> None:
        """Describe the CPU as a device.

        It has no queue, and its clock is that of the host.
        """
        self.name = "cpu"
        self.traits = Traits(
            tick_s=_tick_s(),
            # Long enough that one interrupt of the operating system does not double a sample.
            shortest_span_s=200e-6,
            queues=False,
            # A core's clock settles in milliseconds, a GPU's in hundreds of them.
            warmup_floor_s=0.02,
            # Processes on a CPU differ by some 15 %, so the median of one of them need not be known more precisely.
            precision=0.03,
            # A virtual machine's memory bandwidth jumps by a third within a minute (measured).
            repeatability=0.40,
        )

    def stamp(self) -> Stamp:
        return time.perf_counter_ns()

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        return float(end - start) * 1e-9

    def synchronize(self) -> None:
        """Do nothing, since all work is done."""

    def counters(self) -> Counters:
        """Return how often the scheduler interrupted this process, and the core time of others."""
        return Counters(
            preemptions=resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw,
            others_core_s=others_core_s(),
        )

    def free_bytes(self) -> int:
        """Return the free memory of the machine.

        It is less if a limit of this process leaves less.
        """
        return host.free_memory_bytes()

    def peak_bytes(self, call: Callable[[], object]) -> int | None:
        """Return the peak of a call's memory, from torch's record of allocations and releases.

        The record lacks the allocations of Python threads, and releases of memory from before the call. None inside a
        profiler of the user's: a second profiler would end the first one's record.
        """
        changes = _allocations(call)
        return None if changes is None else max(itertools.accumulate(changes, initial=0))

    def held_bytes(self, call: Callable[[], object]) -> int | None:
        """Return the bytes that a call allocated and did not release; None as for `peak_bytes`."""
        changes = _allocations(call)
        return None if changes is None else max(0, sum(changes))

    def release(self) -> None:
        """Do nothing, since torch caches no host memory."""

    def facts(self) -> DeviceFacts:
        return self._facts

    @functools.cached_property
    def _facts(self) -> DeviceFacts:
        """The facts of the processor, read once. So the clock is that of the first reading."""
        return replace(
            host.processor_facts(host.host_facts()),
            last_level_cache_bytes=host.last_level_cache_bytes(),
            clock_mhz=host.clock_mhz(),
        )


def _allocations(call: Callable[[], object]) -> list[int] | None:
    """Return the bytes of every allocation of a call, in order; a release is negative.

    The result of the call is kept until the record ends. None inside a profiler of the user's.
    """
    import torch

    if torch._C._autograd._profiler_enabled():
        return None
    with torch.autograd.profiler.profile(use_kineto=True, profile_memory=True) as profile:
        output = call()
    del output
    return [
        event.nbytes() for event in profile.kineto_results.events() if event.name() == "[memory]"
    ]


class Neighbours:
    """A watch of other processes' load on the cores that this process may use.

    It lasts from its making until `cores_taken` is called. Programs that this process ran and waited for, such as a
    compiler, do not count as others. With `named`, it also notes the time of every process, for `taken_by`.
    """

    def __init__(self, *, named: bool = False) -> None:
        self._processes_s = _processes_s() if named else {}
        self._busy_s, self._own_s, self._wall_s = _busy_s(), _own_s(), time.perf_counter()

    def cores_taken(self) -> float | None:
        """Return the average number of cores that others kept busy.

        None if the machine does not report it, or if the watch was too short.
        """
        busy_s, wall_s = _busy_s(), time.perf_counter() - self._wall_s
        if busy_s is None or self._busy_s is None or wall_s < SHORTEST_WATCH_S:
            return None
        all_s, own_s = busy_s - self._busy_s, _own_s() - self._own_s
        return max(0.0, all_s - own_s) / wall_s

    def taken_by(self) -> tuple[str, ...]:
        """Return the busiest readable processes, each with its cores: `cc1 (7) 1.0`.

        Empty if the watch was made without `named`. Processes that began during the watch are left out.
        """
        if not self._processes_s:
            return ()
        wall_s, before = time.perf_counter() - self._wall_s, self._processes_s
        cores_by_name = {
            name: (seconds - before[name]) / wall_s
            for name, seconds in _processes_s().items()
            if name in before
        }
        busiest = sorted(cores_by_name, key=cores_by_name.__getitem__, reverse=True)[:NAMED]
        return tuple(
            f"{name} {cores_by_name[name]:.1f}"
            for name in busiest
            if cores_by_name[name] > LEAST_CORES
        )

    def text(self, usable: int) -> str:
        """Return `other processes keep 1.6 of 2 cores busy (cc1 (7) 1.0)`. Empty if they do not."""
        return occupied_text(self.cores_taken(), usable, self.taken_by())


def neighbours_now() -> str:
    """Watch for a second who keeps the cores busy.

    Return the text on that; empty if nobody does.
    """
    neighbours = Neighbours(named=True)
    time.sleep(WATCH_S)
    return neighbours.text(host.usable_cores())


def occupied_text(cores_taken: float | None, usable: int, taken_by: Sequence[str]) -> str:
    """Return the text that others keep usable cores busy, and their names. Empty if they do not."""
    if cores_taken is None or not are_taken(cores_taken, usable):
        return ""
    names = printable(", ".join(taken_by)) or "the names of these processes cannot be read here"
    return f"other processes keep {min(cores_taken, usable):.1f} of {usable} cores busy ({names})"


def _processes_s() -> dict[str, float]:
    """Return the seconds that every other readable process has worked.

    The keys are its name and number, `cc1 (7)`; proc(5) describes the fields of `stat`.
    """
    seconds = {}
    for path in (host.ROOT / "proc").glob("[0-9]*/stat"):
        # The line is `7 (name) S 1 …`. The name may hold brackets too, so the last closing one ends it. Of the fields
        # behind it, 11 and 12 are the ticks in user and in system mode.
        before_end, _, numbers_text = (host.read(path) or "").rpartition(")")
        name, words = before_end.partition("(")[2], numbers_text.split()
        if len(words) > 12 and path.parent.name != str(os.getpid()):
            seconds[f"{name} ({path.parent.name})"] = (
                int(words[11]) + int(words[12])
            ) / os.sysconf("SC_CLK_TCK")
    return seconds


def others_core_s() -> float | None:
    """Return the seconds for which others have kept this process's cores busy.

    They count from some fixed moment, so only a difference of two has a meaning. None is unknown.
    """
    busy_s = _busy_s()
    return None if busy_s is None else busy_s - time.process_time()


def _own_s() -> float:
    """Return the seconds that this process and its ended children worked."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _busy_s() -> float | None:
    """Return the seconds that the usable cores have worked since boot, for any process.

    None if the machine does not report it.
    """
    usable = {f"cpu{number}" for number in host.usable_cpus()}
    rows = map(str.split, (host.read(host.ROOT / "proc/stat") or "").splitlines())
    # The columns are user, nice, system, irq and softirq. Those left out are idle time, waiting for disks, and time
    # that the hypervisor took.
    ticks = [
        sum(int(row[column]) for column in (1, 2, 3, 6, 7))
        for row in rows
        if len(row) > 7 and row[0] in usable
    ]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def are_taken(cores_taken: float | None, usable: int) -> bool:
    """Return whether others keep so many cores busy that a CPU measurement is useless.

    A small load is too much already: a threaded copy waits for its slowest core, for whole slices of the scheduler.
    """
    return cores_taken is not None and cores_taken > max(
        MOST_CORES_TAKEN, MOST_SHARE_TAKEN * usable
    )


def too_busy(cores_taken: float | None) -> str:
    """Return why other processes make a CPU measurement useless; empty if they do not."""
    usable = host.usable_cores()
    if not are_taken(cores_taken, usable):
        return ""
    return f"other processes kept {cores_taken:.1f} of {usable} {BUSY}; run the test on a quiet machine"
