"""Samples of the timing engine: blocks, method and conditions."""

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median
from typing import Literal

from .amounts import Amount, Count, FromZero, Magnitude, SampleTimes
from .errors import BadInput

Mode = Literal["events", "graph", "host"]
# Labels of a deviation from the requested way of measuring. Two measurements compare only if they have the same ones.
ACHIEVED = ("cache_resident", "graph", "host_bound", "refilled", "waits_inside", "wall_clock")
# There were more ranks on a host than cores. They take turns, so times depend on the scheduler, and never gate.
OVERSUBSCRIBED = "oversubscribed"
# Taken while a profiler was attached, or after one of the device in this process: CUPTI stays, and slows launches down.
PROFILED = "profiled"
# Measured on one of several like devices, which are compared with each other and never with a baseline.
SIBLINGS = "siblings"
# A measurement of the machine itself, which distinguishes a slower machine from a slower test: no verdict, no row.
CANARY = "canary"
# Read from the file of another tool, which timed and counted in its own way.
IMPORTED = "imported"
# The beginning of a label that holds a line of an imported file's head, `# name: value`.
HEAD = "# "
# Parts of the reason for which busy neighbours made a CPU measurement INVALID.
BUSY, PREEMPTED = "cores busy during the measurement", "cores taken by the scheduler"
# If a larger share of the blocks is excluded, the others are not trusted either.
MOST_EXCLUDED = 0.5


def for_neighbours(reason: str) -> bool:
    """Return True if other processes' load made a result INVALID."""
    return BUSY in reason or PREEMPTED in reason


@dataclass(frozen=True, slots=True)
class Block:
    """Samples from one uninterrupted pass.

    `excluded` is the cause for which the samples do not count; empty if they count. `clock_hz` is the clock right after
    the samples, in cycles per second of a spin. `power_capped` is whether the software power cap was active, which is
    normal for a busy card; None is unknown.
    """

    samples: Count
    excluded: str = ""
    clock_hz: Magnitude | None = None
    power_capped: bool | None = None


