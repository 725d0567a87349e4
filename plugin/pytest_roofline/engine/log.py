"""The blocks measured so far, and whether they are enough. Blocks are taken until the median is
known.

The log is readable after Ctrl-C in the middle.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any

from ..core.samples import Block, Calibration, Mode, Samples
from .blocks.conditions import BlockState
from .sizing.stopwatch import TICKS_PER_SAMPLE, BlockTimes

# Labels with which the host's time is stored beside the device's.
WITH_WALL = {"host_bound", "waits_inside"}
# Without a spin, a device that is done so many calls after the host was never behind it.
ONE_CALL = 1.5
# A launch inside a sample that is a larger share of it is not the device's time any more.
GAP_SHARE = 0.02
# Of fewer calls or samples in a row, the first, which began on an idle device, decides.
FEW = 3
FEWEST_BLOCKS = 5
# A first and a second half that differ by more than this have a trend, however narrow the interval is.
TREND = 0.01


@dataclass(frozen=True, slots=True)
class TimedBlock:
    """A block in the log, with seconds per call of every sample. Of ranks these are the longest,
    and `rank_seconds` are this rank's.

    `paced` says whether the host set its pace.
    """

    block: Block
    seconds: tuple[float, ...]
    wall_s: float
    paced: bool
    rank_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LatestBlock:
    """The newest block, its index, and what holds for all blocks."""

    index: int
    block: TimedBlock
    common: dict[str, Any]


@dataclass(slots=True)
class Log:
    """All blocks and calls of a measurement so far. `first_calls_s` has one entry even if
    `first_calls` is 0.
    """

    argument_sets: int = 1
    first_calls: int = 0
    timed_blocks: list[TimedBlock] = field(default_factory=list)
    iterations: int = 1
    warmup_iterations: int = 0
    warmup_s: float = 0.0
    preparing_s: float = 0.0
    """Seconds of the budget that went by before the first block."""
    measuring_s: float = 0.0
    mode: Mode = "host"
    overhead_s: float = 0.0
    device_s: float | None = None
    labels: set[str] = field(default_factory=set)
    first_calls_s: list[float] = field(default_factory=list)
    warm_calls_s: list[float] = field(default_factory=list)
    calibration: Calibration | None = None
    graph_refusal: str = ""
    """The reason that there was no graph, if a graph was to be used."""
    state: BlockState = field(default_factory=BlockState)

    @property
    def tick_s(self) -> float:
        """Return the clock's resolution in seconds, once it is calibrated."""
        assert self.calibration is not None
        return self.calibration.tick_s

    @property
    def seconds(self) -> list[float]:
        """Return every sample, in seconds per call."""
        return [sample_s for timed_block in self.timed_blocks for sample_s in timed_block.seconds]

    @property
    def blocks(self) -> list[Block]:
        """Return the record of every block."""
        return [timed_block.block for timed_block in self.timed_blocks]

    @property
    def rank_seconds(self) -> tuple[float, ...]:
        """Return every sample of this rank, in seconds per call."""
        return tuple(
            sample_s for timed_block in self.timed_blocks for sample_s in timed_block.rank_seconds
        )

    def counted_medians(self) -> list[float]:
        """Return the medians of the blocks that count."""
        return [
            median(timed_block.seconds)
            for timed_block in self.timed_blocks
            if not timed_block.block.excluded
        ]

    def forget(self, calls: int, wall_s: float) -> None:
        """Count all blocks as warm-up, and some calls on top. These calls took `wall_s`."""
        self.warmup_iterations += len(self.timed_blocks) + calls
        self.warmup_s += self.measuring_s + wall_s
        self.measuring_s = 0.0
        self.timed_blocks.clear()

    def judge(self, state: BlockState) -> None:
        """Correct earlier blocks by what is known only now."""
        for index in range(
            len(self.timed_blocks) - min(state.judged, len(self.timed_blocks)),
            len(self.timed_blocks),
        ):
            block = self.timed_blocks[index].block
            capped = block.power_capped if state.power_capped is None else state.power_capped
            judged_block = replace(
                block, excluded=block.excluded or state.spoiled, power_capped=capped
            )
            self.timed_blocks[index] = replace(self.timed_blocks[index], block=judged_block)

    def say(self, precision: float) -> None:
        """Label what a reader must know of the samples. Their median is to be known to a share of
        `precision`.
        """
        label = ending(self.counted_medians(), precision)
        self.labels |= {label} if label else set()
        if self.state.clock_moved:
            self.labels.add("clock_moved")
        counted_blocks = [
            timed_block for timed_block in self.timed_blocks if not timed_block.block.excluded
        ] or self.timed_blocks
        # Of most blocks, since one hiccup of the host says nothing of the rest.
        if 2 * sum(timed_block.paced for timed_block in counted_blocks) > len(counted_blocks):
            self.labels.add("host_bound")
        span_s = (
            median(median(timed_block.seconds) for timed_block in counted_blocks) * self.iterations
        )
        if span_s < TICKS_PER_SAMPLE * self.tick_s:
            self.labels.add("unresolved")

    def common(self) -> dict[str, Any]:
        """Return the record's fields for all samples, after the first block."""
        return {
            "iterations": self.iterations,
            "tick_s": self.tick_s,
            "warmup_iterations": self.warmup_iterations,
            "warmup_s": self.warmup_s,
            "measuring_s": self.measuring_s,
            "argument_sets": self.argument_sets,
            "labels": tuple(sorted(self.labels)),
            "mode": self.mode,
            "overhead_s": self.overhead_s,
            "device_s": self.device_s,
            "first_calls_s": tuple(self.first_calls_s[: self.first_calls]),
            "warm_calls_s": tuple(self.warm_calls_s),
            "neighbours": self.state.neighbours,
            "throttle_known": self.state.throttle_known,
        }


