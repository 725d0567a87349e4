"""A result as a row: its numbers are worked out once, for all reports."""

import math
from collections.abc import Iterable
from dataclasses import replace
from statistics import geometric_mean, stdev

from ..core.directions import (
    inverse_if_higher,
    is_of_tool,
    is_own_figure,
    more_is_better,
    unit_of,
)
from ..core.entries import Entry
from ..core.keys import Key
from ..core.memory import OutOfMemory
from ..core.records import Measurement
from ..core.resources import ResourceKey, Resources
from ..core.rows import FIGURE, KERNEL, MEMORY, TIME, Row, finite, inverse_change
from ..core.verdicts import ExactVerdict, Idle, Kind, OddSession, Verdict
from ..core.work import Work, rate_unit
from ..stats.key_results import KeyResults
from ..stats.stats import CONFIDENCE, growth
from .reasons import reason_text


def timed_row(
    results: KeyResults,
    verdict: Verdict | None = None,
    *,
    measurement: Measurement | None = None,
    word: str = "",
    reason: str = "",
    published: tuple[Entry, ...] = (),
    idle: tuple[Idle, ...] = (),
) -> Row:
    """Return the row of a measurement.

    Args:
        results: the measurements of every process.
        verdict: on their times; None where the test failed by itself.
        measurement: the one that represents all; by default that of the middle process.
        word: the word to show in place of the verdict's, with its `reason`; empty for the verdict's.
        published: published figures and `idle` limits, where there is no verdict that holds them.
    """
    measurement = measurement or results.representative(None)
    seconds = _shown_s(results, measurement, verdict)
    row = _plain_row(
        measurement.key,
        measurement.work,
        seconds,
        measurement.test_id,
        measurement.label,
        measurement,
    )
    if verdict is not None:
        published, idle = verdict.subject.published, verdict.subject.idle
        row = _judged_row(row, verdict)
    row = replace(row, verdict=word, reason=reason) if word else row
    process_count = verdict.processes if verdict is not None else 0
    row = replace(
        _with_measured(row, measurement, seconds),
        processes=process_count or _valid_process_count(results) or None,
        measurements=tuple(results.measurements),
        published=published,
        idle=idle,
    )
    return _in_own_terms(row) if _has_own_terms(row) else row


def _shown_s(results: KeyResults, measurement: Measurement, verdict: Verdict | None) -> float:
    """Return the time to show, in seconds.

    It is that of the verdict on several processes, if there is one.
    """
    # Of a single process the verdict has no better centre than its own median.
    difference = verdict.difference if verdict is not None and verdict.processes > 1 else None
    centre_s = difference.new_s if difference is not None else None
    return centre_s or _centre_s(results, measurement)


def _with_measured(row: Row, measurement: Measurement, seconds: float) -> Row:
    """Return a row with the facts of the measurement that represents all."""
    kept = measurement.samples.kept
    return replace(
        row,
        held_bytes=measurement.held_bytes,
        compile_s=measurement.compile_s,
        labels=list(measurement.samples.labels) or None,
        ranks=measurement.ranks.size if measurement.ranks is not None else None,
        roofline_source=measurement.ceiling.source if measurement.ceiling is not None else None,
        roofline_share=_roofline_share(row, measurement),
        tokens_per_second=finite(measurement.work.tokens / seconds)
        if measurement.work.tokens and measurement.has_rate
        else None,
        flops_per_s=row.rate_of(row.time_s, "TFLOPS"),
        operational_intensity=measurement.work.operational_intensity,
        std_s=stdev(kept) if len(kept) > 1 else None,
        iterations=len(kept) * measurement.samples.iterations,
    )


def _valid_process_count(results: KeyResults) -> int:
    return len(
        {measurement.process for measurement in results.measurements if not measurement.invalid}
    )


def _roofline_share(row: Row, measurement: Measurement) -> float | None:
    """Return the rate as a share of the roofline.

    None without a roofline, and for an INVALID result.
    """
    ceiling = measurement.ceiling
    if ceiling is None or row.verdict == Kind.INVALID:
        return None
    rate = row.rate_of(row.time_s, ceiling.metric)
    return finite(rate / ceiling.value) if rate is not None else None


