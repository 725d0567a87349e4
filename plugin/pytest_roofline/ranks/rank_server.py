"""What ranks on processors are forked from: `python -m pytest_roofline.ranks.rank_server DESCRIPTOR`."""

import os
import sys
from collections.abc import Sequence

import torch.distributed

from ..engine import host, measure
from ..engine.devices import cpu
from . import facts, lockstep, worlds
from .fork_server import serve
from .worker import main

# What takes a rank long to import.
__all__ = ["cpu", "facts", "host", "lockstep", "measure", "torch", "worlds"]


def live(arguments: Sequence[str]) -> int:  # noqa: ARG001 - a rank's controller says everything
    """Be a rank; return its exit status."""
    return main()


if __name__ == "__main__":
    # What torch holds at the end of an orderly life is none of pytest's waiting.
    os._exit(serve(int(sys.argv[1]), live))
