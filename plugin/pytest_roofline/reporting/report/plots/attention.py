"""Attention by sequence length: back ends side by side, memory that ran out as a mark, the roofline dashed."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ....core.keys import Scalar
from ....core.rows import Row
from ....core.units import format_flops, format_share, printable
from ....core.work import rate_suffix
from ....judging.ending import OUT_OF_MEMORY
from ..plot import Plot
from .attention_bars import Bar, bar_cells, bars_of
from .axes import axis
from .drawing import MOST_ROWS, limited, plain_figure, thinned, thinned_note
from .references import roof_level, roofs_of
from .series import natural
from .words import (
    COLUMNS,
    INVALID,
    ceiling_words,
    devices,
    flop_unit,
    of_run,
    sentence,
    several_runs,
    verdicts,
)

SECTION = "Attention by sequence length"
_SEQUENCE, _BACK_ENDS = "sequence", ("implementation", "name", "backend", "back_end", "attention")
# More bars than these leave no room for a number on each.
_MOST_NUMBERED = 16


@dataclass(frozen=True, slots=True)
class _Group:
    title: str
    bars: Sequence[Bar]

    @property
    def red(self) -> bool:
        return any(bar.row.red for bar in self.bars)

    @property
    def comparable(self) -> bool:
        """Whether anything stands beside something else, and one of them is a number."""
        return len(self.bars) > 1 and any(bar.row.rate is not None for bar in self.bars)


def attention_plots(rows: Sequence[Row]) -> list[Plot]:
    """A plot for each benchmark and shape: those with a parameter `sequence` and one that names the back end."""
    groups: dict[str, list[Bar]] = {}
    for row in rows:
        asked = _asked(row)
        sequence = asked[1].get(_SEQUENCE) if asked else None
        name = next((name for name in _BACK_ENDS if asked and isinstance(asked[1].get(name), str)), None)
        if asked is None or name is None or not isinstance(sequence, int) or isinstance(sequence, bool):
            continue
        benchmark, parameters = asked
        rest = [_told(other, value) for other, value in parameters.items() if other not in (_SEQUENCE, name)]
        groups.setdefault(", ".join([benchmark, *rest]), []).append(Bar(f"{parameters[name]}", sequence, row))
    found = [_Group(title, _by_run(bars)) for title, bars in groups.items()]
    return limited([group for group in found if group.comparable], _drawn, lambda group: group.red)


def _by_run(bars: Sequence[Bar]) -> list[Bar]:
    """The same with the run in the name of the back end, where there are several."""
    several = several_runs(bar.row for bar in bars)
    return [replace(bar, back_end=bar.back_end + of_run(bar.row, several)) for bar in bars]


def _asked(row: Row) -> tuple[str, dict[str, Scalar]] | None:
    """The benchmark and its parameters, of a measurement of arithmetic or of memory that ran out."""
    one, lacking = row.measurement, row.lost
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
    rows = [bar.row for bar in group.bars]
    roofs = roofs_of(rows)
    scale, unit = flop_unit(row.rate or 0.0 for row in rows)
    traces = []
    for index, back_end in enumerate(back_ends):
        bars = [bar for bar in group.bars if bar.back_end == back_end]
        trace = bars_of(bars, index, scale, numbered=len(group.bars) <= _MOST_NUMBERED)
        traces.append({**trace, "x": [sequences.index(bar.sequence) for bar in bars]})
    # The horizontal axis counts sequences, so that lines reach past the outermost bars.
    traces += [roof_level([-0.5, len(sequences) - 0.5], roof, scale) for roof in roofs]
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
        title=printable(f"{group.title} on {devices(rows)}"),
        says=_says(group) + thinned_note(len(listed), len(group.bars), "rows of the table"),
        figure=plain_figure(traces, layout, height=400 + 22 * min(6, len(traces))),
        columns=("back end", "sequence", *COLUMNS[2:]),
        rows=[(printable(bar.back_end), str(bar.sequence), *bar_cells(bar.row)) for bar in listed],
    )


def _says(group: _Group) -> str:
    """Who is fastest at the longest sequence that was measured, by how much, and who ran out of memory."""
    sound = [bar for bar in group.bars if bar.row.rate is not None and bar.row.verdict != INVALID]
    measured = [bar.row for bar in group.bars if bar.row.measurement is not None]
    parts = [*_fastest(sound), verdicts(measured, "measurement", lambda row: row.label)]
    failed = [bar for bar in group.bars if bar.row.verdict == OUT_OF_MEMORY or bar.row.lost is not None]
    by_name: dict[str, int] = {}
    for bar in failed:
        by_name[bar.back_end] = min(bar.sequence, by_name.get(bar.back_end, bar.sequence))
    parts += [f"{name} runs out of memory (OOM) from {sequence} tokens on" for name, sequence in by_name.items()]
    return printable(sentence("; ".join(parts)))


def _fastest(sound: Sequence[Bar]) -> list[str]:
    if not sound:
        return ["no number to be trusted"]
    longest = max(bar.sequence for bar in sound)
    ordered = sorted((bar for bar in sound if bar.sequence == longest), key=lambda bar: -(bar.row.rate or 0.0))
    first = ordered[0]
    share = first.row.roofline_share
    ceiling = first.row.measurement.ceiling if first.row.measurement is not None else None
    whose = f", {format_share(share)} of the {ceiling_words(ceiling)}" if share is not None and ceiling else ""
    parts = [f"at {longest} tokens {first.back_end} is fastest with {format_flops(first.row.rate or 0.0)}{whose}"]
    if len(ordered) > 1 and ordered[1].row.rate:
        factor = (first.row.rate or 0.0) / ordered[1].row.rate
        parts.append(f"{factor:.2f} times {ordered[1].back_end}")
    return [", ".join(parts)]