def _centre_s(results: KeyResults, representative: Measurement) -> float:
    """Return the geometric mean over the processes that count, in seconds.

    With fewer than two of them it is the representative's median.
    """
    times_s = (
        []
        if representative.invalid or results.invalid(None)
        else [measurement.median_s for measurement in results.sound(None)]
    )
    return geometric_mean(times_s) if len(times_s) > 1 else representative.median_s


def compared_row(
    key: Key,
    work: Work | None,
    verdict: Verdict,
    seconds: float | None,
    base_s: float | None = None,
) -> Row:
    """Return the row of a compared measurement.

    `seconds` is the centre of its processes; None where the comparison has no time. `base_s` is that of the base,
    where it is not the one of the verdict.
    """
    subject = verdict.subject
    row = _plain_row(key, work, seconds, subject.test_id, subject.label)
    row = replace(_judged_row(row, verdict), idle=subject.idle)
    if base_s is not None:
        row = replace(row, baseline_value=base_s, baseline_time_s=base_s)
    return _in_own_terms(row) if _has_own_terms(row) else row


def told_metric(key: Key) -> str:
    """Return the metric in whose terms a verdict is told: that of a program's figure. It is empty for a time."""
    is_figure = is_own_figure(key.metric) or (
        is_of_tool(key.benchmark) and more_is_better(key.metric)
    )
    return key.metric if is_figure else ""


def _has_own_terms(row: Row) -> bool:
    """Return True for a program's figure, and for a rate whose verdict is told as one."""
    is_told = row.time_verdict is not None and bool(row.time_verdict.subject.metric)
    return is_told or (row.key is not None and is_own_figure(row.key.metric))


def _in_own_terms(row: Row) -> Row:
    """Return the row of a figure with its numbers as the program states them.

    It has no time. Of a figure of which more is better a negative change is the worse one.
    """
    assert row.key is not None
    metric, flips = row.key.metric, more_is_better(row.key.metric)
    # An inverse turns the order of the interval's ends around.
    low, high = (row.change_high, row.change_low) if flips else (row.change_low, row.change_high)
    return replace(
        row,
        metric=FIGURE,
        unit=(unit_of(row.key.name) or None) if is_own_figure(metric) else rate_unit(metric),
        value=_own_value(row, row.time_s),
        baseline_value=_own_value(row, row.baseline_time_s),
        change=inverse_change(row.change) if flips else row.change,
        change_low=inverse_change(low) if flips else low,
        change_high=inverse_change(high) if flips else high,
        time_s=None,
        baseline_time_s=None,
        std_s=None,
    )


def _own_value(row: Row, seconds: float | None) -> float | None:
    """Return what the program states where seconds are kept."""
    assert row.key is not None
    if seconds is None or not is_own_figure(row.key.metric):
        return row.rate_of(seconds)
    return inverse_if_higher(row.key.metric, seconds)


def _plain_row(
    key: Key,
    work: Work | None,
    seconds: float | None,
    test: str,
    label: str,
    measurement: Measurement | None = None,
) -> Row:
    """Return the row of a measurement without its verdict."""
    row = Row(
        test=test,
        label=label,
        verdict="",
        benchmark=key.benchmark,
        name=key.name,
        parameters=key.parameters,
        cache=key.cache,
        timing=key.timing,
        hardware=str(key.hardware),
        counting=key.metric,
        size_bytes=_size_bytes(key, work),
        metric=TIME,
        unit="s",
        value=seconds,
        time_s=seconds,
        key=key,
        work=work,
        measurement=measurement,
    )
    rate = row.rate_of(seconds)
    return replace(row, rate=rate, rate_unit=rate_unit(key.metric) if rate is not None else None)


def _size_bytes(key: Key, work: Work | None) -> int | None:
    """Return the size among the test's parameters, else that of its work."""
    size_bytes = key.parameters.get("size_bytes")
    if isinstance(size_bytes, int) and size_bytes > 0:
        return size_bytes
    return (work.size_bytes or None) if work is not None else None


