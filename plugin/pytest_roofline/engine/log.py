"""The record of a measurement: its calls and blocks so far.

It is readable after Ctrl-C in the middle.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

from ..core.samples import Block, Calibration, Mode, Samples

# Labels with which the host's time is stored beside the device's.
WITH_WALL = {"host_bound", "waits_inside"}


@dataclass(frozen=True, slots=True)
class BlockState:
    """The state of the devices in a block. A fact is None if none was seen and not all tell.

    Args:
        cause: why it does not count; empty where it does; `cause_text` names the ranks that it comes from.
        spoiled: why none of the last `judged` blocks counts, this one among them; `power_capped` is of all of them.
        neighbours: whether another process was seen on any device.
        throttle_known: whether every device tells of thermal slowdown and power brake.
        clock_moved: whether the clock of any moved within a block, and nobody tells why.
    """

    cause: str = ""
    power_capped: bool | None = None
    neighbours: Literal["none", "seen", "unknown"] = "unknown"
    throttle_known: bool = False
    cause_text: str = ""
    spoiled: str = ""
    judged: int = 0
    clock_moved: bool = False


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
