"""A value of a program's output, with its place in it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Place:
    """The value at one place of a text.

    Args:
        name: of the place.
        cases: the names that tell it from the other places of its path, by what they name.
        value: as it stands there: a number, its text, a list of them that are samples of one figure, or a part of JSON.
    """

    name: str
    cases: dict[str, str]
    value: object


def is_number(value: object) -> bool:
    """Return True for a number, and for the text of one."""
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return False
    try:
        float(value)
    except (ValueError, OverflowError):
        return False
    return True
