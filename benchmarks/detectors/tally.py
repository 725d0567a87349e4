"""Counting what rules say, with the intervals that go with counts, and what each count stands for."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from scipy import stats

from pytest_roofline.judging.verdicts import Kind, Verdict

KINDS = ("REGRESSED", "PASSED", "IMPROVED", "INCONCLUSIVE")
OURS = "pytest-roofline"
CONFIDENCE = 0.95


@dataclass(frozen=True, slots=True)
class Cell:
    """What was counted.

    Args:
        setting: `all` where every test of a suite is slower, `alone` where one is in an otherwise unchanged suite,
            `single` for a rule that looks at tests one by one, so that the two are the same.
        tolerance: None for a rule that has none.
        slowdown: share of time; 0 is unchanged code.
    """

    rule: str
    setting: str
    tolerance: float | None
    slowdown: float


@dataclass(slots=True)
class Tally:
    """Verdicts on tests drawn, and suites of them.

    Args:
        counts: tests by verdict. For another tool, PASSED is "not called different".
        processes: tests by how many new processes they took.
        rounds: suites by how many processes their run started.
        unsaid: tests left undecided without the sentence that says what would decide them.
    """

    counts: Counter[str] = field(default_factory=Counter)
    processes: Counter[int] = field(default_factory=Counter)
    suites: int = 0
    red: int = 0
    rounds: Counter[int] = field(default_factory=Counter)
    unsaid: int = 0

    @classmethod
    def of_verdicts(cls, verdicts: Iterable[Verdict], *, suite: bool) -> "Tally":
        """Of one suite's verdicts; `suite` is false where they belong to no common one."""
        found = list(verdicts)
        counts = Counter(verdict.kind.name for verdict in found)
        processes = Counter(verdict.processes for verdict in found)
        unsaid = sum(verdict.kind is Kind.INCONCLUSIVE and not verdict.reason for verdict in found)
        rounds = Counter([max(processes)]) if suite else Counter()
        return cls(counts, processes, int(suite), int(suite and counts["REGRESSED"] > 0), rounds, unsaid)

    @classmethod
    def of_calls(cls, calls: Iterable[int], processes: int, *, suite: bool) -> "Tally":
        """Of the answers of another rule: +1 slower, -1 faster, 0 neither."""
        names = Counter({1: "REGRESSED", -1: "IMPROVED", 0: "PASSED"}[int(call)] for call in calls)
        took = Counter({processes: sum(names.values())})
        rounds = Counter([processes]) if suite else Counter()
        return cls(names, took, int(suite), int(suite and names["REGRESSED"] > 0), rounds)

    def add(self, other: "Tally") -> None:
        """Take another's counts in."""
        for name in ("counts", "processes", "rounds"):
            getattr(self, name).update(getattr(other, name))
        self.suites += other.suites
        self.red += other.red
        self.unsaid += other.unsaid

    @property
    def tests(self) -> int:
        """How many tests were drawn."""
        return sum(self.counts.values())

    @property
    def mean_processes(self) -> float:
        """New processes per test."""
        return sum(count * tests for count, tests in self.processes.items()) / self.tests

    def processes_at(self, share: float) -> int:
        """So many new processes, or fewer, sufficed for this share of the tests."""
        reached = 0
        for count in sorted(self.processes):
            reached += self.processes[count]
            if reached >= share * self.tests:
                break
        return count

    @property
    def mean_rounds(self) -> float:
        """Processes that the run of a suite started."""
        return sum(count * suites for count, suites in self.rounds.items()) / self.suites

    def share(self, kind: str) -> "Share":
        """Of the tests."""
        return Share(self.counts[kind], self.tests)

    @property
    def different(self) -> "Share":
        """Of the tests, those called slower or faster."""
        return Share(self.counts["REGRESSED"] + self.counts["IMPROVED"], self.tests)

    @property
    def decided(self) -> "Share":
        """Of the tests, those that more processes would tell nothing."""
        return Share(self.tests - self.counts["INCONCLUSIVE"], self.tests)

    @property
    def red_suites(self) -> "Share":
        """Of the suites, those with any test REGRESSED."""
        return Share(self.red, self.suites)


@dataclass(frozen=True, slots=True)
class Share:
    """So many of so many."""

    count: int
    of: int

    @property
    def rate(self) -> float:
        """As a share."""
        return self.count / self.of

    @property
    def bounds(self) -> tuple[float, float]:
        """Clopper and Pearson's two-sided 95 % interval."""
        low, high = stats.binomtest(self.count, self.of).proportion_ci(CONFIDENCE, method="exact")
        return float(low), float(high)

    def __str__(self) -> str:
        low, high = self.bounds
        return f"{_percent(self.rate)} ({_percent(low)}–{_percent(high)})"


def _percent(share: float) -> str:
    """Two decimals where they matter."""
    percent = 100 * share
    return f"{percent:.2f}" if percent < 10 else f"{percent:.1f}"


Tallies = dict[Cell, Tally]


def merge(into: Tallies, other: Tallies) -> None:
    """Add all of another's counts."""
    for cell, tally in other.items():
        into.setdefault(cell, Tally()).add(tally)


def row(data: str, cell: Cell, tally: Tally, seed: int, unusable: Iterable[str]) -> dict[str, Any]:
    """One cell for machines."""
    shares = {kind: tally.share(kind) for kind in KINDS}
    suites = tally.red_suites if tally.suites else None
    return {
        "data": data,
        "rule": cell.rule,
        "setting": cell.setting,
        "tolerance": cell.tolerance,
        "slowdown": cell.slowdown,
        "tests": tally.tests,
        "counts": {kind: share.count for kind, share in shares.items()},
        "rates": {kind: share.rate for kind, share in shares.items()},
        "bounds": {kind: share.bounds for kind, share in shares.items()},
        "mean_processes": tally.mean_processes,
        "suites": tally.suites,
        "suites_red": suites.count if suites else None,
        "suites_red_rate": suites.rate if suites else None,
        "suites_red_bounds": suites.bounds if suites else None,
        "undecided_without_sentence": tally.unsaid,
        "seed": seed,
        "unusable": list(unusable),
    }
