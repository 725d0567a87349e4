"""The rows of the table: set-ups that people have, each varying one thing; and what is counted of each."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np
from scipy import stats

from pytest_roofline.core.verdicts import Group
from pytest_roofline.stats.analyses import MOST_ROUNDS, Analyses
from pytest_roofline.stats.odd_sessions import odd_sessions
from pytest_roofline.stats.spread import priors

from .drawing import NIGHT_SHARED, NIGHT_TAILS, NIGHTS, Floats, Recorded, Setup, draw
from .simple import RULES, Sides, red, red_alone
from .twin import (
    PASSED,
    REGRESSED,
    Baseline,
    Rule,
    default_analyses,
    each_alone,
    run,
    without_shared,
)

SHAPES = {
    "1 × 1": (1,),
    "2 × 1": (1,) * 2,
    "3 × 1": (1,) * 3,
    "5 × 1": (1,) * 5,
    "7 × 1": (1,) * 7,
    "14 × 1": (1,) * 14,
    "3 × 5": (5,) * 3,
}
MAIN = ("3 × 1", "3 × 5", "14 × 1")
# How much slower a test is made, alone and with all others: of a tolerance of 5 %, and of one of 3 %.
SLOWDOWNS, SMALL_SLOWDOWNS = (0.05, 0.08, 0.10, 0.20), (0.03, 0.05, 0.06, 0.12)
SMALL_TOLERANCE = 0.03
# Of the suites of a row, so many are also slowed: a hundredth of them is hundreds of tests.
SLOWED = 0.02
CHUNKS = 10


@dataclass(frozen=True, slots=True)
class Row:
    """One set-up.

    Args:
        group: of the table.
        name: in it.
        shape: of the baseline, by name.
        setup: how unchanged code differs.
        rounds: `auto`, `default`, a number, or a number of `nights` that are compared at once.
        goal: whether the goals are about it: three processes or more, on different days.
        shared: whether what tests share is taken out, as in a run of the plugin.
        small: whether the tolerance is 3 %.
    """

    group: str
    name: str
    shape: str
    setup: Setup
    rounds: str = "auto"
    goal: bool = True
    shared: bool = False
    small: bool = False

    @property
    def beside(self) -> bool:
        """Whether the simple rules are asked about the same suites."""
        return (self.rounds != "auto" and not self.rounds.isdigit()) or self.group == "odd"

    @property
    def nights(self) -> int:
        """How many new nights of one process each are compared; 0 for a run with rounds."""
        count, _, word = self.rounds.partition(" ")
        return int(count) if word else 0


def rows() -> list[Row]:
    """All of them."""
    found = []
    for spreads in ("calm", "mix"):
        base = Setup(spreads)
        for shape in MAIN:
            found += [
                Row("rounds", spreads, shape, base, rounds)
                for rounds in ("auto", "default", "3", "1")
            ]
            found += [
                Row(
                    "sessions",
                    f"{spreads}, σ_s {100 * session:g} %",
                    shape,
                    replace(base, session=session),
                )
                for session in (0.0, 0.01, 0.02)
            ]
            half = replace(base, session=0.0, relative=0.5)
            found.append(Row("sessions", f"{spreads}, σ_s half of σ_p", shape, half))
            found += [
                Row(
                    "devices",
                    f"{spreads}, σ_g {100 * device:g} %",
                    shape,
                    replace(base, device=device),
                )
                for device in (0.01, 0.03)
            ]
            found += [
                Row(
                    "tails",
                    f"{spreads}, t of {tails} degrees of freedom",
                    shape,
                    replace(base, tails=tails),
                    rounds,
                )
                for tails in (3, 2)
                for rounds in ("auto", "default")
            ]
            found.append(Row("sessions", f"{spreads}, σ_s half of σ_p", shape, half, "default"))
        for tails, told in ((math.inf, spreads), (3, f"{spreads}, t of 3 degrees of freedom")):
            setup = replace(base, tails=tails)
            found += [
                Row("small", told, shape, setup, small=True, rounds=rounds)
                for shape in ("3 × 5", "14 × 1")
                for rounds in ("default", "auto")
            ]
        for shape in ("1 × 1", "2 × 1", "5 × 1", "7 × 1"):
            goal = shape in ("5 × 1", "7 × 1")
            found += [
                Row("few", spreads, shape, base, rounds, goal) for rounds in ("auto", "default")
            ]
    for shape in MAIN:
        for share in (0.15, 0.50):
            told = f"{share:.0%} of processes".replace("%", " %")
            found.append(Row("modes", f"every test, {told}", shape, Setup(modes=share)))
            found.append(
                Row("modes", f"10 of 100 tests, {told}", shape, Setup(modes=share, moody=0.1))
            )
        found.append(
            Row("sitting", "calm, σ_s 2 %", shape, Setup(session=0.02, sitting=True), goal=False)
        )
        for shared, told in ((False, "left in"), (True, "taken out")):
            common = Setup(session=0.0, shared=0.01)
            found.append(
                Row("shared", f"calm, 1 % shared by all, {told}", shape, common, shared=shared)
            )
        found.append(Row("shared", "calm, nothing shared, taken out", shape, Setup(), shared=True))
        for spreads in ("calm", "mix"):
            quiet = Setup(spreads, sitting=True, louder=3.0)
            found += [Row("quiet", spreads, shape, quiet, rounds) for rounds in ("default", "auto")]
        beyond = Setup("mix", session=0.0, relative=1.0)
        found.append(Row("beyond", "mix, σ_s as large as σ_p", shape, beyond, goal=False))
    for shape in ("3 × 5", "14 × 1"):
        for share in (0.0, 0.05, 0.1, 0.2, 0.5):
            told = f"calm, {100 * share:g} % of the tests"
            found.append(Row("odd", told, shape, Setup(odd=share), shared=True))
    for spreads in NIGHTS:
        setup = Setup(spreads, session=0.0, shared=NIGHT_SHARED, tails=NIGHT_TAILS)
        found += [Row("nights", spreads, "14 × 1", setup, f"{count} nights") for count in (3, 4, 5)]
    return found


@dataclass(slots=True)
class Count:
    """What was seen of a row.

    Args:
        tests, suites: unchanged ones; `red` and `red_suites` of them.
        passed, open: of the unchanged tests, PASSED and INCONCLUSIVE.
        processes: that they took.
        alone: by slowdown, tests that alone were slower: how many, REGRESSED, PASSED.
        all_slower: the same where all tests are slower.
        simple: by simple rule: suites, red ones, tests that alone were slower, and found by each slowdown.
    """

    tests: int = 0
    suites: int = 0
    red: int = 0
    red_suites: int = 0
    passed: int = 0
    open: int = 0
    processes: int = 0
    alone: dict[float, list[int]] = field(default_factory=dict)
    all_slower: dict[float, list[int]] = field(default_factory=dict)
    simple: dict[str, list[int]] = field(default_factory=dict)

    def add(self, other: "Count") -> None:
        """Take in another part of the row."""
        for name in ("tests", "suites", "red", "red_suites", "passed", "open", "processes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, theirs in ((self.alone, other.alone), (self.all_slower, other.all_slower)):
            for slowdown, counts in theirs.items():
                known = mine.setdefault(slowdown, [0, 0, 0])
                mine[slowdown] = [a + b for a, b in zip(known, counts, strict=True)]
        for name, counts in other.simple.items():
            known = self.simple.setdefault(name, [0] * len(counts))
            self.simple[name] = [a + b for a, b in zip(known, counts, strict=True)]


@dataclass(frozen=True, slots=True)
class Plan:
    """How much to draw.

    Args:
        suites: of each row.
        tests: of each suite; of recorded processes as many as there are benchmarks.
        tolerance: of time.
        kind: the class, whose starting values stand.
        seed: of everything.
        recorded: processes that really ran, in place of made-up ones.
    """

    suites: int
    tests: int
    tolerance: float
    kind: str
    seed: int
    recorded: Recorded | None = None

    def tolerance_of(self, row: Row) -> float:
        """Return the tolerance of a row."""
        return SMALL_TOLERANCE if row.small else self.tolerance

    def slowdowns(self, row: Row) -> tuple[float, ...]:
        """Return by how much a row's tests are slowed: the tolerance, 1.6 times, twice and four times as much."""
        if row.small:
            return SMALL_SLOWDOWNS
        scale = self.tolerance / SLOWDOWNS[0]
        return tuple(round(scale * slowdown, 9) for slowdown in SLOWDOWNS)


