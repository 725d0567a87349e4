"""The verdict on one measurement: is it slower than its baseline by more than the tolerance, and can that be known?

The statistics are those of `stats` and `spread`, the chances of error those of `looks`. `judge` looks at one test
alone; `settle` then looks at all tests of a run.
"""

import enum
import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from ..core.errors import MOST_TOLERANCE, WIDE_TOLERANCE
from ..core.records import PeakJudgement
from ..core.units import format_percent, format_tolerance
from .breaches import Breach, hold, may_decide, open_reason
from .limits import Limit
from .looks import (
    FALSE_RED,
    FEWEST_RED,
    FEWEST_TESTS,
    MOST_ROUNDS,
    PLAY,
    WORTHWHILE,
    Looks,
    adjusted,
    fewest_red,
    red_at_once,
    spent_p,
)
from .spread import ENOUGH_SESSIONS, Group, Prior, priors, sittings
from .stats import CONFIDENCE, Difference, difference, growth, quantile

# By class of benchmark: what a host's copies scatter by, nobody can judge finer.
DEFAULT_TOLERANCES = {"device": 0.05, "host": 0.15}
DEFAULT_TOLERANCE = DEFAULT_TOLERANCES["device"]
# The smallest slowdown worth reporting, as a share of the tolerance: red must be surely more than this.
WORTH_REPORTING = 0.4
POWER = 0.8
# So many processes are hardly all in a mode that few of the baseline's were in.
ENOUGH_TO_REPEAT = 5
# So many standard errors between the first process and those of its further rounds are heat, or another such effect.
HOT = 2.5
# Fewer standard errors from the tolerance than this, and more processes alone will not tell.
NEAR = 3.0


class Kind(enum.StrEnum):
    """What can be said of a measurement, in the order in which one finding hides another."""

    INVALID = "INVALID"
    NO_BASELINE = "NO BASELINE"
    REGRESSED = "REGRESSED"
    IMPROVED = "IMPROVED"
    PASSED = "PASSED"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class Reference:
    """What a measurement is compared with: the processes of its sessions, and where they come from.

    Args:
        groups: the sessions.
        source: the files, for a person.
        environments: of each session, what may move a number beside the code.
        tolerance: of this entry alone.
        achieved: what was measured in place of what was asked for.
        clock_hz: the median clock of the sessions that know theirs.
        moved: the groups as they would be in the new session, where all tests of it moved together (`shared`); none
            where they did not.
        shift: by how much that makes this test slower, in log seconds.
        peak_bytes: the most memory that a call held; None where that is not known.
    """

    groups: tuple[Group, ...]
    source: str
    environments: tuple[dict[str, str], ...] = ()
    tolerance: float | None = None
    achieved: frozenset[tuple[str, ...]] = frozenset()
    clock_hz: float | None = None
    moved: tuple[Group, ...] = ()
    shift: float = 0.0
    peak_bytes: int | None = None

    @property
    def medians_s(self) -> tuple[float, ...]:
        """Every process's median, in seconds."""
        return tuple(value for group in self.groups for value in group.medians_s)

    @property
    def devices(self) -> int:
        """How many devices stand behind it; those that are not told count as one."""
        return len({group.device for group in self.groups})

    @property
    def median_s(self) -> float:
        """The geometric mean of the processes' medians: the centre of the comparison."""
        return math.exp(math.fsum(math.log(value) for value in self.medians_s) / len(self.medians_s))

    @property
    def behind(self) -> str:
        """`15 processes of 3 sessions on 2 devices`."""
        processes, sessions = len(self.medians_s), len(self.groups)
        text = f"{processes} process{'es' * (processes > 1)} of {sessions} session{'s' * (sessions > 1)}"
        return text + (f" on {self.devices} devices" if self.devices > 1 else "")


