"""`roofline explain`: one measurement of a run, process by process, and how its verdict came about."""

import math
from collections.abc import Sequence
from statistics import median

from ..core.records import Judgement, Measurement, PeakJudgement
from ..core.units import count, format_memory, format_percent, format_seconds, format_tolerance, printable
from ..judging.looks import FALSE_RED
from ..judging.picking import is_imported
from ..judging.runs import Run
from ..judging.stats import growth
from ..judging.verdicts import WORTH_REPORTING
from .details import chance_text, difference_text, sides_text, spread_text
from .first_calls import first_call_text

# Positions of a strip of samples, from the fastest to the slowest that is shown.
STRIP = 32
_HEIGHTS = " ▁▂▃▄▅▆▇█"


def explanation(run: Run, label: str, width: int) -> list[str]:
    """Everything that is known of one label, as lines.

    Args:
        run: with its judgements.
        label: of a measurement in it.
        width: of the terminal, in columns.
    """
    measurements = [measurement for measurement in run.measurements if measurement.label == label]
    judgement = next((known for known in run.judgements if known.label == label), None)
    lines = [printable(f"{label} in {run.path}"), *_samples(measurements, width)]
    if judgement is None:
        return [*lines, *map(printable, f"no verdict: {_unjudged(run, measurements)}".splitlines())]
    elsewhere = [f"published, shown only: {text}" for text in judgement.published]
    memory = [_memory(judgement.peak)] if judgement.peak is not None else []
    return [*lines, *_reference(judgement), *map(printable, elsewhere), *_reasoning(judgement), *memory]


def _unjudged(run: Run, measurements: Sequence[Measurement]) -> str:
    if is_imported(run):
        return "an imported run is judged by `roofline compare` only"
    tests = {measurement.test_id for measurement in measurements}
    reasons = [run.not_passed[test_id].reason for test_id in sorted(tests & set(run.not_passed))]
    if not any(reasons):
        return "the test failed for itself, or the run was cut before its end"
    return f"the test failed for itself: {'; '.join(filter(None, reasons))}"


def _samples(measurements: Sequence[Measurement], width: int) -> list[str]:
    """A line for each process: its median, its blocks, and where its samples lie on one common scale."""
    everything = sorted(value for measurement in measurements for value in measurement.samples.seconds)
    low, high = everything[0], everything[min(len(everything) - 1, int(0.98 * len(everything)))]
    lines = [f"samples by process, each strip from {format_seconds(low)} to {format_seconds(high)}:"]
    for measurement in measurements:
        samples = measurement.samples
        strip = _strip(samples.seconds, low, high, min(STRIP, max(8, width - 64)))
        text = (
            f"  round {measurement.round}, process {measurement.process[:6]}: {format_seconds(measurement.median_s)} "
            f"|{strip}| {count(len(samples.seconds), 'sample')} in {count(len(samples.block_medians), 'block')}"
        )
        lines.append(text + (f"; does not count: {measurement.invalid}" if measurement.invalid else ""))
        if samples.first_calls_s:
            lines.append(f"      first calls: {first_call_text(measurement)}")
        if measurement.compile_s is not None:
            lines.append(f"      compiling: {format_seconds(measurement.compile_s)} beyond a warm call")
        if samples.excluded:
            causes = ", ".join(f"{number} by {cause}" for cause, number in samples.excluded.items())
            lines.append(f"      blocks left out: {causes}")
    return [printable(line) for line in lines]


def _strip(seconds: Sequence[float], low: float, high: float, width: int) -> str:
    """How many samples lie where between two times, as bars; what lies beyond is in the last."""
    counts = [0] * width
    for value in seconds:
        share = 0.0 if high == low else (value - low) / (high - low)
        counts[min(width - 1, max(0, int(share * width)))] += 1
    most = max(counts)
    return "".join(_HEIGHTS[math.ceil(count / most * (len(_HEIGHTS) - 1))] for count in counts)


def _reference(judgement: Judgement) -> list[str]:
    if not judgement.reference:
        return []
    lines = [printable(f"baseline {judgement.source}:")]
    for session in judgement.reference:
        values = sorted(session.process_medians)
        many = f" ({format_seconds(values[0])} … {format_seconds(values[-1])})" if len(values) > 1 else ""
        device = f" on {session.device}" if session.device else ""
        lines.append(
            printable(
                f"  session of {session.started or 'an unknown time'}{device}: {len(values)} "
                f"process{'es' * (len(values) > 1)}, {format_seconds(median(values))}{many}"
            )
        )
    return lines


def _reasoning(judgement: Judgement) -> list[str]:
    """The steps of the rule, each with its figures."""
    if judgement.estimate is None or judgement.error is None or judgement.interval is None:
        told = f"{judgement.verdict}: {judgement.reason or 'nothing to compare with'}"
        if judgement.interval is None:
            return [printable(told)]
        what = "beyond the limit" if judgement.limit_s is not None else "against the others"
        beyond = f"{difference_text(judgement)}, {what}, from {count(judgement.processes, 'process', 'es')}"
        return [printable(beyond), printable(told)]
    limit, worth = judgement.tolerance, WORTH_REPORTING * judgement.tolerance
    slower = judgement.estimate > math.log1p(limit)
    lines = [
        sides_text(judgement),
        f"difference {difference_text(judgement)}",
        spread_text(judgement),
        chance_text(judgement),
        f"is it slower than the tolerance? {format_percent(growth(judgement.estimate))} is "
        f"{'more' if slower else 'not more'} than {format_tolerance(limit)}",
        f"is it surely more than the smallest effect worth reporting, {format_tolerance(round(worth, 6))}? "
        f"{_chance(judgement)}",
        *(f"note: {remark}" for remark in judgement.remarks),
        f"{judgement.verdict}" + (f": {judgement.reason}" if judgement.reason else ""),
    ]
    return [printable(line) for line in lines]


def _memory(peak: PeakJudgement) -> str:
    """`memory: PASSED, peak 1.02 GiB, baseline 1.00 GiB, tolerated either way 51.2 MiB`."""
    sizes = {"peak": peak.new_bytes, "baseline": peak.reference_bytes, "tolerated either way": peak.allowed_bytes}
    told = [f"{name} {format_memory(size)}" for name, size in sizes.items() if size is not None]
    return printable(", ".join([f"memory: {peak.verdict}", *told]) + (f": {peak.reason}" if peak.reason else ""))


def _chance(judgement: Judgement) -> str:
    if judgement.p is None or judgement.p_adjusted is None:
        return "not asked"
    word = "yes" if judgement.p_adjusted <= FALSE_RED else "no"
    paid = f"{judgement.p_adjusted:.2g} after paying for all looks and all tests, against {FALSE_RED:g}"
    return f"{word}: p {judgement.p:.2g}, {paid}"
