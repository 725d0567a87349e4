"""What one measurement over ranks asks for, and what came of it."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from .core.facts import Environment
from .core.keys import Timing
from .core.ranks import Ranks
from .core.samples import Calibration, Samples
from .core.work import Work

if TYPE_CHECKING:
    from .distributed.functions import FunctionRef


@dataclass(frozen=True, slots=True)
class RankRequest:
    """The checked arguments of one `measure_ranks` or `measure_job`."""

    function: "FunctionRef"
    args: tuple[object, ...]
    size: int
    work: Work
    name: str
    timing: Timing
    cache: Literal["warm", "rotate"]
    budget_s: float
    tolerance: float | None
    metric: str
    backend: str | None
    timeout_s: float | None
    peak_bytes: bool = False
    drill: float | None = None
    replaced: bool = False
    collective: str | None = None
    first_calls: int = 0
    fresh: bool = False


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of a request: samples, the ranks behind them, and what was found wrong."""

    samples: Samples
    ranks: Ranks
    calibration: Calibration | None = None
    verified: bool | None = None
    wrong: str = ""
    disturbed: str = ""
    peak_bytes: int | None = None
    environment: Environment | None = None
    link: str = "unknown"


# Takes what had been measured when something went wrong, and what that was.
Keep = Callable[[Taken, BaseException], None]
