"""pytest-roofline: is this machine as fast as it should be, as a test that passes or fails.

The public names are loaded when first used, since pytest imports this package in every run of whoever installed it.
"""

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .core.errors import BadInput, CompileFailed, DoesNotFit, RanksFailed, RooflineError, WrongData
    from .core.figures import Figure
    from .core.records import Measurement
    from .core.resources import Resources
    from .core.work import Work
    from .distributed.context import Rank
    from .fixture import Roofline
    from .measuring.request import Timed
    from .ranks import Distributed

_HOMES = {
    "BadInput": "core.errors",
    "CompileFailed": "core.errors",
    "Distributed": "ranks",
    "DoesNotFit": "core.errors",
    "Figure": "core.figures",
    "Measurement": "core.records",
    "Rank": "distributed.context",
    "RanksFailed": "core.errors",
    "Resources": "core.resources",
    "Roofline": "fixture",
    "RooflineError": "core.errors",
    "Timed": "measuring.request",
    "Work": "core.work",
    "WrongData": "core.errors",
}

__all__ = [
    "BadInput",
    "CompileFailed",
    "Distributed",
    "DoesNotFit",
    "Figure",
    "Measurement",
    "Rank",
    "RanksFailed",
    "Resources",
    "Roofline",
    "RooflineError",
    "Timed",
    "Work",
    "WrongData",
    "__version__",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f".{_HOMES[name]}", __name__), name)
