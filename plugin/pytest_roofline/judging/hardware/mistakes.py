"""One thing in data of hardware that cannot be, or that cannot be checked."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from ...core.units import printable, three_digits


@dataclass(frozen=True, slots=True)
class Mistake:
    """Something in data of hardware that cannot be, or, as a hint, that cannot be checked.

    Args:
        where: product and field.
        unchecked: the peaks that a hint leaves without a check, which bound nothing for that.
    """

    where: str
    observed: str
    expected: str
    hint: bool = False
    unchecked: tuple[str, ...] = ()

    def __str__(self) -> str:
        return printable(f"{self.where} is {self.observed}; expected {self.expected}")


def unchecked(where: str, observed: str, needed: str, peaks: Iterable[str]) -> Iterator[Mistake]:
    """A hint that some peaks cannot be checked for want of something; none where there are no such peaks."""
    names = tuple(peaks)
    if names:
        what = "its TFLOPS" if all("TFLOPS" in name for name in names) else " and ".join(names)
        expected = f"{needed}, to check {what} with; what is not checked bounds nothing"
        yield Mistake(where, observed, expected, hint=True, unchecked=names)


def between(where: str, value: float | None, least: float, most: float, why: str = "") -> Iterator[Mistake]:
    """A mistake where a value lies outside of what it may be; none where there is no value."""
    if value is not None and not least <= value <= most:
        yield Mistake(where, f"{value:g}", f"{three_digits(least)} to {three_digits(most)}{why}")
