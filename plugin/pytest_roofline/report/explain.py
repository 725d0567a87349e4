"""`roofline explain`: one result of a run, process by process, and how its verdict came about."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from statistics import median
from typing import Any

from ..baselines.runs import Run
from ..core.judgements import Judgement, PeakJudgement
from ..core.memory import MemoryUse
from ..core.profiles import Figure, Profile
from ..core.records import Measurement
from ..core.rows import Row
from ..core.units import (
    count,
    format_memory,
    format_percent,
    format_seconds,
    format_tolerance,
    printable,
)
from ..kernel_gate.text import explanation as kernel_explanation
from ..observe.text import memory_lines, profile_lines
from ..stats.looks import FALSE_RED
from ..stats.outlook import WORTH_REPORTING
from ..stats.stats import growth
from ..stats.verdicts import span_text
from .figures import figure_lines, first_call_text

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
    lines += _samples(row.measurements, width)
    judgement = row.judgement
    if judgement is None:
        return [*lines, *map(printable, f"no verdict: {_unjudged(row)}".splitlines())]
    return [
        *lines,
        *_reference(judgement),
        *(printable(f"published, shown only: {text}") for text in judgement.published),
        *_reasoning(judgement),
        *([_memory(judgement.peak)] if judgement.peak is not None else []),
    ]


def _unjudged(row: Row) -> str:
    if row.header is not None and row.header.command[:2] == ("roofline", "import"):
        return "an imported run is judged by `roofline compare` only"
    reason = row.ended.reason if row.ended is not None and row.ended.outcome != "passed" else ""
    return "the test failed for itself" + (
        f": {reason}" if reason else ", or the run was cut before its end"
    )


def _samples(measurements: Sequence[Measurement], width: int) -> list[str]:
    """Return a line for each process: its median, its blocks, and its samples on one common scale."""
    values = sorted(value for measurement in measurements for value in measurement.samples.seconds)
    low, high = values[0], values[min(len(values) - 1, int(0.98 * len(values)))]
    lines = [
        f"samples by process, each strip from {format_seconds(low)} to {format_seconds(high)}:"
    ]
    for measurement in measurements:
        samples = measurement.samples
        strip = _strip(samples.seconds, low, high, min(STRIP, max(8, width - 64)))
        invalid = f"; does not count: {measurement.invalid}" if measurement.invalid else ""
        lines.append(
            f"  round {measurement.round}, process {measurement.process[:6]}: {format_seconds(measurement.median_s)} "
            f"|{strip}| {count(len(samples.seconds), 'sample')} in "
            f"{count(len(samples.block_medians), 'block')}{invalid}"
        )
        if samples.first_calls_s:
            lines.append(f"      first calls: {first_call_text(measurement)}")
        if measurement.compile_s is not None:
            lines.append(
                f"      compiling: {format_seconds(measurement.compile_s)} beyond a warm call"
            )
        if samples.excluded:
            causes = ", ".join(f"{number} by {cause}" for cause, number in samples.excluded.items())
            lines.append(f"      blocks left out: {causes}")
    return [printable(line) for line in lines]


def _strip(seconds: Sequence[float], low: float, high: float, width: int) -> str:
    """Return the number of samples by place between two times, as bars; those beyond are in the last."""
    shares = (0.0 if high == low else (value - low) / (high - low) for value in seconds)
    counts = Counter(min(width - 1, max(0, int(share * width))) for share in shares)
    most = max(counts.values())
    heights = (math.ceil(counts[at] / most * (len(_HEIGHTS) - 1)) for at in range(width))
    return "".join(_HEIGHTS[height] for height in heights)


def _reference(judgement: Judgement) -> list[str]:
    lines = [f"baseline {judgement.source}:"] * bool(judgement.reference)
    for session in judgement.reference:
        values = sorted(session.process_medians)
        span = f" ({format_seconds(values[0])} … {format_seconds(values[-1])})" * (len(values) > 1)
        device = f" on {session.device}" if session.device else ""
        lines.append(
            f"  session of {session.started or 'an unknown time'}{device}: "
            f"{count(len(values), 'process', 'es')}, {format_seconds(median(values))}{span}"
        )
    return list(map(printable, lines))


def _reasoning(judgement: Judgement) -> list[str]:
    """The steps of the rule, each with its figures."""
    if judgement.estimate is None or judgement.error is None or judgement.interval is None:
        verdict = printable(f"{judgement.verdict}: {judgement.reason or 'nothing to compare with'}")
        if judgement.interval is None:
            return [verdict]
        side = "beyond the limit" if judgement.limit_s is not None else "against the others"
        processes = count(judgement.processes, "process", "es")
        return [printable(f"{difference_text(judgement)}, {side}, from {processes}"), verdict]
    limit, worth = judgement.tolerance, WORTH_REPORTING * judgement.tolerance
    slower = judgement.estimate > math.log1p(limit)
    lines = [
        _sides(judgement),
        f"difference {difference_text(judgement)}",
        _spreads(judgement),
        _chances(judgement),
        f"is it slower than the tolerance? {format_percent(growth(judgement.estimate))} is "
        f"{'more' if slower else 'not more'} than {format_tolerance(limit)}",
        f"is it surely more than the smallest effect worth reporting, {format_tolerance(round(worth, 6))}? "
        f"{_surely(judgement)}",
        *(f"note: {remark}" for remark in judgement.remarks),
        f"{judgement.verdict}" + (f": {judgement.reason}" if judgement.reason else ""),
    ]
    return [printable(line) for line in lines]


def _memory(peak: PeakJudgement) -> str:
    """`memory: PASSED, peak 1.02 GiB, baseline 1.00 GiB, tolerated either way 51.2 MiB`."""
    sizes = {
        "peak": peak.new_bytes,
        "baseline": peak.reference_bytes,
        "tolerated either way": peak.allowed_bytes,
    }
    texts = [f"{name} {format_memory(size)}" for name, size in sizes.items() if size is not None]
    return printable(
        ", ".join([f"memory: {peak.verdict}", *texts]) + (f": {peak.reason}" if peak.reason else "")
    )


def _surely(judgement: Judgement) -> str:
    if judgement.p is None or judgement.p_adjusted is None:
        return "not asked"
    return (
        f"{'yes' if judgement.p_adjusted <= FALSE_RED else 'no'}: p {judgement.p:.2g}, {judgement.p_adjusted:.2g} "
        f"after paying for all looks and all tests, against {FALSE_RED:g}"
    )


def detail_lines(rows: Sequence[Row]) -> list[str]:
    """For each verdict, three lines with its spreads, its chances of error and what stands behind it."""
    judged = (row.judgement for row in rows if row.judgement is not None)
    return [
        line
        for judgement in judged
        if judgement.compared
        for line in (
            f"{printable(judgement.label)}: {judgement.verdict}",
            f"    {_spreads(judgement)}",
            f"    {_chances(judgement)}",
            f"    {_sides(judgement)}",
        )
    ]


def _spreads(judgement: Judgement) -> str:
    """The spreads between processes, sessions and devices, each with where it comes from."""
    spreads = (
        ("processes", judgement.process_spread),
        ("sessions", judgement.session_spread),
        ("devices", judgement.device_spread),
    )
    return "spread between " + "; ".join(
        f"{name} {spread.value:.2%} ({printable(spread.origin)})"
        for name, spread in spreads
        if spread is not None
    )


def _chances(judgement: Judgement) -> str:
    """Standard error, p, adjusted p, and the slowdown that the run's rule finds 80 times in 100."""
    assert judgement.error is not None
    freedom = (
        "known" if judgement.freedom is None else f"{judgement.freedom:.3g} degrees of freedom"
    )
    chances = (
        ("p {:.2g}", judgement.p),
        ("adjusted for all tests {:.2g}", judgement.p_adjusted),
        ("detects {:.1%}", judgement.reach),
    )
    texts = [form.format(value) for form, value in chances if value is not None]
    return ", ".join([f"standard error {judgement.error:.2%} ({freedom})", *texts])


