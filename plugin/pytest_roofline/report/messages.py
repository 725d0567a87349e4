"""The closing lines of a run: reasons, conditions, curves, counts, and what the gate compared."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence

from ..baselines.run_files import NIGHTS, ShadowRun
from ..baselines.run_rows import XFAIL, Ending, how_it_ended, short_name
from ..core.keys import JOB_METRIC, positional_names_note
from ..core.records import CurveSummary
from ..core.rows import FAILED, KERNEL, MEMORY, Row, badness, worst_first
from ..core.samples import Samples
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
    format_bytes,
    format_seconds,
    format_tolerance,
    listed,
    printable,
    three_digits,
)
from ..core.verdicts import Kind
from ..core.work import rate_suffix
from ..stats.key_results import NO_PEAK
from .words import counts_text, cut, sentence, slow_text

# Reasons why tests were not measured that a line lists: a sweep may have another reason for every size.
MOST_REASONS = 4
# Runs that would have been red under a shadow gate; the latest are listed.
MOST_ALARMS = 3

# The least share of a call that the device idles for a line to say so; less changes no verdict.
LEAST_WAIT = 0.01

# The relative error of a fit above which latency and bandwidth do not describe a sweep, for example because its
# small sizes stay in a cache.
FAIR_FIT = 0.25


def curve_line(curve: CurveSummary) -> str:
    """Return the results of a sweep as one line.

    It has the plateau, the sizes that reach shares of the plateau and of the roofline, and the
    fit of latency and bandwidth.
    """
    unit, name = _rate_unit(curve)
    shares = curve.reached | {f"{share} of roof": size for share, size in curve.of_roof.items()}
    sizes = [
        f"{share} from {format_bytes(size)}" for share, size in shares.items() if size is not None
    ]
    plateau = f"plateau {three_digits(curve.plateau / unit)} {name} ({curve.metric})"
    # The time of a whole program includes its start, so its rate has no plateau.
    parts = [] if curve.metric == JOB_METRIC else [", ".join([plateau, *sizes])]
    return f"{printable(curve.label)}: {'; '.join([*parts, fit_text(curve)])}"


def fit_text(curve: CurveSummary) -> str:
    """Return the fit of a sweep with both standard errors.

    It reads `fits 2.00 µs ± 30.0 ns + size at 2.10 ± 0.01 GB/s`.
    """
    unit, name = _rate_unit(curve)
    fit = curve.fit
    text = f"{format_seconds(fit.latency_s)}{_error_text(fit.latency_error_s, format_seconds)}"
    if fit.bandwidth is not None:
        error = _error_text(fit.bandwidth_error, lambda value: three_digits(value / unit))
        text += f" + size at {three_digits(fit.bandwidth / unit)}{error} {name}"
    if fit.misfit > FAIR_FIT:
        return f"no latency and bandwidth fit the curve: the best, {text}, are {fit.misfit:.0%} off"
    return f"fits {text}"


def _rate_unit(curve: CurveSummary) -> tuple[float, str]:
    """Return the size and the name of the unit of a sweep's rate."""
    return (1e12, "TFLOP/s") if rate_suffix(curve.metric) == "TFLOPS" else (1e9, "GB/s")


def _error_text(error: float | None, format_error: Callable[[float], str]) -> str:
    return f" ± {format_error(error)}" if error else ""


def reason_lines(rows: Sequence[Row], at_most: int = 3) -> list[str]:
    """Return why numbers could not be judged, with remedies."""
    lines = [
        printable(f"{row.verdict} {row.label}: {row.time_reason}")
        for row in rows
        if row.time_verdict is not None
        and row.time_verdict.kind in (Kind.INCONCLUSIVE, Kind.INVALID, Kind.NO_BASELINE)
    ]
    return cut(lines, at_most, "of these")


