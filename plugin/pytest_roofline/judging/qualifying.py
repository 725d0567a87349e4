"""What a new driver does to every test, told apart from what the fleet does by itself: a staged rollout, judged.

Each device is its own reference: its change is the log of its time after by its time before. The driver's effect is the
mean change of the devices that got it less the mean change of those that did not (difference in differences; Card and
Krueger 1994, "Minimum wages and employment"), with Welch's error over devices. Devices of a node share its host, its
power and its hour, so where nodes tell of a larger error than devices, theirs is taken.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from ..core.errors import BadInput
from ..core.keys import Key
from .comparators import RunComparator, class_of_key, prior_of
from .looks import FALSE_FAR, FALSE_IMPROVED, FALSE_PASS, FALSE_RED, FEWEST_TESTS, adjusted
from .qualifying_pairs import Pair, Rollout, nodes
from .qualifying_sides import Change, change_of, outliers, scatter, side_of
from .runs import Run
from .spread import Prior, Spread, borrow, priors
from .stats import CONFIDENCE, Difference, growth
from .verdicts import DEFAULT_TOLERANCE, WORTH_REPORTING, WORTHWHILE, Kind


@dataclass(frozen=True, slots=True)
class Changes:
    """How every device changed on one test, and what is assumed of it."""

    key: Key
    treated: tuple[Change, ...]
    controls: tuple[Change, ...]
    prior: Prior


@dataclass(frozen=True, slots=True)
class Effect:
    """What the driver does to one test.

    Args:
        estimate: in log seconds, positive is slower; `error` is its standard error, `freedom` its degrees of freedom.
        interval: of the estimate, at 99 %.
        p: of "no more than the smallest effect worth reporting slower"; `p_adjusted` is paid for all tests.
        drift: the mean change of the controls; None without any.
        outliers: devices whose own change is far from that of the other treated ones, with it.
        origin: where the error comes from.
    """

    key: Key
    kind: Kind
    estimate: float
    error: float
    freedom: float
    interval: tuple[float, float]
    p: float
    treated: tuple[Change, ...]
    controls: tuple[Change, ...]
    drift: float | None
    origin: str
    outliers: tuple[Change, ...] = ()
    p_adjusted: float = 1.0
    reason: str = ""

    @property
    def label(self) -> str:
        """The test as people call it."""
        return self.key.label

    @property
    def change(self) -> float:
        """The effect as a share of time."""
        return growth(self.estimate)


@dataclass(frozen=True, slots=True)
class Qualification:
    """A driver, judged: the rollout, its effect on each test, worst first, and the tests that it cannot be judged by.

    `lost` are tests of which upgraded devices had a sound time before and none has one after that may be compared.
    """

    rollout: Rollout
    effects: tuple[Effect, ...]
    tolerance: float
    lost: tuple[str, ...] = ()

    def count(self, kind: Kind) -> int:
        """How many tests have a verdict."""
        return sum(effect.kind is kind for effect in self.effects)

    @property
    def advice(self) -> str:
        """`do not roll out`, `roll out`, or what is needed first."""
        if self.count(Kind.REGRESSED):
            return "do not roll out"
        if self.lost:
            return "find out first why tests have no sound time any more"
        return "need more devices" if self.count(Kind.INCONCLUSIVE) else "roll out"


def qualify(rollout: Rollout, tolerance: float = DEFAULT_TOLERANCE) -> Qualification:
    """The effect of the rollout's driver on every test that an upgraded device ran on both sides.

    Raises:
        BadInput: there is no such test.
    """
    everyone = [*rollout.treated, *rollout.controls]
    sides = {pair.device: (RunComparator(pair.before), RunComparator(pair.after)) for pair in everyone}
    known_prior = _priors([run for pair in everyone for run in pair.before])
    changes, lost = [], []
    for key in _known([sides[pair.device][0] for pair in rollout.treated]):
        assumed = known_prior(class_of_key(key))
        treated, controls = (
            [found for pair in pairs if (found := change_of(pair, *sides[pair.device], key, assumed)) is not None]
            for pairs in (rollout.treated, rollout.controls)
        )
        if treated:
            changes.append(Changes(key, tuple(treated), tuple(controls), assumed))
        else:
            lost.append(key.label)
    if not changes:
        fleet = describe_fleet(rollout)
        raise BadInput(f"no test was measured on {fleet} both before and after; expected the same tests on both sides")
    among = _among(changes)
    effects = [_effect(one, tolerance, among) for one in changes]
    return Qualification(rollout, tuple(_settle(effects, tolerance)), tolerance, tuple(lost))


def _among(changes: Sequence[Changes]) -> Prior | None:
    """How the changes of devices differ, over all tests; None where fewer than eight tell.

    Four devices tell their own spread so badly that a driver's 8 % would be missed one time in three.
    """
    found = borrow(changes[0].prior, [scatter(one.treated, one.controls) for one in changes])
    return found if found.borrowed else None


def _known(sides: Sequence[RunComparator]) -> list[Key]:
    """Every key that some side holds a sound measurement of, once."""
    return list({key.identity: key for side in sides for key in side.keys()}.values())  # noqa: SIM118


def _priors(runs: Sequence[Run]) -> Callable[[str], Prior]:
    """What to assume by class of benchmark: what the runs of before tell together, or the starting values."""
    references = RunComparator(runs).references()
    found: dict[str, Prior] = {}

    def prior(kind: str) -> Prior:
        if kind not in found:
            found[kind] = prior_of(references, kind) if references else priors()[kind]
        return found[kind]

    return prior


def _effect(one: Changes, tolerance: float, among: Prior | None) -> Effect:
    sides = [side_of(changes, one.prior, among) for changes in (one.treated, one.controls) if changes]
    drift = sides[1].mean if one.controls else None
    estimate = sides[0].mean - (drift or 0.0)
    parts = [part for side in sides for part in side.parts]
    total = math.fsum(part for part, _ in parts)
    # Satterthwaite's, as Welch has them: with one part a side.
    freedom = total**2 / math.fsum(part**2 / freedom for part, freedom in parts)
    found = _as_difference(estimate, math.sqrt(total), freedom)
    return Effect(
        key=one.key,
        kind=_kind(found, tolerance),
        estimate=estimate,
        error=found.error,
        freedom=freedom,
        interval=found.interval(CONFIDENCE),
        p=found.p_slower_than(math.log1p(WORTH_REPORTING * tolerance)),
        treated=one.treated,
        controls=one.controls,
        drift=drift,
        origin="; ".join(dict.fromkeys(side.origin for side in sides)),
        outliers=tuple(outliers(one.treated, tolerance)),
    )


def _as_difference(estimate: float, error: float, freedom: float) -> Difference:
    """Bounds and p are those of the comparison of two runs."""
    none = Spread(0.0, "")
    return Difference(estimate, error, freedom, process=none, session=none, new_s=1.0, reference_s=1.0)


def _kind(found: Difference, tolerance: float) -> Kind:
    """All but REGRESSED, which the other tests have a say in."""
    limit, far = math.log1p(tolerance), math.log1p(2 * tolerance)
    if found.estimate + found.bound(1 - FALSE_IMPROVED) < -limit:
        return Kind.IMPROVED
    near = found.estimate + found.bound(1 - FALSE_PASS) < limit
    return Kind.PASSED if near and found.estimate + found.bound(1 - FALSE_FAR) < far else Kind.INCONCLUSIVE


def _settle(effects: Sequence[Effect], tolerance: float) -> list[Effect]:
    """Every test held against the others, worst first; what is still open says what would decide."""
    corrected = adjusted([effect.p for effect in effects], len(effects)) if effects else []
    settled = []
    for effect, p in zip(effects, corrected, strict=True):
        red = p <= FALSE_RED and effect.estimate > math.log1p(tolerance)
        kind = Kind.REGRESSED if red else effect.kind
        reason = _reason(effect, tolerance, len(effects)) if kind is Kind.INCONCLUSIVE else ""
        settled.append(replace(effect, kind=kind, p_adjusted=p, reason=reason))
    rank = {Kind.REGRESSED: 0, Kind.INCONCLUSIVE: 1}
    return sorted(settled, key=lambda effect: (rank.get(effect.kind, 2), -effect.estimate))


def _reason(effect: Effect, tolerance: float, tests: int) -> str:
    """What an open test may be, and how many devices would decide it if neither centre nor spread moved."""
    low, high = (f"{growth(bound) * 100:+.1f}" for bound in effect.interval)
    told = f"may be {low} to {high} %"
    if effect.outliers:
        return f"{told}; one device decides, look at it first"
    enough = _devices_to_decide(effect, tolerance, tests)
    if enough is None:
        return f"{told}; it lies too near the tolerance for {WORTHWHILE[-1]} devices: allow more, or measure more often"
    control = " and as many controls" if effect.controls else ", and controls"
    return f"{told}; about {enough} upgraded devices{control} would decide"


def _devices_to_decide(effect: Effect, tolerance: float, tests: int) -> int | None:
    now = min([len(effect.treated), *([len(effect.controls)] if effect.controls else [])])
    level = FALSE_RED / max(tests, FEWEST_TESTS)
    surely = effect.estimate - math.log1p(WORTH_REPORTING * tolerance)
    for count in (many for many in WORTHWHILE if many > now):
        found = _as_difference(effect.estimate, effect.error * math.sqrt(now / count), max(count - 1.0, effect.freedom))
        red = effect.estimate > math.log1p(tolerance) and surely > found.bound(1 - level)
        if red or _kind(found, tolerance) is not Kind.INCONCLUSIVE:
            return count
    return None


def describe_fleet(rollout: Rollout) -> str:
    """`6 devices of 3 nodes, 4 controls of 2`."""
    count, controls = len(rollout.treated), len(rollout.controls)
    text = f"{count} device{'s' * (count > 1)} of {_nodes(rollout.treated)}"
    return f"{text}, {controls} control{'s' * (controls > 1)} of {_nodes(rollout.controls)}" if controls else text


def _nodes(pairs: Sequence[Pair]) -> str:
    count = nodes(pairs)
    return f"{count} node{'s' * (count > 1)}"
