"""Attention by sequence length: back ends side by side, memory that ran out as a mark, the roofline dashed."""

from collections.abc import Sequence
from dataclasses import dataclass

from ...core.keys import Scalar
from ...core.rows import Row
from ...core.units import format_flops, format_memory, format_share, printable, three_digits
from ...core.work import rate_suffix
from ...stats.verdicts import Kind
from .chart import (
    MOST_ROWS,
    Plot,
    Trace,
    axis,
    bar_marker,
    dashed,
    limited,
    lines_of,
    plain_figure,
    safe,
    short,
    thinned,
    thinned_note,
    with_legend,
)
from .sweeps import natural
from .words import COLUMNS, ceiling_words, cells, devices, flop_unit, hover, of_run, roofs_of, sentence, verdicts

SECTION = "Attention by sequence length"
_SEQUENCE, _BACK_ENDS = "sequence", ("implementation", "name", "backend", "back_end", "attention")
# More bars than these leave no room for a number on each.
_MOST_NUMBERED = 16


@dataclass(frozen=True, slots=True)
class Bar:
    """A measurement of a back end at a length, or memory that ran out before there was one."""

    back_end: str
    sequence: int
    row: Row

    @property
    def sound(self) -> bool:
        """Whether it has a number that can be trusted."""
        return self.row.rate is not None and self.row.verdict != Kind.INVALID


def attention_plots(rows: Sequence[Row]) -> list[Plot]:
    """A plot for each benchmark and shape: those with a parameter `sequence` and one that names the back end."""
    computing = [row for row in rows if row.lost is not None or rate_suffix(row.counting or "") == "TFLOPS"]
    groups: dict[str, list[Bar]] = {}
    for row in computing:
        sequence = row.parameters.get(_SEQUENCE)
        name = next((name for name in _BACK_ENDS if isinstance(row.parameters.get(name), str)), None)
        if name is None or not isinstance(sequence, int) or isinstance(sequence, bool):
            continue
        rest = [_told(other, value) for other, value in row.parameters.items() if other not in (_SEQUENCE, name)]
        title = ", ".join([row.benchmark + (f".{row.name}" if row.name else ""), *rest])
        bar = Bar(f"{row.parameters[name]}{of_run(row, computing)}", sequence, row)
        groups.setdefault(title, []).append(bar)
    # Something stands beside something else, and one of them is a number.
    found = [pair for pair in groups.items() if len(pair[1]) > 1 and any(bar.row.rate is not None for bar in pair[1])]
    return limited(found, lambda pair: _plot(*pair), lambda pair: any(bar.row.red for bar in pair[1]))


def _told(name: str, value: Scalar) -> str:
    if name == "causal" and isinstance(value, bool):
        return "causal" if value else "full"
    return value if isinstance(value, str) else f"{name} {value}"


def _plot(title: str, bars: Sequence[Bar]) -> Plot:
    back_ends = sorted({bar.back_end for bar in bars}, key=natural)
    sequences = sorted({bar.sequence for bar in bars})
    rows = [bar.row for bar in bars]
    scale, unit = flop_unit(row.rate for row in rows)
    numbered = len(bars) <= _MOST_NUMBERED
    # The horizontal axis counts sequences, so that lines reach past the outermost bars.
    span = [-0.5, len(sequences) - 0.5]
    traces = [
        _bars([bar for bar in bars if bar.back_end == name], index, sequences, scale, numbered=numbered)
        for index, name in enumerate(back_ends)
    ]
    for ceiling, label, told in roofs_of(rows):
        traces += dashed(span, [ceiling.value / scale] * 2, label, told=told)
    most = max(y for trace in traces for y in trace["y"])
    ticks = {"tickvals": list(range(len(sequences))), "ticktext": [f"{sequence}" for sequence in sequences]}
    layout = {
        "barmode": "group",
        "bargap": 0.2,
        "xaxis": axis("sequence length (tokens)", range=span, showgrid=False, **ticks),
        "yaxis": axis(unit, range=[0, most * 1.18]),
    }
    ordered = sorted(bars, key=lambda bar: (natural(bar.back_end), bar.sequence))
    listed = thinned(ordered, MOST_ROWS, lambda bar: bar.row.red)
    return Plot(
        section=SECTION,
        title=printable(f"{title} on {devices(rows)}"),
        says=_says(bars) + thinned_note(len(listed), len(bars), "rows of the table"),
        figure=plain_figure(traces, layout, with_legend(400, len(traces))),
        columns=("back end", "sequence", *COLUMNS[2:]),
        rows=[(printable(bar.back_end), str(bar.sequence), *cells(bar.row, "")[2:]) for bar in listed],
    )


