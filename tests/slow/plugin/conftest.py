"""What the long tests of the plugin share with the short ones."""

from ...plugin.conftest import _recorded, desk

__all__ = ["_recorded", "desk"]
