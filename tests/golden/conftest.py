"""The desk with its fake device, as in the tests of the plugin."""

from ..plugin.conftest import _recorded, desk

__all__ = ["_recorded", "desk"]
