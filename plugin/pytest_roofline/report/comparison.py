"""What `roofline compare` says beside its table: what moved together, what differs; and its rows for a machine."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ..baselines.comparing import Comparison
from ..baselines.runs import Run
from ..core.rows import TIME, Row, plain
from ..core.units import listed, printable
from ..hardware import identity_of
from ..hardware.rungs import rung_of
from ..stats.explaining import common_shift
from ..stats.stats import growth
from .overview import clock_line, device_line, shift_line, together_text

# Of the names of one side.
MOST_NAMED = 3


def comparison_lines(compared: Comparison, old: Sequence[Run], new: Sequence[Run]) -> list[str]:
    """Everything that concerns more than one row, ahead of the table.

    Args:
        compared: the comparison.
        old: the runs on the old side, as far as it consists of runs.
        new: those on the new side.
    """
    rows = compared.rows
    lines = [f"REGRESSED: {together_text(compared.together)}"] if compared.together is not None else []
    lines += shift_line(rows) + clock_line(rows)
    changes = Counter(change for row in rows if row.judgement is not None for change in row.judgement.changed)
    both = sum(row.judgement is not None and bool(row.judgement.reference) for row in rows)
    told = [change + (f" ({number} of {both} tests)" if number < both else "") for change, number in changes.items()]
    apart = _apart(old, new)
    lines += [printable(f"changed: {'; '.join([*apart, *told])}")] if apart or told else []
    return lines + device_line(rows)


def _apart(old: Sequence[Run], new: Sequence[Run]) -> list[str]:
    """Hosts and devices, where the sides have none in common; a baseline tells neither."""
    told = []
    for word, name in (("host", lambda run: run.header.environment.host.name), ("device", _device)):
        before, after = _names(old, name), _names(new, name)
        if before and after and not set(before) & set(after):
            told.append(f"{word} {listed(before, MOST_NAMED)} → {listed(after, MOST_NAMED)}")
    return told


def _device(run: Run) -> str:
    return identity_of(run.header.environment)


def _names(runs: Sequence[Run], name: Callable[[Run], str]) -> list[str]:
    return list(dict.fromkeys(filter(None, map(name, runs))))


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
