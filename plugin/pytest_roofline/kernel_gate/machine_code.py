"""Machine code as a list of instructions with their branches, from the output of each vendor's tools."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Bytes of an instruction, from sm_70 on.
_SASS_BYTES = 16
# Instructions after which the next one is not executed, unless they are conditional.
_SASS_ENDS = ("BRA", "BRX", "EXIT", "RET")
_AMD_LINE = re.compile(
    r"^(?:(?P<label>[.\w$]+):|\s+(?P<opcode>[a-z]+_[a-z0-9_]+)(?P<operands>[^;\n]*))", re.MULTILINE
)
_AMD_ENDS = ("s_branch", "s_endpgm", "s_setpc_b64")


@dataclass(frozen=True, slots=True)
class Instruction:
    """An instruction of machine code.

    Args:
        opcode: the whole name, such as `HMMA.16816.F32.BF16` or `v_mfma_f32_32x32x8_bf16`.
        operands: as the disassembler prints them.
        target: the index of the instruction that it may jump to; None if it does not jump.
        ends: whether the next instruction is never executed after it, as after an exit or an unconditional branch.
    """

    opcode: str
    operands: str = ""
    target: int | None = None
    ends: bool = False


def code_of_sass(function: Mapping[str, Any]) -> list[Instruction]:
    """Return the instructions of a function as `nvdisasm -json` prints it.

    Raises:
        KeyError: an instruction has no opcode, or the function no instructions.
    """
    start = function.get("start", 0)
    return [
        _instruction_of_sass(instruction, start) for instruction in function["sass-instructions"]
    ]


def _instruction_of_sass(fields: Mapping[str, str], start: int) -> Instruction:
    """Return one instruction from its fields in the output of `nvdisasm`.

    A branch names a byte of the section, in which the function begins at the byte `start`.
    """
    opcode, operands = fields["opcode"], fields.get("operands", "")
    kind = opcode.partition(".")[0]
    address = re.search(r"0x([0-9a-f]+)$", operands) if kind == "BRA" else None
    # A condition is a predicate of the instruction, or one of several operands.
    is_unconditional = "predicate" not in fields and "," not in operands
    return Instruction(
        opcode=opcode,
        operands=operands,
        target=(int(address[1], 16) - start) // _SASS_BYTES if address else None,
        ends=kind in _SASS_ENDS and is_unconditional,
    )


def code_of_amdgcn(text: str) -> list[Instruction]:
    """Return the instructions of assembly by LLVM, with branches by index."""
    labels: dict[str, int] = {}
    lines: list[tuple[str, str]] = []
    for line in _AMD_LINE.finditer(text):
        if line["label"]:
            labels[line["label"]] = len(lines)
        else:
            lines.append((line["opcode"], line["operands"].strip()))
    return [
        Instruction(
            opcode=opcode,
            operands=operands,
            target=labels.get(operands) if opcode.startswith(("s_branch", "s_cbranch")) else None,
            ends=opcode in _AMD_ENDS,
        )
        for opcode, operands in lines
    ]