def count_all(plan: Plan, wanted: Sequence[Row], jobs: int) -> Iterator[Count]:
    """The counts of each row, in their order."""
    tasks = [(row, part) for row in wanted for part in range(CHUNKS)]
    with ProcessPoolExecutor(max_workers=jobs) as pool:
        parts = pool.map(_part, repeat(plan), *zip(*tasks, strict=True))
        for _ in wanted:
            whole = Count()
            for _ in range(CHUNKS):
                whole.add(next(parts))
            yield whole


def _part(plan: Plan, row: Row, part: int) -> Count:
    """A tenth of a row's suites."""
    first, last = plan.suites * part // CHUNKS, plan.suites * (part + 1) // CHUNKS
    counted = Count()
    for number in range(first, last):
        # The same suites for all rules of rounds, so that rows differ by the rule alone.
        rng = np.random.default_rng(
            [plan.seed, number, *(ord(letter) for letter in f"{row.name}{row.shape}")]
        )
        slowed = number < max(1, round(SLOWED * plan.suites))
        _suite(plan, row, _drawn(plan, row, rng), counted, slowed=slowed)
    return counted


def _drawn(plan: Plan, row: Row, rng: np.random.Generator) -> tuple[Floats, Floats]:
    shape = SHAPES[row.shape]
    if plan.recorded is not None:
        return plan.recorded.draw(rng, row.setup, shape)
    if row.nights:
        logs, _ = draw(rng, row.setup, plan.tests, (1,) * (len(shape) + row.nights))
        return logs[:, : len(shape)], logs[:, len(shape) :]
    return draw(rng, row.setup, plan.tests, shape)


