"""The closing lines of a run.

They are counts, what is red or undecided, and the sentence on the run.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from ..baselines.nights import NIGHTS, ShadowRun
from ..baselines.run_rows import XFAIL, Ending, how_it_ended, short_name
from ..core.keys import positional_names_note
from ..core.rows import FAILED, KERNEL, MEMORY, Row, badness, worst_first
from ..core.statuses import (
    WORSE,
    Status,
    is_compared,
    is_green,
    looks_slow,
    status_of,
)
from ..core.units import (
    count,
    cut,
    printable,
)
from ..core.verdicts import Kind
from .words import counts_text, sentence, slow_text

# Reasons why tests were not measured that a line lists: a sweep may have another reason for every size.
MOST_REASONS = 4
# Runs that would have been red under a shadow gate; the latest are listed.
MOST_ALARMS = 3


def counts_line(numbers: Mapping[str, int], not_measured: Mapping[str, int]) -> str:
    """Return `12 measured, 4 compiled, 3 not measured (needs 2 GPUs, found 1)`."""
    counts = {"measured": 0} | {kind: number for kind, number in numbers.items() if number}
    line = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    if not_measured:
        line += f", {sum(not_measured.values())} not measured ({_reasons_text(not_measured)})"
    return line


def _reasons_text(count_by_reason: Mapping[str, int]) -> str:
    """Return the first reasons, each with its number of tests; a single reason has none."""
    has_several = len(count_by_reason) > 1
    reasons = [
        printable(reason) + (f" ({number}×)" if has_several else "")
        for reason, number in list(count_by_reason.items())[:MOST_REASONS]
    ]
    remaining_count = len(count_by_reason) - len(reasons)
    if remaining_count:
        reasons.append(f"and {remaining_count} other reasons")
    return "; ".join(reasons)


def compared_of(rows: Sequence[Row]) -> int:
    """Return how many results were compared with anything.

    Results without a baseline and INVALID results were not.
    """
    return sum(
        _main_verdict(row) not in (Kind.NO_BASELINE, Kind.INVALID)
        for row in _rows_with_verdict(rows)
    )


def _rows_with_verdict(rows: Sequence[Row]) -> list[Row]:
    return [row for row in rows if row.time_verdict is not None or row.exact is not None]


def _main_verdict(row: Row) -> str:
    """Return the verdict on the time, the kernel or the figure of a row.

    The verdict on the memory does not count.
    """
    return row.time_verdict.kind.value if row.time_verdict is not None else row.verdict


# Failures that are listed above the closing sentence.
MOST_FAILURES = 5
GREEN, GREY, RED = "GREEN", "GREY", "RED"
# The red tests by id, each with its worst verdict and a sentence.
Reds = Mapping[str, tuple[str, str]]
# The name of the item that fails where a gate compared too little.
GATE = "roofline gate"
# Why pytest ended with a status other than 0, though no result is red.
_STATUS = {
    1: "other tests failed",
    2: "the run was interrupted",
    3: "pytest broke",
    5: "no test ran",
}


def reds_of(endings: Mapping[str, Ending], rows: Sequence[Row]) -> Reds:
    """Return the red tests, worst first, each with its sentence.

    A test that a shadow gate would have failed counts as red.
    """
    reds = {}
    for test_id, ending in endings.items():
        if ending.last is not None and (ending.red or ending.last.shadow):
            reds[test_id] = _red_word(ending), _red_sentence(ending, test_id)
    # A regression is red even if its test did not fail, unless a mark expected it to.
    for row in rows:
        word, _ = how_it_ended(endings.get(row.test, Ending()).outcome)
        if row.verdict == Kind.REGRESSED and row.test not in reds and word != XFAIL:
            reds[row.test] = row.verdict, f"{row.label}: {sentence(row)}"
    change_by_test: dict[str, float] = {}
    for row in rows:
        change_by_test[row.test] = max(change_by_test.get(row.test, 0.0), row.slowdown or 0.0)

    def sort_key(red: tuple[str, tuple[str, str]]) -> tuple[int, float]:
        test_id, (word, _) = red
        return badness(word, change_by_test.get(test_id))

    return dict(sorted(reds.items(), key=sort_key))


def _red_word(ending: Ending) -> str:
    """Return the worst verdict of a red test, else FAILED.

    FAILED is the word for a test that failed for another reason than its verdicts.
    """
    last = ending.last
    if last is None or not last.by_verdict:
        return FAILED
    # A SHIFTED result does not turn its test red, so it is not the reason.
    words = [word for word in last.verdicts if word != Kind.SHIFTED]
    # The item of the gate has no verdicts; it is red where too little was compared.
    default = GATE if last.test_id == GATE else Kind.REGRESSED.value
    return min(words, key=badness, default=default)


def _red_sentence(ending: Ending, test_id: str) -> str:
    """Return why a test is red, beginning with its name.

    The sentence of a verdict has the name already; that of any other failure gets it here.
    """
    last, name = ending.last, short_name(test_id)
    reason = printable(last.reason if last is not None else "").removeprefix("Failed: ")
    has_name = last is not None and last.by_verdict and bool(reason)
    return reason if has_name else f"{name}: {reason}".removesuffix(": ")


def colour_of(rows: Sequence[Row], reds: Reds, status: int = 0) -> str:
    """Return RED where a test is slower or broken.

    A run is GREEN if nothing is slower, and at least half of its results are fast enough. All other
    runs are GREY, those that did not come to their end included.

    Args:
        rows: the results of the run.
        reds: its red tests.
        status: pytest's exit status; a complete run has 0, or 1 where tests failed.
    """
    # Worse results that are not red were expected by an xfail, so they decide nothing.
    deciding_rows = [row for row in rows if row.verdict not in WORSE]
    run_status = status_of(deciding_rows, worse=bool(reds), complete=status in (0, 1))
    if run_status is Status.SLOWER:
        return RED
    is_mostly_green = 2 * sum(map(is_green, rows)) >= len(rows)
    return GREEN if run_status is Status.NOTHING_SLOWER and is_mostly_green else GREY


def closing_lines(
    rows: Sequence[Row],
    reds: Reds,
    planned: Sequence[str],
    record_command: str = "",
    most_undecided: int = 1,
    status: int = 0,
    lost_output: str = "",
    settings: Sequence[str] = (),
    tell_reds: bool = True,
) -> list[str]:
    """Return the closing lines, the sentence on the run last.

    The lines before it tell why tests are red. Where no test is red, they tell what would decide
    the undecided tests.

    Args:
        rows: the results: times, compiled kernels, and tests that ran out of memory.
        reds: the red tests.
        planned: the ids of the tests that were to measure.
        record_command: the command that records these tests; empty where no line should show it.
        most_undecided: the number of undecided tests whose reason is shown.
        status: pytest's exit status.
        lost_output: the output that could not be written, if any; pytest then ends with 1 instead of 0.
        settings: the settings of the gate that are not in its command and are new: `pytest.ini: tolerance 45 %`.
        tell_reds: whether to show why tests are red; False where pytest prints their failures itself.
    """
    # A test that ran out of memory as it expected leaves nothing to decide.
    expected_lost_count = sum(row.metric == MEMORY and row.test not in reds for row in rows)
    rows = [row for row in rows if row.metric != MEMORY or row.test in reds]
    # Only a test that an xfail expected to be slower has regressed without being red.
    expected_slower = [
        row for row in rows if row.verdict == Kind.REGRESSED and row.test not in reds
    ]
    undecided = worst_first(
        row
        for row in rows
        if not (is_green(row) or row.verdict == Kind.SHIFTED)
        and row.test not in reds
        and row not in expected_slower
    )
    if reds:
        reasons = [printable(sentence) for _, sentence in reds.values()] if tell_reds else []
        lines = cut(reasons, MOST_FAILURES, "that failed")
    else:
        lines = _undecided_lines(undecided, most_undecided)
    colour = colour_of(rows, reds, status)
    colour += f" ({printable(', '.join(settings))})" if settings else ""
    clauses = [_sentence(rows, reds, undecided, planned, colour)]
    clauses += [f"{expected_lost_count} OUT OF MEMORY as expected"] if expected_lost_count else []
    clauses += [f"{len(expected_slower)} REGRESSED as expected (xfail)"] if expected_slower else []
    # Tests that measure nothing are not in `reds`, but their failure must not look like a green run.
    clauses += [] if reds else _status_clauses(status, lost_output)
    # The failure of a gate that compared too little shows the command already.
    has_failed_gate = any(word == GATE for word, _ in reds.values())
    hint_lines = [] if has_failed_gate else record_hint_lines(rows, record_command)
    return [*hint_lines, *lines, "; ".join(clauses)]


def _undecided_lines(undecided: Sequence[Row], at_most: int) -> list[str]:
    """Return a line for each of the first undecided tests.

    It has the reason; the last line counts the other tests.
    """
    lines = [
        printable(f"{row.verdict} {row.label}: {_row_reason(row)}")
        for row in undecided[:at_most]
        if _row_reason(row)
    ]
    unnamed_count = len(undecided) - len(lines)
    if lines and unnamed_count:
        lines[-1] += f" (and {unnamed_count} more)"
    return lines


def _status_clauses(status: int, lost_output: str) -> list[str]:
    """Return the clause on a run that does not end with status 0, if it does not."""
    if not status and not lost_output:
        return []
    cause = _STATUS.get(status, "see above") if status else f"{lost_output} could not be saved"
    return [f"but pytest ended with status {status or 1} ({cause})"]


def _sentence(
    rows: Sequence[Row], reds: Reds, undecided: Sequence[Row], planned: Sequence[str], colour: str
) -> str:
    """Return the sentence on the run.

    It reads `RED: 1 REGRESSED, 11 of 14 fast enough, 2 undecided (2 INCONCLUSIVE)`, or `GREY:
    nothing was compared, …`.
    """
    if not rows and not reds:
        return f"{colour}: nothing was compared, since 0 of {count(len(planned), 'test')} measured anything"
    if not reds and not any(map(is_compared, rows)):
        return f"{colour}: nothing was compared ({counts_text(undecided)})"
    # A planned test that failed before it had a result counts as a result.
    reds_without_row = reds.keys() & set(planned) - {row.test for row in rows}
    result_count = len(rows) + len(reds_without_row)
    has_only_kernels = {row.metric for row in rows} - {MEMORY} == {KERNEL}
    green_word = "no worse" if has_only_kernels else "fast enough"
    counts = Counter(word for word, _ in reds.values())
    parts = [
        "the gate compared too little" if word == GATE else f"{counts[word]} {word}"
        for word in sorted(counts, key=badness)
    ]
    green_count = sum(map(is_green, rows))
    parts += [f"{green_count} of {result_count} {green_word}{_evidence_text(rows)}"]
    shifted_count = sum(row.verdict == Kind.SHIFTED for row in rows)
    parts += [f"{shifted_count} SHIFTED"] if shifted_count else []
    parts += [f"{len(undecided)} undecided ({_undecided_text(undecided)})"] if undecided else []
    return f"{colour}: {', '.join(parts)}"


def _undecided_text(undecided: Sequence[Row]) -> str:
    """Return the tests that look slow, then counts of verdicts.

    It reads `copy[64MiB] +30 %, 1 INVALID`.
    """
    other_rows = [row for row in undecided if not looks_slow(row)]
    return ", ".join(filter(None, (slow_text(undecided), counts_text(other_rows))))


# The evidence of a verdict, by the kind of limit that it was compared with.
_LIMITS = {
    "published": "published limits",
    "floor": "floors of published figures",
    "roofline": "a share of the roofline",
}


def _limit_of(row: Row) -> str:
    """Return the limits that a time was compared with, or an empty text."""
    limit = row.time_verdict.limit if row.time_verdict is not None else None
    return _LIMITS[limit.kind] if limit is not None else ""


def _evidence_text(rows: Sequence[Row]) -> str:
    """Return the evidence of verdicts without a recorded baseline.

    It reads ` (3 by published limits)`. The text is empty where every green result was compared with a baseline.
    """
    green_rows = [row for row in rows if is_green(row)]
    counts = Counter(filter(None, map(_limit_of, green_rows)))
    sibling_count = sum(
        row.time_verdict is not None and row.time_verdict.siblings > 0 for row in green_rows
    )
    if sibling_count:
        counts["their siblings"] += sibling_count
    texts = [f"{number} by {noun}" for noun, number in counts.items()]
    return f" ({', '.join(texts)})" if texts else ""


def _row_reason(row: Row) -> str:
    """Return the reason of the time's verdict, or of the only verdict."""
    return row.time_reason if row.time_verdict is not None else row.reason


