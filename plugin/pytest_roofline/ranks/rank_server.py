"""The imports of a rank on processors, done once by the process that forks them. See `fork_server`."""

from collections.abc import Sequence

from ..engine.devices import cpu
from . import execution
from .worker import main

# Modules that a rank needs, and that take long to import.
__all__ = ["cpu", "execution"]


def live(arguments: Sequence[str]) -> int:  # noqa: ARG001 - the controller sends all that a rank needs
    """Run as a rank, and return the exit status."""
    return main()
