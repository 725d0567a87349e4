"""Targets: their spellings, their limits for a block, and the figures in a binary for one.

NVIDIA's binaries are read with two tools that come with Triton: `cuobjdump` for usage and `nvdisasm` for instructions.
AMD's figures come from the assembly that LLVM writes: its metadata, its closing comments, its instructions.
"""

import functools
import json
import re
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from ..core.errors import BadInput, CompileFailed
from ..core.resources import AMD_INSTRUCTIONS, NVIDIA_INSTRUCTIONS, matrix_generation
from ..core.units import format_bytes
from .machine_code import code_of_amdgcn, code_of_sass
from .turns import turn_figures

_NVIDIA = re.compile(r"sm_?(?P<capability>\d{2,3})a?", re.IGNORECASE)
_AMD = re.compile(r"gfx(?P<major>\d{1,2})(?P<stepping>[0-9a-f]{2})", re.IGNORECASE)
# The first major version with waves of 32 lanes (RDNA and its successors). CDNA and older devices have waves of 64.
FIRST_OF_32_LANES = 10


def canonical(target: object) -> str:
    """Return a target as files name it: `sm_90`, `gfx942`."""
    text = target.strip() if isinstance(target, str) else ""
    if match := _NVIDIA.fullmatch(text):
        return f"sm_{match['capability']}"
    if _AMD.fullmatch(text):
        return text.lower()
    raise BadInput(
        f"target is {target!r}; expected a target such as sm_80, sm_90, sm_100, gfx90a, gfx942 or gfx1100"
    )


def gpu_target(target: str) -> Any:
    """Return Triton's own record of a canonical target. Its last field is the number of lanes in a warp."""
    from triton.backends.compiler import GPUTarget

    if target.startswith("sm_"):
        return GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    match = _AMD.fullmatch(target)
    assert match is not None
    return GPUTarget("hip", target, 32 if int(match["major"]) >= FIRST_OF_32_LANES else 64)


def name_of(gpu: Any) -> str:
    """Return the canonical name of one of Triton's targets."""
    if gpu.backend not in ("cuda", "hip"):
        raise CompileFailed(
            f"the kernel was compiled for {gpu.arch} by Triton's back end {gpu.backend!r}; expected cuda or hip, whose "
            "binaries can be read"
        )
    return f"sm_{gpu.arch}" if gpu.backend == "cuda" else str(gpu.arch)


def shared_limits() -> dict[str, int]:
    """Return the most shared memory (LDS) of a block in bytes, by target."""
    return _limits("shared_limit_bytes")


@functools.cache
def _limits(field: str) -> dict[str, int]:
    """Return by target how much of something a block of threads may use, from `targets.json`.

    `field` names the limit there, such as `tensor_memory_columns`.
    """
    text = resources.files(__package__).joinpath("targets.json").read_text(encoding="utf-8")
    return {
        target: limit
        for table in json.loads(text)[field]
        for target, limit in table["targets"].items()
    }


def above_limit(target: str, figures: Mapping[str, int]) -> str:
    """Return the reason that a kernel cannot run on its target: it needs more memory than a block may use.

    It is empty if the kernel can, or if the target's limits are unknown.
    """
    shared = figures.get("shared_bytes", 0)
    shared_limit = shared_limits().get(target)
    if shared_limit is not None and shared > shared_limit:
        return (
            f"needs {shared:,} bytes of shared memory ({format_bytes(shared)}), but {target} has only {shared_limit:,} "
            f"({format_bytes(shared_limit)}) for a block"
        )
    columns = figures.get("tmem_columns", 0)
    columns_limit = _limits("tensor_memory_columns").get(target)
    if columns_limit is not None and columns > columns_limit:
        return f"needs {columns} columns of tensor memory, but {target} has only {columns_limit} for a block"
    return ""


def read_binary(compiled_kernel: Any, target: str) -> tuple[dict[str, int], dict[str, str], str]:
    """Return the figures of a compiled kernel, without shared memory.

    The versions of the tools follow, and the reason why a part could not be read; it is empty if
    all was read.
    """
    if target.startswith("sm_"):
        return _read_nvidia(compiled_kernel)
    return _read_amd(compiled_kernel)


# NVIDIA.

# Seconds after which a tool counts as hung. A call usually takes under a second.
TIMEOUT_S = 120.0
_USAGE = re.compile(r"Function (?P<function>\S+):\s+REG:(?P<registers>\d+) STACK:(?P<stack>\d+)")
# Compute capabilities whose matrix instructions work in tensor memory: 10.0, 10.3, 11.0, but not 12.0.
TENSOR_MEMORY = range(100, 120)
# The one compute capability whose matrix instructions are those of a warpgroup, with waits in the order of the code.
WARPGROUPS = 90
# The message of a disassembler that no longer reads an old target, for which the compiler still makes code.
_GAVE_UP = re.compile(r'CUDA architecture "\w+" is deprecated[^\n]*')


