"""Of models and other large calls: where the time goes, what first calls cost, and what the memory goes into."""

from collections.abc import Iterable, Mapping, Sequence

from ....core.memory_use import CATEGORIES, MemoryUse
from ....core.profiles import CLASSES, Profile
from ....core.records import Measurement
from ....core.units import GIB, MIB, format_factor, format_memory, format_seconds, format_share, printable
from ....judging.report_rows import ReportRow
from ....judging.runs import Run
from ..plot import Plot
from .drawing import (
    GREY,
    MOST_ROWS,
    MOST_SERIES,
    Trace,
    axis,
    bar_marker,
    lines_of,
    log_axis,
    plain_figure,
    safe,
    short,
    style,
    thinned,
    thinned_note,
    wrapped,
)
from .words import sentence

TIME, FIRST, MEMORY = "Where the time goes", "First calls", "Where the memory goes"
# Bars below each other that a person still reads.
MOST_BARS = 20


def model_plots(rows: Sequence[ReportRow]) -> list[Plot]:
    """Shares of kernels by class, first calls beside the steady state, memory by category; each where a run has it."""
    runs = list({id(row.run): row.run for row in rows}.values())
    return [*_time_plots(runs), *_first_plots(rows), *_memory_plots(runs)]


def _named(runs: Sequence[Run], label: str, run: Run) -> str:
    return f"{label}, run {run.header.run_id}" if len(runs) > 1 else label


def _time_plots(runs: Sequence[Run]) -> list[Plot]:
    """Of a measurement that was repeated the last profile stands."""
    latest = {(id(run), one.test_id, one.name): (_named(runs, one.label, run), one)
              for run in runs for one in run.profiles if one.classes}  # fmt: skip
    found = list(latest.values())
    if not found:
        return []
    shown = thinned(found, MOST_BARS)
    bars: dict[str, dict[str, float]] = {
        name: {one.name: 100 * one.share for one in profile.classes} for name, profile in shown
    }
    texts = {name: _time_texts(profile) for name, profile in shown}
    largest = max(found[0][1].classes, key=lambda one: one.share)
    first = f"Most of the time of {found[0][0]} goes into {largest.name} ({format_share(largest.share)})."
    note = thinned_note(len(shown), len(found), "profiles")
    return [
        Plot(
            section=TIME,
            title="Shares of a call by class of kernel, under a profiler",
            says=printable(first) + " Profiled times are never judged." + note,
            figure=_stacked(bars, texts, CLASSES, "share of the span (%)"),
            columns=("measurement", "class", "share", "time", "count"),
            rows=thinned([cells for name, profile in found for cells in _time_cells(name, profile)], MOST_ROWS),
        )
    ]


def _time_texts(profile: Profile) -> dict[str, list[str]]:
    return {
        one.name: [f"{one.name}: {format_share(one.share)}", f"{format_seconds(one.total_s / profile.calls)} a call",
                   f"{one.count} launches in {profile.calls} calls", *one.largest[:3]]
        for one in profile.classes
    }  # fmt: skip


def _time_cells(name: str, profile: Profile) -> list[tuple[str, ...]]:
    return [
        (
            printable(name),
            one.name,
            format_share(one.share),
            format_seconds(one.total_s / profile.calls),
            str(one.count),
        )
        for one in profile.classes
    ]


def _memory_plots(runs: Sequence[Run]) -> list[Plot]:
    """Of a call that was followed again the last time stands."""
    latest = {(id(run), use.test_id, use.name): (_named(runs, use.label, run), use)
              for run in runs for use in run.memory_uses if use.peak_bytes}  # fmt: skip
    found = list(latest.values())
    if not found:
        return []
    shown = thinned(found, MOST_BARS)
    scale, unit = (GIB, "GiB") if max(use.peak_bytes for _, use in shown) >= GIB else (MIB, "MiB")
    bars = {name: {kind: size / scale for kind, size in use.categories.items()} for name, use in shown}
    texts = {
        name: {kind: [f"{kind}: {format_memory(size)}", _of_peak(size, use)] for kind, size in use.categories.items()}
        for name, use in shown
    }
    name, use = max(found, key=lambda pair: pair[1].peak_bytes)
    kind, size = max(use.categories.items(), key=lambda pair: pair[1])
    says = f"The highest peak is that of {name}, {format_memory(use.peak_bytes)}; most of it is {kind}"
    cells = [
        (printable(name), kind, format_memory(size), _of_peak(size, use))
        for name, use in found
        for kind, size in use.categories.items()
    ]
    return [
        Plot(
            section=MEMORY,
            title="Memory at the peak by category",
            says=printable(f"{says} ({format_share(size / use.peak_bytes)}).")
            + thinned_note(len(shown), len(found), "calls"),
            figure=_stacked(bars, texts, CATEGORIES, f"peak memory ({unit})"),
            columns=("measurement", "category", "size", "share"),
            rows=thinned(cells, MOST_ROWS),
        )
    ]


