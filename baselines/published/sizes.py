"""Sizes as sources write them, and the one of our own sweep that is the same to a reader."""

import re

from pytest_roofline.core.errors import BadInput

# Above this share apart, a size of ours is another size.
CLOSE = 0.05
GIB = 2**30
# A sample of CUDA's, with what it copies unless told otherwise: 40 million integers.
TOOL = "p2pBandwidthLatencyTest"
SIZE_OF_TOOL = "the tool's default is 160 MB, ours are 512 MiB"
_NUMBER = r"(?<![\d.])\b(\d+(?:\.\d+)?)"
_UNITS = {"K": 2**10, "M": 2**20, "G": 2**30}
_DECIMAL = {"K": 10**3, "M": 10**6, "G": 10**9}
# The powers of two of our sweeps, and the last size of the copies.
_OURS = (*(2**exponent for exponent in range(10, 39)), 2_101_346_304)


def bytes_of(text: str) -> int | None:
    """The size in bytes that a text names; None where it names none.

    `16G` after an option is binary; `134M` is no power of two, and a binary size printed with a decimal suffix.

    Raises:
        BadInput: `100M` is neither.
    """
    if found := re.search(r"\b(\d[\d,]*) B\b", text):
        return int(found[1].replace(",", ""))
    if found := re.search(rf"{_NUMBER} ?([KMG])(i?)B\b", text):
        return round(float(found[1]) * (_UNITS if found[3] else _DECIMAL)[found[2]])
    if found := re.search(r"(?<!-e )(?<![\d.])\b(\d+)([KMG])\b", text):
        return _binary(int(found[1]), found[2])
    return None


def _binary(number: int, unit: str) -> int:
    if number & (number - 1) == 0:
        return number * _UNITS[unit]
    found = next((size for size in _OURS if size // _DECIMAL[unit] == number), None)
    if found is None:
        raise BadInput(
            f"{number}{unit} is no power of two, nor how one is printed; expected bytes, MiB, or MB"
        )
    return found


def ours(size_bytes: int) -> int:
    """The size of our sweeps that is meant, where one is within 5 %; else the size as it is."""
    nearest = min(_OURS, key=lambda size: abs(size - size_bytes))
    return nearest if abs(nearest - size_bytes) <= CLOSE * size_bytes else size_bytes


def sizes_between(low_bytes: int, high_bytes: int) -> list[int]:
    """The powers of two of our copies, 4 KiB to 1 GiB, in a range of sizes."""
    return [size for size in _OURS if 2**12 <= size <= 2**30 and low_bytes <= size <= high_bytes]
