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

# Why tests were not measured: a sweep has a reason of its own for every size.
MOST_REASONS = 4
# Of the nights on which a gate would have been red, the last.
MOST_ALARMS = 3

# A device that idles for less of a call costs no one a verdict.
LEAST_WAIT = 0.01

# Relative errors of a fit beyond which a sweep has another shape, as where its small sizes stay in a cache.
FAIR_FIT = 0.25


def curve_line(curve: CurveSummary) -> str:
    """Return a sweep in a line.

    It has the plateau, the sizes that reach it and the roofline, latency and bandwidth.
    """
    unit, name = _rate_unit(curve)
    shares = curve.reached | {f"{share} of roof": size for share, size in curve.of_roof.items()}
    sizes = [
        f"{share} from {format_bytes(size)}" for share, size in shares.items() if size is not None
    ]
    plateau = f"plateau {three_digits(curve.plateau / unit)} {name} ({curve.metric})"
    # Starting a program is in its time, so that no size shows the rate of its work.
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
    return (1e12, "TFLOP/s") if rate_suffix(curve.metric) == "TFLOPS" else (1e9, "GB/s")


def _error_text(error: float | None, text: Callable[[float], str]) -> str:
    return f" ± {text(error)}" if error else ""


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
    """Return the peaks that differ from the baseline.

    The number of those that the baseline has not follows.
    """
    peaks = [(printable(row.label), row.peak) for row in rows if row.peak is not None]
    changed = [
        (label, peak) for label, peak in peaks if peak.baseline_value is not None and peak.reason
    ]
    lines = [f"peak {peak.verdict} {label}: {printable(peak.reason)}" for label, peak in changed]
    without_baseline = [label for label, peak in peaks if peak.reason == NO_PEAK]
    return [
        *cut(lines, at_most, "of these"),
        *_about_lines(f"{NO_PEAK}, so it is not compared", without_baseline, at_most),
    ]


def condition_lines(
    rows: Sequence[Row], at_most: int = 3, unknown_since: str = "the driver does not report it"
) -> list[str]:
    """Return the conditions under which the numbers were taken.

    These are the host's pace, excluded blocks, drift, the power cap, and facts that no device gave.
    """
    lines: list[str] = []
    samples = [
        (printable(row.label), row.measurement.samples)
        for row in rows
        if row.measurement is not None
    ]
    for label, meaning in _PACES.items():
        paces = [
            f"{name} ({format_seconds(sample.median_s)} on the device's clock, "
            f"{format_seconds(sample.wall_s)} on the host's)"
            for name, sample in samples
            if label in sample.labels and sample.wall_s is not None
        ]
        lines += _about_lines(meaning, paces, at_most)
    for label, meaning in _LABELS.items():
        lines += _about_lines(
            meaning, [name for name, sample in samples if label in sample.labels], at_most
        )
    excluded = [f"{label} ({_causes_text(sample)})" for label, sample in samples if sample.excluded]
    lines += _about_lines("blocks excluded", excluded, at_most)
    capped = [
        f"{label} (in {sample.power_capped_share:.0%} of its blocks"
        + (f", at {sample.clock_hz / 1e6:.0f} MHz)" if sample.clock_hz else ")")
        for label, sample in samples
        if sample.power_capped_share
    ]
    lines += _about_lines("at the software power cap, as usual under load", capped, at_most)
    neighbours_unknown = [
        name
        for name, sample in samples
        if sample.mode in ("events", "graph") and sample.neighbours == "unknown"
    ]
    lines += _about_lines(
        f"not known whether others used the device, since {unknown_since}",
        neighbours_unknown,
        at_most,
    )
    throttle_unknown = [
        name
        for name, sample in samples
        if sample.mode in ("events", "graph") and not sample.throttle_known
    ]
    lines += _about_lines(
        f"not known whether the device was throttled, since {unknown_since}",
        throttle_unknown,
        at_most,
    )
    lines += _about_lines(
        "another process uses the device",
        [label for label, sample in samples if sample.neighbours == "seen"],
        at_most,
    )
    return lines


