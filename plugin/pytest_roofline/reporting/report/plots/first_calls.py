"""What the first calls of a function cost, as multiples of its steady time."""

from collections.abc import Sequence

from ....core.records import Measurement
from ....core.rows import Row
from ....core.units import format_factor, format_seconds, printable
from ..plot import Plot
from .axes import axis, drawable, log_axis
from .drawing import (
    GREY,
    MOST_POINTS,
    MOST_ROWS,
    MOST_SERIES,
    Trace,
    lines_of,
    plain_figure,
    safe,
    short,
    style,
    thinned,
    thinned_note,
)
from .words import of_run, sentence, several_runs

SECTION = "First calls"


def first_call_plots(rows: Sequence[Row]) -> list[Plot]:
    """First calls as multiples of the steady one, for those who asked for more than the first alone."""
    several = several_runs(rows)
    found = [
        (row.label + of_run(row, several), row.measurement)
        for row in rows
        if row.measurement is not None and len(row.measurement.samples.first_calls_s) > 1
    ]
    found = [pair for pair in found if any(_factors(pair[1]))]
    if not found:
        return []
    shown = sorted(found, key=lambda pair: -(_factors(pair[1])[0] or 0.0))[:MOST_SERIES]
    traces = [_calls(name, one, index) for index, (name, one) in enumerate(shown)]
    heights = [y for trace in traces for y in trace["y"]]
    last = max(trace["x"][-1] for trace in traces)
    traces.append({"type": "scatter", "x": [0, last], "y": [1, 1], "mode": "lines", "name": "steady",
                   "line": {"color": GREY, "dash": "dash", "width": 2}, "hoverinfo": "skip"})  # fmt: skip
    layout = {
        "xaxis": axis("call", dtick=max(1, last // 10), range=[-0.4, last + 0.4]),
        "yaxis": log_axis("time, multiples of the steady call", [1.0, *heights]),
    }
    name, one = shown[0]
    says = f"the first call of {name} took {format_seconds(one.samples.first_calls_s[0])}, "
    says += f"{_times(_factors(one)[0])} the steady {format_seconds(one.samples.alone_s)}"
    cells = [each for name, one in shown for each in _call_cells(name, one)]
    listed = thinned(cells, MOST_ROWS)
    notes = thinned_note(len(shown), len(found), "measurements, those that pay most,")
    placed = sum(y is not None for trace in traces[:-1] for y in trace["y"])
    notes += thinned_note(placed, len(cells), "calls") + thinned_note(len(listed), len(cells), "rows of the table")
    return [
        Plot(
            section=SECTION,
            title="First calls beside the steady state",
            says=printable(sentence(says)) + notes,
            figure=plain_figure(traces, layout),
            columns=("measurement", "call", "time", "multiple of the steady call"),
            rows=listed,
        )
    ]


def _factors(one: Measurement) -> list[float | None]:
    """How many times the steady call each took; None where a logarithmic axis has no place for it."""
    steady_s = one.samples.alone_s
    factors = [seconds / steady_s if steady_s else 0.0 for seconds in one.samples.first_calls_s]
    return [factor if drawable(factor) else None for factor in factors]


def _times(factor: float | None) -> str:
    return format_factor(factor) if factor is not None else "?"


def _calls(name: str, one: Measurement, index: int) -> Trace:
    colour, symbol, dash = style(index)
    calls = list(enumerate(zip(one.samples.first_calls_s, _factors(one), strict=True)))
    # The last of them tells how far the axis reaches.
    drawn = thinned(calls, MOST_POINTS // MOST_SERIES, lambda call: call is calls[-1])
    return {
        "type": "scatter",
        "x": [call for call, _ in drawn],
        "y": [factor for _, (_, factor) in drawn],
        "mode": "lines+markers",
        "name": safe(short(name)),
        "line": {"color": colour, "dash": dash, "width": 2},
        "marker": {"color": colour, "symbol": symbol, "size": 9, "line": {"color": GREY, "width": 1}},
        "hoverinfo": "text",
        "hovertext": [
            lines_of([name, f"call {call}: {format_seconds(seconds)}", f"{_times(factor)} the steady call"])
            for call, (seconds, factor) in drawn
        ],
    }


def _call_cells(name: str, one: Measurement) -> list[tuple[str, ...]]:
    return [
        (printable(name), str(call), format_seconds(seconds), _times(factor))
        for call, (seconds, factor) in enumerate(zip(one.samples.first_calls_s, _factors(one), strict=True))
    ]
