"""The samples of whatever failed, process by process, beside the processes of the baseline."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ....core.records import Measurement
from ....core.units import format_percent, format_seconds, format_tolerance, printable
from ....judging.report_rows import ReportRow, worst_first
from ...results import count
from ..plot import Plot
from .drawing import (
    COLOURS,
    GREY,
    MOST_POINTS,
    MOST_ROWS,
    Trace,
    axis,
    level,
    lines_of,
    plain_figure,
    safe,
    short,
    thinned,
    thinned_note,
)
from .words import INVALID, device, sentence

SECTION = "Samples of what failed"
COLUMNS = ("process", "median", "blocks", "excluded", "why", "fastest block", "slowest block")
MOST_FAILED = 10
# How much of the room between two processes their samples take.
_WIDTH = 0.7
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True, slots=True)
class _Block:
    seconds: float
    excluded: str


def sample_plots(rows: Sequence[ReportRow]) -> list[Plot]:
    """A plot for each measurement that is red or INVALID, the worst first, at most ten."""
    failed = [row for row in worst_first(rows) if row.processes and (row.red or row.word == INVALID)]
    several = len({row.run.header.run_id for row in failed}) > 1
    plots = [_plot(row, several) for row in failed[:MOST_FAILED]]
    if len(failed) > MOST_FAILED:
        more = f" {len(failed) - MOST_FAILED} more failed or are INVALID; `roofline explain` shows the samples of each."
        plots[-1] = replace(plots[-1], says=plots[-1].says + more)
    return plots


def _plot(row: ReportRow, several: bool) -> Plot:
    scale, unit = _unit([one.median_s for one in row.processes])
    taken = [list(_blocks(one)) for one in row.processes]
    total = sum(map(len, taken))
    room = max(2, MOST_POINTS // len(taken))
    drawn = (
        [thinned(blocks, room, lambda block: bool(block.excluded)) for blocks in taken]
        if total > MOST_POINTS
        else taken
    )
    names = ["baseline"] * bool(row.reference_medians_s) + [_name(row, one) for one in row.processes]
    traces = _reference(row, scale) + _strips(row, drawn, scale, len(names) - len(drawn))
    span = [-0.5, len(names) - 0.5]
    traces += _levels(row, scale, span)
    layout = {
        "xaxis": axis(
            "process, its blocks in the order taken",
            tickvals=_few(range(len(names))),
            ticktext=[safe(short(names[index], 24)) for index in _few(range(len(names)))],
            range=span,
            showgrid=False,
        ),
        "yaxis": axis(f"time of a call ({unit})"),
    }
    run = f", run {row.run.header.run_id}" if several else ""
    listed = list(zip(row.processes, taken, strict=True))[:MOST_ROWS]
    notes = thinned_note(sum(map(len, drawn)), total, "blocks") + thinned_note(len(listed), len(taken), "rows")
    return Plot(
        section=SECTION,
        title=printable(f"{row.label} on {device(row)}: {row.word}{run}"),
        says=_says(row, taken) + notes,
        figure=plain_figure(traces, layout),
        columns=COLUMNS,
        rows=[_cells(row, one, blocks) for one, blocks in listed],
    )


def _unit(seconds: Sequence[float]) -> tuple[float, str]:
    middle = median(seconds)
    return next(((scale, name) for scale, name in _UNITS if middle >= scale), _UNITS[-1])


def _few(indices: Sequence[int], at_most: int = 12) -> list[int]:
    return list(indices)[:: -(-len(indices) // at_most)]


def _blocks(one: Measurement) -> Iterator[_Block]:
    """The median of every block, in the order taken; without blocks every sample by itself."""
    samples = one.samples
    if not samples.blocks:
        yield from (_Block(seconds, "") for seconds in samples.seconds)
    at = 0
    for block in samples.blocks:
        yield _Block(median(samples.seconds[at : at + block.samples]), block.excluded)
        at += block.samples


def _name(row: ReportRow, one: Measurement) -> str:
    """`round 2`; with the process where a round has several attempts."""
    same = [other for other in row.processes if other.round == one.round]
    return f"round {one.round}" if len(same) == 1 else f"round {one.round}, attempt {same.index(one) + 1}"


def _strips(row: ReportRow, drawn: Sequence[Sequence[_Block]], scale: float, first: int) -> list[Trace]:
    """What counts as filled circles, what was left out as hollow ones."""
    traces = []
    for excluded in (False, True):
        points = [
            (first + process + _offset(index, len(blocks)), block, _name(row, row.processes[process]))
            for process, blocks in enumerate(drawn)
            for index, block in enumerate(blocks)
            if bool(block.excluded) is excluded
        ]
        if points:
            traces.append(_strip(points, scale, excluded))
    return traces


def _offset(index: int, count: int) -> float:
    return _WIDTH * ((index + 0.5) / count - 0.5)


def _strip(points: Sequence[tuple[float, _Block, str]], scale: float, excluded: bool) -> Trace:
    symbol = "circle-open" if excluded else "circle"
    why = [f"left out: {block.excluded}" if block.excluded else "" for _, block, _ in points]
    return {
        "type": "scatter",
        "x": [x for x, _, _ in points],
        "y": [block.seconds / scale for _, block, _ in points],
        "mode": "markers",
        "marker": {"symbol": symbol, "size": 7, "color": COLOURS[1 if excluded else 0], "opacity": 1,
                   "line": {"color": COLOURS[1] if excluded else GREY, "width": 1}},
        "name": "block left out" if excluded else "block of this run",
        "hoverinfo": "text",
        "hovertext": [
            lines_of([name, format_seconds(block.seconds), told])
            for (_, block, name), told in zip(points, why, strict=True)
        ],
    }  # fmt: skip


def _reference(row: ReportRow, scale: float) -> list[Trace]:
    medians = thinned(row.reference_medians_s, MOST_POINTS // 4)
    if not medians:
        return []
    return [
        {
            "type": "scatter",
            "x": [_offset(index, len(medians)) for index in range(len(medians))],
            "y": [value / scale for value in medians],
            "mode": "markers",
            "marker": {"symbol": "diamond", "size": 9, "color": COLOURS[2], "line": {"color": GREY, "width": 1}},
            "name": "process of the baseline, its median",
            "hoverinfo": "text",
            "hovertext": [lines_of(["process of the baseline", format_seconds(value)]) for value in medians],
        }
    ]


def _levels(row: ReportRow, scale: float, span: Sequence[float]) -> list[Trace]:
    if row.reference_s is None or row.judgement is None:
        return []
    limit_s = row.reference_s * (1 + row.judgement.tolerance)
    tolerance = format_tolerance(row.judgement.tolerance)
    return [
        level(span, row.reference_s / scale, f"baseline {format_seconds(row.reference_s)}", "dot"),
        level(span, limit_s / scale, f"tolerance {tolerance}: {format_seconds(limit_s)}", "dash"),
    ]


def _says(row: ReportRow, taken: Sequence[Sequence[_Block]]) -> str:
    """What the verdict says, how the processes lie to the baseline's, and how many blocks do not count."""
    parts = []
    if row.change is not None:
        held = "the baseline" if row.reference_s is not None else "the limit"
        parts.append(f"{format_percent(row.change)} time against {held}")
    known = row.reference_medians_s
    if known:
        beyond = sum(one.median_s > max(known) for one in row.processes)
        parts.append(f"{beyond} of {len(row.processes)} processes slower than all {len(known)} of the baseline")
    total, excluded = sum(map(len, taken)), sum(bool(block.excluded) for blocks in taken for block in blocks)
    parts += [f"{excluded} of {total} blocks left out"] if excluded else []
    text = "; ".join(parts) or f"{count(len(row.processes), 'process', 'es')} measured and nothing to compare with"
    return printable(sentence(text) + (f" {sentence(row.reason)}" if row.reason else ""))


def _cells(row: ReportRow, one: Measurement, blocks: Sequence[_Block]) -> tuple[str, ...]:
    excluded = [block.excluded for block in blocks if block.excluded]
    seconds = [block.seconds for block in blocks if not block.excluded] or [block.seconds for block in blocks]
    texts = (
        _name(row, one),
        format_seconds(one.median_s),
        str(len(blocks)),
        str(len(excluded)),
        one.invalid or ", ".join(dict.fromkeys(excluded)),
        format_seconds(min(seconds)),
        format_seconds(max(seconds)),
    )
    return tuple(printable(text) for text in texts)