@dataclass(frozen=True, slots=True)
class Samples:
    """The samples of one measurement, in seconds per call.

    Each is the mean of `iterations` calls between two stamps.

    Args:
        seconds: every sample, in the order taken, those of excluded blocks included.
        tick_s: the resolution of the clock, in seconds.
        blocks: which samples were taken together, and which blocks count; without any, each sample is its own.
        mode: `events` on the device's own clock, `graph` the same around a graph's replay, `host` the host's clock.
        overhead_s: what the stamps alone (or an empty replay) add to a call, in seconds; never subtracted.
        wall_s: seconds per call by the host's clock, where the host and not the device set the pace.
        device_s: the device's own seconds of a call that waits for it inside, at most; None where no call waits.
        neighbours: whether another process was seen at work on the device; what the driver withholds is unknown.
        throttle_known: whether the device reports thermal slowdown and power brake at all.
        first_calls_s: the very first calls, each alone from the call until all of its work is done, by the host's
            clock, in seconds; of ranks the longest. They are part of the warm-up. Empty where nobody asked.
        warm_calls_s: a few later ones, timed in the same way at the end of the warm-up; empty where nobody asked, and
            where a sample is the host's time of a call anyway.
    """

    seconds: SampleTimes
    iterations: Count
    tick_s: FromZero
    warmup_iterations: Amount = 0
    warmup_s: FromZero = 0.0
    measuring_s: FromZero = 0.0
    argument_sets: Count = 1
    labels: tuple[str, ...] = ()
    blocks: tuple[Block, ...] = ()
    mode: Mode = "host"
    overhead_s: FromZero = 0.0
    wall_s: Magnitude | None = None
    device_s: FromZero | None = None
    neighbours: Literal["none", "seen", "unknown"] = "unknown"
    throttle_known: bool = False
    first_calls_s: tuple[FromZero, ...] = ()
    warm_calls_s: tuple[FromZero, ...] = ()

    def __post_init__(self) -> None:
        in_blocks = sum(block.samples for block in self.blocks)
        if self.blocks and in_blocks != len(self.seconds):
            raise BadInput(f"the blocks hold {in_blocks} samples; expected {len(self.seconds)}")

    @property
    def block_medians(self) -> tuple[float, ...]:
        """The median of every block that counts, in seconds per call.

        Where no block counts, all do.
        """
        return (
            tuple(median(block) for block in self._kept_blocks()) if self.blocks else self.seconds
        )

    @property
    def kept(self) -> tuple[float, ...]:
        """Every sample of the blocks that count, in seconds per call.

        Where no block counts, all do.
        """
        return (
            tuple(value for block in self._kept_blocks() for value in block)
            if self.blocks
            else self.seconds
        )

    def _kept_blocks(self) -> Iterator[tuple[float, ...]]:
        """Yield the samples of each block that counts, or of all blocks if none counts."""
        start, nothing_counts = 0, all(block.excluded for block in self.blocks)
        for block in self.blocks:
            if nothing_counts or not block.excluded:
                yield self.seconds[start : start + block.samples]
            start += block.samples

    @property
    def median_s(self) -> float:
        """Median of the block medians, in seconds per call."""
        return median(self.block_medians)

    @property
    def idle_share(self) -> float | None:
        """The share of a call in which the device is idle.

        It is known for calls that wait for the device; None for all others.
        """
        return None if self.device_s is None else max(0.0, 1 - self.device_s / self.median_s)

    @property
    def alone_s(self) -> float:
        """Seconds of a warm call until all of its work is done. A first call is compared with this."""
        return median(self.warm_calls_s) if self.warm_calls_s else self.median_s

    @property
    def excluded(self) -> dict[str, int]:
        """The numbers of blocks that do not count, by cause."""
        return dict(Counter(block.excluded for block in self.blocks if block.excluded))

    @property
    def clock_hz(self) -> float | None:
        """The median clock of the blocks that count. None where no probe ran."""
        clocks = [
            block.clock_hz
            for block in self.blocks
            if block.clock_hz is not None and not block.excluded
        ]
        return median(clocks) if clocks else None

    @property
    def power_capped_share(self) -> float | None:
        """The share of blocks under an active software power cap, among those that report it.

        None where the device does not report it.
        """
        cap_flags = [block.power_capped for block in self.blocks if block.power_capped is not None]
        return sum(cap_flags) / len(cap_flags) if cap_flags else None

    @property
    def achieved(self) -> tuple[str, ...]:
        """The deviations from the requested way of measuring.

        Two numbers compare only where these agree.
        """
        return achieved_of(self.labels, self.mode)

    def comparable(self) -> dict[str, str]:
        """Return the facts of timing that a verdict compares."""
        return {"timed by": self.mode}

    @property
    def spoiled(self) -> str:
        """The causes that spoiled over half of the blocks. Empty where most of them count."""
        count = sum(self.excluded.values())
        if not self.blocks or count <= MOST_EXCLUDED * len(self.blocks):
            return ""
        causes = ", ".join(f"{blocks} × {cause}" for cause, blocks in self.excluded.items())
        return f"{count} of {len(self.blocks)} blocks of samples were spoiled: {causes}"

    @property
    def trouble(self) -> str:
        """The reason not to trust the samples. Empty where they can be trusted."""
        if self.spoiled:
            return self.spoiled
        # The engine's label for samples that are too short for the clock.
        if "unresolved" in self.labels:
            span_s = self.median_s * self.iterations
            ticks = (
                f"{span_s / self.tick_s:.3g} ticks of the clock"
                if self.tick_s
                else "too few ticks of the clock"
            )
            return (
                f"a sample spans {ticks}, too few to measure a difference; "
                "time more work in a call, or set cache='rotate' or 'warm', whose calls can be batched "
                "(over ranks: timing='pipelined')"
            )
        return ""


def achieved_of(labels: Sequence[str], mode: Mode) -> tuple[str, ...]:
    """Return the deviations from the requested way of measuring that labels and mode tell."""
    deviations = [label for label in ACHIEVED if label in labels or label == mode]
    return *deviations, *sorted(label for label in labels if label.startswith(HEAD))


def _joined_neighbours(passes: Sequence[Samples]) -> Literal["none", "seen", "unknown"]:
    """Return `seen` if any pass saw another process on the device, `none` only if all know of none."""
    observations = {samples.neighbours for samples in passes}
    if "seen" in observations:
        return "seen"
    return "unknown" if "unknown" in observations else "none"


