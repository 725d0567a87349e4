"""How the chances of error are spent: over the looks of a run that may stop early, and over its tests.

A test that is judged after every round has many chances to err, and a run has many tests. Both are paid for here.
Looks: Lan and DeMets (1983), "Discrete sequential boundaries for clinical trials", with the boundaries found by the
recursion of Armitage, McPherson and Rowe (1969), "Repeated significance tests on accumulating data".
Tests: Benjamini and Hochberg (1995), "Controlling the false discovery rate".
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

Floats = npt.NDArray[np.float64]

# Of a run: the chance that anything unchanged is called REGRESSED.
FALSE_RED = 0.05
# A run of fewer tests is held to the same 0.2 % a test.
FEWEST_TESTS = 25
# Of a test exactly as slow as its tolerance: the chance of PASSED. A fifth of the usual 5 % is kept for tails that are
# heavier than a normal distribution's.
FALSE_PASS = 0.04
FALSE_IMPROVED = 0.01
# Of a test twice as slow as its tolerance: the chance of PASSED. It binds where the spread is many times the tolerance.
FALSE_FAR = 0.004
# One strange process among one or two looks like a slowdown; among three it looks like spread.
FEWEST_RED = 3
# Of processes in two modes, each as likely as the other, so many are hardly ever parted just as the two sides are.
FEWEST_TOGETHER = 12
# A baseline of so many processes is enough that three new ones may turn red, where no more may be taken.
ENOUGH_KNOWN = 5
MOST_ROUNDS = 12
# Numbers of processes to suggest; nobody runs more for one answer.
WORTHWHILE = (3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)
# How far the processes to come may move the centre, in standard errors, before a run is given up.
PLAY = 2.0
# Of the spending function α·t², t being the share of the information: little early, when spreads are hardly known.
EXPONENT = 2.0
# The level at which the looks share a chance of REGRESSED: that of one test among two hundred.
STRICT = FALSE_RED / 200
# Of the chance of PASSED, what the first look may spend where more processes follow only for what looks slow.
FIRST_SHARE = 0.75
# References are planned for in steps of this many an octave, so that hundreds of tests share a few plans.
STEPS = 4
LEAST_KNOWN, MOST_KNOWN = 0.25, 64.0
GRID = 401


@dataclass(frozen=True, slots=True)
class Looks:
    """The plan of looks at a test: after each of its new processes, up to `most`.

    In its methods `known` is how many processes the reference is worth (`Difference.worth`): further processes add
    little where the reference's own error rules, and all looks are then nearly the same look. It is infinite where
    both sides grow together.

    Args:
        slow_only: whether more follow only for what looks slower than its tolerance; else for all that is open.
        ended: whether this look is the last although more were planned, for a reason that has nothing to do with what
            was seen (the time is spent): then what is left of the chances is spent now.
        exponent: of the share of the information, which is the share of a chance that may be spent.
    """

    most: int = 1
    slow_only: bool = False
    ended: bool = False
    exponent: float = EXPONENT

    def red_share(self, processes: int, known: float, fewest: int) -> float:
        """The share of the chance of a false REGRESSED that may be spent after so many new processes; none before."""
        if processes < fewest:
            return 0.0
        if self.most < fewest:
            # One look at more than was planned, as at saved runs.
            return 1.0
        last = min(processes, self.most)
        if self.ended:
            spent = _spent(self.most, known, exponent=self.exponent)
            return 1.0 - (float(spent[last - 2]) if last > fewest else 0.0)
        return _red_shares(self.most, _rounded(known), fewest, self.exponent)[last - 1]

    def pass_level(self, processes: int, known: float) -> float:
        """The nominal level of PASSED after so many new processes."""
        return self._level(FALSE_PASS, processes, known)

    def far_level(self, processes: int, known: float) -> float:
        """The nominal level of PASSED for what is twice as slow as its tolerance."""
        return self._level(FALSE_FAR, processes, known)

    def improved_level(self, processes: int, known: float) -> float:
        """The nominal level of IMPROVED."""
        return self._level(FALSE_IMPROVED, processes, known)

    def _level(self, chance: float, processes: int, known: float) -> float:
        last = min(processes, self.most)
        if not self.ended:
            return _levels(chance, self.most, _rounded(known), self.slow_only, self.exponent)[
                last - 1
            ]
        spent = _spent(self.most, known, self.slow_only, self.exponent)
        return float(chance * (1 - (spent[last - 2] if last > 1 else 0.0)))


def fewest_red(known: int, strange: float, most: int) -> int:
    """How many new processes REGRESSED needs against a reference of so many.

    Args:
        known: processes behind the reference. Where they are few, all may be in the fast mode of two by chance.
        strange: the share of processes in another mode, as all tests of the class show it: so many new ones are
            hardly all in it.
        most: the most processes that the run may take; from five known ones on it is not asked for more.
    """
    fewest = max(FEWEST_RED, FEWEST_TOGETHER - known)
    if known >= ENOUGH_KNOWN:
        fewest = max(FEWEST_RED, min(fewest, most))
    if strange > 0:
        fewest = max(fewest, math.ceil(math.log(STRICT) / math.log(strange)))
    return fewest


def _rounded(known: float) -> float:
    if math.isinf(known):
        return known
    steps = round(math.log2(max(known, LEAST_KNOWN)) * STEPS) / STEPS
    return float(min(MOST_KNOWN, 2.0**steps))


def _information(most: int, known: float) -> Floats:
    """1/(1/n + 1/R): how well the difference is known after n of at most `most` processes, in units of 1/σ²."""
    new = np.arange(1, most + 1)
    return np.asarray(1 / (1 / new + 1 / _rounded(known)), dtype=np.float64)


def _spent(most: int, known: float, slow_only: bool = False, exponent: float = EXPONENT) -> Floats:
    """The share of a chance that may be spent up to each look."""
    if slow_only and most > 1:
        return FIRST_SHARE + (1 - FIRST_SHARE) * np.arange(most) / (most - 1)
    information = _information(most, known)
    return np.asarray((information / information[-1]) ** exponent, dtype=np.float64)


@functools.lru_cache(maxsize=1024)
def _red_shares(most: int, known: float, fewest: int, exponent: float) -> tuple[float, ...]:
    """Of each look the nominal level as a share of the chance, on the scale of a normal test statistic."""
    first = fewest - 1
    chances = STRICT * _spent(most, known, exponent=exponent)[first:]
    bounds = boundaries(chances, _information(most, known)[first:])
    return (0.0,) * first + tuple(float(special.ndtr(-bound)) / STRICT for bound in bounds)


@functools.lru_cache(maxsize=1024)
def _levels(
    chance: float, most: int, known: float, slow_only: bool, exponent: float
) -> tuple[float, ...]:
    """Nominal levels of the looks that together err with `chance`, on the scale of a normal test statistic."""
    if most == 1:
        return (chance,)
    bounds = boundaries(
        chance * _spent(most, known, slow_only, exponent), _information(most, known)
    )
    return tuple(float(special.ndtr(-bound)) for bound in bounds)


def boundaries(spent: Floats, information: Floats) -> list[float]:
    """The bounds on the test statistic of each look such that crossing by look k has the chance spent[k].

    Args:
        spent: [looks], cumulative chances.
        information: [looks], increasing.
    """
    # Half a second of imports that a run with a single look does without.
    from scipy import optimize

    found = [float(-special.ndtri(spent[0]))]
    scores = _grid(found[0], information[0])
    density = np.exp(-(scores**2) / 2 / information[0]) / math.sqrt(2 * math.pi * information[0])
    for look in range(1, len(information)):
        step = math.sqrt(information[look] - information[look - 1])
        weights = density * _trapezoid(scores)
        due = spent[look] - spent[look - 1]
        scale = math.sqrt(information[look])

        def excess(bound: float) -> float:
            crossing = weights * special.ndtr((scores - bound * scale) / step)  # noqa: B023
            return float(np.sum(crossing)) - float(due)  # noqa: B023

        found.append(float(optimize.brentq(excess, -8.0, 12.0)))
        following = _grid(found[-1], information[look])
        kernel = np.exp(-((following[:, None] - scores) ** 2) / 2 / step**2) / (
            step * math.sqrt(2 * math.pi)
        )
        scores, density = following, kernel @ weights
    return found


def _grid(bound: float, information: float) -> Floats:
    """Scores from far below up to the bound, beyond which a test has stopped."""
    scale = math.sqrt(information)
    return np.linspace(-8 * scale, bound * scale, GRID)


def _trapezoid(scores: Floats) -> Floats:
    weights = np.full_like(scores, scores[1] - scores[0])
    weights[[0, -1]] /= 2
    return weights


def spent_p(p: float, share: float) -> float:
    """A p that may be held against the whole chance, although only a share of it may be spent now."""
    return min(1.0, p / share) if share > 0 else 1.0


def red_at_once(spent: float, comparisons: int) -> bool:
    """Whether p is so small that no other test's can change the verdict: Bonferroni's bound."""
    return spent <= FALSE_RED / max(comparisons, FEWEST_TESTS)


def adjusted(spent: Sequence[float], comparisons: int) -> list[float]:
    """Benjamini and Hochberg's adjusted p of a run's tests; tests still to come count as unchanged."""
    from scipy.stats import false_discovery_control

    missing = max(0, max(comparisons, FEWEST_TESTS) - len(spent))
    return [float(p) for p in false_discovery_control([*spent, *[1.0] * missing])[: len(spent)]]


def needs_processes(processes: int) -> str:
    """What decides an open test if its median stays."""
    how = "auto" if processes <= MOST_ROUNDS else f"{processes}"
    return f"needs about {processes} processes (--roofline-rounds={how})"
