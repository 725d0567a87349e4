"""The rows of the table: set-ups that people have, each varying one thing; and what is counted of each."""

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import repeat

import numpy as np
from scipy import stats

from pytest_roofline.stats.looks import MOST_ROUNDS, Looks
from pytest_roofline.stats.spread import priors

from .drawing import Floats, Recorded, Setup, draw
from .twin import PASSED, REGRESSED, Baseline, Rule, default_looks, each_alone, run, without_shared

SHAPES = {
    "1 × 1": (1,),
    "2 × 1": (1,) * 2,
    "3 × 1": (1,) * 3,
    "5 × 1": (1,) * 5,
    "14 × 1": (1,) * 14,
    "3 × 5": (5,) * 3,
}
MAIN = ("3 × 1", "3 × 5", "14 × 1")
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
        rounds: `auto`, `default` or a number.
        goal: whether the goals are about it: three processes or more, on different days.
        shared: whether what tests share is taken out, as in a run of the plugin.
    """

    group: str
    name: str
    shape: str
    setup: Setup
    rounds: str = "auto"
    goal: bool = True
    shared: bool = False


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
                )
                for tails in (3, 2)
            ]
        for shape in ("1 × 1", "2 × 1", "5 × 1"):
            goal = shape == "5 × 1"
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
        beyond = Setup("mix", session=0.0, relative=1.0)
        found.append(Row("beyond", "mix, σ_s as large as σ_p", shape, beyond, goal=False))
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

    def add(self, other: "Count") -> None:
        """Take in another part of the row."""
        for name in ("tests", "suites", "red", "red_suites", "passed", "open", "processes"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for mine, theirs in ((self.alone, other.alone), (self.all_slower, other.all_slower)):
            for slowdown, counts in theirs.items():
                known = mine.setdefault(slowdown, [0, 0, 0])
                mine[slowdown] = [a + b for a, b in zip(known, counts, strict=True)]


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

    @property
    def alone(self) -> tuple[float, ...]:
        """Slowdowns of one test: the tolerance, 1.6 times and twice as much, four times as much."""
        return tuple(round(factor * self.tolerance, 9) for factor in (1, 1.6, 2, 4))


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
    return draw(rng, row.setup, plan.tests, shape)


def _suite(
    plan: Plan, row: Row, drawn: tuple[Floats, Floats], counted: Count, *, slowed: bool
) -> None:
    logs, new = drawn
    shape = SHAPES[row.shape]
    if row.shared:
        logs, new = without_shared(logs, shape, new)
    baseline = Baseline(logs, shape, priors()[plan.kind], sitting=row.setup.sitting, kind=plan.kind)
    rule = Rule(plan.tolerance, _looks(row, baseline, new.shape[1]), row.setup.device > 0)
    course = run(baseline, new, rule)
    red = int(np.sum(course.kinds == REGRESSED))
    counted.tests += len(new)
    counted.suites += 1
    counted.red += red
    counted.red_suites += red > 0
    counted.passed += int(np.sum(course.kinds == PASSED))
    counted.open += int(np.sum(course.kinds == 0))
    counted.processes += int(course.processes.sum())
    if not slowed:
        return
    for slowdown in plan.alone:
        kinds = each_alone(baseline, new, slowdown, rule, course)
        counted.alone[slowdown] = _tally(counted.alone.get(slowdown), kinds)
    slowdown = 2 * plan.tolerance
    kinds = run(baseline, new + math.log1p(slowdown), rule).kinds
    counted.all_slower[slowdown] = _tally(counted.all_slower.get(slowdown), kinds)


def _tally(known: list[int] | None, kinds: "np.typing.NDArray[np.int_]") -> list[int]:
    tests, red, passed = known or [0, 0, 0]
    return [
        tests + len(kinds),
        red + int(np.sum(kinds == REGRESSED)),
        passed + int(np.sum(kinds == PASSED)),
    ]


def _looks(row: Row, baseline: Baseline, there: int) -> Looks:
    """The plan; where fewer processes were recorded, a shorter one."""
    looks = default_looks(baseline) if row.rounds == "default" else None
    most = looks.most if looks else MOST_ROUNDS if row.rounds == "auto" else int(row.rounds)
    return Looks(min(most, there), slow_only=looks is not None)


def bounds(part: int, whole: int) -> tuple[float, float]:
    """Clopper and Pearson's 95 % interval of a share."""
    found = stats.binomtest(part, whole).proportion_ci(0.95, method="exact")
    return float(found.low), float(found.high)
