"""The rule of `judge` and `settle` for whole suites at once, so that thousands of suites can be put through it.

Every test of a suite has a baseline of the same shape, on one device, its sessions each on a day of its own or all in
one sitting. `benchmarks/tests/test_detector_quality.py` holds it against the plugin's own code on thousands of
cases.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt
from scipy import special

from pytest_roofline.stats.looks import (
    FALSE_RED,
    FEWEST_RED,
    FEWEST_TESTS,
    LEAST_KNOWN,
    MOST_KNOWN,
    MOST_ROUNDS,
    PLAY,
    STEPS,
    Looks,
    fewest_red,
)
from pytest_roofline.stats.outlook import ENOUGH_TO_REPEAT, WORTH_REPORTING
from pytest_roofline.stats.shared import followed
from pytest_roofline.stats.spread import (
    ASSUMED_SESSION,
    ENOUGH_SESSIONS,
    ENOUGH_TESTS,
    FEWEST_UNEQUAL,
    LEAST_SPREAD,
    PRIOR_FREEDOM,
    STRANGE,
    UNBELIEVED,
    UNEQUAL,
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
        around = counts * (means - logs.mean(axis=1, keepdims=True)) ** 2
        self.mean_square = around.sum(axis=1) / max(1, self.between)
        self.typical = (self.processes - (counts**2).sum() / self.processes) / max(1, self.between)
        self.slowest = logs.max(axis=1)
        self._lend(logs, kind)
        process = self.process(np.zeros(self.tests), 0)
        session = self.session(process, 0)
        weights = 1 / (session.value[:, None] ** 2 + process.value[:, None] ** 2 / counts)
        weights /= weights.sum(axis=1, keepdims=True)
        self.centre = (weights * means).sum(axis=1)
        self.of_process, self.of_session = (
            (weights**2 / counts).sum(axis=1),
            (weights**2).sum(axis=1),
        )
        ratio = session.value / process.value
        self.worth = 1 / (self.of_process + ratio**2 * (1 + self.of_session))

    @property
    def alone(self) -> bool:
        """Whether sessions are of one process each."""
        return self.inside == 0 and self.between > 0

    def _lend(self, logs: Floats, kind: str) -> None:
        self.total, self.lent, self.strange = replace(self.prior, borrowed=False), (0.0, 0.0), 0.0
        if self.tests < ENOUGH_TESTS:
            return
        if self.inside:
            own = self.squares / self.inside
            self.prior = borrow(self.prior, [(float(square), self.inside) for square in own])
            if self.sessions >= ENOUGH_SESSIONS:
                process = self._joined(self.squares, self.inside, self.prior).value ** 2
                shown = (
                    (self.mean_square - own) / self.typical,
                    (self.mean_square / process - 1) / self.typical,
                )
                self.lent = tuple(math.sqrt(max(0.0, float(one.mean()))) for one in shown)
        elif self.between:
            self.total = borrow(
                self.prior, [(float(square), self.between) for square in self.mean_square]
            )
        middle = np.median(logs, axis=1, keepdims=True)
        self.strange = float(np.mean(logs - middle > math.log1p(STRANGE[kind])))

    def _joined(self, squares: Floats, freedom: int, prior: Prior) -> Spread:
        joined = np.sqrt((squares + prior.freedom * prior.process**2) / (freedom + prior.freedom))
        joined = np.maximum(joined, LEAST_SPREAD)
        if not freedom or prior.borrowed:
            return Spread(joined, np.full(self.tests, freedom + prior.freedom))
        own = special.chdtrc(freedom, squares / prior.process**2) < UNBELIEVED
        return Spread(
            np.where(own, np.sqrt(squares / freedom), joined),
            np.where(own, freedom, freedom + prior.freedom),
        )

    def together(self) -> Spread:
        """Between sessions of one process each."""
        return self._joined(self.mean_square * self.between, self.between, self.total)

    def process(self, squares: Floats, more: int) -> Spread:
        """Between processes, with what new ones show: a sum of squares and its degrees of freedom."""
        if self.alone:
            total = self.together()
            if not more:
                return total
            new = squares / more
            pooled = np.sqrt((squares + total.freedom * total.value**2) / (more + total.freedom))
            apart = total.value**2 > new
            own = np.maximum(LEAST_SPREAD, np.sqrt(new))
            return Spread(np.where(apart, own, pooled), np.where(apart, more, more + total.freedom))
        squares, freedom = self.squares + squares, self.inside + more
        found = self._joined(squares, freedom, self.prior)
        if not self.between:
            return found
        merged = self._joined(
            squares + self.mean_square * self.between, freedom + self.between, self.prior
        )
        alike = self.mean_square * freedom <= squares
        return Spread(
            np.where(alike, merged.value, found.value),
            np.where(alike, merged.freedom, found.freedom),
        )

    def session(self, process: Spread, more: int) -> Spread:
        """Between sessions."""
        square, count, freedom = (
            self.mean_square,
            self.typical,
            np.full(self.tests, float(self.between)),
        )
        if self.alone:
            if not more:
                return Spread(np.zeros(self.tests), np.full(self.tests, math.inf))
            total = self.together()
            square, count, freedom = total.value**2, 1.0, total.freedom
        own = (
            np.sqrt(np.maximum(0.0, square - process.value**2) / count)
            if self.between
            else np.zeros(self.tests)
        )
        if self.sessions < ENOUGH_SESSIONS:
            least = np.full(self.tests, ASSUMED_SESSION * self.prior.session)
        else:
            least = np.maximum(
                self.prior.session, np.minimum(self.lent[0], self.lent[1] * process.value)
            )
        mixed = np.sqrt((freedom * own**2 + PRIOR_FREEDOM * least**2) / (freedom + PRIOR_FREEDOM))
        return Spread(np.maximum(own, mixed), freedom + PRIOR_FREEDOM)


@dataclass(frozen=True, slots=True)
class Rule:
    """How a suite is judged.

    Args:
        tolerance: of time.
        looks: the plan.
        device: whether the new processes run on a device that the baseline does not hold.
    """

    tolerance: float
    looks: Looks
    device: bool = False


@dataclass(frozen=True, slots=True)
class Look:
    """What one look says, [tests]."""

    kind: Kinds
    spent: Floats
    may_be_red: Flags
    futile: Flags


def default_looks(baseline: Baseline) -> Looks:
    """As `verdicts.default_looks`."""
    enough = fewest_red(baseline.processes, baseline.strange, FEWEST_RED) <= FEWEST_RED
    return Looks(FEWEST_RED if enough else MOST_ROUNDS, slow_only=True)


def look(baseline: Baseline, new: Floats, count: int, rule: Rule) -> Look:
    """The verdicts after so many new processes, [tests, processes], of one session."""
    seen = new[:, :count]
    mean = seen.mean(axis=1)
    squares = ((seen - mean[:, None]) ** 2).sum(axis=1)
    estimate = mean - baseline.centre
    process, error, freedom = _error(baseline, squares, count, rule)
    looks, limit, worthy = (
        rule.looks,
        math.log1p(rule.tolerance),
        math.log1p(WORTH_REPORTING * rule.tolerance),
    )
    p = special.stdtr(freedom, (worthy - estimate) / error)
    fewest = fewest_red(baseline.processes, baseline.strange, looks.most)
    unseen = (mean - worthy > baseline.slowest) | (count >= ENOUGH_TO_REPEAT)
    hot = np.zeros(len(new), dtype=bool)
    if count > 1 and baseline.firsts:
        hot = seen[:, 1:].mean(axis=1) - seen[:, 0] > HOT * process * math.sqrt(1 + 1 / (count - 1))
    share = np.where(
        unseen & ~hot,
        _each(baseline.worth, lambda known: looks.red_share(count, known, fewest)),
        0.0,
    )
    spent = np.where(share > 0, np.minimum(1.0, p / np.where(share > 0, share, 1.0)), 1.0)
    levels = [
        _each(baseline.worth, lambda known, of=of: of(count, known))
        for of in (looks.improved_level, looks.pass_level, looks.far_level)
    ]
    improved, passed, far = (special.stdtrit(freedom, 1 - level) * error for level in levels)
    kind = np.select(
        [
            (estimate > limit) & (spent <= FALSE_RED / max(len(new), FEWEST_TESTS)),
            estimate + improved < -limit,
            (estimate + passed < limit) & (estimate + far < math.log1p(2 * rule.tolerance)),
        ],
        [REGRESSED, IMPROVED, PASSED],
        INCONCLUSIVE,
    )
    still = kind == INCONCLUSIVE
    futile = still & ~_may_decide(
        baseline, estimate, (process, error, freedom), count, rule, fewest
    )
    return Look(kind, spent, still & (estimate > limit) & (spent <= FALSE_RED), futile)


def _each(known: Floats, of: Callable[[float], float]) -> Floats:
    """What a plan says of each reference; it rounds what they are worth, so that few differ."""
    steps = np.round(np.log2(np.clip(known, LEAST_KNOWN, MOST_KNOWN)) * STEPS)
    unique, inverse = np.unique(steps, return_inverse=True)
    return np.array([of(2.0 ** (step / STEPS)) for step in unique])[inverse]


def _error(
    baseline: Baseline, squares: Floats, count: int, rule: Rule
) -> tuple[Floats, Floats, Floats]:
    """[tests]: the spread between new processes, the standard error of the difference, its degrees of freedom."""
    process = baseline.process(squares, count - 1)
    value, before = process.value, process.value
    parts = [(value**2 * (1 / count + baseline.of_process), process.freedom)]
    if count > FEWEST_UNEQUAL and baseline.inside >= FEWEST_UNEQUAL:
        own = np.maximum(LEAST_SPREAD**2, squares / (count - 1))
        old = np.maximum(LEAST_SPREAD**2, baseline.squares / baseline.inside)
        apart = special.fdtrc(count - 1, baseline.inside, own / old) <= UNEQUAL
        value, before = np.where(apart, np.sqrt(own), value), np.where(apart, np.sqrt(old), value)
        parts = [
            (
                np.where(apart, own / count, parts[0][0]),
                np.where(apart, count - 1, process.freedom),
            ),
            (
                np.where(apart, old * baseline.of_process, 0.0),
                np.full(len(squares), float(baseline.inside)),
            ),
        ]
        process = Spread(before, process.freedom)
    session = baseline.session(process, count - 1)
    between = session.value**2 * (1 + baseline.of_session)
    if baseline.alone:
        total = baseline.together()
        split = value < total.value
        parts = [
            (np.where(split, value**2 / count, parts[0][0]), process.freedom),
            (np.where(split, total.value**2 * baseline.of_process, 0.0), total.freedom),
        ]
        between = np.where(split, session.value**2, between)
    parts.append((between, session.freedom))
    if rule.device:
        parts.append(
            (np.full(len(squares), 2 * baseline.prior.device**2), np.full(len(squares), math.inf))
        )
    variance = np.sum([part for part, _ in parts], axis=0)
    doubt = np.sum([part**2 / freedom for part, freedom in parts], axis=0)
    return value, np.sqrt(variance), variance**2 / doubt


def _may_decide(
    baseline: Baseline,
    estimate: Floats,
    known: tuple[Floats, Floats, Floats],
    count: int,
    rule: Rule,
    fewest: int,
) -> Flags:
    looks, most = rule.looks, rule.looks.most
    process, error, freedom = known
    if count >= most or looks.ended:
        return np.zeros(len(estimate), dtype=bool)
    limit, worthy = math.log1p(rule.tolerance), math.log1p(WORTH_REPORTING * rule.tolerance)
    error = np.sqrt(np.maximum(error**2 + process**2 * (1 / most - 1 / count), 1e-12))
    freedom = freedom + (most - count)
    play = PLAY * process * math.sqrt(1 / count - 1 / most)
    passed = _each(baseline.worth, lambda worth: looks.pass_level(most, worth))
    green = estimate - play + special.stdtrit(freedom, 1 - passed) * error < limit
    level = FALSE_RED * _each(baseline.worth, lambda worth: looks.red_share(most, worth, fewest))
    surely = special.stdtrit(freedom, 1 - np.where(level > 0, level, 0.5)) * error
    red = (level > 0) & (estimate + play > limit) & (estimate + play - worthy > surely)
    slow = (estimate > limit) if looks.slow_only else np.ones(len(estimate), dtype=bool)
    return np.asarray(slow & (green | red))


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
    """A run: each round for what is open, then `settle`, and at last the last look for what is still open."""
    tests, most = len(new), min(rule.looks.most, new.shape[1])
    kinds, processes = np.zeros(tests, dtype=int), np.zeros(tests, dtype=int)
    spent, may, futile = np.ones(tests), np.zeros(tests, dtype=bool), np.zeros(tests, dtype=bool)
    held, course = np.ones(tests, dtype=bool), Course(kinds, processes, [])
    for count in range(1, most + 1):
        asked = held & (kinds == INCONCLUSIVE) & ~futile
        if not asked.any():
            break
        found = look(baseline, new, count, rule)
        for mine, theirs in (
            (kinds, found.kind),
            (spent, found.spent),
            (may, found.may_be_red),
            (futile, found.futile),
        ):
            mine[asked] = theirs[asked]
        processes[asked] = count
        _settle(kinds, spent, may & held)
        held &= (kinds == INCONCLUSIVE) & (may | (~futile & (count < most)))
        course.spent.append(spent.copy())
    ended = replace(rule, looks=replace(rule.looks, ended=True))
    for count in np.unique(processes[held]):
        asked, found = held & (processes == count), look(baseline, new, int(count), ended)
        for mine, theirs in ((kinds, found.kind), (spent, found.spent), (may, found.may_be_red)):
            mine[asked] = theirs[asked]
    _settle(kinds, spent, may & held)
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
    slower, tests, most = new + math.log1p(slowdown), len(new), min(rule.looks.most, new.shape[1])
    kinds, processes = np.full(tests, -1), np.zeros(tests, dtype=int)

    def red(index: int, p: float, count: int) -> bool:
        others = course.spent[min(count, len(course.spent)) - 1].copy()
        others[index] = p
        return bool(adjusted(others)[index] <= FALSE_RED)

    for count in range(1, most + 1):
        asked = kinds == -1
        if not asked.any():
            break
        found = look(baseline, slower, count, rule)
        for index in np.flatnonzero(asked):
            processes[index] = count
            if found.kind[index] != INCONCLUSIVE:
                kinds[index] = found.kind[index]
            elif found.may_be_red[index] and red(index, found.spent[index], count):
                kinds[index] = REGRESSED
            elif found.futile[index]:
                kinds[index] = -2 if found.may_be_red[index] else INCONCLUSIVE
    kinds[kinds == -1] = -2
    ended = replace(rule, looks=replace(rule.looks, ended=True))
    for count in np.unique(processes[kinds == -2]):
        found = look(baseline, slower, int(count), ended)
        for index in np.flatnonzero((kinds == -2) & (processes == count)):
            may = found.may_be_red[index] and red(index, found.spent[index], most)
            kinds[index] = REGRESSED if may else found.kind[index]
    return kinds


def without_shared(logs: Floats, shape: Sequence[int], new: Floats) -> tuple[Floats, Floats]:
    """Both sides without what all tests share, as `stats.shared` has it."""
    parts = np.split(logs, np.cumsum(shape)[:-1], axis=1)
    before = np.stack([part.mean(axis=1) for part in parts], axis=1)
    _, moved, now = followed(before, new[:, :1].mean(axis=1))
    return logs - np.repeat(moved, shape, axis=1), new - now[:, None]
