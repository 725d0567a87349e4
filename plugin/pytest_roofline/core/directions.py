"""The direction of a figure: whether more of it is better.

A figure of a program is kept as seconds are, so that more is worse: one of which more is better is kept as its inverse.
"""

from typing import Literal

from .work import rate_suffix

# The metric of a figure that is no time and no known rate; the key's name says which figure it is.
HIGHER, LOWER = "higher", "lower"
Direction = Literal["higher", "lower"]


def is_own_figure(metric: str) -> bool:
    """Return True for a program's own figure, of no known unit."""
    return metric in (HIGHER, LOWER)


def more_is_better(metric: str) -> bool:
    """Return True where more of a metric is better: a rate, or a figure that says so."""
    return metric == HIGHER or rate_suffix(metric) is not None


def has_own_terms(metric: str) -> bool:
    """Return True for what is no time: a program's own figure, or a rate."""
    return is_own_figure(metric) or more_is_better(metric)


def inverse_if_higher(metric: str, value: float) -> float:
    """Return a figure as it is kept, or of what is kept the figure."""
    return 1 / value if metric == HIGHER else value
