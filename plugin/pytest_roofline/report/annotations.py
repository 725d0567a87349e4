"""What GitHub shows beside the code: workflow commands on the output of a run."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from ..core.rows import Row, worst_first
from ..core.units import printable
from ..stats.verdicts import Kind
from .words import sentence

# GitHub shows so many of one kind for a step, and we show no more of both together.
MOST = 10
# GitHub cuts what is longer than some four thousand bytes: a message, and each property, as they are written.
LONGEST, LONGEST_PROPERTY = 2000, 900
_WARNED = (Kind.INVALID.value, Kind.INCONCLUSIVE.value, Kind.NO_BASELINE.value)

# A file relative to the repository's root, and a line counted from 1; None where it is not known.
Place = tuple[str, int | None]


def annotations(
    rows: Sequence[Row], place_of: Callable[[str], Place | None], *, errors: bool = True, most: int = MOST
) -> list[str]:
    """Workflow commands for what failed, and warnings for what could not be judged; one a test, worst first.

    Args:
        rows: of one run.
        place_of: where the test of an id stands; None where that is not known.
        errors: whether failed tests are told; without, another plugin tells of them.
        most: so many commands; how many were left out is said in a line of its own.
    """
    worst: dict[str, Row] = {}
    for row in worst_first(rows):
        worst.setdefault(row.test, row)
    told = [row for row in worst.values() if (errors if row.red else row.verdict in _WARNED or _watched(row))]
    lines = [_command(row, place_of(row.test)) for row in told[:most]]
    if len(told) > most:
        lines.append(f"roofline: {len(told) - most} more annotations left out, the worst {most} are shown")
    return lines


def _watched(row: Row) -> bool:
    """Whether it would have failed, had the gate not only watched."""
    return row.ended is not None and row.ended.shadow


def _command(row: Row, place: Place | None) -> str:
    properties = {"title": f"{row.verdict} {row.label}"}
    if place is not None:
        file, number = place
        properties = {"file": file, **({"line": f"{number}"} if number is not None else {}), **properties}
    told = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{'error' if row.red else 'warning'} {told}::{_data(sentence(row))}"


def _data(text: str) -> str:
    # What is printable has no line ends, but only what is escaped here may be relied upon.
    return _escaped(text, "%\r\n", LONGEST)


def _property(text: str) -> str:
    return _escaped(text, "%\r\n:,", LONGEST_PROPERTY)


def _escaped(text: str, special: str, most_bytes: int) -> str:
    """Text with special characters as `%0A`, cut between two characters where it is too long as it is written."""
    parts = [f"%{ord(one):02X}" if one in special else one for one in printable(text)]
    ends = list(accumulate(len(part.encode()) for part in parts))
    if not ends or ends[-1] <= most_bytes:
        return "".join(parts)
    return "".join(parts[: bisect_right(ends, most_bytes - len("…".encode()))]) + "…"
