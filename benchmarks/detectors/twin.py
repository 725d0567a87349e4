"""The rule of `judge` and `settle` for whole suites at once, so that thousands of suites can be put through it.

Every test of a suite has a baseline of the same shape, on one device, its sessions each on a day of its own or all in
one sitting. `benchmarks/tests/test_detector_quality.py` holds it against the plugin's own code on thousands of
cases.
"""

import copy
import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy import special

from pytest_roofline.stats.analyses import (
    ENOUGH_KNOWN,
    FALSE_RED,
    FEWEST_TESTS,
    MOST_ROUNDS,
    SECOND_ANALYSIS,
    Analyses,
    fewest_red,
)
from pytest_roofline.stats.outlook import PLAY, WORTH_REPORTING
from pytest_roofline.stats.shared import shared_shift
from pytest_roofline.stats.spread import (
    ASSUMED_SESSION,
    ENOUGH_SESSIONS,
    ENOUGH_TESTS,
    LEAST_SHARE,
    LEAST_SHARE_ALONE,
    LEAST_SPREAD,
    NORMAL_DEVIATION,
    PRIOR_FREEDOM,
    SEPARATION_LEVEL,
    STRANGE,
    STRANGE_DEVIATIONS,
    TRIMMED,
    UNBELIEVED,
    Prior,
    borrow,
)
from pytest_roofline.stats.verdicts import HOT

Floats = npt.NDArray[np.float64]
Flags = npt.NDArray[np.bool_]
Kinds = npt.NDArray[np.int_]

INCONCLUSIVE, REGRESSED, IMPROVED, PASSED = range(4)


@dataclass(frozen=True, slots=True)
class Spread:
    """Standard deviations of log seconds, [tests], and their degrees of freedom."""

    value: Floats
    freedom: Floats


class Baseline:
    """The references of a suite, with what they lend each other.

    Args:
        logs: [tests, processes], log-medians, those of a session side by side.
        shape: processes of each session.
        prior: of the class.
        sitting: whether all sessions began within hours.
        kind: the class, for what counts as another mode.
    """

    def __init__(
        self,
        logs: Floats,
        shape: Sequence[int],
        prior: Prior,
        *,
        sitting: bool = False,
        kind: str = "device",
    ) -> None:
        counts = np.array([sum(shape)] if sitting else shape)
        self.tests, self.processes = logs.shape
        self.firsts = max(shape) == 1
        self.sessions, self.counts, self.prior = len(counts), counts, prior
        parts = np.split(logs, np.cumsum(counts)[:-1], axis=1)
        means = np.stack([part.mean(axis=1) for part in parts], axis=1)
        self.squares = sum(
            np.sum((part - part.mean(axis=1, keepdims=True)) ** 2, axis=1) for part in parts
        )
        self.inside, self.between = self.processes - self.sessions, self.sessions - 1
        self.centre = logs.mean(axis=1)
        around = counts * (means - self.centre[:, None]) ** 2
        self.mean_square = around.sum(axis=1) / max(1, self.between)
        self.typical = 1.0
        if self.between:
            self.typical = (self.processes - (counts**2).sum() / self.processes) / self.between
        self.equal_sessions = self.processes**2 / float((counts**2).sum())
        self.slowest = logs.max(axis=1)
        self._lend(logs, kind)

    def of(self, tests: npt.NDArray[np.int_]) -> "Baseline":
        """The references of some of the tests, with what all of them lend."""
        part = copy.copy(self)
        part.tests = len(tests)
        for name in ("squares", "mean_square", "centre", "slowest"):
            setattr(part, name, getattr(self, name)[tests])
        return part

    @property
    def alone(self) -> bool:
        """Whether sessions are of one process each."""
        return self.inside == 0 and self.between > 0

    @property
    def few(self) -> bool:
        """Whether sessions of several processes tell of fewer than three days."""
        return self.sessions < ENOUGH_SESSIONS and not self.alone

    def _lend(self, logs: Floats, kind: str) -> None:
        self.lent, self.strange = (0.0, 0.0), 0.0
        if self.tests < ENOUGH_TESTS:
            return
        if self.inside:
            own = self.squares / self.inside
            self.prior = borrow(self.prior, [(float(square), self.inside) for square in own])
            if self.sessions >= ENOUGH_SESSIONS:
                process = self.joined(self.squares, self.inside).value ** 2
                border = special.chdtri(self.between, 1 - TRIMMED)
                lower = special.chdtr(self.between + 2, border) / TRIMMED
                absolute = _trimmed((self.mean_square - own) / self.typical) / lower
                relative = (_trimmed(self.mean_square / process) / lower - 1) / self.typical
                self.lent = math.sqrt(max(0.0, absolute)), math.sqrt(max(0.0, relative))
        elif self.between:
            self.prior = borrow(
                self.prior, [(float(square), self.between) for square in self.mean_square]
            )
        away = logs - np.median(logs, axis=1, keepdims=True)
        deviation = NORMAL_DEVIATION * np.median(np.abs(away), axis=1, keepdims=True)
        border = np.maximum(math.log1p(STRANGE[kind]), STRANGE_DEVIATIONS * deviation)
        self.strange = float(np.mean(away > border))

    def joined(self, squares: Floats, freedom: int) -> Spread:
        """What tests tell by themselves, with the prior."""
        prior = self.prior
        joined = np.sqrt((squares + prior.freedom * prior.process**2) / (freedom + prior.freedom))
        joined = np.maximum(joined, LEAST_SPREAD)
        if not freedom or prior.borrowed:
            return Spread(joined, np.full(self.tests, freedom + prior.freedom))
        own = special.chdtrc(freedom, squares / prior.process**2) < UNBELIEVED
        return Spread(
            np.where(own, np.sqrt(squares / freedom), joined),
            np.where(own, freedom, freedom + prior.freedom),
        )

    def pooled(self, squares: Floats, more: int) -> Spread:
        """Between processes, with what new ones show: a sum of squares and its degrees of freedom."""
        if self.alone:
            return self.joined(self.mean_square * self.between + squares, self.between + more)
        return self.joined(self.squares + squares, self.inside + more)