def read_usage(text: str, kernel: str) -> dict[str, int]:
    """Return a thread's registers and bytes of stack.

    Args:
        text: the output of `cuobjdump --dump-resource-usage`.
        kernel: its name in the binary.
    """
    matches = {match["function"]: match for match in _USAGE.finditer(text)}
    if kernel not in matches:
        raise CompileFailed(
            f"cuobjdump printed nothing on {kernel}; expected `Function {kernel}: REG:… STACK:…`, got "
            f"{text.strip()[:300]!r}"
        )
    return {
        "registers": int(matches[kernel]["registers"]),
        "stack_bytes": int(matches[kernel]["stack"]),
    }


def read_instructions(text: str, capability: int) -> tuple[dict[str, int], str]:
    """Return counts of instructions, and the assembler's version.

    The version is empty if the binary has no signature of the assembler.

    Args:
        text: the output of `nvdisasm -json`.
        capability: the compute capability of the target, such as 90.
    """
    try:
        head, functions = json.loads(text)
        codes = [code_of_sass(function) for function in functions]
        signature = str(head.get(".note.nv.tkinfo", {}).get("tki_toolVersion", ""))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CompileFailed(
            f"nvdisasm printed something else than expected ({type(error).__name__}: {error}); expected JSON, a head "
            f"and a list of functions with sass-instructions, got {text.strip()[:200]!r}"
        ) from None
    opcodes = [instruction.opcode for code in codes for instruction in code]
    if not opcodes:
        raise CompileFailed(
            "nvdisasm found no instruction in the binary; expected the instructions of a kernel"
        )
    version = re.search(r"V(\d[\d.]*)", signature)
    figures = count_nvidia(opcodes) | turn_figures(codes, warpgroups=capability == WARPGROUPS)
    return figures, version[1] if version else ""


def count_nvidia(opcodes: list[str]) -> dict[str, int]:
    """Count opcodes by kind: `HMMA.16816.F32.BF16` is one HMMA."""
    kinds = Counter(opcode.partition(".")[0] for opcode in opcodes)
    # An exponential is counted apart from the other functions of its kind, MUFU.
    kinds["MUFU.EX2"] = sum(opcode.startswith("MUFU.EX2") for opcode in opcodes)
    counts = {
        "spill_stores": kinds["STL"],
        "spill_loads": kinds["LDL"],
        "matrix_instructions": sum(
            number for kind, number in kinds.items() if matrix_generation(kind)
        ),
        "instructions": len(opcodes),
    }
    listed_kinds = (
        kind for kind in sorted(kinds) if kind in NVIDIA_INSTRUCTIONS or matrix_generation(kind)
    )
    return counts | {kind: kinds[kind] for kind in listed_kinds if kinds[kind]}


def _read_nvidia(compiled_kernel: Any) -> tuple[dict[str, int], dict[str, str], str]:
    """Return figures, versions of tools and the reason for unread ones, as `read_binary` does, on NVIDIA."""
    with tempfile.TemporaryDirectory(prefix="roofline-cubin-") as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled_kernel.asm["cubin"])
        figures = read_usage(
            _run_tool("cuobjdump", "--dump-resource-usage", str(cubin)), compiled_kernel.name
        )
        figures |= tensor_memory(compiled_kernel.metadata)
        try:
            listing = _run_tool("nvdisasm", "-json", str(cubin))
            counts, version = read_instructions(listing, compiled_kernel.metadata.target.arch)
        except _Deprecated as error:
            unread = f"the instructions were not counted, since nvdisasm failed: {error}"
            return figures, {"ptxas": _assembler(compiled_kernel)}, unread
    return figures | counts, {"ptxas": version or _assembler(compiled_kernel)}, ""


def tensor_memory(metadata: Any) -> dict[str, int]:
    """Return the columns of tensor memory of a block, as a figure.

    The compiler allocates them, and no tool shows them. A target without such memory has no figure.
    """
    columns = getattr(metadata, "tmem_size", None)
    return (
        {}
        if columns is None or metadata.target.arch not in TENSOR_MEMORY
        else {"tmem_columns": int(columns)}
    )


class _Deprecated(Exception):
    """The disassembler no longer knows a target."""


