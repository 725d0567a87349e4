"""What a target can give to one block, as data with sources; a target that is not there is simply not known."""

import functools
import json
from importlib import resources

from ..core.units import format_bytes


@functools.cache
def shared_limits() -> dict[str, int]:
    """Bytes of shared memory (LDS) that a block can have at most, by target."""
    text = resources.files(__package__).joinpath("targets.json").read_text(encoding="utf-8")
    tables = json.loads(text)["shared_limit_bytes"]
    return {target: limit for table in tables for target, limit in table["targets"].items()}


def above_limit(target: str, shared_bytes: int) -> str:
    """Why a kernel cannot run on its target at all; empty where it can, or where nobody told us the limit."""
    limit = shared_limits().get(target)
    if limit is None or shared_bytes <= limit:
        return ""
    return (
        f"needs {shared_bytes:,} bytes of shared memory ({format_bytes(shared_bytes)}), {target} has {limit:,} "
        f"({format_bytes(limit)}) for a block"
    )
