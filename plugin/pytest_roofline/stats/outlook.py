"""The outlook of a comparison: its strictness, and the effect of more processes on it.

The statistics are those of `stats` and `spread`, the chances of error those of `analyses`.
"""

import math
from dataclasses import dataclass, field, replace

from ..core.errors import MOST_TOLERANCE
from ..core.reasons import Reason, ReasonCode
from ..core.verdicts import Difference, Reference
from .analyses import (
    FALSE_RED,
    FEWEST_TESTS,
    SECOND_ANALYSIS,
    SUGGESTED_COUNTS,
    Analyses,
    rounds_for,
)
from .spread import ENOUGH_SESSIONS, Prior, join_days, priors
from .stats import CONFIDENCE, foreseen_error, growth, quantile

# By class of benchmark: copies by the host scatter so much that a smaller tolerance cannot be judged.
DEFAULT_TOLERANCES = {"device": 0.05, "program": 0.05, "host": 0.15}
DEFAULT_TOLERANCE = DEFAULT_TOLERANCES["device"]
# The smallest slowdown worth reporting, as a share of the tolerance: a red test is surely slower by more than this.
WORTH_REPORTING = 0.4
# The chance with which the detectable effect is found.
POWER = 0.8
# How far the processes to come may move the centre, in standard errors. What cannot be decided so is given up.
PLAY = 1.0
# An estimate that lies fewer standard errors from the tolerance than this is not decided by more processes alone.
NEAR = 3.0


@dataclass(frozen=True, slots=True)
class Policy:
    """The strictness of a run: tolerance of time, number of comparisons, prior and analyses."""

    tolerance: float = DEFAULT_TOLERANCE
    comparisons: int = 1
    prior: Prior = field(default_factory=lambda: priors()["device"])
    analyses: Analyses = field(default_factory=Analyses)


def detectable_effect(difference: Difference) -> float:
    """Return the minimum detectable effect, as a share of time.

    It is found 80 times in 100 at the 1 % level.
    """
    return growth(
        (quantile(CONFIDENCE, difference.degrees) + quantile(POWER, difference.degrees))
        * difference.error
    )


