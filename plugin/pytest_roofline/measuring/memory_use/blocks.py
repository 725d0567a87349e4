"""The log of a call's memory: which storages there were, when each came and went, and how full that made it."""

from dataclasses import dataclass, field

from ...core.memory_use import Category, Made, Step


@dataclass(slots=True, eq=False)
class Block:
    """One storage.

    Args:
        size_bytes: now.
        made: what the call was doing when it was allocated; `before` the call.
        shape: of the first tensor seen on it.
        dtype: of that tensor.
        operator: what allocated it.
        place: the submodule in which it was made.
        born: the position in the log at which it came.
        released: the position at which it went; None while it is there.
        role: what it is to a model or an optimizer; None where it is nothing to them.
        owner: the parameter that it belongs to.
        kept: of one from before the call, whether a backward was the first to use it.
    """

    size_bytes: int
    made: Made
    shape: tuple[int, ...]
    dtype: str
    operator: str = ""
    place: str = ""
    born: int = 0
    released: int | None = None
    role: Category | None = None
    owner: str = ""
    kept: bool = False


@dataclass(slots=True)
class Log:
    """What happened, in order.

    `before` are the blocks that were there when the call began, with their bytes; `changes` are bytes that came or
    went, negative where they went, each with the step in which it happened; `backwards` are the positions in `changes`
    at which a backward began.
    """

    before: list[tuple[Block, int]] = field(default_factory=list)
    changes: list[tuple[Block, int, Step]] = field(default_factory=list)
    backwards: list[int] = field(default_factory=list)

    def found(self, block: Block) -> None:
        """A block that was there before the call."""
        self.before.append((block, block.size_bytes))

    def allocated(self, block: Block, step: Step) -> None:
        """A new block."""
        block.born = len(self.changes)
        self.changes.append((block, block.size_bytes, step))

    def resized(self, block: Block, size_bytes: int, step: Step) -> None:
        """A block whose storage became larger or smaller."""
        self.changes.append((block, size_bytes - block.size_bytes, step))
        block.size_bytes = size_bytes

    def released(self, block: Block, step: Step) -> None:
        """A block that is gone."""
        block.released = len(self.changes)
        self.changes.append((block, -block.size_bytes, step))

    def backward_begins(self) -> None:
        """From here on autograd runs backward."""
        self.backwards.append(len(self.changes))


@dataclass(frozen=True, slots=True)
class Peak:
    """The most that was alive at once.

    Args:
        size_bytes: of all of it.
        step: what the call was doing when this was first reached.
        alive: every block with its bytes at that moment.
        by_step: the most that was alive in each step.
        before_bytes: what was there before the call.
        returned_bytes: what of that the call gave back.
    """

    size_bytes: int
    step: Step
    alive: tuple[tuple[Block, int], ...]
    by_step: dict[str, int]
    before_bytes: int
    returned_bytes: int


def find_peak(log: Log) -> Peak:
    """The peak of a log."""
    before_bytes = level = most = sum(size for _, size in log.before)
    at, by_step = 0, dict[str, int]()
    for position, (_, change, step) in enumerate(log.changes, 1):
        # What is there when a step begins was alive in it, whatever it gives back first.
        by_step[step] = max(by_step.get(step, 0), level, level + change)
        level += change
        if level > most:
            most, at = level, position
    step = log.changes[at - 1][2] if at else log.changes[0][2] if log.changes else "forward"
    alive = tuple((block, size) for block, size in _alive(log, at) if size)
    returned_bytes = sum(size for block, size in log.before if block.released is not None)
    return Peak(most, step, alive, by_step, before_bytes, returned_bytes)


def _alive(log: Log, until: int) -> list[tuple[Block, int]]:
    sizes: dict[int, tuple[Block, int]] = {id(block): (block, size) for block, size in log.before}
    for block, change, _ in log.changes[:until]:
        sizes[id(block)] = (block, sizes.get(id(block), (block, 0))[1] + change)
    return list(sizes.values())