def _sides(judgement: Judgement) -> str:
    """The two centres, and how many devices, sessions and processes stand behind each."""
    assert judgement.new_s is not None
    assert judgement.reference_s is not None
    sessions = judgement.reference
    devices = len({session.device for session in sessions})
    processes = sum(len(session.process_medians) for session in sessions)
    device = (
        "another device"
        if judgement.device_spread
        else "paired"
        if judgement.paired
        else "one device"
    )
    return (
        f"now {format_seconds(judgement.new_s)} from {count(judgement.processes, 'process', 'es')} of 1 session; "
        f"baseline {format_seconds(judgement.reference_s)} from {count(processes, 'process', 'es')} of "
        f"{count(len(sessions), 'session')} on {count(devices, 'device')} ({device})"
    )


def difference_text(judgement: Judgement) -> str:
    """`+6.1 % (99 % -0.4 … +13.2 %), tolerance 5 %`."""
    assert judgement.estimate is not None
    assert judgement.interval is not None
    return (
        f"{format_percent(growth(judgement.estimate))} time (99 % interval {span_text(judgement.interval)}), "
        f"tolerance {format_tolerance(judgement.tolerance)}"
    )


def note_labels(run: Run) -> dict[str, str]:
    """Every label that has a note, with its test id."""
    notes: tuple[Figure | MemoryUse | Profile, ...] = (
        *run.figures,
        *run.memory_uses,
        *run.profiles,
    )
    return {note.label: note.test_id for note in notes}


def note_lines(run: Run, label: str, width: int) -> list[str]:
    """The notes of one label, as the run itself showed them; empty where it has none."""
    figures = [figure for figure in run.figures if figure.label == label]
    uses = [use for use in run.memory_uses if use.label == label]
    profiles = [profile for profile in run.profiles if profile.label == label]
    lines = figure_lines(figures) + memory_lines(uses) + profile_lines(profiles, width)
    return [printable(f"found besides times in {run.path}:"), *lines] if lines else []


def explanation_as_json(run: Run, tests: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Return the tests as a run has them.

    Times are in seconds, differences and intervals in log seconds, as in the run file.

    Args:
        run: with its judgements.
        tests: label and test id of each.
    """
    return {
        "run": str(run.path),
        "run_id": run.header.run_id,
        "tests": [
            {"label": label, "test_id": test_id, **_test(run, label)} for label, test_id in tests
        ],
    }


def _test(run: Run, label: str) -> dict[str, Any]:
    def records(name: str) -> list[dict[str, Any]]:
        return [asdict(record) for record in getattr(run, name) if record.label == label]

    return {
        "judgement": next(iter(records("judgements")), None),
        "processes": [
            _process(measurement) for measurement in run.measurements if measurement.label == label
        ],
        "kernel": next(iter(records("resources")), None),
        "kernel_judgement": next(iter(records("exact")), None),
        **{name: records(name) for name in ("figures", "memory_uses", "profiles")},
    }


def _process(measurement: Measurement) -> dict[str, Any]:
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
