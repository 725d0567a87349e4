"""The verdict on one measurement: is it slower than its baseline by more than the tolerance, and can that be known?

The simple form: one-sided t over the reference's processes, an equal share of the false-alarm chance for every
comparison of the run. It sits behind `judge`, whose callers do not know the statistics.
"""

import enum
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import fmean

from ..core.entries import OUT_OF_MEMORY, Entry
from ..core.units import format_percent, format_tolerance
from ..core.work import RATE_UNITS, Work, rate_suffix
from . import stats

DEFAULT_TOLERANCE = 0.05
CONFIDENCE = 0.99


class Kind(enum.Enum):
    """What can be said of a measurement, in the order in which one finding hides another."""

    INVALID = "INVALID"
    NO_BASELINE = "NO BASELINE"
    REGRESSED = "REGRESSED"
    IMPROVED = "IMPROVED"
    PASSED = "PASSED"
    INCONCLUSIVE = "INCONCLUSIVE"


@dataclass(frozen=True, slots=True)
class Reference:
    """What a measurement is compared with: the medians of processes in seconds, and where they come from."""

    medians_s: tuple[float, ...]
    source: str
    environments: tuple[dict[str, str], ...] = ()
    tolerance: float | None = None
    achieved: frozenset[tuple[str, ...]] = frozenset()

    @property
    def median_s(self) -> float:
        """The geometric mean of the processes' medians: the centre of the comparison."""
        return math.exp(math.fsum(math.log(value) for value in self.medians_s) / len(self.medians_s))


@dataclass(frozen=True, slots=True)
class Policy:
    """How strict to be: the tolerance of time, the number of comparisons in this run, the assumed spread."""

    tolerance: float = DEFAULT_TOLERANCE
    comparisons: int = 1
    prior: float = stats.PRIOR_DEVICE


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer, with everything needed to explain it. Differences are of time; positive is slower."""

    kind: Kind
    tolerance: float
    reason: str = ""
    estimate: float | None = None
    interval: tuple[float, float] | None = None
    p: float | None = None
    reference: Reference | None = None
    slower_processes: int = 0
    spread_assumed: bool = False
    threshold: Entry | None = None

    @property
    def change(self) -> float | None:
        """The difference as a share of the reference's time: +0.25 takes a quarter longer."""
        return None if self.estimate is None else math.expm1(self.estimate)


def judge(
    medians_s: tuple[float, ...],
    reference: Reference | None,
    policy: Policy,
    *,
    invalid: str = "",
    thresholds: Sequence[tuple[Entry, float]] = (),
    why_none: str = "",
) -> Verdict:
    """The verdict on new process medians in seconds.

    Args:
        medians_s: one median for each new process.
        reference: what to compare with; None gives NO BASELINE, unless a threshold speaks.
        invalid: why the measurement cannot be trusted, `` if it can.
        thresholds: published limits that apply, each with its limit in seconds.
        why_none: why there is no reference.
    """
    if invalid:
        return Verdict(Kind.INVALID, policy.tolerance, reason=invalid, reference=reference)
    breach = _breach(medians_s, thresholds, policy)
    if breach is not None:
        return breach
    if reference is not None:
        return _compare(medians_s, reference, policy)
    if thresholds:
        entry = thresholds[0][0]
        return Verdict(Kind.PASSED, policy.tolerance, reason=f"not surely below {describe(entry)}", threshold=entry)
    return Verdict(Kind.NO_BASELINE, policy.tolerance, reason=why_none)


def _compare(medians_s: tuple[float, ...], reference: Reference, policy: Policy) -> Verdict:
    found = stats.difference(medians_s, reference.medians_s, policy.prior)
    limit = math.log1p(policy.tolerance)
    p = found.p_slower_than(0.0)
    if found.estimate > limit and p <= stats.FALSE_ALARM / policy.comparisons:
        kind, reason = Kind.REGRESSED, ""
    elif found.estimate + found.bound(CONFIDENCE) < -limit:
        kind, reason = Kind.IMPROVED, ""
    elif found.estimate + found.bound(0.95) < limit:
        kind, reason = Kind.PASSED, ""
    else:
        kind, reason = Kind.INCONCLUSIVE, _what_would_decide(found, policy, len(reference.medians_s))
    return Verdict(
        kind=kind,
        tolerance=policy.tolerance,
        reason=reason,
        estimate=found.estimate,
        interval=found.interval(CONFIDENCE),
        p=p,
        reference=reference,
        slower_processes=sum(fmean(map(math.log, medians_s)) > math.log(other) for other in reference.medians_s),
        spread_assumed=found.assumed,
    )


