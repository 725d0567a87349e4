"""The rule by which the ends differ clearly enough to begin a search, and how long they may be compared."""

from ..core.verdicts import Kind, Verdict
from ..stats.paired import FEWEST_BLOCKS, PROCESSES_PER_BLOCK_SIDE

# The largest number of processes a side where two candidates are compared: both ends, and those beside a step.
MOST_PROCESSES = 12
# The chance of error, shared by all tests, at which the slowdown of the bad end is clear enough to begin. The steps
# measure both ends again, and the confirmation is an `ab`, so no answer rests on it.
CLEAR = 0.003


def is_clear(verdict: Verdict, tests: int) -> bool:
    """Return True if a test is slower at the bad end clearly enough to begin a search.

    `tests` is the number of tests that share the chance of error.
    """
    blocks = (verdict.processes or 0) // PROCESSES_PER_BLOCK_SIDE
    is_small = verdict.p is not None and verdict.p <= CLEAR / tests
    return verdict.kind is Kind.REGRESSED or (
        verdict.kind is Kind.INCONCLUSIVE
        and blocks >= FEWEST_BLOCKS
        and verdict.looks_slow
        and is_small
    )
