"""What a change does to every test, told apart from what happened anyway: devices with it against devices without.

Each device is its own reference: its change is the log of its time after by its time before. The effect is the mean
change of the devices that got it less that of the controls (difference in differences; Card and Krueger 1994, "Minimum
wages and employment"), with Welch's error. Devices of a node share its host, its power and its hour, so where there are
two nodes on either side, a node with the mean of its devices is what counts.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from scipy import special

from ..core.errors import BadInput
from ..core.keys import Key
from ..core.rows import badness
from ..hardware import identity_of
from ..stats.looks import FALSE_FAR, FALSE_IMPROVED, FALSE_PASS, FALSE_RED, FEWEST_TESTS, WORTHWHILE, adjusted
from ..stats.spread import LEAST_SPREAD, UNBELIEVED, Prior, Spread, borrow, priors
from ..stats.stats import CONFIDENCE, Difference
from ..stats.verdicts import WORTH_REPORTING, Kind, changed_environment, span_text
from .comparators import RunComparator, class_of_key, default_tolerance
from .runs import Run

# The host of a device, and its identity; of a CPU its host twice.
Place = tuple[str, str]
# By place the change of a test, in log seconds; positive is slower.
Changes = dict[Place, float]


@dataclass(frozen=True, slots=True)
class RolloutSide:
    """What became of the devices that got a change, or of the controls.

    Args:
        keys: of the tests, by identity.
        changes: of each test that was measured on both sides, by identity.
        lost: by a test's label, the devices with a sound time before and none after.
        environment: what changed, with on how many devices: `driver 550.54 → 570.86`.
        gone: devices that ran before and not after; `new` the other way round.
    """

    keys: dict[str, Key]
    changes: dict[str, Changes]
    lost: dict[str, list[Place]]
    environment: Counter[str]
    devices: tuple[Place, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class RolloutRow:
    """The effect on one test.

    Args:
        difference: of both sides.
        units: how many nodes or devices counted, on either side; `by_node` says which.
        p: of "no more than the smallest effect worth reporting slower", paid for all tests.
    """

    key: Key
    kind: Kind
    tolerance: float
    treated: Changes
    controls: Changes
    difference: Difference
    units: tuple[int, int]
    by_node: bool
    p: float = 1.0
    reason: str = ""

    @property
    def estimate(self) -> float:
        """The effect, in log seconds."""
        return self.difference.estimate

    @property
    def interval(self) -> tuple[float, float]:
        """Of the effect, in log seconds."""
        return self.difference.interval(CONFIDENCE)


@dataclass(frozen=True, slots=True)
class Rollout:
    """A staged rollout: every test, worst first, both sides, what no control measured, and where errors come from."""

    rows: tuple[RolloutRow, ...]
    treated: RolloutSide
    controls: RolloutSide
    uncontrolled: tuple[str, ...]
    spread: str

    @property
    def lost(self) -> dict[str, list[Place]]:
        """Tests that devices lost with the change; what every control lost as well is no effect of it."""
        everywhere = {
            label for label, places in self.controls.lost.items() if len(places) == len(self.controls.devices)
        }
        return {label: places for label, places in self.treated.lost.items() if label not in everywhere}

    @property
    def worse(self) -> bool:
        """Whether a test regressed, or devices lost one with the change, or did not come back."""
        return bool(any(row.kind is Kind.REGRESSED for row in self.rows) or self.lost or self.treated.gone)


def judge_rollout(
    before: Sequence[Run],
    after: Sequence[Run],
    control: tuple[Sequence[Run], Sequence[Run]],
    tolerance: float | None = None,
) -> Rollout:
    """The effect of a change on every test.

    Args:
        before: runs of the devices that got it, from before.
        after: the same from after. Devices that are among the controls as well count as these.
        control: runs of devices that did not get it, from before and from after.
        tolerance: None is that of each test's class.

    Raises:
        BadInput: no test was measured before and after on both kinds of devices.
    """
    controls = _side(*control, frozenset())
    kept = frozenset(device for _, device in controls.devices)
    treated = _side(before, after, kept)
    for side, what in ((treated, "the devices that are compared"), (controls, "the controls")):
        if not side.changes:
            raise BadInput(
                f"no test was measured both before and after on one of {what}; expected runs of the same devices"
            )
    both = [identity for identity in treated.changes if identity in controls.changes]
    if not both:
        raise BadInput("the controls measured none of the tests; expected runs of the same tests")
    pairs = {identity: (treated.changes[identity], controls.changes[identity]) for identity in both}
    lent = _lent(pairs)
    rows = [_row(treated.keys[identity], *pairs[identity], lent, tolerance) for identity in both]
    alone = tuple(key.label for identity, key in treated.keys.items() if identity in treated.changes.keys() - pairs)
    origin = f"estimated, with {lent.origin}" if lent else "estimated, with what is assumed, as fewer than 8 tests tell"
    return Rollout(tuple(_settle(rows)), treated, controls, alone, origin)


def _side(before: Sequence[Run], after: Sequence[Run], without: frozenset[str]) -> RolloutSide:
    old, new = (
        {place: RunComparator(runs) for place, runs in _by_place(side, without).items()} for side in (before, after)
    )
    known = {device: place for place in new for device in [place[1]]}
    side = RolloutSide(
        {}, {}, {}, Counter(), tuple(place for place in old if place[1] in known),
        tuple(device for _, device in old if device not in known),
        tuple(device for device in known if device not in {device for _, device in old}),
    )  # fmt: skip
    for place in side.devices:
        first, second = old[place], new[known[place[1]]]
        side.environment.update(_environment(first.runs, second.runs))
        for key in [key for key in first.keys() if not key.is_canary]:  # noqa: SIM118
            side.keys.setdefault(key.identity, key)
            change = _change(first, second, key)
            if change is None:
                side.lost.setdefault(key.label, []).append(place)
            else:
                side.changes.setdefault(key.identity, {})[place] = change
    return side


def _by_place(runs: Sequence[Run], without: frozenset[str]) -> dict[Place, list[Run]]:
    found: dict[Place, list[Run]] = {}
    for run in runs:
        host = run.header.environment.host.name
        device = identity_of(run.header.environment) or host
        if device not in without:
            found.setdefault((host, device), []).append(run)
    return found


def _environment(before: Sequence[Run], after: Sequence[Run]) -> list[str]:
    facts = [run.header.environment.comparable() for run in before]
    found = (changed_environment(run.header.environment.comparable(), facts) for run in after)
    return list(dict.fromkeys(change for changes in found for change in changes))


def _change(before: RunComparator, after: RunComparator, key: Key) -> float | None:
    """How a device's time of a test changed; None where a side has none, or another thing was timed."""
    old, new = before.reference(key), after.reference(key)
    first, second = before.work(key), after.work(key)
    if old is None or new is None or old.achieved != new.achieved:
        return None
    if first is None or second is None or not first.agrees(second):
        return None
    then, now = (fmean(value for group in side.groups for value in group.logs) for side in (old, new))
    return now - then


