"""What the blocks of a log are to a training step, told when all of it is known."""

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


def largest(peak: Peak, log: Log) -> tuple[Allocation, ...]:
    """The largest blocks alive at the peak; of equal ones first those that the call made, then the older."""
    ordered = sorted(peak.alive, key=lambda pair: (-pair[1], pair[0].made == "before", pair[0].born))
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
