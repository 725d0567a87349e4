"""NVIDIA's binaries, read with two tools that come with Triton: `cuobjdump` for usage, `nvdisasm` for instructions."""

import json
import re
import subprocess
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from ..core.errors import CompileFailed
from ..core.resources import COUNTED_NVIDIA, matrix_generation

# One of each takes under a second; a tool that takes so long hangs.
TIMEOUT_S = 120.0
_USAGE = re.compile(r"Function (?P<function>\S+):\s+REG:(?P<registers>\d+) STACK:(?P<stack>\d+)")
# Compute capabilities whose matrix instructions work in tensor memory: 10.0, 10.3, 11.0, but not 12.0.
TENSOR_MEMORY = range(100, 120)
# Newer disassemblers give up old targets, whose code the compiler still makes.
_GAVE_UP = re.compile(r'CUDA architecture "\w+" is deprecated[^\n]*')


def read_usage(text: str, kernel: str) -> dict[str, int]:
    """Registers and bytes of stack of a thread, from what `cuobjdump --dump-resource-usage` printed.

    Raises:
        CompileFailed: the kernel is not there in the form that is expected.
    """
    found = {match["function"]: match for match in _USAGE.finditer(text)}
    if kernel not in found:
        raise CompileFailed(
            f"cuobjdump tells nothing of {kernel}; expected `Function {kernel}: REG:… STACK:…`, got "
            f"{text.strip()[:300]!r}"
        )
    return {"registers": int(found[kernel]["registers"]), "stack_bytes": int(found[kernel]["stack"])}


def read_instructions(text: str) -> tuple[dict[str, int], str]:
    """Counts of instructions from what `nvdisasm -json` printed, and the assembler's version if it signed its work.

    Raises:
        CompileFailed: not the JSON that is expected.
    """
    try:
        head, functions = json.loads(text)
        opcodes = [one["opcode"] for function in functions for one in function["sass-instructions"]]
        signed = str(head.get(".note.nv.tkinfo", {}).get("tki_toolVersion", ""))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CompileFailed(
            f"nvdisasm printed something else than expected ({type(error).__name__}: {error}); expected JSON, a head "
            f"and a list of functions with sass-instructions, got {text.strip()[:200]!r}"
        ) from None
    if not opcodes:
        raise CompileFailed("nvdisasm found no instruction in the binary; expected those of a kernel")
    version = re.search(r"V(\d[\d.]*)", signed)
    return count(opcodes), version[1] if version else ""


def count(opcodes: list[str]) -> dict[str, int]:
    """What is counted of a list of opcodes: `HMMA.16816.F32.BF16` is one HMMA."""
    kinds = Counter(opcode.partition(".")[0] for opcode in opcodes)
    kinds["MUFU.EX2"] = sum(opcode.startswith("MUFU.EX2") for opcode in opcodes)
    counts = {
        "spill_stores": kinds["STL"],
        "spill_loads": kinds["LDL"],
        "matrix_instructions": sum(number for kind, number in kinds.items() if matrix_generation(kind)),
        "instructions": len(opcodes),
    }
    named = (kind for kind in sorted(kinds) if kind in COUNTED_NVIDIA or matrix_generation(kind))
    return counts | {kind: kinds[kind] for kind in named if kinds[kind]}


def read(compiled: Any) -> tuple[dict[str, int], dict[str, str], str]:
    """Figures of a compiled kernel, the version of its assembler, and what could not be read.

    Raises:
        CompileFailed: a tool is missing, fails, or prints something else.
    """
    with tempfile.TemporaryDirectory(prefix="roofline-cubin-") as folder:
        cubin = Path(folder) / "kernel.cubin"
        cubin.write_bytes(compiled.asm["cubin"])
        figures = read_usage(_run("cuobjdump", "--dump-resource-usage", str(cubin)), compiled.name)
        figures |= tensor_memory(compiled.metadata)
        try:
            counts, version = read_instructions(_run("nvdisasm", "-json", str(cubin)))
        except _Deprecated as error:
            return figures, {"ptxas": _assembler(compiled)}, f"its instructions were not counted, nvdisasm: {error}"
    return figures | counts, {"ptxas": version or _assembler(compiled)}, ""


def tensor_memory(metadata: Any) -> dict[str, int]:
    """Columns of tensor memory that a block takes, which the compiler allots and no tool tells; none where none are."""
    columns = getattr(metadata, "tmem_size", None)
    return {} if columns is None or metadata.target.arch not in TENSOR_MEMORY else {"tmem_columns": int(columns)}


class _Deprecated(Exception):
    """The disassembler no longer knows a target."""


def _run(tool: str, *arguments: str) -> str:
    path = _path_of(tool)
    try:
        done = subprocess.run([path, *arguments], capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise CompileFailed(f"{tool} ({path}) cannot be run: {error}; expected that of Triton") from None
    if gave_up := _GAVE_UP.search(done.stderr):
        raise _Deprecated(gave_up[0])
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()[-300:]
        raise CompileFailed(f"{tool} {' '.join(arguments[:-1])} ended with status {done.returncode}: {said}")
    return done.stdout


def _path_of(tool: str) -> str:
    from triton import knobs

    try:
        return str(getattr(knobs.nvidia, tool).path)
    except RuntimeError as error:
        raise CompileFailed(f"Triton has no {tool} ({error}); expected it in its NVIDIA back end") from None


def _assembler(compiled: Any) -> str:
    """The version of the assembler that Triton uses for this target."""
    from triton.backends.nvidia.compiler import get_ptxas_version

    found = re.search(r"V(\d[\d.]*)", str(get_ptxas_version(compiled.metadata.target.arch)))
    return found[1] if found else "unknown"