@dataclass(frozen=True, slots=True)
class Policy:
    """How strict to be: the tolerance of time, the comparisons of this run, what to assume, when to look."""

    tolerance: float = DEFAULT_TOLERANCE
    comparisons: int = 1
    prior: Prior = field(default_factory=lambda: priors()["device"])
    looks: Looks = field(default_factory=Looks)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, with everything needed to explain it. Differences are of time, in logs; positive is slower.

    Args:
        p: of "no more than the smallest effect worth reporting slower"; `p_spent` is paid for the looks of the run,
            and `p_adjusted` also for its other tests (None until `settle`).
        difference: the statistics behind the estimate: error, degrees of freedom, spreads and where they came from.
        processes: how many new ones stand behind it.
        mde: the minimum detectable effect, as a share of time: found 80 times in 100 at the 1 % level with the
            processes at hand.
        reach: the slowdown, as a share of time, that this run's rule finds 80 times in 100 once its rounds are used.
        slower_processes: of the reference's processes that were compared (the device's own, where there are any), how
            many were faster than the new ones' centre; `compared_processes` is how many those are.
        new_medians_s: of the new processes, in seconds.
        limit: what it was held against in place of a reference; `estimate` is then by how much it lies beyond.
        siblings: how many like it, in the same run, it was held against in place of a reference.
        fewest: how many new processes REGRESSED needs here.
        hot: by how much the further rounds lie above the first process, in log seconds, where chance is no excuse and
            the reference holds first processes alone; else 0.
        futile: whether more processes of this run would hardly decide, since what is open is the baseline's own error.
        peak: the verdict on the memory, beside this one on the time; None where no peak was taken or known.
    """

    kind: Kind
    tolerance: float
    reason: str = ""
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    p_spent: float | None = None
    p_adjusted: float | None = None
    reference: Reference | None = None
    difference: Difference | None = None
    processes: int = 0
    mde: float | None = None
    reach: float | None = None
    slower_processes: int = 0
    compared_processes: int = 0
    new_medians_s: tuple[float, ...] = ()
    limit: Limit | None = None
    siblings: int = 0
    fewest: int = 1
    hot: float = 0.0
    futile: bool = False
    peak: PeakJudgement | None = None

    @property
    def overall(self) -> Kind:
        """The word for the measurement: that on its time, unless that on its memory is worse."""
        if self.peak is not None and self.peak.outweighs and self.kind is not Kind.REGRESSED:
            return Kind(self.peak.verdict)
        return self.kind

    @property
    def change(self) -> float | None:
        """The difference as a share of the reference's time: +0.25 takes a quarter longer."""
        return None if self.estimate is None else growth(self.estimate)

    @property
    def decided(self) -> bool:
        """Whether more processes would be idle."""
        return self.kind not in (Kind.INCONCLUSIVE, Kind.INVALID)

    @property
    def looks_slow(self) -> bool:
        """Whether the estimate lies beyond the tolerance."""
        return self.estimate is not None and self.estimate > math.log1p(self.tolerance)

    @property
    def sitting(self) -> bool:
        """Whether sessions of the reference were recorded in one sitting, or it is of a single one."""
        groups = self.reference.groups if self.reference is not None else ()
        return len(groups) == 1 or len(sittings(groups)) < len(groups)

    @property
    def may_be_red(self) -> bool:
        """Whether the other tests of the run may still turn it red, as it is slower than the tolerance."""
        small = self.p_spent is not None and self.p_spent <= FALSE_RED
        return self.kind is Kind.INCONCLUSIVE and self.looks_slow and small


