"""The effect of a change on a fleet: nodes with the change against nodes without.

Each node is its own reference: its change is the logarithm of its time after the change divided by its time before. The
effect is the mean change of the nodes that got it less that of the controls (difference in differences; Card and
Krueger 1994, "Minimum wages and employment"), with Welch's error. Devices of a node share its host, its power and its
hour, so a node with the mean of its devices counts as one.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, variance

from scipy import special

from ..baselines.rows import compared_row, together_row
from ..baselines.test_texts import RunFile
from ..core.errors import BadInput
from ..core.rows import Row, badness
from ..core.statuses import Status, status_of
from ..core.verdicts import Difference, Kind, Spread, Subject, Verdict
from ..stats.analyses import SUGGESTED_COUNTS
from ..stats.outlook import detectable_effect
from ..stats.spread import LEAST_SPREAD, UNBELIEVED, Prior, borrow, class_of, priors
from ..stats.stats import CONFIDENCE, growth, interval_of
from ..stats.verdicts import judge_once, settle, span_text, would_decide
from .files import Test, parse_test
from .groups import NodeGroup, NodeValues, Place, group_of, refuse_same_runs
from .nodes import SilentNode
from .slow_nodes import SlowNode, slow_nodes

# The mean over many nodes is more exact than a time on one of them, so less is tolerated than of a single test. Copies
# by the host scatter as much on many nodes.
TOLERANCES = {"device": 0.03, "host": 0.15}
# Fewer nodes in a group do not tell how nodes differ.
FEWEST = 3
# The name of all tests, judged as one: the mean change of each node.
TOGETHER = "all tests together"
# The names of the groups.
CHANGED, CONTROL = "changed", "control"


@dataclass(frozen=True, slots=True)
class NodeChanges:
    """The changes of a test in log seconds, by node: of the changed nodes, and of the controls."""

    treated: NodeValues
    controls: NodeValues

    @property
    def sides(self) -> tuple[list[float], list[float]]:
        """Return the changes of both groups."""
        return list(self.treated.values()), list(self.controls.values())

    def _joined_prior(self, prior: Prior) -> Prior:
        """Return the assumed prior of changes.

        It has no degrees of freedom where the changes rule it out.
        """
        spread = _change_spread(prior)
        square, freedom = _pooled_variance(self.sides)
        # The chance of so large a variance, if the assumed spread is right, is too small to believe it.
        ruled_out = freedom and special.chdtrc(freedom, freedom * square / spread**2) < UNBELIEVED
        return replace(prior, process=spread, freedom=0.0 if ruled_out else prior.freedom)

    def difference(self, prior: Prior | None, assumed: Prior) -> Difference:
        """Return the effect, with its error.

        Its spreads and times are placeholders, since changes have none.

        Args:
            prior: that of all tests; None where they are too few to tell.
            assumed: it stands in for that.
        """
        error, freedom = _standard_error(self.sides, prior or self._joined_prior(assumed))
        treated, controls = self.sides
        estimate, no_spread = fmean(treated) - fmean(controls), Spread(0.0, "")
        return Difference(
            estimate,
            error,
            freedom,
            process=no_spread,
            session=no_spread,
            new_s=1.0,
            reference_s=1.0,
        )


@dataclass(frozen=True, slots=True)
class TestEffect:
    """The row of a test, and the changes behind it."""

    row: Row
    changes: NodeChanges


@dataclass(frozen=True, slots=True)
class FleetEffect:
    """The effect of a change on some tests, as shares of time, with its 99 % interval.

    `detectable` is the smallest effect that would have been found.
    """

    change: float
    low: float
    high: float
    detectable: float


@dataclass(frozen=True, slots=True)
class Rollout:
    """The effect of a change on every test, and on all of them.

    Args:
        tests: the worst first.
        together: all tests, judged as one; None of a single test, and of too few nodes.
        effect: that on the tests that are slower, else on all tests; None where there are too few nodes.
        slow_nodes: the nodes that are slower than their own group, worst first.
        silent: the listed nodes that gave less than the others.
        without_control: labels of tests that no control measured.
        spread: the origin of the spread between nodes, for a person.
        unreadable: the number of files that cannot be used.
    """

    tests: tuple[TestEffect, ...]
    together: TestEffect | None
    treated: NodeGroup
    controls: NodeGroup
    effect: FleetEffect | None
    slow_nodes: tuple[SlowNode, ...] = ()
    silent: tuple[SilentNode, ...] = ()
    without_control: tuple[str, ...] = ()
    spread: str = ""
    unreadable: int = 0

    @property
    def rows(self) -> list[Row]:
        """Return the rows of all tests, and that of all together."""
        together = [self.together.row] if self.together is not None else []
        return [test.row for test in self.tests] + together

    @property
    def regressed(self) -> list[TestEffect]:
        """Return the tests that are surely slower."""
        return [test for test in self.tests if test.row.verdict == Kind.REGRESSED]

    @property
    def differs(self) -> dict[str, int]:
        """Return what changed on the changed nodes alone.

        It comes with the number of these nodes, commonest first.
        """
        return {
            change: nodes
            for change, nodes in self.treated.environment.most_common()
            if change not in self.controls.environment
        }

    @property
    def lost(self) -> dict[str, Sequence[Place]]:
        """Return the tests that places lost with the change, by label.

        A place is a node and its device. A test that every control lost as well is left out: the change did not cause
        it.
        """
        return {
            parse_test(test).label: places
            for test, places in self.treated.lost.items()
            if test in self.controls.changes or test not in self.controls.lost
        }

    @property
    def has_losses(self) -> bool:
        """Return True where tests, devices or listed nodes are missing after the change."""
        return bool(self.lost or self.treated.gone or self.silent)

    @property
    def status(self) -> Status:
        """Return the exit status."""
        complete = self.effect is not None and not self.unreadable
        return status_of(self.rows, worse=self.has_losses, complete=complete)

    @property
    def kind(self) -> Kind:
        """Return the word for the whole fleet."""
        if self.regressed or (self.together and self.together.row.verdict == Kind.REGRESSED):
            return Kind.REGRESSED
        if not self.tests or status_of(self.rows) is Status.CANNOT_TELL:
            return Kind.INCONCLUSIVE
        words = {test.row.verdict for test in self.tests}
        whole = self.together or self.tests[0]
        # If each test by itself passed, the fleet passed, even if all tests together are undecided.
        if whole.row.verdict == Kind.INCONCLUSIVE and words <= {Kind.PASSED, Kind.IMPROVED}:
            return Kind.PASSED
        return Kind(whole.row.verdict)


def judge_rollout(
    before: Sequence[RunFile],
    after: Sequence[RunFile],
    control: tuple[Sequence[RunFile], Sequence[RunFile]] | None = None,
    *,
    is_changed: Callable[[str], bool] | None = None,
    tolerance: float | None = None,
) -> Rollout:
    """Return the effect of a change on every test.

    Args:
        before: the runs before the change; `after` those after it.
        control: the runs of the controls, before and after. Their nodes do not count as changed.
        is_changed: without `control`, tells which nodes got the change; all others are controls.
        tolerance: as a share of time; None for that of each test's class.

    Raises:
        BadInput: a run is on both sides, or no test was measured before and after on one of both groups.
    """
    # Without runs of their own, the controls are among the runs of the changed nodes.
    sides = (before, after, *(control or (before, after)))
    before, after, control_before, control_after = (
        [file for file in side if not file.broken] for side in sides
    )
    refuse_same_runs(before, after)
    refuse_same_runs(control_before, control_after)
    if is_changed is None:
        control_nodes = {file.node for file in (*control_before, *control_after)}
        is_changed = lambda node: node not in control_nodes  # noqa: E731
    treated = group_of(before, after, is_changed)
    controls = group_of(control_before, control_after, lambda node: not is_changed(node))
    return _judge(treated, controls, tolerance)


def _judge(treated: NodeGroup, controls: NodeGroup, tolerance: float | None) -> Rollout:
    """Return the effect of a change.

    It is what changed on the nodes that got it, less what did on the controls. `tolerance` is a share of time; None for
    that of each test's class.
    """
    sides = _changes_of_both(treated, controls)
    # The nodes of a rollout are alike, so the class of the first test stands for all.
    first_test = parse_test(next(iter(sides)))
    prior = _shared_prior(sides.values())
    assumed = priors()[_class_of(first_test)]
    rollout = Rollout(
        tests=(),
        together=None,
        treated=treated,
        controls=controls,
        effect=None,
        slow_nodes=slow_nodes(
            {CHANGED: treated, CONTROL: controls},
            replace(assumed, process=_change_spread(assumed)),
            math.log1p(_tolerance(first_test, tolerance)),
        ),
        without_control=tuple(
            parse_test(test).label for test in treated.changes if test not in sides
        ),
        spread=f"estimated, with {prior.origin if prior else 'an assumed prior: fewer than 8 tests'}",
    )
    # Too few nodes do not tell how nodes differ: the rollout has no effect then.
    if min(len(treated.nodes), len(controls.nodes)) < FEWEST:
        return rollout
    tests, together = _judged_tests(sides, prior, tolerance)
    rollout = replace(rollout, tests=tests, together=together)
    return replace(rollout, effect=_effect(rollout.regressed or tests, prior, assumed))


def _changes_of_both(treated: NodeGroup, controls: NodeGroup) -> dict[str, NodeChanges]:
    """Return the changes by test. Raise BadInput if no test was measured in both groups."""
    for group, name in ((treated, "the changed nodes"), (controls, "the controls")):
        if not group.changes:
            raise BadInput(
                f"no test was measured both before and after on any of {name}; expected runs of the same nodes"
            )
    sides = {
        test: NodeChanges(values, controls.changes[test])
        for test, values in treated.changes.items()
        if test in controls.changes
    }
    if not sides:
        raise BadInput(
            "the controls have none of the tests of the changed nodes; expected runs of the same tests"
        )
    return sides


def _judged_tests(
    sides: Mapping[str, NodeChanges], prior: Prior | None, tolerance: float | None
) -> tuple[tuple[TestEffect, ...], TestEffect | None]:
    """Return every test, worst first, and all of them judged as one.

    The latter is None of a single test. Where no prior is shared, each test has that of its class; all together have
    that of the first. The row of an undecided test says what would decide.
    """
    tests = {test: parse_test(test) for test in sides}
    changes = dict(sides)
    if len(sides) > 1:
        tests[TOGETHER] = replace(next(iter(tests.values())), label=TOGETHER)
        changes[TOGETHER] = _mean_changes(sides.values())
    verdicts = {
        name: judge_once(
            changes[name].difference(prior, priors()[_class_of(test)]),
            _tolerance(test, tolerance),
            Subject(label=test.label),
        )
        for name, test in tests.items()
    }
    effects = {}
    for name, verdict in settle(verdicts, len(verdicts)).items():
        is_open = verdict.kind is Kind.INCONCLUSIVE
        reason = _reason(verdict, changes[name], len(verdicts)) if is_open else ""
        # The difference of changes has no times: without it the row leaves out both.
        verdict = replace(verdict, difference=None)
        row = (
            together_row(verdict)
            if name == TOGETHER
            else compared_row(tests[name].key, None, verdict, None)
        )
        effects[name] = TestEffect(replace(row, unit=None, reason=reason), changes[name])
    all_together = effects.pop(TOGETHER, None)
    worst_first = sorted(
        effects.values(), key=lambda effect: badness(effect.row.verdict, effect.row.change)
    )
    return tuple(worst_first), all_together


def _tolerance(test: Test, tolerance: float | None) -> float:
    """Return the tolerance of a test: the user's, or that of its class."""
    return TOLERANCES[_class_of(test)] if tolerance is None else tolerance


