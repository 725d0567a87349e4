"""`roofline explain`: one result of a run, process by process, and how its verdict came about."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median

from ..baselines.reasons import reason_text
from ..baselines.remarks import remarks, since_lines
from ..baselines.runs import Run
from ..core.memory import MemoryUse
from ..core.profiles import Figure, Profile
from ..core.records import Measurement
from ..core.rows import Row, compared_verdicts
from ..core.units import (
    count,
    format_memory,
    format_percent,
    format_seconds,
    format_tolerance,
    printable,
)
from ..core.verdicts import Difference, ExactVerdict, Verdict
from ..stats.analyses import FALSE_RED
from ..stats.outlook import WORTH_REPORTING
from ..stats.stats import growth
from ..stats.verdicts import span_text
from .figures import figure_lines, first_call_text
from .inside import memory_lines, profile_lines
from .kernels import explanation as kernel_explanation
from .published import figure_texts
from .words import kept_text

# Positions of a strip of samples, from the fastest to the slowest that is shown.
STRIP = 32
_HEIGHTS = " ▁▂▃▄▅▆▇█"


def explanation(row: Row, width: int) -> list[str]:
    """Return everything on record about one result, as lines.

    Args:
        row: of a run.
        width: of the terminal, in columns.
    """
    if row.resources is not None:
        return kernel_explanation(str(row.path), row.resources, row.exact)
    lines = [printable(f"{row.label} in {row.path}")]
    if row.measurement is None:
        return [*lines, *map(printable, f"{row.verdict}: {row.reason}".splitlines())]
    lines += _sample_lines(row.measurements, width)
    verdict = row.time_verdict
    if verdict is None:
        return [*lines, *map(printable, f"no verdict: {_no_verdict_reason(row)}".splitlines())]
    return [
        *lines,
        *_reference_lines(verdict),
        *(printable(f"published, shown only: {text}") for text in figure_texts(row)),
        *_reasoning_lines(verdict),
        *([_memory_line(verdict.peak)] if verdict.peak is not None else []),
    ]


def _no_verdict_reason(row: Row) -> str:
    """Return why a measurement has no verdict."""
    if row.header is not None and row.header.command[:2] == ("roofline", "import"):
        return "only `roofline compare` judges an imported run"
    failure = row.ended.reason if row.ended is not None and row.ended.outcome != "passed" else ""
    if failure:
        return f"the test failed before its verdict: {failure}"
    return "the test failed before its verdict, or the run was cut before its end"


def _sample_lines(measurements: Sequence[Measurement], width: int) -> list[str]:
    """Return a heading and the lines of each process.

    The strips of all processes have one common scale, which the heading tells.
    """
    seconds = sorted(
        sample_s for measurement in measurements for sample_s in measurement.samples.seconds
    )
    # The slowest 2 % would stretch the scale; the strip counts them at its last place.
    low, high = seconds[0], seconds[min(len(seconds) - 1, int(0.98 * len(seconds)))]
    metric = measurements[0].key.metric
    lines = [
        f"samples by process, each strip from {kept_text(metric, low)} to {kept_text(metric, high)}:"
    ]
    # The text beside a strip needs 64 columns.
    strip_width = min(STRIP, max(8, width - 64))
    for measurement in measurements:
        strip = _strip(measurement.samples.seconds, low, high, strip_width)
        lines += _process_lines(measurement, strip)
    return [printable(line) for line in lines]


def _process_lines(measurement: Measurement, strip: str) -> list[str]:
    """Return the lines on one process of a test.

    The first line has the median, the samples as a strip, and the number of blocks. Lines on first
    calls, compiling and blocks that were left out may follow it.
    """
    samples = measurement.samples
    invalid_text = f"; left out: {measurement.invalid}" if measurement.invalid else ""
    middle = kept_text(measurement.key.metric, measurement.median_s)
    lines = [
        f"  round {measurement.round}, process {measurement.process[:6]}: {middle} "
        f"|{strip}| {count(len(samples.seconds), 'sample')} in "
        f"{count(len(samples.block_medians), 'block')}{invalid_text}"
    ]
    if samples.first_calls_s:
        lines.append(f"      first calls: {first_call_text(measurement)}")
    if measurement.compile_s is not None:
        lines.append(
            f"      compiling: {format_seconds(measurement.compile_s)} longer than a warm call"
        )
    if samples.excluded:
        causes = ", ".join(f"{number} by {cause}" for cause, number in samples.excluded.items())
        lines.append(f"      blocks left out: {causes}")
    return lines


def _strip(seconds: Sequence[float], low: float, high: float, width: int) -> str:
    """Return a histogram of samples between two times, as `width` bars.

    Samples outside of the two times are counted in the first or last bar.
    """
    shares = (0.0 if high == low else (sample_s - low) / (high - low) for sample_s in seconds)
    counts = Counter(min(width - 1, max(0, int(share * width))) for share in shares)
    highest_count = max(counts.values())
    heights = (
        math.ceil(counts[place] / highest_count * (len(_HEIGHTS) - 1)) for place in range(width)
    )
    return "".join(_HEIGHTS[height] for height in heights)


def _reference_lines(verdict: Verdict) -> list[str]:
    """Return the baseline, with a line for each session."""
    if verdict.reference is None:
        return []
    lines = [f"baseline {verdict.reference.source}:"]
    for session in verdict.reference.groups:
        medians_s = sorted(session.medians_s)
        metric = verdict.subject.metric
        fastest, slowest = kept_text(metric, medians_s[0]), kept_text(metric, medians_s[-1])
        span = f" ({fastest} … {slowest})" if len(medians_s) > 1 else ""
        device = f" on {session.device}" if session.device else ""
        lines.append(
            f"  session of {session.started or 'an unknown time'}{device}: "
            f"{count(len(medians_s), 'process', 'es')}, {kept_text(metric, median(medians_s))}{span}"
        )
    return list(map(printable, lines))


def _reasoning_lines(verdict: Verdict) -> list[str]:
    """Return the steps that led to a verdict, each with its figures, as lines."""
    reason = reason_text(verdict)
    if verdict.estimate is None or verdict.difference is None or verdict.interval is None:
        return _short_reasoning_lines(verdict, reason)
    tolerance, least_effect = verdict.tolerance, WORTH_REPORTING * verdict.tolerance
    # The estimate is the logarithm of the ratio of both times.
    is_beyond = verdict.estimate > math.log1p(tolerance)
    # A program's own figure, such as a rate, has a metric; it gets worse instead of slower.
    comparative = "worse" if verdict.subject.metric else "slower"
    # The estimate is positive where the test is worse. The change has the sign of the figure itself, of which more
    # may be better. A verdict with an estimate has it, so the 0.0 only satisfies the type.
    change = format_percent(growth(verdict.own_estimate or 0.0))
    lines = [
        _sides_line(verdict, verdict.difference),
        f"difference {difference_text(verdict)}",
        _spreads_line(verdict.difference),
        _chances_line(verdict, verdict.difference),
        f"is this {comparative} than the tolerance? {change} is "
        f"{'more' if is_beyond else 'not more'} than {format_tolerance(tolerance)}",
        f"is this surely more than the smallest effect worth reporting, {format_tolerance(round(least_effect, 6))}? "
        f"{_p_text(verdict)}",
        *(f"note: {line}" for line in (*since_lines(verdict), *remarks(verdict))),
        f"{verdict.kind}" + (f": {reason}" if reason else ""),
    ]
    return [printable(line) for line in lines]


def _short_reasoning_lines(verdict: Verdict, reason: str) -> list[str]:
    """Return the lines on a verdict without the difference of two sides.

    Such a verdict compares with a limit or with sibling tests, or with nothing.
    """
    conclusion = printable(f"{verdict.kind}: {reason or 'nothing to compare with'}")
    if verdict.interval is None:
        return [conclusion]
    side = "beyond the limit" if verdict.limit is not None else "against the others"
    processes = count(verdict.processes, "process", "es")
    return [printable(f"{difference_text(verdict)}, {side}, from {processes}"), conclusion]


def _memory_line(peak: ExactVerdict) -> str:
    """Return `memory: PASSED, peak 1.02 GiB, baseline 1.00 GiB, tolerated either way 51.2 MiB`."""
    sizes = {
        "peak": peak.value,
        "baseline": peak.baseline_value,
        "tolerated either way": peak.allowed,
    }
    texts = [f"{name} {format_memory(size)}" for name, size in sizes.items() if size is not None]
    return printable(
        ", ".join([f"memory: {peak.verdict}", *texts]) + (f": {peak.reason}" if peak.reason else "")
    )


def _p_text(verdict: Verdict) -> str:
    """Return `yes` or `no` to the question whether a difference is significant, with its p-values.

    A p-value is the chance of such a difference without a slowdown. The text is `not asked` where none was computed.
    """
    if verdict.p is None or verdict.p_adjusted is None:
        return "not asked"
    return (
        f"{'yes' if verdict.p_adjusted <= FALSE_RED else 'no'}: p {verdict.p:.2g}, adjusted for all interim "
        f"analyses and all tests {verdict.p_adjusted:.2g}, limit {FALSE_RED:g}"
    )


def detail_lines(rows: Sequence[Row]) -> list[str]:
    """Return a heading and three lines for each verdict.

    The lines have its spreads, its chances of error, and both sides with their processes.
    """
    return [
        line
        for verdict in compared_verdicts(rows)
        if verdict.difference is not None
        for line in (
            f"{printable(verdict.subject.label)}: {verdict.kind}",
            f"    {_spreads_line(verdict.difference)}",
            f"    {_chances_line(verdict, verdict.difference)}",
            f"    {_sides_line(verdict, verdict.difference)}",
        )
    ]


def _spreads_line(difference: Difference) -> str:
    """Return the spreads between processes, sessions and devices, as shares of the time.

    Each comes with its origin, for example the baseline.
    """
    spreads = (
        ("processes", difference.process),
        ("sessions", difference.session),
        ("devices", difference.device),
    )
    return "spread between " + "; ".join(
        f"{name} {spread.value:.2%} ({printable(spread.origin)})"
        for name, spread in spreads
        if spread is not None
    )


def _chances_line(verdict: Verdict, difference: Difference) -> str:
    """Return the standard error of a difference, its p-values and the detectable effect.

    The degrees of freedom count the independent measurements behind the spread; None means that the spread is known.
    """
    freedom = (
        "known" if difference.freedom is None else f"{difference.freedom:.3g} degrees of freedom"
    )
    chances = (
        ("p {:.2g}", verdict.p),
        ("adjusted for all tests {:.2g}", verdict.p_adjusted),
        ("detects {:.1%}", verdict.reach),
    )
    texts = [template.format(value) for template, value in chances if value is not None]
    return ", ".join([f"standard error {difference.error:.2%} ({freedom})", *texts])


def _sides_line(verdict: Verdict, difference: Difference) -> str:
    """Return the centre of both sides, the time that stands for all its processes.

    The numbers of devices, sessions and processes follow. The new processes are always of one session.
    """
    sessions, metric = verdict.sessions, verdict.subject.metric
    new_processes = count(verdict.processes, "process", "es")
    old_processes = count(len(verdict.baseline_medians_s), "process", "es")
    devices = count(len({session.device for session in sessions}), "device")
    device_relation = "paired" if difference.paired else "one device"
    # A spread between devices is there only if the baseline is from another device.
    if difference.device:
        device_relation = "another device"
    return (
        f"now {kept_text(metric, difference.new_s)} from {new_processes} of 1 session; "
        f"baseline {kept_text(metric, difference.reference_s)} from {old_processes} of "
        f"{count(len(sessions), 'session')} on {devices} ({device_relation})"
    )


def difference_text(verdict: Verdict) -> str:
    """Return `+6.1 % time (99 % interval -0.4 … +13.2 %), tolerance 5 %`."""
    estimate, interval = verdict.own_estimate, verdict.own_interval
    assert estimate is not None
    assert interval is not None
    subject = "" if verdict.subject.metric else " time"
    return (
        f"{format_percent(growth(estimate))}{subject} (99 % interval {span_text(interval)}), "
        f"tolerance {format_tolerance(verdict.tolerance)}"
    )


def note_labels(run: Run) -> dict[str, str]:
    """Return the labels of a run that have notes.

    A note is a figure, a memory use or a profile. Each label comes with its test id.
    """
    notes: tuple[Figure | MemoryUse | Profile, ...] = (
        *run.figures,
        *run.memory_uses,
        *run.profiles,
    )
    return {note.label: note.test_id for note in notes}


def note_lines(run: Run, label: str, width: int) -> list[str]:
    """Return the notes of one label, as the run showed them.

    It is empty where the label has none.
    """
    figures = [figure for figure in run.figures if figure.label == label]
    uses = [use for use in run.memory_uses if use.label == label]
    profiles = [profile for profile in run.profiles if profile.label == label]
    lines = figure_lines(figures) + memory_lines(uses) + profile_lines(profiles, width)
    return [printable(f"figures besides times in {run.path}:"), *lines] if lines else []


def explanation_as_json(run: Run, tests: Sequence[tuple[str, str]]) -> dict[str, object]:
    """Return the tests of a run as JSON.

    Times are in seconds, differences and intervals in log seconds, as in the run file.

    Args:
        run: with its verdicts.
        tests: label and test id of each.
    """
    return {
        "run": str(run.path),
        "run_id": run.header.run_id,
        "tests": [
            {"label": label, "test_id": test_id, **_test_fields(run, label)}
            for label, test_id in tests
        ],
    }


def _test_fields(run: Run, label: str) -> dict[str, object]:
    """Return every record that a run has of one label."""

    def records(field: str) -> list[dict[str, object]]:
        """Return the records of this label in a list of the run."""
        return [asdict(record) for record in getattr(run, field) if record.label == label]

    verdicts = (asdict(verdict) for verdict in run.verdicts if verdict.subject.label == label)
    return {
        "verdict": next(verdicts, None),
        "processes": [
            _process_fields(measurement)
            for measurement in run.measurements
            if measurement.label == label
        ],
        "kernel": next(iter(records("resources")), None),
        "kernel_judgement": next(iter(records("exact")), None),
        **{field: records(field) for field in ("figures", "memory_uses", "profiles")},
    }


def _process_fields(measurement: Measurement) -> dict[str, object]:
    """Return one process of a test with its samples, in seconds."""
    return {
        "process": measurement.process,
        "round": measurement.round,
        "median_s": measurement.median_s,
        "seconds": list(measurement.samples.seconds),
        "blocks": len(measurement.samples.block_medians),
        "blocks_left_out": measurement.samples.excluded,
        "labels": list(measurement.samples.labels),
        "first_calls_s": list(measurement.samples.first_calls_s),
        "compile_s": measurement.compile_s,
        "invalid": measurement.invalid,
    }
