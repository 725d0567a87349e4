"""How single devices changed over a rollout, and what their mean is worth: the sides of a difference in differences."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

from ..core.keys import Key
from .comparators import RunComparator
from .qualifying_pairs import Pair
from .spread import ENOUGH_SESSIONS, LEAST_SPREAD, Group, Prior
from .stats import Difference, difference

# Fewer devices tell nothing of how devices differ in their change: then their own runs and the priors do.
ENOUGH_DEVICES = ENOUGH_SESSIONS
# Of fewer devices none stands out: their median is half of two of them.
FEWEST_COMPARED = 4
# Robust standard deviations by which a device stands out; many tests of many devices are looked at.
STANDS_OUT = 5.0


@dataclass(frozen=True, slots=True)
class Change:
    """How one device's time of one test changed, in log seconds; positive is slower.

    Args:
        assumed: what its own runs and the priors say of the error.
    """

    pair: Pair
    estimate: float
    assumed: Difference


@dataclass(frozen=True, slots=True)
class Side:
    """The mean change of the treated devices, or of the controls.

    Args:
        mean: in log seconds.
        parts: of the variance of the mean, each with its degrees of freedom.
        origin: where the error comes from.
    """

    mean: float
    parts: tuple[tuple[float, float], ...]
    origin: str
    devices: int


def change_of(pair: Pair, before: RunComparator, after: RunComparator, key: Key, prior: Prior) -> Change | None:
    """How a device's time of a test changed; None where a side has none, or another thing was timed."""
    old, new = before.reference(key), after.reference(key)
    if old is None or new is None or old.achieved != new.achieved:
        return None
    first, second = before.work(key), after.work(key)
    if first is None or second is None or not first.agrees(second):
        return None
    estimate = _centre(new.groups) - _centre(old.groups)
    return Change(pair, estimate, difference(new.groups, old.groups, prior))


def _centre(groups: Sequence[Group]) -> float:
    # A session with many rounds is still one load of the driver.
    return fmean(fmean(group.logs) for group in groups)


def scatter(*sides: Sequence[Change]) -> tuple[float, int]:
    """The variance between the changes of a side's devices, pooled over sides, and its degrees of freedom."""
    told = [[change.estimate for change in side] for side in sides if len(side) >= ENOUGH_DEVICES]
    freedom = sum(len(side) - 1 for side in told)
    squares = math.fsum(variance(side) * (len(side) - 1) for side in told)
    return (squares / freedom, freedom) if freedom else (0.0, 0)


def side_of(changes: Sequence[Change], prior: Prior, among: Prior | None) -> Side:
    """The mean change of some devices with what is known of its error.

    Args:
        changes: at least one.
        prior: what is assumed between processes and sessions.
        among: how the changes of devices differ in the other tests, as `process`; None where too few tests tell.
    """
    by_node: dict[str, list[Change]] = {}
    for change in changes:
        by_node.setdefault(change.pair.host, []).append(change)
    mean = fmean(change.estimate for change in changes)
    count, hosts = len(changes), len(by_node)
    if count < ENOUGH_DEVICES:
        return _assumed(mean, list(by_node.values()))
    square, own = scatter(changes)
    freedom: float = own
    origin = "estimated over devices"
    if among is not None:
        freedom, origin = own + among.freedom, f"{origin}, with {among.origin}"
        square = (own * square + among.freedom * among.process**2) / freedom
    # Changes that agree to the tick say that the clock is coarse.
    over_devices = max(LEAST_SPREAD**2, square) / count, freedom
    if hosts == count:
        return Side(mean, (over_devices,), origin, count)
    if hosts >= ENOUGH_DEVICES:
        over_nodes = _variance_over_nodes(mean, list(by_node.values()), count)
        chosen = max(over_devices, over_nodes)
        return Side(mean, (chosen,), "estimated over nodes" if chosen is over_nodes else origin, count)
    # Two nodes tell nothing of how nodes differ: each was measured in one session before and one after.
    shared = 2 * prior.session**2 / hosts
    assumed = f"{origin}, and {prior.session:.1%} between sessions of a node assumed"
    return Side(mean, (over_devices, (shared, math.inf)), assumed, count)


def _variance_over_nodes(mean: float, by_node: Sequence[Sequence[Change]], count: int) -> tuple[float, float]:
    """Of the mean over devices where nodes are what varies, and its degrees of freedom; as of clusters.

    Liang and Zeger's (1986) sandwich for a mean, with the factor G/(G − 1) for few clusters.
    """
    hosts = len(by_node)
    squares = math.fsum(math.fsum(change.estimate - mean for change in node) ** 2 for node in by_node)
    return squares / count**2 * hosts / (hosts - 1), hosts - 1


def _assumed(mean: float, by_node: Sequence[Sequence[Change]]) -> Side:
    """The error of a few devices from their own runs and the priors; devices of a node are taken to err together."""
    count = sum(map(len, by_node))
    parts = []
    for node in by_node:
        errors = [change.assumed.error for change in node]
        freedom = min(change.assumed.freedom for change in node)
        parts.append(((math.fsum(errors) / count) ** 2, freedom))
    own = by_node[0][0].assumed
    process, session = (f"{spread.value:.1%}, {spread.origin}" for spread in (own.process, own.session))
    word = f"{count} device{'s' * (count > 1)}"
    origin = f"{word}, so the error is that of runs (processes {process}; sessions {session})"
    return Side(mean, tuple(parts), origin, count)


def outliers(treated: Sequence[Change], tolerance: float) -> list[Change]:
    """Devices whose own change lies far from the others', in robust standard deviations and beyond the tolerance."""
    if len(treated) < FEWEST_COMPARED:
        return []
    from scipy.stats import median_abs_deviation

    estimates = [change.estimate for change in treated]
    middle, spread = median(estimates), float(median_abs_deviation(estimates, scale="normal"))
    # Devices that agree by chance make any other stand out; none differs less than runs of itself do.
    least = median(change.assumed.error for change in treated)
    beyond = max(STANDS_OUT * max(spread, least), math.log1p(tolerance))
    found = [change for change in treated if abs(change.estimate - middle) > beyond]
    return sorted(found, key=lambda change: -abs(change.estimate - middle))
