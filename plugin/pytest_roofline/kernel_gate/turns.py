"""Costs of a turn of a loop that counts do not show: serialized products, exposed exponentials, narrow shared memory.

A matrix instruction of a warpgroup runs in the background until a wait for its group. Instructions before the wait run
beside it. A serialized matrix instruction is issued alone, and waited for before the next one.
"""

import re
from collections.abc import Iterable, Sequence

from ..core.resources import matrix_generation
from .loops import Loop, loops_of
from .machine_code import Instruction

# Accesses of shared memory by 8 or 16 bits, which take as long as those by 32.
_NARROW = re.compile(
    r"(?:LDS|STS)\.(?:[A-Z0-9]+\.)*[US](?:8|16)(?:\.|$)|ds_(?:read|load|write|store)_[uib](?:8|16)(?:_|$)"
)
# The generation of matrix instructions of a warpgroup.
_WARPGROUP = 2


def turn_figures(codes: Iterable[Sequence[Instruction]], *, warpgroups: bool) -> dict[str, int]:
    """Return the figures of a kernel's loops, over all its functions.

    They are narrow loads from shared memory, and where warpgroups multiply, matrix instructions that run one by one
    (serialized) and exponentials that nothing runs beside (exposed).

    Args:
        codes: the instructions of each function.
        warpgroups: whether the target multiplies matrices by warpgroups. Only then are there serialized products and
            exposed exponentials.
    """
    figures = {"serialized_wgmma": 0, "exposed_exponentials": 0} if warpgroups else {}
    figures["narrow_lds"] = 0
    for code in codes:
        for loop in loops_of(code):
            figures["narrow_lds"] += sum(_is_narrow(code[index]) for index in loop.direct)
            if warpgroups and any(_generation(code[index]) for index in loop.body):
                serialized_count, exposed_count = _turn(code, loop)
                figures["serialized_wgmma"] += serialized_count
                figures["exposed_exponentials"] += exposed_count
    return figures


def _turn(code: Sequence[Instruction], loop: Loop) -> tuple[int, int]:
    """Count the serialized matrix instructions and the exposed exponentials of a loop.

    Instructions of an inner loop do not count. The second turn is counted, since it begins with the matrix instructions
    that the first turn left under way. An exponential is exposed if no matrix instruction runs beside it, or only
    serialized ones.
    """
    serialized_indices = _serialized_indices(code, loop)
    # The first turn only shows which matrix instructions are under way at its end.
    flight = _Flight()
    for index in loop.body:
        flight.take(index, code[index])
    exposed_count = 0
    for index in loop.body:
        if index in loop.direct and code[index].opcode.startswith("MUFU.EX2"):
            # This is true if nothing is under way, too.
            has_only_serialized = flight.under_way <= serialized_indices
            exposed_count += int(has_only_serialized)
        flight.take(index, code[index])
    return len(serialized_indices & loop.direct), exposed_count


def _serialized_indices(code: Sequence[Instruction], loop: Loop) -> set[int]:
    """Return the indices of a loop's matrix instructions that run one by one.

    Each is issued while no other is under way, and waited for before the next one is issued.
    """
    flight, indices = _Flight(), set[int]()
    # A first turn only shows which matrix instructions are under way at its end.
    for index in loop.body:
        flight.take(index, code[index])
    # Two turns, since the last instruction of a turn is waited for in the next turn.
    last_alone: int | None = None
    for index in loop.body * 2:
        if _is_warpgroup(code[index]):
            if last_alone is not None and not flight.under_way:
                indices.add(last_alone)
            last_alone = None if flight.under_way else index
        flight.take(index, code[index])
    return indices


class _Flight:
    """The matrix instructions of a warpgroup that are under way at a point of the code.

    A wait names a number of groups: all but that many of the latest groups are then done.
    """

    def __init__(self) -> None:
        self._groups: list[set[int]] = []
        # The instructions that belong to no group yet.
        self._open = set[int]()

    @property
    def under_way(self) -> set[int]:
        """Return the indices of all matrix instructions under way."""
        return self._open.union(*self._groups)

    def take(self, index: int, instruction: Instruction) -> None:
        """Record what the next instruction does to the matrix instructions under way.

        A matrix instruction is under way from here on, a group may end with it, and a wait ends groups.
        """
        if _is_warpgroup(instruction):
            self._open.add(index)
            # The last instruction of a group is marked so.
            if "gsb0" in instruction.operands:
                self._groups.append(self._open)
                self._open = set()
        elif instruction.opcode.startswith("WARPGROUP.DEPBAR"):
            match = re.search(r"0x([0-9a-f]+)$", instruction.operands)
            # The operand says how many of the latest groups may still be under way.
            remaining_count = int(match[1], 16) if match else 0
            self._groups = self._groups[-remaining_count:] if remaining_count else []


def _generation(instruction: Instruction) -> int:
    """Return the generation of a matrix instruction, 0 of any other."""
    return matrix_generation(instruction.opcode.partition(".")[0])


def _is_warpgroup(instruction: Instruction) -> bool:
    return _generation(instruction) == _WARPGROUP


def _is_narrow(instruction: Instruction) -> bool:
    """Return whether an instruction accesses shared memory by 8 or 16 bits."""
    return _NARROW.match(instruction.opcode) is not None
