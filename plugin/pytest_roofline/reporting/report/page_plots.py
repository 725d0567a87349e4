"""The plots of the page: by section, each with its data as a table for who cannot see it or has no JavaScript."""

from collections.abc import Sequence
from dataclasses import dataclass

from markupsafe import Markup

from .page_assets import json_for_script
from .page_tables import Table, plain_table
from .plot import Plot

# Pixels, where a figure does not say; the room is kept before it is drawn, so that nothing jumps.
HEIGHT = 420


@dataclass(frozen=True, slots=True)
class Drawn:
    """A plot with its number in the page, its figure as JSON that may stand in a script, and its table."""

    number: int
    plot: Plot
    figure: Markup
    height: int
    table: Table | None


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
    return Drawn(number, plot, Markup(json_for_script(plot.figure)), int(height), table)
