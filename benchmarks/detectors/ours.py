"""This plugin's rule: its own `judge` and `settle`, on suites whose processes come in one after the other."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from pytest_roofline.judging.looks import FALSE_RED, Looks
from pytest_roofline.judging.spread import Group
from pytest_roofline.judging.verdicts import Policy, Reference, Verdict, judge, settle

from .suites import Suite

Verdicts = dict[str, Verdict]


@dataclass(slots=True)
class Course:
    """One suite of unchanged code, judged after every new process, and what slower code would have changed in it.

    Args:
        looks: how many new processes at most.
        states: after each look at the unchanged suite, the verdicts that other tests' p may depend on.
    """

    suite: Suite
    tolerance: float
    looks: int
    states: list[Verdicts] = field(default_factory=list)
    _references: list[Reference] = field(default_factory=list)
    _judged: dict[tuple[int, int, float], Verdict] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._references = [Reference(case.baseline, "drawn") for case in self.suite.cases]

    def most(self, index: int) -> int:
        """How many looks a test can have: the cap of the run, or as many processes as there are."""
        return min(self.looks, len(self.suite.cases[index].new_s))

    def verdict(self, index: int, count: int, slowdown: float) -> Verdict:
        """What `judge` says of a test after so many new processes, each slower by a share of its time."""
        known = self._judged.get((index, count, slowdown))
        if known is None:
            case = self.suite.cases[index]
            group = Group(tuple(value * (1 + slowdown) for value in case.new_s[:count]), case.device)
            policy = Policy(self.tolerance, len(self.suite.cases), self.suite.prior, Looks(self.most(index)))
            known = self._judged[index, count, slowdown] = judge([group], self._references[index], policy)
        return known

    def everything(self, slowdown: float) -> list[Verdict]:
        """The verdicts where all tests are slower; undecided ones are judged again after each process."""
        verdicts: Verdicts = {}
        states = []
        undecided = list(range(len(self.suite.cases)))
        for count in range(1, self.looks + 1):
            undecided = [index for index in undecided if count <= self.most(index)]
            verdicts |= {str(index): self.verdict(index, count, slowdown) for index in undecided}
            verdicts = settled(verdicts, len(self.suite.cases))
            states.append(telling(verdicts))
            undecided = [index for index in undecided if not given_up(verdicts[str(index)])]
        if slowdown == 0:
            self.states = states
        return [verdicts[str(index)] for index in range(len(self.suite.cases))]

    def each_alone(self, slowdown: float) -> list[Verdict]:
        """The verdict on each test where it alone is slower and all others are as they were, look by look."""
        if not self.states:
            self.everything(0.0)
        return [self._alone(index, slowdown) for index in range(len(self.suite.cases))]

    def _alone(self, index: int, slowdown: float) -> Verdict:
        for count in range(1, self.most(index) + 1):
            verdict = self.verdict(index, count, slowdown)
            if verdict.may_be_red:
                verdict = settle(self.states[count - 1] | {str(index): verdict}, len(self.suite.cases))[str(index)]
            if given_up(verdict):
                break
        return verdict


def given_up(verdict: Verdict) -> bool:
    """Whether a run takes no further process of a test: its verdict is out, or hardly any could bring it."""
    return verdict.decided or verdict.futile


def telling(verdicts: Mapping[str, Verdict]) -> Verdicts:
    """Those that `settle` can turn red, or whose p can turn others red.

    Benjamini and Hochberg hold the largest p against the whole chance and all others against less, so a p above it
    neither is nor makes anything red; `settle` counts what it is not given as unchanged.
    """
    return {name: found for name, found in verdicts.items() if found.p_spent is not None and found.p_spent <= FALSE_RED}


def settled(verdicts: Verdicts, comparisons: int) -> Verdicts:
    """What `settle` makes of a suite's verdicts."""
    some = telling(verdicts)
    return verdicts | settle(some, comparisons) if any(verdict.may_be_red for verdict in some.values()) else verdicts
