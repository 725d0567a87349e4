"""Everything measured on one roofline: FLOP per byte against FLOP per second.

What has bytes alone, such as copies, stands in a strip at the left end, as far below the slope of its memory or link as
its rate is below theirs: a height over a place is there the rate in bytes. What has FLOPs alone, whose bytes nobody
counted, stands in a strip at the right end, at its FLOP/s.
"""

import math
from collections.abc import Sequence
from typing import Any

from ....core.rows import Row
from ....core.units import count, format_share, printable
from ..plot import Plot
from .axes import axis, log_axis
from .drawing import MOST_POINTS, MOST_ROWS, limited, plain_figure, thinned, thinned_note
from .intensity_points import Point, point_cells, points_of, series_traces, share_of
from .roofs import Roofs, roof_traces, roofs_of
from .words import INVALID, device, flop_unit

SECTION = "Roofline"
COLUMNS = ("test", "FLOP/byte", "FLOP/s", "bytes a second", "of the roof", "verdict")
# Of the width between the strips, that each of them takes; and decades that it has at least.
_STRIP, _LEAST_STRIP = 0.3, 0.5
# Ticks between the strips that a phone has room for.
_MOST_NUMBERS = 3


def roofline_plots(rows: Sequence[Row]) -> list[Plot]:
    """One plot for each kind of device that did work with FLOPs; bytes alone are read better against their size."""
    by_device: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.measurement is not None:
            by_device.setdefault((device(row), f"{row.measurement.key.hardware.alone}"), []).append(row)
    found = {key: members for key, members in by_device.items() if any(one.flops for one in points_of(members))}
    return limited(
        list(found.items()),
        lambda pair: _plot(", ".join(pair[0] if len(found) > 1 else pair[0][:1]), pair[1]),
        lambda pair: any(row.red for row in pair[1]),
    )


def _plot(name: str, rows: Sequence[Row]) -> Plot:
    roofs, points = roofs_of(rows), points_of(rows)
    drawn = thinned(points, MOST_POINTS, lambda point: point.row.red)
    inner, outer = _spans(drawn, roofs)
    traces = roof_traces(roofs, outer, inner[0] if outer[0] < inner[0] else None)
    traces += series_traces(drawn, inner, outer)
    scale, unit = flop_unit(y for trace in traces for y in trace["y"] if y is not None)
    for trace in traces:
        trace["y"] = [None if y is None else y / scale for y in trace["y"]]
    heights = [y for trace in traces for y in trace["y"]]
    listed = thinned(points, MOST_ROWS, lambda point: point.row.red)
    notes = thinned_note(len(drawn), len(points), "points") + thinned_note(len(listed), len(points), "rows")
    return Plot(
        section=SECTION,
        title=printable(f"Everything measured on {name}"),
        says=_says(points, len(rows), roofs) + notes,
        figure=plain_figure(
            traces, {**_across(inner, outer), "yaxis": log_axis(unit, heights)}, height=420 + 22 * min(10, len(traces))
        ),
        columns=COLUMNS,
        rows=[point_cells(point, roofs) for point in listed],
    )


def _spans(points: Sequence[Point], roofs: Roofs) -> tuple[tuple[float, float], tuple[float, float]]:
    """The intensities from the lowest to the highest point or ridge, and those of the whole figure with its strips."""
    xs = [*(point.intensity for point in points if point.intensity is not None), *roofs.ridges] or [1.0]
    low, high = min(xs) / 2, max(xs) * 2
    factor = 10 ** max(_LEAST_STRIP, _STRIP * math.log10(high / low))
    left, right = (any(getattr(one, name) is None for one in points) for name in ("flops", "moved"))
    return (low, high), (low / factor if left else low, high * factor if right else high)


def _across(inner: tuple[float, float], outer: tuple[float, float]) -> dict[str, Any]:
    """The horizontal axis, with the strips shaded and named in place of numbers."""
    found = log_axis("operational intensity (FLOP/byte)", inner)
    numbers = zip(found.get("tickvals", inner), found.get("ticktext", [f"{x:.3g}" for x in inner]), strict=True)
    # A number beside the name of a strip would run into it on a phone.
    room = (inner[1] / inner[0]) ** 0.08
    ticks = {tick: text for tick, text in numbers if inner[0] * room < tick < inner[1] / room}
    ticks = dict(list(ticks.items())[:: math.ceil(len(ticks) / _MOST_NUMBERS) or 1])
    shapes = []
    for start, end, text in ((outer[0], inner[0], "bytes<br>only"), (inner[1], outer[1], "FLOPs<br>only")):
        if start < end:
            ticks[math.sqrt(start) * math.sqrt(end)] = text
            place = {"x0": start, "x1": end, "y0": 0, "y1": 1, "yref": "paper"}
            shapes.append({"type": "rect", "layer": "below", "fillcolor": "rgba(128,128,128,0.14)",
                           "line": {"width": 0}, **place})  # fmt: skip
    shown = {"tickvals": list(ticks), "ticktext": list(ticks.values()), "tickangle": 0}
    bounds = [math.log10(outer[0]), math.log10(outer[1])]
    return {"xaxis": axis(found["title"]["text"], type="log", range=bounds, **shown), "shapes": shapes}


def _says(points: Sequence[Point], measured: int, roofs: Roofs) -> str:
    sound = [(share, one) for one in points if one.row.verdict != INVALID and (share := share_of(one, roofs))]
    parts = []
    if sound:
        best, worst = max(sound, key=lambda pair: pair[0]), min(sound, key=lambda pair: pair[0])
        parts.append(f"nearest to its roof {best[1].row.label} ({format_share(best[0])})")
        parts += [f"farthest {worst[1].row.label} ({format_share(worst[0])})"] if worst[1] is not best[1] else []
    else:
        trusted, known = any(one.row.verdict != INVALID for one in points), roofs.bytes or roofs.flops
        why = "no roof is known for what is shown" if not known else "none of them can be held to a roof"
        parts.append(why if trusted else "none of them to be trusted")
    text = f"{count(len(points), 'measurement')}: {', '.join(parts)}."
    bare = sum(point.flops is None for point in points)
    alone = sum(point.moved is None for point in points)
    place = "as far below the slopes as their bytes a second are"
    text += f" {bare} without FLOPs, such as copies, at the left end, {place}." * bool(bare)
    text += f" {alone} with FLOPs whose bytes nobody counted, at the right end." * bool(alone)
    left = measured - len(points)
    return printable(text + f" {left} without a rate to be drawn." * bool(left))
