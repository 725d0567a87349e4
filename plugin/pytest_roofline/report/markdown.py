"""Markdown of which only the form is ours: whatever comes from ids, files and machines stands in code spans."""

import re
from collections.abc import Iterable

from ..core.units import printable

# A cell with more characters than this is cut.
LONGEST = 300


def code(text: str) -> str:
    """Text as it is, in which nothing is markup, a link or a mention; empty text stays empty."""
    shown = printable(text)
    shown = shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"
    if not shown.strip():
        return ""
    longest = max(map(len, re.findall(r"`+", shown)), default=0)
    fence = "`" * (longest + 1)
    room = " " if shown[0] in "` " or shown[-1] in "` " else ""
    return f"{fence}{room}{shown}{room}{fence}"


def line(cells: Iterable[str]) -> str:
    """A row of a table. A bar would end its cell, in code spans too."""
    return "| " + " | ".join(map(_without_bars, cells)) + " |"


def _without_bars(cell: str) -> str:
    # Some readers pair backslashes ahead of a bar, others look at the last one only; an odd number satisfies both.
    return re.sub(r"(\\*)\|", lambda found: f"{found[1] * 2}\\|", cell)