def peak_lines(rows: Sequence[Row], at_most: int = 3) -> list[str]:
    """Return the peaks of memory that differ from the baseline.

    A last line lists the tests whose peak the baseline does not have.
    """
    peaks = [(printable(row.label), row.peak) for row in rows if row.peak is not None]
    changed = [
        (label, peak) for label, peak in peaks if peak.baseline_value is not None and peak.reason
    ]
    lines = [f"peak {peak.verdict} {label}: {printable(peak.reason)}" for label, peak in changed]
    without_baseline = [label for label, peak in peaks if peak.reason == NO_PEAK]
    return [
        *cut(lines, at_most, "of these"),
        *_about_lines(f"{NO_PEAK}, so the peak memory is not compared", without_baseline, at_most),
    ]


def condition_lines(
    rows: Sequence[Row],
    at_most: int = 3,
    unknown_since: str = "the driver does not report the state of the device",
) -> list[str]:
    """Return the conditions under which the numbers were measured.

    These are tests that the host slows down, drift, excluded blocks, the power cap, and unknown
    facts. Each line lists the tests of one condition.

    Args:
        rows: of a run.
        at_most: the number of tests that a line lists.
        unknown_since: the reason why facts about the device are unknown.
    """
    lines: list[str] = []
    samples_by_test = [
        (printable(row.label), row.measurement.samples)
        for row in rows
        if row.measurement is not None
    ]
    for condition, meaning in _PACES.items():
        paces = [
            f"{test} ({format_seconds(samples.median_s)} on the device's clock, "
            f"{format_seconds(samples.wall_s)} on the host's)"
            for test, samples in samples_by_test
            if condition in samples.labels and samples.wall_s is not None
        ]
        lines += _about_lines(meaning, paces, at_most)
    for condition, meaning in _LABELS.items():
        tests = [test for test, samples in samples_by_test if condition in samples.labels]
        lines += _about_lines(meaning, tests, at_most)
    excluded = [
        f"{test} ({_causes_text(samples)})" for test, samples in samples_by_test if samples.excluded
    ]
    lines += _about_lines("blocks excluded", excluded, at_most)
    capped = [
        f"{test} (in {samples.power_capped_share:.0%} of its blocks"
        + (f", at {samples.clock_hz / 1e6:.0f} MHz)" if samples.clock_hz else ")")
        for test, samples in samples_by_test
        if samples.power_capped_share
    ]
    lines += _about_lines("at the software power cap, which is normal under load", capped, at_most)
    # The modes by the device's clock; a time by the host's clock asks no driver for these facts.
    neighbours_unknown = [
        test
        for test, samples in samples_by_test
        if samples.mode in ("events", "graph") and samples.neighbours == "unknown"
    ]
    lines += _about_lines(
        f"not known whether other processes used the device, since {unknown_since}",
        neighbours_unknown,
        at_most,
    )
    throttle_unknown = [
        test
        for test, samples in samples_by_test
        if samples.mode in ("events", "graph") and not samples.throttle_known
    ]
    lines += _about_lines(
        f"not known whether the device was throttled, since {unknown_since}",
        throttle_unknown,
        at_most,
    )
    lines += _about_lines(
        "another process uses the device",
        [test for test, samples in samples_by_test if samples.neighbours == "seen"],
        at_most,
    )
    return lines


def _causes_text(samples: Samples) -> str:
    """Return how many blocks were excluded by each cause: `2 of 40 by heat`."""
    block_count = len(samples.blocks)
    return ", ".join(
        f"{number} of {block_count} by {cause}" for cause, number in samples.excluded.items()
    )


def waiting_lines(rows: Sequence[Row], at_most: int = 3) -> list[str]:
    """Return the tests whose function waits for the device.

    Each has the time that this costs.
    """
    lines = [
        f"{printable(row.label)}: the call waits for the device for {format_tolerance(round(share, 2))} of its time "
        f"({format_seconds(share * samples.median_s)} of {format_seconds(samples.median_s)}). "
        "Move synchronize(), .item() or .cpu() out of the function"
        for row in rows
        if row.measurement is not None
        and (samples := row.measurement.samples)
        and (share := samples.idle_share or 0.0) >= LEAST_WAIT
    ]
    return cut(lines, at_most, "of these")


