"""How single devices changed over a rollout, and what their mean is worth: the sides of a difference in differences."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean, median, variance

from ..core.keys import Key
from .comparators import RunComparator
from .qualifying_pairs import Pair
from .spread import ENOUGH_SESSIONS, ENOUGH_TESTS, LEAST_SPREAD, PRIOR_FREEDOM, Prior, Spread, borrow
from .stats import Difference, difference

# Fewer nodes tell nothing of how nodes differ in their change.
ENOUGH_NODES = ENOUGH_SESSIONS
# Of a squared normal deviate: the median, by which one of many scales is told whatever a few strange ones say.
MEDIAN_SQUARE = 0.4549


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
class Part:
    """A part of the variance of a mean, with its degrees of freedom.

    Args:
        source: the one estimate that this and other parts are multiples of, so that they err together; empty is none.
    """

    variance: float
    freedom: float
    source: str = ""


@dataclass(frozen=True, slots=True)
class Side:
    """The mean change of the treated devices, or of the controls.

    Args:
        mean: in log seconds.
        parts: of the variance of the mean.
        origin: where the error comes from.
    """

    mean: float
    parts: tuple[Part, ...]
    origin: str


def change_of(pair: Pair, before: RunComparator, after: RunComparator, key: Key, prior: Prior) -> Change | None:
    """How a device's time of a test changed; None where a side has none, or another thing was timed."""
    old, new = before.reference(key), after.reference(key)
    if old is None or new is None or old.achieved != new.achieved:
        return None
    first, second = before.work(key), after.work(key)
    if first is None or second is None or not first.agrees(second):
        return None
    found = difference(new.groups, old.groups, prior)
    return Change(pair, found.estimate, found)


def total_of(parts: Iterable[Part]) -> tuple[float, float]:
    """The variance that parts make together, and Satterthwaite's degrees of freedom of it.

    What rests on one estimate is one part, however many devices lean on it: more of them know it no better.
    """
    apart: dict[object, Part] = {}
    for place, part in enumerate(parts):
        held = apart.get(part.source or place, Part(0.0, part.freedom))
        apart[part.source or place] = Part(held.variance + part.variance, min(held.freedom, part.freedom))
    total = math.fsum(part.variance for part in apart.values())
    doubt = math.fsum(part.variance**2 / part.freedom for part in apart.values())
    return total, total**2 / doubt if doubt else math.inf


def scatter(*sides: Sequence[Change]) -> tuple[float, int]:
    """The variance between the changes of a side's devices, pooled over sides, and its degrees of freedom."""
    told = [[change.estimate for change in side] for side in sides if len(side) > 1]
    freedom = sum(len(side) - 1 for side in told)
    squares = math.fsum(variance(side) * (len(side) - 1) for side in told)
    return (squares / freedom, freedom) if freedom else (0.0, 0)


def spread_among(prior: Prior, tests: Sequence[tuple[Sequence[Change], Sequence[Change]]]) -> Prior | None:
    """How the changes of devices differ over all tests, as `process`; None where fewer than eight tell.

    Four devices tell their own spread so badly that a driver's 8 % would be missed one time in three.
    """
    told = [scatter(*sides) for sides in tests]
    found = borrow(prior, told)
    if found.borrowed:
        return found
    # One degree of freedom a test tells a scale by the median of all, but hardly how tests differ in it.
    squares = [square for square, freedom in told if freedom == 1]
    if len(squares) < ENOUGH_TESTS:
        return None
    assumed = median(change.assumed.error for sides in tests for side in sides for change in side)
    process = max(assumed, math.sqrt(median(squares) / MEDIAN_SQUARE))
    return Prior(process, prior.session, prior.device, PRIOR_FREEDOM, f"prior of {len(squares)} tests", borrowed=True)


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
    if count == 1 or (count == 2 and among is None):
        return _few(mean, list(by_node.values()), among)
    over_devices, origin = _over_devices(changes, among)
    if hosts == count:
        return Side(mean, over_devices, origin)
    if hosts >= ENOUGH_NODES:
        over_nodes = _over_nodes(mean, list(by_node.values()), count)
        if over_nodes.variance > math.fsum(part.variance for part in over_devices):
            return Side(mean, (over_nodes,), "estimated over nodes")
        return Side(mean, over_devices, origin)
    # Two nodes tell nothing of how nodes differ: each was measured in one session before and one after.
    shared = Part(2 * prior.session**2 / hosts, math.inf)
    assumed = f"{origin}, and {prior.session:.1%} between sessions of a node assumed"
    return Side(mean, (*over_devices, shared), assumed)


