"""What was measured so far: the blocks, and what holds for all of them; readable after Ctrl-C in the middle."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, median
from typing import Any

from ..core.samples import Block, Calibration, Mode, Samples
from .blocks import BlockTimes
from .peers import BlockState
from .shape import TICKS_PER_SAMPLE
from .steady import ending

# Labels with which the host's time is stored beside the device's.
WITH_WALL = {"host_bound", "waits_inside"}
# Without a spin, a device that is done so many calls after the host was never behind it.
ONE_CALL = 1.5
# A launch inside a sample that is a larger share of it is not the device's time any more.
GAP_SHARE = 0.02
# Of fewer calls or samples in a row, the first, which began on an idle device, decides.
FEW = 3


@dataclass(frozen=True, slots=True)
class TimedBlock:
    """A block in the log.

    Args:
        block: its record.
        seconds: per call, of every sample; of ranks the longest.
        wall_s: host seconds per call.
        paced: whether the host set its pace.
        own: as `seconds`, but this rank's own.
    """

    block: Block
    seconds: tuple[float, ...]
    wall_s: float
    paced: bool
    own: tuple[float, ...]


@dataclass(slots=True)
class Log:
    """What was measured so far.

    Args:
        argument_sets: that calls go through in turn.
        wanted_first: of the very first calls, how many are kept.
        kept: the blocks.
        state: of the device, as of the last block.
        first_calls_s: the very first calls, in host seconds; one more than wanted where none is.
    """

    argument_sets: int = 1
    wanted_first: int = 0
    kept: list[TimedBlock] = field(default_factory=list)
    iterations: int = 1
    warmup_iterations: int = 0
    warmup_s: float = 0.0
    measuring_s: float = 0.0
    mode: Mode = "unknown"
    overhead_s: float = 0.0
    labels: set[str] = field(default_factory=set)
    first_calls_s: list[float] = field(default_factory=list)
    warm_calls_s: list[float] = field(default_factory=list)
    calibration: Calibration | None = None
    state: BlockState = field(default_factory=BlockState)

    @property
    def tick_s(self) -> float:
        """The resolution of the clock, in seconds; only once it was calibrated."""
        assert self.calibration is not None
        return self.calibration.tick_s

    @property
    def seconds(self) -> list[float]:
        """Every sample, in seconds per call."""
        return [value for kept in self.kept for value in kept.seconds]

    @property
    def blocks(self) -> list[Block]:
        """The record of every block."""
        return [kept.block for kept in self.kept]

    @property
    def own(self) -> tuple[float, ...]:
        """Every sample as this rank took it, in seconds per call."""
        return tuple(value for kept in self.kept for value in kept.own)

    def counted(self) -> list[float]:
        """The medians of the blocks that count."""
        return [median(kept.seconds) for kept in self.kept if not kept.block.excluded]

    def forget(self, more: int, wall_s: float) -> None:
        """Count all blocks as warm-up, with some calls more that took so long."""
        self.warmup_iterations += len(self.kept) + more
        self.warmup_s += self.measuring_s + wall_s
        self.measuring_s = 0.0
        self.kept.clear()

    def judge(self, state: BlockState) -> None:
        """Write down of earlier blocks what is known of them only now."""
        for index in range(len(self.kept) - min(state.judged, len(self.kept)), len(self.kept)):
            block = self.kept[index].block
            capped = block.power_capped if state.power_capped is None else state.power_capped
            known = replace(block, excluded=block.excluded or state.spoiled, power_capped=capped)
            self.kept[index] = replace(self.kept[index], block=known)

    def say(self, precision: float, *, fell_back: bool) -> None:
        """Label what a reader must know of the samples as a whole.

        Args:
            precision: how well the median is to be known, as a share.
            fell_back: whether the device's stamps could not be read, so that the host's clock was.
        """
        label = ending(self.counted(), precision)
        self.labels |= {label} if label else set()
        if self.state.clock_moved:
            self.labels.add("clock_moved")
        if fell_back:
            self.labels.add("wall_clock")
            self.mode = "host"
        counted = [kept for kept in self.kept if not kept.block.excluded] or self.kept
        # Of most blocks, since one hiccup of the host says nothing of the rest.
        if 2 * sum(kept.paced for kept in counted) > len(counted):
            self.labels.add("host_bound")
        span_s = median(median(kept.seconds) for kept in counted) * self.iterations
        if span_s < TICKS_PER_SAMPLE * self.tick_s:
            self.labels.add("unresolved")

    def common(self) -> dict[str, Any]:
        """What the record says of all samples, by its field names; only after the first block."""
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
            "first_calls_s": tuple(self.first_calls_s[: self.wanted_first]),
            "warm_calls_s": tuple(self.warm_calls_s),
            "neighbours": self.state.neighbours,
            "throttle_known": self.state.throttle_known,
        }


def samples_of(kept: Sequence[TimedBlock], common: dict[str, Any]) -> Samples:
    """The record of these blocks, of which there is at least one, with what holds for all."""
    return Samples(
        seconds=tuple(value for one in kept for value in one.seconds),
        blocks=tuple(one.block for one in kept),
        wall_s=median(one.wall_s for one in kept) if WITH_WALL & set(common["labels"]) else None,
        **common,
    )


def sets_the_pace(taken: BlockTimes, calls: int) -> bool:
    """Whether the host and not the device decided how long a block without a spin took.

    Either the device was done as soon as the host was, within a call; or samples stand alone, each begins on an idle
    device, and the launch of its first call is a part of it that matters.
    """
    samples, span_s = len(taken.spans), median(taken.spans)
    together = calls if taken.alone else samples * calls
    behind_s = fmean(taken.spans) - taken.host_s / samples if taken.alone else taken.wall_s - taken.host_s
    if together >= FEW and behind_s <= ONE_CALL * span_s / calls:
        return True
    launch_s = taken.host_s / (samples * calls)
    return (taken.alone or samples < FEW) and launch_s > GAP_SHARE * span_s
