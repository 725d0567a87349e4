"""The offline comparison of two files, by the same verdicts as a live run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..core.entries import Entry
from ..core.errors import BadInput, OtherHardware
from ..core.facts import Gpu
from ..core.keys import Key
from ..core.reasons import ReasonCode, text_reasons
from ..core.records import Measurement
from ..core.rows import Row, badness
from ..core.samples import CANARY, SIBLINGS
from ..core.units import listed
from ..core.verdicts import Idle, Kind, Reference, Subject, Verdict
from ..core.work import Work, rate_suffix
from ..stats.key_results import judge_peak
from ..stats.limits import Limit, Summed, floor_limits, gating_limits, roofline_limit
from ..stats.looks import Looks
from ..stats.outlook import Policy
from ..stats.shared import Shared, Side, hold_shared
from ..stats.spread import Prior, priors
from ..stats.verdicts import changes_between, judge, other_mode, settle
from .comparators import (
    Comparator,
    class_of_key,
    default_tolerance,
    find_reference,
    open_comparator,
    prior_of,
    refuse_both_sides,
    refuse_own_baseline,
)
from .exact import compare_exact, known_by
from .exhausted import lost_since
from .files import nearest
from .picking import is_imported
from .plausible import distrusted
from .rows import compared_row, together_row
from .runs import Run


@dataclass(frozen=True, slots=True)
class Comparison:
    """Rows, worst first; what only the old side knows; the runs; compiled kernels; what was lost for want of memory.

    `unlike` tells whether two different things were timed under some key, which nobody can judge.
    """

    rows: tuple[Row, ...]
    only_old: tuple[str, ...]
    runs: tuple[Run, ...]
    kernels: tuple[Row, ...] = ()
    lost: tuple[Row, ...] = ()
    together: Row | None = None
    unlike: bool = False

    @property
    def everything(self) -> tuple[Row, ...]:
        """All of its rows; what ran out of memory and had a time is a regression."""
        return (
            *self.rows,
            *self.kernels,
            *self.lost,
            *((self.together,) if self.together is not None else ()),
        )


def compare(old: Sequence[Path], new: Sequence[Path], tolerance: float | None = None) -> Comparison:
    """Every measurement and every compiled kernel of `new`, runs or baseline files, against `old`; worst first."""
    before, after = open_comparator(old), open_comparator(new)
    refuse_both_sides(before.runs, after.runs)
    refuse_own_baseline(before, after)
    _refuse_other_hardware(before, after)
    before = before.without_odd_sessions()
    found = [
        _Pair(key, fresh, *find_reference(before, key, _work(after, key)))
        for key, fresh in after.references()
    ]
    tests = [one for one in found if not one.key.is_canary]
    limits = {one.key.identity: _limits(before, after, one.key) for one in tests}
    known_kernels, new_kernels = known_by(before), known_by(after)
    kernels, only_kernels = compare_exact(known_kernels, new_kernels)
    lost = lost_since(before, after, known_kernels, {*new_kernels.kernels, *new_kernels.unfit})
    compared = any(one.reference is not None for one in tests) or any(
        gating for gating, _ in limits.values()
    )
    if not compared and not lost and not any(row.baseline_figures is not None for row in kernels):
        raise BadInput(_why_nothing(before, after))
    settled, shared = _verdicts(before, after, found, limits, tolerance)
    rows = [
        compared_row(one.key, _work(after, one.key), settled[one.key.identity], one.fresh.median_s)
        for one in tests
    ]
    rows += _unfit_rows(before, after, set(settled), tolerance)
    only = [
        *_only_before(before, after, [row.key for row in rows if row.key is not None]),
        *only_kernels,
    ]
    gone = {one.label for one in lost}
    return Comparison(
        rows=tuple(sorted(rows, key=lambda row: badness(row.verdict, row.change))),
        only_old=tuple(label for label in dict.fromkeys(only) if label not in gone),
        runs=(*before.runs, *after.runs),
        kernels=kernels,
        lost=tuple(lost),
        together=together_row(shared.regressed)
        if shared is not None and shared.regressed is not None
        else None,
        unlike=any(
            other_mode(mode, pair.reference) for pair in tests for mode in pair.fresh.achieved
        ),
    )


@dataclass(frozen=True, slots=True)
class _Pair:
    """A measurement of the new side with what it is compared with, or why there is nothing."""

    key: Key
    fresh: Reference
    reference: Reference | None
    why_none: str


def _verdicts(
    before: Comparator,
    after: Comparator,
    found: Sequence[_Pair],
    limits: Mapping[str, tuple[list[Limit], list[Idle]]],
    tolerance: float | None,
) -> tuple[dict[str, Verdict], Shared | None]:
    """The verdicts on the tests among the pairs, each held against the others; and what all tests share."""
    tests = [one for one in found if not one.key.is_canary]
    count = sum(one.reference is not None for one in tests)
    known = [pair for pair in before.references() if not pair[0].is_canary]
    kinds = priors() | {
        kind: prior_of(known, kind) for kind in {class_of_key(key) for key, _ in known}
    }
    policies = {
        pair.key.identity: policy_of(
            pair.key,
            pair.reference,
            kinds[class_of_key(pair.key)],
            count,
            own=after.tolerance(pair.key),
            asked=tolerance,
        )
        for pair in tests
    }
    shared, moved = _shared(
        after, found, {identity: policy.tolerance for identity, policy in policies.items()}
    )
    verdicts = {}
    for one in tests:
        identity = one.key.identity
        reference = moved.get(identity, one.reference)
        modes = (other_mode(mode, reference) for mode in sorted(one.fresh.achieved))
        invalid = next(filter(None, modes), ()) or distrusted(
            one.key, _work(after, one.key), reference
        )
        gating, idle = limits[identity]
        verdicts[identity] = judge(
            after.judged(one.key),
            reference,
            policies[identity],
            subject=_subject(before, after, one, idle),
            peak=None if invalid else judge_peak(one.fresh.peak_bytes, reference, one.key),
            invalid=invalid,
            limits=gating,
            why_none=one.why_none,
        )
    settled = settle(verdicts, max(1, count))
    if shared is not None:
        settled = {
            identity: shared.with_whole_change(verdict) for identity, verdict in settled.items()
        }
    logs = bool(after.runs) and all(map(is_imported, after.runs))
    return {identity: _of_logs(one) if logs else one for identity, one in settled.items()}, shared


_LOGS = {
    ReasonCode.RED_NEEDS_ROUNDS: ReasonCode.RED_NEEDS_LOGS,
    ReasonCode.NEEDS_ROUNDS: ReasonCode.NEEDS_LOGS,
}


def _of_logs(verdict: Verdict) -> Verdict:
    """The verdict on logs of another tool, of which nobody can run further rounds here."""
    reasons = [
        replace(reason, code=_LOGS.get(reason.code, reason.code)) for reason in verdict.reasons
    ]
    return replace(verdict, reasons=tuple(reasons))


def _only_before(before: Comparator, after: Comparator, keys: Sequence[Key]) -> list[str]:
    """What the older side alone has: measurements, and limits for the new side's hardware that speak of nothing.

    A test that was left out meets no limit.
    """
    measured, machines = {key.identity for key in keys}, {key.alone for key in after.hardware()}
    only = [
        before.label(key)
        for key in before.keys()  # noqa: SIM118
        if not key.is_canary and key.identity not in measured
    ]
    limits = [entry for entry in before.entries if entry.gates and entry.kind == "threshold"]
    return only + [
        entry.label
        for entry in limits
        if any(entry.hardware.alone.covers(machine) for machine in machines)
        and not any(entry.matches(key) for key in keys)
    ]


def _subject(before: Comparator, after: Comparator, pair: _Pair, idle: Sequence[Idle]) -> Subject:
    """Return what is known of a measurement before it is compared."""
    key, measured = pair.key, after.measurement(pair.key)
    facts_before = before.environments(key) if pair.reference is not None else ()
    return Subject(
        test_id=measured.test_id if measured is not None else "",
        label=after.label(key),
        name=key.name,
        clock_hz=pair.fresh.clock_hz,
        changed=changes_between(after.environments(key), facts_before),
        idle=tuple(idle),
    )


def _shared(
    after: Comparator, found: Sequence[_Pair], tolerances: Mapping[str, float]
) -> tuple[Shared | None, dict[str, Reference]]:
    """What the tests of one new session share; several sessions at once move each in its own way."""
    sides = {}
    for one in found:
        groups = after.judged(one.key)
        if (
            one.reference is not None
            and len({(group.device, group.started) for group in groups}) == 1
        ):
            medians = tuple(value for group in groups for value in group.medians_s)
            sides[one.key.identity] = Side(
                replace(groups[0], medians_s=medians), one.reference, one.key.is_canary
            )
    tests = [one.key for one in found if one.key.identity in sides and not one.key.is_canary]
    return hold_shared(
        sides,
        [tolerances[key.identity] for key in tests],
        [class_of_key(key) for key in tests],
        Looks(),
    )


def _why_nothing(before: Comparator, after: Comparator) -> str:
    """Why two sides cannot be compared, and what they share all the same: measurements that are not fit for it."""
    unfit = {
        m.key.identity: f"{m.label}: {why}" for side in (before, after) for m, why in side.unfit
    }
    keys = (
        [*side.keys(), *(measurement.key for measurement, _ in side.unfit)]
        for side in (before, after)
    )
    shared = set.intersection(
        *({key.identity for key in mine if not key.is_canary} for mine in keys)
    )
    sides = f"{before.name} and {after.name}"
    if not shared & unfit.keys():
        return f"{sides} share no measurement; expected runs of the same tests"
    told = listed([unfit[identity] for identity in sorted(shared & unfit.keys())], 1, "; ")
    return f"{sides} have no valid measurement in common: {told}"


def _limits(before: Comparator, after: Comparator, key: Key) -> tuple[list[Limit], list[Idle]]:
    """The published limits and floors of a baseline file that speak of a measurement; and what cannot be judged."""
    entries = [entry for entry in before.entries.of(key.benchmark, key.name) if entry.matches(key)]
    return limits_of(
        entries,
        _work(after, key),
        partial(after.summary, key),
        after.measurement(key),
        offline=True,
    )


def _unfit_rows(
    before: Comparator, after: Comparator, known: set[str], tolerance: float | None
) -> list[Row]:
    """What the new run measured but cannot vouch for: shown as INVALID, never left out in silence."""
    rows = {}
    for measurement, why in after.unfit:
        key = measurement.key
        # Siblings and canaries are judged in their own run, against the others there, or not at all.
        if key.identity in known or {SIBLINGS, CANARY} & set(measurement.samples.labels):
            continue
        reference, _ = find_reference(before, key, measurement.work)
        limit = tolerance or default_tolerance(key)
        subject = Subject(measurement.test_id, measurement.label, key.name)
        verdict = Verdict(Kind.INVALID, limit, subject, text_reasons(why), reference=reference)
        rows[key.identity] = compared_row(key, measurement.work, verdict, measurement.median_s)
    return list(rows.values())


def _work(comparator: Comparator, key: Key) -> Work:
    work = comparator.work(key)
    assert work is not None
    return work


def _refuse_other_hardware(before: Comparator, after: Comparator) -> None:
    mine, theirs = after.hardware(), before.hardware()
    # A test's own number of devices and their link tell two tests apart, not two machines.
    known_alone = {key.alone for key in theirs}
    if mine and theirs and not any(key.alone in known_alone for key in mine):
        known = "; ".join(str(key) for key in nearest(mine[0], theirs))
        raise OtherHardware(
            f"{after.name} was measured on {mine[0]}, but {before.name} knows only {known}; "
            "a comparison across hardware would mean nothing"
        )


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
    """The tolerance is the test's own, then its baseline's, then the one asked for, then that of its class."""
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
) -> tuple[list[Limit], list[Idle]]:
    """Published limits, floors and the share of the roofline that was asked for; and what cannot be held here."""
    limits, idle = gating_limits(entries, work, summed)
    if measurement is None:
        return limits, idle
    moving = [entry for entry in entries if not offline or rate_suffix(entry.metric) != "TFLOPS"]
    floors, no_floors = floor_limits(moving, measurement, gpu)
    share = roofline_limit(measurement, min_share) if min_share is not None else None
    return [*limits, *floors, *([share] if share is not None else [])], [*idle, *no_floors]