def _class_of(test: Test) -> str:
    """Return the class of a test by its hardware.

    Nodes share it, whatever program timed the test.
    """
    return class_of("cpu" if test.key.hardware.is_cpu else "device", test.key.metric)


def _mean_changes(tests: Collection[NodeChanges]) -> NodeChanges:
    """Return the mean change of each node over its tests."""
    groups = [changes.treated for changes in tests], [changes.controls for changes in tests]
    return NodeChanges(*map(_means_by_node, groups))


def _means_by_node(tests: Sequence[NodeValues]) -> NodeValues:
    """Return the mean of each node over the tests that it has."""
    nodes = dict.fromkeys(node for values in tests for node in values)
    return {node: fmean(values[node] for values in tests if node in values) for node in nodes}


def _effect(tests: Sequence[TestEffect], prior: Prior | None, assumed: Prior) -> FleetEffect:
    """Return the effect on the mean of some tests."""
    difference = _mean_changes([test.changes for test in tests]).difference(prior, assumed)
    low, high = map(growth, interval_of(difference, CONFIDENCE))
    return FleetEffect(growth(difference.estimate), low, high, detectable_effect(difference))


def _pooled_variance(sides: Sequence[Sequence[float]]) -> tuple[float, int]:
    """Return the variance between nodes and its degrees of freedom.

    It is that within each group, over both groups.
    """
    freedom = sum(len(side) - 1 for side in sides)
    squares = math.fsum(variance(side) * (len(side) - 1) for side in sides if len(side) > 1)
    return (squares / freedom if freedom else 0.0), freedom


