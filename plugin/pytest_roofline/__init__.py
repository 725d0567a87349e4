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
    from .core.units import format_amount, size_label
    from .core.work import Work
    from .distributed.context import Rank
    from .distributed.mpi import gpu_awareness
    from .distributed.mpi import world as mpi_world
    from .fixture import Roofline
    from .measuring.host import usable_cores
    from .measuring.links import between as link_between
    from .measuring.request import Timed
    from .options import option_value
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
    "format_amount": "core.units",
    "gpu_awareness": "distributed.mpi",
    "link_between": "measuring.links:between",
    "mpi_world": "distributed.mpi:world",
    "option_value": "options",
    "size_label": "core.units",
    "usable_cores": "measuring.host",
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
    "format_amount",
    "gpu_awareness",
    "link_between",
    "mpi_world",
    "option_value",
    "size_label",
    "usable_cores",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    # A public name says more than the one in its module, where that stands beside others of its kind.
    module, _, inside = _HOMES[name].partition(":")
    return getattr(importlib.import_module(f".{module}", __name__), inside or name)
