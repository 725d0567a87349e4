"""The change that all tests of a run share, as of a machine that is slower today.

Each test is compared with the median of the others (and of the canaries, which are not the code under test) in the same
session. How much of that median a test follows is estimated from the sessions behind the baseline, and shrunk to zero
by as much as chance alone would move the median, so that nothing is removed where nothing is shared. Nothing is ever
divided: what is removed from a log time is a share of a median of log times. James and Stein (1961), "Estimation with
quadratic loss", positive part.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import median, mode

import numpy as np
import numpy.typing as npt

from ..core.reasons import Reason, ReasonCode
from ..core.verdicts import Group, Kind, Reference, Subject, Verdict
from .analyses import Analyses
from .outlook import Policy
from .spread import ENOUGH_SESSIONS, Prior, join_days, priors
from .verdicts import default_analyses, judge

Floats = npt.NDArray[np.float64]

# A median of fewer other tests says more of these tests than of the machine.
FEWEST_OTHERS = 3
# A process represents the whole run where it measured at least this share of the tests.
WHOLE = 0.5
# The label of all tests where they are judged as if they were one.
TOGETHER = "all tests together"
# A session, by its device and when it began.
Session = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Side:
    """One test, or one canary: its new processes and the reference that they are compared with."""

    new: Group
    reference: Reference
    canary: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """The change that the tests of a run share.

    Args:
        verdict: on all of them together, as if they were one test; None where too few sessions are known.
        coefficient: how much of the others' median a test follows, 0 to 1.
        shifts: by test, the shift to remove from its new processes, and that of each session of its reference, in log
            seconds.
    """

    verdict: Verdict | None
    coefficient: float
    shifts: Mapping[str, tuple[float, Mapping[Session, float]]]

    @property
    def is_removed(self) -> bool:
        """Return True where the change that all tests share is removed from each of them.

        It stays while it is open whether all tests together are slower.
        """
        # The shared change must be judged itself, or a machine that is slower in everything would pass.
        is_open = self.verdict is None or (
            self.verdict.kind is Kind.INCONCLUSIVE and self.verdict.looks_slow
        )
        return bool(self.shifts and self.coefficient) and not is_open

    @property
    def regressed(self) -> Verdict | None:
        """Return the verdict on all tests together if they are slower.

        It is None where the shared change is not removed: then each test shows the change itself.
        """
        slower = (
            self.is_removed and self.verdict is not None and self.verdict.kind is Kind.REGRESSED
        )
        return self.verdict if slower else None

    def adjust_reference(self, name: str, reference: Reference) -> Reference:
        """Return a test's reference as if it had been measured in the new session.

        Each session of it moves by the difference between the shifts of the two sessions.
        """
        if name not in self.shifts or not self.is_removed:
            return reference
        shift, session_shifts = self.shifts[name]
        # A session that other tests do not share has no shift of its own.
        factors = [
            math.exp(shift - session_shifts.get((group.device, group.started), 0.0))
            for group in reference.groups
        ]
        shifted = tuple(
            replace(group, medians_s=tuple(median_s * factor for median_s in group.medians_s))
            for group, factor in zip(reference.groups, factors, strict=True)
        )
        return replace(reference, moved=shifted, shift=shift)

    def with_whole_change(self, verdict: Verdict) -> Verdict:
        """Return a verdict with the shared change added back.

        It is added back only where all tests together are slower. A test that is not REGRESSED beyond
        the shared change is SHIFTED then, and has no p.
        """
        together, reference, difference = self.regressed, verdict.reference, verdict.difference
        if together is None or reference is None or difference is None or not reference.shift:
            return verdict
        assert verdict.interval is not None
        assert together.estimate is not None
        shift, (low, high) = reference.shift, verdict.interval
        estimate = difference.estimate + shift
        numbers = {
            "tests": len(self.shifts),
            "together": together.estimate,
            "left": difference.estimate,
        }
        whole_verdict = replace(
            verdict,
            reasons=(Reason(ReasonCode.MOVED_TOGETHER, numbers),),
            estimate=estimate,
            interval=(low + shift, high + shift),
            reference=replace(reference, moved=(), shift=0.0),
            difference=replace(
                difference, estimate=estimate, reference_s=difference.reference_s * math.exp(-shift)
            ),
        )
        if verdict.kind is Kind.REGRESSED:
            return whole_verdict
        return replace(whole_verdict, kind=Kind.SHIFTED, p=None, p_adjusted=None)


def shared_of(
    sides: Mapping[str, Side], tolerance: float, prior: Prior, analyses: Analyses | None
) -> Shared | None:
    """Return the change that tests and canaries share, or None.

    None where too few of them were measured in the same sessions of the same device.
    """
    sessions = _sessions(sides)
    # The tests whose references consist of these sessions only.
    complete = {
        name: side
        for name, side in sides.items()
        if all(session in sessions for session in _session_keys(side.reference))
    }
    days = join_days([Group((), device, started) for device, started in sessions])
    if len(days) < ENOUGH_SESSIONS or len(complete) < FEWEST_OTHERS + 1:
        return None
    # Mean log seconds: [tests, sessions] of the references, and [tests] of the new session.
    rows = [
        [_session_mean(side.reference, session) for session in sessions]
        for side in complete.values()
    ]
    before = _fill(np.array(rows))
    now = np.array([math.fsum(side.new.logs) / len(side.new.logs) for side in complete.values()])
    coefficient, session_shifts, new_shifts = shared_shift(before, now)
    shifts = {
        name: (
            float(new_shifts[row]),
            dict(zip(sessions, session_shifts[row].tolist(), strict=True)),
        )
        for row, (name, side) in enumerate(complete.items())
        if not side.canary
    }
    together = _judge_together(complete, sessions, before, tolerance, prior, analyses)
    return Shared(together, coefficient, shifts)


def hold_shared(
    sides: Mapping[str, Side],
    tolerances: Sequence[float],
    classes: Sequence[str],
    analyses: Analyses | None,
) -> tuple[Shared | None, dict[str, Reference]]:
    """Return the shared change, and each test's reference as if measured in the new session.

    Without a shared change references stay as they are.

    Args:
        sides: the tests and canaries, by name.
        tolerances: those of the tests; all tests together are judged by their median.
        classes: those of the tests; all tests together are judged by the assumed spreads of the commonest.
        analyses: the plan of the run; None where no number of rounds was given.
    """
    shared = None
    if tolerances:
        shared = shared_of(sides, median(tolerances), priors()[mode(classes)], analyses)
    tests = {name: side.reference for name, side in sides.items() if not side.canary}
    return shared, {
        name: shared.adjust_reference(name, reference) if shared is not None else reference
        for name, reference in tests.items()
    }


def shared_shift(before: Floats, now: Floats) -> tuple[float, Floats, Floats]:
    """Return the share of the others' median that tests follow, and the shifts.

    Where the other tests of a session are slower than usual by their median, a test is expected to be slower by this
    share of it. That expected part is its shift.

    Args:
        before: [tests, sessions], mean log seconds.
        now: [tests], of the new session.

    Returns:
        The coefficient, 0 to 1; the shifts to remove, [tests, sessions] and [tests]: the coefficient times the median
        of the other tests.
    """
    centre = before.mean(axis=1)
    # How far each test lies above its own mean, in the sessions of the reference and in the new one.
    levels, new_levels = before - centre[:, None], now - centre
    other_medians = np.stack([leave_one_out(column) for column in levels.T], axis=1)
    other_medians -= other_medians.mean(axis=1, keepdims=True)
    square = float(np.sum(other_medians**2))
    # The slope of a regression of all tests on the medians of their others.
    slope = float(np.sum(levels * other_medians)) / square if square > 0 else 0.0
    medians, noise = (
        np.median(levels, axis=0),
        np.array([_median_error(column) for column in levels.T]),
    )
    variance = float(np.sum((medians - medians.mean()) ** 2)) / (len(medians) - 1)
    # The part of the variance between the sessions' medians that chance does not explain.
    certainty = max(0.0, 1 - float(np.mean(noise**2)) / variance) if variance > 0 else 0.0
    coefficient = min(max(slope, 0.0), 1.0) * certainty
    return coefficient, coefficient * other_medians, coefficient * leave_one_out(new_levels)


def leave_one_out(values: Floats) -> Floats:
    """Return the median of all other values, for each value."""
    order = np.argsort(values, kind="stable")
    ordered, rank = values[order], np.empty(len(values), dtype=int)
    rank[order] = np.arange(len(values))
    # The middle ranks of all values but one. Each moves up by one where the value left out is not above it.
    low, high = (len(values) - 2) // 2, (len(values) - 1) // 2
    low_ranks = np.where(rank <= low, low + 1, low)
    high_ranks = np.where(rank <= high, high + 1, high)
    return np.asarray((ordered[low_ranks] + ordered[high_ranks]) / 2, dtype=np.float64)


def _median_error(values: Floats) -> float:
    """Return the standard error of a median.

    It is half the distance between the two order statistics whose ranks lie one standard error below
    and above the middle.
    """
    ordered, half = np.sort(values), math.sqrt(len(values)) / 2
    middle = (len(values) - 1) / 2
    low, high = max(0, math.floor(middle - half)), min(len(values) - 1, math.ceil(middle + half))
    return float(ordered[high] - ordered[low]) / 2


def _session_keys(reference: Reference) -> list[Session]:
    return [(group.device, group.started) for group in reference.groups]


def _sessions(sides: Mapping[str, Side]) -> list[Session]:
    """Return the dated sessions in the references of the largest number of tests.

    Tests that left a session out as odd count as well, if enough others kept it.
    """
    kept_counts, odd_counts = Counter[Session](), Counter[Session]()
    for side in sides.values():
        # A session without a date began at an unknown time, so it cannot be found in other tests.
        dated_sessions = {
            (device, started) for device, started in _session_keys(side.reference) if started
        }
        kept_counts.update(dated_sessions)
        odd_counts.update((session.device, session.started) for session in side.reference.odd)
    most = max((kept_counts + odd_counts).values(), default=0)
    return [
        session
        for session, count in kept_counts.items()
        if count > FEWEST_OTHERS and count + odd_counts[session] == most
    ]


def _session_mean(reference: Reference, session: Session) -> float:
    """Return the mean log seconds of a session.

    NaN where the reference leaves the session out as odd.
    """
    logs = _session_logs(reference, session)
    return math.fsum(logs) / len(logs) if logs else math.nan


def _fill(before: Floats) -> Floats:
    """Return the means, [tests, sessions], without NaN.

    A session that a test leaves out gets the mean that it would have if the test had moved with the
    others.
    """
    shared = np.nanmedian(before - np.nanmean(before, axis=1, keepdims=True), axis=0)
    level = np.nanmean(before - shared, axis=1, keepdims=True)
    return np.where(np.isnan(before), level + shared, before)


def _session_logs(reference: Reference, session: Session) -> list[float]:
    """Return the log seconds of a session's processes; empty if it is left out."""
    return [
        log_s
        for group in reference.groups
        if (group.device, group.started) == session
        for log_s in group.logs
    ]


