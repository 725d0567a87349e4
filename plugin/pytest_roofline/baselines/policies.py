"""How a time is judged: its tolerance and prior, and the limits that apply."""

from collections.abc import Sequence

from ..core.entries import Entry
from ..core.facts import Gpu
from ..core.keys import Key
from ..core.records import Measurement
from ..core.verdicts import Idle, Reference
from ..core.work import Work, rate_suffix
from ..stats.analyses import Analyses
from ..stats.limits import Limit, Summed, floor_limits, gating_limits, roofline_limit
from ..stats.outlook import Policy
from ..stats.spread import Prior
from .references import default_tolerance


def policy_of(
    key: Key,
    reference: Reference | None,
    prior: Prior,
    comparisons: int,
    *,
    test_tolerance: float | None,
    run_tolerance: float | None,
    analyses: Analyses | None = None,
) -> Policy:
    """Return the policy of a test.

    Its tolerance is the first that is given: by the test, by its baseline, by the run, by the class
    of its key. The chance of error is shared among so many `comparisons`, the tests of the run. `analyses` is the
    plan of its interim analyses; None where the test is analysed once.
    """
    entry_tolerance = reference.tolerance if reference is not None else None
    tolerance = test_tolerance or entry_tolerance or run_tolerance or default_tolerance(key)
    return Policy(tolerance, max(1, comparisons), prior, analyses or Analyses())


def limits_of(
    entries: Sequence[Entry],
    work: Work,
    sum_up: Summed,
    measurement: Measurement | None,
    *,
    gpu: Gpu | None = None,
    offline: bool = False,
    min_share: float | None = None,
) -> tuple[list[Limit], list[Idle]]:
    """Return the limits, floors and roofline share that apply.

    They are followed by the limits that cannot be judged, each with a reason.

    Args:
        sum_up: returns the new processes, each summed up by the statistic of a limit's source, or why it cannot.
        measurement: any of them, for floors and the roofline; without it neither applies.
        offline: whether floors of arithmetic are left out, as run files do not tell the power limit.
        min_share: the least share of the roofline that the run asks for.
    """
    limits, idle = gating_limits(entries, work, sum_up)
    if measurement is None:
        return limits, idle
    floor_entries = [
        entry for entry in entries if not offline or rate_suffix(entry.metric) != "TFLOPS"
    ]
    floors, idle_floors = floor_limits(floor_entries, measurement, gpu)
    roofline = roofline_limit(measurement, min_share) if min_share is not None else None
    roofline_limits = [roofline] if roofline is not None else []
    return [*limits, *floors, *roofline_limits], [*idle, *idle_floors]
