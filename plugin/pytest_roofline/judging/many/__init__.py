"""Thousands of run files read at once, for commands that look over a fleet or back in time."""

from ..run_paths import expand
from .frame import Many, Test, read_many

__all__ = ["Many", "Test", "expand", "read_many"]