def _process_medians(
    rows: Sequence[tuple[Sequence[float], float]], enough: float
) -> tuple[float, ...]:
    """Return the median over tests of each process of one session, as multiples of the tests' centres.

    A process stands for the whole session: by how much is the typical test slower than usual in it? A process that
    measured fewer than `enough` tests ends the list, as the tests of an interrupted session do not tell that.

    Args:
        rows: for each test, the log seconds of its processes, and the centre of the test.
    """
    medians = []
    for place in range(max(len(logs) for logs, _ in rows)):
        column = [logs[place] - centre for logs, centre in rows if place < len(logs)]
        if len(column) < enough:
            break
        medians.append(math.exp(median(column)))
    return tuple(medians)


def _judge_together(
    sides: Mapping[str, Side],
    sessions: Sequence[Session],
    before: Floats,
    tolerance: float,
    prior: Prior,
    analyses: Analyses | None,
) -> Verdict | None:
    """Return the verdict on all tests as if they were one.

    The time of a process is the median over tests of its distance from the centre of the test.
    None where too few sessions, or no new process, measured enough of the tests. `before` holds the
    mean log seconds of the references, [tests, sessions].
    """
    tests = [
        (side, centre) for side, centre in zip(sides.values(), before.mean(axis=1), strict=True)
    ]
    enough = max(FEWEST_OTHERS + 1, WHOLE * len([side for side, _ in tests if not side.canary]))
    groups = []
    for session in sessions:
        medians_s = _process_medians(
            [(_session_logs(side.reference, session), centre) for side, centre in tests], enough
        )
        if medians_s:
            groups.append(Group(medians_s, *session))
    new = _process_medians([(side.new.logs, centre) for side, centre in tests], enough)
    if len(groups) < ENOUGH_SESSIONS or not new:
        return None
    # All tests were measured on one device.
    first_side, *_ = sides.values()
    device = first_side.new.device
    reference = Reference(tuple(groups), TOGETHER)
    # Without a number of rounds the plan is that of a test with this reference.
    plan = analyses or default_analyses(reference, device, prior)
    policy = Policy(tolerance, prior=prior, analyses=plan)
    return judge([Group(new, device)], reference, policy, subject=Subject(label=TOGETHER))
