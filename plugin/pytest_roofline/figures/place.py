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