def _trimmed(values: Floats) -> float:
    return float(np.sort(values)[: math.ceil(TRIMMED * len(values))].mean())


@dataclass(frozen=True, slots=True)
class Rule:
    """How a suite is judged.

    Args:
        tolerance: of time.
        looks: the plan.
        device: whether the new processes run on a device that the baseline does not hold.
        nights: how many new processes are judged at once, each of a night of its own, as those of the baseline are;
            0 where they are rounds of a run.
    """

    tolerance: float
    analyses: Analyses
    device: bool = False
    nights: int = 0

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of new processes after which tests are looked at."""
        return (self.nights,) if self.nights else self.analyses.counts


@dataclass(frozen=True, slots=True)
class Look:
    """What one look says, [tests]."""

    kind: Kinds
    spent: Floats
    may_be_red: Flags
    futile: Flags


def default_analyses(baseline: Baseline) -> Analyses:
    """As `verdicts.default_looks`."""
    needed = fewest_red(baseline.processes, baseline.strange)
    sure = baseline.processes >= ENOUGH_KNOWN and not baseline.few
    return Analyses(
        SECOND_ANALYSIS if sure and needed <= SECOND_ANALYSIS else MOST_ROUNDS, slow_only=True
    )


def look(
    baseline: Baseline, new: Floats, count: int, rule: Rule, comparisons: int | None = None
) -> Look:
    """The verdicts after so many new processes, [tests, processes], of one session.

    Args:
        comparisons: of the whole suite; None where these tests are all of it.
    """
    comparisons = len(new) if comparisons is None else comparisons
    seen, analyses = new[:, :count], rule.analyses
    mean = seen.mean(axis=1)
    squares = ((seen - mean[:, None]) ** 2).sum(axis=1)
    estimate = mean - baseline.centre
    process, error, freedom, parts = _error(baseline, squares, count, rule)
    limit, worthy = math.log1p(rule.tolerance), math.log1p(WORTH_REPORTING * rule.tolerance)
    p = special.stdtr(freedom, (worthy - estimate) / error)
    fewest = fewest_red(baseline.processes, baseline.strange)
    unseen = (mean - worthy > baseline.slowest) | (count >= SECOND_ANALYSIS)
    hot = np.zeros(len(new), dtype=bool)
    if count > 1 and baseline.firsts:
        hot = seen[:, 1:].mean(axis=1) - seen[:, 0] > HOT * process * math.sqrt(1 + 1 / (count - 1))
    may = unseen & ~hot & (analyses.due(count) and count >= fewest)
    spent = np.where(may, np.minimum(1.0, p * analyses.red_analyses(fewest)), 1.0)
    improved, passed, far = (
        special.stdtrit(freedom, 1 - level) * error for level in analyses.levels(count)
    )
    kind = np.select(
        [
            (estimate > limit) & (spent <= FALSE_RED / max(comparisons, FEWEST_TESTS)),
            np.full(len(new), not analyses.due(count)),
            estimate + improved < -limit,
            (estimate + passed < limit) & (estimate + far < math.log1p(2 * rule.tolerance)),
        ],
        [REGRESSED, INCONCLUSIVE, IMPROVED, PASSED],
        INCONCLUSIVE,
    )
    still = kind == INCONCLUSIVE
    futile = still & ~_may_decide(baseline, estimate, (process, error, parts), count, rule)
    return Look(kind, spent, still & (estimate > limit) & (spent <= FALSE_RED), futile)


# The estimated parts of a variance, [tests], with the degrees of freedom of each; first that of the new processes.
Parts = list[tuple[Floats, Floats]]


def _error(
    baseline: Baseline, squares: Floats, count: int, rule: Rule
) -> tuple[Floats, Floats, Floats, Parts]:
    """[tests]: the spread between new processes, the difference's standard error, degrees of freedom and parts."""
    process, known = baseline.pooled(squares, count - 1), baseline.processes
    new, prior = process.value, baseline.prior
    parts = [(process.value**2 * (1 / count + 1 / known), process.freedom)]
    sessions = 1 + (0.0 if baseline.alone else 1 / baseline.equal_sessions)
    if baseline.alone:
        doubtful, session_freedom = np.zeros(len(squares)), np.full(len(squares), math.inf)
        session = np.zeros(len(squares))
        if count > 1 and not rule.nights:
            session, least, session_freedom = _between_single(baseline, squares, count, process)
            doubtful = session**2 - least**2
    elif baseline.few:
        assumed = ASSUMED_SESSION * prior.session
        own = np.sqrt(np.maximum(0.0, baseline.mean_square - process.value**2) / baseline.typical)
        session = np.maximum(assumed, own) if baseline.between else np.full(len(squares), assumed)
        doubtful, session_freedom = session**2, PRIOR_FREEDOM + baseline.between
        if count > 1:
            mine = np.sqrt(squares / (count - 1))
            wider = mine > process.value
            new = np.where(wider, mine, process.value)
            both = process.value**2 * (1 / count + 1 / known)
            parts = [
                (
                    np.where(wider, mine**2 / count, both),
                    np.where(wider, count - 1, process.freedom),
                ),
                (np.where(wider, process.value**2 / known, 0.0), process.freedom),
            ]
    else:
        own = np.maximum(0.0, baseline.mean_square - process.value**2) / baseline.typical
        lent = np.sqrt(baseline.lent[0] * baseline.lent[1] * process.value)
        least = np.maximum(np.maximum(prior.session, lent), process.value * math.sqrt(LEAST_SHARE))
        session_freedom = baseline.between + PRIOR_FREEDOM
        mixed = (baseline.between * own + PRIOR_FREEDOM * least**2) / session_freedom
        session = np.maximum(np.sqrt(mixed), least)
        doubtful = session**2 - prior.session**2
    if rule.device:
        parts.append((np.full(len(squares), 2 * prior.device**2), np.full(len(squares), math.inf)))
    variance = np.sum([part for part, _ in parts], axis=0) + session**2 * sessions
    parts.append((doubtful * sessions * np.ones(len(squares)), session_freedom))
    return new, np.sqrt(variance), _freedom(variance, parts), parts


