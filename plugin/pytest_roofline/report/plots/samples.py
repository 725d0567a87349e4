"""The samples of whatever failed or cannot be trusted, process by process; and what first calls cost."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import median

from ...core.records import Measurement
from ...core.rows import Row, worst_first
from ...core.units import count, format_factor, format_percent, format_seconds, format_tolerance, printable
from ...stats.verdicts import Kind
from .chart import (
    COLOURS,
    GREY,
    MOST_POINTS,
    MOST_SERIES,
    Plot,
    Trace,
    axis,
    dashed,
    drawable,
    lines_of,
    log_axis,
    marks,
    plain_figure,
    safe,
    short,
    thinned,
    thinned_note,
)
from .words import of_run, of_several_runs, sentence

SECTION, INVALID_SECTION, FIRST_CALLS = "Samples of what failed", "Samples of what cannot be trusted", "First calls"
# In a section; and ticks of a figure.
MOST_DRAWN, _MOST_TICKS = 10, 12
# How much of the room between two processes their samples take.
_WIDTH = 0.7
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))

# Seconds of a block's median, and why it does not count; empty where it does.
Block = tuple[float, str]
# The same with its place along the axis of processes, and whose it is.
Dot = tuple[float, str, float, str]


def sample_plots(rows: Sequence[Row]) -> list[Plot]:
    """A plot for each measurement whose test failed, the worst first, at most ten; then so for other INVALID ones."""
    known = [row for row in worst_first(rows) if row.measurements]
    failed = [row for row in known if row.red]
    invalid = [row for row in known if row.verdict == Kind.INVALID and not row.red]
    return _drawn(SECTION, failed, "failed") + _drawn(INVALID_SECTION, invalid, "cannot be trusted")


def _drawn(section: str, rows: Sequence[Row], how: str) -> list[Plot]:
    several = of_several_runs(rows)
    plots = [_plot(section, row, of_run(row, several)) for row in rows[:MOST_DRAWN]]
    if len(rows) > MOST_DRAWN:
        more = f" {len(rows) - MOST_DRAWN} more {how}; `roofline explain` shows the samples of each."
        plots[-1] = replace(plots[-1], says=plots[-1].says + more)
    return plots


def _plot(section: str, row: Row, run: str) -> Plot:
    middle = median(one.median_s for one in row.measurements)
    scale, unit = next((found for found in _UNITS if middle >= found[0]), _UNITS[-1])
    known = [(seconds, "") for seconds in row.baseline_medians_s]
    names = ["baseline"] * bool(known) + [_name(row, one) for one in row.measurements]
    taken = [list(_blocks(one)) for one in row.measurements]
    room = max(2, MOST_POINTS // len(taken)) if sum(map(len, taken)) > MOST_POINTS else MOST_POINTS
    before = _dots(known, 0, "process of the baseline", MOST_POINTS // 4)
    dots = [dot for at, blocks in enumerate(taken, bool(known)) for dot in _dots(blocks, at, names[at], room)]
    traces = _strip("process of the baseline, its median", before, scale, "diamond", COLOURS[2])
    traces += _strip("block of this run", [dot for dot in dots if not dot[1]], scale, "circle", COLOURS[0])
    traces += _strip("block left out", [dot for dot in dots if dot[1]], scale, "circle-open", COLOURS[1])
    span = [-0.5, len(names) - 0.5]
    few = range(0, len(names), -(-len(names) // _MOST_TICKS))
    ticks = {"tickvals": list(few), "ticktext": [safe(short(names[index], 24)) for index in few]}
    across = axis("process, its blocks in the order taken", range=span, showgrid=False, **ticks)
    layout = {"xaxis": across, "yaxis": axis(f"time of a call ({unit})")}
    title = printable(f"{row.label} on {row.device}: {row.verdict}{run}")
    says = _says(row, taken) + thinned_note(len(dots), sum(map(len, taken)), "blocks")
    return Plot(section, title, says, plain_figure(traces + _levels(row, scale, span), layout))


def _blocks(one: Measurement) -> Iterator[Block]:
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


def _dots(blocks: Sequence[Block], at: int, whose: str, most: int) -> list[Dot]:
    """At most so many, side by side around their process."""
    kept = thinned([block for block in blocks if drawable(block[0])], most, lambda block: bool(block[1]))
    places = [at + _WIDTH * ((index + 0.5) / len(kept) - 0.5) for index in range(len(kept))]
    return [(seconds, excluded, place, whose) for (seconds, excluded), place in zip(kept, places, strict=True)]


def _strip(name: str, dots: Sequence[Dot], scale: float, symbol: str, colour: str) -> list[Trace]:
    marker = {"symbol": symbol, "size": 8, "color": colour, "opacity": 1, "line": {"color": GREY, "width": 1}}
    told = [[whose, format_seconds(seconds), f"left out: {why}" * bool(why)] for seconds, why, _, whose in dots]
    trace = {
        "type": "scatter", "mode": "markers", "marker": marker, "name": name, "hoverinfo": "text",
        "x": [place for _, _, place, _ in dots], "y": [seconds / scale for seconds, *_ in dots],
        "hovertext": list(map(lines_of, told)),
    }  # fmt: skip
    return [trace] if dots else []


def _levels(row: Row, scale: float, span: Sequence[float]) -> list[Trace]:
    """Where the baseline lies, and how far from it its tolerance reaches."""
    if row.baseline_time_s is None or row.tolerance is None:
        return []
    limit_s = row.baseline_time_s * (1 + row.tolerance)
    told = f"tolerance {format_tolerance(row.tolerance)}: {format_seconds(limit_s)}"
    levels = ((row.baseline_time_s, f"baseline {format_seconds(row.baseline_time_s)}"), (limit_s, told))
    return [line for seconds, name in levels for line in dashed(span, [seconds / scale] * 2, name)]


def _says(row: Row, taken: Sequence[Sequence[Block]]) -> str:
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


def first_call_plots(rows: Sequence[Row]) -> list[Plot]:
    """First calls as multiples of the steady one, for those who asked for more than the first alone."""
    asked = [row for row in rows if row.measurement is not None and len(row.measurement.samples.first_calls_s) > 1]
    several = of_several_runs(asked)
    found = {row.label + of_run(row, several): (row, _factors(row)) for row in asked if any(_factors(row))}
    shown = sorted(found, key=lambda name: -found[name][1][0])[:MOST_SERIES]
    traces = []
    for index, name in enumerate(shown):
        row, factors = found[name]
        calls = list(enumerate(zip(_first_calls(row), factors, strict=True)))
        # The last of them tells how far the axis reaches.
        calls = [*thinned(calls[:-1], MOST_POINTS // MOST_SERIES - 1), calls[-1]]
        told = [
            [name, f"call {at}: {format_seconds(s)}", f"{format_factor(by)} the steady call"] for at, (s, by) in calls
        ]
        traces.append(marks(name, [at for at, _ in calls], [by for _, (_, by) in calls], told, index))
    if not traces:
        return []
    last = max(trace["x"][-1] for trace in traces)
    layout = {
        "xaxis": axis("call", dtick=max(1, last // 10), range=[-0.4, last + 0.4]),
        "yaxis": log_axis("time, multiples of the steady call", [1.0, *(y for trace in traces for y in trace["y"])]),
    }
    (worst, factors), name = found[shown[0]], shown[0]
    steady_s = worst.measurement.samples.alone_s if worst.measurement is not None else 0.0
    says = f"the first call of {name} took {format_seconds(_first_calls(worst)[0])}, "
    says += f"{format_factor(factors[0])} the steady {format_seconds(steady_s)}"
    notes = thinned_note(len(shown), len(found), "measurements, those that pay most,")
    figure = plain_figure([*traces, *dashed([0, last], [1, 1], "steady", text=["", ""])], layout)
    return [Plot(FIRST_CALLS, "First calls beside the steady state", printable(sentence(says)) + notes, figure)]


def _first_calls(row: Row) -> tuple[float, ...]:
    return row.measurement.samples.first_calls_s if row.measurement is not None else ()


def _factors(row: Row) -> list[float]:
    """Each first call as a multiple of the steady one; zero where there is none to be drawn."""
    steady_s = row.measurement.samples.alone_s if row.measurement is not None else 0.0
    factors = (seconds / steady_s if steady_s else 0.0 for seconds in _first_calls(row))
    return [factor if drawable(factor) else 0.0 for factor in factors]
