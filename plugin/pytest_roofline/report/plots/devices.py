"""Devices side by side, as tables and points.

Each has a table of its numbers, and a point where no line by size is drawn.
"""

from collections.abc import Sequence

from ...core.rows import Row
from ...core.units import printable
from ..devices import DeviceTable, device_tables
from .bars import MOST_BARS
from .chart import (
    Grid,
    Plot,
    limit_plots,
    log_axis,
    marks,
    names_axis,
    plain_figure,
    thin,
    thinning_note,
    with_legend,
)
from .rates import series_of
from .words import hover

SECTION = "Devices side by side"
# Tests that a table on the page has; the table on the terminal has all.
MOST_LINES = 200


def device_plots(rows: Sequence[Row]) -> list[Plot]:
    """Return tables and points of several devices.

    Each benchmark has a table with a column for each run. A benchmark without a line by size also
    has a plot of points. Runs of a single device have none of these.
    """
    if len({row.device for row in rows}) < 2:
        return []
    tables = device_tables(rows)
    tables_without_series = [table for table in tables if not series_of(_rows(table))]
    return limit_plots(tables, _grid, _rows) + limit_plots(tables_without_series, _points, _rows)


def _rows(table: DeviceTable) -> list[Row]:
    return [row for line in table.lines.values() for row in line if row is not None]


def _grid(table: DeviceTable) -> Plot:
    """Return a table of devices as coloured cells."""
    selected = thin(list(table.lines.items()), MOST_LINES)
    rows = [
        (printable(label), [_cell(table, row, line) for row in line]) for label, line in selected
    ]
    note = thinning_note(len(selected), len(table.lines), "tests")
    text = f"A column for each run, {table.quantity} in {table.unit}; darker is slower than the best.{note}"
    return Plot(SECTION, table.title, text, Grid("test", table.devices, rows))


def _cell(
    table: DeviceTable, row: Row | None, line: Sequence[Row | None]
) -> tuple[str, float, str]:
    """Return a cell: its text, how far it is below the best, and its hover text.

    The best is the highest rate, or else the lowest number, of the line. A number half as good as
    the best is 0.5 below it.
    """
    values = [value for cell in line if (value := table.value(cell)) is not None]
    value = table.value(row)
    if row is None or value is None:
        return table.cell(row), 0.0, row.reason if row is not None else ""
    share_of_best = value / max(values) if table.quantity == "rate" else min(values) / value
    return (
        table.cell(row),
        round(1 - share_of_best, 2),
        "; ".join(filter(None, hover(row, row.label))),
    )


def _points(table: DeviceTable) -> Plot:
    """Return a plot of tests below each other, with a mark for each device."""
    selected = thin(list(table.lines.items()), MOST_BARS)
    traces = []
    for index, device in enumerate(table.devices):
        points = [
            (place, row)
            for place, (_, line) in enumerate(selected, 1)
            if (row := line[index]) is not None
        ]
        rows = [row for _, row in points]
        values = [(table.value(row) or 0.0) / table.scale for row in rows]
        texts = [hover(row, f"{row.label}, {device}") for row in rows]
        trace = marks(
            device, values, [place for place, _ in points], texts, index, rows=rows, lines=False
        )
        # A logarithmic axis has no place for 0, which stands for a missing number.
        traces.append(trace | {"x": [value or None for value in values]})
    layout = {
        "xaxis": log_axis(
            f"{table.quantity} ({table.unit})", [x for trace in traces for x in trace["x"]]
        ),
        "yaxis": names_axis(label for label, _ in selected),
    }
    figure = plain_figure(traces, layout, with_legend(150 + 40 * len(selected), len(traces)))
    text = f"A mark for each device.{thinning_note(len(selected), len(table.lines), 'tests')}"
    return Plot(SECTION, table.title, text, figure)