def _freedom(variance: Floats, parts: Parts) -> Floats:
    """Satterthwaite's degrees of freedom."""
    return np.asarray(variance**2 / np.sum([part**2 / known for part, known in parts], axis=0))


def _between_single(
    baseline: Baseline, squares: Floats, count: int, process: Spread
) -> tuple[Floats, Floats, Floats]:
    """Between sessions of which the baseline's hold one process each, [tests]; the least of it; its freedom."""
    least = np.maximum(baseline.prior.session, process.value * math.sqrt(LEAST_SHARE_ALONE))
    total = baseline.joined(baseline.mean_square * baseline.between, baseline.between)
    new = np.maximum(LEAST_SPREAD**2, squares / (count - 1))
    apart = special.fdtrc(total.freedom, count - 1, total.value**2 / new) < SEPARATION_LEVEL
    rest = np.sqrt(np.maximum(0.0, total.value**2 - new))
    return np.where(apart, np.maximum(least, rest), least), least, total.freedom


def _may_decide(
    baseline: Baseline,
    estimate: Floats,
    known: tuple[Floats, Floats, Parts],
    count: int,
    rule: Rule,
) -> Flags:
    analyses, most, limit = rule.analyses, rule.analyses.most, math.log1p(rule.tolerance)
    process, error, ((part, freedom), *others) = known
    if count >= most or analyses.ended:
        return np.zeros(len(estimate), dtype=bool)
    slow = estimate > limit
    if not analyses.due(count):
        return np.ones(len(estimate), dtype=bool)
    if analyses.slow_only:
        return np.asarray(slow)
    less = process**2 * (1 / most - 1 / count)
    variance = error**2 + less
    if baseline.alone and count == 1:
        least = np.maximum(baseline.prior.session, process * math.sqrt(LEAST_SHARE_ALONE))
        variance = variance + least**2
    variance = np.maximum(variance, 1e-12)
    freedom = _freedom(variance, [(part + less, freedom + (most - count)), *others])
    play = PLAY * process * math.sqrt(1 / count - 1 / most)
    bound = special.stdtrit(freedom, 1 - analyses.levels(most)[1]) * np.sqrt(variance)
    return np.asarray(slow | (estimate - play + bound < limit))