def _units(changes: Changes, by_node: bool) -> list[float]:
    """What is counted: nodes, each with the mean of its devices, or devices."""
    if not by_node:
        return list(changes.values())
    nodes: dict[str, list[float]] = {}
    for (host, _), change in changes.items():
        nodes.setdefault(host, []).append(change)
    return [fmean(mine) for mine in nodes.values()]


def _by_node(treated: Changes, controls: Changes) -> bool:
    return all(len({host for host, _ in side}) > 1 for side in (treated, controls))


def _sides(treated: Changes, controls: Changes) -> tuple[list[float], list[float]]:
    by_node = _by_node(treated, controls)
    return _units(treated, by_node), _units(controls, by_node)


def _pooled(sides: Sequence[Sequence[float]]) -> tuple[float, int]:
    """The variance between the units of a side, of both sides together, and its degrees of freedom."""
    freedom = sum(len(side) - 1 for side in sides)
    squares = math.fsum(variance(side) * (len(side) - 1) for side in sides if len(side) > 1)
    return (squares / freedom if freedom else 0.0), freedom


def _lent(pairs: dict[str, tuple[Changes, Changes]]) -> Prior | None:
    """How changes differ over all tests, as `process`; None where fewer than eight tests tell (Smyth 2004).

    Four devices tell their own spread so badly that a driver's 8 % would be missed one time in three.
    """
    found = borrow(priors()["device"], [_pooled(_sides(*pair)) for pair in pairs.values()])
    return found if found.borrowed else None


