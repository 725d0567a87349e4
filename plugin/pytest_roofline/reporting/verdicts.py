"""Sentences about one verdict: the status word of a verbose run, and the message of a red test."""

import math
from collections.abc import Sequence

from ..core.units import format_percent, format_tolerance, printable
from ..judging.stats import CONFIDENCE
from ..judging.verdicts import Kind, Verdict, changed_environment, interval_text
from .remarks import remarks
from .results import Result, figure, limit_text, new_s


def status_word(result: Result) -> str:
    """What stands behind PASSED in a verbose run: `1511 GB/s +0.2 % (-0.4 … +0.8 %, 1 against 5)`."""
    verdict = result.verdict
    text = figure(result.measurement, new_s(result))
    if verdict is not None and verdict.change is not None:
        text += f" {format_percent(verdict.change)}"
        behind = against(verdict) if verdict.reference is not None else f"{verdict.processes} processes"
        behind = f"against {verdict.siblings} siblings" if verdict.siblings else behind
        text += f" ({interval_text(verdict)}, {behind})"
    elif verdict is not None and verdict.limit is not None:
        text += f" (limit {limit_text(result)})"
    if verdict is not None and verdict.overall is not Kind.PASSED:
        text += f" {verdict.overall.value}"
    return text


def status_words(results: Sequence[Result]) -> list[str]:
    """One for each result; of siblings that all passed one for all of them: `8 siblings, 2891 … 2904 GB/s`."""
    if len(results) < 2 or not all(r.verdict and r.verdict.siblings and r.verdict.kind is Kind.PASSED for r in results):
        return [status_word(result) for result in results]
    ordered = sorted((result.measurement for result in results), key=lambda one: -one.median_s)
    return [f"{len(results)} siblings, {figure(ordered[0])} to {figure(ordered[-1])}"]


def against(verdict: Verdict) -> str:
    """How many processes stand on either side: `3 against 15`."""
    assert verdict.reference is not None
    return f"{verdict.processes} against {len(verdict.reference.medians_s)}"


def _interval(verdict: Verdict) -> str:
    return f"{CONFIDENCE * 100:.0f} % interval {interval_text(verdict)}"


def failure_message(result: Result, where: str, degraded: Sequence[str] = ()) -> str:
    """Why a test is red, the difference first, since short summaries truncate; a second line says what changed.

    Args:
        result: a measurement with a failing verdict.
        where: the run file that holds the samples.
        degraded: what the device itself lacks, which comes before all other causes.
    """
    verdict = result.verdict
    assert verdict is not None
    details = f"Details: {where}" if where else "The run could not be saved"
    peak = verdict.peak.reason if verdict.peak is not None and verdict.peak.outweighs else ""
    if peak and verdict.overall is not verdict.kind:
        return _more_memory(result, peak, details)
    details = f"{printable(peak)}. {details}" if peak else details
    sick = f"\n  the device is DEGRADED: {printable('; '.join(degraded))}" if degraded else ""
    if verdict.kind in (Kind.NO_BASELINE, Kind.INVALID):
        return _without_difference(result, details) + sick
    if verdict.limit is not None:
        return _beyond_limit(result, details) + sick
    if verdict.siblings:
        return _behind_siblings(result, details) + sick
    return _slower(result, details) + sick


def _more_memory(result: Result, reason: str, details: str) -> str:
    verdict = result.verdict
    assert verdict is not None
    first = f"{result.label}: {verdict.overall.value} {reason}"
    now, before = dict(result.environment), verdict.reference.environments if verdict.reference is not None else ()
    time = f"its time: {figure(result.measurement)} {verdict.kind.value}"
    second = "; ".join([time, *changed_environment(now, before)])
    accept = "; accept with `roofline baseline propose --accept-slower`" * (verdict.overall is Kind.REGRESSED)
    return f"{printable(first)}\n  {printable(second)}. {details}{accept}."


def _without_difference(result: Result, details: str) -> str:
    measurement, verdict = result.measurement, result.verdict
    assert verdict is not None
    label, reason = printable(measurement.label), printable(verdict.reason)
    if verdict.kind is Kind.INVALID:
        return f"{label}: INVALID ({reason})\n  measured {figure(measurement)}, which must not be trusted. {details}"
    return (
        f"{label}: NO BASELINE ({reason}), and a baseline is required\n"
        f"  measured {figure(measurement)}. {details}; record one with `roofline baseline propose`."
    )


def _beyond_limit(result: Result, details: str) -> str:
    verdict = result.verdict
    assert verdict is not None
    assert verdict.limit is not None
    assert verdict.estimate is not None
    assert verdict.change is not None
    # Of the processes as the limit's source sums them up, which may be their mean or their fastest call.
    observed_s = verdict.limit.seconds * math.exp(verdict.estimate)
    return (
        f"{printable(result.measurement.label)}: {format_percent(verdict.change)} time beyond its limit "
        f"({figure(result.measurement, observed_s)}) {verdict.kind.value}, {printable(verdict.reason)}, "
        f"{_interval(verdict)}\n  {details}."
    )


def _behind_siblings(result: Result, details: str) -> str:
    verdict = result.verdict
    assert verdict is not None
    interval = f", {_interval(verdict)}" if verdict.interval is not None else ""
    label, reason = printable(result.measurement.label), printable(verdict.reason)
    return f"{label}: {verdict.kind.value}, {reason}{interval}\n  {details}."


def _slower(result: Result, details: str) -> str:
    measurement, verdict = result.measurement, result.verdict
    assert verdict is not None
    assert verdict.change is not None
    assert verdict.reference is not None
    assert verdict.difference is not None
    known = len(verdict.reference.medians_s)
    first = (
        f"{printable(measurement.label)}: {format_percent(verdict.change)} time ({figure(measurement, new_s(result))}, "
        f"baseline {figure(measurement, verdict.difference.reference_s)}) {verdict.kind.value}, "
        f"tolerance {format_tolerance(verdict.tolerance)}, {_interval(verdict)}, {against(verdict)} "
        f"process{'es' * (known > 1)}"
    )
    if verdict.kind is Kind.INCONCLUSIVE:
        return f"{first}\n  {'; '.join([printable(verdict.reason), *remarks(result)])}. {details}"
    second = "; ".join([*remarks(result), _agreement(verdict)])
    return f"{first}\n  {printable(second)}. {details}; accept with `roofline baseline propose --accept-slower`."


def _agreement(verdict: Verdict) -> str:
    count = verdict.compared_processes
    if count == 1:
        return "one process behind the baseline"
    return f"{verdict.slower_processes} of {count} processes behind the baseline were faster"
