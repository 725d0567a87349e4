"""The host's processor as a device: the embedded default, so that everything can be tried and tested anywhere."""

import functools
import itertools
import time
from collections.abc import Callable

from ...core.facts import DeviceFacts
from .. import host
from .base import Counters, RealDevice, Stamp, Traits


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
        # Asked for by every measurement, and none of it changes but the clock, which is that of the beginning.
        self._facts: DeviceFacts | None = None
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
        """The clock, in nanoseconds."""
        return time.perf_counter_ns()

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        """Seconds between two readings."""
        assert isinstance(start, int)
        assert isinstance(end, int)
        return (end - start) * 1e-9

    def synchronize(self) -> None:
        """Nothing to wait for."""

    def counters(self) -> Counters:
        """How often the scheduler took the core away, and how long others had it."""
        return Counters(preemptions=host.preemptions(), others_core_s=host.others_core_s())

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
        """Model, family, cores and last-level cache."""
        if self._facts is None:
            self._facts = self._read_facts()
        return self._facts

    def _read_facts(self) -> DeviceFacts:
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
    return [event.nbytes() for event in profile.kineto_results.events() if event.name() == "[memory]"]
