"""The plots of the page: by section, each with its data as a table for who cannot see it or has no JavaScript."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import unescape
from typing import Any

from markupsafe import Markup

from .page_assets import json_for_script
from .page_tables import Table, plain_table
from .plots.chart import Plot

# Pixels, where a figure does not say; the room is kept before it is drawn, so that nothing jumps.
HEIGHT = 420


@dataclass(frozen=True, slots=True)
class Drawn:
    """A plot with its number in the page, its figure as JSON that may stand in a script, and its table.

    Args:
        number: the first of the page has 1.
        plot: what it shows.
        figure: as JSON.
        height: in pixels.
        table: the same content; None where the plot gives none.
        legend: each entry of its legend, with the positions of the traces that are hidden and shown with it.
    """

    number: int
    plot: Plot
    figure: Markup
    height: int
    table: Table | None
    legend: Sequence[tuple[str, Sequence[int]]]


def drawn(plots: Sequence[Plot]) -> list[Drawn]:
    """Every plot, numbered in the order given."""
    return [_drawn(number, plot) for number, plot in enumerate(plots, 1)]


def sections(plots: Sequence[Drawn], apart: str) -> list[tuple[str, list[Drawn]]]:
    """Plots under the heading that they share, in the order given, but for those of a section that stands elsewhere."""
    found: dict[str, list[Drawn]] = {}
    for one in plots:
        if one.plot.section != apart:
            found.setdefault(one.plot.section, []).append(one)
    return list(found.items())


def _drawn(number: int, plot: Plot) -> Drawn:
    height = plot.figure.get("layout", {}).get("height") or HEIGHT
    table = plain_table(plot.title, plot.columns, plot.rows) if plot.rows else None
    return Drawn(number, plot, Markup(json_for_script(plot.figure)), int(height), table, legend(plot.figure))


def legend(figure: dict[str, Any]) -> list[tuple[str, list[int]]]:
    """The entries of a figure's legend as Plotly makes them: by name, or of a group by all names that it has there.

    A single trace has no legend unless it asks for one, and what is told by a scale of colours has none at all.
    """
    groups: dict[Any, list[int]] = {}
    traces = figure.get("data", [])
    for at, trace in enumerate(traces):
        groups.setdefault(trace.get("legendgroup") or at, []).append(at)
    named = {
        key: [unescape(traces[at]["name"]) for at in those if _explained(traces[at])] for key, those in groups.items()
    }
    asked = any(trace.get("showlegend") for trace in traces)
    entries = [(", ".join(dict.fromkeys(names)), groups[key]) for key, names in named.items() if names]
    return entries if len(entries) > 1 or asked else []


def _explained(trace: dict[str, Any]) -> bool:
    return bool(trace.get("name")) and trace.get("showlegend", True) and trace["type"] != "heatmap"
