"""Values of a program's output, with their place in it."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PlacedValues:
    """The values at one place of a text; several are samples of one figure.

    Args:
        name: of the place.
        cases: the names that tell it from the other places of its path, by what they name.
        values: as they stand there: numbers, or their text.
    """

    name: str
    cases: dict[str, str]
    values: tuple[object, ...]