def _what_would_decide(found: stats.Difference, policy: Policy, processes: int) -> str:
    origin = "assumed, from one process" if found.assumed else f"seen among {processes}"
    low, high = (format_percent(math.expm1(bound)).removesuffix(" %") for bound in found.interval(CONFIDENCE))
    # A normal approximation: processes a side until a difference as large as the tolerance leaves the noise.
    needed = 2 * (found.spread * (2.33 + 1.64) / math.log1p(policy.tolerance)) ** 2
    return (
        f"may be {low} to {high} % with processes {format_tolerance(round(found.spread, 3))} apart ({origin}); "
        f"about {max(processes + 1, math.ceil(needed))} processes a side would decide, or a wider --roofline-tolerance"
    )


def _breach(medians_s: tuple[float, ...], thresholds: Sequence[tuple[Entry, float]], policy: Policy) -> Verdict | None:
    """REGRESSED where the whole interval of the new time lies beyond a published limit."""
    centre = math.fsum(math.log(value) for value in medians_s) / len(medians_s)
    half = stats.normal_bound(CONFIDENCE, policy.prior, len(medians_s))
    for entry, limit_s in thresholds:
        beyond = centre - math.log(limit_s)
        if beyond - half > 0:
            return Verdict(
                kind=Kind.REGRESSED,
                tolerance=policy.tolerance,
                reason=f"BELOW THRESHOLD: {describe(entry)}",
                estimate=beyond,
                interval=(beyond - half, beyond + half),
                spread_assumed=True,
                threshold=entry,
            )
    return None


def limit_seconds(entry: Entry, work: Work) -> float | None:
    """The time at which `work` just meets a published limit; None where the limit says nothing of it."""
    if not isinstance(entry.value, float | int):
        return None
    if entry.metric == "time_s":
        return float(entry.value)
    amount = work.amount(entry.metric)
    unit = RATE_UNITS[rate_suffix(entry.metric) or "traffic_GBps"]
    return None if amount is None else amount / (entry.value * unit)


def gating_limits(entries: Iterable[Entry], work: Work) -> list[tuple[Entry, float]]:
    """The published limits among `entries` that may fail a measurement of `work`, each with its limit in seconds."""
    limits = ((entry, limit_seconds(entry, work)) for entry in entries if entry.gates)
    return [(entry, limit_s) for entry, limit_s in limits if limit_s is not None]


def describe(entry: Entry) -> str:
    """A published figure in words: `threshold 235 GB/s (payload, 1e9; vendor's acceptance guide)`."""
    value = f"{entry.value[0]:g} to {entry.value[1]:g}" if isinstance(entry.value, tuple) else f"{entry.value}"
    unit = "" if entry.value == OUT_OF_MEMORY else f" {entry.unit}"
    return f"{entry.kind} {value}{unit} ({entry.convention}; {entry.source})"


def other_mode(achieved: tuple[str, ...], reference: Reference | None) -> str:
    """Why a number cannot be held against its reference: one was bound by the host, or stayed in a cache; else ``."""
    if reference is None or not reference.achieved or reference.achieved == {achieved}:
        return ""
    before = " and ".join(sorted(_mode(known) for known in reference.achieved))
    return (
        f"this is {_mode(achieved)}, the baseline {before}: two different things were timed; find out why it changed, "
        "or record the baseline anew"
    )


def _mode(achieved: tuple[str, ...]) -> str:
    return ", ".join(label.replace("_", "-") for label in achieved) or "timed as asked"


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
    low, high = (format_percent(math.expm1(bound)) for bound in verdict.interval)
    return f"{low.removesuffix(' %')} … {high}"