def _suite(
    plan: Plan, row: Row, drawn: tuple[Floats, Floats], counted: Count, *, slowed: bool
) -> None:
    logs, new = drawn
    shape, tolerance = SHAPES[row.shape], plan.tolerance_of(row)
    logs, new = _without_odd(row, logs, new)
    if row.shared:
        logs, new = without_shared(logs, shape, new)
    baseline = Baseline(logs, shape, priors()[plan.kind], sitting=row.setup.sitting, kind=plan.kind)
    analyses = _analyses(row, baseline, new.shape[1])
    rule = Rule(tolerance, analyses, row.setup.device > 0, row.nights)
    # Of an odd session the tests that had nothing to do with it are counted.
    untouched = slice(round(row.setup.odd * plan.tests) - (plan.tests - len(new)), None)
    course = run(baseline, new, rule)
    kinds = course.kinds[untouched]
    red = int(np.sum(kinds == REGRESSED))
    counted.tests += len(kinds)
    counted.suites += 1
    counted.red += red
    counted.red_suites += red > 0
    counted.passed += int(np.sum(kinds == PASSED))
    counted.open += int(np.sum(kinds == 0))
    counted.processes += int(course.processes[untouched].sum())
    if row.beside:
        _count_simple(
            plan, row, Sides(logs[untouched], new[untouched], shape, tolerance), counted, slowed
        )
    if not slowed:
        return
    slowdowns = plan.slowdowns(row)
    for slowdown in slowdowns:
        kinds = each_alone(baseline, new, slowdown, rule, course)[untouched]
        counted.alone[slowdown] = _tally(counted.alone.get(slowdown), kinds)
    for slowdown in slowdowns[2:]:
        kinds = run(baseline, new + math.log1p(slowdown), rule).kinds[untouched]
        counted.all_slower[slowdown] = _tally(counted.all_slower.get(slowdown), kinds)


def _count_simple(plan: Plan, row: Row, sides: Sides, counted: Count, slowed: bool) -> None:
    """Count what the simple rules say of the same suite."""
    slowdowns = plan.slowdowns(row)
    for name, rule in RULES.items():
        p = rule(sides)
        counts = counted.simple.setdefault(name, [0] * (3 + len(slowdowns)))
        counts[0] += 1
        counts[1] += bool(red(p).any())
        if not slowed:
            continue
        counts[2] += len(p)
        for place, slowdown in enumerate(slowdowns, 3):
            slower = replace(sides, new=sides.new + math.log1p(slowdown))
            counts[place] += red_alone(p, rule(slower))


def _without_odd(row: Row, logs: Floats, new: Floats) -> tuple[Floats, Floats]:
    """Return both sides without the tests that the plugin takes an odd session from, whose baselines are shorter."""
    if not row.setup.odd:
        return logs, new
    shape = SHAPES[row.shape]
    tests = {
        str(number): [
            Group(tuple(np.exp(part).tolist()), "", f"2026-01-{day:02}T03:00:00Z")
            for day, part in enumerate(np.split(one, np.cumsum(shape)[:-1]), 1)
        ]
        for number, one in enumerate(logs)
    }
    odd = odd_sessions(tests, dict.fromkeys(tests, "device"))
    spoiled = {int(name) for strange in odd.values() for name in strange}
    kept = [number for number in range(len(logs)) if number not in spoiled]
    return logs[kept], new[kept]


def _tally(known: list[int] | None, kinds: "np.typing.NDArray[np.int_]") -> list[int]:
    tests, red, passed = known or [0, 0, 0]
    return [
        tests + len(kinds),
        red + int(np.sum(kinds == REGRESSED)),
        passed + int(np.sum(kinds == PASSED)),
    ]


def _analyses(row: Row, baseline: Baseline, there: int) -> Analyses:
    """The plan; where fewer processes were recorded, a shorter one."""
    if row.nights:
        return Analyses(1)
    analyses = default_analyses(baseline) if row.rounds == "default" else None
    most = analyses.most if analyses else MOST_ROUNDS if row.rounds == "auto" else int(row.rounds)
    return Analyses(min(most, there), slow_only=analyses is not None)


def bounds(part: int, whole: int) -> tuple[float, float]:
    """Clopper and Pearson's 95 % interval of a share."""
    found = stats.binomtest(part, whole).proportion_ci(0.95, method="exact")
    return float(found.low), float(found.high)
