"""Devices side by side: a table of the numbers of each, and a point for each where no line by size is drawn."""

from collections.abc import Sequence

from ...core.rows import Row
from ...core.units import printable
from ..devices import DeviceTable, device_tables
from .bars import MOST_BARS
from .chart import (
    Grid,
    Plot,
    limited,
    log_axis,
    marks,
    names_axis,
    plain_figure,
    thinned,
    thinned_note,
    with_legend,
)
from .rates import series_of
from .words import hover

SECTION = "Devices side by side"
# Of a table on the page; the terminal has all.
MOST_LINES = 200


def device_plots(rows: Sequence[Row]) -> list[Plot]:
    """For each benchmark a table with a column for each run, and its points; none of runs of one device."""
    if len({row.device for row in rows}) < 2:
        return []
    tables = device_tables(rows)
    drawn = [table for table in tables if not series_of(_rows(table))]
    return limited(tables, _grid, _rows) + limited(drawn, _points, _rows)


def _rows(table: DeviceTable) -> list[Row]:
    return [row for line in table.lines.values() for row in line if row is not None]


def _grid(table: DeviceTable) -> Plot:
    shown = thinned(list(table.lines.items()), MOST_LINES)
    rows = [(printable(label), [_cell(table, row, line) for row in line]) for label, line in shown]
    note = thinned_note(len(shown), len(table.lines), "tests")
    says = f"A column for each run, {table.quantity} in {table.unit}; the darker, the slower beside the best.{note}"
    return Plot(SECTION, table.title, says, Grid("test", table.devices, rows))


def _cell(
    table: DeviceTable, row: Row | None, line: Sequence[Row | None]
) -> tuple[str, float, str]:
    values = [value for cell in line if (value := table.value(cell)) is not None]
    value = table.value(row)
    if row is None or value is None:
        return table.cell(row), 0.0, row.reason if row is not None else ""
    share = value / max(values) if table.quantity == "rate" else min(values) / value
    return table.cell(row), round(1 - share, 2), "; ".join(filter(None, hover(row, row.label)))


def _points(table: DeviceTable) -> Plot:
    """Tests below each other, a mark for each device."""
    shown = thinned(list(table.lines.items()), MOST_BARS)
    traces = []
    for index, device in enumerate(table.devices):
        points = [
            (at, row) for at, (_, line) in enumerate(shown, 1) if (row := line[index]) is not None
        ]
        rows = [row for _, row in points]
        values = [(table.value(row) or 0.0) / table.scale for row in rows]
        texts = [hover(row, f"{row.label}, {device}") for row in rows]
        trace = marks(
            device, values, [at for at, _ in points], texts, index, rows=rows, lines=False
        )
        traces.append(trace | {"x": [value or None for value in values]})
    layout = {
        "xaxis": log_axis(
            f"{table.quantity} ({table.unit})", [x for trace in traces for x in trace["x"]]
        ),
        "yaxis": names_axis(label for label, _ in shown),
    }
    figure = plain_figure(traces, layout, with_legend(150 + 40 * len(shown), len(traces)))
    says = f"A mark for each device.{thinned_note(len(shown), len(table.lines), 'tests')}"
    return Plot(SECTION, table.title, says, figure)
