"""The effect of a change on every test: devices with the change against devices without.

Each device is its own reference: its change is the log of its time after by its time before. The effect is the mean
change of the devices that got it less that of the controls (difference in differences; Card and Krueger 1994, "Minimum
wages and employment"), with Welch's error. Devices of a node share its host, its power and its hour, so where there are
two nodes on either side, a node with the mean of its devices is what counts.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean, variance

from scipy import special

from ..core.errors import BadInput
from ..core.groups import group_by
from ..core.keys import Key
from ..core.rows import Row, badness
from ..core.verdicts import Difference, Kind, Spread, Subject, Verdict
from ..hardware import identity_of
from ..stats.looks import WORTHWHILE
from ..stats.spread import LEAST_SPREAD, UNBELIEVED, Prior, borrow, priors
from ..stats.verdicts import changed_environment, judge_once, settle, span_text, would_decide
from .comparators import RunComparator, class_of_key, default_tolerance, refuse_both_sides
from .rows import compared_row
from .runs import Run

# The host of a device, and its identity; of a CPU its host twice.
Place = tuple[str, str]
# By place the change of a test, in log seconds; positive is slower.
Changes = dict[Place, float]


@dataclass(frozen=True, slots=True)
class DeviceChanges:
    """The changes of a test on the devices that got the rollout, and on the controls."""

    treated: Changes
    controls: Changes

    @property
    def by_node(self) -> bool:
        """Return True where both sides have two nodes or more.

        Then nodes are counted, and not devices.
        """
        return all(len({host for host, _ in side}) > 1 for side in (self.treated, self.controls))

    @property
    def units(self) -> tuple[list[float], list[float]]:
        """Return the change of each unit, on both sides.

        A unit is a node, with the mean of its devices, or a device.
        """
        return self._units(self.treated), self._units(self.controls)

    def _units(self, side: Changes) -> list[float]:
        if not self.by_node:
            return list(side.values())
        by_host = group_by(side, lambda place: place[0])
        return [fmean(side[place] for place in places) for places in by_host.values()]


@dataclass(frozen=True, slots=True)
class RolloutSide:
    """The devices that got a change, or the controls, with the changes of their tests."""

    devices: tuple[Place, ...]
    gone: tuple[str, ...]
    new: tuple[str, ...]
    keys: dict[str, Key] = field(default_factory=dict)
    labels: dict[str, str] = field(default_factory=dict)
    changes: dict[str, Changes] = field(default_factory=dict)
    lost: dict[str, list[Place]] = field(default_factory=dict)
    environment: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Rollout:
    """A staged rollout."""

    rows: tuple[Row, ...]
    changes: Mapping[str, DeviceChanges]
    treated: RolloutSide
    controls: RolloutSide
    without_control: tuple[str, ...]
    spread: str

    def changes_of(self, row: Row) -> DeviceChanges:
        """Return the changes of each device under one of the rows."""
        assert row.key is not None
        return self.changes[row.key.identity]

    @property
    def lost(self) -> dict[str, list[Place]]:
        """Return the tests that devices lost with the change.

        What every control lost as well is no effect of it.
        """
        everywhere = {
            label
            for label, places in self.controls.lost.items()
            if len(places) == len(self.controls.devices)
        }
        return {
            label: places for label, places in self.treated.lost.items() if label not in everywhere
        }

    @property
    def has_losses(self) -> bool:
        """Return True where devices lost a test, or did not return."""
        return bool(self.lost or self.treated.gone)


def judge_rollout(
    before: Sequence[Run],
    after: Sequence[Run],
    control: tuple[Sequence[Run], Sequence[Run]],
    tolerance: float | None = None,
) -> Rollout:
    """Return the effect of a change on every test."""
    refuse_both_sides(before, after)
    refuse_both_sides(*control)
    controls = _side(*control, frozenset())
    treated = _side(before, after, frozenset(device for _, device in controls.devices))
    for side, side_name in ((treated, "the devices that are compared"), (controls, "the controls")):
        if not side.changes:
            raise BadInput(
                f"no test was measured both before and after on one of {side_name}; expected runs of the same devices"
            )
    changes = {
        identity: DeviceChanges(treated_changes, controls.changes[identity])
        for identity, treated_changes in treated.changes.items()
        if identity in controls.changes
    }
    if not changes:
        raise BadInput(
            "the runs of the controls hold none of the tests; expected runs of the same tests"
        )
    prior = _shared_prior(list(changes.values()))
    rows = _rows(treated, changes, prior, tolerance)
    without_control = tuple(
        treated.labels[identity] for identity in treated.changes if identity not in changes
    )
    origin = (
        f"estimated, with {prior.origin}"
        if prior
        else "estimated, with an assumed prior: fewer than 8 tests"
    )
    return Rollout(tuple(rows), changes, treated, controls, without_control, origin)


def _side(before: Sequence[Run], after: Sequence[Run], without: frozenset[str]) -> RolloutSide:
    old, new = (
        {place: RunComparator(runs) for place, runs in _by_place(side, without).items()}
        for side in (before, after)
    )
    # A device may have moved to another host in between.
    old_places, new_places = ({place[1]: place for place in places} for places in (old, new))
    side = RolloutSide(
        devices=tuple(place for place in old if place[1] in new_places),
        gone=tuple(device for device in old_places if device not in new_places),
        new=tuple(device for device in new_places if device not in old_places),
    )
    for place in side.devices:
        first, second = old[place], new[new_places[place[1]]]
        side.environment.update(_environment(first.runs, second.runs))
        for key in [key for key in first.keys() if not key.is_canary]:  # noqa: SIM118
            side.keys.setdefault(key.identity, key)
            label = side.labels.setdefault(key.identity, first.label(key))
            change = _change(first, second, key)
            if change is None:
                side.lost.setdefault(label, []).append(place)
            else:
                side.changes.setdefault(key.identity, {})[place] = change
    return side


def _by_place(runs: Sequence[Run], without: frozenset[str]) -> dict[Place, list[Run]]:
    places = group_by(runs, _place)
    return {
        place: runs_of_place for place, runs_of_place in places.items() if place[1] not in without
    }


def _place(run: Run) -> Place:
    host = run.header.environment.host.name
    return host, identity_of(run.header.environment) or host


def _environment(before: Sequence[Run], after: Sequence[Run]) -> list[str]:
    facts = [run.environment.everything() for run in before]
    return list(
        dict.fromkeys(
            change
            for run in after
            for change in changed_environment(run.environment.everything(), facts)
        )
    )


def _change(before: RunComparator, after: RunComparator, key: Key) -> float | None:
    """Return the change of a device's time of a test, or None.

    None where a side has none, or another thing was timed.
    """
    old, new = before.reference(key), after.reference(key)
    first, second = before.work(key), after.work(key)
    if old is None or new is None or old.achieved != new.achieved:
        return None
    if first is None or second is None or first != second:
        return None
    old_log_s, new_log_s = (
        fmean(log_s for group in side.groups for log_s in group.logs) for side in (old, new)
    )
    return new_log_s - old_log_s


def _pooled_variance(sides: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the variance between units, and its degrees of freedom.

    It is that of both sides together.
    """
    freedom = sum(len(side) - 1 for side in sides)
    squares = math.fsum(variance(side) * (len(side) - 1) for side in sides if len(side) > 1)
    return (squares / freedom if freedom else 0.0), freedom