def judge(
    new: Sequence[Group],
    reference: Reference | None,
    policy: Policy,
    *,
    invalid: str = "",
    limits: Sequence[Limit] = (),
    why_none: str = "",
) -> Verdict:
    """The verdict on new processes.

    Args:
        new: their medians, by session.
        reference: what to compare with; None gives NO BASELINE, unless a limit speaks.
        invalid: why the measurement cannot be trusted, `` if it can.
        limits: that apply, whatever the reference says.
        why_none: why there is no reference.
    """
    count = sum(len(group.medians_s) for group in new)
    if invalid:
        return Verdict(Kind.INVALID, policy.tolerance, reason=invalid, reference=reference, processes=count)
    # Where more processes follow only for what looks slower than a reference, a limit is judged by what there is.
    looks = Looks(1) if policy.looks.slow_only else policy.looks
    held = hold(limits, new, policy.prior, looks)
    beyond = [_beyond(breach, policy, looks) for breach in held if breach.estimate > 0]
    if beyond and beyond[0].kind is Kind.REGRESSED:
        return beyond[0]
    if reference is not None:
        found = _compare(new, reference, policy)
        # As fast as ever is not fast enough, where a published limit may be missed.
        return beyond[0] if beyond and found.kind in (Kind.PASSED, Kind.IMPROVED) else found
    if beyond:
        return beyond[0]
    if held:
        # Of several that all hold, the one that is most easily missed.
        nearest = held[0]
        each = f" on any of {nearest.devices} devices" if nearest.devices > 1 else ""
        reason = f"not below {nearest.limit.told}{each}" + (f"; {why_none}" if why_none else "")
        return Verdict(Kind.PASSED, policy.tolerance, reason=reason, limit=nearest.limit, processes=count)
    return Verdict(Kind.NO_BASELINE, policy.tolerance, reason=why_none, processes=count)


def _beyond(breach: Breach, policy: Policy, looks: Looks) -> Verdict:
    if breach.sure:
        kind, reason = Kind.REGRESSED, f"{breach.limit.breach(breach.estimate)}, {breach.behind}"
    else:
        kind, reason = Kind.INCONCLUSIVE, open_reason(breach, looks)
    return Verdict(
        kind=kind,
        tolerance=policy.tolerance,
        reason=reason,
        estimate=breach.estimate,
        interval=breach.interval,
        processes=breach.processes,
        limit=breach.limit,
        futile=kind is Kind.INCONCLUSIVE and not may_decide(breach, looks),
    )


def _compare(new: Sequence[Group], reference: Reference, policy: Policy) -> Verdict:
    # The same processes are the same evidence, whether they came as rounds of one run or as several runs: one session.
    new = _one_session(new)
    found = difference(new, reference.moved or reference.groups, policy.prior)
    limit, worthy = math.log1p(policy.tolerance), math.log1p(WORTH_REPORTING * policy.tolerance)
    count, looks, worth = sum(len(group.medians_s) for group in new), policy.looks, found.worth
    p = found.p_slower_than(worthy)
    centre = fmean(value for group in new for value in group.logs)
    # As in the comparison itself: the device's own processes, where the reference holds some.
    own = _own(reference, {group.device for group in new})
    known = [value for group in own for value in group.logs]
    fewest = fewest_red(len(known), policy.prior.strange, looks.most)
    # What the baseline itself has shown once, a few processes may show again by chance: processes have modes.
    unseen = centre - worthy > max(known) or count >= ENOUGH_TO_REPEAT
    hot = _hot(new, own, found)
    spent = spent_p(p, looks.red_share(count, worth, fewest) if unseen and not hot else 0.0)
    if reference.shift and found.estimate + reference.shift <= worthy:
        # Slower than the others today, and no slower than it was.
        spent = 1.0
    if found.estimate > limit and red_at_once(spent, policy.comparisons):
        kind = Kind.REGRESSED
    elif found.estimate + found.bound(1 - looks.improved_level(count, worth)) < -limit:
        kind = Kind.IMPROVED
    elif found.estimate + found.bound(1 - looks.pass_level(count, worth)) < limit and (
        found.estimate + found.bound(1 - looks.far_level(count, worth)) < math.log1p(2 * policy.tolerance)
    ):
        kind = Kind.PASSED
    else:
        kind = Kind.INCONCLUSIVE
    verdict = Verdict(
        kind=kind,
        tolerance=policy.tolerance,
        estimate=found.estimate,
        interval=found.interval(CONFIDENCE),
        p=p,
        p_spent=spent,
        reference=reference,
        difference=found,
        processes=count,
        mde=growth((quantile(CONFIDENCE, found.freedom) + quantile(POWER, found.freedom)) * found.error),
        reach=_reach(found, policy, count, fewest),
        slower_processes=sum(centre > value for value in known),
        compared_processes=len(known),
        new_medians_s=tuple(value for group in new for value in group.medians_s),
        fewest=fewest,
        hot=hot,
    )
    if kind is not Kind.INCONCLUSIVE:
        return verdict
    return replace(
        verdict, reason=_what_would_decide(verdict, policy), futile=not _may_decide(found, policy, count, fewest)
    )