def _causes_text(samples: Samples) -> str:
    """Return how many blocks were excluded by each cause: `2 of 40 by heat`."""
    total = len(samples.blocks)
    return ", ".join(
        f"{number} of {total} by {cause}" for cause, number in samples.excluded.items()
    )


def waiting_lines(rows: Sequence[Row], at_most: int = 3) -> list[str]:
    """Return the tests whose function waits for the device.

    Each has the time that this costs.
    """
    lines = [
        f"{printable(row.label)}: waits inside the call for {format_tolerance(round(share, 2))} of its time "
        f"({format_seconds(share * samples.median_s)} of {format_seconds(samples.median_s)}); "
        "move synchronize(), .item() or .cpu() out of the function"
        for row in rows
        if row.measurement is not None
        and (samples := row.measurement.samples)
        and (share := samples.idle_share or 0.0) >= LEAST_WAIT
    ]
    return cut(lines, at_most, "of these")


_PACES = {
    "host_bound": "host-bound: the host is measured, not the device",
    "waits_inside": "a call waits for the device, so the time includes the host's part",
}
_LABELS = {
    "replaced": "replaced by a hook, as in a drill; never a baseline",
    "profiled": "measured with a profiler attached, or after one in this process; never judged, never a baseline",
    "noisy": "noisy: the budget ended before the median was precise enough",
    "drifting": "drifting: still getting slower or faster when the budget was spent (raise --roofline-budget)",
    "clock_moved": "the clock changed by over 10 % within a block, for an unknown reason",
    "wall_clock": "timed by the host's clock, since the device's events are unreliable",
    "graph_refused": "short, but timed call by call, since no graph could be captured",
}


def _about_lines(meaning: str, names: Sequence[str], at_most: int) -> list[str]:
    return [f"{meaning}: {listed(names, at_most)}"] if names else []


def counts_line(numbers: Mapping[str, int], not_measured: Mapping[str, int]) -> str:
    """Return `12 measured, 4 compiled, 3 not measured (needs 2 GPUs, found 1)`."""
    counts = {"measured": 0} | {kind: number for kind, number in numbers.items() if number}
    line = ", ".join(f"{number} {kind}" for kind, number in counts.items())
    if not_measured:
        reasons = [
            printable(reason) + (f" ({count}×)" if len(not_measured) > 1 else "")
            for reason, count in list(not_measured.items())[:MOST_REASONS]
        ]
        remaining = len(not_measured) - len(reasons)
        reasons_text = "; ".join(
            reasons + ([f"and {remaining} other reasons"] if remaining else [])
        )
        line += f", {sum(not_measured.values())} not measured ({reasons_text})"
    return line


def compared_of(rows: Sequence[Row]) -> int:
    """Return how many results were compared with anything."""
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


# Of what failed so many are told of above the closing sentence.
MOST_FAILURES = 5
GREEN, GREY, RED = "GREEN", "GREY", "RED"
# By test, what is red about it: a word, and a sentence.
Reds = Mapping[str, tuple[str, str]]
# The item that fails where a gate compared too little.
GATE = "roofline gate"
# What pytest's exit status tells beside what is red here.
_STATUS = {
    1: "other tests failed",
    2: "the run was interrupted",
    3: "pytest broke",
    5: "no test ran",
}


def reds_of(endings: Mapping[str, Ending], rows: Sequence[Row]) -> Reds:
    """Return the red tests, worst first, each with its sentence.

    Also those that a gate that only watched would have failed.
    """
    reds = {}
    for test_id, ending in endings.items():
        if ending.last is not None and (ending.red or ending.last.shadow):
            reds[test_id] = _red_word(ending), _red_sentence(ending, test_id)
    for row in rows:
        expected = how_it_ended(endings.get(row.test, Ending()).outcome)[0] == XFAIL
        if row.verdict == Kind.REGRESSED and row.test not in reds and not expected:
            reds[row.test] = row.verdict, f"{row.label}: {sentence(row)}"
    slower: dict[str, float] = {}
    for row in rows:
        slower[row.test] = max(slower.get(row.test, 0.0), row.change or 0.0)
    return dict(sorted(reds.items(), key=lambda red: badness(red[1][0], slower.get(red[0]))))