def _assumed(key: Key, sides: Sequence[Sequence[float]]) -> Prior:
    """What is assumed of how changes differ, as `process`: worth nothing where this test rules it out."""
    prior = priors()[class_of_key(key)]
    # A session before and one after, of one process each.
    spread = math.sqrt(2) * math.hypot(prior.process, prior.session)
    square, freedom = _pooled(sides)
    ruled_out = freedom and special.chdtrc(freedom, freedom * square / spread**2) < UNBELIEVED
    return replace(prior, process=spread, freedom=0.0 if ruled_out else prior.freedom)


def _row(key: Key, treated: Changes, controls: Changes, lent: Prior | None, tolerance: float | None) -> RolloutRow:
    sides = _sides(treated, controls)
    limit = default_tolerance(key) if tolerance is None else tolerance
    error, freedom = _error(sides, lent or _assumed(key, sides))
    none = Spread(0.0, "")
    estimate = fmean(sides[0]) - fmean(sides[1])
    found = Difference(estimate, error, freedom, process=none, session=none, new_s=1.0, reference_s=1.0)
    units = len(sides[0]), len(sides[1])
    return RolloutRow(key, _kind(found, limit), limit, treated, controls, found, units, _by_node(treated, controls))


def _error(sides: Sequence[Sequence[float]], lent: Prior) -> tuple[float, float]:
    """The standard error of the difference of two means, and Satterthwaite's degrees of freedom.

    Each side's own variance is joined with what is lent, which is one estimate however many sides lean on it. A side of
    one unit where nothing is lent has the variance of the other.
    """
    pooled = max(LEAST_SPREAD**2, _pooled(sides)[0])
    parts = []
    borrowed = 0.0
    for side in sides:
        own = len(side) - 1
        # Changes that agree to the tick say that the clock is coarse.
        square = max(LEAST_SPREAD**2, variance(side)) if own else pooled
        weight = own / (own + lent.freedom) if own + lent.freedom else 1.0
        parts.append((weight * square / len(side), max(1, own)))
        borrowed += (1 - weight) * lent.process**2 / len(side)
    told = [(part, known) for part, known in (*parts, (borrowed, lent.freedom)) if part]
    total = math.fsum(part for part, _ in told)
    return math.sqrt(total), total**2 / math.fsum(part**2 / known for part, known in told)


def _kind(found: Difference, tolerance: float) -> Kind:
    """All but REGRESSED, which the other tests have a say in."""
    limit, far = math.log1p(tolerance), math.log1p(2 * tolerance)
    if found.estimate + found.bound(1 - FALSE_IMPROVED) < -limit:
        return Kind.IMPROVED
    near = found.estimate + found.bound(1 - FALSE_PASS) < limit
    return Kind.PASSED if near and found.estimate + found.bound(1 - FALSE_FAR) < far else Kind.INCONCLUSIVE


def _settle(rows: Sequence[RolloutRow]) -> list[RolloutRow]:
    """Every test held against the others, worst first; what is still open says what would decide."""
    values = [row.difference.p_slower_than(_worth(row)) for row in rows]
    settled = []
    for row, p in zip(rows, adjusted(values, len(rows)), strict=True):
        red = p <= FALSE_RED and row.estimate > math.log1p(row.tolerance)
        kind = Kind.REGRESSED if red else row.kind
        reason = _reason(row, len(rows)) if kind is Kind.INCONCLUSIVE else ""
        settled.append(replace(row, kind=kind, p=p, reason=reason))
    return sorted(settled, key=lambda row: badness(row.kind.value, row.estimate))


def _worth(row: RolloutRow) -> float:
    return math.log1p(WORTH_REPORTING * row.tolerance)


def _reason(row: RolloutRow, tests: int) -> str:
    """What an open test may be, and how many units would decide it if neither centre nor spread moved."""
    told, unit = f"may be {span_text(row.interval)}", "nodes" if row.by_node else "devices"
    now = min(row.units)
    for count in (many for many in WORTHWHILE if many > now):
        freedom = max(count - 1.0, row.difference.freedom)
        found = replace(row.difference, error=row.difference.error * math.sqrt(now / count), freedom=freedom)
        red = row.estimate > math.log1p(row.tolerance)
        surely = row.estimate - _worth(row) > found.bound(1 - FALSE_RED / max(tests, FEWEST_TESTS))
        if (red and surely) or _kind(found, row.tolerance) is not Kind.INCONCLUSIVE:
            return f"{told}; about {count} {unit} on either side would decide"
    return f"{told}; it lies too near the tolerance for {WORTHWHILE[-1]} {unit}: allow more, or measure more often"
