"""What the first calls of a function cost, as multiples of its steady time."""

from collections.abc import Sequence

from ....core.records import Measurement
from ....core.units import format_factor, format_seconds, printable
from ....judging.report_rows import ReportRow
from ..plot import Plot
from .drawing import (
    GREY,
    MOST_ROWS,
    MOST_SERIES,
    Trace,
    axis,
    lines_of,
    log_axis,
    plain_figure,
    safe,
    short,
    style,
    thinned,
    thinned_note,
)
from .words import sentence

SECTION = "First calls"


def first_call_plots(rows: Sequence[ReportRow]) -> list[Plot]:
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
            section=SECTION,
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
