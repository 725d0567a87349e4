"""A rate against size on log axes: the roofline dashed, the baseline's band, and the points of this run."""

from collections.abc import Sequence
from dataclasses import replace

from ....core.rows import Row
from ....core.units import printable
from ..plot import Plot
from .axes import log_axis, size_axis
from .drawing import (
    GREY,
    MOST_POINTS,
    MOST_ROWS,
    RED_SYMBOL,
    Trace,
    legend_only,
    lines_of,
    plain_figure,
    safe,
    short,
    style,
    thinned,
    thinned_note,
)
from .references import baseline_traces, limit_marks, roof_level, roofs_of
from .series import Series
from .sweep_words import sweep_says
from .words import COLUMNS, INVALID, cells, hover, metric_of, rate_unit


def sweep_plot(section: str, title: str, all_series: Sequence[Series], rate_name: str) -> Plot:
    """One figure of some series that share an axis.

    Args:
        section: of the page.
        title: of the plot.
        all_series: at most as many as there are styles.
        rate_name: what the vertical axis shows, without its unit.
    """
    total = sum(len(one.points) for one in all_series)
    drawn = [_drawn(one, total) for one in all_series]
    metric = metric_of(all_series[0].rows[0])
    unit, unit_name = rate_unit(metric)
    sizes = [size for one in drawn for size in one.sizes]
    roofs = roofs_of([row for one in drawn for row in one.rows])
    traces = [roof_level(sizes, roof, unit) for roof in roofs]
    banded = [index for index, one in enumerate(drawn) if any(row.baseline_medians_s for row in one.rows)]
    for index, one in enumerate(drawn):
        # One entry of the legend explains all bands, which have their series' colours.
        traces += baseline_traces(one, index, unit, explained=index == banded[0]) if index in banded else []
        traces.append(_points(one, index, unit))
    traces += limit_marks(drawn, unit) + _legend([row for one in drawn for row in one.rows])
    heights = [y for trace in traces for y in trace["y"]]
    layout = {
        "xaxis": size_axis("size", sizes),
        "yaxis": log_axis(f"{rate_name} ({unit_name})", heights),
    }
    pairs = [(row, one.name) for one in all_series for row in one.rows]
    shown = thinned(pairs, MOST_ROWS, lambda pair: pair[0].red)
    says = sweep_says(all_series) + thinned_note(sum(len(one.points) for one in drawn), total, "points")
    return Plot(
        section=section,
        title=printable(title),
        says=says + thinned_note(len(shown), len(pairs), "rows of the table"),
        figure=plain_figure(traces, layout, height=420 + 22 * min(6, len(traces))),
        columns=COLUMNS,
        rows=[cells(row, name) for row, name in shown],
    )


def _drawn(one: Series, total: int) -> Series:
    if total <= MOST_POINTS:
        return one
    share = max(2, len(one.points) * MOST_POINTS // total)
    return replace(one, points=tuple(thinned(one.points, share, lambda point: point[1].red)))


def _points(one: Series, index: int, unit: float) -> Trace:
    colour, symbol, dash = style(index)
    return {
        "type": "scatter",
        "x": one.sizes,
        "y": [(row.rate or 0.0) / unit for row in one.rows],
        "mode": "lines+markers",
        "name": safe(short(one.name)),
        "legendgroup": f"series {index}",
        "line": {"color": colour, "dash": dash, "width": 2},
        "marker": {
            "color": colour,
            "symbol": [_symbol(row, symbol) for row in one.rows],
            "size": [13 if row.red else 9 for row in one.rows],
            "line": {"color": GREY, "width": 1},
            "opacity": 1,
        },
        "hoverinfo": "text",
        "hovertext": [lines_of(hover(row, one.name)) for row in one.rows],
    }


def _symbol(row: Row, symbol: str) -> str:
    if row.red:
        return RED_SYMBOL
    return f"{symbol}-open" if row.verdict == INVALID else symbol


def _legend(rows: Sequence[Row]) -> list[Trace]:
    red = [legend_only("test failed", RED_SYMBOL)] if any(row.red for row in rows) else []
    invalid = any(row.verdict == INVALID and not row.red for row in rows)
    return red + ([legend_only("INVALID: not to be trusted", "circle-open")] if invalid else [])
