"""A row of a report with plain values only, units in their names: what `results.csv` and `run.json` hold."""

from dataclasses import dataclass
from typing import Any

from ...core.keys import Scalar
from ...core.work import rate_suffix
from ...judging.report_rows import ReportRow, What
from .words import why


@dataclass(frozen=True, slots=True, kw_only=True)
class FlatRow:
    """One result. None is what is not known, or not there; docs/reports.md says what each field is.

    Seconds are of one call, rates of these seconds, `bytes_per_second` in the counting that `metric` names; changes
    are shares of the baseline's time, positive where slower.
    """

    run: str
    run_id: str
    started: str
    test_id: str
    label: str
    benchmark: str
    name: str
    parameters: dict[str, Scalar]
    what: What
    verdict: str
    failed: bool
    reason: str
    seconds: float | None = None
    metric: str | None = None
    bytes_per_second: float | None = None
    flops_per_second: float | None = None
    tokens_per_second: float | None = None
    baseline_seconds: float | None = None
    baseline_bytes_per_second: float | None = None
    baseline_flops_per_second: float | None = None
    change: float | None = None
    change_low: float | None = None
    change_high: float | None = None
    tolerance: float | None = None
    processes: int | None = None
    baseline_processes: int | None = None
    roofline_share: float | None = None
    roofline_source: str | None = None
    size_bytes: int | None = None
    peak_bytes: int | None = None
    baseline_peak_bytes: int | None = None
    peak_verdict: str | None = None
    held_bytes: int | None = None
    compile_seconds: float | None = None
    asked_bytes: int | None = None
    free_bytes: int | None = None
    target: str | None = None
    figures: dict[str, int] | None = None
    cache: str | None = None
    timing: str | None = None
    labels: list[str] | None = None
    ranks: int | None = None
    hardware: str | None = None
    device: str
    driver: str | None
    torch: str | None
    host: str


def flat_row(row: ReportRow) -> FlatRow:
    """A row of a report as plain values."""
    header = row.run.header
    environment = header.environment
    return FlatRow(
        run=row.run_name,
        run_id=header.run_id,
        started=header.started,
        test_id=row.test_id,
        label=row.label,
        what=row.what,
        verdict=row.word,
        failed=row.red,
        reason=why(row),
        device=environment.device.product,
        driver=environment.device.driver,
        torch=environment.software.get("torch"),
        host=environment.host.name,
        **(_identity(row) | _numbers(row) | _kernel(row) | _memory(row)),
    )


def _identity(row: ReportRow) -> dict[str, Any]:
    key = row.measurement.key if row.measurement is not None else row.resources.key if row.resources else None
    if key is not None:
        return {"benchmark": key.benchmark, "name": key.name, "parameters": key.parameters}
    if row.out_of_memory is not None:
        lost = row.out_of_memory
        return {"benchmark": lost.benchmark, "name": lost.name or "", "parameters": lost.parameters}
    return {"benchmark": "", "name": "", "parameters": {}}


def _numbers(row: ReportRow) -> dict[str, Any]:
    one = row.measurement
    if one is None:
        return {}
    low, high = row.interval or (None, None)
    of_bytes = rate_suffix(one.key.metric) != "TFLOPS"
    return {
        "seconds": row.seconds,
        "metric": one.key.metric,
        "bytes_per_second": row.rate if of_bytes else None,
        "flops_per_second": row.rate_of(row.seconds, "TFLOPS"),
        "tokens_per_second": row.tokens_per_second,
        "baseline_seconds": row.reference_s,
        "baseline_bytes_per_second": row.reference_rate if of_bytes else None,
        "baseline_flops_per_second": row.rate_of(row.reference_s, "TFLOPS"),
        "change": row.change,
        "change_low": low,
        "change_high": high,
        "tolerance": row.judgement.tolerance if row.judgement is not None else None,
        "processes": row.counted,
        "baseline_processes": len(row.reference_medians_s) or None,
        "roofline_share": row.share_of_ceiling,
        "roofline_source": one.ceiling.source if one.ceiling is not None else None,
        "size_bytes": one.work.size_bytes,
        "peak_bytes": one.peak_bytes,
        "baseline_peak_bytes": row.peak.reference_bytes if row.peak is not None else None,
        "peak_verdict": row.peak.verdict if row.peak is not None else None,
        "held_bytes": one.held_bytes,
        "compile_seconds": one.compile_s,
        "cache": one.key.cache,
        "timing": one.key.timing,
        "labels": list(one.samples.labels) or None,
        "ranks": one.ranks.size if one.ranks is not None else None,
        "hardware": str(one.key.hardware),
    }


def _kernel(row: ReportRow) -> dict[str, Any]:
    if row.resources is None:
        return {}
    return {"target": row.resources.target, "figures": row.resources.figures}


def _memory(row: ReportRow) -> dict[str, Any]:
    lost = row.out_of_memory
    return {} if lost is None else {"asked_bytes": lost.asked_bytes, "free_bytes": lost.free_bytes}
