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
    dashed_line,
    drawable,
    lines_of,
    plain_figure,
    safe,
    short,
    thin,
    thinning_note,
)
from .words import sentence

# Ticks of a figure.
_MOST_TICKS = 12
# The share of the distance between two processes that the samples of one are spread over.
_WIDTH = 0.7
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))

# The median of a block in seconds, and the reason why it is left out; empty where it counts.
Block = tuple[float, str]
# A block with its place along the axis of processes, and the name of its process.
Dot = tuple[float, str, float, str]


def sample_plot(row: Row) -> Plot:
    """Return the plot of a measurement's blocks beside its baseline.

    Blocks are in the order of time, process by process. A line shows the tolerance.
    """
    middle = median(process.median_s for process in row.measurements)
    scale, unit = next((pair for pair in _UNITS if middle >= pair[0]), _UNITS[-1])
    baseline = [(seconds, "") for seconds in row.baseline_medians_s]
    names = ["baseline"] if baseline else []
    names += [_name(row, process) for process in row.measurements]
    processes = [list(_blocks(process)) for process in row.measurements]
    # Where all blocks are too many for a figure, each process draws the same number.
    most_of_process = (
        max(2, MOST_POINTS // len(processes))
        if sum(map(len, processes)) > MOST_POINTS
        else MOST_POINTS
    )
    baseline_dots = _dots(baseline, 0, "process of the baseline", MOST_POINTS // 4)
    dots = [
        dot
        # The baseline, if there is one, has the place 0.
        for place, blocks in enumerate(processes, 1 if baseline else 0)
        for dot in _dots(blocks, place, names[place], most_of_process)
    ]
    span = [-0.5, len(names) - 0.5]
    # Only some processes have a label where there are many; the step between them is rounded up.
    label_step = -(-len(names) // _MOST_TICKS)
    labelled = range(0, len(names), label_step)
    ticks = {
        "tickvals": list(labelled),
        "ticktext": [safe(short(names[index], 24)) for index in labelled],
    }
    process_axis = axis("", range=span, showgrid=False, **ticks)
    traces = [
        *_strip("process of the baseline, its median", baseline_dots, scale, "diamond", COLOURS[2]),
        *_strip(
            "block of this run", [dot for dot in dots if not dot[1]], scale, "circle", COLOURS[0]
        ),
        *_strip(
            "block left out", [dot for dot in dots if dot[1]], scale, "circle-open", COLOURS[1]
        ),
        *_levels(row, scale, span),
    ]
    figure = plain_figure(
        traces, {"xaxis": process_axis, "yaxis": axis(f"time of a call ({unit})")}, 330
    )
    text = _sentence(row, processes) + thinning_note(len(dots), sum(map(len, processes)), "blocks")
    return Plot("", printable(f"Samples of {row.label} on {row.device}"), text, figure)


def _blocks(measurement: Measurement) -> Iterator[Block]:
    """Yield the median of every block, and why it is left out.

    They are in the order of time. A measurement without blocks yields every sample.
    """
    samples, start = measurement.samples, 0
    if not samples.blocks:
        yield from ((seconds, "") for seconds in samples.seconds)
    for block in samples.blocks:
        yield median(samples.seconds[start : start + block.samples]), block.excluded
        start += block.samples


def _name(row: Row, measurement: Measurement) -> str:
    """Return `round 2`, or `round 2, attempt 1` of several attempts."""
    attempts = [process for process in row.measurements if process.round == measurement.round]
    return (
        f"round {measurement.round}"
        if len(attempts) == 1
        else f"round {measurement.round}, attempt {attempts.index(measurement) + 1}"
    )


def _dots(blocks: Sequence[Block], centre: int, owner: str, at_most: int) -> list[Dot]:
    """Return blocks as dots, spread around `centre`, the place of their process on the axis.

    Blocks that are left out of the median are drawn first where not all have room.
    """
    selected = thin(
        [block for block in blocks if drawable(block[0])], at_most, lambda block: bool(block[1])
    )
    places = [
        centre + _WIDTH * ((index + 0.5) / len(selected) - 0.5) for index in range(len(selected))
    ]
    return [
        (seconds, excluded, place, owner)
        for (seconds, excluded), place in zip(selected, places, strict=True)
    ]


def _strip(name: str, dots: Sequence[Dot], scale: float, symbol: str, colour: str) -> list[Trace]:
    """Return dots as a series of the figure; none where there are no dots."""
    marker = {
        "symbol": symbol,
        "size": 8,
        "color": colour,
        "opacity": 1,
        "line": {"color": GREY, "width": 1},
    }
    texts = [
        [owner, format_seconds(seconds), f"left out: {exclusion}" if exclusion else ""]
        for seconds, exclusion, _, owner in dots
    ]
    trace = {
        "type": "scatter", "mode": "markers", "marker": marker, "name": name, "hoverinfo": "text",
        "x": [place for _, _, place, _ in dots], "y": [seconds / scale for seconds, *_ in dots],
        "hovertext": list(map(lines_of, texts)),
    }  # fmt: skip
    return [trace] if dots else []


def _levels(row: Row, scale: float, span: Sequence[float]) -> list[Trace]:
    """Return the lines of the baseline and its tolerance; none where either is unknown."""
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
        for line in dashed_line(span, [seconds / scale] * 2, name, dash)
    ]


def _sentence(row: Row, processes: Sequence[Sequence[Block]]) -> str:
    """Return how many processes are slower than all of the baseline.

    The number of blocks that are left out follows.
    """
    baseline_s, valid_processes = (
        row.baseline_medians_s,
        [process for process in row.measurements if not process.invalid],
    )
    parts = [f"{count(len(row.measurements), 'process', 'es')} measured"]
    if baseline_s and valid_processes:
        slower_count = sum(process.median_s > max(baseline_s) for process in valid_processes)
        parts = [
            f"{slower_count} of {count(len(valid_processes), 'process', 'es')} slower than all "
            f"{count(len(baseline_s), 'process', 'es')} of the baseline"
        ]
    block_count, excluded_count = (
        sum(map(len, processes)),
        sum(bool(exclusion) for blocks in processes for _, exclusion in blocks),
    )
    parts += (
        [f"{excluded_count} of {count(block_count, 'block')} left out"] if excluded_count else []
    )
    return printable(sentence("; ".join(parts)))
