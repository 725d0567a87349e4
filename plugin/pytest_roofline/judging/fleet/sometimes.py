"""Parts that are slow in some of their runs only: two modes, which no median shows."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from .effects import LEVELS
from .outliers import LEVEL

if TYPE_CHECKING:
    from pandas import DataFrame

# A run is slow where it lies so many standard deviations above its part's middle.
FAR = 4.0
# Fewer runs, or fewer slow ones, are no habit.
FEWEST_RUNS, FEWEST_SLOW = 8, 3
# Runs are this often slow at least, whatever this fleet shows: something always happens.
USUAL = 1e-3


@dataclass(frozen=True, slots=True)
class Sometimes:
    """How often, and by how much.

    Args:
        kind: class of the tests.
        slow: runs that were slow, of `runs`.
        size: log seconds above the part's own middle, in the middle of the slow runs.
        p: after everything that it counts for.
    """

    kind: str
    slow: int
    runs: int
    size: float
    p: float


def sometimes_slow(runs: "DataFrame", least: float) -> Iterator[tuple[str, str, str, Sometimes]]:
    """Parts with their node and sort that are slow in more of their runs than chance allows."""
    from scipy.stats import binom, median_abs_deviation

    keys = ["sort", "class", "part"]
    by_run = runs.groupby([*keys, "node", "run"], sort=True)["excess"].median().reset_index()
    by_run["rest"] = by_run["excess"] - by_run.groupby(keys)["excess"].transform("median")
    times = LEVELS * len(by_run[keys].drop_duplicates())
    for (_, kind), group in by_run.groupby(["sort", "class"], sort=True):
        spread = float(median_abs_deviation(group["rest"], scale="normal"))
        slow = group["rest"] > max(least, FAR * spread)
        if slow.sum() < FEWEST_SLOW:
            continue
        usual = max(USUAL, float(slow.sum()) / len(group))
        counted = group.assign(slow=slow).groupby(["sort", "part", "node"])["slow"].agg(["sum", "count"]).reset_index()
        for sort, part, node, many, count in counted.itertuples(index=False):
            p = float(binom.sf(many - 1, count, usual)) * times
            if many >= FEWEST_SLOW and count >= FEWEST_RUNS and p <= LEVEL:
                size = float(group["rest"][slow & (group["part"] == part)].median())
                yield part, node, sort, Sometimes(str(kind), int(many), int(count), size, min(1.0, p))
