"""pytest-roofline: is this machine as fast as it should be, as a test that passes or fails.

The public names are loaded when first used, since pytest imports this package in every run of whoever installed it.
"""

from typing import TYPE_CHECKING, Any

from .version import __version__

if TYPE_CHECKING:
    from .core.errors import (
        BadInput,
        CompileFailed,
        DoesNotFit,
        ProgramFailed,
        RanksFailed,
        RooflineError,
        WrongData,
    )
    from .core.profiles import Figure
    from .core.records import Measurement
    from .core.resources import Resources
    from .core.units import format_amount, size_label
    from .core.verdicts import ExactVerdict
    from .core.work import Work
    from .engine.host import usable_cores
    from .engine.inventory import link_between
    from .engine.request import Timed
    from .figures.reading import ProgramFigure
    from .plugin.distributed import Distributed
    from .plugin.fixture import Roofline
    from .plugin.kinds import ResultKind
    from .ranks.mpi import gpu_awareness
    from .ranks.mpi import world as mpi_world
    from .ranks.worlds import Rank
    from .settings.command_line import option_value

_HOMES = {
    "BadInput": "core.errors",
    "CompileFailed": "core.errors",
    "Distributed": "plugin.distributed",
    "DoesNotFit": "core.errors",
    "ExactVerdict": "core.verdicts",
    "Figure": "core.profiles",
    "Measurement": "core.records",
    "ProgramFailed": "core.errors",
    "ProgramFigure": "figures.reading",
    "Rank": "ranks.worlds",
    "RanksFailed": "core.errors",
    "Resources": "core.resources",
    "ResultKind": "plugin.kinds",
    "Roofline": "plugin.fixture",
    "RooflineError": "core.errors",
    "Timed": "engine.request",
    "Work": "core.work",
    "WrongData": "core.errors",
    "format_amount": "core.units",
    "gpu_awareness": "ranks.mpi",
    "link_between": "engine.inventory:link_between",
    "mpi_world": "ranks.mpi:world",
    "option_value": "settings.command_line",
    "size_label": "core.units",
    "usable_cores": "engine.host",
}

__all__ = [
    "BadInput",
    "CompileFailed",
    "Distributed",
    "DoesNotFit",
    "ExactVerdict",
    "Figure",
    "Measurement",
    "ProgramFailed",
    "ProgramFigure",
    "Rank",
    "RanksFailed",
    "Resources",
    "ResultKind",
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
    if name in ("measure", "roofline"):
        # An AttributeError would be replaced by `from pytest_roofline import …`, and its text lost.
        raise ImportError(
            f"pytest_roofline has no {name} to import; expected the fixture roofline as an argument of the test: "
            "def test_copy(roofline): roofline.measure(fn, *args)"
        )
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    # A public name says more than the one in its module, where that stands beside others of its kind.
    module, _, inside = _HOMES[name].partition(":")
    try:
        return getattr(importlib.import_module(f".{module}", __name__), inside or name)
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith(f"{__name__}."):
            raise
        from .core.features import not_installed

        raise ImportError(not_installed(f"{__name__}.{name}")) from None