def _shared_prior(tests: Iterable[NodeChanges]) -> Prior | None:
    """Return the prior of changes over all tests, or None.

    None with fewer than eight tests (Smyth 2004). Without it four nodes estimate their spread so
    badly that a driver's 8 % would be missed one time in three.
    """
    variances = [_pooled_variance(changes.sides) for changes in tests]
    prior = borrow(priors()["device"], variances)
    return prior if prior.borrowed else None


def _change_spread(prior: Prior) -> float:
    """Return the assumed spread of a change.

    It is the difference of two sessions of one process each, before and after.
    """
    return math.sqrt(2) * math.hypot(prior.process, prior.session)


def _standard_error(sides: Sequence[Sequence[float]], prior: Prior) -> tuple[float, float]:
    """Return the standard error and Satterthwaite's degrees of freedom.

    It is that of the difference of two means. The variance of each side is joined with the prior's,
    which is one estimate for both sides. Without a prior, a side of one node has the variance of the
    other.
    """
    variance_of_both, _ = _pooled_variance(sides)
    pooled = max(LEAST_SPREAD**2, variance_of_both)
    parts = []
    # A part of the error's square is that of one side, or that of the prior.
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


def _reason(verdict: Verdict, changes: NodeChanges, tests: int) -> str:
    """Return the effect that an undecided test may have, as a text.

    The text ends with the number of nodes that would decide. `tests` is the number of all tests.
    """
    assert verdict.interval is not None
    count = would_decide(verdict, min(map(len, changes.sides)), tests)
    needed = (
        f"needs about {count} nodes in each group"
        if count is not None
        else f"{SUGGESTED_COUNTS[-1]} nodes are too few to decide this close to the tolerance"
    )
    return f"may be {span_text(verdict.interval)}; {needed}"