# The meanings of labels that samples have. Lines on the first show the times of both clocks.
_PACES = {
    "host_bound": "host-bound: the host is measured, not the device",
    "waits_inside": "a call waits for the device, so the time includes the host's part",
}
_LABELS = {
    "replaced": "a hook replaced the function, as in a drill, so the time never becomes a baseline",
    "profiled": "measured with a profiler attached, or after a profiler in this process, so the time is never judged "
    "and never becomes a baseline",
    "noisy": "noisy: the budget ended before the median was precise enough",
    "drifting": "drifting: the calls still became slower or faster when the budget ended (raise --roofline-budget)",
    "clock_moved": "the clock changed by over 10 % within a block, for an unknown reason",
    "wall_clock": "timed by the host's clock, since the device's events are unreliable",
    "graph_refused": "short calls were timed call by call, since no graph could be captured",
}


def _about_lines(meaning: str, tests: Sequence[str], at_most: int) -> list[str]:
    """Return a line that lists the tests of a condition, if any."""
    return [f"{meaning}: {listed(tests, at_most)}"] if tests else []


def counts_line(numbers: Mapping[str, int], not_measured: Mapping[str, int]) -> str:
    """Return `12 measured, 4 compiled, 3 not measured (needs 2 GPUs, found 1)`."""
    counts = {"measured": 0} | {kind: number for kind, number in numbers.items() if number}
    line = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    if not_measured:
        reasons = [
            printable(reason) + (f" ({number}×)" if len(not_measured) > 1 else "")
            for reason, number in list(not_measured.items())[:MOST_REASONS]
        ]
        remaining = len(not_measured) - len(reasons)
        reasons_text = "; ".join(
            reasons + ([f"and {remaining} other reasons"] if remaining else [])
        )
        line += f", {sum(not_measured.values())} not measured ({reasons_text})"
    return line


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
    """Return the verdict on the time or the kernel.

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
    default = GATE if last.test_id == GATE else Kind.REGRESSED.value
    return min(words, key=badness, default=default)


def _red_sentence(ending: Ending, test_id: str) -> str:
    """Return why a test is red, beginning with its name.

    The sentence of a verdict has the name already; that of any other failure gets it here.
    """
    last, name = ending.last, short_name(test_id)
    reason = printable(last.reason if last is not None else "").removeprefix("Failed: ")
    return (
        reason
        if last is not None and last.by_verdict and reason
        else f"{name}: {reason}".removesuffix(": ")
    )


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
        lines = [
            printable(f"{row.verdict} {row.label}: {_row_reason(row)}")
            for row in undecided[:most_undecided]
            if _row_reason(row)
        ]
    if len(undecided) > len(lines) > 0 and not reds and most_undecided:
        lines[-1] += f" (and {len(undecided) - len(lines)} more)"
    colour = colour_of(rows, reds, status)
    colour += f" ({printable(', '.join(settings))})" if settings else ""
    clauses = [_sentence(rows, reds, undecided, planned, colour)]
    clauses += [f"{expected_lost_count} OUT OF MEMORY as expected"] if expected_lost_count else []
    clauses += [f"{len(expected_slower)} REGRESSED as expected (xfail)"] if expected_slower else []
    # Tests that measure nothing are not in `reds`, but their failure must not look like a green run.
    if (status or lost_output) and not reds:
        cause = _STATUS.get(status, "see above") if status else f"{lost_output} could not be saved"
        clauses.append(f"but pytest ended with status {status or 1} ({cause})")
    # The failure of a gate that compared too little shows the command already.
    has_failed_gate = any(word == GATE for word, _ in reds.values())
    hint_lines = [] if has_failed_gate else record_hint_lines(rows, record_command)
    return [*hint_lines, *lines, "; ".join(clauses)]


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

    It reads ` (3 by published limits)`.
    """
    counts = Counter(filter(None, map(_limit_of, filter(is_green, rows))))
    sibling_count = sum(
        row.time_verdict is not None and row.time_verdict.siblings > 0
        for row in rows
        if is_green(row)
    )
    counts.update({"their siblings": sibling_count} if sibling_count else {})
    return (
        f" ({', '.join(f'{number} by {noun}' for noun, number in counts.items())})"
        if counts
        else ""
    )


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
    """Return the failures that a shadow gate would have caused.

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
