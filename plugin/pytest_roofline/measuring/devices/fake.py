"""A device without hardware: a clock that only moves when told to. For tests of the engine, the gate and the reports.

A measured function calls `device.work(seconds)`, and that is how long it took. Nothing sleeps; a run that would take
a minute on hardware takes a millisecond.
"""

from collections.abc import Callable

from ...core.facts import DeviceFacts
from .base import Stamp


class FakeDevice:
    """A device with a scripted clock.

    Args:
        product: the name that its driver would print.
        tick_s: resolution of its stamps; times are rounded to it.
        cache_bytes: its last-level cache.
        memory_bytes: its memory, all free.
        driver: its driver's version.
        slowdown: called with the number of the work item (from 0), gives the factor on its duration: a script of
            clocks, throttling or noise.
        vanish_after: after this many stamps every further one fails, as a device that fell off the bus does.
    """

    def __init__(
        self,
        product: str = "NVIDIA H100 80GB HBM3",
        *,
        tick_s: float = 1e-9,
        cache_bytes: int = 50 * 2**20,
        memory_bytes: int = 80 * 2**30,
        driver: str = "550.54",
        slowdown: Callable[[int], float] = lambda _: 1.0,
        vanish_after: int | None = None,
    ) -> None:
        self.name = "fake"
        self.tick_s = tick_s
        self.shortest_span_s = 200 * tick_s
        self.clock_s = 0.0
        self.works = 0
        self.stamps = 0
        self._facts = DeviceFacts(
            type="fake",
            product=product,
            uuid="GPU-fake",
            memory_bytes=memory_bytes,
            last_level_cache_bytes=cache_bytes,
            driver=driver,
        )
        self._slowdown = slowdown
        self._vanish_after = vanish_after

    def work(self, seconds: float) -> None:
        """Keep the device busy for so long, times the scripted slowdown."""
        self.clock_s += seconds * self._slowdown(self.works)
        self.works += 1

    def stamp(self) -> Stamp:
        """The clock, rounded to the tick."""
        self.stamps += 1
        if self._vanish_after is not None and self.stamps > self._vanish_after:
            raise RuntimeError("the device fell off the bus")
        return round(self.clock_s / self.tick_s)

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        """Seconds between two stamps."""
        assert isinstance(start, int)
        assert isinstance(end, int)
        return (end - start) * self.tick_s

    def synchronize(self) -> None:
        """Nothing runs behind the host's back here."""

    def host_s(self) -> float:
        """The scripted clock serves the host too."""
        return self.clock_s

    def free_bytes(self) -> int:
        """All of its memory."""
        return self._facts.memory_bytes or 0

    def release(self) -> None:
        """Holds nothing."""

    def facts(self) -> DeviceFacts:
        """As scripted."""
        return self._facts
