"""The sentences of a search: a line a step, and at its end a paragraph that is fit for an issue."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from ..ab.telling import Report
from ..core.rows import FAILED, Row
from ..core.units import count, format_share, listed, printable
from ..report.words import difference_text, span_text, tolerance_text
from .search import Gap
from .state import BisectState

# Of tests that a line names.
MOST_NAMED = 3
# The user and the password in the address of an index, which must not get into an issue.
_CREDENTIALS = re.compile(r"(?<=://)[^/\s]+(?=@)")
_MASK = "***"


@dataclass(frozen=True, slots=True)
class Culprit:
    """A step, with the comparison that confirmed it, if any did.

    Args:
        good: the last candidate ahead of the step, `bad` the first one behind it.
        chance: that the step lies between them.
        broken: candidates between them that cannot be measured, with the reason.
        verdict: of `bad` against `good`; empty where they were not compared.
        change: of the result that the search followed, in words.
        command: shows the step; empty if there is none.
    """

    good: str
    bad: str
    chance: float
    broken: tuple[str, ...] = ()
    verdict: str = ""
    change: str = ""
    command: str = ""


def nothing_text(report: Report) -> str:
    """Return why there is nothing to bisect.

    These are the tests that fail, else the results with their intervals.
    """
    failed = [row.label for row in report.rows if row.verdict == FAILED]
    if failed:
        return f"the bad end fails: {listed(failed, MOST_NAMED)}; expected results on both ends"
    tolerance = tolerance_text(report.test_rows).removeprefix("tolerance ")
    texts = [f"{row.label} {change_text(row)}" for row in report.rows]
    at = f" at {tolerance}" if tolerance else ""
    return f"nothing to bisect{at}: {listed(list(map(printable, texts)), MOST_NAMED)}"


def left_text(gaps: Sequence[Gap], row: Sequence[str]) -> str:
    """Return where candidates may become slower.

    It reads `4 candidates left, x … y (99.3 %)`, or names the candidate at which they do.

    Args:
        gaps: one for each step.
        row: the names of the candidates.
    """
    first, last = gaps[0], gaps[-1]
    if first.bad > last.good and first != last:
        # Two gaps that overlap may be one step, so they are joined.
        good, bad = min(first.good, last.good), max(first.bad, last.bad)
        gaps = [Gap(good, bad, min(first.chance, last.chance))]
    return "; ".join(_range_text(gap, row) for gap in gaps)


def _range_text(gap: Gap, row: Sequence[str]) -> str:
    """Return which candidates may be the first slow one, with the chance of it."""
    chance = f"({format_share(gap.chance)})"
    first, last = row[gap.good + 1], row[gap.bad]
    number = gap.bad - gap.good
    if number == 1:
        return f"{last} is the first slow one {chance}"
    return f"{number} candidates left, {first} … {last} {chance}"


def comparison_command(state: BisectState, good: str, bad: str) -> str:
    """Return the `roofline ab` that compares two candidates.

    It is a command line, without a password of the index.
    """
    variables = [
        f"{name}={shlex.quote(_CREDENTIALS.sub(_MASK, value))}"
        for name, value in state.variables.items()
    ]
    # pytest's arguments come behind --.
    arguments = ["--", *state.arguments] if state.arguments else []
    words = ["roofline", "ab", good, bad, *state.options, *arguments]
    return " ".join([*variables, shlex.join(words)])


def change_text(row: Row) -> str:
    """Return how much worse a result is.

    Its interval follows, or the figures of a kernel.
    """
    span = span_text(row)
    interval = f" (99 % interval {span})" if span else ""
    return difference_text(row) + interval


def paragraph(state: BisectState, culprit: Culprit) -> str:
    """Return a step as a paragraph for an issue.

    It says what, since when, how much, how sure, and what shows it.
    """
    assert state.lead is not None
    good_end, bad_end = state.ends
    # The ends were compared in any case; the candidates beside the step may have no result.
    change = culprit.change or state.lead.change
    sentences = [
        f"{state.lead.label} is {state.lead.word} since {culprit.bad}: {change}. The last fast one is {culprit.good}.",
        f"The search went through {count(len(state.row), 'candidate')} from {good_end} to {bad_end} with "
        f"{count(state.processes, 'process', 'es')}, and is {format_share(culprit.chance)} sure.",
    ]
    if culprit.verdict:
        sentences.append(f"Both candidates were then measured in turn: {culprit.verdict}.")
    if culprit.broken:
        sentences.append(
            "Each of these candidates cannot be measured, and may be the first slow one as well: "
            f"{'; '.join(culprit.broken)}."
        )
    if culprit.command:
        has_mask = any(map(_CREDENTIALS.search, state.variables.values()))
        advice = f"put your user and password in place of {_MASK}, and " if has_mask else ""
        sentences.append(f"To compare both again, {advice}type: {culprit.command}")
    return printable(" ".join(sentences))
