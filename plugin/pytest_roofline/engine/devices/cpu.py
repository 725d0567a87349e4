"""The host's processor as a device. It is the embedded default, so that everything can be tried and
tested anywhere.
"""

import functools
import itertools
import os
import time
from collections.abc import Callable, Sequence

from ...core.facts import DeviceFacts
from ...core.samples import BUSY
from ...core.units import printable
from .. import host
from .base import Counters, RealDevice, Stamp, Traits

# What neighbours may take of the usable cores before a measurement is theirs rather than the machine's.
MOST_CORES_TAKEN = 0.25
MOST_SHARE_TAKEN = 0.05
# The kernel counts in hundredths of a second; below this its figure is too coarse.
SHORTEST_WATCH_S = 0.1
# How long to look who keeps the cores busy; so many are named, and none that takes less of a core.
WATCH_S, NAMED, LEAST_CORES = 1.0, 5, 0.05
QUIETEN = "wait for them to end, or end them"


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
    """Times with `perf_counter_ns`. Work on the CPU is done when the call returns, so there is
    nothing to wait for.
    """

    def __init__(self) -> None:
        self.name = "cpu"
        self.traits = Traits(
            tick_s=_tick_s(),
            # Long enough that one interrupt of the operating system does not double a sample.
            shortest_span_s=200e-6,
            queues=False,
            # A core's clock settles in milliseconds, a GPU's in hundreds of them.
            warmup_floor_s=0.02,
            # Processes on a CPU differ by some 15 %: knowing one of them to a fifth of that is enough.
            precision=0.03,
            # A virtual machine's memory bandwidth jumps by a third within a minute (measured).
            repeatability=0.40,
        )

    def stamp(self) -> Stamp:
        return time.perf_counter_ns()

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        return float(end - start) * 1e-9

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def counters(self) -> Counters:
        """Return how often the core was taken away, and others' seconds. The scheduler takes the
        core; the seconds are on it.
        """
        resource = host.limits()
        return Counters(
            preemptions=None
            if resource is None
            else int(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw),
            others_core_s=others_core_s(),
        )

    def free_bytes(self) -> int:
        """Return the machine's free memory, or less if the cgroup limits it."""
        return host.free_memory_bytes()

    def peak_bytes(self, call: Callable[[], object]) -> int | None:
        """Return the peak of allocations and releases during the call. Torch records each.

        Memory from before that the call gives back is not in that record, nor what its own Python threads allocate.
        None inside a profiler of the user's, whose record a second one would end.
        """
        changes = _allocations(call)
        return None if changes is None else max(itertools.accumulate(changes, initial=0))

    def held_bytes(self, call: Callable[[], object]) -> int | None:
        """Return the allocations of the call that are not released. Torch's record tells them."""
        changes = _allocations(call)
        return None if changes is None else max(0, sum(changes))

    def release(self) -> None:
        """Nothing is cached here: freed host memory is free."""

    def facts(self) -> DeviceFacts:
        return self._facts

    @functools.cached_property
    def _facts(self) -> DeviceFacts:
        """Return model, family, cores, cache and clock. The clock is that of the beginning."""
        facts = host.host_facts()
        return DeviceFacts(
            type="cpu",
            product=facts.cpu_model,
            architecture=host.cpu_family(),
            memory_bytes=facts.usable_memory_bytes,
            units=facts.usable_cores,
            last_level_cache_bytes=host.last_level_cache_bytes(),
            clock_mhz=host.clock_mhz(),
        )


