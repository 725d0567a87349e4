"""Targets: how users spell them, what Triton calls them, and what one can give to a block."""

import functools
import json
import re
from collections.abc import Mapping
from importlib import resources
from typing import Any

from ..core.errors import BadInput, CompileFailed
from ..core.units import format_bytes

_NVIDIA = re.compile(r"sm_?(?P<capability>\d{2,3})a?", re.IGNORECASE)
_AMD = re.compile(r"gfx(?P<major>\d{1,2})(?P<stepping>[0-9a-f]{2})", re.IGNORECASE)
# RDNA and its successors run waves of 32 lanes, CDNA and older those of 64.
FIRST_OF_32_LANES = 10


def canonical(target: object) -> str:
    """A target as files name it: `sm_90`, `gfx942`.

    Raises:
        BadInput: no spelling of one.
    """
    text = target.strip() if isinstance(target, str) else ""
    if found := _NVIDIA.fullmatch(text):
        return f"sm_{found['capability']}"
    if _AMD.fullmatch(text):
        return text.lower()
    raise BadInput(f"target is {target!r}; expected the likes of sm_80, sm_90, sm_100, gfx90a, gfx942 or gfx1100")


def is_nvidia(target: str) -> bool:
    """Whether a canonical target is one of NVIDIA's; AMD's else."""
    return target.startswith("sm_")


def gpu_target(target: str) -> Any:
    """Triton's own name of a canonical target."""
    from triton.backends.compiler import GPUTarget

    if is_nvidia(target):
        return GPUTarget("cuda", int(target.removeprefix("sm_")), 32)
    found = _AMD.fullmatch(target)
    assert found is not None
    return GPUTarget("hip", target, 32 if int(found["major"]) >= FIRST_OF_32_LANES else 64)


def name_of(gpu: Any) -> str:
    """The canonical name of one of Triton's targets.

    Raises:
        CompileFailed: it is of a back end whose binaries nobody here can read.
    """
    if gpu.backend not in ("cuda", "hip"):
        raise CompileFailed(
            f"the kernel was compiled for {gpu.arch} by Triton's back end {gpu.backend!r}; expected cuda or hip, whose "
            "binaries can be read"
        )
    return f"sm_{gpu.arch}" if gpu.backend == "cuda" else str(gpu.arch)


def shared_limits() -> dict[str, int]:
    """Bytes of shared memory (LDS) that a block can have at most, by target."""
    return _limits("shared_limit_bytes")


def tensor_memory_limits() -> dict[str, int]:
    """Columns of tensor memory that a block can have at most, by target."""
    return _limits("tensor_memory_columns")


@functools.cache
def _limits(what: str) -> dict[str, int]:
    text = resources.files(__package__).joinpath("targets.json").read_text(encoding="utf-8")
    tables = json.loads(text)[what]
    return {target: limit for table in tables for target, limit in table["targets"].items()}


def above_limit(target: str, figures: Mapping[str, int]) -> str:
    """Why a kernel cannot run on its target at all; empty where it can, or where nobody told us the limits."""
    shared, shared_limit = figures.get("shared_bytes", 0), shared_limits().get(target)
    if shared_limit is not None and shared > shared_limit:
        return (
            f"needs {shared:,} bytes of shared memory ({format_bytes(shared)}), {target} has {shared_limit:,} "
            f"({format_bytes(shared_limit)}) for a block"
        )
    columns, columns_limit = figures.get("tmem_columns", 0), tensor_memory_limits().get(target)
    if columns_limit is not None and columns > columns_limit:
        return f"needs {columns} columns of tensor memory, {target} has {columns_limit} for a block"
    return ""
