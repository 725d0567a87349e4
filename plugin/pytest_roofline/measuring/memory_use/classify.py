"""What the blocks of a log are to a training step, told when all of it is known."""

from collections.abc import Sequence

from ...core.memory_use import LARGEST, Allocation, Category
from .blocks import Block, Log, Peak


def category_of(block: Block, log: Log) -> Category:
    """The one category of a block."""
    if block.role is not None:
        return block.role
    if block.made == "before":
        return "activations" if block.kept else "other"
    return "activations" if block.made == "forward" and _outlives_forward(block, log) else "temporaries"


def _outlives_forward(block: Block, log: Log) -> bool:
    """Whether it is there when the next backward begins, or at the end where none follows."""
    begins = next((position for position in log.backwards if position >= block.born), None)
    return block.released is None or (begins is not None and block.released >= begins)


def categories(peak: Peak, log: Log) -> dict[str, int]:
    """The bytes alive at the peak by category, largest first."""
    sums: dict[str, int] = {}
    for block, size in peak.alive:
        name = category_of(block, log)
        sums[name] = sums.get(name, 0) + size
    return dict(sorted(sums.items(), key=lambda pair: -pair[1]))


def made_by_call(peak: Peak) -> list[tuple[Block, int]]:
    """Of what was alive at the peak, the blocks that the call made."""
    return [(block, size) for block, size in peak.alive if block.made != "before"]


def largest(alive: Sequence[tuple[Block, int]], log: Log) -> tuple[Allocation, ...]:
    """The largest of some blocks; of equal ones first those that the call made, then the older."""
    ordered = sorted(alive, key=lambda pair: (-pair[1], pair[0].made == "before", pair[0].born))
    return tuple(
        Allocation(
            size_bytes=size,
            category=category_of(block, log),
            made=block.made,
            shape=block.shape,
            dtype=block.dtype,
            operator=block.operator,
            place=block.owner or block.place,
        )
        for block, size in ordered[:LARGEST]
    )
