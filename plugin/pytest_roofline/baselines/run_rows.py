"""Every result of a run as a row.

It tells how its test ended, and the word that follows from that. A report comes from the run file alone, so that a
report made at the end of a run and one made a year later are the same.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Literal

from ..core.groups import group_by
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
# The word for a test in shadow that would have failed because it lacks a measurement.
SHADOW = "SHADOW"
_VERDICTS = (*Kind, OUT_OF_MEMORY, DEGRADED)
# The start of an outcome's reason where the failure was expected.
_XFAIL = "xfail: "


@dataclass(frozen=True, slots=True)
class Ending:
    """The ending of a test: its worst outcome and its last."""

    outcome: Outcome | None = None
    last: Outcome | None = None

    @property
    def red(self) -> bool:
        """Return True where the test failed.

        An expected failure and one that a shadow let pass are stored as failed, but are not red.
        """
        last = self.last
        return (
            last is not None
            and last.outcome == "failed"
            and not (last.shadow or last.reason.startswith(_XFAIL))
        )

    @property
    def by_itself(self) -> bool:
        """Return True where the test failed by itself, not by a verdict."""
        return self.red and self.last is not None and not self.last.by_verdict


def endings(run: Run) -> dict[str, Ending]:
    """Return the ending of each test, by its id.

    A rerun that passed is not red, but the outcome stays that of the failure.
    """
    last = {outcome.test_id: outcome for outcome in run.outcomes}
    worst = last | run.not_passed
    return {test_id: Ending(worst[test_id], outcome) for test_id, outcome in last.items()}


def result_word(
    ending: Ending,
    verdict: Verdict | ExactVerdict | None,
    measurement: Measurement | None = None,
    invalid: str = "",
) -> tuple[str, str]:
    """Return the word for a result of a test, and the reason.

    A test that failed by itself is FAILED; otherwise the verdict decides. Without a verdict the word
    follows from the measurement and the outcome.

    Args:
        invalid: why the result is invalid; empty where it is not.
    """
    if ending.by_itself:
        return FAILED, _reason(verdict) if verdict is not None else reason_of(ending.outcome)
    if isinstance(verdict, Verdict):
        by_peak = verdict.peak is not None and verdict.overall is not verdict.kind
        reason = verdict.peak.reason if verdict.peak is not None and by_peak else _reason(verdict)
        return verdict.overall.value, reason
    if verdict is not None:
        return verdict.verdict, verdict.reason
    for label in (OVERSUBSCRIBED, PROFILED):
        if measurement is not None and label in measurement.samples.labels:
            return label.upper(), ""
    word = _outcome_verdict(ending)
    if word and ending.outcome is not None:
        return word, invalid or reason_of(ending.outcome)
    if ending.outcome is None or ending.outcome.outcome != "passed":
        return how_it_ended(ending.outcome)
    if invalid:
        return Kind.INVALID.value, invalid
    if ending.outcome.verdicts:
        return INTERRUPTED, "the run was interrupted before its verdicts were written"
    # A run that was imported from another tool has no verdicts.
    return Kind.NO_BASELINE.value, ""


def _reason(verdict: Verdict | ExactVerdict) -> str:
    return reason_text(verdict) if isinstance(verdict, Verdict) else verdict.reason


def memory_word(ending: Ending, recorded: bool) -> str:
    """Return the word for a test that ran out of memory.

    It is FAILED where the test failed by itself, and REGRESSED where the baseline had a time.
    `recorded` tells whether the test's marker only records it (`oom="record"`).
    """
    if ending.by_itself or (ending.red and not recorded):
        return FAILED
    verdicts = ending.last.verdicts if ending.last is not None and ending.red else ()
    # The outcome has both words in this order where the baseline had a time.
    lost = (OUT_OF_MEMORY, Kind.REGRESSED.value) in pairwise(verdicts)
    return Kind.REGRESSED.value if lost else OUT_OF_MEMORY


def how_it_ended(outcome: Outcome | None) -> tuple[str, str]:
    """Return the word for a test without a verdict, and why."""
    if outcome is None:
        return INTERRUPTED, "the run was interrupted before the test had ended"
    if outcome.reason.startswith(_XFAIL):
        return XFAIL, reason_of(outcome)
    if outcome.shadow:
        return SHADOW, reason_of(outcome)
    words = {"passed": Kind.PASSED.value, "failed": FAILED, "skipped": SKIPPED}
    return words[outcome.outcome], reason_of(outcome)


def reason_of(outcome: Outcome | None) -> str:
    """Return why a test ended as it did; empty where pytest gives no reason."""
    text = outcome.reason.rstrip() if outcome is not None else ""
    return "" if text == _XFAIL.rstrip() else text


def _outcome_verdict(ending: Ending) -> str:
    """Return the verdict's word in an outcome, or an empty text.

    It serves for a result whose verdict is not in the run file. Of several words in an outcome the
    worst counts, where the test failed by its verdict; otherwise none is sure to be of this result.
    """
    last = ending.last
    if (
        last is None
        or last.outcome == "skipped"
        or (last.outcome == "failed" and not last.by_verdict)
    ):
        return ""
    # REGRESSED is the worst word, so it comes first.
    words = [word for word in (Kind.REGRESSED.value, *_VERDICTS) if word in last.verdicts]
    is_sure = len(words) == 1 or last.by_verdict
    return words[0] if words and is_sure else ""


def rows_of(runs: Sequence[Run]) -> list[Row]:
    """Return the rows of some runs, run by run.

    Each row holds the name of its run, which differs from those of the others.
    """
    names = run_names(runs)
    return [row for run in runs for row in rows_of_run(run, names[run.path])]


def rows_of_run(run: Run, name: str = "") -> list[Row]:
    """Return the rows of a run's tests, in the order measured."""
    endings_by_test = endings(run)
    rows = [
        *_timed_rows(run, endings_by_test),
        *_kernel_rows(run, endings_by_test),
        *_memory_rows(run, endings_by_test),
        *_other_rows(run, endings_by_test),
    ]
    tests = {row.test for row in rows}
    rows += [
        _outcome_row(ending.outcome)
        for test_id, ending in endings_by_test.items()
        if test_id not in tests and ending.outcome
    ]
    name = name or run_names([run])[run.path]
    return [_in_run(row, run, name, endings_by_test.get(row.test, Ending())) for row in rows]


