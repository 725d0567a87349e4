"""How much of the memory in use on a GPU is this run's own: this process's, and theirs that work for the same run."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

# What a process's context takes beside torch's allocator: 0.45 to 0.6 GB under CUDA, and more with cuBLAS and cuDNN.
OWN_CONTEXT_BYTES = 2**30
_starters: set[int] = set()


def started_by(process: int) -> None:
    """From now on: this process works for that one, as every other process does that it started."""
    _starters.add(process)


def others_bytes(
    used_bytes: int, torch_bytes: int, holders: Mapping[int, int], before_bytes: int | None = None
) -> int | None:
    """Memory that processes of no part of this run hold; None where that cannot be known.

    Args:
        used_bytes: in use by all processes.
        torch_bytes: of these, reserved by torch's allocator in this process.
        holders: what each process holds that the driver lists; blind in containers, where this one is not on the list.
        before_bytes: in use when this process had no context yet; None where nobody looked. Where less is in use by
            now, it tells nothing any more.
    """
    if os.getpid() in holders:
        return max(0, used_bytes - sum(size for process, size in holders.items() if _is_own(process)))
    rest = max(0, used_bytes - torch_bytes)
    # One that started this process has an idle context too.
    helpers_bytes = OWN_CONTEXT_BYTES * bool(_starters)
    if before_bytes is None or rest < before_bytes:
        return None if _communicates() else max(0, rest - OWN_CONTEXT_BYTES - helpers_bytes)
    added_bytes = 0 if _communicates() else max(0, rest - before_bytes - OWN_CONTEXT_BYTES)
    return max(0, before_bytes - helpers_bytes) + added_bytes


def _is_own(process: int) -> bool:
    ours = {os.getpid(), *_starters}
    return process in ours or _parent(process) in ours


def _parent(process: int) -> int | None:
    with contextlib.suppress(OSError, ValueError, IndexError):
        # The name, in parentheses, may hold anything.
        told = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace")
        return int(told.rpartition(")")[2].split()[1])
    return None


def _communicates() -> bool:
    """Whether NCCL may be here, whose buffers torch's allocator does not count."""
    import torch

    return torch.distributed.is_available() and torch.distributed.is_initialized()
