"""Two values of a parameter side by side, as eager and compiled.

The plots show by how much one is faster at the same work.
"""

from collections.abc import Iterator, Sequence
from itertools import chain
from statistics import median

from ...core.groups import group_by
from ...core.keys import Scalar, label_of
from ...core.rows import Row
from ...core.units import format_seconds, printable
from ...core.verdicts import Kind
from .bars import MOST_BARS, of_attention
from .chart import (
    GREY,
    Plot,
    Trace,
    drawable,
    limit_plots,
    log_axis,
    marks,
    marks_explained,
    names_axis,
    plain_figure,
    thin,
    thinning_note,
)
from .words import devices, hover, of_run, of_several_runs, sentence, value_words

SECTION = "Two variants side by side"
# The two rows of each pair, by the text of the parameters that they have in common.
Pairs = dict[str, tuple[Row, Row]]


def pair_plots(rows: Sequence[Row]) -> list[Plot]:
    """Return a plot for each parameter with two values, such as `compiled` and `eager`.

    Rows with these values must do the same work.
    """
    timed = [row for row in rows if row.key is not None and drawable(row.time_s)]
    has_several_runs = of_several_runs(timed)
    groups = group_by(
        timed, lambda row: (row.benchmark, row.name, row.counting, of_run(row, has_several_runs))
    )
    plots = [(name, pairs) for members in groups.values() for name, pairs in _pairs(members)]
    return limit_plots(
        plots,
        lambda plot: _plot(*plot, has_several_runs),
        lambda plot: chain(*plot[1].values()),
    )


def _pairs(rows: Sequence[Row]) -> Iterator[tuple[str, Pairs]]:
    """Yield each parameter with two values, and its pairs of rows.

    The rows of a pair differ in that parameter only. Back ends of attention have a plot of their
    own, and are left out.
    """
    for name in dict.fromkeys(name for row in rows for name in row.parameters):
        # Rows of failed tests come first, so the values are sorted to have one order in every run.
        values = sorted(
            dict.fromkeys(row.parameters[name] for row in rows if name in row.parameters), key=str
        )
        if len(values) != 2 or any(of_attention(row) == name for row in rows):
            continue
        sides: dict[str, dict[Scalar, Row]] = {}
        for row in rows:
            common = ", ".join(
                value_words(key, value) for key, value in row.parameters.items() if key != name
            )
            sides.setdefault(common, {})[row.parameters.get(name, "")] = row
        pairs = {
            common: (by_value[values[0]], by_value[values[1]])
            for common, by_value in sides.items()
            if set(values) <= set(by_value)
        }
        # Pairs are ordered by time, so that small sizes come first.
        pairs = dict(sorted(pairs.items(), key=lambda pair: pair[1][0].time_s or 0.0))
        # Values that do different amounts of work are no variants: more work takes longer anyway.
        if pairs and all(_amounts(first) == _amounts(second) for first, second in pairs.values()):
            yield name, pairs


def _amounts(row: Row) -> tuple[float | None, float | None]:
    """Return the work of a call in its own metric, and its FLOPs.

    A rate is an amount divided by the time, so for a time of one second it is the amount.
    """
    return row.rate_of(1.0), row.rate_of(1.0, "TFLOPS")


def _plot(name: str, pairs: Pairs, has_several_runs: bool) -> Plot:
    """Return the plot of the times of both values of a parameter.

    There is a line for each pair of rows; `name` is that of the parameter.
    """
    selected = dict(
        thin(list(pairs.items()), MOST_BARS, lambda pair: any(row.red for row in pair[1]))
    )
    # Pairs with a failed test are kept first where there are too many. All pairs have the same two values.
    first_pair = next(iter(pairs.values()))
    first, _ = first_pair
    first_value, second_value = (value_words(name, row.parameters[name]) for row in first_pair)
    slowest_s = max(row.time_s or 0.0 for pair in selected.values() for row in pair)
    scale, unit = next(
        (pair for pair in ((1.0, "s"), (1e-3, "ms")) if slowest_s >= pair[0]), (1e-6, "µs")
    )
    traces: list[Trace] = [_bars(selected, scale)]
    for index, side in enumerate((first_value, second_value)):
        rows = [pair[index] for pair in selected.values()]
        times = [(row.time_s or 0.0) / scale for row in rows]
        texts = [hover(row, row.label) for row in rows]
        traces.append(
            marks(side, times, range(1, len(rows) + 1), texts, index, rows=rows, lines=False)
        )
    traces += marks_explained(row for pair in selected.values() for row in pair)
    # The first trace has the joining lines, with None between them, so the axis is made for the points.
    layout = {
        "xaxis": log_axis(
            f"time of a call ({unit})", [x for trace in traces[1:] for x in trace["x"]]
        ),
        "yaxis": names_axis(name or first.benchmark for name in selected),
    }
    title = f"{label_of(first.benchmark, {}, first.name)}: {first_value} and {second_value} on {devices([first])}"
    text = _sentence(first_value, second_value, list(pairs.values())) + thinning_note(
        len(selected), len(pairs), "pairs"
    )
    figure = plain_figure(traces, layout, 150 + 46 * len(selected))
    return Plot(SECTION, printable(title + of_run(first, has_several_runs)), text, figure)


def _bars(pairs: Pairs, scale: float) -> Trace:
    """Return the lines that join the two points of each pair.

    A None after each pair interrupts the line.
    """
    xs = [
        x for pair in pairs.values() for x in (*((row.time_s or 0.0) / scale for row in pair), None)
    ]
    ys = [y for place in range(1, len(pairs) + 1) for y in (place, place, None)]
    return {"type": "scatter", "mode": "lines", "x": xs, "y": ys, "line": {"color": GREY, "width": 3},
            "name": "", "hoverinfo": "skip", "showlegend": False}  # fmt: skip


def _sentence(first: str, second: str, pairs: Sequence[tuple[Row, Row]]) -> str:
    """Return the sentence on how many times as fast a value is.

    The value that is faster in the median of the pairs comes first.

    It reads `Compiled is 1.56 times as fast as eager (90.0 ms against 140 ms).`
    """
    valid_pairs = [pair for pair in pairs if all(row.verdict != Kind.INVALID for row in pair)]
    if not valid_pairs:
        return "No pair of valid numbers."
    # Only rows with a time are in pairs, so `or` only satisfies the types.
    ratios = [(before.time_s or 1.0) / (after.time_s or 1.0) for before, after in valid_pairs]
    # The ratios tell how many times as fast the second value is. If it is slower, both change places.
    names = (second, first)
    if median(ratios) < 1:
        ratios, names, valid_pairs = (
            [1 / ratio for ratio in ratios],
            (first, second),
            [(pair[1], pair[0]) for pair in valid_pairs],
        )
    text = f"{names[0]} is {median(ratios):.2f} times as fast as {names[1]}"
    if len(valid_pairs) == 1:
        ((slow, fast),) = valid_pairs
        text += (
            f" ({format_seconds(fast.time_s or 0.0)} against {format_seconds(slow.time_s or 0.0)})"
        )
    else:
        text += f" (median of {len(valid_pairs)} pairs; {min(ratios):.2f} to {max(ratios):.2f})"
    return printable(f"{sentence(text)} `roofline compare --by` shows whether this may be chance.")