def _own(reference: Reference, devices: Collection[str]) -> Sequence[Group]:
    groups = reference.moved or reference.groups
    return [group for group in groups if group.device in devices] or groups


def default_looks(reference: Reference | None, device: str, prior: Prior) -> Looks:
    """The plan of a run that asks for no number of rounds: more processes for what looks slow, as many as red needs.

    Args:
        reference: what the test is compared with; None where nothing is known of it.
        device: that the run measures on.
        prior: of the test's class.
    """
    if reference is None:
        return Looks(1)
    known = sum(len(group.medians_s) for group in _own(reference, {device}))
    enough = fewest_red(known, prior.strange, FEWEST_RED) <= FEWEST_RED
    return Looks(FEWEST_RED if enough else MOST_ROUNDS, slow_only=True)


def _one_session(new: Sequence[Group]) -> tuple[Group, ...]:
    """The new processes of each device as one session, which claims nothing of how sessions differ."""
    devices = dict.fromkeys(group.device for group in new)
    return tuple(
        Group(tuple(value for group in new if group.device == device for value in group.medians_s), device)
        for device in devices
    )


def _hot(new: Sequence[Group], known: Sequence[Group], found: Difference) -> float:
    """By how much further rounds lie above the first process, where the reference holds first processes alone."""
    if len(new) > 1 or len(new[0].medians_s) < 2 or any(len(group.medians_s) > 1 for group in known):
        return 0.0
    first, *later = new[0].logs
    above = fmean(later) - first
    return above if above > HOT * found.process.value * math.sqrt(1 + 1 / len(later)) else 0.0


def settle(verdicts: Mapping[str, Verdict], comparisons: int) -> dict[str, Verdict]:
    """The verdicts of a run, each held against all others: p adjusted, and what that turns red.

    Args:
        verdicts: by any name.
        comparisons: how many tests were planned; those without a verdict count as unchanged.
    """
    spent = {name: verdict.p_spent for name, verdict in verdicts.items() if verdict.p_spent is not None}
    corrected = dict(zip(spent, adjusted(list(spent.values()), comparisons), strict=True)) if spent else {}
    settled = {}
    for name, verdict in verdicts.items():
        p = corrected.get(name)
        red = p is not None and p <= FALSE_RED and verdict.may_be_red
        kind, reason = (Kind.REGRESSED, "") if red else (verdict.kind, verdict.reason)
        settled[name] = replace(verdict, kind=kind, reason=reason, p_adjusted=p)
    return settled


def _error_at(found: Difference, count: int, processes: int) -> float:
    """The standard error with so many new processes in place of `count`."""
    variance = found.error**2 + found.process.value**2 * (1 / processes - 1 / count)
    return math.sqrt(max(variance, 1e-12))