def _bars(bars: Sequence[Bar], index: int, sequences: Sequence[int], scale: float, *, numbered: bool) -> Trace:
    """The bars of one back end."""
    rows = [bar.row for bar in bars]
    return {
        "type": "bar",
        "x": [sequences.index(bar.sequence) for bar in bars],
        "y": [(row.rate or 0.0) / scale for row in rows],
        "name": safe(short(bars[0].back_end)),
        "marker": bar_marker(index, opacity=[0.35 if row.verdict == Kind.INVALID else 1.0 for row in rows]),
        "text": [_mark(row, three_digits((row.rate or 0.0) / scale) if numbered else "") for row in rows],
        "textposition": "outside",
        # Otherwise what stands above narrow bars is shrunk until nobody reads it.
        "constraintext": "none",
        "textfont": {"size": 10},
        "textangle": 0 if numbered else -90,
        "cliponaxis": False,
        "hoverinfo": "text",
        "hovertext": [lines_of(_beside(bar)) for bar in bars],
    }


def _mark(row: Row, number: str) -> str:
    """What stands above a bar: that memory ran out, that it is not to be trusted, or its number where there is room."""
    if row.lost is not None:
        return "OOM"
    if row.verdict == Kind.INVALID or row.rate is None:
        return "?" if row.rate is None else "inv."
    return f"{number} ✕".strip() if row.red else number


def _beside(bar: Bar) -> list[str]:
    name, lost = f"{bar.back_end}, {bar.sequence} tokens", bar.row.lost
    if lost is None:
        return hover(bar.row, name)
    asked = [f"asked for {format_memory(lost.asked_bytes)}"] if lost.asked_bytes is not None else []
    free = [f"{format_memory(lost.free_bytes)} were free"] if lost.free_bytes is not None else []
    return [name, "out of memory", ", ".join(asked + free)]


def _says(bars: Sequence[Bar]) -> str:
    """Who is fastest at the longest sequence that was measured, by how much, and who ran out of memory."""
    measured = [bar.row for bar in bars if bar.row.measurement is not None]
    parts = [_fastest([bar for bar in bars if bar.sound]), verdicts(measured, "measurement", lambda row: row.label)]
    first: dict[str, int] = {}
    for bar in sorted((bar for bar in bars if bar.row.lost is not None), key=lambda bar: bar.sequence):
        first.setdefault(bar.back_end, bar.sequence)
    parts += [f"{name} runs out of memory (OOM) from {sequence} tokens on" for name, sequence in first.items()]
    return printable(sentence("; ".join(parts)))


def _fastest(sound: Sequence[Bar]) -> str:
    longest = max((bar.sequence for bar in sound), default=0)
    ordered = sorted((bar for bar in sound if bar.sequence == longest), key=lambda bar: -(bar.row.rate or 0.0))
    if not ordered:
        return "no number to be trusted"
    first = ordered[0]
    share, one = first.row.roofline_share, first.row.measurement
    text = f"at {longest} tokens {first.back_end} is fastest with {format_flops(first.row.rate or 0.0)}"
    if share is not None and one is not None and one.ceiling is not None:
        text += f", {format_share(share)} of the {ceiling_words(one.ceiling)}"
    if len(ordered) > 1 and ordered[1].row.rate:
        text += f", {(first.row.rate or 0.0) / ordered[1].row.rate:.2f} times {ordered[1].back_end}"
    return text
