"""pytest-roofline: is this machine as fast as it should be, as a test that passes or fails.

The public names are loaded when first used, since pytest imports this package in every run of whoever installed it.
"""

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .core.errors import BadInput, RooflineError, WrongData
    from .core.records import Measurement
    from .core.work import Work
    from .fixture import Roofline

_HOMES = {
    "BadInput": "core.errors",
    "Measurement": "core.records",
    "Roofline": "fixture",
    "RooflineError": "core.errors",
    "Work": "core.work",
    "WrongData": "core.errors",
}

__all__ = ["BadInput", "Measurement", "Roofline", "RooflineError", "Work", "WrongData", "__version__"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
