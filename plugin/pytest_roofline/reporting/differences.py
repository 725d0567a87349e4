"""What is said of an offline comparison as a whole: what moved together, what differs between its sides."""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from ..core.units import listed, printable
from ..judging.comparing import Comparison, Row
from ..judging.explaining import common_shift
from ..judging.hardware import identity_of
from ..judging.rungs import rung_of
from ..judging.runs import Run
from ..judging.stats import growth
from ..judging.verdicts import changed_environment
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
    verdicts = [row.verdict for row in rows]
    clocks = [(row.label, row.verdict, row.fresh.clock_hz if row.fresh is not None else None) for row in rows]
    lines = [f"REGRESSED: {together_text(compared.together)}"] if compared.together is not None else []
    lines += shift_line(verdicts) + clock_line(clocks)
    apart = _apart(old, new)
    changed = [change + _share(count, rows) for change, count in _changes(rows).items()]
    lines += [printable(f"changed: {'; '.join([*apart, *changed])}")] if apart or changed else []
    return lines + device_line(verdicts)


def row_changes(row: Row) -> list[str]:
    """What differs between the environments of a row's sides, `driver 550.54 → 570.86`."""
    if row.fresh is None or row.verdict.reference is None:
        return []
    before = row.verdict.reference.environments
    found = (changed_environment(facts, before) for facts in row.fresh.environments)
    return list(dict.fromkeys(change for changes in found for change in changes))


def more_as_json(row: Row | None, shift: float | None) -> dict[str, Any]:
    """What a comparison says of a row beside its verdict, for a machine.

    Args:
        row: of the comparison; None of what is no measurement of both sides.
        shift: the change of the whole suite, as a share of time; None where it did not move together.
    """
    found = row.verdict.difference if row is not None else None
    rung = rung_of(row.key) if row is not None else None
    return {
        "p": row.verdict.p if row is not None else None,
        "changed": row_changes(row) if row is not None else [],
        "between_devices": found.device.value if found is not None and found.device is not None else None,
        "rung": rung.value if rung is not None else None,
        "whole_suite": shift,
    }


def shift_of(rows: Sequence[Row]) -> float | None:
    """By how much the whole suite moved together, as a share of time; None where it did not."""
    shift = common_shift([row.verdict for row in rows])
    return growth(shift.estimate) if shift is not None else None


def _changes(rows: Sequence[Row]) -> Counter[str]:
    return Counter(change for row in rows for change in row_changes(row))


def _share(count: int, rows: Sequence[Row]) -> str:
    both = sum(row.verdict.reference is not None and row.fresh is not None for row in rows)
    return f" ({count} of {both} tests)" if count < both else ""


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