def _of_peak(size: int, use: MemoryUse) -> str:
    return f"{format_share(size / use.peak_bytes)} of the peak"


def _stacked(
    bars: Mapping[str, Mapping[str, float]],
    texts: Mapping[str, Mapping[str, Sequence[str]]],
    kinds: Iterable[str],
    title: str,
) -> dict[str, object]:
    """Bars below each other, each of parts in one order, which differ in colour and in pattern."""
    names = list(bars)
    present = [kind for kind in kinds if any(bars[name].get(kind) for name in names)]
    traces = [_part(kind, index, bars, texts) for index, kind in enumerate(present)]
    layout = {
        "barmode": "stack",
        "xaxis": axis(title, rangemode="tozero"),
        "yaxis": axis(
            "",
            tickvals=list(range(len(names))),
            ticktext=[wrapped(name) for name in names],
            autorange="reversed",
            showgrid=False,
        ),
    }
    return plain_figure(traces, layout, height=190 + 34 * len(names) + 12 * len(present))


def _part(
    kind: str, index: int, bars: Mapping[str, Mapping[str, float]], texts: Mapping[str, Mapping[str, Sequence[str]]]
) -> Trace:
    names = list(bars)
    return {
        "type": "bar",
        "orientation": "h",
        "x": [bars[name].get(kind, 0.0) for name in names],
        "y": list(range(len(names))),
        "name": kind,
        "marker": bar_marker(index),
        "hoverinfo": "text",
        "hovertext": [lines_of([name, *texts[name].get(kind, ())]) for name in names],
    }


def _first_plots(rows: Sequence[ReportRow]) -> list[Plot]:
    """First calls as multiples of the steady one, for those who asked for more than the first alone."""
    several = len({row.run.header.run_id for row in rows}) > 1
    found = [
        (f"{row.label}, run {row.run.header.run_id}" if several else row.label, row.measurement)
        for row in rows
        if row.measurement is not None and len(row.measurement.samples.first_calls_s) > 1
    ]
    if not found:
        return []
    shown = sorted(found, key=lambda pair: -_factors(pair[1])[0])[:MOST_SERIES]
    traces = [_calls(name, one, index) for index, (name, one) in enumerate(shown)]
    heights = [y for trace in traces for y in trace["y"] if y is not None]
    calls = max(len(trace["x"]) for trace in traces)
    traces.append({"type": "scatter", "x": [0, calls - 1], "y": [1, 1], "mode": "lines", "name": "steady",
                   "line": {"color": GREY, "dash": "dash", "width": 2}, "hoverinfo": "skip"})  # fmt: skip
    layout = {
        "xaxis": axis("call", dtick=max(1, calls // 10), range=[-0.4, calls - 0.6]),
        "yaxis": log_axis("time, multiples of the steady call", [1.0, *heights]),
    }
    name, one = shown[0]
    says = f"the first call of {name} took {format_seconds(one.samples.first_calls_s[0])}, "
    says += f"{format_factor(_factors(one)[0])} the steady {format_seconds(one.samples.alone_s)}"
    return [
        Plot(
            section=FIRST,
            title="First calls beside the steady state",
            says=printable(sentence(says)) + thinned_note(len(shown), len(found), "measurements, those that pay most,"),
            figure=plain_figure(traces, layout),
            columns=("measurement", "call", "time", "multiple of the steady call"),
            rows=thinned([cells for name, one in found for cells in _call_cells(name, one)], MOST_ROWS),
        )
    ]


def _factors(one: Measurement) -> list[float]:
    return [seconds / one.samples.alone_s for seconds in one.samples.first_calls_s]


def _calls(name: str, one: Measurement, index: int) -> Trace:
    colour, symbol, dash = style(index)
    return {
        "type": "scatter",
        "x": list(range(len(one.samples.first_calls_s))),
        # A logarithmic axis has no place for what the clock took for nothing.
        "y": [factor or None for factor in _factors(one)],
        "mode": "lines+markers",
        "name": safe(short(name)),
        "line": {"color": colour, "dash": dash, "width": 2},
        "marker": {"color": colour, "symbol": symbol, "size": 9, "line": {"color": GREY, "width": 1}},
        "hoverinfo": "text",
        "hovertext": [
            lines_of([name, f"call {call}: {format_seconds(seconds)}", f"{format_factor(factor)} the steady call"])
            for call, (seconds, factor) in enumerate(zip(one.samples.first_calls_s, _factors(one), strict=True))
        ],
    }


def _call_cells(name: str, one: Measurement) -> list[tuple[str, ...]]:
    return [
        (printable(name), str(call), format_seconds(seconds), format_factor(factor))
        for call, (seconds, factor) in enumerate(zip(one.samples.first_calls_s, _factors(one), strict=True))
    ]
