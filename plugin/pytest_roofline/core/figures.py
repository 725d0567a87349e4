"""Numbers that a test found besides times: recorded and shown, never judged."""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from .errors import BadInput

Unit = Literal["B", "s", "share", "count", "FLOP", "tokens/s", "x"]
UNITS: tuple[Unit, ...] = get_args(Unit)


@dataclass(frozen=True, slots=True)
class Figure:
    """One number of one test, in one process.

    Args:
        test_id: node id of the test.
        label: the test as people call it.
        process: which process found it.
        name: what it is, unique within the test.
        value: in `unit`.
        unit: one of `UNITS`; a share is of 1, and `x` a factor.
    """

    test_id: str
    label: str
    process: str
    name: str
    value: float
    unit: Unit

    def __post_init__(self) -> None:
        if not self.name:
            raise BadInput("a figure has no name; expected what it is")
        if self.unit not in UNITS:
            raise BadInput(f"the unit of {self.name!r} is {self.unit!r}; expected one of {', '.join(UNITS)}")
        if isinstance(self.value, bool) or not math.isfinite(self.value):
            raise BadInput(f"{self.name!r} is {self.value!r}; expected a finite number")
