"""How each test of a run ended, and the one word for each of its results that follows from that."""

from dataclasses import dataclass
from itertools import pairwise

from ..core.records import Judgement, Measurement, Outcome
from ..core.resources import ExactJudgement
from ..core.rows import FAILED, MEASURED
from ..core.samples import OVERSUBSCRIBED, PROFILED
from ..stats.verdicts import Kind
from .runs import Run

SKIPPED, XFAIL, INTERRUPTED = "SKIPPED", "XFAIL", "INTERRUPTED"
OUT_OF_MEMORY = "OUT OF MEMORY"
# Would have failed for want of a measurement, where a gate only watched.
SHADOW = "SHADOW"
# Of the test `device health`.
DEGRADED = "DEGRADED"
# What a run file calls a verdict and is none.
UNKNOWN = "UNKNOWN"
_VERDICTS = (*(kind.value for kind in Kind), OUT_OF_MEMORY, DEGRADED)
# How pytest tells that a failure was expected.
_XFAIL = "xfail: "


@dataclass(frozen=True, slots=True)
class Ending:
    """How a test ended.

    Args:
        outcome: that tells why it did not pass, if it ever did not; None where the run was cut before.
        last: how it ended in the end.
    """

    outcome: Outcome | None = None
    last: Outcome | None = None

    @property
    def red(self) -> bool:
        """Whether it failed; what was expected to, or would have where a gate only watched, is kept as failed alone."""
        last = self.last
        return last is not None and last.outcome == "failed" and not (last.shadow or last.reason.startswith(_XFAIL))

    @property
    def by_itself(self) -> bool:
        """Whether it is red for itself, and not for a verdict."""
        return self.red and self.last is not None and not self.last.by_verdict


def endings(run: Run) -> dict[str, Ending]:
    """By test, how it ended: a rerun that passed does not undo a failure, and is not red."""
    last = {outcome.test_id: outcome for outcome in run.outcomes}
    worst = last | run.not_passed
    return {test_id: Ending(worst[test_id], outcome) for test_id, outcome in last.items()}


def said(
    ending: Ending, judged: Judgement | ExactJudgement | None, number: Measurement | None = None, invalid: str = ""
) -> tuple[str, str]:
    """The word for a result of a test, and why.

    FAILED where the test failed for itself, else the verdict, else what its outcome tells of verdicts, else how the
    test ended.

    Args:
        ending: of the test.
        judged: what was said of the result.
        number: what was measured.
        invalid: why that does not count.
    """
    if ending.by_itself:
        return FAILED, judged.reason if judged is not None else reason_of(ending.outcome)
    if judged is not None and judged.verdict not in _VERDICTS:
        return UNKNOWN, f"the run file has {judged.verdict[:100]!r} for a verdict, which is none"
    peak = judged.peak if isinstance(judged, Judgement) else None
    if isinstance(judged, Judgement) and peak is not None and judged.overall != judged.verdict:
        return peak.verdict, peak.reason
    if judged is not None:
        return judged.verdict, judged.reason
    for label in (OVERSUBSCRIBED, PROFILED):
        if number is not None and label in number.samples.labels:
            return label.upper(), ""
    told = _told(ending)
    if told and ending.outcome is not None:
        return told, invalid or reason_of(ending.outcome)
    if ending.outcome is None or ending.outcome.outcome != "passed":
        return how_it_ended(ending.outcome)
    return (Kind.INVALID.value, invalid) if invalid else (MEASURED, "")


def said_of_memory(ending: Ending, recorded: bool) -> str:
    """The word for a test that ran out of memory: FAILED for itself, REGRESSED where its baseline had a time."""
    if ending.by_itself or (ending.red and not recorded):
        return FAILED
    verdicts = ending.last.verdicts if ending.last is not None and ending.red else ()
    lost = (OUT_OF_MEMORY, Kind.REGRESSED.value) in pairwise(verdicts)
    return Kind.REGRESSED.value if lost else OUT_OF_MEMORY


def said_of_test(outcome: Outcome) -> tuple[str, str]:
    """The word for a test without any number, and why."""
    return (DEGRADED, reason_of(outcome)) if DEGRADED in outcome.verdicts else how_it_ended(outcome)


def how_it_ended(outcome: Outcome | None) -> tuple[str, str]:
    """The word for a test without a verdict, and why."""
    if outcome is None:
        return INTERRUPTED, "the run was cut before the test had ended"
    if outcome.reason.startswith(_XFAIL):
        return XFAIL, reason_of(outcome)
    if outcome.shadow:
        return SHADOW, reason_of(outcome)
    words = {"passed": Kind.PASSED.value, "failed": FAILED, "skipped": SKIPPED}
    return words[outcome.outcome], reason_of(outcome)


def reason_of(outcome: Outcome | None) -> str:
    """Why a test ended as it did, without the room that pytest leaves behind a reason that nobody gave."""
    text = outcome.reason.rstrip() if outcome is not None else ""
    return "" if text == _XFAIL.rstrip() else text


def _told(ending: Ending) -> str:
    """The verdict that an outcome tells of where the run file has no judgements: its only one, else the worst."""
    last = ending.last
    if last is None or last.outcome == "skipped" or (last.outcome == "failed" and not last.by_verdict):
        return ""
    words = [word for word in (Kind.REGRESSED.value, *_VERDICTS) if word in last.verdicts]
    return words[0] if words and (len(words) == 1 or last.by_verdict) else ""
