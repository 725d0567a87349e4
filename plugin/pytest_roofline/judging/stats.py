"""The statistics of a comparison: log medians of processes, Student's t, nothing inside one process.

The spread inside a process says almost nothing about the spread between processes, so the process is the unit.
"""

import math
from dataclasses import dataclass
from statistics import fmean, stdev

from scipy import special

# Spread between processes, as a share of the time, where a baseline of one process leaves it unknown (contracts: ≈).
PRIOR_DEVICE = 0.01
PRIOR_CPU = 0.15
# The chance of one false alarm in a whole run; each of m comparisons gets its share of it (Bonferroni).
FALSE_ALARM = 0.01


def prior_for(device_type: str, metric: str = "") -> float:
    """The spread between processes to assume, in log seconds; copies from pageable memory are the host's work."""
    return PRIOR_CPU if device_type == "cpu" or metric.startswith("pageable_") else PRIOR_DEVICE


@dataclass(frozen=True, slots=True)
class Difference:
    """How much slower one set of processes is than another, in log seconds; positive is slower.

    `freedom` is infinite where the spread is assumed rather than estimated.
    """

    estimate: float
    error: float
    freedom: float
    spread: float
    assumed: bool

    def bound(self, confidence: float) -> float:
        """Half the width of a one-sided bound at `confidence`, to add to or take from the estimate."""
        quantile = special.ndtri(confidence) if math.isinf(self.freedom) else special.stdtrit(self.freedom, confidence)
        return float(quantile) * self.error

    def interval(self, confidence: float) -> tuple[float, float]:
        """A two-sided interval of the difference."""
        half = self.bound((1 + confidence) / 2)
        return self.estimate - half, self.estimate + half

    def p_slower_than(self, shift: float) -> float:
        """One-sided p of "no more than `shift` slower"."""
        distance = self.estimate - shift
        if self.error == 0:
            return 0.0 if distance > 0 else 1.0
        score = -distance / self.error
        return float(special.ndtr(score) if math.isinf(self.freedom) else special.stdtr(self.freedom, score))


def normal_bound(confidence: float, spread: float, count: int) -> float:
    """Half the width of a two-sided interval for the centre of `count` processes whose spread is assumed."""
    return float(special.ndtri((1 + confidence) / 2)) * spread / math.sqrt(count)


def difference(new_s: tuple[float, ...], reference_s: tuple[float, ...], prior: float) -> Difference:
    """The difference between two sets of process medians in seconds, each with at least one.

    With R reference processes the spread s is theirs (R - 1 degrees of freedom), at R = 1 the prior; the standard
    error is s * sqrt(1/N + 1/R) for N new processes.
    """
    new, reference = [math.log(value) for value in new_s], [math.log(value) for value in reference_s]
    count = len(reference)
    spread, freedom = (stdev(reference), count - 1.0) if count > 1 else (prior, math.inf)
    return Difference(
        estimate=fmean(new) - fmean(reference),
        error=spread * math.sqrt(1 / len(new) + 1 / count),
        freedom=freedom,
        spread=spread,
        assumed=count == 1,
    )