def record_hint_lines(rows: Sequence[Row], record_command: str) -> list[str]:
    """Return the hint to record a baseline, with the command.

    There is none where a result was compared with a baseline, and where no result could be.
    """
    # A drill's slow times never become a baseline, nor do tests that only their position identifies.
    rows = [row for row in rows if "replaced" not in (row.labels or ()) and not _is_positional(row)]
    limit_count = sum(bool(_limit_of(row)) for row in rows)
    # Results that were compared, but with no limit, were compared with a baseline.
    has_baseline = compared_of(rows) > limit_count
    lacks_baseline = any(_main_verdict(row) == Kind.NO_BASELINE for row in _rows_with_verdict(rows))
    if not record_command or has_baseline or not (lacks_baseline or limit_count):
        return []
    remark = "A limit finds only results that miss the limit. " if limit_count else ""
    return [f"{remark}Record a baseline:", f"  {record_command}"]


def _is_positional(row: Row) -> bool:
    """Return True where only its position in a list identifies a test."""
    kernel_key = row.resources.key if row.resources else None
    key = row.key if row.key is not None else kernel_key
    return key is not None and bool(positional_names_note(key.parameters))


def shadow_lines(sentences: Sequence[str], shadow_runs: Sequence[ShadowRun]) -> list[str]:
    """Return the failures that a shadow gate, which only watches, would have caused.

    The worst comes first. The last line tells how many runs would have been red so far.

    Args:
        sentences: the failures of this run.
        shadow_runs: every run with a shadow gate on this hardware, this one included.
    """
    lines = [f"SHADOW: would have failed: {sentence}" for sentence in sentences]
    lines = lines or ["SHADOW: nothing would have failed"]
    night_count = len({run.night for run in shadow_runs})
    red_runs = [run for run in shadow_runs if run.red]
    text = (
        f"SHADOW: in {count(night_count, 'night')} {len(red_runs)} of {count(len(shadow_runs), 'run')} "
        "would have been red"
    )
    alarms = "; ".join(f"{run.night} {run.why}" for run in red_runs[-MOST_ALARMS:])
    text += f": {alarms}" if red_runs else ""
    if night_count < NIGHTS:
        return [
            *lines,
            f"{text}; after {NIGHTS} nights this rate shows whether to switch the gate on",
        ]
    return [*lines, f"{text}; switch the gate on with --roofline-ci"]