def _red_word(ending: Ending) -> str:
    """Return the worst verdict of a red test, else FAILED.

    FAILED is for a test that failed for itself.
    """
    last = ending.last
    if last is None or not last.by_verdict:
        return FAILED
    # What is SHIFTED turns no test red.
    words = [word for word in last.verdicts if word != Kind.SHIFTED]
    default = GATE if last.test_id == GATE else Kind.REGRESSED.value
    return min(words, key=badness, default=default)


def _red_sentence(ending: Ending, test_id: str) -> str:
    """Return why a test is red.

    A failure of its own gets the test's name, which a verdict has.
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

    It is GREY where nobody can tell, else GREEN. A run of which fewer than half of the results are
    fast enough is GREY at best, and so is a run that did not come to its end, as its exit status
    tells.
    """
    # What is worse and not red was expected to be.
    decided = [row for row in rows if row.verdict not in WORSE]
    run_status = status_of(decided, worse=bool(reds), complete=status in (0, 1))
    if run_status is Status.SLOWER:
        return RED
    mostly = 2 * sum(map(is_green, rows)) >= len(rows)
    return GREEN if run_status is Status.NOTHING_SLOWER and mostly else GREY


def closing_lines(
    rows: Sequence[Row],
    reds: Reds,
    planned: Sequence[str],
    record: str = "",
    most: int = 1,
    status: int = 0,
    lost: str = "",
    settings: Sequence[str] = (),
    tell_reds: bool = True,
) -> list[str]:
    """Return the closing lines, the sentence on the run last.

    Ahead of it is what is red, or what would decide what is open.

    Args:
        rows: what was measured, what was compiled, and where memory ran out.
        reds: what is red.
        planned: the tests that were to measure.
        record: the command that records these tests; empty where nobody is to type it.
        most: of what is open, so many are told of.
        status: with which the tests ended; what could not be written, which `lost` names, makes 1 of a 0.
        settings: that bear on the gate, stand outside its command, and are new: `pytest.ini: tolerance 45 %`.
        tell_reds: whether nobody else has said why each red test failed.
    """
    # Where memory ran out as a test expected it, nothing is left to decide.
    expected = sum(row.metric == MEMORY and row.test not in reds for row in rows)
    rows = [row for row in rows if row.metric != MEMORY or row.test in reds]
    # A regression that is not red is that of an xfail.
    slower = [row for row in rows if row.verdict == Kind.REGRESSED and row.test not in reds]
    undecided = worst_first(
        row
        for row in rows
        if not (is_green(row) or row.verdict == Kind.SHIFTED)
        and row.test not in reds
        and row not in slower
    )
    if reds:
        reasons = [printable(sentence) for _, sentence in reds.values()] if tell_reds else []
        lines = cut(reasons, MOST_FAILURES, "that failed")
    else:
        lines = [
            printable(f"{row.verdict} {row.label}: {_row_reason(row)}")
            for row in undecided[:most]
            if _row_reason(row)
        ]
    if len(undecided) > len(lines) > 0 and not reds and most:
        lines[-1] += f" (and {len(undecided) - len(lines)} more)"
    colour = colour_of(rows, reds, status)
    colour += f" ({printable(', '.join(settings))})" if settings else ""
    last = [_sentence(rows, reds, undecided, planned, colour)]
    last += [f"{expected} OUT OF MEMORY as expected"] if expected else []
    last += [f"{len(slower)} REGRESSED as expected (xfail)"] if slower else []
    # Tests that measure nothing are none of ours, but nobody should take their failure for a green run.
    if (status or lost) and not reds:
        cause = _STATUS.get(status, "see above") if status else f"{lost} could not be saved"
        last.append(f"but pytest ended with status {status or 1} ({cause})")
    # A gate that compared nothing has said it in its failure.
    gate_failed = any(word == GATE for word, _ in reds.values())
    recording_lines = [] if gate_failed else recording(rows, record)
    return [*recording_lines, *lines, "; ".join(last)]


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
    total = len(rows) + len(reds.keys() & set(planned) - {row.test for row in rows})
    fine = "no worse" if {row.metric for row in rows} - {MEMORY} == {KERNEL} else "fast enough"
    words = Counter(word for word, _ in reds.values())
    parts = [
        "the gate compared too little" if word == GATE else f"{words[word]} {word}"
        for word in sorted(words, key=badness)
    ]
    parts += [f"{sum(map(is_green, rows))} of {total} {fine}{_evidence_text(rows)}"]
    shifted = sum(row.verdict == Kind.SHIFTED for row in rows)
    parts += [f"{shifted} SHIFTED"] if shifted else []
    parts += [f"{len(undecided)} undecided ({_undecided_text(undecided)})"] if undecided else []
    return f"{colour}: {', '.join(parts)}"


