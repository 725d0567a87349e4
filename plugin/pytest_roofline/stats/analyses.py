"""The interim analyses of a test, and the chances of error that they and the run's tests share.

A test is judged after its first process, after five, and after the last that its run may take. Each analysis has a
chance of error of its own, and these add up to what is promised (Bonferroni). The tests of a run are paid for by
Benjamini and Hochberg (1995), "Controlling the false discovery rate".
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

# The chance that a run calls anything unchanged REGRESSED.
FALSE_RED = 0.05
# In a run of fewer tests the chance of error of one test is no larger than in a run of so many: 0.2 %.
FEWEST_TESTS = 25
# Chances of error at the first analysis: of a false IMPROVED; of PASSED for a test exactly as slow as its tolerance;
# and of PASSED for one twice as slow, which matters where the spread is many times the tolerance. A later one has half
# of each.
FIRST_LEVELS = (0.005, 0.03, 0.003)
LATER_LEVELS = (0.0025, 0.015, 0.0015)
# A test is analysed after one process and after so many.
SECOND_ANALYSIS = 5
MOST_ROUNDS = 12
# One strange process among one or two looks like a slowdown; among three it looks like spread.
FEWEST_RED = 3
# Where processes have two equally likely modes, this many (both sides together) hardly ever split into modes exactly as
# they split into sides.
FEWEST_TOGETHER = 12
# With a baseline of so many processes, five new ones may turn red.
ENOUGH_KNOWN = 5
# Numbers of processes to suggest; nobody runs more for one answer.
SUGGESTED_COUNTS = (3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)
# The chance of error of one test among two hundred.
STRICT = FALSE_RED / 200


@dataclass(frozen=True, slots=True)
class Analyses:
    """The plan of interim analyses of a test: after one process, after five, and after `most`.

    Args:
        most: how many processes the run may take.
        slow_only: whether more processes follow only for what looks slower than its tolerance; else for every test
            that is undecided.
        ended: whether this analysis is the last although more were planned.
    """

    most: int = 1
    slow_only: bool = False
    ended: bool = False

    @property
    def counts(self) -> tuple[int, ...]:
        """Return the numbers of processes after which the test is analysed."""
        return tuple(sorted({min(count, self.most) for count in (1, SECOND_ANALYSIS, self.most)}))

    def due(self, processes: int) -> bool:
        """Return True where the test is analysed after so many processes."""
        return self.ended or processes >= self.most or processes in self.counts

    def red_analyses(self, fewest: int) -> int:
        """Return how many of a run's interim analyses may be red; at least one.

        `fewest` is the number of processes that red needs.
        """
        return max(1, sum(count >= fewest for count in self.counts))

    def levels(self, processes: int) -> tuple[float, float, float]:
        """Return three chances of error at the interim analysis after so many processes.

        They are those of a false IMPROVED, of PASSED for a test as slow as its tolerance, and of
        PASSED for one twice as slow.
        """
        is_first = processes <= self.counts[0]
        return FIRST_LEVELS if is_first or self.most == 1 else LATER_LEVELS


def fewest_red(reference_processes: int, strange: float) -> int:
    """Return how many new processes a test needs before it may be called REGRESSED.

    Args:
        reference_processes: processes behind the reference. Where they are few, all may be in the fast mode of two by
            chance.
        strange: the share of processes in another mode, as all tests of the class show it. So many new ones are needed
            that they are hardly all in that mode.
    """
    fewest = max(FEWEST_RED, FEWEST_TOGETHER - reference_processes)
    # So many processes of a baseline are hardly all in one mode.
    if reference_processes >= ENOUGH_KNOWN:
        fewest = min(fewest, SECOND_ANALYSIS)
    if strange > 0:
        # The chance that all of them are in the other mode, `strange` to the power of their number, is at most STRICT.
        fewest = max(fewest, math.ceil(math.log(STRICT) / math.log(strange)))
    return fewest


def red_at_once(p: float, comparisons: int) -> bool:
    """Return True where p is below Bonferroni's bound.

    No other test's p can change the verdict then.
    """
    return p <= FALSE_RED / max(comparisons, FEWEST_TESTS)


def adjusted_p(p_spent: Sequence[float], comparisons: int) -> list[float]:
    """Return Benjamini and Hochberg's adjusted p of a run's tests.

    Tests that have no p yet count as unchanged.

    Args:
        p_spent: the p of each test that has one, times the number of its interim analyses that may be red.
        comparisons: the number of tests of the run, with or without a p.
    """
    from scipy.stats import false_discovery_control

    # Tests without a p, and those that a small run lacks: its tests have no larger chance of error than those of a run
    # of `FEWEST_TESTS`.
    missing_count = max(0, max(comparisons, FEWEST_TESTS) - len(p_spent))
    unchanged = [1.0] * missing_count
    adjusted = false_discovery_control([*p_spent, *unchanged])
    return [float(p) for p in adjusted[: len(p_spent)]]


def rounds_for(processes: int) -> int:
    """Return the number of rounds that gives at least so many processes, and a verdict at its end.

    It is the next number at which `--roofline-rounds=auto` judges; beyond all of these, it is `processes`.
    """
    return next((count for count in Analyses(MOST_ROUNDS).counts if count >= processes), processes)
