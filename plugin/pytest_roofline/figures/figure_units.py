"""Units of times and rates, as tools write them."""

import re
from dataclasses import dataclass

from ..core.work import Work


@dataclass(frozen=True, slots=True)
class Unit:
    """A unit of times or of rates.

    Args:
        work: that is done in a second at a rate of one; of a time, one call.
        seconds: of one; None of a rate.
    """

    work: Work
    seconds: float | None = None

    def seconds_of(self, value: float) -> float:
        """Return the seconds in which the work is done."""
        return 1 / value if self.seconds is None else value * self.seconds


_CALL = Work(calls=1)
# By their labels without spaces, dots and slashes.
_UNITS = {
    "s": Unit(_CALL, 1.0), "ms": Unit(_CALL, 1e-3), "us": Unit(_CALL, 1e-6), "µs": Unit(_CALL, 1e-6),
    "ns": Unit(_CALL, 1e-9),
    "gbps": Unit(Work(payload_bytes=10**9)), "gbs": Unit(Work(payload_bytes=10**9)),
    "tbs": Unit(Work(payload_bytes=10**12)),
    "tflops": Unit(Work(flops=10**12)), "tflop": Unit(Work(flops=10**12)), "gflops": Unit(Work(flops=10**9)),
}  # fmt: skip
# The units that a message names.
SOME_UNITS = "GB/s, TFLOPS, s, ms, us, ns"


def unit_of(label: str) -> Unit | None:
    """Return the unit that a label names, in its last brackets if it has any. None if it is unknown."""
    bracket_contents = re.findall(r"\(([^()]*)\)", label)
    name = bracket_contents[-1] if bracket_contents else label
    return _UNITS.get(re.sub(r"[\s./]", "", name).lower())