def _reach(found: Difference, policy: Policy, count: int, fewest: int) -> float | None:
    """The slowdown that is found 80 times in 100 after all rounds: beyond the tolerance, and surely worth reporting.

    None where red needs more processes than the run may take.
    """
    most = count if policy.looks.ended else max(count, policy.looks.most)
    share = policy.looks.red_share(most, found.worth, fewest)
    if not share:
        return None
    error, freedom = _foreseen(found, policy.prior, count, most)
    level = FALSE_RED * share / max(policy.comparisons, FEWEST_TESTS)
    least = math.log1p(WORTH_REPORTING * policy.tolerance) + quantile(1 - level, freedom) * error
    return growth(max(math.log1p(policy.tolerance), least) + quantile(POWER, freedom) * error)


def _foreseen(found: Difference, prior: Prior, count: int, processes: int) -> tuple[float, float]:
    """The standard error with so many new processes, and its degrees of freedom (Satterthwaite's).

    More processes tell of the spread between processes alone. Where one-process sessions show what lies between
    processes and sessions in one sum, a quarter of it is taken to lie between sessions.
    """
    whole, more = found.process.value**2, processes - count
    rest, freedom = found.error**2 - whole / count, found.process.freedom + more
    apart = not math.isinf(found.session.freedom)
    if more and not apart:
        between = min(whole, max(prior.session**2, whole / 4))
        rest, whole, freedom = rest + between, whole - between, more
    new, rest = whole / processes, max(rest, 1e-12)
    known = found.freedom if apart or not more else found.process.freedom
    return math.sqrt(new + rest), (new + rest) ** 2 / (new**2 / freedom + rest**2 / known)


def _may_decide(found: Difference, policy: Policy, count: int, fewest: int) -> bool:
    """Whether the last look could still be green or red, if the processes to come moved the centre by two errors.

    Stopping where it could not costs hardly any power and no chance of error: it can only leave a test undecided.
    """
    looks, most, worth = policy.looks, policy.looks.most, found.worth
    if count >= most or looks.ended:
        return False
    limit = math.log1p(policy.tolerance)
    if looks.slow_only and found.estimate <= limit:
        return False
    error, freedom = _error_at(found, count, most), found.freedom + (most - count)
    play = PLAY * found.process.value * math.sqrt(1 / count - 1 / most)
    green = found.estimate - play + quantile(1 - looks.pass_level(most, worth), freedom) * error < limit
    level = FALSE_RED * looks.red_share(most, worth, fewest)
    surely = found.estimate + play - math.log1p(WORTH_REPORTING * policy.tolerance)
    return green or (level > 0 and found.estimate + play > limit and surely > quantile(1 - level, freedom) * error)


def _what_would_decide(verdict: Verdict, policy: Policy) -> str:
    found, reference, count = verdict.difference, verdict.reference, verdict.processes
    assert found is not None
    assert reference is not None
    low, high = (format_percent(growth(bound)).removesuffix(" %") for bound in found.interval(CONFIDENCE))
    spread = format_tolerance(round(found.process.value, 3))
    processes = f"{count} process{'es' * (count > 1)} ({spread} apart: {found.process.origin})"
    said = f"may be {low} to {high} % after {processes}"
    slower = format_tolerance(round(growth(found.estimate), 3))
    if verdict.hot and verdict.looks_slow:
        hot = format_tolerance(round(growth(verdict.hot), 3))
        return (
            f"looks {slower} slower, but its further rounds are {hot} slower than its first process, and the baseline "
            "holds first processes alone: heat, or another trace of the rounds before; record the baseline with "
            f"--roofline-rounds={ENOUGH_TO_REPEAT}; {said}"
        )
    if verdict.looks_slow and count < verdict.fewest:
        needed = f"red needs {verdict.fewest} processes against a baseline of {len(reference.medians_s)}"
        return f"looks {slower} slower; --roofline-rounds=auto decides: {needed}; {said}"
    return f"{said}; {_remedy(found, policy, verdict)}"


