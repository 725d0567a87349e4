"""What a new driver does to every test, told apart from what the fleet does by itself: a staged rollout, judged.

Each device is its own reference: its change is the log of its time after by its time before. The driver's effect is the
mean change of the devices that got it less the mean change of those that did not (difference in differences; Card and
Krueger 1994, "Minimum wages and employment"), with Welch's error over devices. Devices of a node share its host, its
power and its hour, so where nodes tell of a larger error than devices, theirs is taken.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from ..core.errors import BadInput
from ..core.keys import Key
from ..core.rows import badness
from .comparators import RunComparator, class_of_key, prior_of
from .looks import FALSE_FAR, FALSE_IMPROVED, FALSE_PASS, FALSE_RED, FEWEST_TESTS, WORTHWHILE, adjusted
from .qualifying_apart import apart
from .qualifying_effects import Effect, Lost, Qualification, describe_fleet
from .qualifying_pairs import Pair, Rollout
from .qualifying_sides import Change, change_of, side_of, spread_among, total_of
from .runs import Run
from .spread import Prior, Spread, priors
from .stats import CONFIDENCE, Difference
from .verdicts import DEFAULT_TOLERANCE, WORTH_REPORTING, Kind, span_text

# What a device's runs before and after tell.
Sides = tuple[RunComparator, RunComparator]


@dataclass(frozen=True, slots=True)
class Changes:
    """How every device changed on one test, and what is assumed of it."""

    key: Key
    treated: tuple[Change, ...]
    controls: tuple[Change, ...]
    prior: Prior


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
        held, gone = zip(
            *(_split(pairs, sides, key, assumed) for pairs in (rollout.treated, rollout.controls)), strict=True
        )
        if held[0]:
            changes.append(Changes(key, tuple(held[0]), tuple(held[1]), assumed))
        if gone[0]:
            lost.append(_lost(key, held, gone))
    if not changes:
        fleet = describe_fleet(rollout)
        raise BadInput(f"no test was measured on {fleet} both before and after; expected the same tests on both sides")
    among = _among(changes)
    effects = [_effect(one, tolerance, among) for one in changes]
    return Qualification(rollout, tuple(_settle(effects, tolerance)), tolerance, tuple(lost))


def _split(pairs: Sequence[Pair], sides: Mapping[str, Sides], key: Key, prior: Prior) -> tuple[list[Change], list[str]]:
    """The changes of devices that have both sides of a test, and the devices that have a time before alone."""
    held, gone = [], []
    for pair in pairs:
        before, after = sides[pair.device]
        change = change_of(pair, before, after, key, prior)
        if change is not None:
            held.append(change)
        elif before.reference(key) is not None:
            gone.append(pair.device)
    return held, gone


def _lost(key: Key, held: Sequence[Sequence[Change]], gone: Sequence[Sequence[str]]) -> Lost:
    known = [len(changes) + len(devices) for changes, devices in zip(held, gone, strict=True)]
    return Lost(key.label, tuple(gone[0]), known[0], tuple(gone[1]), known[1])


def _among(changes: Sequence[Changes]) -> Prior | None:
    """How the changes of devices differ, over all tests; None where fewer than eight tell."""
    return spread_among(changes[0].prior, [(one.treated, one.controls) for one in changes])


def _known(sides: Sequence[RunComparator]) -> list[Key]:
    """Every key of a test that some side holds a sound measurement of, once."""
    found = {key.identity: key for side in sides for key in side.keys()}  # noqa: SIM118
    return [key for key in found.values() if not key.is_canary]


def _priors(runs: Sequence[Run]) -> Callable[[str], Prior]:
    """What to assume by class of benchmark: what the runs of before tell together, or the starting values."""
    references = [pair for pair in RunComparator(runs).references() if not pair[0].is_canary]
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
    # Welch's: with one part a side it is his.
    total, freedom = total_of(part for side in sides for part in side.parts)
    everyone = [*one.treated, *one.controls]
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
        apart=apart(one.treated, one.controls, everyone, tolerance, among),
        controls_apart=apart(one.controls, one.controls, everyone, tolerance, among),
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
        # Of two devices that disagree nobody knows which one is strange; what lies between them is in the error of red.
        torn = effect.apart.torn or effect.controls_apart.torn
        kind = Kind.REGRESSED if red else Kind.INCONCLUSIVE if torn else effect.kind
        reason = _reason(effect, tolerance, len(effects)) if kind is Kind.INCONCLUSIVE else ""
        settled.append(replace(effect, kind=kind, p_adjusted=p, reason=reason))
    return sorted(settled, key=lambda effect: badness(effect.kind.value, effect.estimate))


def _reason(effect: Effect, tolerance: float, tests: int) -> str:
    """What an open test may be, and how many devices would decide it if neither centre nor spread moved."""
    told = f"may be {span_text(effect.interval)}"
    for side, strange in (("upgraded devices", effect.apart), ("controls", effect.controls_apart)):
        if strange.torn:
            return f"{told}; the {side} disagree, find out why first"
        if strange.outliers:
            return f"{told}; one of the {side} decides, look at it first"
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
