"""One thing in data of hardware that cannot be, or that cannot be checked."""

from collections.abc import Iterator
from dataclasses import dataclass

from ...core.units import printable, three_digits


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something in data of hardware that cannot be, or, as a hint, that cannot be checked.

    Args:
        where: product and field.
    """

    where: str
    observed: str
    expected: str
    hint: bool = False

    def __str__(self) -> str:
        return printable(f"{self.where} is {self.observed}; expected {self.expected}")


def between(where: str, value: float | None, least: float, most: float, why: str = "") -> Iterator[Mistake]:
    """A mistake where a value lies outside of what it may be; none where there is no value."""
    if value is not None and not least <= value <= most:
        yield Mistake(where, f"{value:g}", f"{three_digits(least)} to {three_digits(most)}{why}")
