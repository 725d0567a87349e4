"""What `roofline compare` prints for a machine: a row for each time, peak, compiled kernel, and loss of memory."""

from dataclasses import asdict
from typing import Any

from ..core.records import PeakJudgement, rate
from ..core.rows import KERNEL, PEAK, TIME, Row
from ..core.work import rate_unit
from ..judging.comparing import Comparison
from ..judging.comparing import Row as Compared
from ..judging.exact_comparing import ExactRow
from ..judging.exhausted import Lost
from ..judging.stats import CONFIDENCE, change_bounds
from ..judging.verdicts import Kind, Verdict
from ..observe.out_of_memory_text import lost_reason
from .differences import more_as_json, shift_of
from .exact_tables import changes_as_json

# What all tests are called where they were judged as if they were one.
TOGETHER = "all tests together"


def comparison_as_json(compared: Comparison) -> list[dict[str, Any]]:
    """The rows, as every JSON document has them, with what else a comparison knows of each."""
    shift = shift_of(compared.rows)
    return [
        *(asdict(_time(row)) | more_as_json(row, shift) for row in compared.rows),
        *(asdict(_peak(row, peak)) for row in compared.rows if (peak := row.verdict.peak)),
        *(asdict(_kernel(row)) | changes_as_json(row) for row in compared.kernels),
        *(asdict(_lost(lost)) | more_as_json(None, shift) for lost in compared.lost),
        *(asdict(_together(one)) | more_as_json(None, shift) for one in [compared.together] if one is not None),
    ]


def _time(row: Compared) -> Row:
    new = _rate(row, row.new_s)
    return Row(
        **_named(row),
        **_judged(row.verdict),
        value=row.new_s,
        time_s=row.new_s,
        rate=new,
        rate_unit=rate_unit(row.key.metric) if new is not None else None,
        counting=row.key.metric,
        baseline_value=row.old_s,
        baseline_time_s=row.old_s,
        baseline_rate=_rate(row, row.old_s),
        cache=row.key.cache,
        timing=row.key.timing,
    )


def _rate(row: Compared, seconds: float | None) -> float | None:
    return rate(row.work, row.key.metric, seconds) if row.work is not None and seconds else None


def _peak(row: Compared, peak: PeakJudgement) -> Row:
    return Row(
        **_named(row),
        metric=PEAK,
        value=peak.new_bytes,
        unit="B",
        baseline_value=peak.reference_bytes,
        change=peak.change,
        tolerance=peak.tolerance,
        verdict=peak.verdict,
        reason=peak.reason,
    )


def _kernel(row: ExactRow) -> Row:
    key = row.key
    return Row(
        test="",
        label=row.label,
        benchmark=key.benchmark,
        name=key.name,
        parameters=key.parameters,
        metric=KERNEL,
        target=key.target,
        figures=row.new,
        verdict=row.verdict.kind.value,
        reason=row.verdict.reason,
    )


def _lost(lost: Lost) -> Row:
    record = lost.record
    return Row(
        test=record.test_id,
        label=lost.label,
        benchmark=record.benchmark,
        name=record.name or "",
        parameters=record.parameters,
        metric=TIME,
        unit="s",
        baseline_value=lost.old_s,
        baseline_time_s=lost.old_s,
        asked_bytes=record.asked_bytes,
        free_bytes=record.free_bytes,
        verdict=Kind.REGRESSED.value,
        reason=lost_reason(record, lost.old_s),
    )


def _together(verdict: Verdict) -> Row:
    return Row(test="", label=TOGETHER, parameters={}, **_judged(verdict))


def _named(row: Compared) -> dict[str, Any]:
    key = row.key
    named = {"benchmark": key.benchmark, "name": key.name, "parameters": key.parameters}
    return {"test": row.test_id, "label": row.label, "hardware": str(key.hardware)} | named


def _judged(verdict: Verdict) -> dict[str, Any]:
    reference = verdict.reference
    return {
        "metric": TIME,
        "unit": "s",
        "change": verdict.change,
        **change_bounds(verdict.interval),
        "confidence": CONFIDENCE if verdict.interval is not None else None,
        "tolerance": verdict.tolerance,
        "detectable": verdict.reach,
        "processes": verdict.processes or None,
        "baseline_processes": len(reference.medians_s) if reference is not None else None,
        "baseline_sessions": len(reference.groups) if reference is not None else None,
        "verdict": verdict.kind.value,
        "reason": verdict.reason,
    }
