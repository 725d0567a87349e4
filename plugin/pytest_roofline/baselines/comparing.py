"""The offline comparison of two files, by the same verdicts as a live run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from ..core.directions import is_own_figure
from ..core.errors import BadInput, OtherHardware
from ..core.keys import Key
from ..core.reasons import ReasonCode, text_reasons
from ..core.rows import Row, badness
from ..core.samples import CANARY, SIBLINGS
from ..core.units import listed
from ..core.verdicts import Idle, Kind, Reference, Subject, Verdict
from ..core.work import Work
from ..stats.analyses import Analyses
from ..stats.key_results import judge_peak
from ..stats.limits import Limit
from ..stats.outlook import Policy
from ..stats.shared import Shared, Side, hold_shared
from ..stats.spread import priors
from ..stats.verdicts import changes_between, judge, other_mode, settle
from .comparators import Comparator, find_reference, open_comparator
from .exact import compare_exact, records_of
from .exhausted import lost_since
from .files import nearest
from .overlap import refuse_both_sides, refuse_own_baseline
from .picking import is_imported
from .plausible import distrust_reasons
from .policies import limits_of, policy_of
from .references import class_of_key, default_tolerance, prior_of
from .rows import compared_row, together_row
from .runs import Run


@dataclass(frozen=True, slots=True)
class Comparison:
    """The result of a comparison.

    Args:
        rows: the measurements of the new side, worst first.
        only_old: labels of measurements, kernels and limits that only the old side has.
        runs: the runs of both sides.
        kernels: rows of the compiled kernels.
        lost: rows of tests that ran out of memory on the new side only.
        together: the row of all tests together; None unless together they are slower.
        unlike: whether some key was timed in different modes on the two sides, so that nobody can judge it.
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
        """Return all of its rows: tests, kernels, lost tests and all tests together."""
        return (
            *self.rows,
            *self.kernels,
            *self.lost,
            *((self.together,) if self.together is not None else ()),
        )


def compare(old: Sequence[Path], new: Sequence[Path], tolerance: float | None = None) -> Comparison:
    """Return the comparison of `new` against `old`, worst first.

    Both are runs or baseline files, with measurements and compiled kernels.
    """
    before, after = _open(old, new)
    pairs = [
        _Pair(key, new_reference, *find_reference(before, key, _work(after, key)))
        for key, new_reference in after.references()
    ]
    tests = [pair for pair in pairs if not pair.key.is_canary]
    limits = {pair.key.identity: _limits(before, after, pair.key) for pair in tests}
    old_kernels, new_kernels = records_of(before), records_of(after)
    kernels, only_kernels = compare_exact(old_kernels, new_kernels)
    lost = lost_since(before, after, old_kernels, {*new_kernels.kernels, *new_kernels.unfit})
    # A time with a reference, a time with a limit, or a kernel with a baseline can be compared.
    is_comparable = (
        any(pair.reference is not None for pair in tests)
        or any(gating for gating, _ in limits.values())
        or any(row.baseline_figures is not None for row in kernels)
    )
    if not is_comparable and not lost:
        raise BadInput(_incomparable_reason(before, after))
    verdicts, shared = _verdicts(before, after, pairs, limits, tolerance)
    rows = [_row(after, pair, verdicts[pair.key.identity]) for pair in tests]
    rows += _unfit_rows(before, after, set(verdicts), tolerance)
    keys = [row.key for row in rows if row.key is not None]
    # A lost result has a row, so it is not listed as well among those that only the old side has.
    lost_labels = {row.label for row in lost}
    only_old = dict.fromkeys([*_only_before(before, after, keys), *only_kernels])
    # The verdict on all tests together, if they are slower together.
    regressed = shared.regressed if shared is not None else None
    return Comparison(
        rows=tuple(sorted(rows, key=lambda row: badness(row.verdict, row.slowdown))),
        only_old=tuple(label for label in only_old if label not in lost_labels),
        runs=(*before.runs, *after.runs),
        kernels=kernels,
        lost=tuple(lost),
        together=together_row(regressed) if regressed is not None else None,
        unlike=any(
            other_mode(mode, pair.reference) for pair in tests for mode in pair.fresh.achieved
        ),
    )


def _open(old: Sequence[Path], new: Sequence[Path]) -> tuple[Comparator, Comparator]:
    """Return both sides, the old one without its odd sessions.

    Raises:
        BadInput: they share a process.
        OtherHardware: they were measured on different hardware.
    """
    before, after = open_comparator(old), open_comparator(new)
    refuse_both_sides(before.runs, after.runs)
    refuse_own_baseline(before, after)
    _refuse_other_hardware(before, after)
    return before.without_odd_sessions(), after


@dataclass(frozen=True, slots=True)
class _Pair:
    """A measurement of the new side, and its reference or why there is none.

    `fresh` holds the new processes in the form of a reference.
    """

    key: Key
    fresh: Reference
    reference: Reference | None
    why_none: str