@dataclass(frozen=True, slots=True)
class Outlook:
    """A comparison under the policy of its run: the verdicts that more processes could bring.

    Args:
        count: how many new processes there are.
        processes_for_red: how many of them red needs.
        unseen: whether the new processes lie beyond everything that the baseline has shown.
        hot: log seconds by which further rounds lie above the first; 0 where that may be chance.
    """

    difference: Difference
    reference: Reference
    policy: Policy
    count: int
    processes_for_red: int
    unseen: bool
    hot: float = 0.0

    @property
    def needed(self) -> int:
        """Return how many new processes of the test REGRESSED needs with these times.

        Times that the baseline has shown before may be its slow mode, so they need at least five.
        """
        return (
            self.processes_for_red if self.unseen else max(self.processes_for_red, SECOND_ANALYSIS)
        )

    @property
    def limit(self) -> float:
        """Return the tolerance, in log seconds."""
        return math.log1p(self.policy.tolerance)

    @property
    def worthy(self) -> float:
        """Return the smallest slowdown worth reporting, in log seconds."""
        return math.log1p(WORTH_REPORTING * self.policy.tolerance)

    @property
    def looks_slow(self) -> bool:
        """Return True where the estimate lies beyond the tolerance."""
        return self.difference.estimate > self.limit

    def bound_at(self, processes: int, level: float) -> float:
        """Return the distance of a one-sided bound from the test's estimate, in log seconds.

        It is foreseen for so many processes, at a chance of error of `level`.
        """
        error, freedom = foreseen_error(self.difference, self.count, processes)
        return quantile(1 - level, freedom) * error

    @property
    def reach(self) -> float | None:
        """Return the detectable effect after all rounds, or None.

        It is found 80 times in 100. A slowdown is found if its estimate lies beyond the tolerance and
        it is surely worth reporting. None where the run takes too few processes for red.
        """
        analyses = self.policy.analyses
        most = self.count if analyses.ended else max(self.count, analyses.most)
        if most < self.processes_for_red:
            return None
        # An estimate beyond this is surely worth reporting.
        least = self.worthy + self.bound_at(most, self._red_level)
        # A true slowdown must lie that much higher to be estimated there 80 times in 100.
        return growth(max(self.limit, least) + self.bound_at(most, 1 - POWER))

    @property
    def _red_level(self) -> float:
        """Return the chance of error of red for one test, at one analysis.

        No other test is taken to be slower.
        """
        tests = max(self.policy.comparisons, FEWEST_TESTS)
        return FALSE_RED / tests / self.policy.analyses.red_analyses(self.processes_for_red)

    @property
    def may_decide(self) -> bool:
        """Return True where a later analysis of the same run could decide.

        A test that looks slow could be red. Another could be green if its centre moves by one standard
        error.
        """
        analyses, count, most = self.policy.analyses, self.count, self.policy.analyses.most
        if count >= most or analyses.ended:
            return False
        # Where no analysis is due yet, nothing was decided, so the next one still can.
        if self.looks_slow or not analyses.due(count):
            return True
        # Further processes follow only for a test that looks slow, which this one does not.
        if analyses.slow_only:
            return False
        # How far the mean of all processes to come may lie from that of the present ones.
        play = PLAY * self.difference.process.value * math.sqrt(1 / count - 1 / most)
        return self._may_pass(most, play)

    def _may_pass(self, processes: int, play: float = 0.0) -> bool:
        """Return True where the test could be green after so many processes.

        The centre may move by `play` log seconds; the spreads stay the same.
        """
        # The levels are those of IMPROVED, and of PASSED at the tolerance and at twice the tolerance. A test that
        # could be IMPROVED could also be PASSED, so only the middle one is tried.
        _, level, _ = self.policy.analyses.levels(processes)
        return self.difference.estimate - play + self.bound_at(processes, level) < self.limit

    def _decides(self, processes: int) -> bool:
        """Return True where the test would be green or red after so many processes.

        Neither the centre nor the spreads move.
        """
        if self._may_pass(processes):
            return True
        may_be_red = self.looks_slow and processes >= self.needed
        # Red needs an estimate that is surely beyond the smallest slowdown worth reporting.
        return may_be_red and self.difference.estimate - self.worthy > self.bound_at(
            processes, self._red_level
        )

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Return why a test is undecided: its interval, or its slowdown, and a remedy."""
        may_be = Reason(ReasonCode.MAY_BE)
        # Rounds that heated up look slow by themselves, so more of them would not help.
        if self.hot and self.looks_slow:
            return Reason(ReasonCode.HOT_ROUNDS), may_be
        if self.looks_slow and self.count < self.needed:
            return Reason(ReasonCode.RED_NEEDS_ROUNDS, {"processes": self.needed}), may_be
        remedy = self._remedy
        return may_be, replace(remedy, numbers=remedy.numbers | self._wider)

    @property
    def _wider(self) -> dict[str, int | float]:
        """Return the tolerance that could be judged, in percent, for a reason.

        It is empty where the test looks slow, or where no tolerance that is allowed is wide enough.
        """
        most = max(self.count, self.policy.analyses.most)
        # The first level is that of IMPROVED, which needs no tolerance.
        _, near, far = (
            self.difference.estimate + self.bound_at(most, level)
            for level in self.policy.analyses.levels(most)
        )
        # As PASSED needs it: one bound below the tolerance, the other below twice the tolerance.
        needed = max(growth(near), growth(far) / 2)
        # At least one percent more than now; rounded first, since 100 times 0.58 is less than 58.
        percent = max(
            math.ceil(100 * needed), math.floor(round(100 * self.policy.tolerance, 6)) + 1
        )
        if self.looks_slow or percent > 100 * MOST_TOLERANCE:
            return {}
        return {"tolerance_percent": percent}

    @property
    def _remedy(self) -> Reason:
        """Return the remedy: more processes if they would decide, else a better baseline."""
        difference = self.difference
        # Where no number of new processes decides, the reason names what the baseline has too little of.
        for processes in SUGGESTED_COUNTS:
            if processes > self.count and self._decides(processes):
                return Reason(ReasonCode.NEEDS_ROUNDS, {"processes": rounds_for(processes)})
        if difference.device is not None:
            return Reason(ReasonCode.OTHER_DEVICES, {"spread": difference.device.value})
        days = len(join_days(self.reference.groups))
        if days < ENOUGH_SESSIONS:
            return Reason(ReasonCode.FEW_DAYS, {"days": days})
        most_processes = SUGGESTED_COUNTS[-1]
        error, _ = foreseen_error(difference, self.count, most_processes)
        is_near = error * NEAR > abs(difference.estimate - self.limit)
        return Reason(ReasonCode.FEW_PROCESSES if is_near else ReasonCode.FEW_SESSIONS)