def samples_of(timed_blocks: Sequence[TimedBlock], common: dict[str, Any]) -> Samples:
    """Return the record of at least one block. `common` holds for all of them."""
    return Samples(
        seconds=tuple(sample_s for timed_block in timed_blocks for sample_s in timed_block.seconds),
        blocks=tuple(timed_block.block for timed_block in timed_blocks),
        wall_s=median(timed_block.wall_s for timed_block in timed_blocks)
        if WITH_WALL & set(common["labels"])
        else None,
        **common,
    )


def sets_the_pace(times: BlockTimes, calls: int) -> bool:
    """Return whether the host decided how long a block without a spin took.

    Either the device was done as soon as the host was, within a call; or samples stand alone, each begins on an idle
    device, and the launch of its first call is a part of it that matters.
    """
    samples, span_s = len(times.spans), median(times.spans)
    together = calls if times.alone else samples * calls
    behind_s = (
        fmean(times.spans) - times.host_s / samples if times.alone else times.wall_s - times.host_s
    )
    if together >= FEW and behind_s <= ONE_CALL * span_s / calls:
        return True
    launch_s = times.host_s / (samples * calls)
    return (times.alone or samples < FEW) and launch_s > GAP_SHARE * span_s


def median_half_width(seconds: Sequence[float]) -> float:
    """Return half the width of a 95 % interval of the median. It is a share of the median.

    Distribution-free, from order statistics: ranks n/2 ± 1.96·√n/2 (Conover, Practical Nonparametric Statistics, 3.2).
    """
    ordered, count = sorted(seconds), len(seconds)
    half_count = 1.96 * math.sqrt(count) / 2
    low, high = (
        max(0, math.floor(count / 2 - half_count)),
        min(count - 1, math.ceil(count / 2 + half_count)),
    )
    return (ordered[high] - ordered[low]) / 2 / ordered[count // 2]


def trend(seconds: Sequence[float]) -> float:
    """Return how much slower the second half is than the first. It is a share, of the medians of
    the two; 0 below four values.
    """
    if len(seconds) < 4:
        return 0.0
    middle = len(seconds) // 2
    return median(seconds[middle:]) / median(seconds[:middle]) - 1


def is_steady(seconds: Sequence[float], precision: float, horizon: float = 1.0) -> bool:
    """Return whether a call's time drifts too little to matter. It must not matter by the end of
    the budget.

    A drift matters if the two halves of the medians differ by more than the precision. It also matters if it is more
    than noise, and the halves of the whole budget would differ so if it went on.

    Args:
        seconds: medians of blocks, in the order in which the blocks ran.
        precision: the relative difference that may stay unknown, as a share.
        horizon: how many times as long as the blocks so far the whole budget is.
    """
    limit = max(TREND, precision)
    drift = abs(trend(seconds))
    return drift <= limit and (drift * horizon <= limit or not _rises_or_falls(seconds))


def _rises_or_falls(seconds: Sequence[float]) -> bool:
    """Return the outcome of the Mann-Kendall test at 5 %. It weighs pairs in order against pairs
    out of order (Kendall, Rank Correlation Methods).
    """
    count = len(seconds)
    score = sum(
        (later > earlier) - (later < earlier)
        for earlier, later in itertools.combinations(seconds, 2)
    )
    spread = math.sqrt(count * (count - 1) * (2 * count + 5) / 18)
    return (abs(score) - 1) / spread > 1.96 if count > 1 else False


def is_known(seconds: Sequence[float], precision: float, horizon: float = 1.0) -> bool:
    """Return whether the median is known from these medians of blocks. They are enough, agree and
    do not drift; they stand in the order taken.
    """
    return (
        len(seconds) >= FEWEST_BLOCKS
        and median_half_width(seconds) <= precision
        and is_steady(seconds, precision, horizon)
    )


def ending(seconds: Sequence[float], precision: float) -> str:
    """Return a label of a measurement that the budget ended. It is `drifting`, `noisy`, or empty."""
    if is_known(seconds, precision):
        return ""
    drifts = abs(trend(seconds)) > max(TREND, precision)
    return "drifting" if drifts and _rises_or_falls(seconds) else "noisy"