def _over_devices(changes: Sequence[Change], among: Prior | None) -> tuple[tuple[Part, ...], str]:
    """The variance of the mean from how devices differ in this test, joined with how they do in the others."""
    count = len(changes)
    square, own = scatter(changes)
    # Changes that agree to the tick say that the clock is coarse.
    square = max(LEAST_SPREAD**2, square)
    if among is None:
        return (Part(square / count, own),), "estimated over devices"
    freedom = own + among.freedom
    lent = among.freedom / freedom * among.process**2 / count
    parts = Part(own / freedom * square / count, own), Part(lent, among.freedom, "among")
    return parts, f"estimated over devices, with {among.origin}"


def _over_nodes(mean: float, by_node: Sequence[Sequence[Change]], count: int) -> Part:
    """The variance of the mean over devices where nodes are what varies; as of clusters.

    Liang and Zeger's (1986) sandwich for a mean, with the factor G/(G − 1) for few clusters.
    """
    hosts = len(by_node)
    squares = math.fsum(math.fsum(change.estimate - mean for change in node) ** 2 for node in by_node)
    return Part(squares / count**2 * hosts / (hosts - 1), hosts - 1)


def _few(mean: float, by_node: Sequence[Sequence[Change]], among: Prior | None) -> Side:
    """One device, or two: the error is the larger of what their runs and the priors say and what devices show."""
    changes = [change for node in by_node for change in node]
    assumed = _assumed(by_node)
    count = len(changes)
    word = f"{count} device{'s' * (count > 1)}"
    shown, origin = assumed[0], ""
    if among is not None:
        shown, origin = Part(among.process**2 / count, among.freedom, "among"), f"that of other devices, {among.origin}"
    elif count > 1:
        square, own = scatter(changes)
        # What the priors know is not forgotten: on one degree of freedom alone nothing is ever decided.
        freedom = own + min(change.assumed.freedom for change in changes)
        shown, origin = Part(square / count, freedom), "what lies between them"
    if origin and shown.variance > math.fsum(part.variance for part in assumed):
        return Side(mean, (shown,), f"{word}, so the error is {origin}")
    told = [[change.assumed.process for change in changes], [change.assumed.session for change in changes]]
    process, session = (_span(spreads) for spreads in told)
    return Side(mean, assumed, f"{word}, so the error is that of runs (processes {process}; sessions {session})")


def _assumed(by_node: Sequence[Sequence[Change]]) -> tuple[Part, ...]:
    """The error of few devices from their own runs and the priors; devices of a node are taken to err together."""
    count = sum(map(len, by_node))
    parts = []
    for node in by_node:
        errors = [change.assumed.error for change in node]
        freedom = min(change.assumed.freedom for change in node)
        # A guess is no better known for being made of two devices.
        guessed = any("prior" in change.assumed.process.origin for change in node)
        parts.append(Part((math.fsum(errors) / count) ** 2, freedom, "prior" if guessed else ""))
    return tuple(parts)


def _span(spreads: Sequence[Spread]) -> str:
    """`1.0%, prior`; of devices whose runs tell of different spreads the least and the most."""
    told = dict.fromkeys(f"{spread.value:.1%}, {spread.origin}" for spread in spreads)
    if len(told) == 1:
        return next(iter(told))
    values = [spread.value for spread in spreads]
    return f"{min(values):.1%} to {max(values):.1%}, each its own"
