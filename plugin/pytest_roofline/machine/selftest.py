"""The proof that timing is right on this device. Each property has the figures that prove it, which
only real hardware can give.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from statistics import median

from ..core.facts import Property
from ..core.samples import Samples
from ..core.units import format_amount, format_rate, format_seconds
from ..engine.calls import FLUSH_FACTOR, ROTATION_FACTOR
from ..engine.ceiling import Workloads
from ..engine.devices import Device, Traits, answering, cpu
from ..engine.host import usable_cores
from ..engine.sizing.calibration import calibrate
from ..engine.sizing.stopwatch import Stopwatch
from ..engine.timing import Engine, Plan

# The seconds that an empty pair of stamps may take; a longer one could not time anything short.
DEAREST_PAIR_S = 1e-4
SPIN_S = 5e-3
# Copies in a row that are timed by the host's clock: so many that their launch and the wait for them hardly count.
CLOCK_CALLS = 50
CLOCK_TOLERANCE = 0.05
SPIN_TOLERANCE = 0.02
# The share by which the time of twice the bytes may differ from twice the time, due to launches and caches.
COPY_TOLERANCE = 0.15
# The share by which a read after a flush may be faster than memory; a faster one came from the cache.
COLD_ADVANTAGE = 0.15
# Sizes to read after a flush, as multiples of the reported cache. The real cache may be larger than the device reports.
COLD_SHARES = (0.25, 2, 8)
# The ticks of the clock that a call must last for its rate to mean anything.
FEWEST_TICKS = 5
GRAPH_TOLERANCE = 0.10
# Seconds for each measurement, and for the measurements under load.
BUDGET_S = 0.5
LOAD_S = 10.0
# The most that a copy may reach, as a share of the datasheet's rate.
UPPER_BOUND = 1.02
# The size of a copy that goes through memory, not a cache, on every known device; on CPUs half of it is enough.
BEYOND_BYTES = 2**29


def selftest(
    device: Device, workloads: Workloads, memory_bytes_per_s: float | None, load_s: float = LOAD_S
) -> Iterator[Property]:
    """Check every property that right timing needs.

    Each is yielded with its outcome.

    Args:
        device: to check.
        workloads: the calls that are timed on it.
        memory_bytes_per_s: the rate of its memory by the datasheet; None where that is unknown.
        load_s: the seconds for which one of the checks keeps the device under load, at its power cap.
    """
    checks = _Checks(device, workloads, memory_bytes_per_s, load_s)
    for check in (checks.stamps, checks.clock_agrees, checks.spin_ahead, checks.spin_lands, checks.copy_lands,
                  checks.below_peak, checks.flush_evicts, checks.graph_agrees, checks.runs_agree,
                  checks.under_load, *checks.on_host()):  # fmt: skip
        # Whatever a check raises becomes an error of the device.
        with answering(device):
            judged_property = checks.judge(check)
        yield judged_property


class _Checks:
    """The checks of one device; each returns a property."""

    def __init__(
        self, device: Device, workloads: Workloads, memory_bytes_per_s: float | None, load_s: float
    ) -> None:
        """Prepare the checks of a device; the arguments are those of `selftest`."""
        self.device = device
        self.traits: Traits = device.traits
        self.workloads = workloads
        self.memory_bytes_per_s = memory_bytes_per_s
        self.load_s = load_s
        facts = device.facts()
        self.cache_bytes, self._on_cpu = facts.last_level_cache_bytes or 0, facts.type == "cpu"
        self.watch = Stopwatch(device, wall=False, flush=None)
        self._neighbours = cpu.Neighbours(named=self._on_cpu)
        # Why a measurement of the present check is spoiled, and why no graph was timed; empty where neither happened.
        self._spoiled_reason = self._graph_refusal = ""

    def judge(self, check: Callable[[], Property]) -> Property:
        """Return the property that a check proves.

        If something disturbs its measurements, the check is repeated once. The property fails if they
        are disturbed again.
        """
        for _ in range(2):
            self._spoiled_reason = ""
            attempt = check()
            if not self._spoiled_reason:
                return attempt
        return replace(
            attempt,
            outcome="FAILS",
            observed=self._spoiled_reason,
            expected="undisturbed measurements",
        )

    def stamps(self) -> Property:
        """Check that time stamps are short and fine.

        Two with nothing between take little time, and the clock's tick is fine.
        """
        calibration = calibrate(self.device)
        is_short = calibration.event_pair_s <= DEAREST_PAIR_S
        # A sample takes as long as the device's shortest span, and a millisecond at least.
        shortest_sample_s = max(self.traits.shortest_span_s, 1e-3)
        has_fine_tick = 200 * calibration.tick_s <= shortest_sample_s
        return _property(
            "an empty pair of time stamps is short, and the clock has a fine tick",
            is_short and has_fine_tick,
            f"pair {format_seconds(calibration.event_pair_s)}, tick {format_seconds(calibration.tick_s)}",
            f"a pair of at most {format_seconds(DEAREST_PAIR_S)}, and 200 ticks in a sample",
            event_pair_s=calibration.event_pair_s,
            tick_s=calibration.tick_s,
            record_host_s=calibration.record_host_s,
            queue_depth=calibration.queue_depth,
        )

    def clock_agrees(self) -> Property:
        """Check that stamps and the host's clock agree on long work.

        The host's clock also times the launch and the wait, which the tolerance allows for.
        """
        name = "the device's clock agrees with the host's"
        calibration = calibrate(self.device)
        if not self.traits.queues:
            return _missing(name, "the device has no clock of its own")
        copy = self.workloads.copy(self._beyond_cache)

        def work() -> None:
            for _ in range(CLOCK_CALLS):
                copy()

        # The first calls do what happens only once, so they are not compared.
        self.watch.span_s(work)
        began_s = self.device.host_s()
        span_s = self.watch.span_s(work)
        wall_s = self.device.host_s() - began_s
        deviation = span_s / wall_s - 1
        allowed = CLOCK_TOLERANCE + 2 * calibration.event_pair_s / wall_s
        return _property(
            name,
            abs(deviation) <= allowed,
            f"{format_seconds(span_s)} between the device's stamps, {format_seconds(wall_s)} by the host",
            f"within {allowed:.0%}",
            span_s=span_s,
            wall_s=wall_s,
        )

    def spin_ahead(self) -> Property:
        """Check that the host submits work during a spin.

        Afterwards the device must reach all stamps.
        """
        name, spin_hz = (
            "the host submits ahead of a spinning device",
            calibrate(self.device).spin_hz,
        )
        if spin_hz is None:
            return _missing(name, "this device has no spin kernel")
        self.device.synchronize()
        self.device.spin(int(SPIN_S * spin_hz))
        first, *_, last = [self.device.stamp() for _ in range(21)]
        host_is_ahead = not self.device.reached(first)
        self.device.synchronize()
        all_reached = self.device.reached(last)
        return _property(
            name,
            host_is_ahead and all_reached,
            f"the host was {'ahead' if host_is_ahead else 'behind'} after 21 stamps; then the device reached "
            f"{'all' if all_reached else 'not all'}",
            f"the host ahead during {format_seconds(SPIN_S)}, then all stamps reached",
        )

    def spin_lands(self) -> Property:
        """Check that twice the cycles of a spin take twice the time."""
        name, spin_hz = (
            "a spin of twice the cycles takes twice the time",
            calibrate(self.device).spin_hz,
        )
        if spin_hz is None:
            return _missing(name, "this device has no spin kernel")
        single_s, double_s = (
            median(self._spin_s(int(factor * SPIN_S * spin_hz)) for _ in range(5))
            for factor in (1, 2)
        )
        # The longer spin takes SPIN_S more. The difference leaves out the cost of a launch.
        deviation = (double_s - single_s) / SPIN_S - 1
        return _property(
            name,
            abs(deviation) <= SPIN_TOLERANCE,
            f"{format_seconds(single_s)} and {format_seconds(double_s)}",
            f"{format_seconds(SPIN_S)} more for the longer spin, within {SPIN_TOLERANCE:.0%}",
            spin_hz=spin_hz,
            off=deviation,
        )

    def _spin_s(self, cycles: int) -> float:
        """Return the seconds that a spin of so many cycles takes."""
        self.device.synchronize()
        start = self.device.stamp()
        self.device.spin(cycles)
        return self.device.elapsed_s(start, self.device.stamp())

    def copy_lands(self) -> Property:
        """Check that a copy of twice the bytes takes twice the time."""
        small_s, large_s = self._time_interleaved(
            self.workloads.copy(self._beyond_cache), self.workloads.copy(2 * self._beyond_cache)
        )
        deviation = large_s / small_s / 2 - 1
        allowed = max(COPY_TOLERANCE, self.traits.repeatability)
        return _property(
            "a copy of twice the bytes takes twice the time",
            abs(deviation) <= allowed,
            f"{format_seconds(small_s)} and {format_seconds(large_s)}",
            f"a factor of 2 within {allowed:.0%}",
            size_bytes=self._beyond_cache,
            off=deviation,
        )

    def below_peak(self) -> Property:
        """Check that a copy is not faster than the memory's datasheet."""
        name = "a copy stays below the memory's datasheet"
        if self.memory_bytes_per_s is None:
            return _missing(name, "no datasheet is known for this device")
        copy_s = self._time(self.workloads.copy(self._beyond_cache)).median_s
        # A copy reads and writes every byte, so it moves twice its size.
        rate = 2 * self._beyond_cache / copy_s
        share = rate / self.memory_bytes_per_s
        return _property(
            name,
            share <= UPPER_BOUND,
            f"{format_rate(rate)}, {share:.0%}",
            f"at most {UPPER_BOUND:.0%} of {format_rate(self.memory_bytes_per_s)}",
            share=share,
        )

    def flush_evicts(self) -> Property:
        """Check that a read after a flush comes from memory.

        It is then not faster than memory, since a flush evicts the cache. Several sizes are read, since the cache may
        be larger than reported. Copies would not do: a write-back cache keeps the last bytes of a copy, and writes them
        to memory after the copy was timed.
        """
        name = "a flush evicts the cache"
        memory = self._memory_bytes_per_s()
        flush = self.device.flusher(FLUSH_FACTOR * self.cache_bytes)
        sizes = [
            int(share * self.cache_bytes)
            for share in COLD_SHARES
            if share * self.cache_bytes <= self._beyond_cache
        ]
        cold_rates = self._cold_rates(sizes, flush)
        if not cold_rates:
            return _missing(name, "every read that fits into a cache is too short for this clock")
        # Memory is measured again after the reads, since it may have become faster meanwhile.
        memory = max(memory, self._memory_bytes_per_s())
        fastest = max(cold_rates, key=lambda size: cold_rates[size])
        # The same read without a flush shows how fast the cache itself is.
        warm_size = sizes[0]
        warm_rate = warm_size / self._read(warm_size).median_s
        allowed = 1 + max(COLD_ADVANTAGE, self.traits.repeatability)
        return _property(
            name,
            cold_rates[fastest] <= allowed * memory,
            f"{format_amount(fastest)} read cold at {format_rate(cold_rates[fastest])}, "
            f"{format_amount(warm_size)} warm at {format_rate(warm_rate)}",
            f"a cold read at most {allowed:g} × the memory's {format_rate(memory)}",
            cold_bytes_per_s=cold_rates[fastest],
            warm_bytes_per_s=warm_rate,
            memory_bytes_per_s=memory,
        )

    def _cold_rates(self, sizes: Sequence[int], flush: Callable[[], object]) -> dict[int, float]:
        """Return the rates of reads after a flush, by size.

        They are in bytes per second, the sizes in bytes. Reads that last too few ticks of the clock are not precise
        enough, and are left out.
        """
        reads = {size: self._read(size, flush) for size in sizes}
        return {
            size: size / samples.median_s
            for size, samples in reads.items()
            if samples.median_s >= FEWEST_TICKS * samples.tick_s
        }

    def graph_agrees(self) -> Property:
        """Check that a graph's replay takes as long as calls between events.

        The calls are so long that the gaps between launches, which a graph saves, hardly count. They are reads, since a
        driver may copy by another engine in a graph than in a stream.
        """
        name = "a graph's replay agrees with events"
        if not (self.traits.graphs and self.traits.spins):
            return _missing(name, "this device has no graphs")
        call = self.workloads.read(self._beyond_cache)
        events, graph = self._time(call, graph=False), self._time(call, graph=True)
        if graph.mode != "graph":
            reason = self._graph_refusal or "the host never submits ahead of the device"
            return _property(
                name, False, f"timed by {graph.mode}: {reason}", "a read timed by a graph's replay"
            )
        deviation = graph.median_s / events.median_s - 1
        allowed = GRAPH_TOLERANCE + events.overhead_s / events.median_s
        return _property(
            name,
            abs(deviation) <= allowed,
            f"{format_seconds(graph.median_s)} by graph, {format_seconds(events.median_s)} by events",
            f"within {allowed:.0%}",
            off=deviation,
        )

    def runs_agree(self) -> Property:
        """Check that two interleaved measurements of the same work agree."""
        first_s, second_s = self._time_interleaved(
            self.workloads.copy(self._beyond_cache), self.workloads.copy(self._beyond_cache)
        )
        deviation = second_s / first_s - 1
        return _property(
            "two measurements of the same work agree",
            abs(deviation) <= self.traits.repeatability,
            f"{deviation:+.2%} apart in the order A B B A",
            f"at most {self.traits.repeatability:.0%}",
            off=deviation,
        )

    def under_load(self) -> Property:
        """Check that results stay valid under load, at the power cap.

        The cap is a normal state of a busy card.
        """
        name = f"{self.load_s:g} s of bf16 matrix products give valid results"
        call = self.workloads.matmul()
        if call is None:
            return _missing(name, "this device has no power cap to reach")
        began_s, runs = self.device.host_s(), list[Samples]()
        while not runs or self.device.host_s() - began_s < self.load_s:
            runs.append(self._time(call))
        troubles = [samples.trouble for samples in runs if samples.trouble]
        # This check judges disturbances itself, so it is not repeated for them.
        self._spoiled_reason = ""
        capped_shares = [
            samples.power_capped_share for samples in runs if samples.power_capped_share is not None
        ]
        capped_share = sum(capped_shares) / len(capped_shares) if capped_shares else None
        return _property(
            name,
            not troubles,
            troubles[0] if troubles else _load_text(runs, capped_share),
            "all measurements valid; the software power cap is normal",
            measurements=len(runs),
            first_s=runs[0].median_s,
            last_s=runs[-1].median_s,
            power_capped_share=capped_share,
        )

    def on_host(self) -> list[Callable[[], Property]]:
        """Return the further checks where the host is the measured device."""
        return [self.left_alone] if self._on_cpu else []

    def left_alone(self) -> Property:
        """Check that no other process used the cores since the first check."""
        busy_text = self._neighbours.text(usable_cores())
        return _property(
            "other processes leave the cores idle",
            not busy_text,
            busy_text or "the cores were idle",
            f"idle cores: {cpu.QUIETEN}",
        )

    def _memory_bytes_per_s(self) -> float:
        """Return the measured rate of reads from memory."""
        return self._beyond_cache / self._read(self._beyond_cache).median_s

    @property
    def _beyond_cache(self) -> int:
        """Return the bytes of a buffer that no cache holds.

        A cache may be much larger than the device reports, so the buffer is large as well: up to
        `BEYOND_BYTES`, if there is as much memory.
        """
        most_bytes = BEYOND_BYTES if self.traits.queues else BEYOND_BYTES // 2
        affordable = min(most_bytes, self.device.free_bytes() // 16)
        return max(ROTATION_FACTOR * self.cache_bytes // 2, affordable)

    def _time_interleaved(
        self, first_call: Callable[[], object], second_call: Callable[[], object]
    ) -> tuple[float, float]:
        """Return the seconds of two calls.

        Each is the mean of two measurements. The order A B B A cancels a steady drift.
        """
        first_s, second_s, second_again_s, first_again_s = (
            self._time(call).median_s for call in (first_call, second_call, second_call, first_call)
        )
        return (first_s + first_again_s) / 2, (second_s + second_again_s) / 2

    def _read(self, size_bytes: int, flush: Callable[[], object] | None = None) -> Samples:
        """Return samples of a read of so many bytes.

        Each comes after a flush, if one is given.
        """
        return self._time(self.workloads.read(size_bytes), flush)

    def _time(
        self,
        call: Callable[[], object],
        flush: Callable[[], object] | None = None,
        graph: bool | None = None,
    ) -> Samples:
        """Return samples of a call, and record what disturbed it.

        Args:
            call: to time.
            flush: evicts the cache before each sample.
            graph: whether to time a graph's replay; None lets the engine decide.
        """
        engine = Engine(
            self.device, Plan(call, sets=[()], budget_s=BUDGET_S, flush=flush, graph=graph)
        )
        watch = cpu.Neighbours()
        engine.run()
        busy_text = cpu.too_busy(watch.cores_taken()) if self._on_cpu else ""
        samples = engine.samples()
        assert samples is not None
        self._spoiled_reason = self._spoiled_reason or samples.spoiled or busy_text
        self._graph_refusal = engine.log.graph_refusal
        return samples


def _load_text(runs: Sequence[Samples], capped_share: float | None) -> str:
    """Return the observation of valid measurements under load.

    `capped_share` is the mean share of blocks with an active power cap; None where that is unknown.
    """
    clocks = [samples.clock_hz for samples in runs if samples.clock_hz is not None]
    text = f"all of {len(runs)} measured valid; last {format_seconds(runs[-1].median_s)}"
    if clocks:
        first_hz, last_hz = clocks[0], clocks[-1]
        text += f", clock {first_hz / 1e6:.0f} to {last_hz / 1e6:.0f} MHz"
    if capped_share is not None:
        text += f", power cap active in {capped_share:.0%} of the blocks"
    return text


def _property(
    name: str, holds: bool, observed: str, expected: str, **figures: float | None
) -> Property:
    """Return a property that holds or FAILS, with its known figures."""
    known_figures = {
        figure: float(amount) for figure, amount in figures.items() if amount is not None
    }
    return Property(name, "holds" if holds else "FAILS", observed, expected, known_figures)


def _missing(name: str, reason: str) -> Property:
    """Return a property that does not apply to this device."""
    return Property(name, "does not apply", reason, "")