def _judged_row(row: Row, verdict: Verdict) -> Row:
    """Return a row with the verdict on its time."""
    peak, interval = verdict.peak, verdict.interval
    # The verdict on peak memory decides where it is worse than that on the time.
    by_peak = peak is not None and verdict.overall is not verdict.kind
    reference_s, reason = _reference_s(verdict), reason_text(verdict)
    change = growth(verdict.estimate) if verdict.estimate is not None else None
    return replace(
        row,
        time_verdict=verdict,
        verdict=verdict.overall.value,
        time_reason=reason,
        reason=peak.reason if peak is not None and by_peak else reason,
        baseline_value=reference_s,
        baseline_time_s=reference_s,
        baseline_rate=row.rate_of(reference_s),
        change=change if change is None or math.isfinite(change) else None,
        change_low=growth(interval[0]) if interval is not None else None,
        change_high=growth(interval[1]) if interval is not None else None,
        confidence=CONFIDENCE if interval is not None else None,
        tolerance=verdict.tolerance,
        detectable=verdict.reach,
        processes=verdict.processes or None,
        baseline_processes=len(verdict.baseline_medians_s) or None,
        baseline_sessions=len(verdict.sessions) or None,
    )


def _reference_s(verdict: Verdict) -> float | None:
    """Return the centre of the part of the reference that was compared, in seconds.

    Without a comparison it is the centre of the whole reference.
    """
    if verdict.difference is not None:
        return verdict.difference.reference_s
    return verdict.reference.median_s if verdict.reference is not None else None


def together_row(verdict: Verdict) -> Row:
    """Return the row of all tests, judged as one."""
    row = Row(
        test="", label=verdict.subject.label, verdict="", parameters={}, metric=TIME, unit="s"
    )
    # The times of all tests together are ratios, not seconds: the row leaves out that of the baseline.
    return replace(_judged_row(row, verdict), baseline_value=None, baseline_time_s=None)


def odd_behind(rows: Iterable[Row]) -> list[OddSession]:
    """Return the odd sessions in the baselines of some rows.

    Those that are strange in most tests come first.
    """
    references = [row.time_verdict.reference for row in rows if row.time_verdict is not None]
    odd = dict.fromkeys(
        session for reference in references if reference is not None for session in reference.odd
    )
    return sorted(odd, key=lambda session: -session.strange)


def kernel_row(
    key: ResourceKey,
    figures: dict[str, int],
    exact: ExactVerdict | None = None,
    *,
    baseline_figures: dict[str, int] | None = None,
) -> Row:
    """Return the row of a compiled kernel."""
    return Row(
        test=exact.test_id if exact is not None else "",
        label=exact.label if exact is not None else key.label,
        verdict=exact.verdict if exact is not None else "",
        reason=exact.reason if exact is not None else "",
        benchmark=key.benchmark,
        name=key.name,
        parameters=key.parameters,
        metric=KERNEL,
        target=key.target,
        figures=figures,
        exact=exact,
        baseline_figures=baseline_figures,
    )


def compiled_row(
    resources: Resources,
    exact: ExactVerdict | None = None,
    *,
    verdict: str = "",
    reason: str = "",
) -> Row:
    """Return the row of a kernel that a run compiled.

    `verdict` is the word to show with its `reason`, in place of those of the exact verdict.
    """
    row = kernel_row(resources.key, resources.figures, exact)
    return replace(
        row,
        test=resources.test_id,
        label=resources.label,
        resources=resources,
        verdict=verdict or row.verdict,
        reason=reason if verdict else row.reason,
    )


def exact_row(exact: ExactVerdict, *, verdict: str = "", reason: str = "") -> Row:
    """Return the row of one figure with an exact verdict.

    `verdict` is the word to show with its `reason`, in place of those of the exact verdict.
    """
    return Row(
        test=exact.test_id,
        label=exact.label,
        verdict=verdict or exact.verdict,
        reason=reason if verdict else exact.reason,
        benchmark=exact.benchmark,
        name=exact.name,
        parameters=exact.parameters,
        metric=exact.metric,
        value=exact.value,
        unit=exact.unit or None,
        baseline_value=exact.baseline_value,
        change=exact.change,
        tolerance=exact.tolerance,
        exact=exact,
    )


def memory_row(lost: OutOfMemory, *, verdict: str, reason: str = "") -> Row:
    """Return the row of a test that ran out of memory."""
    return Row(
        test=lost.test_id,
        label=lost.label,
        verdict=verdict,
        reason=reason,
        benchmark=lost.benchmark,
        name=lost.name or "",
        parameters=lost.parameters,
        metric=MEMORY,
        asked_bytes=lost.allocation.asked_bytes,
        free_bytes=lost.allocation.free_bytes,
        lost=lost,
    )
