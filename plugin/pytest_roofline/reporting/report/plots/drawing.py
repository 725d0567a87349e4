"""What all plots share: colours, marks, axes, text that cannot inject, and a figure as plain data."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from html import escape
from typing import Any, TypeVar

from ....core.units import printable
from ..plot import Plot

Trace = dict[str, Any]
Item = TypeVar("Item")
# Okabe and Ito's palette without black and yellow, which vanish on a dark and on a white page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# Of lines that are no series and of outlines: seen on white and on black alike.
GREY = "#808080"
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "pentagon", "star", "hexagram")
DASHES = ("solid", "longdash", "dashdot", "longdashdot", "10px,2px", "2px,2px", "8px,2px,2px,2px,2px,2px", "2px,6px")
PATTERNS = ("", "/", "x", "-", "\\", "+", "|", ".")
# More series than this nobody tells apart.
MOST_SERIES = len(SYMBOLS)
RED_SYMBOL = "x"
LONGEST_NAME = 60
# What a browser draws and a person reads without waiting.
MOST_POINTS = 2000
MOST_ROWS = 200
# Of one kind; the table of results has everything.
MOST_PLOTS = 12
_TRANSPARENT = "rgba(0,0,0,0)"


def safe(text: str) -> str:
    """Text of ids, files and devices for a figure, where Plotly would read tags and entities."""
    return escape(printable(text), quote=False)


def short(text: str, longest: int = LONGEST_NAME) -> str:
    """The same name, cut in its middle where it is too long for a legend."""
    half = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[:half]}…{text[-half:]}"


def lines_of(texts: Iterable[str]) -> str:
    """What stands beside the pointer, a line for each text that is not empty."""
    return "<br>".join(safe(short(text, 100)) for text in texts if text)


def style(index: int) -> tuple[str, str, str]:
    """Colour, symbol and dash of a series; each alone tells it from its neighbours."""
    return COLOURS[index % len(COLOURS)], SYMBOLS[index % len(SYMBOLS)], DASHES[index % len(DASHES)]


def thinned(items: Sequence[Item], at_most: int, keep: Callable[[Item], bool] = lambda _: False) -> list[Item]:
    """At most so many of many in their order: those to `keep` first, of the others at equal distances."""
    if len(items) <= at_most:
        return list(items)
    kept = [index for index, item in enumerate(items) if keep(item)][:at_most]
    others = sorted(set(range(len(items))) - set(kept))
    room = at_most - len(kept)
    step = len(others) / room if room else 0.0
    chosen = sorted({*kept, *(others[int(number * step)] for number in range(room))})
    return [items[index] for index in chosen]


def limited(groups: Sequence[Item], draw: Callable[[Item], Plot], red: Callable[[Item], bool]) -> list[Plot]:
    """A plot for each group of one kind, those with a red test first where there are too many; the last says so."""
    kept = thinned(groups, MOST_PLOTS, red)
    plots = [draw(group) for group in kept]
    if len(kept) < len(groups):
        note = f" {len(kept)} of {len(groups)} such plots are drawn; the table of results has the others."
        plots[-1] = replace(plots[-1], says=plots[-1].says + note)
    return plots


def thinned_note(shown: int, total: int, what: str) -> str:
    """The sentence on what is left out, with a space before it; empty where nothing is."""
    return f" {shown} of {total} {what} are shown; the run file has all." if shown < total else ""


def plain_figure(traces: Sequence[Trace], layout: Mapping[str, Any], height: int = 420) -> dict[str, Any]:
    """A figure as Plotly's JavaScript takes it: lists, texts and numbers, checked by Plotly, without page colours.

    Raises:
        ValueError: a property that Plotly does not know, or a number that JSON has none for.
    """
    import plotly.graph_objects as go

    base = {
        "autosize": True,
        "height": height,
        "paper_bgcolor": _TRANSPARENT,
        "plot_bgcolor": _TRANSPARENT,
        "margin": {"l": 52, "r": 16, "t": 24, "b": 44},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "modebar": {"bgcolor": _TRANSPARENT, "color": GREY, "activecolor": COLOURS[0]},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom",
                   "tracegroupgap": 0, "traceorder": "normal"},
    }  # fmt: skip
    # A template would bring page colours, and whatever a person has set as the default.
    figure = go.Figure(data=list(traces), layout={"template": go.layout.Template(), **base, **layout})
    found: dict[str, Any] = figure.to_plotly_json()
    found["layout"].pop("template", None)
    return {"data": _plain(found["data"]), "layout": _plain(found["layout"])}


def _plain(value: Any) -> Any:
    """Lists for tuples. Refused are arrays, which Plotly writes in base 64, and numbers that JSON does not have."""
    if isinstance(value, dict) and "bdata" not in value:
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise ValueError(f"a figure holds {value!r}; expected a finite number")
        return value
    raise ValueError(f"a figure holds a {type(value).__name__}; expected text, numbers, lists and dictionaries")


def bar_marker(index: int, **more: Any) -> dict[str, Any]:
    """How the bars of a series look: a colour and, for whom that says nothing, a pattern."""
    # Behind a full turn of the colours the patterns have moved on by one.
    shape = PATTERNS[(index + index // len(COLOURS)) % len(PATTERNS)]
    pattern = {"shape": shape, "fillmode": "overlay", "fgcolor": "rgba(255,255,255,0.75)", "size": 8, "solidity": 0.25}
    return {"color": COLOURS[index % len(COLOURS)], "pattern": pattern, "line": {"color": GREY, "width": 1}, **more}


def wrapped(text: str, width: int = 18, at_most: int = 4) -> str:
    """A label of an axis in lines that leave room for the bars on a phone; what tells two apart is often its end."""
    lines = [""]
    # Between words and the parts of a test's name, and only within a part where it is longer than a line.
    for part in re.findall(rf"[^\s\-_/,\[]{{0,{width - 1}}}(?:[\s\-_/,\[]|.$|.)", printable(text)):
        if len((lines[-1] + part).rstrip()) > width:
            lines.append("")
        lines[-1] += part
    if len(lines) > at_most:
        lines = [*lines[: at_most - 2], f"{lines[at_most - 2].rstrip()[: width - 2]} …", lines[-1]]
    return "<br>".join(escape(line.strip(), quote=False) for line in lines)


def legend_only(name: str, symbol: str) -> Trace:
    """A mark explained in the legend that belongs to no series."""
    marker = {"symbol": symbol, "size": 10, "color": GREY}
    return {"type": "scatter", "x": [None], "y": [None], "mode": "markers", "marker": marker, "name": name,
            "hoverinfo": "skip"}  # fmt: skip


def level(xs: Sequence[float], y: float, text: str, dash: str, told: Sequence[str] = ()) -> Trace:
    """A horizontal line with its text above its right end; beside the pointer stand lines of their own."""
    return {
        "type": "scatter",
        "x": [min(xs), max(xs)],
        "y": [y, y],
        "mode": "lines+text",
        "line": {"color": GREY, "dash": dash, "width": 2},
        "text": ["", safe(text)],
        "textposition": "top left",
        "name": safe(text),
        "hoverinfo": "text",
        "hovertext": lines_of(told or [text]),
    }
