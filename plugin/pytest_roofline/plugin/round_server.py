"""The imports of a round on a processor, for the process that forks the rounds: see `processes.fork_server`.

Torch, this plugin and the others; no test is collected there, and no device is opened.
"""

import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch

from ..engine import host, measure
from ..engine.devices import cpu
from . import display, in_process, running

# The modules that take a round long to import.
__all__ = ["cpu", "display", "host", "in_process", "measure", "running", "torch"]


def live(arguments: Sequence[str]) -> int:
    """Run pytest with these arguments as a round; return its exit status."""
    sys.argv = [str(Path(pytest.__file__).with_name("__main__.py")), *arguments]
    # pytest would warn that it cannot rewrite the assertions of plugins that were imported here already.
    return int(pytest.main([*arguments, "-W", "ignore::pytest.PytestAssertRewriteWarning"]))
