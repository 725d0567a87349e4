"""A limit on this process's memory, so that what cannot fit fails at once, with its size, and can be recorded.

A CPU has no allocator that says no: Linux hands out addresses freely, and when the memory behind them is used up, it
ends a process by SIGKILL, which is seldom the one that asked for too much. The limit is RLIMIT_DATA: since Linux 4.7 it
counts all private writable memory, also what malloc gets by mmap (setrlimit(2)).
"""

import contextlib
from collections.abc import Iterator

from . import host

# What the guarded code must leave to everybody else: the kernel's figure of free memory is an estimate.
MARGIN_SHARE = 0.05
LEAST_MARGIN_BYTES = 256 * 2**20
# Enough for torch to start its threads, whose stacks it could not get later.
_PARALLEL = 1 << 20


@contextlib.contextmanager
def limited() -> Iterator[int | None]:
    """Let this process get the memory that is free now, less a margin; restored afterwards.

    A lower limit that is set already stays. Children started meanwhile inherit the limit, each for itself.

    Yields:
        The limit of the data segment, in bytes; None where there is none, as on every system but Linux.
    """
    try:
        import resource
    except ImportError:
        yield None
        return
    _start_threads()
    held = host.data_bytes()
    if held is None:
        yield None
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    free = host.free_memory_bytes()
    margin = min(max(LEAST_MARGIN_BYTES, int(MARGIN_SHARE * free)), free // 2)
    limit = min([held + free - margin, *(known for known in (soft, hard) if known != resource.RLIM_INFINITY)])
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield limit
    finally:
        _restore(soft)


def _start_threads() -> None:
    """Make torch's threads now: OpenMP ends the process where it cannot start one."""
    import torch

    torch.ones(_PARALLEL).neg_()


def _restore(soft: int) -> None:
    """Set the soft limit, but not above the hard one, which the guarded code may have lowered."""
    import resource

    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if hard != resource.RLIM_INFINITY and (soft == resource.RLIM_INFINITY or soft > hard):
        soft = hard
    resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
