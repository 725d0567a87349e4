"""Thousands of run files read at once, for commands that look over a fleet or back in time."""

from .frame import Many, Test, read_many
from .paths import expand

__all__ = ["Many", "Test", "expand", "read_many"]
