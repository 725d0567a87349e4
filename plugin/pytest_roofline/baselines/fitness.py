"""The rule by which measurements of a run are unfit for a comparison or a baseline.

It needs few fields of a run file, so that a reader of thousands of files applies the same rule as `Run`.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from ..core.records import Outcome
from ..core.samples import CANARY, MOST_EXCLUDED, OVERSUBSCRIBED, PROFILED, SIBLINGS
from ..core.verdicts import Kind

# By label, why a measurement with this label must not be compared.
UNFIT_LABELS = {
    OVERSUBSCRIBED: "there were more ranks than cores, so the time is mostly the scheduler's",
    PROFILED: "a profiler was attached, or had been in the same process; measure without a profiler",
    SIBLINGS: "the device is one of several that are only compared with each other in the same run",
}
# The most characters of a failure's message: it may fill a screen otherwise.
LONGEST_REASON = 160


def drill_of(command: Iterable[str]) -> str:
    """Return the slowdown of a drill, as the command of its run gives it: `30%`.

    A drill slows a function down on purpose. It is empty for a run without one.
    """
    # The share follows `=`, or is the next word. The empty word gives the last one a successor.
    words = pairwise([*command, ""])
    shares = (
        word.partition("=")[2] or after
        for word, after in words
        if word.startswith("--roofline-drill")
    )
    return next(shares, "")


def not_passed_of(outcomes: Iterable[Outcome]) -> dict[str, Outcome]:
    """Return the outcome of each test that did not pass, by its id.

    A rerun that passed does not undo a failure.
    """
    worst: dict[str, Outcome] = {}
    for outcome in outcomes:
        earlier = worst.get(outcome.test_id)
        # A failure by the test itself counts more than one by a verdict, whichever came first.
        if outcome.outcome != "passed" and (earlier is None or earlier.by_verdict):
            worst[outcome.test_id] = outcome
    return worst


def spoiled_reasons_of(attempts: Sequence[tuple[str, str, str]]) -> dict[str, str]:
    """Return why no measurement of a key counts, by key.

    None counts where over half of its processes are invalid. An attempt is key, process, and the
    reason why it is invalid; empty where it is valid.
    """
    processes = {(key, process) for key, process, _ in attempts}
    valid = {(key, process) for key, process, invalid in attempts if not invalid}
    totals, valid_counts = (Counter(key for key, _ in pairs) for pairs in (processes, valid))
    return {
        key: f"{total - valid_counts[key]} of {total} processes were invalid"
        for key, total in totals.items()
        if total - valid_counts[key] > MOST_EXCLUDED * total
    }


@dataclass(frozen=True, slots=True)
class Fitness:
    """The facts of a run that make its measurements fit or unfit.

    Args:
        drill: the slowdown of a drill; empty without one.
        ended: the ids of the tests that came to an end.
        not_passed: the outcome of each test that did not pass, by its id.
    """

    drill: str
    ended: Collection[str]
    not_passed: Mapping[str, Outcome]

    def unfit(
        self,
        test_id: str,
        labels: Collection[str],
        *,
        invalid: str,
        siblings_busy: str,
        accept_slower: bool,
    ) -> str:
        """Return why a measurement is unfit for a comparison or a baseline.

        It is empty where the measurement is fit. With `accept_slower` a test may have failed by its
        verdict.

        Args:
            labels: those of the measurement's samples.
            invalid: why its time cannot be trusted; empty where it can.
            siblings_busy: which devices used the host's link meanwhile; empty where none did.
        """
        if not (labels or invalid or siblings_busy):
            return self.test_unfit(test_id, accept_slower)
        if "replaced" in labels:
            cause = (
                f"in a drill of {self.drill}"
                if self.drill
                else "by the hook pytest_roofline_function"
            )
            return f"the measured function was slowed down or replaced on purpose, {cause}"
        if invalid:
            return invalid
        if CANARY in labels:
            # A canary belongs to no test that could have failed.
            return ""
        for label, reason in UNFIT_LABELS.items():
            if label in labels:
                return reason
        if siblings_busy:
            return f"{siblings_busy}, and the link to the host is shared"
        return self.test_unfit(test_id, accept_slower)

    def test_unfit(self, test_id: str, accept_slower: bool) -> str:
        """Return why a test's outcome makes its results unfit, or an empty text."""
        if test_id not in self.ended:
            return "the test did not finish"
        outcome = self.not_passed.get(test_id)
        if outcome is None:
            return ""
        # A test that failed only because it has no baseline is fit for its first one.
        without_baseline = (
            Kind.NO_BASELINE in outcome.verdicts and Kind.REGRESSED not in outcome.verdicts
        )
        if outcome.by_verdict and (accept_slower or without_baseline):
            return ""
        if outcome.outcome != "failed":
            return "the test was skipped"
        return f"the test failed: {_first_sentence(outcome.reason)}"


def _first_sentence(text: str) -> str:
    """Return the first sentence of a failure, cut between words where it is long."""
    sentence = re.split(r"(?<=[.!?]) |\n", text, maxsplit=1)[0]
    return textwrap.shorten(sentence, LONGEST_REASON, placeholder=" …")
