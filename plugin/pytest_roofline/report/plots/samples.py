"""The samples of a test that failed, process by process, beside its baseline."""

from collections.abc import Iterator, Sequence
from statistics import median

from ...core.records import Measurement
from ...core.rows import Row
from ...core.units import count, format_seconds, format_tolerance, printable
from .chart import (
    COLOURS,
    GREY,
    MOST_POINTS,
    Plot,
    Trace,
    axis,
    dashed,
    drawable,
    lines_of,
    plain_figure,
    safe,
    short,
    thinned,
    thinned_note,
)
from .words import sentence

# Ticks of a figure.
_MOST_TICKS = 12
# How much of the room between two processes their samples take.
_WIDTH = 0.7
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))

# Seconds of a block's median, and why it does not count; empty where it does.
Block = tuple[float, str]
# The same with its place along the axis of processes, and whose it is.
Dot = tuple[float, str, float, str]


def sample_plot(row: Row) -> Plot:
    """Every block of every process of a measurement, in the order taken, beside the baseline and its tolerance."""
    middle = median(process.median_s for process in row.measurements)
    scale, unit = next((pair for pair in _UNITS if middle >= pair[0]), _UNITS[-1])
    baseline = [(seconds, "") for seconds in row.baseline_medians_s]
    names = ["baseline"] * bool(baseline) + [_name(row, process) for process in row.measurements]
    processes = [list(_blocks(process)) for process in row.measurements]
    room = (
        max(2, MOST_POINTS // len(processes))
        if sum(map(len, processes)) > MOST_POINTS
        else MOST_POINTS
    )
    before = _dots(baseline, 0, "process of the baseline", MOST_POINTS // 4)
    dots = [
        dot
        for at, blocks in enumerate(processes, bool(baseline))
        for dot in _dots(blocks, at, names[at], room)
    ]
    span = [-0.5, len(names) - 0.5]
    few = range(0, len(names), -(-len(names) // _MOST_TICKS))
    ticks = {"tickvals": list(few), "ticktext": [safe(short(names[index], 24)) for index in few]}
    across = axis("", range=span, showgrid=False, **ticks)
    traces = [
        *_strip("process of the baseline, its median", before, scale, "diamond", COLOURS[2]),
        *_strip(
            "block of this run", [dot for dot in dots if not dot[1]], scale, "circle", COLOURS[0]
        ),
        *_strip(
            "block left out", [dot for dot in dots if dot[1]], scale, "circle-open", COLOURS[1]
        ),
        *_levels(row, scale, span),
    ]
    figure = plain_figure(traces, {"xaxis": across, "yaxis": axis(f"time of a call ({unit})")}, 330)
    says = _says(row, processes) + thinned_note(len(dots), sum(map(len, processes)), "blocks")
    return Plot("", printable(f"Samples of {row.label} on {row.device}"), says, figure)


def _blocks(measurement: Measurement) -> Iterator[Block]:
    """The median of every block and why it does not count, in the order taken; without blocks every sample."""
    samples, at = measurement.samples, 0
    if not samples.blocks:
        yield from ((seconds, "") for seconds in samples.seconds)
    for block in samples.blocks:
        yield median(samples.seconds[at : at + block.samples]), block.excluded
        at += block.samples


def _name(row: Row, measurement: Measurement) -> str:
    """`round 2`; with the process where a round has several attempts."""
    same = [other for other in row.measurements if other.round == measurement.round]
    return (
        f"round {measurement.round}"
        if len(same) == 1
        else f"round {measurement.round}, attempt {same.index(measurement) + 1}"
    )


def _dots(blocks: Sequence[Block], at: int, whose: str, most: int) -> list[Dot]:
    """At most so many, side by side around their process."""
    kept = thinned(
        [block for block in blocks if drawable(block[0])], most, lambda block: bool(block[1])
    )
    places = [at + _WIDTH * ((index + 0.5) / len(kept) - 0.5) for index in range(len(kept))]
    return [
        (seconds, excluded, place, whose)
        for (seconds, excluded), place in zip(kept, places, strict=True)
    ]


def _strip(name: str, dots: Sequence[Dot], scale: float, symbol: str, colour: str) -> list[Trace]:
    marker = {
        "symbol": symbol,
        "size": 8,
        "color": colour,
        "opacity": 1,
        "line": {"color": GREY, "width": 1},
    }
    texts = [
        [whose, format_seconds(seconds), f"left out: {why}" * bool(why)]
        for seconds, why, _, whose in dots
    ]
    trace = {
        "type": "scatter", "mode": "markers", "marker": marker, "name": name, "hoverinfo": "text",
        "x": [place for _, _, place, _ in dots], "y": [seconds / scale for seconds, *_ in dots],
        "hovertext": list(map(lines_of, texts)),
    }  # fmt: skip
    return [trace] if dots else []


def _levels(row: Row, scale: float, span: Sequence[float]) -> list[Trace]:
    """Where the baseline lies, and how far from it its tolerance reaches."""
    if row.baseline_time_s is None or row.tolerance is None:
        return []
    limit_s = row.baseline_time_s * (1 + row.tolerance)
    levels = (
        (row.baseline_time_s, f"baseline {format_seconds(row.baseline_time_s)}", "dash"),
        (limit_s, f"tolerance {format_tolerance(row.tolerance)}: {format_seconds(limit_s)}", "dot"),
    )
    return [
        line
        for seconds, name, dash in levels
        for line in dashed(span, [seconds / scale] * 2, name, dash)
    ]


def _says(row: Row, processes: Sequence[Sequence[Block]]) -> str:
    """Return how the processes lie to the baseline's, and how many blocks do not count."""
    baseline_s, counted = (
        row.baseline_medians_s,
        [process for process in row.measurements if not process.invalid],
    )
    parts = [f"{count(len(row.measurements), 'process', 'es')} measured"]
    if baseline_s and counted:
        beyond = sum(process.median_s > max(baseline_s) for process in counted)
        parts = [
            f"{beyond} of {count(len(counted), 'process', 'es')} slower than all {len(baseline_s)} of the baseline"
        ]
    total, excluded = (
        sum(map(len, processes)),
        sum(bool(why) for blocks in processes for _, why in blocks),
    )
    parts += [f"{excluded} of {count(total, 'block')} left out"] if excluded else []
    return printable(sentence("; ".join(parts)))
