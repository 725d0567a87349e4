"""Sentences about one verdict: its word in a verbose run, the message of a red test, and what may explain it."""

import math
import shlex
from collections.abc import Sequence

from ..baselines.remarks import remarks, since_lines
from ..core.errors import ACCEPT, RECORD
from ..core.facts import Finding
from ..core.rows import Row
from ..core.units import format_percent, format_tolerance, printable
from ..core.verdicts import Kind, Verdict
from ..stats.stats import CONFIDENCE
from .words import figure, limit_text, span_text


def status_word(row: Row) -> str:
    """What stands behind PASSED in a verbose run: `1511 GB/s +0.2 % (-0.4 … +0.8 %, 1 against 5)`."""
    text, judged = figure(row), row.time_verdict
    if judged is not None and row.change is not None:
        behind = against(row) if row.baseline_processes else f"{row.processes} processes"
        behind = f"against {judged.siblings} siblings" if judged.siblings else behind
        text += f" {format_percent(row.change)} ({span_text(row)}, {behind})"
    elif limit_text(row):
        text += f" (limit {limit_text(row)})"
    return text if judged is None or row.verdict == Kind.PASSED else f"{text} {row.verdict}"


def status_words(rows: Sequence[Row]) -> list[str]:
    """One for each result; of siblings that all passed one for all of them: `8 siblings, 2891 … 2904 GB/s`."""
    alike = all(
        row.time_verdict and row.time_verdict.siblings and row.verdict == Kind.PASSED
        for row in rows
    )
    if len(rows) < 2 or not alike:
        return [status_word(row) for row in rows]
    ordered = sorted(rows, key=lambda row: -(row.time_s or 0.0))
    return [f"{len(rows)} siblings, {figure(ordered[0])} to {figure(ordered[-1])}"]


def against(row: Row) -> str:
    """How many processes stand on either side: `3 against 15`."""
    return f"{row.processes} against {row.baseline_processes}"


def _interval(row: Row) -> str:
    return f"{CONFIDENCE * 100:.0f} % interval {span_text(row)}"


def failure_message(row: Row, where: str, degraded: Sequence[str] = ()) -> str:
    """Why a test is red, the difference first, since short summaries truncate; a second line says what changed.

    Args:
        row: a measurement with a failing verdict.
        where: the run file that holds the samples.
        degraded: what the device itself lacks, which comes before all other causes.
    """
    judged = row.time_verdict
    assert judged is not None
    details = f"Details: {where}" if where else "The run could not be saved"
    more = judged.bad_peak.reason if judged.bad_peak is not None else ""
    if more and row.by_peak:
        return _more_memory(row, judged, details)
    details = f"{printable(more)}. {details}" if more else details
    sick = f"\n  the device is DEGRADED: {printable('; '.join(degraded))}" if degraded else ""
    if judged.kind in (Kind.NO_BASELINE, Kind.INVALID):
        return _without_difference(row, details) + sick
    if judged.limit_s is not None:
        return _beyond_limit(row, judged, details) + sick
    if judged.siblings:
        interval = f", {_interval(row)}" if row.interval is not None else ""
        return (
            f"{printable(row.label)}: {row.verdict}, {printable(row.time_reason)}{interval}\n  {details}."
            + sick
        )
    return _slower(row, judged, details) + sick + _next_command(row, judged, where)


def _next_command(row: Row, judged: Verdict, where: str) -> str:
    """Return the command that explains a red comparison, on a line of its own, which no terminal breaks."""
    if not where or judged.kind is not Kind.REGRESSED:
        return ""
    return f"\n  roofline explain {shlex.quote(where)} {shlex.quote(printable(row.label))}"


def _more_memory(row: Row, judged: Verdict, details: str) -> str:
    first = f"{row.label}: {row.verdict} {row.reason}"
    second = "; ".join([f"its time: {figure(row)} {judged.kind}", *judged.subject.changed])
    accept = f"; {ACCEPT}" * (row.verdict == Kind.REGRESSED)
    return f"{printable(first)}\n  {printable(second)}. {details}{accept}."


def _without_difference(row: Row, details: str) -> str:
    label, reason = printable(row.label), printable(row.reason)
    if row.verdict == Kind.INVALID:
        return f"{label}: INVALID ({reason})\n  measured {figure(row)}, which must not be trusted. {details}"
    return (
        f"{label}: NO BASELINE ({reason}), and a baseline is required\n"
        f"  measured {figure(row)}. {details}; {RECORD}."
    )


def _beyond_limit(row: Row, judged: Verdict, details: str) -> str:
    assert judged.limit_s is not None
    assert judged.estimate is not None
    assert row.change is not None
    # Of the processes as the limit's source sums them up, which may be their mean or their fastest call.
    observed_s = judged.limit_s * math.exp(judged.estimate)
    return (
        f"{printable(row.label)}: {format_percent(row.change)} time beyond its limit "
        f"({figure(row, observed_s)}) {judged.kind}, {printable(row.time_reason)}, {_interval(row)}\n  {details}."
    )


def _slower(row: Row, judged: Verdict, details: str) -> str:
    assert row.change is not None
    processes = f"{against(row)} process{'es' * ((row.baseline_processes or 0) > 1)}"
    first = (
        f"{printable(row.label)}: {format_percent(row.change)} time ({figure(row)}, baseline "
        f"{figure(row, row.baseline_time_s)}) {judged.kind}, tolerance {format_tolerance(judged.tolerance)}, "
        f"{_interval(row)}, {processes}"
    )
    if judged.kind is Kind.INCONCLUSIVE:
        return f"{first}\n  {'; '.join([printable(row.time_reason), *remarks(judged)])}. {details}"
    facts = [*since_lines(judged), row.time_reason, *remarks(judged), _agreement(judged)]
    return f"{first}\n  {printable('; '.join(filter(None, facts)))}.\n  {details}; {ACCEPT}."


def _agreement(judged: Verdict) -> str:
    count = judged.compared_processes
    if count == 1:
        return "one process behind the baseline"
    return f"{judged.slower_processes} of {count} processes behind the baseline were faster"


def health_message(findings: Sequence[Finding]) -> str:
    """Why a device is DEGRADED: the worst cause in the first line, then each with its effect and remedy.

    Empty where nothing was found.
    """
    if not findings:
        return ""
    worst = findings[0]
    more = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    lines = [f"DEGRADED: {worst.observed} ({_flat(worst.subject)}){more}"]
    lines += [
        f"  {found.subject}: {found.observed}: {found.effect}. Mend: {found.remedy}."
        for found in findings
    ]
    return "\n".join(printable(line) for line in lines)


def _flat(subject: str) -> str:
    """`GPU 0, NVIDIA H200` of `GPU 0 (NVIDIA H200)`, to stand in parentheses itself."""
    name, between, product = subject.partition(" (")
    return f"{name}, {product.removesuffix(')')}" if between else subject