def _undecided_text(undecided: Sequence[Row]) -> str:
    """Return the estimates of what looks slow, then words.

    It reads `copy[64MiB] +30 %, 1 INVALID`.
    """
    calm = [row for row in undecided if not looks_slow(row)]
    return ", ".join(filter(None, (slow_text(undecided), counts_text(calm))))


_LIMITS = {
    "published": "published limits",
    "floor": "floors of published figures",
    "roofline": "a share of the roofline",
}


def _limit_of(row: Row) -> str:
    limit = row.time_verdict.limit if row.time_verdict is not None else None
    return _LIMITS[limit.kind] if limit is not None else ""


def _evidence_text(rows: Sequence[Row]) -> str:
    """Return the evidence of verdicts without a recorded baseline.

    It reads ` (3 by published limits)`.
    """
    counts = Counter(filter(None, map(_limit_of, filter(is_green, rows))))
    siblings = sum(
        row.time_verdict is not None and row.time_verdict.siblings > 0
        for row in rows
        if is_green(row)
    )
    counts.update({"their siblings": siblings} if siblings else {})
    return (
        f" ({', '.join(f'{number} by {noun}' for noun, number in counts.items())})"
        if counts
        else ""
    )


def _row_reason(row: Row) -> str:
    return row.time_reason if row.time_verdict is not None else row.reason


def recording(rows: Sequence[Row], record: str) -> list[str]:
    """Return the command that records a baseline.

    It is empty where something was held against one.
    """
    # What a drill slowed down becomes no baseline, nor what only its position names.
    rows = [row for row in rows if "replaced" not in (row.labels or ()) and not _is_nameless(row)]
    compared = compared_of(rows)
    by_limit = sum(bool(_limit_of(row)) for row in rows)
    missing = any(_main_verdict(row) == Kind.NO_BASELINE for row in _rows_with_verdict(rows))
    if not record or compared > by_limit or not (missing or by_limit):
        return []
    remark = "A limit only finds results below it. " if by_limit else ""
    return [f"{remark}Record a baseline:", f"  {record}"]


def _is_nameless(row: Row) -> bool:
    key = row.key if row.key is not None else row.resources.key if row.resources else None
    return key is not None and bool(positional_names_note(key.parameters))


def shadow_lines(sentences: Sequence[str], shadow_runs: Sequence[ShadowRun]) -> list[str]:
    """Return what a gate that only watches would have failed.

    The worst comes first, and last how often it would have so far.

    Args:
        sentences: of this run.
        known: every run on this hardware that watched, this one included.
    """
    lines = [f"SHADOW: would have failed: {sentence}" for sentence in sentences]
    lines = lines or ["SHADOW: nothing would have failed"]
    nights, red = len({run.night for run in shadow_runs}), [run for run in shadow_runs if run.red]
    text = f"SHADOW: in {count(nights, 'night')} {len(red)} of {count(len(shadow_runs), 'run')} would have been red"
    text += ": " * bool(red) + "; ".join(f"{run.night} {run.why}" for run in red[-MOST_ALARMS:])
    if nights < NIGHTS:
        return [
            *lines,
            f"{text}; after {NIGHTS} nights this rate shows whether to switch the gate on",
        ]
    return [*lines, f"{text}; switch the gate on with --roofline-ci"]
