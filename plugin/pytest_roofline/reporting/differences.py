"""What is said of an offline comparison as a whole: what moved together, what differs between its sides."""

from collections import Counter
from collections.abc import Callable, Sequence

from ..core.units import listed, printable
from ..judging.comparing import Comparison
from ..judging.hardware import identity_of
from ..judging.runs import Run
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