def _shared_prior(changes: Sequence[DeviceChanges]) -> Prior | None:
    """Return the prior of changes over all tests, or None.

    None where fewer than eight tests tell (Smyth 2004). Four devices tell their own spread so badly
    that a driver's 8 % would be missed one time in three.
    """
    prior = borrow(priors()["device"], [_pooled_variance(change.units) for change in changes])
    return prior if prior.borrowed else None


def _assumed_prior(key: Key, sides: Sequence[Sequence[float]]) -> Prior:
    """Return the prior of changes that is assumed.

    It is worth nothing where this test rules it out.
    """
    prior = priors()[class_of_key(key)]
    # A session before and one after, of one process each.
    spread = math.sqrt(2) * math.hypot(prior.process, prior.session)
    square, freedom = _pooled_variance(sides)
    ruled_out = freedom and special.chdtrc(freedom, freedom * square / spread**2) < UNBELIEVED
    return replace(prior, process=spread, freedom=0.0 if ruled_out else prior.freedom)


def _rows(
    side: RolloutSide,
    changes: Mapping[str, DeviceChanges],
    prior: Prior | None,
    tolerance: float | None,
) -> list[Row]:
    """Return the rows of every test, worst first.

    What is still open says what would decide.
    """
    verdicts = {}
    for identity, device_changes in changes.items():
        key = side.keys[identity]
        limit = default_tolerance(key) if tolerance is None else tolerance
        verdicts[identity] = judge_once(
            _difference(device_changes, prior or _assumed_prior(key, device_changes.units)),
            limit,
            Subject(label=side.labels[identity]),
        )
    rows = []
    for identity, verdict in settle(verdicts, len(changes)).items():
        is_open = verdict.kind is Kind.INCONCLUSIVE
        reason = _reason(verdict, changes[identity], len(changes)) if is_open else ""
        # Its times stand for no side: a row leaves them out.
        verdict = replace(verdict, difference=None)
        row = compared_row(side.keys[identity], None, verdict, None)
        rows.append(replace(row, unit=None, reason=reason))
    return sorted(rows, key=lambda row: badness(row.verdict, row.change))


