"""The detectable effect of a gate with recorded entries, before anything is slower."""

from collections.abc import Callable, Sequence

from ..core.entries import Entry
from ..core.verdicts import Group
from ..stats.analyses import MOST_ROUNDS, Analyses
from ..stats.outlook import Policy
from ..stats.spread import ENOUGH_SESSIONS, join_days
from ..stats.verdicts import judge
from .files import key_of_entry
from .policies import policy_of
from .references import class_of_key, priors_of, reference_of


def foresee(
    entries: Sequence[Entry],
    tolerance_of: Callable[[Entry], float | None],
    run_tolerance: float | None,
) -> tuple[float | None, bool]:
    """Return the slowdown that a gate would find in every entry, before anything is slower.

    It is a share of time, found 80 times in 100, on another day, after the last round; None where some test needs more
    processes than the gate takes. The second value is whether sessions of more days would make it smaller.

    Args:
        entries: measured ones, as their file holds them.
        tolerance_of: that of an entry's test, as a share of time; None where the test has none.
        run_tolerance: of the run, for tests that have none.
    """
    priors = priors_of(entries)
    reaches = []
    for entry in entries:
        key = key_of_entry(entry)
        policy = policy_of(
            key,
            reference_of(entry, ""),
            priors[class_of_key(key)],
            comparisons=len(entries),
            test_tolerance=tolerance_of(entry),
            run_tolerance=run_tolerance,
            analyses=Analyses(MOST_ROUNDS),
        )
        reaches.append(_reach(entry, policy))
    slowdowns = [reach for reach in reaches if reach is not None]
    days = [len(join_days(reference_of(entry, "").groups)) for entry in entries]
    # The gate is as good as its worst entry, and an entry without a detectable effect is the worst.
    is_complete = bool(slowdowns) and len(slowdowns) == len(reaches)
    has_few_days = min(days, default=0) < ENOUGH_SESSIONS
    return max(slowdowns) if is_complete else None, has_few_days


def _reach(entry: Entry, policy: Policy) -> float | None:
    """Return the detectable effect for one entry, after all rounds of the gate.

    The reach of a verdict does not depend on the new time: here it is the entry's median.
    """
    reference = reference_of(entry, "")
    another_day = Group((reference.median_s,), reference.groups[-1].device)
    return judge([another_day], reference, policy).reach
