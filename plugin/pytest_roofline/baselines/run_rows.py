"""Every result of a run as a row: how its test ended, and the one word that follows from that.

What a report says comes from the run file alone, so that one made at the end of a run and one made a year later are
the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from ..core.groups import grouped
from ..core.memory import WORD as OUT_OF_MEMORY
from ..core.memory import OutOfMemory
from ..core.records import Measurement, Outcome
from ..core.rows import DEGRADED, FAILED, KERNEL, MEMORY, Row
from ..core.samples import OVERSUBSCRIBED, PROFILED
from ..core.statuses import GREEN
from ..core.verdicts import ExactVerdict, Kind, Verdict
from ..stats.key_results import KeyResults
from .reasons import reason_text
from .remarks import remarks, since_lines
from .rows import compiled_row, exact_row, memory_row, timed_row
from .run_files import run_names
from .runs import Run

SKIPPED, XFAIL, INTERRUPTED = "SKIPPED", "XFAIL", "INTERRUPTED"
# Would have failed for want of a measurement, where a gate only watched.
SHADOW = "SHADOW"
_VERDICTS = (*Kind, OUT_OF_MEMORY, DEGRADED)
# How pytest tells that a failure was expected.
_XFAIL = "xfail: "


@dataclass(frozen=True, slots=True)
class Ending:
    """How a test ended."""

    outcome: Outcome | None = None
    last: Outcome | None = None

    @property
    def red(self) -> bool:
        """Whether it failed; what was expected to, or would have where a gate only watched, is kept as failed alone."""
        last = self.last
        return (
            last is not None
            and last.outcome == "failed"
            and not (last.shadow or last.reason.startswith(_XFAIL))
        )

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
    ending: Ending,
    judged: Verdict | ExactVerdict | None,
    number: Measurement | None = None,
    invalid: str = "",
) -> tuple[str, str]:
    """The word for a result of a test, and why."""
    if ending.by_itself:
        return FAILED, _reason(judged) if judged is not None else reason_of(ending.outcome)
    if isinstance(judged, Verdict):
        by_peak = judged.peak is not None and judged.overall is not judged.kind
        reason = judged.peak.reason if judged.peak is not None and by_peak else _reason(judged)
        return judged.overall.value, reason
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
    if invalid:
        return Kind.INVALID.value, invalid
    if ending.outcome.verdicts:
        return INTERRUPTED, "the run was cut before its verdicts were written"
    # As of another tool.
    return Kind.NO_BASELINE.value, ""


def _reason(judged: Verdict | ExactVerdict) -> str:
    return reason_text(judged) if isinstance(judged, Verdict) else judged.reason


def said_of_memory(ending: Ending, recorded: bool) -> str:
    """The word for a test that ran out of memory: FAILED for itself, REGRESSED where its baseline had a time."""
    if ending.by_itself or (ending.red and not recorded):
        return FAILED
    verdicts = ending.last.verdicts if ending.last is not None and ending.red else ()
    lost = (OUT_OF_MEMORY, Kind.REGRESSED.value) in pairwise(verdicts)
    return Kind.REGRESSED.value if lost else OUT_OF_MEMORY


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
    """The verdict that an outcome tells of where the run file has none: its only one, else the worst."""
    last = ending.last
    if (
        last is None
        or last.outcome == "skipped"
        or (last.outcome == "failed" and not last.by_verdict)
    ):
        return ""
    words = [word for word in (Kind.REGRESSED.value, *_VERDICTS) if word in last.verdicts]
    return words[0] if words and (len(words) == 1 or last.by_verdict) else ""


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """Everything that some runs say of their tests, run by run, each called by a name of its own."""
    names = run_names(runs)
    return [row for run in runs for row in rows_of_run(run, names[run.path])]


def rows_of_run(run: Run, name: str = "") -> list[Row]:
    """Everything that a run says of its tests, in the order in which it measured them."""
    ended = endings(run)
    rows = [
        *_timed(run, ended),
        *_kernels(run, ended),
        *_without_memory(run, ended),
        *_of_other_kinds(run, ended),
    ]
    told = {row.test for row in rows}
    rows += [
        _bare(one.outcome) for test_id, one in ended.items() if test_id not in told and one.outcome
    ]
    name = name or run_names([run])[run.path]
    return [_of_run(row, run, name, ended.get(row.test, Ending())) for row in rows]


def _of_run(row: Row, run: Run, name: str, ending: Ending) -> Row:
    header = run.header
    environment = header.environment
    row = replace(
        row,
        run=name,
        run_id=header.run_id,
        started=header.started,
        device=environment.device.product,
        driver=environment.device.driver,
        torch=environment.software.get("torch"),
        host=environment.host.name,
        red=ending.red,
        outcome=_outcome(ending),
        ended=ending.outcome,
        header=header,
        path=run.path,
    )
    return replace(row, reason=_why(row))


def _outcome(ending: Ending) -> Literal["passed", "failed", "skipped", "xfailed"] | None:
    if ending.red or ending.outcome is None:
        return "failed" if ending.red else None
    if how_it_ended(ending.outcome)[0] == XFAIL:
        return "xfailed"
    # A gate that only watched let it pass, and so did a rerun.
    return "skipped" if ending.outcome.outcome == "skipped" else "passed"


def _why(row: Row) -> str:
    """Why a result is not green, and what may explain it; empty of a green one whose test passed."""
    ended = row.ended
    told: list[str] = []
    if row.time_verdict is not None:
        if row.time_verdict.kind not in GREEN or row.by_peak:
            told += [row.reason, *since_lines(row.time_verdict), *remarks(row.time_verdict)]
    elif row.exact is None or row.exact.verdict not in GREEN:
        told += [row.reason, *(row.exact.remarks if row.exact is not None else ())]
    if row.red and ended is not None and (not ended.by_verdict or row.metric == MEMORY):
        # It failed for itself, ahead of any verdict; or its message names the time that the baseline has.
        own = reason_of(ended)
        told = [own, *(text for text in told if text not in own)]
    return "; ".join(dict.fromkeys(filter(None, told)))


def _timed(run: Run, ended: dict[str, Ending]) -> Iterator[Row]:
    judged = {(verdict.subject.test_id, verdict.subject.name): verdict for verdict in run.verdicts}
    exhausted = {(one.test_id, one.name) for one in run.out_of_memory}
    # What a measurement had taken before memory ran out is no result; that it ran out has a row of its own.
    timed = (m for m in run.tested if not (m.invalid and (m.test_id, m.key.name) in exhausted))
    by_test = grouped(timed, lambda measurement: (measurement.test_id, measurement.key.identity))
    for (test_id, _), measurements in by_test.items():
        results = KeyResults(measurements)
        measurement = results.representative(None)
        verdict, ending = judged.get((test_id, measurement.key.name)), ended.get(test_id, Ending())
        word, reason = said(ending, verdict, measurement, measurement.invalid)
        yield timed_row(results, verdict, measurement=measurement, word=word, reason=reason)


def _kernels(run: Run, ended: dict[str, Ending]) -> Iterator[Row]:
    judged = {(one.test_id, one.name, one.target): one for one in run.exact if one.metric == KERNEL}
    for resources in run.resources:
        exact = judged.get((resources.test_id, resources.key.name, resources.target))
        word, reason = said(
            ended.get(resources.test_id, Ending()), exact, invalid=resources.invalid
        )
        yield compiled_row(resources, exact, verdict=word, reason=reason)


def _without_memory(run: Run, ended: dict[str, Ending]) -> Iterator[Row]:
    measured = {(one.test_id, one.key.name) for one in run.measurements if not one.invalid}
    first: dict[tuple[str, str | None], OutOfMemory] = {}
    for one in run.out_of_memory:
        # What a later round had no room for was measured in the first.
        if one.round == 1 or (one.test_id, one.name) not in measured:
            first.setdefault((one.test_id, one.name), one)
    for one in first.values():
        word = said_of_memory(ended.get(one.test_id, Ending()), one.recorded)
        yield memory_row(one, verdict=word, reason=one.message)


def _of_other_kinds(run: Run, ended: dict[str, Ending]) -> Iterator[Row]:
    """Yield the results of kinds that a conftest.py adds, which the run file keeps as their verdicts alone."""
    verdicts = {
        (one.test_id, one.metric, one.name): one for one in run.exact if one.metric != KERNEL
    }
    for exact in verdicts.values():
        word, reason = said(ended.get(exact.test_id, Ending()), exact)
        yield exact_row(exact, verdict=word, reason=reason)


def _bare(outcome: Outcome) -> Row:
    word, reason = (
        (DEGRADED, reason_of(outcome)) if DEGRADED in outcome.verdicts else how_it_ended(outcome)
    )
    label = short_name(outcome.test_id)
    return Row(test=outcome.test_id, label=label, parameters={}, verdict=word, reason=reason)


def short_name(test_id: str) -> str:
    """The test without its file and class; what stands in brackets may hold anything."""
    function, bracket, parameters = test_id.partition("::")[2].partition("[")
    return function.rpartition("::")[2] + bracket + parameters or test_id
