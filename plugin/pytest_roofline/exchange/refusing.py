"""Refusals that name file, line and the line itself; and numbers that know how far they were rounded."""

import math
import re
from dataclasses import dataclass
from typing import NoReturn

from ..core.errors import BadFile
from ..core.units import printable

# Longer lines are shown up to here.
SHOWN = 160
# What doubles lose between the tool's arithmetic and this one.
SLACK = 1e-9
_NUMBER = re.compile(r"(\d{1,20})(?:\.(\d{1,20}))?(?:[eE]([+-]?\d{1,3}))?")


def refuse(source: str, number: int, line: str, why: str) -> NoReturn:
    """Raise BadFile: `log.txt, line 12: 7 columns; expected 9: '…'`."""
    shown = line if len(line) <= SHOWN else line[:SHOWN] + "…"
    raise BadFile(f"{source}, line {number}: {why}: '{printable(shown)}'")


@dataclass(frozen=True, slots=True)
class Printed:
    """A number as a tool printed it, and by how much at most it was rounded, in the same unit."""

    value: float
    half: float

    @property
    def low(self) -> float:
        """The smallest number that is printed so."""
        return self.value - self.half

    @property
    def high(self) -> float:
        """The largest number that is printed so."""
        return self.value + self.half

    def within(self, low: float, high: float) -> bool:
        """Whether it can be the print of a number between the two."""
        return self.low <= high * (1 + SLACK) and self.high >= low * (1 - SLACK)


def printed(text: str) -> Printed | None:
    """A finite number, zero or more, rounded at its last digit; None where the text is none.

    NaN, infinities, signs, digits of other scripts and thousands separators are none.
    """
    match = _NUMBER.fullmatch(text) if text.isascii() else None
    if match is None:
        return None
    exponent = int(match[3] or 0) - len(match[2] or "")
    try:
        value, half = float(text), 0.5 * 10.0**exponent
    except OverflowError:
        return None
    return Printed(value, half) if math.isfinite(value) and math.isfinite(half) else None


def stripped(text: str, significant: int = 6) -> Printed | None:
    """The same of a number that may have lost its trailing zeros, as C++ streams print with six digits by default."""
    found = printed(text)
    if found is None or not found.value:
        return found and Printed(0.0, 0.0)
    digits = 0.5 * 10.0 ** (math.floor(math.log10(found.value)) - significant + 1)
    return Printed(found.value, min(found.half, digits))


def whole(text: str) -> int | None:
    """A whole number, zero or more, of at most 64 bits; None where the text is none."""
    if not (text.isascii() and text.isdigit() and len(text) <= 19):
        return None
    return int(text)
