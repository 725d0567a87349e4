"""What the first calls of a function took beside its steady time: compiling, loading, first allocations, new ranks."""

import math
from collections.abc import Sequence
from statistics import median

from ..core.records import Measurement
from ..core.rows import Row
from ..core.units import format_factor, format_seconds, printable
from ..stats.verdicts import DEFAULT_TOLERANCE

# Of the calls behind call 0.
MOST_CALLS = 4
MOST_LISTED = 12
# Standard deviations of a single call that it may lie above the median and still be a steady one.
DEVIATIONS = 3.0
# From the median absolute deviation of normal values to their standard deviation.
MAD_TO_SIGMA = 1.4826


def first_call_lines(rows: Sequence[Row], at_most: int = MOST_LISTED) -> list[str]:
    """A line for each measurement whose first calls were asked for; none for one that only compiled in its first."""
    lines = [
        f"{printable(row.label)}: {first_call_text(row.measurement, row.tolerance)}"
        for row in rows
        if row.measurement is not None and _asked(row.measurement)
    ]
    more = [f"… and {len(lines) - at_most} more with first calls"] if len(lines) > at_most else []
    return lines[:at_most] + more


def first_call_text(measurement: Measurement, tolerance: float | None = None) -> str:
    """`call 0 took 1.76 s, 12.6 x the steady 140 ms; call 1 1.00 x; steady from call 1 on`.

    Args:
        measurement: with first calls; their times and the steady one are the host's, of calls by themselves.
        tolerance: of its verdict, as a share of the time; by default the measurement's own.
    """
    steady_s, calls = measurement.samples.alone_s, measurement.samples.first_calls_s
    # Beside a time of the device, which is another one, the clock has to be told.
    clock = " by the host's clock" if measurement.samples.warm_calls_s else ""
    began = steady_from(measurement, tolerance)
    ranks = " on new ranks" if measurement.ranks is not None and measurement.ranks.fresh else ""
    parts = [
        f"call 0{ranks} took {format_seconds(calls[0])}, {format_factor(calls[0] / steady_s)} the steady "
        f"{format_seconds(steady_s)}{clock}"
    ]
    shown = calls[1 : 1 + (MOST_CALLS if began is None else min(MOST_CALLS, began))]
    parts += [f"call {number} {format_factor(seconds / steady_s)}" for number, seconds in enumerate(shown, 1)]
    if began is not None:
        parts.append(f"steady from call {began} on")
    elif len(calls) > 1:
        parts.append(f"not steady within {len(calls)} calls")
    return "; ".join(parts)


def steady_from(measurement: Measurement, tolerance: float | None = None) -> int | None:
    """The first call from which on every one is as fast as the steady ones; None where the last is not.

    As fast is at most a warm call by itself, plus the tolerance, plus three standard deviations of a single call. These
    come from the samples, by their median absolute deviation: a sample is the mean of so many calls, so a call alone
    deviates by the root of that number more. What the slowest of the warm calls took is steady in any case.
    """
    samples = measurement.samples
    allowed = tolerance or measurement.tolerance or DEFAULT_TOLERANCE
    off_s = median(abs(value - samples.median_s) for value in samples.seconds)
    sigma_s = MAD_TO_SIGMA * off_s * math.sqrt(samples.iterations)
    limit_s = max(samples.alone_s * (1 + allowed) + DEVIATIONS * sigma_s, *samples.warm_calls_s, 0.0)
    late = [number for number, seconds in enumerate(samples.first_calls_s) if seconds > limit_s]
    began = late[-1] + 1 if late else 0
    return began if began < len(samples.first_calls_s) else None


def _asked(measurement: Measurement) -> bool:
    # The one call of a function that compiles stands in a column of its own.
    return len(measurement.samples.first_calls_s) > (measurement.compile_s is not None)
