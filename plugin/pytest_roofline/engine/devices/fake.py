"""A device without hardware, which simulates an in-order stream. It helps to understand the timing engine.

The host submits work, and the device does it later. There are two clocks: `host_s()` is the host's, and `clock_s` the
time at which the device will have finished all submitted work. Submitting takes the host some time. Work starts a
launch latency after it was submitted, or when the device is free. A full queue makes the host wait. A measured function
calls `device.work(seconds)`. Nothing sleeps: a run that would take a minute on hardware takes a millisecond.

    device = FakeDevice(launch_s=8e-6, latency_s=4e-6, tick_s=0.5e-6)
    for _ in range(3):
        device.work(2.3e-6)      # three kernels of 2.3 µs that the host submits more slowly than the device runs them
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

from ...core.facts import POWER_CAP, DeviceFacts, Gpu
from .base import AllocatedBytes, Counters, Stamp, Traits, last_level_cache

# The clock of an idle card as a share of its full one: 345 of 1980 MHz.
IDLE_CLOCK = 345 / 1980


class FakeDevice:
    """A device with scripted clocks.

    Args:
        product: the name that its driver would print.
        tick_s: resolution of its stamps; times are rounded to it.
        cache_bytes: its last-level cache, as it really is: see `touch`.
        reported_cache_bytes: the cache that its driver reports, where that is another.
        architecture: as its driver would print it.
        memory_bytes: its memory, all free.
        driver: its driver's version.
        slowdown: gives the factor on the duration of a work item by its number, from 0.
        vanish_after: after this many stamps every further one fails, as a device that fell off the bus does.
        launch_s: host seconds to submit a piece of work.
        record_s: host seconds to submit a stamp.
        pair_s: device seconds that a stamp takes, so that an empty pair of them shows as much.
        latency_s: from submitting to starting on an idle device.
        queue_depth: submitted entries that it holds before the host must wait.
        clock: the share of its full clock that it runs at, by the seconds that it has been busy.
        clock_hz: its full clock, which `spin` counts.
        throttle: causes active by the seconds that it has been busy; None is a device that does not tell.
        others_bytes: memory that another process holds; None is a device that does not tell.
        others_busy: the share of the time that another process works on it.
        counters_s: host seconds that a round of questions about its state takes, while it idles: 0.1 is what ROCm's
            `amdsmi_get_violation_status` sleeps (amd_smi.cc: `kFASTEST_POLL_TIME_MS`).
        skew_s: how much later this rank's host starts than the others'.
        clock_ramp_s: busy seconds that the clock takes from that of an idle card to the full one, in a straight line.
            An H100 idles at 345 of 1980 MHz (NVML's clock info of an idle card).
        launch_gap_s: device seconds between two launches of a stream, which the nodes of a graph do not have.
        graph_upload_s: device seconds a node of a graph's first replay, which uploads it.
        dirty_share: of the cache, that may hold what was written and is not yet in memory: a write-back cache; whoever
            evicts it pays.
        capture_fails: whether every capture fails, as where work is submitted that no graph can hold.
        power_cap_w: the power at which its clock gives way to work that would draw more (`work`'s `watts`); the power
            cap is then one of its active causes. None is a card that draws what it wants.
        driver_bytes: of its memory, kept back by the driver: NVML's first account calls them used, its second reserved
            (nvmlMemory_t and nvmlMemory_v2_t).
        context_bytes: of its memory, that a process takes beside what it allocates: code, queues, libraries' buffers.
        traits: what it can do, instead of everything.
        gpu: what a management library tells of it, as arguments of `Gpu`: `{"power_limit_w": 400}`, all else but its
            product unknown; None is a device that no library knows. A test may change `told` while it runs.
    """

    def __init__(
        self,
        product: str = "NVIDIA H100 80GB HBM3",
        *,
        tick_s: float = 1e-9,
        cache_bytes: int = 50 * 2**20,
        reported_cache_bytes: int | None = None,
        architecture: str = "sm_90",
        memory_bytes: int = 80 * 2**30,
        driver: str = "550.54",
        slowdown: Callable[[int], float] = lambda _: 1.0,
        vanish_after: int | None = None,
        launch_s: float = 0.0,
        record_s: float = 0.0,
        pair_s: float = 0.0,
        latency_s: float = 0.0,
        queue_depth: int = 1024,
        clock: Callable[[float], float] = lambda _: 1.0,
        clock_hz: float = 2e9,
        throttle: Callable[[float], frozenset[str]] | None = lambda _: frozenset(),
        others_bytes: int | None = 0,
        others_busy: float | None = 0.0,
        counters_s: float = 0.0,
        skew_s: float = 0.0,
        clock_ramp_s: float = 0.0,
        launch_gap_s: float = 0.0,
        graph_upload_s: float = 0.0,
        dirty_share: float = 0.0,
        capture_fails: bool = False,
        power_cap_w: float | None = None,
        driver_bytes: int = 0,
        context_bytes: int = 0,
        traits: Traits | None = None,
        gpu: dict[str, Any] | None = None,
    ) -> None:
        """Make a device that computes nothing: its clocks, its load and its failures are scripted.

        The class describes each argument.
        """
        self.name = "fake"
        self.traits = traits or Traits(
            tick_s=tick_s, shortest_span_s=200 * tick_s, spins=True, graphs=True
        )
        self.tick_s, self.launch_s, self.record_s = tick_s, launch_s, record_s
        self.pair_s, self.latency_s, self.queue_depth = pair_s, latency_s, queue_depth
        self.clock_hz, self.gpu_facts = clock_hz, gpu
        self.clock_s = self.busy_s = 0.0
        self.works = self.stamps = 0
        self._host_s = skew_s
        self._other_stream_s = 0.0
        self._cache_bytes = cache_bytes
        self._scripted_clock, self._throttle, self._slowdown = clock, throttle, slowdown
        self.clock_ramp_s, self.launch_gap_s, self.graph_upload_s = (
            clock_ramp_s,
            launch_gap_s,
            graph_upload_s,
        )
        self.dirty_share, self.capture_fails, self.power_cap_w = (
            dirty_share,
            capture_fails,
            power_cap_w,
        )
        self.driver_bytes, self.context_bytes = driver_bytes, context_bytes
        # The share of the clock that the power cap leaves, and the written bytes that are in the cache only.
        self._capped, self._dirty_bytes = 1.0, 0
        self._use_by_others, self._counters_s = (others_bytes, others_busy), counters_s
        self._throttled_s: dict[str, float] = {}
        self._vanish_after = vanish_after
        self._ends: deque[float] = deque()
        self._recording: list[Callable[[], float]] | None = None
        self._cached: OrderedDict[object, int] = OrderedDict()
        self._held_bytes = self._most_bytes = 0
        reported_bytes = cache_bytes if reported_cache_bytes is None else reported_cache_bytes
        self._facts = DeviceFacts(
            type="fake",
            product=product,
            uuid="GPU-fake",
            memory_bytes=memory_bytes,
            architecture=architecture,
            last_level_cache_bytes=last_level_cache(reported_bytes, architecture),
            driver=driver,
        )

    def _submit(self, seconds: float, host_s: float) -> float:
        """Put an entry of so many seconds into the scripted queue.

        Return the time at which it will be done. Submitting takes the host `host_s`. If the queue is full, the host
        waits for the oldest entry.
        """
        self._host_s += host_s
        # Entries that are done have left the queue.
        while self._ends and self._ends[0] <= self._host_s:
            self._ends.popleft()
        if len(self._ends) >= self.queue_depth:
            self._host_s = self._ends.popleft()
        self.clock_s = max(self._host_s + self.latency_s, self.clock_s) + seconds
        self._ends.append(self.clock_s)
        return self.clock_s

    def work(
        self,
        seconds: float,
        touch: object = None,
        size_bytes: int = 0,
        cached: float = 1.0,
        written_bytes: int = 0,
        watts: float = 0.0,
    ) -> None:
        """Submit a kernel that takes `seconds` at full clock, times the scripted slowdown.

        Args:
            touch: the buffer that it reads; None reads none. It is in the cache until others push it out.
            size_bytes: of that buffer.
            cached: the factor on the duration if the buffer is in the cache.
            written_bytes: how much of the buffer it writes.
            watts: the power that it would draw at full clock.
        """

        def takes_s() -> float:
            self._draw(watts)
            written = self._written_share(size_bytes, written_bytes)
            return self._takes_s(written * seconds, touch, size_bytes, cached)

        if self._recording is not None:
            self._recording.append(takes_s)
        else:
            self._submit(takes_s() + self.launch_gap_s, self.launch_s)

    def _draw(self, watts: float) -> None:
        """Lower the clock to the power cap, or restore it.

        It falls in proportion to what work draws above the cap.
        """
        cap_w = self.power_cap_w
        self._capped = cap_w / watts if cap_w is not None and watts > cap_w else 1.0

    def _written_share(self, size_bytes: int, written_bytes: int) -> float:
        """Return the factor of a write-back cache on a kernel's duration.

        Bytes that stay in the cache save time, and written bytes of others that must be evicted cost time.
        """
        if not (self.dirty_share and size_bytes):
            return 1.0
        # The bytes of this kernel that stay in the cache, and those of earlier kernels that it pushes out.
        stays = min(written_bytes, int(self.dirty_share * self._cache_bytes))
        evicted = min(self._dirty_bytes, size_bytes)
        self._dirty_bytes += stays - evicted
        return 1.0 + (evicted - stays) / size_bytes

    def _clock(self, busy_s: float) -> float:
        """Return the scripted clock after so many busy seconds.

        It is a share of the full one. A power cap lowers it, and so does a device that was idle before.
        """
        ramped = 1.0
        if busy_s < self.clock_ramp_s:
            ramped = IDLE_CLOCK + (1 - IDLE_CLOCK) * busy_s / self.clock_ramp_s
        return self._scripted_clock(busy_s) * self._capped * ramped

    def _takes_s(self, seconds: float, touch: object, size_bytes: int, cached: float) -> float:
        """Return how long a kernel takes now by the script.

        Its buffer `touch` is put into the cache. A buffer that was in the cache already makes it `cached` times as
        long.
        """
        factor = self._slowdown(self.works) / self._clock(self.busy_s)
        was_cached = touch is not None and self._touch(touch, size_bytes)
        factor *= cached if was_cached else 1.0
        self.works += 1
        self._be_busy(seconds * factor)
        return seconds * factor

    def _be_busy(self, seconds: float) -> None:
        """Count busy seconds, also for each cause that is active."""
        for cause in self._active() or ():
            self._throttled_s[cause] = self._throttled_s.get(cause, 0.0) + seconds
        self.busy_s += seconds

    def _active(self) -> frozenset[str] | None:
        """Return the causes that are active now.

        None on a device that does not report them.
        """
        if self._throttle is None:
            return None
        causes = self._throttle(self.busy_s)
        return causes | {POWER_CAP} if self._capped < 1 else causes

    def _touch(self, buffer: object, size_bytes: int) -> bool:
        """Put a buffer into the cache, and return whether it was there before.

        The least recently touched buffers leave a full cache.
        """
        hit = self._cached.pop(buffer, None) is not None
        self._cached[buffer] = size_bytes
        while sum(self._cached.values()) > self._cache_bytes:
            self._cached.popitem(last=False)
        return hit

    def stamp(self) -> Stamp:
        """Submit a stamp, and return the time at which the device will reach it.

        Raise RuntimeError after `vanish_after` stamps.
        """
        self.stamps += 1
        if self._vanish_after is not None and self.stamps > self._vanish_after:
            raise RuntimeError("the device fell off the bus")
        return self._submit(self.pair_s, self.record_s)

    def reached(self, stamp: Stamp) -> bool:
        """Return whether the device has reached a stamp by the host's clock."""
        assert isinstance(stamp, float)
        return stamp <= self._host_s

    def elapsed_s(self, start: Stamp, end: Stamp) -> float:
        """Wait for the later stamp, and return the seconds between both.

        Each is rounded to the tick.
        """
        assert isinstance(start, float)
        assert isinstance(end, float)
        self._host_s = max(self._host_s, end)
        return (round(end / self.tick_s) - round(start / self.tick_s)) * self.tick_s

    def synchronize(self) -> None:
        """Let the host wait for the device. A measured function that reads a result calls it too."""
        self._host_s = max(self._host_s, self.clock_s, self._other_stream_s)

    def work_beside(self, seconds: float) -> None:
        """Submit a kernel to another stream, for which only `synchronize` waits."""
        self._other_stream_s = max(self._host_s, self._other_stream_s) + seconds

    def spin(self, cycles: int) -> None:
        """Submit a spin of so many cycles, at the present clock."""
        if self._recording is not None:
            self._recording.append(lambda: self._spins_s(cycles))
        else:
            self._submit(self._spins_s(cycles), self.launch_s)

    def _spins_s(self, cycles: int) -> float:
        """Return the seconds of a spin at the present clock, and count them as busy."""
        seconds = cycles / (self.clock_hz * self._clock(self.busy_s))
        self._be_busy(seconds)
        return seconds

    def capture(self, submit: Callable[[], None]) -> Callable[[], None]:
        """Record the submitted work, and return its replay.

        A replay is one entry, and one launch of the host. Raise RuntimeError if captures are to fail.
        """
        nodes: list[Callable[[], float]] = []
        self._recording = nodes
        try:
            submit()
        finally:
            self._recording = None
        if self.capture_fails:
            raise RuntimeError("CUDA error: operation not permitted when stream is capturing")
        # The first replay takes this entry out of the list, so that only that one uploads the graph.
        uploads_s = [self.graph_upload_s * len(nodes)]
        return lambda: self._submit_all(nodes, uploads_s.pop() if uploads_s else 0.0)

    def _submit_all(self, nodes: list[Callable[[], float]], upload_s: float = 0.0) -> None:
        """Submit all nodes of a graph as one entry, with the seconds of its upload."""
        self._submit(upload_s + sum(takes_s() for takes_s in nodes), self.launch_s)

    def flusher(self, size_bytes: int) -> Callable[[], None]:
        """Return a function that submits a flush.

        Its kernel writes and reads so many bytes, at 3 TB/s.
        """
        return lambda: self.work(2 * size_bytes / 3e12, touch="flush", size_bytes=size_bytes)

    def memory_accounts(self) -> tuple[int, int]:
        """Return the bytes in use by NVML's first account and by its second.

        Only the first counts what the driver keeps back.
        """
        others_bytes, _ = self._use_by_others
        used = self.context_bytes + self._held_bytes + (others_bytes or 0)
        return used + self.driver_bytes, used

    def counters(self) -> Counters:
        """Return the scripted state. Each cause has the busy seconds during which it was active."""
        others_bytes, others_busy = self._use_by_others
        self._host_s += self._counters_s
        return Counters(self._active(), dict(self._throttled_s), others_bytes, others_busy)

    def host_s(self) -> float:
        """Return the host's clock in seconds."""
        return self._host_s

    def pass_time(self, seconds: float) -> None:
        """Let the host spend time on something else, as a slow Python function does."""
        self._host_s += seconds

    def allocate(self, size_bytes: int) -> None:
        """Allocate so many bytes; a negative number releases them."""
        self._held_bytes += size_bytes
        self._most_bytes = max(self._most_bytes, self._held_bytes)

    def peak_bytes(self, call: Callable[[], object]) -> int:
        """Return the most memory that a call held, above what was allocated before it."""
        before = self._most_bytes = self._held_bytes
        call()
        return self._most_bytes - before

    def held_bytes(self, call: Callable[[], object]) -> int:
        """Return the memory that a call leaves allocated, above what was allocated before it."""
        before = self._held_bytes
        output = call()
        held_bytes = max(0, self._held_bytes - before)
        del output
        return held_bytes

    def allocated(self) -> AllocatedBytes:
        """Return the bytes that `allocate` holds, and the most so far."""
        return AllocatedBytes(self._held_bytes, self._most_bytes)

    def free_bytes(self) -> int:
        """Return all of its memory, whatever is allocated."""
        return self._facts.memory_bytes or 0

    def release(self) -> None:
        """Do nothing, since no memory is cached."""

    def facts(self) -> DeviceFacts:
        """Return the scripted facts."""
        return self._facts

    def gpu(self) -> Gpu | None:
        """Return the scripted facts of a management library; None if it is to have none.

        Lists become tuples, since the facts may come from JSON.
        """
        if self.gpu_facts is None:
            return None
        scripted_facts = {
            name: tuple(fact) if isinstance(fact, list) else fact
            for name, fact in self.gpu_facts.items()
        }
        facts: dict[str, Any] = {
            name: getattr(self._facts, name) for name in ("index", "product", "uuid", "driver")
        }
        return Gpu(**facts | scripted_facts)
