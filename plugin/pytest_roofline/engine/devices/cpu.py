"""The host's processor as a device: the embedded default, so that everything can be tried and tested anywhere."""

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
QUIETEN = "wait until they end, or end them"


@functools.cache
def _tick_s() -> float:
    """The smallest non-zero difference seen between two readings of the clock, in seconds."""
    smallest = 1_000_000
    for _ in range(2000):
        first = time.perf_counter_ns()
        second = time.perf_counter_ns()
        while second == first:
            second = time.perf_counter_ns()
        smallest = min(smallest, second - first)
    return smallest * 1e-9


class CpuDevice(RealDevice):
    """Times with `perf_counter_ns`; work on the CPU is done when the call returns, so there is nothing to wait for."""

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
        """Return the number of times that the scheduler took the core away, and the seconds of others on it."""
        resource = host.limits()
        return Counters(
            preemptions=None
            if resource is None
            else int(resource.getrusage(resource.RUSAGE_SELF).ru_nivcsw),
            others_core_s=others_core_s(),
        )

    def free_bytes(self) -> int:
        """The smaller of the machine's free memory and what the cgroup still allows."""
        return host.free_memory_bytes()

    def peak_bytes(self, call: Callable[[], object]) -> int | None:
        """By torch's record of every allocation and release during the call.

        Memory from before that the call gives back is not in that record, nor what its own Python threads allocate.
        None inside a profiler of the user's, whose record a second one would end.
        """
        changes = _allocations(call)
        return None if changes is None else max(itertools.accumulate(changes, initial=0))

    def held_bytes(self, call: Callable[[], object]) -> int | None:
        """By the same record, of which only what is not released again is left."""
        changes = _allocations(call)
        return None if changes is None else max(0, sum(changes))

    def release(self) -> None:
        """Nothing is cached here: freed host memory is free."""

    def facts(self) -> DeviceFacts:
        return self._facts

    @functools.cached_property
    def _facts(self) -> DeviceFacts:
        """Model, family, cores and last-level cache; the clock is that of the beginning."""
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
    """Every allocation of a call in bytes, releases negative, up to its end with its result kept; None: see above."""
    import torch

    if torch._C._autograd._profiler_enabled():
        return None
    with torch.autograd.profiler.profile(use_kineto=True, profile_memory=True) as profile:
        kept = call()
    del kept
    return [
        event.nbytes() for event in profile.kineto_results.events() if event.name() == "[memory]"
    ]


class Neighbours:
    """How busy other processes keep the cores that this one uses, from its making until `cores_taken` is asked.

    Programs that this process ran meanwhile and waited for, such as a compiler, are no others. Where they are to be
    `named`, every process is looked at.
    """

    def __init__(self, *, named: bool = False) -> None:
        self._processes_s = _processes_s() if named else {}
        self._busy_s, self._own_s, self._wall_s = _busy_s(), _own_s(), time.perf_counter()

    def cores_taken(self) -> float | None:
        """Cores that others kept busy on average; None where the machine does not tell or the time was too short."""
        busy_s, wall_s = _busy_s(), time.perf_counter() - self._wall_s
        if busy_s is None or self._busy_s is None or wall_s < SHORTEST_WATCH_S:
            return None
        return max(0.0, busy_s - self._busy_s - (_own_s() - self._own_s)) / wall_s

    def taken_by(self) -> tuple[str, ...]:
        """The busiest of those that may be read, each with the cores that it kept busy: `cc1 (7) 1.0`."""
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

    def told(self, usable: int) -> str:
        """`other processes keep 1.6 of 2 cores busy (cc1 (7) 1.0)`; empty where they do not."""
        return occupied(self.cores_taken(), usable, self.taken_by())


def neighbours_now() -> str:
    """Who keeps the cores busy now, watched for a second; empty where nobody does."""
    neighbours = Neighbours(named=True)
    time.sleep(WATCH_S)
    return neighbours.told(host.usable_cores())


def occupied(cores_taken: float | None, usable: int, taken_by: Sequence[str]) -> str:
    """That others keep the usable cores busy, in words that name them; empty where they do not."""
    if cores_taken is None or not are_taken(cores_taken, usable):
        return ""
    by = printable(", ".join(taken_by)) or "by whom cannot be read here"
    return f"other processes keep {min(cores_taken, usable):.1f} of {usable} cores busy ({by})"


def _processes_s() -> dict[str, float]:
    """Seconds that every other process that may be read has worked, by its name and number (proc(5), `stat`)."""
    seconds = {}
    for path in (host.ROOT / "proc").glob("[0-9]*/stat"):
        # The name stands in brackets, and may hold some itself.
        opened, _, rest = (host.read(path) or "").rpartition(")")
        name, words = opened.partition("(")[2], rest.split()
        if len(words) > 12 and path.parent.name != str(os.getpid()):
            seconds[f"{name} ({path.parent.name})"] = (
                int(words[11]) + int(words[12])
            ) / os.sysconf("SC_CLK_TCK")
    return seconds


def others_core_s() -> float | None:
    """Seconds that others than this process have kept its cores busy, counted from any one moment; None is unknown."""
    busy_s = _busy_s()
    return None if busy_s is None else busy_s - time.process_time()


def _own_s() -> float:
    """Seconds that this process has worked, and those that it started and that have ended."""
    told = os.times()
    return time.process_time() + told.children_user + told.children_system


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
    """Whether others keep so many of the usable cores busy that a CPU measurement tells nothing of the machine.

    A threaded copy that has to wait for one core waits for whole slices of the scheduler, so a little is too much.
    """
    return cores_taken is not None and cores_taken > max(
        MOST_CORES_TAKEN, MOST_SHARE_TAKEN * usable
    )


def too_busy(cores_taken: float | None) -> str:
    """Why a CPU measurement beside such neighbours tells nothing of the machine; empty where it does."""
    usable = host.usable_cores()
    if not are_taken(cores_taken, usable):
        return ""
    return f"other processes kept {cores_taken:.1f} of {usable} {BUSY}; run it on a quiet machine"
