"""What `roofline compare` prints for a machine: a row for each time, peak, compiled kernel, and loss of memory."""

from typing import Any

from ..core.records import PeakJudgement
from ..judging.comparing import Comparison, Row
from ..judging.verdicts import Verdict
from .differences import more_as_json, shift_of
from .exact_tables import exact_row_as_json
from .exhausted import lost_as_json


def comparison_as_json(compared: Comparison) -> list[dict[str, Any]]:
    """The rows, each with its `kind`, which tells what else stands in it."""
    shift = shift_of(compared.rows)
    return [
        *({"kind": "time"} | _row_as_json(row) | more_as_json(row, shift) for row in compared.rows),
        *({"kind": "peak"} | _peak_as_json(row, peak) for row in compared.rows if (peak := row.verdict.peak)),
        *({"kind": "exact"} | exact_row_as_json(row) for row in compared.kernels),
        *({"kind": "memory"} | lost_as_json(lost) for lost in compared.lost),
        *({"kind": "together"} | _verdict_as_json(one) for one in [compared.together] if one is not None),
    ]


def _row_as_json(row: Row) -> dict[str, Any]:
    return _named(row) | {"old_s": row.old_s, "new_s": row.new_s} | _verdict_as_json(row.verdict)


def _peak_as_json(row: Row, peak: PeakJudgement) -> dict[str, Any]:
    return _named(row) | {
        "old_bytes": peak.reference_bytes,
        "new_bytes": peak.new_bytes,
        "verdict": peak.verdict,
        "change": peak.change,
        "allowed_bytes": peak.allowed_bytes,
        "reason": peak.reason,
    }


def _named(row: Row) -> dict[str, Any]:
    return {
        "test": row.label,
        "benchmark": row.key.benchmark,
        "name": row.key.name,
        "parameters": row.key.parameters,
    }


def _verdict_as_json(verdict: Verdict) -> dict[str, Any]:
    return {
        "verdict": verdict.kind.value,
        "change": verdict.change,
        "log_interval": verdict.interval,
        "p": verdict.p,
        "tolerance": verdict.tolerance,
        "processes": len(verdict.reference.medians_s) if verdict.reference else 0,
        "reason": verdict.reason,
    }
