"""What `roofline compare` prints for a machine: a row for each time, peak, compiled kernel, and loss of memory."""

from typing import Any

from ..core.rows import TIME, Row, plain
from ..judging.comparing import Comparison
from ..judging.explaining import common_shift
from ..judging.rungs import rung_of
from ..judging.stats import growth


def comparison_as_json(compared: Comparison) -> list[dict[str, Any]]:
    """The rows, as every JSON document has them, with what else a comparison knows of each."""
    shift = common_shift(row.judgement for row in compared.rows)
    moved = growth(shift.estimate) if shift is not None else None
    return [
        plain(columns) | (_more(row, moved) if columns.metric == TIME else _kernel(row) if row.exact else {})
        for row in compared.everything
        for columns in row.columns()
    ]


def _more(row: Row, moved: float | None) -> dict[str, Any]:
    """What a comparison says of a time beside its columns.

    Args:
        row: of the comparison.
        moved: the change of the whole suite, as a share of time; None where it did not move together.
    """
    judged = row.judgement
    spread = judged.device_spread if judged is not None else None
    rung = rung_of(row.key) if row.key is not None else None
    return {
        "p": judged.p if judged is not None else None,
        "changed": list(judged.changed) if judged is not None else [],
        "between_devices": spread.value if spread is not None else None,
        "rung": rung.value if rung is not None else None,
        "whole_suite": moved,
    }


def _kernel(row: Row) -> dict[str, Any]:
    """What it knows of a compiled kernel beside its figures."""
    assert row.exact is not None
    return {
        "baseline_figures": row.baseline_figures,
        "worse": [change.figure for change in row.exact.changes if change.verdict == "worse"],
        "better": [change.figure for change in row.exact.changes if change.verdict == "better"],
        "remarks": list(row.exact.remarks),
    }
