"""Attention by sequence length: back ends side by side, memory that ran out as a mark, the roofline dashed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....core.keys import Scalar
from ....core.records import Ceiling
from ....core.units import format_flops, format_memory, format_share, printable, three_digits
from ....core.work import rate_suffix
from ....judging.report_rows import OUT_OF_MEMORY, ReportRow
from ..plot import Plot
from .drawing import (
    MOST_ROWS,
    Trace,
    axis,
    bar_marker,
    level,
    limited,
    lines_of,
    plain_figure,
    safe,
    short,
    thinned,
    thinned_note,
)
from .series import natural
from .words import COLUMNS, INVALID, ceiling_words, cells, devices, flop_unit, hover, roof_label, sentence, verdicts

SECTION = "Attention by sequence length"
_SEQUENCE, _BACK_ENDS = "sequence", ("implementation", "name", "backend", "back_end", "attention")
# More bars than these leave no room for a number on each.
_MOST_NUMBERED = 16


@dataclass(frozen=True, slots=True)
class _Bar:
    """A measurement, or memory that ran out before there was one."""

    back_end: str
    sequence: int
    row: ReportRow


@dataclass(frozen=True, slots=True)
class _Group:
    title: str
    bars: Sequence[_Bar]

    @property
    def red(self) -> bool:
        return any(bar.row.red for bar in self.bars)

    @property
    def comparable(self) -> bool:
        """Whether anything stands beside something else, and one of them is a number."""
        return len(self.bars) > 1 and any(bar.row.rate is not None for bar in self.bars)


def attention_plots(rows: Sequence[ReportRow]) -> list[Plot]:
    """A plot for each benchmark and shape: those with a parameter `sequence` and one that names the back end."""
    groups: dict[str, list[_Bar]] = {}
    for row in rows:
        asked = _asked(row)
        sequence = asked[1].get(_SEQUENCE) if asked else None
        name = next((name for name in _BACK_ENDS if asked and isinstance(asked[1].get(name), str)), None)
        if asked is None or name is None or not isinstance(sequence, int) or isinstance(sequence, bool):
            continue
        benchmark, parameters = asked
        rest = [_told(other, value) for other, value in parameters.items() if other not in (_SEQUENCE, name)]
        groups.setdefault(", ".join([benchmark, *rest]), []).append(_Bar(f"{parameters[name]}", sequence, row))
    found = [_Group(title, _by_run(bars)) for title, bars in groups.items()]
    return limited([group for group in found if group.comparable], _drawn, lambda group: group.red)


def _by_run(bars: Sequence[_Bar]) -> list[_Bar]:
    """The same with the run in the name of the back end, where there are several."""
    several = len({bar.row.run.header.run_id for bar in bars}) > 1
    return [replace(bar, back_end=f"{bar.back_end}, run {bar.row.run.header.run_id}") if several else bar
            for bar in bars]  # fmt: skip


def _asked(row: ReportRow) -> tuple[str, dict[str, Scalar]] | None:
    """The benchmark and its parameters, of a measurement of arithmetic or of memory that ran out."""
    one, lacking = row.measurement, row.out_of_memory
    if one is not None and rate_suffix(one.key.metric) == "TFLOPS":
        return one.key.benchmark + (f".{one.key.name}" if one.key.name else ""), one.key.parameters
    if lacking is not None:
        return lacking.benchmark + (f".{lacking.name}" if lacking.name else ""), lacking.parameters
    return None


def _told(name: str, value: Scalar) -> str:
    if name == "causal" and isinstance(value, bool):
        return "causal" if value else "full"
    return value if isinstance(value, str) else f"{name} {value}"


def _drawn(group: _Group) -> Plot:
    back_ends = sorted({bar.back_end for bar in group.bars}, key=natural)
    sequences = sorted({bar.sequence for bar in group.bars})
    ceiling = _ceiling(group.bars)
    scale, unit = flop_unit([bar.row.rate or 0.0 for bar in group.bars])
    traces = []
    for index, back_end in enumerate(back_ends):
        bars = [bar for bar in group.bars if bar.back_end == back_end]
        trace = _bars(bars, index, scale, numbered=len(group.bars) <= _MOST_NUMBERED)
        traces.append({**trace, "x": [sequences.index(bar.sequence) for bar in bars]})
    if ceiling is not None:
        # The horizontal axis counts sequences, so that the line reaches past the outermost bars.
        ends = [-0.5, len(sequences) - 0.5]
        traces.append(level(ends, ceiling.value / scale, roof_label(ceiling), _dash(ceiling)))
    most = max(y for trace in traces for y in trace["y"] if y is not None)
    layout = {
        "barmode": "group",
        "xaxis": axis(
            "sequence length (tokens)",
            tickvals=list(range(len(sequences))),
            ticktext=[f"{sequence}" for sequence in sequences],
            range=[-0.5, len(sequences) - 0.5],
            showgrid=False,
        ),
        "yaxis": axis(unit, range=[0, most * 1.18]),
        "bargap": 0.2,
    }
    ordered = sorted(group.bars, key=lambda bar: (natural(bar.back_end), bar.sequence))
    listed = thinned(ordered, MOST_ROWS, lambda bar: bar.row.red)
    return Plot(
        section=SECTION,
        title=printable(f"{group.title} on {devices([bar.row for bar in group.bars])}"),
        says=_says(group, ceiling) + thinned_note(len(listed), len(group.bars), "rows of the table"),
        figure=plain_figure(traces, layout, height=400 + 22 * min(6, len(traces))),
        columns=("back end", "sequence", *COLUMNS[2:]),
        rows=[(printable(bar.back_end), str(bar.sequence), *_cells(bar.row)) for bar in listed],
    )


def _dash(ceiling: Ceiling) -> str:
    return "dash" if ceiling.source == "datasheet" else "dot"


def _ceiling(bars: Sequence[_Bar]) -> Ceiling | None:
    found = [bar.row.measurement.ceiling for bar in bars if bar.row.measurement is not None]
    known = [ceiling for ceiling in found if ceiling is not None]
    return next((ceiling for ceiling in known if ceiling.source == "datasheet"), known[0] if known else None)


def _bars(bars: Sequence[_Bar], index: int, scale: float, *, numbered: bool) -> Trace:
    """The bars of one back end, without their places."""
    rows = [bar.row for bar in bars]
    return {
        "type": "bar",
        "y": [(row.rate or 0.0) / scale for row in rows],
        "name": safe(short(bars[0].back_end)),
        "marker": bar_marker(index, opacity=[0.35 if row.word == INVALID else 1.0 for row in rows]),
        "text": [_mark(row, three_digits((row.rate or 0.0) / scale) if numbered else "") for row in rows],
        "textposition": "outside",
        # Otherwise what stands above narrow bars is shrunk until nobody reads it.
        "constraintext": "none",
        "textfont": {"size": 10},
        "textangle": 0 if numbered else -90,
        "cliponaxis": False,
        "hoverinfo": "text",
        "hovertext": [lines_of(_hover(bar)) for bar in bars],
    }


def _mark(row: ReportRow, number: str) -> str:
    """What stands above a bar: that memory ran out, that it is not to be trusted, or its number where there is room."""
    if row.out_of_memory is not None:
        return "OOM"
    if row.word == INVALID or row.rate is None:
        return "?" if row.rate is None else "inv."
    return f"{number} ✕".strip() if row.red else number


def _hover(bar: _Bar) -> list[str]:
    name = f"{bar.back_end}, {bar.sequence} tokens"
    lacking = bar.row.out_of_memory
    if lacking is None:
        return hover(bar.row, name)
    asked = [f"asked for {format_memory(lacking.asked_bytes)}"] if lacking.asked_bytes is not None else []
    free = [f"{format_memory(lacking.free_bytes)} were free"] if lacking.free_bytes is not None else []
    return [name, "out of memory", ", ".join(asked + free)]


def _cells(row: ReportRow) -> tuple[str, ...]:
    return cells(row, "")[2:] if row.measurement is not None else (*[""] * (len(COLUMNS) - 3), row.word)


def _says(group: _Group, ceiling: Ceiling | None) -> str:
    """Who is fastest at the longest sequence that was measured, by how much, and who ran out of memory."""
    sound = [bar for bar in group.bars if bar.row.rate is not None and bar.row.word != INVALID]
    measured = [bar.row for bar in group.bars if bar.row.measurement is not None]
    parts = [*_fastest(sound, ceiling), verdicts(measured, "measurements", lambda row: row.label)]
    failed = [bar for bar in group.bars if bar.row.word == OUT_OF_MEMORY or bar.row.out_of_memory is not None]
    by_name: dict[str, int] = {}
    for bar in failed:
        by_name[bar.back_end] = min(bar.sequence, by_name.get(bar.back_end, bar.sequence))
    parts += [f"{name} runs out of memory (OOM) from {sequence} tokens on" for name, sequence in by_name.items()]
    return printable(sentence("; ".join(parts)))


def _fastest(sound: Sequence[_Bar], ceiling: Ceiling | None) -> list[str]:
    if not sound:
        return ["no number to be trusted"]
    longest = max(bar.sequence for bar in sound)
    ordered = sorted((bar for bar in sound if bar.sequence == longest), key=lambda bar: -(bar.row.rate or 0.0))
    first = ordered[0]
    share = first.row.share_of_ceiling
    whose = f", {format_share(share)} of the {ceiling_words(ceiling)}" if share is not None and ceiling else ""
    parts = [f"at {longest} tokens {first.back_end} is fastest with {format_flops(first.row.rate or 0.0)}{whose}"]
    if len(ordered) > 1 and ordered[1].row.rate:
        factor = (first.row.rate or 0.0) / ordered[1].row.rate
        parts.append(f"{factor:.2f} times {ordered[1].back_end}")
    return [", ".join(parts)]
