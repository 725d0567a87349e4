"""AMD's kernels, read from the assembly that LLVM writes: its metadata, its closing comments, its instructions."""

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ..core.errors import CompileFailed
from ..core.resources import COUNTED_AMD, matrix_generation

# Metadata of the code object, by our name (LLVM's AMDGPUUsage, "AMDHSA Code Object V5 Kernel Metadata").
_METADATA = {
    "vgprs": ".vgpr_count",
    "sgprs": ".sgpr_count",
    "vgpr_spills": ".vgpr_spill_count",
    "sgpr_spills": ".sgpr_spill_count",
    "scratch_bytes": ".private_segment_fixed_size",
}
# Instructions that are counted, by the start of their name.
_MATRIX = ("v_smfmac", "v_mfma", "v_swmmac", "v_wmma")
_SAME = {"v_fmac": "v_fma", "v_fmaak": "v_fma", "v_fmamk": "v_fma", "v_pk_fma": "v_fma"}
_KINDS = (*_MATRIX, *COUNTED_AMD, *_SAME)
_INSTRUCTION = re.compile(r"^\s+([a-z]+_[a-z0-9_]+)", re.MULTILINE)
# RDNA 3 and newer: one instruction of two operations, `v_dual_fmac_f32 … :: v_dual_mul_f32 …`.
_SECOND = re.compile(r"::\s*(v_dual_[a-z0-9_]+)")


def read_assembly(text: str) -> dict[str, int]:
    """All figures of the kernel in `amdgcn` assembly, shared memory apart.

    Raises:
        CompileFailed: what is looked for is not there.
    """
    body, found, metadata = text.partition(".amdgpu_metadata")
    if not found:
        raise CompileFailed(f"the assembly has no .amdgpu_metadata; expected {', '.join(_METADATA.values())} there")
    figures = {name: _number(metadata, rf"^\s+{re.escape(field)}:\s+(\d+)", field) for name, field in _METADATA.items()}
    # RDNA has no accumulation registers.
    accumulators = re.search(r"\.agpr_count:\s+(\d+)", metadata)
    if accumulators:
        figures["agprs"] = int(accumulators[1])
    figures["occupancy_waves"] = _number(body, r"^; Occupancy: (\d+)", "; Occupancy:", min)
    return figures | count(_INSTRUCTION.findall(body), _SECOND.findall(body))


def _number(text: str, pattern: str, what: str, worst: Callable[[list[int]], int] = max) -> int:
    """The worst, where functions that are called stand beside the kernel."""
    found = [int(number) for number in re.findall(pattern, text, re.MULTILINE)]
    if not found:
        raise CompileFailed(f"the assembly has no `{what}`; expected it as LLVM has written it since code objects V3")
    return worst(found)


def count(opcodes: list[str], seconds: Sequence[str] = ()) -> dict[str, int]:
    """What is counted of a list of opcodes: `v_mfma_f32_32x32x8_bf16` is one v_mfma.

    Args:
        opcodes: one an instruction.
        seconds: the second operations of those that do two.
    """
    if not opcodes:
        raise CompileFailed("the assembly has no instruction in it; expected those of a kernel")
    kinds = Counter(kind for opcode in (*opcodes, *seconds) if (kind := _kind(opcode)))
    matrix = sum(number for kind, number in kinds.items() if matrix_generation(kind))
    return {"matrix_instructions": matrix, "instructions": len(opcodes), **dict(sorted(kinds.items()))}


def _kind(opcode: str) -> str:
    opcode = opcode.replace("v_dual_", "v_", 1)
    kind = next((kind for kind in _KINDS if opcode.startswith(f"{kind}_")), "")
    return _SAME.get(kind, kind)


def read(compiled: Any) -> tuple[dict[str, int], dict[str, str], str]:
    """Figures of a compiled kernel, and the revision of LLVM that made it where Triton tells.

    Raises:
        CompileFailed: its assembly was not kept, or lacks a figure.
    """
    from triton.backends.amd import compiler

    text = compiled.asm.get("amdgcn")
    if text is None:
        raise CompileFailed(
            "Triton has not kept the assembly, where AMD's figures stand; expected TRITON_STORE_BINARY_ONLY unset, and "
            "a cache that was not filled under it"
        )
    revision = getattr(compiler, "get_amd_codegen_revision", None)
    return read_assembly(text), {} if revision is None else {"llvm": str(revision())[:12]}, ""