def _in_run(row: Row, run: Run, name: str, ending: Ending) -> Row:
    """Return a row with the facts of its run.

    It gets the ending of its test, too, and the explanation that follows from both.
    """
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
    return replace(row, reason=_explanation(row))


def _outcome(ending: Ending) -> Literal["passed", "failed", "skipped", "xfailed"] | None:
    """Return how a test ended, in pytest's words; None if it did not end."""
    if ending.red or ending.outcome is None:
        return "failed" if ending.red else None
    word, _ = how_it_ended(ending.outcome)
    if word == XFAIL:
        return "xfailed"
    # A failure that is not red passed in a rerun, or in shadow.
    return "skipped" if ending.outcome.outcome == "skipped" else "passed"


def _explanation(row: Row) -> str:
    """Return why a result is not green, with possible explanations.

    It is empty for a green result whose test passed.
    """
    ended = row.ended
    texts: list[str] = []
    if row.time_verdict is not None:
        if row.time_verdict.kind not in GREEN or row.by_peak:
            texts += [row.reason, *since_lines(row.time_verdict), *remarks(row.time_verdict)]
    elif row.exact is None or row.exact.verdict not in GREEN:
        texts += [row.reason, *(row.exact.remarks if row.exact is not None else ())]
    if row.red and ended is not None and (not ended.by_verdict or row.metric == MEMORY):
        # The test failed by itself, before any verdict; or its message names the lost time of the baseline.
        reason = reason_of(ended)
        texts = [reason, *(text for text in texts if text not in reason)]
    return "; ".join(dict.fromkeys(filter(None, texts)))


