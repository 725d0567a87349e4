"""What a target can give to one block, as data with sources; a target that is not there is simply not known."""

import functools
import json
from collections.abc import Mapping
from importlib import resources

from ..core.units import format_bytes


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