def _allocations(call: Callable[[], object]) -> list[int] | None:
    """Return every allocation of a call in bytes, releases negative. Up to its end with its result
    kept. None: see above.
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
    """The load of other processes on the cores that this one uses. It is watched from the making
    until `cores_taken` is asked.

    Programs that this process ran meanwhile and waited for, such as a compiler, are no others. Where they are to be
    `named`, every process is looked at.
    """

    def __init__(self, *, named: bool = False) -> None:
        self._processes_s = _processes_s() if named else {}
        self._busy_s, self._own_s, self._wall_s = _busy_s(), _own_s(), time.perf_counter()

    def cores_taken(self) -> float | None:
        """Return the cores that others kept busy on average. None if the machine does not tell or
        the time was too short.
        """
        busy_s, wall_s = _busy_s(), time.perf_counter() - self._wall_s
        if busy_s is None or self._busy_s is None or wall_s < SHORTEST_WATCH_S:
            return None
        return max(0.0, busy_s - self._busy_s - (_own_s() - self._own_s)) / wall_s

    def taken_by(self) -> tuple[str, ...]:
        """Return the busiest readable processes, each with its cores: `cc1 (7) 1.0`."""
        if not self._processes_s:
            return ()
        wall_s, before = time.perf_counter() - self._wall_s, self._processes_s
        worked = {
            name: (seconds - before[name]) / wall_s
            for name, seconds in _processes_s().items()
            if name in before
        }
        most = sorted(worked, key=worked.__getitem__, reverse=True)[:NAMED]
        return tuple(f"{name} {worked[name]:.1f}" for name in most if worked[name] > LEAST_CORES)

    def text(self, usable: int) -> str:
        """Return `other processes keep 1.6 of 2 cores busy (cc1 (7) 1.0)`. Empty if they do not."""
        return occupied_text(self.cores_taken(), usable, self.taken_by())


def neighbours_now() -> str:
    """Return who keeps the cores busy now; empty if nobody does. Watching takes a second."""
    neighbours = Neighbours(named=True)
    time.sleep(WATCH_S)
    return neighbours.text(host.usable_cores())


def occupied_text(cores_taken: float | None, usable: int, taken_by: Sequence[str]) -> str:
    """Return the text that others keep usable cores busy, and their names. Empty if they do not."""
    if cores_taken is None or not are_taken(cores_taken, usable):
        return ""
    by = printable(", ".join(taken_by)) or "their names cannot be read here"
    return f"other processes keep {min(cores_taken, usable):.1f} of {usable} cores busy ({by})"


def _processes_s() -> dict[str, float]:
    """Return the seconds that every other readable process has worked. They are by
    its name and number (proc(5), `stat`).
    """
    seconds = {}
    for path in (host.ROOT / "proc").glob("[0-9]*/stat"):
        # The name stands in brackets, and may hold some itself.
        opened, _, numbers_text = (host.read(path) or "").rpartition(")")
        name, words = opened.partition("(")[2], numbers_text.split()
        if len(words) > 12 and path.parent.name != str(os.getpid()):
            seconds[f"{name} ({path.parent.name})"] = (
                int(words[11]) + int(words[12])
            ) / os.sysconf("SC_CLK_TCK")
    return seconds


def others_core_s() -> float | None:
    """Return the seconds that others have kept this process's cores busy. They count from any one
    moment; None is unknown.
    """
    busy_s = _busy_s()
    return None if busy_s is None else busy_s - time.process_time()


def _own_s() -> float:
    """Return the seconds that this process and its ended children worked."""
    times = os.times()
    return time.process_time() + times.children_user + times.children_system


def _busy_s() -> float | None:
    """Seconds that the usable cores have worked since boot, for anybody."""
    usable = {f"cpu{number}" for number in host.usable_cpus()}
    rows = map(str.split, (host.read(host.ROOT / "proc/stat") or "").splitlines())
    # user, nice, system, irq, softirq; not idle, waiting for disks, or stolen by the hypervisor.
    ticks = [
        sum(int(row[column]) for column in (1, 2, 3, 6, 7))
        for row in rows
        if len(row) > 7 and row[0] in usable
    ]
    return sum(ticks) / os.sysconf("SC_CLK_TCK") if ticks else None


def are_taken(cores_taken: float | None, usable: int) -> bool:
    """Return whether others keep too many of the usable cores busy. A CPU measurement then tells
    nothing of the machine.

    A threaded copy that has to wait for one core waits for whole slices of the scheduler, so a little is too much.
    """
    return cores_taken is not None and cores_taken > max(
        MOST_CORES_TAKEN, MOST_SHARE_TAKEN * usable
    )


def too_busy(cores_taken: float | None) -> str:
    """Return why a CPU measurement tells nothing of the machine; else empty. The reason is the
    neighbours.
    """
    usable = host.usable_cores()
    if not are_taken(cores_taken, usable):
        return ""
    return f"other processes kept {cores_taken:.1f} of {usable} {BUSY}; run it on a quiet machine"
