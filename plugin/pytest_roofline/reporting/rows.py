"""The rows of a report as plain values: what `results.csv`, `run.json` and `roofline compare --json` hold."""

from collections.abc import Iterable, Iterator
from typing import Any, Literal

from ..core.rows import KERNEL, PEAK, TIME, Row
from ..core.work import rate_unit
from ..judging.ending import FAILED, MEASURED
from ..judging.report_rows import ReportRow
from ..judging.stats import CONFIDENCE
from .report.words import why

Outcome = Literal["passed", "failed", "skipped", "xfailed"]


def rows(found: Iterable[ReportRow]) -> Iterator[Row]:
    """A row for each number: of a measurement its time, and behind it its memory where that was taken or compared."""
    for row in found:
        yield Row(**(_common(row) | _time(row) | _kernel(row) | _memory(row)))
        if row.measurement is not None and (row.peak is not None or row.measurement.peak_bytes is not None):
            yield Row(**(_common(row) | _peak(row)))


def _common(row: ReportRow) -> dict[str, Any]:
    header, one = row.run.header, row.measurement
    environment = header.environment
    return {
        "run": row.run_name,
        "run_id": header.run_id,
        "started": header.started,
        "test": row.test_id,
        "label": row.label,
        "verdict": row.word,
        "reason": why(row),
        "outcome": _outcome(row),
        "device": environment.device.product,
        "driver": environment.device.driver,
        "torch": environment.software.get("torch"),
        "host": environment.host.name,
        **_identity(row),
        **(_circumstances(row) if one is not None else {}),
    }


def _outcome(row: ReportRow) -> Outcome | None:
    if row.red or row.outcome is None:
        return "failed" if row.red else None
    if row.outcome.reason.startswith("xfail: "):
        return "xfailed"
    # A gate that only watched let it pass, and so did a rerun.
    return "skipped" if row.outcome.outcome == "skipped" else "passed"


def _identity(row: ReportRow) -> dict[str, Any]:
    key = row.measurement.key if row.measurement is not None else row.resources.key if row.resources else None
    if key is not None:
        return {"benchmark": key.benchmark, "name": key.name, "parameters": key.parameters}
    if row.out_of_memory is not None:
        lost = row.out_of_memory
        return {"benchmark": lost.benchmark, "name": lost.name or "", "parameters": lost.parameters}
    return {"parameters": {}}


def _circumstances(row: ReportRow) -> dict[str, Any]:
    one = row.measurement
    assert one is not None
    return {
        "size_bytes": one.work.size_bytes,
        "held_bytes": one.held_bytes,
        "compile_s": one.compile_s,
        "cache": one.key.cache,
        "timing": one.key.timing,
        "labels": list(one.samples.labels) or None,
        "ranks": one.ranks.size if one.ranks is not None else None,
        "hardware": str(one.key.hardware),
    }


def _time(row: ReportRow) -> dict[str, Any]:
    one, judged = row.measurement, row.judgement
    if one is None:
        return {}
    low, high = row.interval or (None, None)
    found = {
        "metric": TIME,
        "value": row.seconds,
        "unit": "s",
        "time_s": row.seconds,
        "rate": row.rate,
        "rate_unit": rate_unit(one.key.metric) if row.rate is not None else None,
        "counting": one.key.metric,
        "tokens_per_second": row.tokens_per_second,
        "baseline_value": row.reference_s,
        "baseline_time_s": row.reference_s,
        "baseline_rate": row.reference_rate,
        "change": row.change,
        "change_low": low,
        "change_high": high,
        "confidence": CONFIDENCE if row.interval is not None else None,
        "tolerance": judged.tolerance if judged is not None else None,
        "detectable": judged.reach if judged is not None else None,
        "processes": row.counted,
        "baseline_processes": len(row.reference_medians_s) or None,
        "baseline_sessions": (len(judged.reference) or None) if judged is not None else None,
        "roofline_share": row.share_of_ceiling,
        "roofline_source": one.ceiling.source if one.ceiling is not None else None,
    }
    # The row behind it says what is to be said of the memory.
    of_time = {"verdict": judged.verdict, "reason": judged.reason} if row.by_peak and judged is not None else {}
    return found | of_time


def _peak(row: ReportRow) -> dict[str, Any]:
    one, peak = row.measurement, row.peak
    assert one is not None
    if peak is None:
        said = {"verdict": FAILED if row.word == FAILED else MEASURED, "reason": ""}
        return said | {"metric": PEAK, "value": one.peak_bytes, "unit": "B"}
    return {
        "metric": PEAK,
        "value": peak.new_bytes,
        "unit": "B",
        "baseline_value": peak.reference_bytes,
        "change": peak.change,
        "tolerance": peak.tolerance,
        "verdict": peak.verdict,
        "reason": peak.reason,
    }


def _kernel(row: ReportRow) -> dict[str, Any]:
    if row.resources is None:
        return {}
    return {"metric": KERNEL, "target": row.resources.target, "figures": row.resources.figures}


def _memory(row: ReportRow) -> dict[str, Any]:
    lost = row.out_of_memory
    return {} if lost is None else {"metric": TIME, "asked_bytes": lost.asked_bytes, "free_bytes": lost.free_bytes}
