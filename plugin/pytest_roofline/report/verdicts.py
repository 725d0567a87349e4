"""Sentences about one verdict.

They are its word in a verbose run, the message of a red test, and what may explain it.
"""

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
from .words import baseline_text, figure, limit_text, now_text, span_text, subject_text


def status_word(row: Row) -> str:
    """Return the words after PASSED in a verbose run.

    They read `1511 GB/s +0.2 % (-0.4 … +0.8 %, 1 against 5)`.
    """
    text, verdict = now_text(row), row.time_verdict
    if verdict is not None and row.change is not None:
        if verdict.siblings:
            evidence = f"against {verdict.siblings} siblings"
        else:
            evidence = against(row) if row.baseline_processes else f"{row.processes} processes"
        text += f" {format_percent(row.change)} ({span_text(row)}, {evidence})"
    elif limit_text(row):
        text += f" (limit {limit_text(row)})"
    return text if verdict is None or row.verdict == Kind.PASSED else f"{text} {row.verdict}"


def status_words(rows: Sequence[Row]) -> list[str]:
    """Return the words after PASSED for each result of a test.

    Siblings, like devices that are compared with each other, share one text where all PASSED:
    `8 siblings, 2891 GB/s to 2904 GB/s`.
    """
    are_passed_siblings = all(
        row.time_verdict and row.time_verdict.siblings and row.verdict == Kind.PASSED
        for row in rows
    )
    if len(rows) < 2 or not are_passed_siblings:
        return [status_word(row) for row in rows]
    slowest, *_, fastest = sorted(rows, key=lambda row: -(row.time_s or 0.0))
    return [f"{len(rows)} siblings, {figure(slowest)} to {figure(fastest)}"]


def against(row: Row) -> str:
    """Return the processes of both sides: `3 against 15`."""
    return f"{row.processes} against {row.baseline_processes}"


def _interval(row: Row) -> str:
    """Return `99 % interval -0.4 … +13.2 %`."""
    return f"{CONFIDENCE * 100:.0f} % interval {span_text(row)}"


def failure_message(row: Row, path: str, degraded: Sequence[str] = ()) -> str:
    """Return why a test is red, the difference first.

    Pytest's summary cuts the end of the first line. The second line tells the likely causes.

    Args:
        row: a measurement with a failing verdict.
        path: the run file that holds the samples; empty where it could not be saved.
        degraded: the faults of the device, which are the likeliest cause.
    """
    verdict = row.time_verdict
    assert verdict is not None
    details = f"Details: {path}" if path else "The run could not be saved"
    peak_reason = verdict.bad_peak.reason if verdict.bad_peak is not None else ""
    # The verdict is that of the peak memory, and not that of the time.
    if peak_reason and row.by_peak:
        return _memory_message(row, verdict, details)
    details = f"{printable(peak_reason)}. {details}" if peak_reason else details
    device_line = (
        f"\n  the device is DEGRADED: {printable('; '.join(degraded))}" if degraded else ""
    )
    if verdict.kind in (Kind.NO_BASELINE, Kind.INVALID):
        return _plain_message(row, details) + device_line
    if verdict.limit_s is not None:
        return _limit_message(row, verdict, details) + device_line
    if verdict.siblings:
        interval = f", {_interval(row)}" if row.interval is not None else ""
        return (
            f"{printable(row.label)}: {row.verdict}, {printable(row.time_reason)}{interval}\n  {details}."
            + device_line
        )
    return _slower_message(row, verdict, details) + device_line + _next_command(row, verdict, path)


def _next_command(row: Row, verdict: Verdict, path: str) -> str:
    """Return the line with the command that explains a red comparison.

    It has a line of its own, so that it can be copied. It is empty without a run file.
    """
    if not path or verdict.kind is not Kind.REGRESSED:
        return ""
    return f"\n  roofline explain {shlex.quote(path)} {shlex.quote(printable(row.label))}"