def merge_passes(passes: Sequence[Samples]) -> Samples:
    """Return several passes of one process as one, with all blocks of the first pass first.

    Where the passes differ in a fact of the method, the one that makes the samples less exact counts: the fewest
    iterations, the coarsest tick, the largest overhead.
    """
    # A pass without blocks holds samples that were each taken alone.
    blocks = [
        block
        for samples in passes
        for block in samples.blocks or (Block(1),) * len(samples.seconds)
    ]
    walls = [samples.wall_s for samples in passes if samples.wall_s is not None]
    working = [samples.device_s for samples in passes if samples.device_s is not None]
    return replace(
        passes[0],
        seconds=tuple(value for samples in passes for value in samples.seconds),
        blocks=tuple(blocks),
        iterations=min(samples.iterations for samples in passes),
        tick_s=max(samples.tick_s for samples in passes),
        warmup_iterations=sum(samples.warmup_iterations for samples in passes),
        warmup_s=math.fsum(samples.warmup_s for samples in passes),
        measuring_s=math.fsum(samples.measuring_s for samples in passes),
        overhead_s=max(samples.overhead_s for samples in passes),
        labels=tuple(sorted({label for samples in passes for label in samples.labels})),
        wall_s=median(walls) if walls else None,
        device_s=median(working) if working else None,
        neighbours=_joined_neighbours(passes),
        throttle_known=all(samples.throttle_known for samples in passes),
    )


@dataclass(frozen=True, slots=True)
class Calibration:
    """The cost of stamps and launches on a device in one process.

    It is the resolution behind every number of it.

    Args:
        tick_s: the smallest difference between two stamps, in seconds: seen, but never below what is documented.
        event_pair_s: what two stamps with nothing between them show, in seconds: the median of fifty.
        record_host_s: host seconds to submit a stamp.
        spin_hz: cycles per second of the spin kernel; None where the device has none.
        queue_depth: entries that the queue takes before the host must wait; None where no end was seen.
    """

    device: str
    tick_s: FromZero
    event_pair_s: FromZero
    record_host_s: FromZero
    call_host_s: FromZero
    spin_hz: Magnitude | None = None
    queue_depth: Amount | None = None
    process: str = ""


@dataclass(frozen=True, slots=True)
class Ranks:
    """The ranks behind a measurement.

    Its samples are the largest of all ranks', iteration by iteration.

    Args:
        launcher: what started them: `local`, `torchrun`, `mpirun`, `srun`, `attach`.
        backend: of the measured group: `gloo`, `nccl` …
        seconds: [rank][sample], seconds per call on each rank alone.
        straggler: the rank that the others waited for; None where no rank was late by more than noise.
        lag_s: [rank], seconds that each needs more than the fastest for its own part of a call, outside of collectives.
        generation: of the processes; a new one follows every failure.
        fresh: whether they were started for this measurement, so that its first call loaded and allocated what a new
            process has not yet; the device's context and the ranks' groups came before it.
    """

    size: Count
    launcher: str
    backend: str
    hosts: tuple[str, ...] = ()
    seconds: tuple[tuple[Magnitude, ...], ...] = ()
    straggler: int | None = None
    lag_s: tuple[FromZero, ...] = ()
    threads: Amount | None = None
    generation: Count = 1
    fresh: bool = False

    def __post_init__(self) -> None:
        """Raise BadInput unless all ranks fit together.

        Each list has a member for every rank or is empty.
        """
        for name in ("hosts", "seconds", "lag_s"):
            count = len(getattr(self, name))
            if count not in (0, self.size):
                raise BadInput(f"{name} holds {count} ranks; expected {self.size}")
        if len({len(row) for row in self.seconds}) > 1:
            raise BadInput(
                "seconds holds rows of different length; expected equally many samples of every rank"
            )
        if self.straggler is not None and not 0 <= self.straggler < self.size:
            raise BadInput(
                f"straggler is {self.straggler}; expected a rank from 0 to {self.size - 1}"
            )

    @property
    def nodes(self) -> int:
        """The number of hosts that took part; 1 where it is unknown."""
        return len(set(self.hosts)) or 1

    def comparable(self) -> dict[str, str]:
        """Return the facts of the ranks that a verdict compares."""
        facts = {
            "launcher": self.launcher,
            "back end": self.backend,
            "nodes": str(self.nodes),
            "threads a rank": "" if self.threads is None else str(self.threads),
        }
        return {name: text for name, text in facts.items() if text}
