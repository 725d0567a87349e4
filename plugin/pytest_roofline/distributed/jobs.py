"""A job on a rank: a whole program that does its work once, of which nobody wants the result."""

from collections.abc import Callable
from dataclasses import dataclass

from ..measuring.cache import as_tuple
from .context import Rank
from .timed import Timed


@dataclass(frozen=True, slots=True)
class JobPlan:
    """Says of a task that it is a job."""


def run_once(rank: Rank, fn: Callable[..., object], args: tuple[object, ...]) -> None:
    """Call `fn(rank, *args)`; where that gives something to time, as for `measure_ranks`, do that once."""
    given = fn(rank, *args)
    if isinstance(given, Timed):
        given.call(*(as_tuple(given.make_args()) if given.make_args is not None else ()))
    elif callable(given):
        given()
    rank.meter.synchronize()