def _difference(changes: DeviceChanges, prior: Prior) -> Difference:
    """Return the effect, with its error."""
    sides, no_spread = changes.units, Spread(0.0, "")
    error, freedom = _standard_error(sides, prior)
    estimate = fmean(sides[0]) - fmean(sides[1])
    return Difference(
        estimate, error, freedom, process=no_spread, session=no_spread, new_s=1.0, reference_s=1.0
    )


def _standard_error(sides: Sequence[Sequence[float]], prior: Prior) -> tuple[float, float]:
    """Return the standard error and Satterthwaite's degrees of freedom.

    It is that of the difference of two means. Each side's own variance is joined with what is lent,
    which is one estimate however many sides lean on it. A side of one unit where nothing is lent
    has the variance of the other.
    """
    pooled = max(LEAST_SPREAD**2, _pooled_variance(sides)[0])
    parts = []
    borrowed = 0.0
    for side in sides:
        own_freedom = len(side) - 1
        # Changes that agree to the tick say that the clock is coarse.
        square = max(LEAST_SPREAD**2, variance(side)) if own_freedom else pooled
        weight = own_freedom / (own_freedom + prior.freedom) if own_freedom + prior.freedom else 1.0
        parts.append((weight * square / len(side), max(1, own_freedom)))
        borrowed += (1 - weight) * prior.process**2 / len(side)
    known_parts = [(part, freedom) for part, freedom in (*parts, (borrowed, prior.freedom)) if part]
    total = math.fsum(part for part, _ in known_parts)
    return math.sqrt(total), total**2 / math.fsum(
        part**2 / freedom for part, freedom in known_parts
    )


def _reason(verdict: Verdict, changes: DeviceChanges, tests: int) -> str:
    """Return the effect that an open test may have.

    It ends with the number of units that would decide.
    """
    assert verdict.interval is not None
    text, unit = f"may be {span_text(verdict.interval)}", "nodes" if changes.by_node else "devices"
    count = would_decide(verdict, min(map(len, changes.units)), tests)
    if count is not None:
        return f"{text}; needs about {count} {unit} on either side"
    return (
        f"{text}; {WORTHWHILE[-1]} {unit} are too few to decide this close to the tolerance; raise "
        "the tolerance, or measure more often"
    )
