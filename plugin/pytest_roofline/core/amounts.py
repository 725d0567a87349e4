"""The ranges of the numbers in records. msgspec checks them where a file is decoded.

`description` ends the sentence that refuses a value outside of its range, behind "expected": see `storage.to_record`.
"""

from typing import Annotated

from msgspec import Meta

from .errors import LARGEST, SMALLEST

ABOVE_ZERO = "a finite number above zero"
AboveZero = Annotated[float, Meta(gt=0, description=ABOVE_ZERO)]
FromZero = Annotated[float, Meta(ge=0, description="a finite number, zero or more")]
# A time in seconds, or a rate, so far from zero and from infinity that ratios stay finite.
Magnitude = Annotated[
    float,
    Meta(ge=SMALLEST, le=LARGEST, description=f"a number between {SMALLEST:g} and {LARGEST:g}"),
]
Amount = Annotated[int, Meta(ge=0, description="a whole number, zero or more")]
Count = Annotated[int, Meta(ge=1, description="1 or more")]
Chance = Annotated[float, Meta(ge=0, le=1, description="a chance from 0 to 1")]
Tolerance = Annotated[float, Meta(gt=0, description="a share above zero, such as 0.05")]
# Of a measurement, in seconds per call.
SampleTimes = Annotated[tuple[Magnitude, ...], Meta(min_length=1, description="at least one")]
ProcessMedians = Annotated[
    tuple[Magnitude, ...], Meta(min_length=1, description="the median of at least one process")
]
KernelFigures = Annotated[
    dict[str, Amount], Meta(min_length=1, description="the figures of a compiled kernel")
]
