"""The samples of whatever failed or cannot be trusted, process by process, beside the processes of the baseline."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from statistics import median

from ...core.records import Measurement
from ...core.rows import Row, worst_first
from ...core.units import count, format_percent, format_seconds, format_tolerance, printable
from ...stats.verdicts import Kind
from .chart import (
    COLOURS,
    GREY,
    MOST_POINTS,
    MOST_ROWS,
    Plot,
    Trace,
    axis,
    dashed,
    drawable,
    lines_of,
    median_of,
    plain_figure,
    safe,
    short,
    thinned,
    thinned_note,
)
from .words import of_run, sentence

SECTION, INVALID_SECTION = "Samples of what failed", "Samples of what cannot be trusted"
COLUMNS = ("process", "median", "blocks", "excluded", "why", "fastest block", "slowest block")
# In a section; and ticks of a figure.
MOST_DRAWN, _MOST_TICKS = 10, 12
# How much of the room between two processes their samples take.
_WIDTH = 0.7
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True, slots=True)
class Dot:
    """A block's median, or that of a process behind the baseline.

    Args:
        seconds: of a call.
        place: along the axis of processes.
        whose: the process.
        excluded: why it does not count; empty where it does.
    """

    seconds: float
    place: float
    whose: str
    excluded: str = ""


def sample_plots(rows: Sequence[Row]) -> list[Plot]:
    """A plot for each measurement whose test failed, the worst first, at most ten; then so for other INVALID ones."""
    known = [row for row in worst_first(rows) if row.measurements]
    failed = [row for row in known if row.red]
    invalid = [row for row in known if row.verdict == Kind.INVALID and not row.red]
    return _drawn(SECTION, failed, "failed") + _drawn(INVALID_SECTION, invalid, "cannot be trusted")


def _drawn(section: str, rows: Sequence[Row], how: str) -> list[Plot]:
    plots = [_plot(section, row, of_run(row, rows)) for row in rows[:MOST_DRAWN]]
    if len(rows) > MOST_DRAWN:
        more = f" {len(rows) - MOST_DRAWN} more {how}; `roofline explain` shows the samples of each."
        plots[-1] = replace(plots[-1], says=plots[-1].says + more)
    return plots


def _plot(section: str, row: Row, run: str) -> Plot:
    middle = median_of(one.median_s for one in row.measurements)
    scale, unit = next((found for found in _UNITS if middle >= found[0]), _UNITS[-1])
    known = [(seconds, "") for seconds in row.baseline_medians_s]
    names = ["baseline"] * bool(known) + [_name(row, one) for one in row.measurements]
    taken = [list(_blocks(one)) for one in row.measurements]
    room = max(2, MOST_POINTS // len(taken)) if sum(map(len, taken)) > MOST_POINTS else MOST_POINTS
    before = _dots(known, 0, "process of the baseline", scale, MOST_POINTS // 4)
    dots = [dot for at, blocks in enumerate(taken, bool(known)) for dot in _dots(blocks, at, names[at], scale, room)]
    traces = _strip("process of the baseline, its median", before, scale, "diamond", COLOURS[2])
    traces += _strip("block of this run", [dot for dot in dots if not dot.excluded], scale, "circle", COLOURS[0])
    traces += _strip("block left out", [dot for dot in dots if dot.excluded], scale, "circle-open", COLOURS[1])
    span = [-0.5, len(names) - 0.5]
    listed = list(zip(row.measurements, taken, strict=True))[:MOST_ROWS]
    notes = thinned_note(len(dots), sum(map(len, taken)), "blocks") + thinned_note(len(listed), len(taken), "rows")
    return Plot(
        section=section,
        title=printable(f"{row.label} on {row.device}: {row.verdict}{run}"),
        says=_says(row, taken) + notes,
        figure=plain_figure(traces + _levels(row, scale, span), _layout(names, span, unit)),
        columns=COLUMNS,
        rows=[_cells(row, one, blocks) for one, blocks in listed],
    )


def _layout(names: Sequence[str], span: Sequence[float], unit: str) -> dict[str, object]:
    few = range(0, len(names), -(-len(names) // _MOST_TICKS))
    ticks = {"tickvals": list(few), "ticktext": [safe(short(names[index], 24)) for index in few]}
    across = axis("process, its blocks in the order taken", range=list(span), showgrid=False, **ticks)
    return {"xaxis": across, "yaxis": axis(f"time of a call ({unit})")}


def _blocks(one: Measurement) -> Iterator[tuple[float, str]]:
    """The median of every block and why it does not count, in the order taken; without blocks every sample."""
    samples, at = one.samples, 0
    if not samples.blocks:
        yield from ((seconds, "") for seconds in samples.seconds)
    for block in samples.blocks:
        yield median(samples.seconds[at : at + block.samples]), block.excluded
        at += block.samples


def _name(row: Row, one: Measurement) -> str:
    """`round 2`; with the process where a round has several attempts."""
    same = [other for other in row.measurements if other.round == one.round]
    return f"round {one.round}" if len(same) == 1 else f"round {one.round}, attempt {same.index(one) + 1}"


def _dots(values: Sequence[tuple[float, str]], at: int, whose: str, scale: float, most: int) -> list[Dot]:
    """Those that have a place on the axis, at most so many, side by side around their process."""
    kept = thinned([value for value in values if drawable(value[0] / scale)], most, lambda value: bool(value[1]))
    return [
        Dot(seconds, at + _WIDTH * ((index + 0.5) / len(kept) - 0.5), whose, excluded)
        for index, (seconds, excluded) in enumerate(kept)
    ]


def _strip(name: str, dots: Sequence[Dot], scale: float, symbol: str, colour: str) -> list[Trace]:
    marker = {"symbol": symbol, "size": 8, "color": colour, "opacity": 1, "line": {"color": GREY, "width": 1}}
    told = [[dot.whose, format_seconds(dot.seconds), f"left out: {dot.excluded}" * bool(dot.excluded)] for dot in dots]
    trace = {
        "type": "scatter", "mode": "markers", "marker": marker, "name": name, "hoverinfo": "text",
        "x": [dot.place for dot in dots], "y": [dot.seconds / scale for dot in dots],
        "hovertext": list(map(lines_of, told)),
    }  # fmt: skip
    return [trace] if dots else []


def _levels(row: Row, scale: float, span: Sequence[float]) -> list[Trace]:
    """Where the baseline lies, and how far from it its tolerance reaches."""
    if row.baseline_time_s is None or row.tolerance is None:
        return []
    limit_s = row.baseline_time_s * (1 + row.tolerance)
    told = f"tolerance {format_tolerance(row.tolerance)}: {format_seconds(limit_s)}"
    centre = f"baseline {format_seconds(row.baseline_time_s)}"
    levels = ((row.baseline_time_s, centre, "dot"), (limit_s, told, "dash"))
    return [line for seconds, name, dash in levels for line in dashed(span, [seconds / scale] * 2, name, dash=dash)]


def _says(row: Row, taken: Sequence[Sequence[tuple[float, str]]]) -> str:
    """What the verdict says, how the processes lie to the baseline's, and how many blocks do not count."""
    parts = []
    if row.change is not None:
        held = "the baseline" if row.baseline_time_s is not None else "the limit"
        parts.append(f"{format_percent(row.change)} time against {held}")
    known, counted = row.baseline_medians_s, [one for one in row.measurements if not one.invalid]
    if known and counted:
        beyond = sum(one.median_s > max(known) for one in counted)
        parts.append(f"{beyond} of {count(len(counted), 'process', 'es')} slower than all {len(known)} of the baseline")
    total, excluded = sum(map(len, taken)), sum(bool(why) for blocks in taken for _, why in blocks)
    parts += [f"{excluded} of {count(total, 'block')} left out"] if excluded else []
    text = "; ".join(parts) or f"{count(len(row.measurements), 'process', 'es')} measured"
    return printable(sentence(text) + (f" {sentence(row.reason)}" if row.reason else ""))


def _cells(row: Row, one: Measurement, blocks: Sequence[tuple[float, str]]) -> tuple[str, ...]:
    excluded = [why for _, why in blocks if why]
    times = [seconds for seconds, why in blocks if not why] or [seconds for seconds, _ in blocks]
    why = one.invalid or ", ".join(dict.fromkeys(excluded))
    bounds = (format_seconds(min(times)), format_seconds(max(times)))
    texts = (_name(row, one), format_seconds(one.median_s), str(len(blocks)), str(len(excluded)), why, *bounds)
    return tuple(map(printable, texts))
