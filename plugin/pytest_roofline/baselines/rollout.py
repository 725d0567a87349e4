"""The effect of a change on every test: devices with the change against devices without.

Each device is its own reference: its change is the logarithm of its time after the rollout divided by its time before.
The effect is the mean change of the devices that got the rollout less that of the controls (difference in differences;
Card and Krueger 1994, "Minimum wages and employment"), with Welch's error. Devices of a node share its host, its power
and its hour. So where both sides have two nodes or more, the unit is a node, with the mean of its devices.
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
from ..stats.analyses import SUGGESTED_COUNTS
from ..stats.spread import LEAST_SPREAD, UNBELIEVED, Prior, borrow, priors
from ..stats.verdicts import changed_environment, judge_once, settle, span_text, would_decide
from .comparators import RunComparator
from .overlap import refuse_both_sides
from .references import class_of_key, default_tolerance
from .rows import compared_row
from .runs import Run

# The name of a device's node, and the device's identity. A CPU has the name of its node twice.
Place = tuple[str, str]
# The change of a test by place, in log seconds; positive is slower.
Changes = dict[Place, float]


@dataclass(frozen=True, slots=True)
class DeviceChanges:
    """The changes of a test: on the devices with the rollout, and on the controls."""

    treated: Changes
    controls: Changes

    @property
    def by_node(self) -> bool:
        """Return True where both sides have two nodes or more.

        Then the units are nodes, and not devices.
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
    """The devices that got a change, or the controls, with the changes of their tests.

    Args:
        devices: those that were measured before and after.
        gone: devices that were measured only before; `new` were measured only after.
        keys: the key of each test, by identity; `labels` and `changes` are by identity, too.
        lost: by label, the devices on which a test has no comparable time after the change.
        environment: on how many devices each fact of the environment changed.
    """

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
    """The effect of a staged rollout.

    Args:
        rows: one for each test, worst first; `changes` holds the changes behind it, by identity.
        without_control: labels of tests that no control measured.
        spread: the origin of the spread between units, for a person.
    """

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
        """Return the tests that devices lost with the change, by label.

        A test that every control lost as well is left out: the change did not cause it.
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
    """Return the effect of a change on every test.

    Args:
        before: the runs of the devices that got the change; `after` are their runs with it.
        control: the runs of the controls, before and after.
        tolerance: as a share of time; None for that of each test's class.
    """
    refuse_both_sides(before, after)
    refuse_both_sides(*control)
    controls = _side(*control, frozenset())
    treated = _side(before, after, frozenset(device for _, device in controls.devices))
    for side, side_name in ((treated, "the devices that are compared"), (controls, "the controls")):
        if not side.changes:
            raise BadInput(
                f"no test was measured both before and after on any of {side_name}; expected runs of the same devices"
            )
    changes = {
        identity: DeviceChanges(treated_changes, controls.changes[identity])
        for identity, treated_changes in treated.changes.items()
        if identity in controls.changes
    }
    if not changes:
        raise BadInput(
            "the runs of the controls hold no test of the other runs; expected runs of the same tests"
        )
    prior = _shared_prior(list(changes.values()))
    rows = _rows(treated, changes, prior, tolerance)
    without_control = tuple(
        treated.labels[identity] for identity in treated.changes if identity not in changes
    )
    origin = (
        f"estimated, with {prior.origin}"
        if prior
        else "estimated, with an assumed prior (fewer than 8 tests)"
    )
    return Rollout(
        tuple(rows), changes, treated, controls, without_control=without_control, spread=origin
    )


def _side(before: Sequence[Run], after: Sequence[Run], without: frozenset[str]) -> RolloutSide:
    """Return one side of a rollout, leaving out the devices of `without`."""
    old, new = (
        {place: RunComparator(runs) for place, runs in _by_place(side, without).items()}
        for side in (before, after)
    )
    # A device may have moved to another node in between.
    old_places, new_places = ({place[1]: place for place in places} for places in (old, new))
    side = RolloutSide(
        devices=tuple(place for place in old if place[1] in new_places),
        gone=tuple(device for device in old_places if device not in new_places),
        new=tuple(device for device in new_places if device not in old_places),
    )
    for place in side.devices:
        runs_before, runs_after = old[place], new[new_places[place[1]]]
        side.environment.update(_environment_changes(runs_before.runs, runs_after.runs))
        for key in [key for key in runs_before.keys() if not key.is_canary]:  # noqa: SIM118
            side.keys.setdefault(key.identity, key)
            label = side.labels.setdefault(key.identity, runs_before.label(key))
            change = _change(runs_before, runs_after, key)
            if change is None:
                side.lost.setdefault(label, []).append(place)
            else:
                side.changes.setdefault(key.identity, {})[place] = change
    return side


def _by_place(runs: Sequence[Run], without: frozenset[str]) -> dict[Place, list[Run]]:
    """Return the runs of each device that is not in `without`."""
    places = group_by(runs, _place)
    return {
        place: runs_of_place for place, runs_of_place in places.items() if place[1] not in without
    }


def _place(run: Run) -> Place:
    host = run.header.environment.host.name
    return host, identity_of(run.header.environment) or host


def _environment_changes(before: Sequence[Run], after: Sequence[Run]) -> list[str]:
    """Return the facts of the environment that changed on a device, once each."""
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

    None where a side has no time, or where mode or work differ.
    """
    old, new = before.reference(key), after.reference(key)
    old_work, new_work = before.work(key), after.work(key)
    if old is None or new is None or old.achieved != new.achieved:
        return None
    if old_work is None or new_work is None or old_work != new_work:
        return None
    old_log_s, new_log_s = (
        fmean(log_s for group in side.groups for log_s in group.logs) for side in (old, new)
    )
    return new_log_s - old_log_s


