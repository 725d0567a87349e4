"""Checks that several records share."""

import math

from .errors import BadInput

# No time in seconds and no published figure lies outside of these; beyond them, ratios overflow.
SMALLEST, LARGEST = 1e-18, 1e18
# Characters of a value that was not expected: enough to know it again, and all of it stays on a line.
MOST_SHOWN = 120


def shown(value: object) -> str:
    """What was given in place of what was expected: a tensor or an array by its shape, anything else shortened."""
    shape = getattr(value, "shape", None)
    if isinstance(shape, tuple):
        return f"a {type(value).__name__} of shape {tuple(shape)}"
    text = repr(value)
    return text if len(text) <= MOST_SHOWN else f"{text[: MOST_SHOWN - 1]}…"


def require_positive(values: tuple[float, ...], what: str) -> None:
    """Raise BadInput, naming the first culprit, unless every value is a finite number above zero."""
    for index, value in enumerate(values):
        if not (math.isfinite(value) and value > 0):
            raise BadInput(f"{what}[{index}] is {value!r}; expected a finite number above zero")
        if not SMALLEST <= value <= LARGEST:
            raise BadInput(f"{what}[{index}] is {value!r}; expected something between {SMALLEST:g} and {LARGEST:g}")


def check_tolerance(tolerance: float | None) -> None:
    """Raise BadInput unless a tolerance is None or a share above zero."""
    if tolerance is not None and not (math.isfinite(tolerance) and tolerance > 0):
        raise BadInput(f"tolerance is {tolerance!r}; expected a share above zero, such as 0.05")


def require_seconds(value: float, name: str) -> None:
    """Refuse what is no duration.

    Raises:
        BadInput: negative, infinite, or no number.
    """
    if not 0 <= value < math.inf:
        raise BadInput(f"{name} is {value!r}; expected a finite number, zero or more")