def _run_tool(tool: str, *arguments: str) -> str:
    """Return the output of one of Triton's tools.

    Raises:
        CompileFailed: the tool is missing, hangs or fails.
        _Deprecated: the tool no longer reads the target.
    """
    path = path_of(tool)
    try:
        process = subprocess.run(
            [path, *arguments], capture_output=True, text=True, check=False, timeout=TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileFailed(
            f"{tool} ({path}) cannot be run: {error}; expected the {tool} of Triton"
        ) from None
    if gave_up := _GAVE_UP.search(process.stderr):
        raise _Deprecated(gave_up[0])
    if process.returncode != 0:
        last_output = (process.stderr or process.stdout).strip()[-300:]
        raise CompileFailed(
            f"{tool} {' '.join(arguments[:-1])} ended with status {process.returncode}: {last_output}"
        )
    return process.stdout


def path_of(tool: str) -> str:
    """Return the path of one of the tools that come with Triton."""
    from triton import knobs

    try:
        return str(getattr(knobs.nvidia, tool).path)
    except RuntimeError as error:
        raise CompileFailed(
            f"Triton has no {tool} ({error}); expected {tool} in Triton's NVIDIA back end"
        ) from None


def _assembler(compiled_kernel: Any) -> str:
    """Return the version of the assembler that Triton uses for a kernel's target."""
    from triton.backends.nvidia.compiler import get_ptxas_version

    match = re.search(r"V(\d[\d.]*)", str(get_ptxas_version(compiled_kernel.metadata.target.arch)))
    return match[1] if match else "unknown"


# AMD.

# Fields of the code object's metadata by figure (LLVM's AMDGPUUsage, "AMDHSA Code Object V5 Kernel Metadata").
_AMD_FIELDS = {
    "vgprs": ".vgpr_count",
    "sgprs": ".sgpr_count",
    "vgpr_spills": ".vgpr_spill_count",
    "sgpr_spills": ".sgpr_spill_count",
    "scratch_bytes": ".private_segment_fixed_size",
}
# Instructions that are counted, by the start of their name.
_AMD_MATRIX = ("v_smfmac", "v_mfma", "v_swmmac", "v_wmma")
# Instructions that are counted as another kind.
_AMD_SAME = {"v_fmac": "v_fma", "v_fmaak": "v_fma", "v_fmamk": "v_fma", "v_pk_fma": "v_fma"}
_AMD_KINDS = (*_AMD_MATRIX, *AMD_INSTRUCTIONS, *_AMD_SAME)
# RDNA 3 and newer: one instruction of two operations, `v_dual_fmac_f32 … :: v_dual_mul_f32 …`.
_AMD_SECOND = re.compile(r"::\s*(v_dual_[a-z0-9_]+)")


def read_assembly(text: str) -> dict[str, int]:
    """Return all figures of a kernel in `amdgcn` assembly, except shared memory."""
    body, separator, metadata = text.partition(".amdgpu_metadata")
    if not separator:
        raise CompileFailed(
            f"the assembly has no .amdgpu_metadata; expected {', '.join(_AMD_FIELDS.values())} there"
        )
    figures = {
        name: _figure(metadata, rf"^\s+{re.escape(field)}:\s+(\d+)", field)
        for name, field in _AMD_FIELDS.items()
    }
    # RDNA has no accumulation registers.
    if accumulators := re.search(r"\.agpr_count:\s+(\d+)", metadata):
        figures["agprs"] = int(accumulators[1])
    figures["occupancy_waves"] = _figure(body, r"^; Occupancy: (\d+)", "; Occupancy:", min)
    code = code_of_amdgcn(body)
    counts = count_amd([instruction.opcode for instruction in code], _AMD_SECOND.findall(body))
    return figures | counts | turn_figures([code], warpgroups=False)


def _figure(text: str, pattern: str, marker: str, worst: Callable[[list[int]], int] = max) -> int:
    """Return the worst number that the assembly has for a figure.

    It has one for the kernel, and one for each function that the kernel calls. `marker` names the
    figure in the error of an assembly without it.
    """
    numbers = [int(number) for number in re.findall(pattern, text, re.MULTILINE)]
    if not numbers:
        raise CompileFailed(
            f"the assembly has no `{marker}`; expected this text, which LLVM writes since code objects V3"
        )
    return worst(numbers)


def count_amd(opcodes: list[str], seconds: Sequence[str] = ()) -> dict[str, int]:
    """Count opcodes by kind: `v_mfma_f32_32x32x8_bf16` is one v_mfma.

    `seconds` are the second operations of dual instructions, which do two operations at once.
    """
    if not opcodes:
        raise CompileFailed(
            "the assembly has no instruction; expected the instructions of a kernel"
        )
    kinds = Counter(kind for opcode in (*opcodes, *seconds) if (kind := _kind_on_amd(opcode)))
    matrix = sum(number for kind, number in kinds.items() if matrix_generation(kind))
    return {
        "matrix_instructions": matrix,
        "instructions": len(opcodes),
        **dict(sorted(kinds.items())),
    }


def _kind_on_amd(opcode: str) -> str:
    """Return the kind that an opcode is counted as; empty if it is not counted."""
    opcode = opcode.replace("v_dual_", "v_", 1)
    kind = next((kind for kind in _AMD_KINDS if opcode.startswith(f"{kind}_")), "")
    return _AMD_SAME.get(kind, kind)


def _read_amd(compiled_kernel: Any) -> tuple[dict[str, int], dict[str, str], str]:
    """Return figures, versions of tools and an empty reason for unread ones, as `read_binary` does, on AMD."""
    from triton.backends.amd import compiler

    text = compiled_kernel.asm.get("amdgcn")
    if text is None:
        raise CompileFailed(
            "Triton has not kept the assembly, which holds AMD's figures; unset TRITON_STORE_BINARY_ONLY, and remove "
            "Triton's cache if it was filled under this variable"
        )
    # Some versions of Triton do not tell the revision of LLVM.
    revision = getattr(compiler, "get_amd_codegen_revision", None)
    versions = {} if revision is None else {"llvm": str(revision())[:12]}
    return read_assembly(text), versions, ""