def _memory_message(row: Row, verdict: Verdict, details: str) -> str:
    """Return the message of a test that is red for its peak memory."""
    first_line = f"{row.label}: {row.verdict} {row.reason}"
    second_line = "; ".join([f"time: {now_text(row)} {verdict.kind}", *verdict.subject.changed])
    accept_hint = f"; {ACCEPT}" if row.verdict == Kind.REGRESSED else ""
    return f"{printable(first_line)}\n  {printable(second_line)}. {details}{accept_hint}."


def _plain_message(row: Row, details: str) -> str:
    """Return the message of a result that was not compared."""
    label, reason = printable(row.label), printable(row.reason)
    if row.verdict == Kind.INVALID:
        return (
            f"{label}: INVALID ({reason})\n  measured {now_text(row)}, an invalid number. {details}"
        )
    return (
        f"{label}: NO BASELINE ({reason}), and a baseline is required\n"
        f"  measured {now_text(row)}. {details}; {RECORD}."
    )


def _limit_message(row: Row, verdict: Verdict, details: str) -> str:
    """Return the message of a time beyond its limit."""
    assert verdict.limit_s is not None
    assert verdict.estimate is not None
    assert row.change is not None
    # The time that was compared. The limit's source may use a mean or the fastest call, so it is not the row's time.
    observed_s = verdict.limit_s * math.exp(verdict.estimate)
    return (
        f"{printable(row.label)}: {format_percent(row.change)}{subject_text(row)} beyond the limit "
        f"({figure(row, observed_s)}) {verdict.kind}, {printable(row.time_reason)}, {_interval(row)}\n  {details}."
    )


def _slower_message(row: Row, verdict: Verdict, details: str) -> str:
    """Return the message of a time that was compared with a baseline."""
    assert row.change is not None
    noun = "processes" if (row.baseline_processes or 0) > 1 else "process"
    processes = f"{against(row)} {noun}"
    first_line = (
        f"{printable(row.label)}: {format_percent(row.change)}{subject_text(row)} ({now_text(row)}, baseline "
        f"{baseline_text(row)}) {verdict.kind}, tolerance {format_tolerance(verdict.tolerance)}, "
        f"{_interval(row)}, {processes}"
    )
    # An undecided change is not to be accepted, so no command for that follows.
    if verdict.kind is Kind.INCONCLUSIVE:
        return f"{first_line}\n  {'; '.join([printable(row.time_reason), *remarks(verdict)])}. {details}"
    facts = [*since_lines(verdict), row.time_reason, *remarks(verdict), _agreement_text(verdict)]
    return f"{first_line}\n  {printable('; '.join(filter(None, facts)))}.\n  {details}; {ACCEPT}."


def _agreement_text(verdict: Verdict) -> str:
    """Return how many processes of the baseline were faster than this run, as a text.

    Of a single process nothing is counted, since it shows no agreement.
    """
    process_count = verdict.compared_processes
    if process_count == 1:
        return "one process of the baseline"
    return f"{verdict.slower_processes} of {process_count} processes of the baseline were faster"


def health_message(findings: Sequence[Finding]) -> str:
    """Return why a device is DEGRADED, the worst cause first.

    All causes follow, each with its effect and remedy. It is empty where no cause was found.
    """
    if not findings:
        return ""
    worst = findings[0]
    suffix = f", and {len(findings) - 1} more" if len(findings) > 1 else ""
    lines = [f"DEGRADED: {worst.observed} ({_without_parentheses(worst.subject)}){suffix}"]
    lines += [
        f"  {finding.subject}: {finding.observed}: {finding.effect}. Remedy: {finding.remedy}."
        for finding in findings
    ]
    return "\n".join(printable(line) for line in lines)


def _without_parentheses(subject: str) -> str:
    """Return `GPU 0, NVIDIA H200` for `GPU 0 (NVIDIA H200)`.

    The message puts the subject in parentheses itself.
    """
    name, between, product = subject.partition(" (")
    return f"{name}, {product.removesuffix(')')}" if between else subject