def _timed_rows(run: Run, endings_by_test: dict[str, Ending]) -> Iterator[Row]:
    """Yield the rows of measured times."""
    verdicts = {
        (verdict.subject.test_id, verdict.subject.name): verdict for verdict in run.verdicts
    }
    exhausted = {(record.test_id, record.name) for record in run.out_of_memory}
    # A measurement that ran out of memory has a row in `_memory_rows`, so its invalid one is left out here.
    timed = (
        measurement
        for measurement in run.tested
        if not (measurement.invalid and (measurement.test_id, measurement.key.name) in exhausted)
    )
    by_test = group_by(timed, lambda measurement: (measurement.test_id, measurement.key.identity))
    for (test_id, _), measurements in by_test.items():
        results = KeyResults(measurements)
        measurement = results.representative(None)
        verdict = verdicts.get((test_id, measurement.key.name))
        ending = endings_by_test.get(test_id, Ending())
        word, reason = result_word(ending, verdict, measurement, measurement.invalid)
        yield timed_row(results, verdict, measurement=measurement, word=word, reason=reason)


def _kernel_rows(run: Run, endings_by_test: dict[str, Ending]) -> Iterator[Row]:
    """Yield the rows of compiled kernels."""
    exact_verdicts = {
        (exact_verdict.test_id, exact_verdict.name, exact_verdict.target): exact_verdict
        for exact_verdict in run.exact
        if exact_verdict.metric == KERNEL
    }
    for resources in run.resources:
        exact = exact_verdicts.get((resources.test_id, resources.key.name, resources.target))
        word, reason = result_word(
            endings_by_test.get(resources.test_id, Ending()), exact, invalid=resources.invalid
        )
        yield compiled_row(resources, exact, verdict=word, reason=reason)


def _memory_rows(run: Run, endings_by_test: dict[str, Ending]) -> Iterator[Row]:
    """Yield the rows of measurements that ran out of memory, one each."""
    measured = {
        (record.test_id, record.key.name) for record in run.measurements if not record.invalid
    }
    first: dict[tuple[str, str | None], OutOfMemory] = {}
    for record in run.out_of_memory:
        # A measurement that ran out of memory only in a later round has a time of the first round.
        if record.round == 1 or (record.test_id, record.name) not in measured:
            first.setdefault((record.test_id, record.name), record)
    for record in first.values():
        word = memory_word(endings_by_test.get(record.test_id, Ending()), record.recorded)
        yield memory_row(record, verdict=word, reason=record.allocation.message)


def _other_rows(run: Run, endings_by_test: dict[str, Ending]) -> Iterator[Row]:
    """Yield the results of kinds that a conftest.py adds.

    The run file holds only their verdicts.
    """
    verdicts = {
        (exact_verdict.test_id, exact_verdict.metric, exact_verdict.name): exact_verdict
        for exact_verdict in run.exact
        if exact_verdict.metric != KERNEL
    }
    for exact in verdicts.values():
        word, reason = result_word(endings_by_test.get(exact.test_id, Ending()), exact)
        yield exact_row(exact, verdict=word, reason=reason)


def _outcome_row(outcome: Outcome) -> Row:
    """Return the row of a test without a result.

    It tells how the test ended, or that its device is below its rated facts.
    """
    word, reason = (
        (DEGRADED, reason_of(outcome)) if DEGRADED in outcome.verdicts else how_it_ended(outcome)
    )
    label = short_name(outcome.test_id)
    return Row(test=outcome.test_id, label=label, parameters={}, verdict=word, reason=reason)


def short_name(test_id: str) -> str:
    """Return the test without its file and class.

    The parameters in brackets may contain `::`, too.
    """
    _, _, place = test_id.partition("::")
    function, bracket, parameters = place.partition("[")
    _, _, name = function.rpartition("::")
    # An id without `::` is the name itself.
    return f"{name}{bracket}{parameters}" or test_id
