"""What a detector has to reach, and whether the counts say that it does."""

from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from .tally import OURS, Cell, Share, Tallies, Tally

FALSE_RED, FALSE_RED_BOUND, RED_SUITES = 0.002, 0.005, 0.05
# By tolerance: the slowdowns that must be found, and how often.
POWER = {0.03: {0.05: 0.80, 0.10: 0.95}, 0.05: {0.10: 0.92}}
PASSED_AT_TOLERANCE, PASSED_AT_TWICE = 0.05, 0.005
UNCHANGED_TOLERANCE, UNCHANGED_PASSED, UNCHANGED_PROCESSES = 0.05, 0.92, 4.0
CLAIMS = {
    "1": "false REGRESSED per unchanged test at most 0.2 %, upper bound at most 0.5 %; "
    "at most 5 % of unchanged suites red",
    "2": "found, with δ = 3 %: +5 % at least 80 %, +10 % at least 95 %; with δ = 5 %: +10 % at least 92 %",
    "3": "wrongly PASSED at exactly δ at most 5 %, at 2 δ at most 0.5 %",
    "4": "with δ = 5 %, at least 92 % of unchanged tests PASSED after at most 4.0 new processes on average, and no "
    "test left undecided without the sentence that says what would decide it",
    "another device": "at most 5 % of unchanged suites red on a device that the baseline does not hold",
    "another session": "at most 5 % of unchanged suites red, and wrongly PASSED at exactly δ at most 5 %",
    "same device": "+4 % found with δ = 3 %, at least 80 %",
}
PAIRED_FOUND = 0.80


@dataclass(frozen=True, slots=True)
class Finding:
    """One criterion on one data set: what was counted, and whether it reaches what was asked for."""

    criterion: str
    data: str
    figures: str
    holds: bool

    def row(self) -> dict[str, Any]:
        """For machines."""
        return asdict(self)


def findings(data: Mapping[str, Tallies], typical: set[str]) -> list[Finding]:
    """Every criterion on every data set that it is about.

    Args:
        data: the counts by name of the data set.
        typical: those that a mix of tests stands behind, which the power figures (2 and 4) are about.
    """
    found: list[Finding] = []
    for name, tallies in data.items():
        found += [_finding("1", name, part) for part in _unchanged(tallies)]
        found += [_finding("3", name, part) for part in _wrongly_passed(tallies)]
        if name in typical:
            found += [_finding("2", name, part) for part in _power(tallies)]
            found += [_finding("4", name, part) for part in _quick(tallies)]
    return sorted(found, key=lambda finding: finding.criterion)


def device_findings(data: Mapping[str, Tallies]) -> list[Finding]:
    """Whether suites stay green on other devices."""
    return [
        _finding(
            "another device",
            name,
            (f"δ {percent(cell.tolerance)}: {tally.red_suites} % of suites red", _few_red(tally)),
        )
        for name, tallies in data.items()
        for cell, tally in tallies.items()
        if cell.slowdown == 0
    ]


def paired_findings(data: Mapping[str, Tallies]) -> list[Finding]:
    """Whether a small slowdown is found on the device of the baseline."""
    found = []
    for name, tallies in data.items():
        for cell, tally in tallies.items():
            if cell.slowdown:
                share = tally.share("REGRESSED")
                figures = f"{_how(cell)}: {share} % found"
                found.append(_finding("same device", name, (figures, share.rate >= PAIRED_FOUND)))
    return found


def session_findings(data: Mapping[str, Tallies]) -> list[Finding]:
    """Whether the rates of error stand where sessions differ."""
    found = []
    for name, tallies in data.items():
        found += [_finding("another session", name, part) for part in _red_and_green(tallies)]
    return found


def _red_and_green(tallies: Tallies) -> Iterator[tuple[str, bool]]:
    for cell, tally in tallies.items():
        if cell.slowdown == 0:
            yield f"δ {percent(cell.tolerance)}: {tally.red_suites} % of suites red", _few_red(tally)
        elif cell.slowdown == cell.tolerance and cell.setting == "alone":
            share = tally.share("PASSED")
            figures = f"δ {percent(cell.tolerance)}, +{percent(cell.slowdown)}: {share} % PASSED"
            yield figures, share.rate <= PASSED_AT_TOLERANCE


def _how(cell: Cell) -> str:
    return "all slower" if cell.setting == "all" else "one slower"


def _few_red(tally: Tally) -> bool:
    return tally.red_suites.rate <= RED_SUITES


def _finding(criterion: str, data: str, part: tuple[str, bool]) -> Finding:
    return Finding(criterion, data, *part)


def ours(
    tallies: Tallies, tolerance: float | None = None, slowdown: float | None = None
) -> Iterator[tuple[Cell, Tally]]:
    """The counts of this plugin's rule, of one tolerance and slowdown where they are given."""
    for cell, tally in tallies.items():
        if cell.rule == OURS and tolerance in (None, cell.tolerance) and slowdown in (None, cell.slowdown):
            yield cell, tally


def _unchanged(tallies: Tallies) -> Iterator[tuple[str, bool]]:
    for cell, tally in ours(tallies, slowdown=0.0):
        red, suites = tally.share("REGRESSED"), tally.red_suites
        holds = red.rate <= FALSE_RED and red.bounds[1] <= FALSE_RED_BOUND and _few_red(tally)
        yield f"δ {percent(cell.tolerance)}: {red} % of tests, {suites} % of suites red", holds


def _power(tallies: Tallies) -> Iterator[tuple[str, bool]]:
    for tolerance, wanted in POWER.items():
        for slowdown, least in wanted.items():
            for cell, tally in ours(tallies, tolerance, slowdown):
                share = tally.share("REGRESSED")
                yield f"δ {percent(tolerance)}, +{percent(slowdown)}, {_how(cell)}: {share} %", share.rate >= least


def _wrongly_passed(tallies: Tallies) -> Iterator[tuple[str, bool]]:
    for tolerance in {cell.tolerance: None for cell, _ in ours(tallies)}:
        assert tolerance is not None
        for factor, most in ((1, PASSED_AT_TOLERANCE), (2, PASSED_AT_TWICE)):
            shares = [tally.share("PASSED") for _, tally in ours(tallies, tolerance, round(factor * tolerance, 9))]
            worst: Share = max(shares, key=lambda share: share.rate)
            yield f"δ {percent(tolerance)}, +{percent(factor * tolerance)}: {worst} %", worst.rate <= most


def _quick(tallies: Tallies) -> Iterator[tuple[str, bool]]:
    for _, tally in ours(tallies, UNCHANGED_TOLERANCE, 0.0):
        share, processes = tally.share("PASSED"), tally.mean_processes
        unsaid = sum(other.unsaid for _, other in ours(tallies))
        quick = share.rate >= UNCHANGED_PASSED and processes <= UNCHANGED_PROCESSES and unsaid == 0
        yield f"{share} % PASSED after {processes:.2f} processes, {unsaid} left undecided without the sentence", quick


def percent(share: float | None) -> str:
    """`5 %`."""
    assert share is not None
    return f"{100 * share:g} %"
