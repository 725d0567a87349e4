"""Memory over the time of a call: what is alive by category, and what torch's allocator handed out and reserved."""

from collections.abc import Sequence

from ...baselines.runs import Run
from ...core.memory import CATEGORIES, MemoryPoint, MemoryUse
from ...core.units import GIB, MIB, format_memory, format_seconds, printable
from .bars import MEMORY, latest
from .chart import COLOURS, GREY, Plot, Trace, axis, limited, lines_of, plain_figure, with_legend

# One in every plot; what is rare is grey.
_COLOUR_OF = dict(zip(CATEGORIES, COLOURS, strict=False))
_DASHES = {"allocated": "dot", "reserved": "solid"}


def over_time_plots(runs: Sequence[Run]) -> list[Plot]:
    """A plot for each call whose memory was followed; of one that was followed again the last time stands."""
    found = [
        pair
        for pair in latest((run, use) for run in runs for use in run.memory_uses)
        if pair[1].over_time
    ]
    return limited(found, lambda pair: _plot(*pair), lambda _: False)


def _plot(label: str, use: MemoryUse) -> Plot:
    most = max(
        [point.total_bytes for point in use.over_time]
        + [point.reserved_bytes for point in use.allocator]
    )
    size, unit = (GIB, "GiB") if most >= GIB else (MIB, "MiB")
    last_s = max([point.at_s for point in use.over_time] + [point.at_s for point in use.allocator])
    scale, clock = (1.0, "s") if last_s >= 1 else (1e-3, "ms")
    present = [
        kind for kind in CATEGORIES if any(kind in point.categories for point in use.over_time)
    ]
    times = [point.at_s / scale for point in use.over_time]
    traces: list[Trace] = [
        {
            "type": "scatter", "mode": "lines", "stackgroup": "alive", "x": times, "name": kind,
            "y": [point.categories.get(kind, 0) / size for point in use.over_time],
            "line": {"width": 1, "shape": "hv", "color": _COLOUR_OF.get(kind, GREY)},
            "hoverinfo": "text",
            "hovertext": [lines_of(_beside(point, kind)) for point in use.over_time],
        }
        for kind in present
    ]  # fmt: skip
    for name, dash in _DASHES.items() if use.allocator else ():
        values = [getattr(point, f"{name}_bytes") / size for point in use.allocator]
        traces.append(
            {"type": "scatter", "mode": "lines", "x": [point.at_s / scale for point in use.allocator], "y": values,
             "name": f"{name} by the allocator", "line": {"width": 2, "shape": "hv", "color": GREY, "dash": dash},
             "hoverinfo": "skip"}
        )  # fmt: skip
    layout = {
        "xaxis": axis(f"time in the followed call ({clock})", rangemode="tozero"),
        "yaxis": axis(f"memory ({unit})", rangemode="tozero"),
    }
    figure = plain_figure(traces, layout, with_legend(380, len(traces)))
    return Plot(MEMORY, printable(f"{label}: memory over time on {use.device}"), _says(use), figure)


def _beside(point: MemoryPoint, kind: str) -> list[str]:
    told = f"{kind}: {format_memory(point.categories.get(kind, 0))} of {format_memory(point.total_bytes)}"
    return [told, f"{point.step}, {format_seconds(point.at_s)}"]


def _says(use: MemoryUse) -> str:
    """`Begins with 304 MiB, peaks at 1.00 GiB in backward, and ends with 310 MiB.`"""
    first, last = use.over_time[0], use.over_time[-1]
    peak = max(use.over_time, key=lambda point: point.total_bytes)
    text = f"Begins with {format_memory(first.total_bytes)}, peaks at {format_memory(peak.total_bytes)} in {peak.step}"
    text += f", and ends with {format_memory(last.total_bytes)}."
    if use.allocator:
        text += f" The allocator reserves at most {format_memory(max(one.reserved_bytes for one in use.allocator))}."
    return f"{text} Following a call makes it longer."
