"""The imports of a rank on processors, done once by the process that forks them. See `fork_server`."""

from collections.abc import Sequence

import torch.distributed

from ..engine import host, measure
from ..engine.devices import cpu
from . import facts, lockstep, worlds
from .worker import main

# What takes a rank long to import.
__all__ = ["cpu", "facts", "host", "lockstep", "measure", "torch", "worlds"]


def live(arguments: Sequence[str]) -> int:  # noqa: ARG001 - a rank's controller says everything
    """Be a rank; return its exit status."""
    return main()
