"""A published figure in our terms, and in what it differs from our measurement."""

from dataclasses import dataclass, field, replace
from typing import Literal

from pytest_roofline.core.keys import Scalar

Difference = Literal[
    "engine",
    "direction",
    "operation",
    "type",
    "size",
    "place",
    "statistic",
    "counting",
    "conditions",
    "ranks",
]
Statistic = Literal["median", "mean", "best"]
# The largest size of our quick copies: a plateau whose size is not stated stands beside it.
LARGE_BYTES = 2**29


@dataclass(frozen=True, slots=True)
class Meaning:
    """One figure in our terms.

    Args:
        factor: the source's number times this is ours.
        convention: how the source counts, and the conversion.
        apart: in what the figure differs from our measurement, with the sentence that says so.
        devices: of the hardware key; None means any number.
        link: likewise.
    """

    benchmark: str
    parameters: dict[str, Scalar]
    metric: str
    convention: str
    unit: str = "GB/s"
    factor: float = 1.0
    statistic: Statistic | None = None
    apart: dict[Difference, str] = field(default_factory=dict)
    devices: int | None = 1
    link: str | None = None


# What a figure means, or why none of our measurements is like it.
Found = list[Meaning] | str


def differing(meaning: Meaning, **apart: str) -> Meaning:
    """The same, with what differs and the sentence that says so."""
    return replace(meaning, apart={**meaning.apart, **apart})  # type: ignore[dict-item]
