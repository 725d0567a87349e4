"""The verdict on one measurement: is it slower than its baseline by more than the tolerance, and can that be known?

The statistics are those of `stats` and `spread`, the chances of error those of `analyses`. `judge` judges one test
alone; `settle` then judges all tests of a run.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from statistics import fmean

from ..core.facts import fact_text
from ..core.reasons import Reason, ReasonCode, text_reasons
from ..core.units import format_percent
from ..core.verdicts import (
    UNNAMED,
    Difference,
    ExactVerdict,
    Group,
    Kind,
    Reference,
    Subject,
    Verdict,
)
from .analyses import (
    ENOUGH_KNOWN,
    FALSE_RED,
    FEWEST_TESTS,
    FIRST_LEVELS,
    MOST_ROUNDS,
    SECOND_ANALYSIS,
    SUGGESTED_COUNTS,
    Analyses,
    adjusted_p,
    fewest_red,
    red_at_once,
)
from .breaches import Breach, find_breaches, may_decide, open_reasons
from .limits import Limit
from .outlook import WORTH_REPORTING, Outlook, Policy, detectable_effect
from .spread import ENOUGH_SESSIONS, Prior, join_days, within
from .stats import CONFIDENCE, bound_of, difference, growth, interval_of, p_slower_than

# Further rounds that are slower than the first process by so many standard errors show heat, or a similar effect.
HOT = 2.5


def may_be_red(verdict: Verdict) -> bool:
    """Return True where the p of the other tests may turn it red.

    It is slower than the tolerance, is not decided yet, and has a small p of its own.
    """
    small = verdict.p_spent is not None and verdict.p_spent <= FALSE_RED
    return verdict.kind is Kind.INCONCLUSIVE and verdict.looks_slow and small


def judge(
    new: Sequence[Group],
    reference: Reference | None,
    policy: Policy,
    *,
    subject: Subject = UNNAMED,
    peak: ExactVerdict | None = None,
    invalid: tuple[Reason, ...] = (),
    limits: Sequence[Limit] = (),
    why_none: str = "",
) -> Verdict:
    """Return the verdict on new processes.

    Args:
        subject: what they measured; `peak` is the verdict on its memory.
        invalid: why their times cannot be trusted; empty where they can.
        limits: the limits that they are compared with beside the reference. A limit that is surely missed decides; one
            that may be missed decides only where the comparison with the reference is green, or there is none.
        why_none: why there is no reference.
    """
    # The verdict of processes that are compared with nothing.
    uncompared = Verdict(
        Kind.NO_BASELINE,
        policy.tolerance,
        subject,
        reasons=text_reasons(why_none),
        processes=_process_count(new),
        peak=peak,
    )
    if invalid:
        return replace(uncompared, kind=Kind.INVALID, reasons=invalid, reference=reference)
    # If more processes follow only for what looks slower than a reference, none follow for a limit.
    analyses = Analyses(1) if policy.analyses.slow_only else policy.analyses
    # The worst breach comes first.
    breaches = find_breaches(limits, new, policy.prior, analyses)
    missed = next((breach for breach in breaches if breach.estimate > 0), None)
    by_limit = (
        _judge_breach(missed, policy, analyses, subject, peak) if missed is not None else None
    )
    if by_limit is not None and by_limit.kind is Kind.REGRESSED:
        return by_limit
    if reference is not None:
        compared = _compare(new, reference, policy, subject, peak)
        # A test that is as fast as ever is not fast enough where it may miss a limit; a red or open one stays so.
        is_green = compared.kind in (Kind.PASSED, Kind.IMPROVED)
        return by_limit if by_limit is not None and is_green else compared
    if by_limit is not None:
        return by_limit
    return _name_kept_limit(uncompared, breaches[0]) if breaches else uncompared


def _process_count(groups: Sequence[Group]) -> int:
    """Return the number of processes of some sessions."""
    return sum(len(group.medians_s) for group in groups)


def _name_kept_limit(verdict: Verdict, nearest: Breach) -> Verdict:
    """Return NO_BASELINE as PASSED: all limits are kept, and the nearest one is named."""
    reason = nearest.reason(ReasonCode.WITHIN_LIMIT)
    return replace(
        verdict,
        kind=Kind.PASSED,
        reasons=(reason, *verdict.reasons),
        limit=nearest.limit.time_limit,
    )


def _judge_breach(
    breach: Breach, policy: Policy, analyses: Analyses, subject: Subject, peak: ExactVerdict | None
) -> Verdict:
    """Return REGRESSED for a sure breach, else INCONCLUSIVE."""
    kind, reasons = Kind.INCONCLUSIVE, open_reasons(breach, analyses)
    if breach.sure:
        kind, reasons = Kind.REGRESSED, (breach.reason(ReasonCode.BEYOND_LIMIT),)
    return Verdict(
        kind=kind,
        tolerance=policy.tolerance,
        subject=subject,
        reasons=reasons,
        estimate=breach.estimate,
        interval=breach.interval,
        processes=breach.processes,
        limit=breach.limit.time_limit,
        futile=kind is Kind.INCONCLUSIVE and not may_decide(breach, analyses),
        peak=peak,
    )


def _compare(
    new: Sequence[Group],
    reference: Reference,
    policy: Policy,
    subject: Subject,
    peak: ExactVerdict | None,
) -> Verdict:
    """Return the verdict on new processes against a reference."""
    # Where tests share a change, `moved` holds the sessions of the reference without it.
    change = difference(new, reference.moved or reference.groups, policy.prior)
    # As in `difference`: only the processes of the same device, where the reference holds some.
    device_groups = reference.on({group.device for group in new})
    reference_logs = _logs(device_groups)
    # Unseen times lie beyond all of these by more than is worth reporting, so they are no slow mode of the baseline.
    least = math.log1p(WORTH_REPORTING * policy.tolerance)
    unseen = fmean(_logs(new)) - least > max(reference_logs)
    outlook = Outlook(
        change,
        reference,
        policy,
        count=_process_count(new),
        processes_for_red=fewest_red(len(reference_logs), policy.prior.strange),
        unseen=unseen,
        hot=_heat(new, device_groups, change),
    )
    return _verdict_of(outlook, new, reference_logs, subject, peak)


def _logs(groups: Sequence[Group]) -> list[float]:
    """Return the log seconds of all processes of some sessions."""
    return [log_s for group in groups for log_s in group.logs]


def _verdict_of(
    outlook: Outlook,
    new: Sequence[Group],
    reference_logs: Sequence[float],
    subject: Subject,
    peak: ExactVerdict | None,
) -> Verdict:
    """Return the verdict that follows from the outlook of a comparison.

    `reference_logs` are the log seconds of the reference's processes that are compared with the new ones.
    """
    change, centre = outlook.difference, fmean(_logs(new))
    p = p_slower_than(change, outlook.worthy)
    p_spent = _p_spent(p, outlook)
    kind = _kind_compared(p_spent, outlook)
    is_open = kind is Kind.INCONCLUSIVE
    return Verdict(
        kind=kind,
        tolerance=outlook.policy.tolerance,
        subject=subject,
        reasons=outlook.reasons if is_open else (),
        estimate=change.estimate,
        interval=interval_of(change, CONFIDENCE),
        p=p,
        p_spent=p_spent,
        reference=outlook.reference,
        difference=change,
        processes=outlook.count,
        mde=detectable_effect(change),
        reach=outlook.reach,
        slower_processes=sum(centre > log_s for log_s in reference_logs),
        compared_processes=len(reference_logs),
        new_medians_s=tuple(median_s for group in new for median_s in group.medians_s),
        processes_for_red=outlook.processes_for_red,
        hot=outlook.hot,
        futile=is_open and not outlook.may_decide,
        peak=peak,
    )


def _p_spent(p: float, outlook: Outlook) -> float:
    """Return the p with which this analysis counts; 1 where it may not be red.

    The chance of error of a test is shared equally among its analyses that may be red, so p is multiplied by their
    number (Bonferroni).
    """
    analyses, estimate = outlook.policy.analyses, outlook.difference.estimate
    shift = outlook.reference.shift
    red_is_due = analyses.due(outlook.count) and outlook.count >= outlook.needed and not outlook.hot
    # The test is slower than the others in this session, but no slower than it was itself.
    is_no_slower_itself = bool(shift) and estimate + shift <= outlook.worthy
    if not red_is_due or is_no_slower_itself:
        return 1.0
    return min(1.0, p * analyses.red_analyses(outlook.processes_for_red))


def _kind_compared(p_spent: float, outlook: Outlook) -> Kind:
    """Return the verdict of a comparison with a reference; INCONCLUSIVE if no analysis is due."""
    policy, change, count = outlook.policy, outlook.difference, outlook.count
    if outlook.looks_slow and red_at_once(p_spent, policy.comparisons):
        return Kind.REGRESSED
    if not policy.analyses.due(count):
        return Kind.INCONCLUSIVE
    levels = policy.analyses.levels(count)
    return kind_unless_red(change.estimate, partial(bound_of, change), policy.tolerance, levels)


def kind_unless_red(
    estimate: float,
    bound: Callable[[float], float],
    tolerance: float,
    levels: tuple[float, float, float],
) -> Kind:
    """Return IMPROVED, PASSED or INCONCLUSIVE.

    Args:
        estimate: of the difference, in log seconds.
        bound: the distance of its one-sided bound at a confidence.
        levels: the chances of a false IMPROVED, of PASSED for a test as slow as its tolerance, and of PASSED for one
            twice as slow.
    """
    # The upper bounds that decide about IMPROVED, and about PASSED at the tolerance and at twice the tolerance.
    improved, passed, far = (estimate + bound(1 - level) for level in levels)
    if improved < -math.log1p(tolerance):
        return Kind.IMPROVED
    # The second bound matters where the spread is many times the tolerance: much slower tests may pass the first then.
    is_near = passed < math.log1p(tolerance) and far < math.log1p(2 * tolerance)
    return Kind.PASSED if is_near else Kind.INCONCLUSIVE


def judge_once(
    difference: Difference,
    tolerance: float,
    subject: Subject = UNNAMED,
    *,
    processes: int = 0,
    reference: Reference | None = None,
) -> Verdict:
    """Return any verdict but REGRESSED on a difference, where a test is analysed only once.

    REGRESSED follows from `settle`, as it needs the p of all tests.
    """
    p = p_slower_than(difference, math.log1p(WORTH_REPORTING * tolerance))
    return Verdict(
        kind=kind_unless_red(
            difference.estimate, partial(bound_of, difference), tolerance, FIRST_LEVELS
        ),
        tolerance=tolerance,
        subject=subject,
        estimate=difference.estimate,
        interval=interval_of(difference, CONFIDENCE),
        p=p,
        p_spent=p,
        reference=reference,
        difference=difference,
        processes=processes,
    )


def would_decide(verdict: Verdict, now: int, tests: int) -> int | None:
    """Return the number of processes or pairs that would decide, or None.

    They take the place of the present number, `now`; neither centre nor spread changes. None where
    more than a hundred would be needed.
    """
    change, tolerance = verdict.difference, verdict.tolerance
    assert change is not None
    larger_counts = [count for count in SUGGESTED_COUNTS if count > now]
    for count in larger_counts:
        # More processes never tell less of the spread than the present ones do.
        freedom = max(count - 1.0, change.degrees)
        foreseen_change = replace(
            change, error=change.error * math.sqrt(now / count), freedom=freedom
        )
        p = p_slower_than(foreseen_change, math.log1p(WORTH_REPORTING * tolerance))
        is_red = verdict.looks_slow and p < FALSE_RED / max(tests, FEWEST_TESTS)
        kind_if_not_red = judge_once(foreseen_change, tolerance).kind
        if is_red or kind_if_not_red is not Kind.INCONCLUSIVE:
            return count
    return None


def default_analyses(reference: Reference | None, device: str, prior: Prior) -> Analyses:
    """Return the plan of interim analyses where the user sets no number of rounds.

    It takes as many as red needs, and only for a test that looks slow.
    """
    if reference is None:
        return Analyses(1)
    groups = reference.on({device})
    processes = sum(len(group.medians_s) for group in groups)
    needed = fewest_red(processes, prior.strange)
    # A few processes may all be in one mode, and a few days may not show the other modes.
    is_sure = processes >= ENOUGH_KNOWN and not _few_days(reference.groups)
    return Analyses(
        SECOND_ANALYSIS if is_sure and needed <= SECOND_ANALYSIS else MOST_ROUNDS, slow_only=True
    )


def _few_days(groups: Sequence[Group]) -> bool:
    """Return True where sessions span fewer than three days.

    Two days of one process each are not called few: their spread includes that between sessions.
    """
    days = join_days(groups)
    _, freedom_within = within(days)
    return len(days) < ENOUGH_SESSIONS and (len(days) == 1 or freedom_within > 0)


def _heat(new: Sequence[Group], reference: Sequence[Group], change: Difference) -> float:
    """Return the log seconds by which further rounds are slower than the first.

    It is 0 where that may be chance. It is also 0 where a session of the reference holds further
    rounds too, since heat slows both sides then.
    """
    session, *further_sessions = new
    reference_has_further_rounds = any(len(group.medians_s) > 1 for group in reference)
    if further_sessions or len(session.medians_s) < 2 or reference_has_further_rounds:
        return 0.0
    first, *later = session.logs
    above = fmean(later) - first
    return above if above > HOT * change.process.value * math.sqrt(1 + 1 / len(later)) else 0.0


def settle(verdicts: Mapping[str, Verdict], comparisons: int) -> dict[str, Verdict]:
    """Return the verdicts of a run, each with an adjusted p, which allows for the number of tests.

    A test that may be red is REGRESSED where its adjusted p is small enough. `comparisons` is the number of tests.
    """
    p_spent = {
        name: verdict.p_spent for name, verdict in verdicts.items() if verdict.p_spent is not None
    }
    adjusted = adjusted_p(list(p_spent.values()), comparisons) if p_spent else []
    adjusted_by_name = dict(zip(p_spent, adjusted, strict=True))
    settled = {}
    for name, verdict in verdicts.items():
        p = adjusted_by_name.get(name)
        is_red = p is not None and p <= FALSE_RED and may_be_red(verdict)
        kind, reasons = (Kind.REGRESSED, ()) if is_red else (verdict.kind, verdict.reasons)
        settled[name] = replace(verdict, kind=kind, reasons=reasons, p_adjusted=p)
    return settled


def other_mode(achieved: tuple[str, ...], reference: Reference | None) -> tuple[Reason, ...]:
    """Return why a time cannot be compared with its reference; empty where it can.

    `achieved` is the mode in which the new process was timed. The modes differ if, for instance, only
    one of them was bound by the host or stayed in a cache.
    """
    # No mode was recorded, or all processes of the reference were timed in this one.
    if reference is None or not reference.achieved or reference.achieved == (achieved,):
        return ()
    return (Reason(ReasonCode.OTHER_MODE, texts={"mode": ",".join(achieved)}),)


def changed_environment(now: dict[str, str], before: Sequence[dict[str, str]]) -> list[str]:
    """Return the facts that differ from every recorded environment.

    They read `driver 550.54 → 570.86`, `$NCCL_ALGO unset → Ring`. Of facts that only `before` has,
    environment variables count: these were unset since, while another fact may just not be recorded.
    """
    changes = []
    variables_before = (name for facts in before for name in facts if name.startswith("$"))
    for name in dict.fromkeys([*now, *variables_before]):
        value = fact_text(now, name)
        old = {fact_text(facts, name) for facts in before} - {"unknown"}
        if old and value not in (*old, "unknown"):
            changes.append(f"{name} {', '.join(sorted(old))} → {value}")
    return changes


def changes_between(
    now: Iterable[Mapping[str, str]], before: Sequence[dict[str, str]]
) -> tuple[str, ...]:
    """Return the changes between new and recorded environments, once each."""
    changes = (change for facts in now for change in changed_environment(dict(facts), before))
    return tuple(dict.fromkeys(changes))


def span_text(interval: tuple[float, float]) -> str:
    """Return an interval of a difference in logs as text."""
    low, high = (format_percent(growth(bound)) for bound in interval)
    return f"{low.removesuffix(' %')} … {high}"
