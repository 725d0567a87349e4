"""Parts of all plots: colours, marks, axes, safe text, and a figure as plain data."""

import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from typing import Any, TypeGuard, TypeVar

from ...core.rows import Row
from ...core.units import format_bytes, printable
from ...core.verdicts import Kind

Trace = dict[str, Any]
Item = TypeVar("Item")

# Okabe and Ito's palette without black and yellow, which vanish on a dark and on a white page.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
# The colour of outlines and of lines that are no series. It is visible on white and on black.
GREY = "#808080"
SYMBOLS = (
    "circle",
    "square",
    "diamond",
    "triangle-up",
    "triangle-down",
    "pentagon",
    "star",
    "hexagram",
)
DASHES = (
    "solid",
    "longdash",
    "dashdot",
    "longdashdot",
    "10px,2px",
    "2px,2px",
    "8px,2px,2px,2px,2px,2px",
    "2px,6px",
)
PATTERNS = ("", "/", "x", "-", "\\", "+", "|", ".")
# The most series of a plot; a reader cannot tell more of them apart.
MOST_SERIES = len(SYMBOLS)
RED_SYMBOL = "x"
# Points of one figure, and plots of one kind, that a browser draws without a wait.
MOST_POINTS, MOST_PLOTS = 2000, 12
# More points than this are small, so that they leave each other room.
_MOST_LARGE = 100
_MOST_TICKS = 6
# Numbers beyond these are not drawn. No machine reaches them; from a hand-made file, one would squeeze all others.
_DRAWN = (1e-30, 1e30)


@dataclass(frozen=True, slots=True)
class Grid:
    """A matrix as a table of coloured cells.

    It has headings of its columns, and rows of a heading and cells. A cell is its text, how far it lies below the best
    (0 to 1), and the text that is shown beside the pointer.
    """

    corner: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, Sequence[tuple[str, float, str]]]]


@dataclass(frozen=True, slots=True)
class Plot:
    """One figure of the page, under the heading `section`.

    In `says` is its sentence, also for a screen reader. `figure` is `data` and `layout` as Plotly's JavaScript takes
    them, without colours of the page itself (background, text, grid), which follow the light or dark mode; a matrix is
    drawn by the page itself.
    """

    section: str
    title: str
    says: str
    figure: dict[str, Any] | Grid


def safe(text: str) -> str:
    """Return text without tags or entities, as Plotly reads these.

    It is for ids, files and devices.
    """
    return escape(printable(text), quote=False)


def short(text: str, longest: int = 60) -> str:
    """Return a name, cut in its middle where too long."""
    half = (longest - 1) // 2
    return text if len(text) <= longest else f"{text[:half]}…{text[-half:]}"


def lines_of(texts: Iterable[str]) -> str:
    """Return the text beside the pointer, a line each.

    Empty texts are left out.
    """
    return "<br>".join(safe(short(text, 100)) for text in texts if text)


def wrap_label(text: str, width: int = 18, at_most: int = 4) -> str:
    """Return a label of an axis in short lines.

    Short lines leave room for the bars on a phone. Where a label has too many lines, its last line is
    kept, since labels often differ at their ends.
    """
    lines = [""]
    # A line may end after a word or a part of a test's name, and within a part that is longer than a line.
    for part in re.findall(rf"[^\s\-_/,\[]{{0,{width - 1}}}(?:[\s\-_/,\[]|.$|.)", printable(text)):
        if len((lines[-1] + part).rstrip()) > width:
            lines.append("")
        lines[-1] += part
    if len(lines) > at_most:
        lines = [*lines[: at_most - 2], f"{lines[at_most - 2].rstrip()[: width - 2]} …", lines[-1]]
    return "<br>".join(escape(line.strip(), quote=False) for line in lines)


