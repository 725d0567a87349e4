"""Parts that are slower than their like peers, by a rule that invents none among thousands.

The scale is robust: of few parts Qn, which is more efficient than the median absolute deviation, and of many parts the
latter. Where the 84th percentile lies much further out, its distance is the scale, so that two camps are not called
outliers of each other. The scale is joined with the assumed spread between devices, since few parts say little of how
parts differ. The p is that of Student's t, times the number of parts and classes that were looked at (Bonferroni).
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy import ndarray

# The standard error of a median, in standard errors of a mean.
MEDIAN_ERROR = 1.2533
# The chance of one invented outlier in a whole fleet, over all levels.
LEVEL = 0.01
# The assumed spread counts as one with so many degrees of freedom.
ASSUMED_FREEDOM = 4.0
# Degrees of freedom of a scale of n values, as a share of n − 1. For few: somewhat less than Qn's efficiency (0.82), so
# that p holds in its tails, too. For many: the efficiency of the median absolute deviation.
EFFICIENCY, EFFICIENCY_OF_MANY = 0.5, 0.37
# From so many parts on the median absolute deviation is precise enough.
MANY = 200
# Factors of Qn: 1/(√2 Φ⁻¹(5/8)), and the corrections for few values (Croux & Rousseeuw 1992).
CONSISTENT = 2.2219
CORRECTIONS = {2: 0.399, 3: 0.994, 4: 0.512, 5: 0.844, 6: 0.611, 7: 0.857, 8: 0.669, 9: 0.872}
# The quantile one standard deviation above the middle of a normal distribution. Where it lies this many times as far
# out as the robust scale, there are two camps.
UPPER = 0.8413
TWO_CAMPS = 1.5


@dataclass(frozen=True, slots=True)
class Scale:
    """The scale of parts: their middle, the spread of one part, its degrees of freedom."""

    centre: float
    spread: float
    freedom: float

    def p(self, distances: "ndarray[Any, Any]") -> "ndarray[Any, Any]":
        """Return the p of each part: the chance that a like part lies so far above the middle.

        It is one-sided, so only slow parts have a small one. Distances are in log seconds, one of each part.
        """
        from scipy import special

        p: ndarray[Any, Any] = special.stdtr(self.freedom, -distances / self.spread)
        return p


def scale_of(values: "ndarray[Any, Any]", assumed: float) -> Scale:
    """Return the centre and the robust spread of like parts of a machine, such as its GPUs.

    Args:
        values: log seconds, one of each part.
        assumed: the standard deviation between parts that is assumed, and joined with that of the values.
    """
    import numpy

    centre = float(numpy.median(values))
    upper = float(numpy.quantile(values, UPPER)) - centre
    are_few = len(values) < MANY
    deviation = qn(values) if are_few else median_deviation(values)
    # The quantile lies far out where the parts are in two camps.
    deviation = upper if upper > TWO_CAMPS * deviation else deviation
    freedom = (EFFICIENCY if are_few else EFFICIENCY_OF_MANY) * (len(values) - 1)
    # The mean of both variances, each weighted by its degrees of freedom.
    joined = (freedom * deviation**2 + ASSUMED_FREEDOM * assumed**2) / (freedom + ASSUMED_FREEDOM)
    return Scale(centre, math.sqrt(joined), freedom + ASSUMED_FREEDOM)


def median_deviation(values: "ndarray[Any, Any]") -> float:
    """Return the median absolute deviation, as a standard deviation of normal values."""
    import numpy
    from scipy import special

    return float(numpy.median(numpy.abs(values - numpy.median(values))) / special.ndtri(0.75))


def qn(values: "ndarray[Any, Any]") -> float:
    """Return the robust standard deviation Qn of Croux and Rousseeuw (1992).

    Up to half of the values may be anything. It is the first quartile of all differences of two
    values, 82 % as efficient as the standard deviation itself.
    """
    import numpy

    count = len(values)
    half = count // 2 + 1
    # The rank of the first quartile among the differences, from 0.
    place = half * (half - 1) // 2 - 1
    first, second = numpy.triu_indices(count, 1)
    differences = numpy.abs(values[first] - values[second])
    differences.partition(place)
    correction = CORRECTIONS.get(count) or count / (count + (1.4 if count % 2 else 3.8))
    return CONSISTENT * correction * float(differences[place])