def _verdicts(
    before: Comparator,
    after: Comparator,
    pairs: Sequence[_Pair],
    limits: Mapping[str, tuple[list[Limit], list[Idle]]],
    tolerance: float | None,
) -> tuple[dict[str, Verdict], Shared | None]:
    """Return the verdicts on the tests, and the change that all of them share.

    `limits` holds for each test the limits that may fail it, and those that cannot apply with the reasons. A change
    that all tests share is subtracted from each before it is judged, and added back for the reader.
    """
    tests = [pair for pair in pairs if not pair.key.is_canary]
    count = sum(pair.reference is not None for pair in tests)
    policies = _policies(before, after, tests, count, tolerance)
    shared, adjusted_references = _shared(
        after, pairs, {identity: policy.tolerance for identity, policy in policies.items()}
    )
    verdicts = {}
    for pair in tests:
        identity = pair.key.identity
        reference = adjusted_references.get(identity, pair.reference)
        verdicts[identity] = _verdict(
            before, after, pair, reference, policies[identity], limits[identity]
        )
    # The chance of a false alarm is shared among the tests that have a reference.
    settled = settle(verdicts, max(1, count))
    if shared is not None:
        settled = {
            identity: shared.with_whole_change(verdict) for identity, verdict in settled.items()
        }
    all_imported = bool(after.runs) and all(map(is_imported, after.runs))
    if all_imported:
        settled = {identity: _with_log_remedies(verdict) for identity, verdict in settled.items()}
    return settled, shared


def _policies(
    before: Comparator,
    after: Comparator,
    tests: Sequence[_Pair],
    comparisons: int,
    tolerance: float | None,
) -> dict[str, Policy]:
    """Return how each test is judged, by the identity of its key.

    A policy has tolerance, prior and chance of error. Priors are estimated from all references of the old side. The
    chance of error is shared among so many `comparisons`; `tolerance` is that of the command line, for tests without
    one.
    """
    references = [(key, reference) for key, reference in before.references() if not key.is_canary]
    priors_by_class = priors() | {
        kind: prior_of(references, kind) for kind in {class_of_key(key) for key, _ in references}
    }
    return {
        pair.key.identity: policy_of(
            pair.key,
            pair.reference,
            priors_by_class[class_of_key(pair.key)],
            comparisons,
            test_tolerance=after.tolerance(pair.key),
            run_tolerance=tolerance,
        )
        for pair in tests
    }


def _verdict(
    before: Comparator,
    after: Comparator,
    pair: _Pair,
    reference: Reference | None,
    policy: Policy,
    limits: tuple[list[Limit], list[Idle]],
) -> Verdict:
    """Return the verdict on a test, whose `reference` is without the shared change."""
    mode_reasons = (other_mode(mode, reference) for mode in sorted(pair.fresh.achieved))
    # The first reason counts: another mode, or a baseline that is impossible.
    invalid = next(filter(None, mode_reasons), ()) or distrust_reasons(
        pair.key, _work(after, pair.key), reference
    )
    gating, idle = limits
    return judge(
        after.judged(pair.key),
        reference,
        policy,
        subject=_subject(before, after, pair, idle),
        peak=None if invalid else judge_peak(pair.fresh.peak_bytes, reference, pair.key),
        invalid=invalid,
        limits=gating,
        why_none=pair.why_none,
    )


def _row(after: Comparator, pair: _Pair, verdict: Verdict) -> Row:
    """Return the row of a test."""
    return compared_row(pair.key, _work(after, pair.key), verdict, pair.fresh.median_s)


# The remedies for logs of another tool: nobody can run further rounds of them here.
_LOGS = {
    ReasonCode.RED_NEEDS_ROUNDS: ReasonCode.RED_NEEDS_LOGS,
    ReasonCode.NEEDS_ROUNDS: ReasonCode.NEEDS_LOGS,
}


def _with_log_remedies(verdict: Verdict) -> Verdict:
    """Return the verdict with remedies that fit logs of another tool."""
    reasons = [
        replace(reason, code=_LOGS.get(reason.code, reason.code)) for reason in verdict.reasons
    ]
    return replace(verdict, reasons=tuple(reasons))


def _only_before(before: Comparator, after: Comparator, keys: Sequence[Key]) -> list[str]:
    """Return the labels that only the older side has.

    These are measurements that the new side lacks, and limits for its hardware that match none of
    its measurements.

    Args:
        keys: of the measurements of the new side.
    """
    measured, machines = {key.identity for key in keys}, {key.alone for key in after.hardware()}
    labels = [
        before.label(key)
        # `keys` returns a list of keys: this is no dictionary.
        for key in before.keys()  # noqa: SIM118
        if not key.is_canary and key.identity not in measured
    ]
    limits = [entry for entry in before.entries if entry.gates and entry.kind == "threshold"]
    return labels + [
        entry.label
        for entry in limits
        if any(entry.hardware.alone.covers(machine) for machine in machines)
        and not any(entry.matches(key) for key in keys)
    ]


