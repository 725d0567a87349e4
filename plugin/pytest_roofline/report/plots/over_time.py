"""Memory over the time of a call.

The plots show what is alive by category, and what torch's allocator handed out and reserved.
"""

from collections.abc import Sequence

from ...baselines.runs import Run
from ...core.memory import CATEGORIES, MemoryPoint, MemoryUse
from ...core.units import format_memory, format_seconds, printable
from .bars import MEMORY, latest, memory_unit
from .chart import (
    COLOURS,
    GREY,
    Plot,
    Trace,
    axis,
    limit_plots,
    lines_of,
    plain_figure,
    with_legend,
)

# A category has the same colour in all plots. There are more categories than colours; the last ones are grey.
_COLOUR_OF = dict(zip(CATEGORIES, COLOURS, strict=False))
_DASHES = {"allocated": "dot", "reserved": "solid"}


def over_time_plots(runs: Sequence[Run]) -> list[Plot]:
    """Return a plot for each call whose memory was recorded over time.

    If it was recorded several times, the plot shows the last record.
    """
    pairs = [pair for pair in latest(runs, lambda run: run.memory_uses) if pair[1].over_time]
    return limit_plots(pairs, lambda pair: _plot(*pair), lambda _: ())


def _plot(label: str, use: MemoryUse) -> Plot:
    """Return the plot of the memory over one call: categories stacked, and lines of torch's allocator."""
    size, unit = memory_unit(
        [point.total_bytes for point in use.over_time]
        + [point.reserved_bytes for point in use.allocator]
    )
    last_s = max([point.at_s for point in use.over_time] + [point.at_s for point in use.allocator])
    scale, clock = (1.0, "s") if last_s >= 1 else (1e-3, "ms")
    kinds = [
        kind for kind in CATEGORIES if any(kind in point.categories for point in use.over_time)
    ]
    times = [point.at_s / scale for point in use.over_time]
    traces: list[Trace] = [
        {
            "type": "scatter", "mode": "lines", "stackgroup": "alive", "x": times, "name": kind,
            "y": [point.categories.get(kind, 0) / size for point in use.over_time],
            "line": {"width": 1, "shape": "hv", "color": _COLOUR_OF.get(kind, GREY)},
            "hoverinfo": "text",
            "hovertext": [lines_of(_hover_lines(point, kind)) for point in use.over_time],
        }
        for kind in kinds
    ]  # fmt: skip
    if use.allocator:
        times = [point.at_s / scale for point in use.allocator]
        traces += [
            {
                "type": "scatter", "mode": "lines", "x": times,
                "y": [getattr(point, f"{name}_bytes") / size for point in use.allocator],
                "name": f"{name} by the allocator",
                "line": {"width": 2, "shape": "hv", "color": GREY, "dash": dash}, "hoverinfo": "skip",
            }
            for name, dash in _DASHES.items()
        ]  # fmt: skip
    layout = {
        "xaxis": axis(f"time in the followed call ({clock})", rangemode="tozero"),
        "yaxis": axis(f"memory ({unit})", rangemode="tozero"),
    }
    figure = plain_figure(traces, layout, with_legend(380, len(traces)))
    return Plot(
        MEMORY, printable(f"{label}: memory over time on {use.device}"), _sentence(use), figure
    )


def _hover_lines(point: MemoryPoint, kind: str) -> list[str]:
    """Return the lines beside the pointer, on one category at one time."""
    return [
        f"{kind}: {format_memory(point.categories.get(kind, 0))} of {format_memory(point.total_bytes)}",
        f"{point.step}, {format_seconds(point.at_s)}",
    ]


def _sentence(use: MemoryUse) -> str:
    """Return the sentence on memory over a call.

    It reads `Begins with 304 MiB, peaks at 1.00 GiB in backward, and ends with 310 MiB.`
    """
    first, last = use.over_time[0], use.over_time[-1]
    peak = max(use.over_time, key=lambda point: point.total_bytes)
    text = (
        f"The call begins with {format_memory(first.total_bytes)}, peaks at {format_memory(peak.total_bytes)} in "
        f"{peak.step}"
    )
    text += f", and ends with {format_memory(last.total_bytes)}."
    if use.allocator:
        reserved_bytes = max(point.reserved_bytes for point in use.allocator)
        text += f" The allocator reserves at most {format_memory(reserved_bytes)}."
    return f"{text} The call takes longer while its memory is recorded."
