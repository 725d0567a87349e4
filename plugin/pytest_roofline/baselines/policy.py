"""How strict a verdict is, and what a measurement is held against beside its baseline: live and offline alike."""

from collections.abc import Sequence

from ..core.entries import Entry
from ..core.facts import Gpu
from ..core.keys import Key
from ..core.records import Measurement
from ..core.work import Work, rate_suffix
from ..stats.limits import IdleLimit, Limit, Summed, floor_limits, gating_limits, roofline_limit
from ..stats.looks import Looks
from ..stats.spread import Prior
from ..stats.verdicts import Policy, Reference
from .comparators import default_tolerance


def policy_of(
    key: Key,
    reference: Reference | None,
    prior: Prior,
    comparisons: int,
    *,
    own: float | None,
    asked: float | None,
    looks: Looks | None = None,
) -> Policy:
    """The tolerance is the test's own, then its baseline's, then the one asked for, then that of its class.

    Args:
        key: of the measurement.
        reference: that it is compared with; None where nothing is known of it.
        prior: of its class.
        comparisons: that the run makes.
        own: the tolerance of its marker or argument, as a share of time.
        asked: that of the command line or configuration.
        looks: how many processes it may take; None where all that there will ever be are there.
    """
    entry = reference.tolerance if reference is not None else None
    tolerance = own or entry or asked or default_tolerance(key)
    return Policy(tolerance, max(1, comparisons), prior, looks or Looks())


def limits_of(
    entries: Sequence[Entry],
    work: Work,
    summed: Summed,
    measurement: Measurement | None,
    *,
    gpu: Gpu | None = None,
    offline: bool = False,
    min_share: float | None = None,
) -> tuple[list[Limit], list[IdleLimit]]:
    """Published limits, floors and the share of the roofline that was asked for; and what could be held, but not here.

    Args:
        entries: that match the measurement.
        work: of one call.
        summed: gives the new processes under a statistic.
        measurement: whose roofline floors are shares of; None where there are but medians.
        gpu: what the management library tells of the device; None where that is not known.
        offline: whether the device is not at hand. Whether arithmetic ran at the power that the card is shipped with, a
            run file does not tell.
        min_share: of the roofline, that was asked for.
    """
    limits, idle = gating_limits(entries, work, summed)
    if measurement is None:
        return limits, idle
    moving = [entry for entry in entries if not offline or rate_suffix(entry.metric) != "TFLOPS"]
    floors, no_floors = floor_limits(moving, measurement, gpu)
    share = roofline_limit(measurement, min_share) if min_share is not None else None
    return [*limits, *floors, *([share] if share is not None else [])], [*idle, *no_floors]