def thin(
    elements: Sequence[Item], at_most: int, is_kept: Callable[[Item], bool] = lambda _: False
) -> list[Item]:
    """Return at most `at_most` elements, in their order.

    Elements for which `is_kept` is True are chosen first; the others fill the room that is left, at
    equal distances.
    """
    if len(elements) <= at_most:
        return list(elements)
    kept_places = [index for index, element in enumerate(elements) if is_kept(element)][:at_most]
    other_places = sorted(set(range(len(elements))) - set(kept_places))
    # The room that is left is filled by places at equal distances.
    room = at_most - len(kept_places)
    places = sorted(
        {
            *kept_places,
            *(other_places[number * len(other_places) // room] for number in range(room)),
        }
    )
    return [elements[index] for index in places]


def thinning_note(number: int, total: int, noun: str) -> str:
    """Return the sentence that some elements are left out.

    It begins with a space. It is empty where nothing is left out.
    """
    return f" {number} of {total} {noun} are shown; the run file has all." if number < total else ""


def limit_plots(
    groups: Sequence[Item], draw: Callable[[Item], Plot], rows_of: Callable[[Item], Iterable[Row]]
) -> list[Plot]:
    """Return a plot for each group of rows, at most `MOST_PLOTS`.

    Where there are too many groups, those with a red test are chosen first. The sentence of the last
    plot then says how many are left out.
    """
    selected = thin(groups, MOST_PLOTS, lambda group: any(row.red for row in rows_of(group)))
    plots = [draw(group) for group in selected]
    if len(selected) < len(groups):
        note = f" {len(selected)} of {len(groups)} such plots are drawn; the table of results has the others."
        plots[-1] = replace(plots[-1], says=plots[-1].says + note)
    return plots


def plain_figure(
    traces: Sequence[Trace], layout: Mapping[str, Any], height: int = 420
) -> dict[str, Any]:
    """Return a figure as Plotly's JavaScript takes it.

    It has no colours of its own for background, text and grid, so it follows those of the page.
    """
    base = {
        "autosize": True,
        "height": height,
        "paper_bgcolor": "rgba(0,0,0,0)",
        "plot_bgcolor": "rgba(0,0,0,0)",
        "margin": {"l": 52, "r": 16, "t": 24, "b": 44},
        "hovermode": "closest",
        "hoverlabel": {"align": "left", "namelength": -1},
        "legend": {"orientation": "h", "x": 0, "xanchor": "left", "y": 0, "yref": "container", "yanchor": "bottom",
                   "tracegroupgap": 0, "traceorder": "normal"},
    }  # fmt: skip
    return {"data": list(traces), "layout": base | dict(layout)}


def with_legend(height: int, entries: int, at_most: int = 6) -> int:
    """Return the height of a figure with its legend, in pixels.

    The legend takes a line for each of its first entries.
    """
    return height + 22 * min(at_most, entries)


def marks(
    name: str,
    xs: Sequence[float],
    ys: Sequence[float | None],
    texts: Iterable[Sequence[str]],
    index: int,
    *,
    rows: Sequence[Row] = (),
    lines: bool = True,
) -> Trace:
    """Return a series of points as a trace, the form in which Plotly draws it.

    Points without a place on a logarithmic axis are left out.

    Args:
        name: of the series, in the legend.
        xs: the horizontal places.
        ys: the vertical places.
        texts: the lines beside the pointer, for each point.
        index: of the series; its colour, symbol and dash each differ from those of its neighbours.
        rows: of the points; failed tests and invalid numbers have marks of their own.
        lines: whether lines join the points.
    """
    colour, symbol = COLOURS[index % len(COLOURS)], SYMBOLS[index % len(SYMBOLS)]
    size = 9 if len(xs) <= _MOST_LARGE else 6
    symbols = [
        RED_SYMBOL if row.red else f"{symbol}-open" if row.verdict == Kind.INVALID else symbol
        for row in rows
    ]
    sizes = [size + 4 if row.red else size for row in rows]
    # The legend copies the mark of the first point. Where that is not the usual mark of the series, a point without a
    # place comes before it.
    # Below, a list times `has_placeholder` is empty without that point.
    has_placeholder = symbols[:1] not in ([], [symbol])
    marker = {
        "color": colour,
        "opacity": 1,
        "line": {"color": GREY, "width": 1},
        "symbol": [symbol] * has_placeholder + symbols or symbol,
        "size": [size] * has_placeholder + sizes or size,
    }
    return {
        "type": "scatter",
        "x": [None] * has_placeholder + [*xs],
        "y": [None] * has_placeholder + [y if drawable(y) else None for y in ys],
        "mode": "lines+markers" if lines else "markers",
        "name": safe(short(name)),
        "line": {"color": colour, "dash": DASHES[index % len(DASHES)], "width": 2},
        "marker": marker,
        "hoverinfo": "text",
        "hovertext": [""] * has_placeholder + list(map(lines_of, texts)),
    }


def marks_explained(rows: Iterable[Row]) -> list[Trace]:
    """Return the legend entries for marks of red and invalid points.

    An entry is left out where no row needs it.
    """
    states = {RED_SYMBOL if row.red else row.verdict for row in rows}
    entries = (
        (RED_SYMBOL, "test failed", RED_SYMBOL),
        (Kind.INVALID, "INVALID measurement", "circle-open"),
    )
    return [
        {"type": "scatter", "x": [None], "y": [None], "mode": "markers", "name": name, "hoverinfo": "skip",
         "marker": {"symbol": symbol, "size": 10, "color": GREY}}
        for state, name, symbol in entries if state in states
    ]  # fmt: skip


def dashed_line(
    xs: Sequence[float], ys: Sequence[float], name: str, dash: str = "dash"
) -> list[Trace]:
    """Return a grey line with a name in the legend.

    The list is empty where the line cannot be drawn: a value does not fit the axis, or it would run backwards.
    """
    if xs[0] > xs[-1] or not all(map(drawable, ys)):
        return []
    return [
        {
            "type": "scatter",
            "mode": "lines",
            "line": {"color": GREY, "dash": dash, "width": 2},
            "x": list(xs),
            "y": list(ys),
            "name": safe(name),
            "hoverinfo": "text",
            "hovertext": safe(name),
        }
    ]


def bar_marker(index: int, **properties: object) -> dict[str, object]:
    """Return the colour and pattern of a series of bars.

    The pattern is for readers who do not see the colour.
    """
    # After all colours were used once, the patterns shift by one, so that colour and pattern do not repeat together.
    shape = PATTERNS[(index + index // len(COLOURS)) % len(PATTERNS)]
    pattern = {
        "shape": shape,
        "fillmode": "overlay",
        "fgcolor": "rgba(255,255,255,0.75)",
        "size": 8,
        "solidity": 0.25,
    }
    return {
        "color": COLOURS[index % len(COLOURS)],
        "pattern": pattern,
        "line": {"color": GREY, "width": 1},
        **properties,
    }


def drawable(value: float | None) -> TypeGuard[float]:
    """Return True where a number fits a logarithmic axis.

    A file may hold times so short that a rate is infinite.
    """
    return value is not None and _DRAWN[0] < value < _DRAWN[1]


def axis(title: str, **properties: object) -> dict[str, object]:
    """Return an axis with its title and room for labels."""
    return {
        "title": {"text": title, "standoff": 8},
        "automargin": True,
        "zeroline": False,
        **properties,
    }


def log_axis(title: str, values: Iterable[float | None], **properties: object) -> dict[str, object]:
    """Return a logarithmic axis around values, with round ticks.

    There is room above the highest value for a label.
    """
    # The ends of a logarithmic axis are given to Plotly as logarithms.
    logs = [math.log10(value) for value in values if drawable(value)] or [0.0]
    room = max(0.08, 0.05 * (max(logs) - min(logs)))
    low, high = min(logs) - room, max(logs) + 2 * room
    # Within a decade Plotly's own ticks are plain numbers; beyond it they would be bare digits between tens.
    decade_step = max(1, math.ceil((high - low) / _MOST_TICKS))
    # The first digits of the ticks in each decade: the fewer decades, the more ticks.
    digits = (
        (1, 2, 5)
        if high - low < _MOST_TICKS / 3
        else (1, 3)
        if high - low < _MOST_TICKS / 2
        else (1,)
    )
    ticks = [
        digit * 10.0**decade
        for decade in range(math.floor(low), math.ceil(high), decade_step)
        for digit in digits
    ]
    ticks = [float(f"{tick:.3g}") for tick in ticks if low <= math.log10(tick) <= high]
    tick_properties = (
        {"tickvals": ticks, "ticktext": [f"{tick:,.10g}" for tick in ticks]}
        if len(ticks) > 1
        else {}
    )
    return axis(
        title, type="log", range=[low, high], exponentformat="none", **tick_properties, **properties
    )


def size_axis(title: str, sizes: Sequence[float]) -> dict[str, object]:
    """Return a logarithmic axis of bytes.

    It has a few ticks at powers of two. Their labels have the number above the unit.
    """
    low, high = math.log2(min(sizes)), math.log2(max(sizes))
    exponents = range(
        math.ceil(low), math.floor(high) + 1, max(1, math.ceil((high - low) / _MOST_TICKS))
    )
    # The exponents are of two, but Plotly takes the ends of an axis as logarithms to base ten.
    room = max(0.05, 0.03 * (high - low) * math.log10(2))
    bounds = [math.log10(min(sizes)) - room, math.log10(max(sizes)) + room]
    # Plotly would turn labels of one line aslant on a phone.
    texts = [format_bytes(2**exponent).replace(" ", "<br>") for exponent in exponents]
    ticks = {"tickvals": [2**exponent for exponent in exponents], "ticktext": texts, "tickangle": 0}
    return axis(title, type="log", range=bounds, **ticks)


def names_axis(names: Iterable[str]) -> dict[str, object]:
    """Return an axis of names below each other, at places from 1 on."""
    texts = [wrap_label(name) for name in names]
    ticks = {
        "tickvals": list(range(1, len(texts) + 1)),
        "ticktext": texts,
        "range": [len(texts) + 0.5, 0.5],
    }
    return axis("", showgrid=False, tickfont={"size": 10}, **ticks)