def _pooled_variance(sides: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the variance between units of both sides together, and its freedom."""
    freedom = sum(len(side) - 1 for side in sides)
    squares = math.fsum(variance(side) * (len(side) - 1) for side in sides if len(side) > 1)
    return (squares / freedom if freedom else 0.0), freedom


def _shared_prior(changes: Sequence[DeviceChanges]) -> Prior | None:
    """Return the prior of changes over all tests, or None.

    None with fewer than eight tests (Smyth 2004). Without it four devices estimate their spread so
    badly that a driver's 8 % would be missed one time in three.
    """
    prior = borrow(priors()["device"], [_pooled_variance(change.units) for change in changes])
    return prior if prior.borrowed else None


def _assumed_prior(key: Key, sides: Sequence[Sequence[float]]) -> Prior:
    """Return the assumed prior of changes.

    It has no degrees of freedom where the changes of this test rule it out.
    """
    prior = priors()[class_of_key(key)]
    # A change is the difference of two sessions of one process each, before and after.
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

    The row of an undecided test says what would decide.
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
        # The difference of changes has no times: without it the row leaves out both.
        verdict = replace(verdict, difference=None)
        row = compared_row(side.keys[identity], None, verdict, None)
        rows.append(replace(row, unit=None, reason=reason))
    return sorted(rows, key=lambda row: badness(row.verdict, row.change))


def _difference(changes: DeviceChanges, prior: Prior) -> Difference:
    """Return the effect, with its error.

    Its spreads and times are placeholders, since changes have none.
    """
    sides, no_spread = changes.units, Spread(0.0, "")
    error, freedom = _standard_error(sides, prior)
    estimate = fmean(sides[0]) - fmean(sides[1])
    return Difference(
        estimate, error, freedom, process=no_spread, session=no_spread, new_s=1.0, reference_s=1.0
    )


def _standard_error(sides: Sequence[Sequence[float]], prior: Prior) -> tuple[float, float]:
    """Return the standard error and Satterthwaite's degrees of freedom.

    It is that of the difference of two means. The variance of each side is joined with the prior's,
    which is one estimate for both sides. Without a prior, a side of one unit has the variance of the
    other.
    """
    pooled = max(LEAST_SPREAD**2, _pooled_variance(sides)[0])
    parts = []
    prior_part = 0.0
    for side in sides:
        side_freedom = len(side) - 1
        # Changes that agree to the tick show a coarse clock, so a smaller variance is not believed.
        square = max(LEAST_SPREAD**2, variance(side)) if side_freedom else pooled
        total_freedom = side_freedom + prior.freedom
        weight = side_freedom / total_freedom if total_freedom else 1.0
        parts.append((weight * square / len(side), max(1, side_freedom)))
        prior_part += (1 - weight) * prior.process**2 / len(side)
    # A part of 0 has no degrees of freedom to divide by.
    all_parts = [(part, freedom) for part, freedom in (*parts, (prior_part, prior.freedom)) if part]
    total = math.fsum(part for part, _ in all_parts)
    return math.sqrt(total), total**2 / math.fsum(part**2 / freedom for part, freedom in all_parts)


def _reason(verdict: Verdict, changes: DeviceChanges, tests: int) -> str:
    """Return the effect that an undecided test may have.

    The text ends with the number of units that would decide.
    """
    assert verdict.interval is not None
    text = f"the change may be {span_text(verdict.interval)}"
    unit = "nodes" if changes.by_node else "devices"
    count = would_decide(verdict, min(map(len, changes.units)), tests)
    if count is not None:
        return f"{text}; a verdict needs about {count} {unit} on either side"
    return (
        f"{text}; {SUGGESTED_COUNTS[-1]} {unit} cannot decide so close to the tolerance; raise the "
        "tolerance, or measure more often"
    )