@dataclass(slots=True)
class Course:
    """One suite, judged look by look.

    Args:
        kinds: [tests], the final verdicts; `processes` how many new ones they took.
        spent: after each look, the p of every test.
    """

    kinds: Kinds
    processes: Kinds
    spent: list[Floats]


def run(baseline: Baseline, new: Floats, rule: Rule) -> Course:
    """A run: each look at what is open, and then `settle`."""
    tests, most = len(new), rule.counts[-1]
    kinds, processes = np.zeros(tests, dtype=int), np.zeros(tests, dtype=int)
    spent, may, futile = np.ones(tests), np.zeros(tests, dtype=bool), np.zeros(tests, dtype=bool)
    held, course = np.ones(tests, dtype=bool), Course(kinds, processes, [])
    for count in rule.counts:
        asked = np.flatnonzero(held & (kinds == INCONCLUSIVE) & ~futile)
        if not len(asked):
            break
        found = look(baseline.of(asked), new[asked], count, rule, tests)
        kinds[asked], spent[asked] = found.kind, found.spent
        may[asked], futile[asked] = found.may_be_red, found.futile
        processes[asked] = count
        _settle(kinds, spent, may & held)
        held &= (kinds == INCONCLUSIVE) & (may | (~futile & (count < most)))
        course.spent.append(spent.copy())
    return course


def _settle(kinds: Kinds, spent: Floats, may: Flags) -> None:
    """Turn red what Benjamini and Hochberg's procedure does."""
    if may.any():
        kinds[may & (adjusted(spent) <= FALSE_RED)] = REGRESSED


def adjusted(spent: Floats) -> Floats:
    """[tests]: p adjusted over a suite."""
    comparisons, order = max(len(spent), FEWEST_TESTS), np.argsort(spent)
    raw = spent[order] * comparisons / np.arange(1, len(spent) + 1)
    result = np.empty(len(spent))
    result[order] = np.minimum.accumulate(raw[::-1])[::-1]
    return np.minimum(result, 1.0)


def each_alone(
    baseline: Baseline, new: Floats, slowdown: float, rule: Rule, course: Course
) -> Kinds:
    """The verdict on each test where it alone is slower, all others as they were in `course`, look by look."""
    slower, tests = new + math.log1p(slowdown), len(new)
    kinds, open_tests = np.zeros(tests, dtype=int), np.arange(tests)

    def red(index: int, p: float, look_number: int) -> bool:
        others = course.spent[min(look_number, len(course.spent) - 1)].copy()
        others[index] = p
        return bool(adjusted(others)[index] <= FALSE_RED)

    for number, count in enumerate(rule.counts):
        if not len(open_tests):
            break
        found = look(baseline.of(open_tests), slower[open_tests], count, rule, tests)
        kinds[open_tests] = found.kind
        for place in np.flatnonzero(found.may_be_red):
            if red(open_tests[place], found.spent[place], number):
                kinds[open_tests[place]] = REGRESSED
        open_tests = open_tests[(kinds[open_tests] == INCONCLUSIVE) & ~found.futile]
    return kinds


def without_shared(logs: Floats, shape: Sequence[int], new: Floats) -> tuple[Floats, Floats]:
    """Both sides without what all tests share, as `stats.shared` has it."""
    parts = np.split(logs, np.cumsum(shape)[:-1], axis=1)
    before = np.stack([part.mean(axis=1) for part in parts], axis=1)
    _, moved, now = shared_shift(before, new[:, :1].mean(axis=1))
    return logs - np.repeat(moved, shape, axis=1), new - now[:, None]
