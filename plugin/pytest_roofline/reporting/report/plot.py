"""The seam between what is plotted and the page that shows it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure of the page, with the same content in words and as a table for who cannot see it.

    Args:
        section: the heading under which it stands; plots of one section follow each other.
        title: what is shown, in a line.
        says: what it says at a glance, in a sentence or two: the page's text below the title, and the figure's
            description for a screen reader.
        figure: `data` and `layout` as Plotly's JavaScript takes them, plain data only; without colours of the page
            itself (background, text, grid), which follow the light or dark mode.
        columns: headings of the same content as a table.
        rows: its cells as text.
    """

    section: str
    title: str
    says: str
    figure: dict[str, Any]
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