def _subject(before: Comparator, after: Comparator, pair: _Pair, idle: Sequence[Idle]) -> Subject:
    """Return the subject of a verdict: test, label, clock and changed facts."""
    key, measurement = pair.key, after.measurement(pair.key)
    facts_before = before.environments(key) if pair.reference is not None else ()
    return Subject(
        test_id=measurement.test_id if measurement is not None else "",
        label=after.label(key),
        name=key.name,
        clock_hz=pair.fresh.clock_hz,
        changed=changes_between(after.environments(key), facts_before),
        idle=tuple(idle),
        metric=key.metric if is_own_figure(key.metric) else "",
    )


def _shared(
    after: Comparator, pairs: Sequence[_Pair], tolerances: Mapping[str, float]
) -> tuple[Shared | None, dict[str, Reference]]:
    """Return the change that tests of the new side share, and adjusted references.

    Tests with several new sessions are left out, since each session shares another change. Each reference is adjusted
    to what it would be in the new session.
    """
    sides = {}
    for pair in pairs:
        groups = after.judged(pair.key)
        session_count = len({(group.device, group.started) for group in groups})
        if pair.reference is not None and session_count == 1:
            medians_s = tuple(median_s for group in groups for median_s in group.medians_s)
            sides[pair.key.identity] = Side(
                # All groups are of one session, so they are joined.
                new=replace(groups[0], medians_s=medians_s),
                reference=pair.reference,
                canary=pair.key.is_canary,
            )
    tests = [pair.key for pair in pairs if pair.key.identity in sides and not pair.key.is_canary]
    return hold_shared(
        sides,
        [tolerances[key.identity] for key in tests],
        [class_of_key(key) for key in tests],
        # Two saved sides are analysed once.
        Analyses(),
    )


def _incomparable_reason(before: Comparator, after: Comparator) -> str:
    """Return why two sides cannot be compared.

    It names measurements that both sides have but that cannot be compared.
    """
    unfit = {
        measurement.key.identity: f"{measurement.label}: {reason}"
        for side in (before, after)
        for measurement, reason in side.unfit
    }
    keys = (
        [*side.keys(), *(measurement.key for measurement, _ in side.unfit)]
        for side in (before, after)
    )
    shared = set.intersection(
        *({key.identity for key in side_keys if not key.is_canary} for side_keys in keys)
    )
    sides = f"{before.name} and {after.name}"
    if not shared & unfit.keys():
        return f"{sides} share no measurement; expected runs of the same tests"
    reasons = listed([unfit[identity] for identity in sorted(shared & unfit.keys())], 1, "; ")
    return f"{sides} have no valid measurement in common: {reasons}"


def _limits(before: Comparator, after: Comparator, key: Key) -> tuple[list[Limit], list[Idle]]:
    """Return the published limits and floors for a measurement.

    They are followed by the limits that cannot be judged, each with a reason.
    """
    entries = [entry for entry in before.entries.of(key.benchmark, key.name) if entry.matches(key)]
    return limits_of(
        entries,
        _work(after, key),
        partial(after.summary, key),
        after.measurement(key),
        offline=True,
    )


def _unfit_rows(
    before: Comparator, after: Comparator, compared: set[str], tolerance: float | None
) -> list[Row]:
    """Return the rows of the new run's unfit measurements.

    They are shown as INVALID, never left out in silence. `compared` holds the identities of keys that have a verdict.
    """
    rows = {}
    for measurement, reason in after.unfit:
        key = measurement.key
        # Siblings are judged within their run, and canaries are not judged.
        if key.identity in compared or {SIBLINGS, CANARY} & set(measurement.samples.labels):
            continue
        reference, _ = find_reference(before, key, measurement.work)
        shown_tolerance = tolerance or default_tolerance(key)
        subject = Subject(measurement.test_id, measurement.label, key.name)
        verdict = Verdict(
            Kind.INVALID, shown_tolerance, subject, text_reasons(reason), reference=reference
        )
        rows[key.identity] = compared_row(key, measurement.work, verdict, measurement.median_s)
    return list(rows.values())


def _work(comparator: Comparator, key: Key) -> Work:
    work = comparator.work(key)
    assert work is not None
    return work


def _refuse_other_hardware(before: Comparator, after: Comparator) -> None:
    """Raise OtherHardware where both sides have no device in common."""
    new_hardware, old_hardware = after.hardware(), before.hardware()
    if not new_hardware or not old_hardware:
        return
    # The number of devices and their link differ between tests of one machine, so `alone` leaves them out.
    old_devices = {key.alone for key in old_hardware}
    if not any(key.alone in old_devices for key in new_hardware):
        first = new_hardware[0]
        names = "; ".join(str(key) for key in nearest(first, old_hardware))
        raise OtherHardware(
            f"{after.name} was measured on {first}, but {before.name} holds only {names}; "
            "expected the same hardware on both sides"
        )
