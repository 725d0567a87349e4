"""Loops of machine code, by where its branches lead; a wait that spins out of line stays with its loop."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .machine_code import Instruction


@dataclass(frozen=True, slots=True)
class Loop:
    """A loop, by the indices of its instructions in the order of the code.

    Args:
        body: all that a turn may go through, inner loops among them.
        direct: those of them that are in no inner loop.
    """

    body: tuple[int, ...]
    direct: frozenset[int]


def loops_of(code: Sequence[Instruction]) -> list[Loop]:
    """Return every loop of some machine code, inner loops first."""
    after = [_successors(code, index) for index in range(len(code))]
    before: list[list[int]] = [[] for _ in code]
    for index, successors in enumerate(after):
        for successor in successors:
            before[successor].append(index)
    ends: dict[int, list[int]] = {}
    for end, start in _back_edges(after):
        ends.setdefault(start, []).append(end)
    bodies = sorted((_body(start, ends[start], before) for start in ends), key=len)
    loops, inner = [], set[int]()
    for body in bodies:
        loops.append(Loop(tuple(sorted(body)), frozenset(body - inner)))
        inner |= body
    return loops


def _successors(code: Sequence[Instruction], index: int) -> list[int]:
    """Return the indices of the instructions that may follow one."""
    instruction = code[index]
    behind = [] if instruction.ends else [index + 1]
    leads_to = behind if instruction.target is None else [*behind, instruction.target]
    return [place for place in leads_to if 0 <= place < len(code)]


def _back_edges(after: Sequence[Sequence[int]]) -> Iterator[tuple[int, int]]:
    """Yield each step back to an instruction on the path to it.

    The search goes depth first. Code that no branch leads to, as behind an indirect branch, begins a path of its own.
    """
    seen, path = set[int](), set[int]()
    for root in range(len(after)):
        stack = [] if root in seen else [(root, iter(after[root]))]
        seen.add(root)
        path.update(start for start, _ in stack)
        while stack:
            index, successors = stack[-1]
            successor = next(successors, None)
            if successor is None:
                path.discard(index)
                stack.pop()
            elif successor in path:
                yield index, successor
            elif successor not in seen:
                seen.add(successor)
                path.add(successor)
                stack.append((successor, iter(after[successor])))


def _body(start: int, ends: Sequence[int], before: Sequence[Sequence[int]]) -> set[int]:
    """Return the indices between a loop's start and its ends.

    They lead to the ends without going through the start.
    """
    body, left = {start}, list(ends)
    while left:
        index = left.pop()
        if index not in body:
            body.add(index)
            left += before[index]
    return body