def _remedy(found: Difference, policy: Policy, verdict: Verdict) -> str:
    """What would decide: processes while they help, else a better baseline; and the tolerance that could be judged."""
    reference, count = verdict.reference, verdict.processes
    assert reference is not None
    most = max(count, policy.looks.most)
    level = policy.looks.pass_level(most, found.worth)
    widest = found.estimate + quantile(1 - level, found.freedom) * _error_at(found, count, most)
    percent = max(math.ceil(growth(widest) * 100), math.floor(policy.tolerance * 100) + 1)
    wider = (
        ""
        if verdict.looks_slow or percent > 100 * MOST_TOLERANCE
        else f", or --roofline-tolerance={percent}%{'!' * (percent > 100 * WIDE_TOLERANCE)}"
    )
    for processes in WORTHWHILE:
        if processes > count and _would_decide(found, policy, verdict, processes):
            how = "auto" if processes <= MOST_ROUNDS else f"{processes}"
            return f"about {processes} processes would decide where the centre stays (--roofline-rounds={how}){wider}"
    if found.device is not None:
        return f"the baseline knows other devices only ({found.device.value:.1%} apart), record this one{wider}"
    days = len(sittings(reference.groups))
    if days < ENOUGH_SESSIONS:
        sat = f"{reference.behind}{' in one sitting' * (days == 1)}"
        return f"the baseline is of {sat}, record {ENOUGH_SESSIONS} sessions or more, each on another day{wider}"
    if _error_at(found, count, WORTHWHILE[-1]) * NEAR > abs(found.estimate - math.log1p(policy.tolerance)):
        return f"it lies too near the tolerance for the baseline of {reference.behind}, record more of them{wider}"
    return f"more sessions and processes behind the baseline would decide (there are {reference.behind}){wider}"


def _would_decide(found: Difference, policy: Policy, verdict: Verdict, processes: int) -> bool:
    """Whether so many processes would be green or red, if neither the centre nor the spreads moved."""
    looks = Looks(max(MOST_ROUNDS, policy.looks.most, processes))
    count = verdict.processes
    error, freedom = _error_at(found, count, processes), found.freedom + (processes - count)
    limit = math.log1p(policy.tolerance)
    if found.estimate + quantile(1 - looks.pass_level(processes, found.worth), freedom) * error < limit:
        return True
    share = looks.red_share(processes, found.worth, verdict.fewest)
    level = FALSE_RED * share / max(policy.comparisons, FEWEST_TESTS)
    surely = found.estimate - math.log1p(WORTH_REPORTING * policy.tolerance)
    return share > 0 and found.estimate > limit and surely > quantile(1 - level, freedom) * error


def other_mode(achieved: tuple[str, ...], reference: Reference | None) -> str:
    """Why a number cannot be held against its reference: one was bound by the host, or stayed in a cache; else ``."""
    if reference is None or not reference.achieved or reference.achieved == {achieved}:
        return ""
    before = " and ".join(sorted(_mode(known) for known in reference.achieved))
    return (
        f"this is {_mode(achieved)}, the baseline {before}: two different things were timed; find out why it changed, "
        "or record the baseline anew"
    )


_MODES = {"graph": "timed by replaying a graph"}


def _mode(achieved: tuple[str, ...]) -> str:
    words = (_MODES.get(label, label.replace("_", "-")) for label in achieved)
    return ", ".join(words) or "timed as asked"


def changed_environment(now: dict[str, str], before: Sequence[dict[str, str]]) -> list[str]:
    """What differs from every recorded environment: `driver 550.54 → 570.86`."""
    changes = []
    for name, value in now.items():
        old = sorted({facts[name] for facts in before if name in facts})
        if old and value not in old:
            changes.append(f"{name} {', '.join(old)} → {value}")
    return changes


def interval_text(verdict: Verdict) -> str:
    """The interval as a person reads it: `+24.2 … +25.9 %`."""
    assert verdict.interval is not None
    return span_text(verdict.interval)


def span_text(interval: tuple[float, float]) -> str:
    """An interval of a difference in logs as a person reads it."""
    low, high = (format_percent(growth(bound)) for bound in interval)
    return f"{low.removesuffix(' %')} … {high}"
