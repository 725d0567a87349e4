"""The one rule for the status of a comparison.

Commands end with it, and the last line of a run has its colour.
"""

from collections.abc import Collection
from enum import IntEnum

from .rows import FAILED, Row
from .verdicts import Kind

# What is worse than before; and what was compared and is not.
WORSE = (FAILED, Kind.REGRESSED)
GREEN = (Kind.PASSED, Kind.IMPROVED)
_COMPARED = (Kind.REGRESSED, Kind.SHIFTED, *GREEN, Kind.INCONCLUSIVE)


class Status(IntEnum):
    """The exit status of a command that judges."""

    NOTHING_SLOWER = 0
    SLOWER = 1
    CANNOT_TELL = 2


def status_of(rows: Collection[Row], *, worse: bool = False, complete: bool = True) -> Status:
    """Return the exit status of a comparison. A result that is worse outweighs all undecided ones.

    Args:
        rows: every result of it.
        worse: a loss without a row of its own, such as a device that did not come back.
        complete: it came to its end, no two different things stand under one key, and what is undecided can be measured
            again.
    """
    if worse or any(row.verdict in (*WORSE, Kind.SHIFTED) for row in rows):
        return Status.SLOWER
    # An undecided test that looks slow may be slower; one that does not is no reason to fail a command.
    if not complete or not any(map(is_compared, rows)) or any(map(looks_slow, rows)):
        return Status.CANNOT_TELL
    return Status.NOTHING_SLOWER


def is_compared(row: Row) -> bool:
    """Return True if a verdict rests on a baseline or limit."""
    # `PASSED` of a bare test is how it ended.
    return row.verdict in _COMPARED and row.metric is not None


def is_green(row: Row) -> bool:
    """Return True if a result was compared and is no worse."""
    return row.verdict in GREEN


def looks_slow(row: Row) -> bool:
    """Return True for an undecided result that looks slow.

    Its estimate lies beyond its tolerance or limit.
    """
    time_verdict = row.time_verdict
    return (
        time_verdict is not None
        and row.verdict not in WORSE
        and time_verdict.kind is Kind.INCONCLUSIVE
        and time_verdict.looks_slow
    )
