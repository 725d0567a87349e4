"""What the first calls of a function cost, as multiples of its steady time."""

from collections.abc import Sequence

from ...core.records import Measurement
from ...core.rows import Row
from ...core.units import format_factor, format_seconds, printable
from .chart import (
    MOST_POINTS,
    MOST_ROWS,
    MOST_SERIES,
    Plot,
    axis,
    dashed,
    drawable,
    log_axis,
    marks,
    plain_figure,
    thinned,
    thinned_note,
)
from .words import of_run, sentence

SECTION = "First calls"
# Seconds of a call, and how many times the steady call that is; None where a logarithmic axis has no place for it.
Call = tuple[float, float | None]


def first_call_plots(rows: Sequence[Row]) -> list[Plot]:
    """First calls as multiples of the steady one, for those who asked for more than the first alone."""
    found = {
        row.label + of_run(row, rows): (calls, row.measurement.samples.alone_s)
        for row in rows
        if row.measurement is not None and len(calls := _calls(row.measurement)) > 1 and any(call[1] for call in calls)
    }
    if not found:
        return []
    shown = sorted(found, key=lambda name: -(found[name][0][0][1] or 0.0))[:MOST_SERIES]
    traces = []
    for index, name in enumerate(shown):
        drawn = _thinned(found[name][0])
        told = [[name, f"call {at}: {format_seconds(s)}", f"{_times(by)} the steady call"] for at, (s, by) in drawn]
        traces.append(marks(name, [at for at, _ in drawn], [by for _, (_, by) in drawn], told, index))
    last = max(trace["x"][-1] for trace in traces)
    placed = [y for trace in traces for y in trace["y"]]
    layout = {
        "xaxis": axis("call", dtick=max(1, last // 10), range=[-0.4, last + 0.4]),
        "yaxis": log_axis("time, multiples of the steady call", [1.0, *placed]),
    }
    cells = [
        (printable(name), str(at), format_seconds(seconds), _times(factor))
        for name in shown
        for at, (seconds, factor) in enumerate(found[name][0])
    ]
    listed = thinned(cells, MOST_ROWS)
    notes = thinned_note(len(shown), len(found), "measurements, those that pay most,")
    notes += thinned_note(sum(y is not None for y in placed), len(cells), "calls")
    notes += thinned_note(len(listed), len(cells), "rows of the table")
    (first_s, times), steady_s = found[shown[0]][0][0], found[shown[0]][1]
    says = f"the first call of {shown[0]} took {format_seconds(first_s)}, {_times(times)} the steady "
    return [
        Plot(
            section=SECTION,
            title="First calls beside the steady state",
            says=printable(sentence(says + format_seconds(steady_s))) + notes,
            figure=plain_figure([*traces, *dashed([0, last], [1, 1], "steady", text=" ")], layout),
            columns=("measurement", "call", "time", "multiple of the steady call"),
            rows=listed,
        )
    ]


def _calls(one: Measurement) -> list[Call]:
    steady_s = one.samples.alone_s
    factors = [(seconds, seconds / steady_s if steady_s else 0.0) for seconds in one.samples.first_calls_s]
    return [(seconds, factor if drawable(factor) else None) for seconds, factor in factors]


def _thinned(calls: Sequence[Call]) -> list[tuple[int, Call]]:
    """Calls with their numbers; the last of them tells how far the axis reaches."""
    last = len(calls) - 1
    return thinned(list(enumerate(calls)), MOST_POINTS // MOST_SERIES, lambda call: call[0] == last)


def _times(factor: float | None) -> str:
    return format_factor(factor) if factor is not None else "?"
