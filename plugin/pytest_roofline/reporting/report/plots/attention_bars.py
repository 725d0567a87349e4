"""The bars of a figure of attention: one for each length that a back end ran, or ran out of memory at."""

from collections.abc import Sequence
from dataclasses import dataclass

from ....core.rows import Row
from ....core.units import format_memory, three_digits
from .drawing import Trace, bar_marker, lines_of, safe, short
from .words import COLUMNS, INVALID, cells, hover


@dataclass(frozen=True, slots=True)
class Bar:
    """A measurement, or memory that ran out before there was one."""

    back_end: str
    sequence: int
    row: Row


def bars_of(bars: Sequence[Bar], index: int, scale: float, *, numbered: bool) -> Trace:
    """The bars of one back end, without their places."""
    rows = [bar.row for bar in bars]
    return {
        "type": "bar",
        "y": [(row.rate or 0.0) / scale for row in rows],
        "name": safe(short(bars[0].back_end)),
        "marker": bar_marker(index, opacity=[0.35 if row.verdict == INVALID else 1.0 for row in rows]),
        "text": [_mark(row, three_digits((row.rate or 0.0) / scale) if numbered else "") for row in rows],
        "textposition": "outside",
        # Otherwise what stands above narrow bars is shrunk until nobody reads it.
        "constraintext": "none",
        "textfont": {"size": 10},
        "textangle": 0 if numbered else -90,
        "cliponaxis": False,
        "hoverinfo": "text",
        "hovertext": [lines_of(_hover(bar)) for bar in bars],
    }


def _mark(row: Row, number: str) -> str:
    """What stands above a bar: that memory ran out, that it is not to be trusted, or its number where there is room."""
    if row.lost is not None:
        return "OOM"
    if row.verdict == INVALID or row.rate is None:
        return "?" if row.rate is None else "inv."
    return f"{number} ✕".strip() if row.red else number


def _hover(bar: Bar) -> list[str]:
    name = f"{bar.back_end}, {bar.sequence} tokens"
    lacking = bar.row.lost
    if lacking is None:
        return hover(bar.row, name)
    asked = [f"asked for {format_memory(lacking.asked_bytes)}"] if lacking.asked_bytes is not None else []
    free = [f"{format_memory(lacking.free_bytes)} were free"] if lacking.free_bytes is not None else []
    return [name, "out of memory", ", ".join(asked + free)]


def bar_cells(row: Row) -> tuple[str, ...]:
    """A row of the table without its back end and its length."""
    return cells(row, "")[2:] if row.measurement is not None else (*[""] * (len(COLUMNS) - 3), row.verdict)
