"""The log of a measurement: its calls and blocks so far.

It can be read at any time, also after Ctrl-C in the middle of a measurement.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Any, Literal

from ..core.samples import Block, Calibration, Mode, Samples

# Measurements with one of these labels also store the host's time of a call.
WITH_WALL = {"host_bound", "waits_inside"}


@dataclass(frozen=True, slots=True)
class BlockState:
    """The state of the devices after a block.

    Args:
        cause: why the block does not count; empty if it counts. `cause_text` adds the ranks that saw it.
        power_capped: whether a software power cap was active in the last `judged_count` blocks; None if no device saw
            one and some do not report it.
        neighbours: whether another process was seen on any device.
        throttle_known: whether every device reports thermal slowdown and power brake.
        spoiled_reason: why none of the last `judged_count` blocks counts, this one among them; empty if they count.
        judged_count: how many of the last blocks `power_capped` and `spoiled_reason` are about.
        clock_moved: whether a device's clock moved within a block for no known reason.
    """

    cause: str = ""
    power_capped: bool | None = None
    neighbours: Literal["none", "seen", "unknown"] = "unknown"
    throttle_known: bool = False
    cause_text: str = ""
    spoiled_reason: str = ""
    judged_count: int = 0
    clock_moved: bool = False


@dataclass(frozen=True, slots=True)
class TimedBlock:
    """A block in the log.

    Args:
        seconds: of every sample, per call; over ranks the longest of all ranks.
        wall_s: host seconds per call.
        paced: whether the host set the pace of the block.
        rank_seconds: of every sample of this rank, per call.
    """

    block: Block
    seconds: tuple[float, ...]
    wall_s: float
    paced: bool
    rank_seconds: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LatestBlock:
    """The newest block, its index, and the fields that are common to all blocks."""

    index: int
    block: TimedBlock
    common: dict[str, Any]


@dataclass(slots=True)
class Log:
    """All blocks and calls of a measurement so far.

    `first_calls` is the number of first calls to keep. Even if it is 0, `first_calls_s` holds the one that is made.
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
        """Count all blocks as warm-up and remove them.

        So many further `calls`, which took `wall_s`, count as warm-up too.
        """
        self.warmup_iterations += len(self.timed_blocks) + calls
        self.warmup_s += self.measuring_s + wall_s
        self.measuring_s = 0.0
        self.timed_blocks.clear()

    def judge(self, state: BlockState) -> None:
        """Exclude the last `state.judged_count` blocks for the state's reason, and note the power cap.

        A block that was excluded before keeps its own cause.
        """
        count = len(self.timed_blocks)
        for index in range(count - min(state.judged_count, count), count):
            block = self.timed_blocks[index].block
            capped = block.power_capped if state.power_capped is None else state.power_capped
            judged_block = replace(
                block, excluded=block.excluded or state.spoiled_reason, power_capped=capped
            )
            self.timed_blocks[index] = replace(self.timed_blocks[index], block=judged_block)

    def common(self) -> dict[str, Any]:
        """Return the fields of `Samples` that all blocks share. There must be a block."""
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
    """Return the record of one or more blocks. `common` are the fields that they share.

    Host seconds are recorded only if a label says that the host took part in the time.
    """
    return Samples(
        seconds=tuple(sample_s for timed_block in timed_blocks for sample_s in timed_block.seconds),
        blocks=tuple(timed_block.block for timed_block in timed_blocks),
        wall_s=median(timed_block.wall_s for timed_block in timed_blocks)
        if WITH_WALL & set(common["labels"])
        else None,
        **common,
    )
