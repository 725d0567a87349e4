"""Loops of machine code, found by its branches. A loop also has code that is placed elsewhere, such as its waits."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .machine_code import Instruction


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop, by the indices of its instructions in the order of the code.

    Args:
        body: all instructions that a turn may execute, those of inner loops included.
        direct: the instructions of the body that are in no inner loop.
    """

    body: tuple[int, ...]
    direct: frozenset[int]


def loops_of(code: Sequence[Instruction]) -> list[Loop]:
    """Return every loop of some machine code, inner loops first."""
    # By index of an instruction, those that may run after it, and those that it may run after.
    successors = [_successors(code, index) for index in range(len(code))]
    predecessors: list[list[int]] = [[] for _ in code]
    for index, next_indices in enumerate(successors):
        for successor in next_indices:
            predecessors[successor].append(index)
    ends_by_start: dict[int, list[int]] = {}
    for end, start in _back_edges(successors):
        ends_by_start.setdefault(start, []).append(end)
    # An inner loop is shorter than the loop around it, so it comes first.
    bodies = sorted(
        (_body(start, ends, predecessors) for start, ends in ends_by_start.items()), key=len
    )
    loops, in_shorter_loops = [], set[int]()
    for body in bodies:
        loops.append(Loop(tuple(sorted(body)), frozenset(body - in_shorter_loops)))
        in_shorter_loops |= body
    return loops


def _successors(code: Sequence[Instruction], index: int) -> list[int]:
    """Return the indices of the instructions that may follow the one at `index`."""
    instruction = code[index]
    indices = [] if instruction.ends else [index + 1]
    if instruction.target is not None:
        indices.append(instruction.target)
    # A branch may lead out of this code.
    return [successor for successor in indices if 0 <= successor < len(code)]


def _back_edges(successors: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yield the indices of the last and the first instruction of each way around a loop.

    A depth-first search finds them: the last instruction leads back to one that is on the path to it. Code that no
    branch leads to, for example after an indirect branch, begins a path of its own.
    """
    # `path` holds the instructions from the root to the present one, `stack` too, each with its unvisited successors.
    seen, path = set[int](), set[int]()
    for root in range(len(successors)):
        if root in seen:
            continue
        stack = [(root, iter(successors[root]))]
        seen.add(root)
        path.add(root)
        while stack:
            index, open_successors = stack[-1]
            successor = next(open_successors, None)
            if successor is None:
                path.discard(index)
                stack.pop()
            elif successor in path:
                yield index, successor
            elif successor not in seen:
                seen.add(successor)
                path.add(successor)
                stack.append((successor, iter(successors[successor])))


def _body(start: int, ends: Sequence[int], predecessors: Sequence[Sequence[int]]) -> set[int]:
    """Return the indices of a loop's instructions, from its start to its ends.

    They are those that can reach an end without passing the start again.
    """
    body, pending = {start}, list(ends)
    while pending:
        index = pending.pop()
        if index not in body:
            body.add(index)
            pending += predecessors[index]
    return body
