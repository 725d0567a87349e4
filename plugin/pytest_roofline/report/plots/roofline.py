"""Everything measured on one roofline: FLOP per byte against FLOP per second.

What has bytes alone, such as copies, stands in a strip at the left end, as far below the slope of its memory or link as
its rate is below theirs: a height over a place is there the rate in bytes. What has FLOPs alone, whose bytes nobody
counted, stands in a strip at the right end, at its FLOP/s.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from ...core.records import Ceiling
from ...core.rows import Row
from ...core.units import count, format_flops, format_share, printable
from ...core.work import rate_suffix
from ...stats.verdicts import Kind
from .chart import (
    MOST_POINTS,
    MOST_SERIES,
    Plot,
    Trace,
    axis,
    dashed,
    drawable,
    limited,
    log_axis,
    marks,
    marks_explained,
    plain_figure,
    thinned,
    thinned_note,
    with_legend,
)
from .words import ceiling_of, computes, flop_unit, hover, rate_words

SECTION = "Roofline"
_MEMORY = "traffic_GBps"
_LINKS = {"payload_GBps": "link", "busbw_GBps": "bus", "algbw_GBps": "algorithm", "wirebw_GBps": "wire"}
# Of the width between the strips, that each of them takes; decades that it has at least; what is left free in it.
_STRIP, _LEAST_STRIP, _MARGIN = 0.3, 0.5, 0.1
# Ticks between the strips that a phone has room for.
_MOST_NUMBERS = 3
Span = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Point:
    """What a measurement did in a second.

    Args:
        row: of a measurement.
        flops: FLOP per second; None where it has none.
        moved: bytes per second, of memory where FLOPs stand beside them, else as the roof or the metric counts them;
            None where nobody counted any.
        counting: of the bytes.
    """

    row: Row
    flops: float | None
    moved: float | None
    counting: str

    @property
    def intensity(self) -> float | None:
        """FLOP per byte; None where either is missing."""
        return self.flops / self.moved if self.flops is not None and self.moved is not None else None


def roofline_plots(rows: Sequence[Row]) -> list[Plot]:
    """One plot for each kind of device that did work with FLOPs; bytes alone are read better against their size."""
    by_device: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        if row.key is not None:
            by_device.setdefault((row.device or "", f"{row.key.hardware.alone}"), []).append(row)
    found = {key: members for key, members in by_device.items() if any(one.flops for one in points_of(members))}
    return limited(
        list(found.items()),
        lambda pair: _plot(", ".join(pair[0] if len(found) > 1 else pair[0][:1]), pair[1]),
        lambda pair: any(row.red for row in pair[1]),
    )


def points_of(rows: Sequence[Row]) -> list[Point]:
    """A point for each measurement that has a rate of bytes or of FLOPs."""
    found = [_point(row) for row in rows if row.time_s]
    return [point for point in found if drawable(point.flops) or drawable(point.moved)]


def _point(row: Row) -> Point:
    flops, ceiling = row.rate_of(row.time_s, "TFLOPS"), ceiling_of(row)
    if flops is not None:
        return Point(row, flops, row.rate_of(row.time_s, _MEMORY), _MEMORY)
    counted = ceiling is not None and row.work is not None and row.work.amount(ceiling.metric)
    counting = ceiling.metric if ceiling is not None and counted else row.counting or ""
    return Point(row, None, row.rate_of(row.time_s, counting), counting)


def _roofs(rows: Sequence[Row]) -> dict[str, Ceiling]:
    """What bounds the work by metric, the lowest first: a datasheet's roof, else the median of measured ones."""
    found: dict[str, list[Ceiling]] = {}
    for row in rows:
        ceiling = ceiling_of(row)
        if ceiling is not None and rate_suffix(ceiling.metric) is not None and drawable(ceiling.value):
            found.setdefault(ceiling.metric, []).append(ceiling)
    roofs = []
    for ceilings in found.values():
        rated = [ceiling for ceiling in ceilings if ceiling.source == "datasheet"] or ceilings
        value = median(one.value for one in rated)
        roofs.append(Ceiling(rated[0].metric, value, rated[0].source, rated[0].origin))
    return {roof.metric: roof for roof in sorted(roofs, key=lambda roof: roof.value)}


def _plot(name: str, rows: Sequence[Row]) -> Plot:
    roofs, points = _roofs(rows), points_of(rows)
    drawn = thinned(points, MOST_POINTS, lambda point: point.row.red)
    inner, outer = _spans(drawn, roofs)
    traces = _roof_traces(roofs, outer, inner[0]) + _series(drawn, inner, outer)
    traces += marks_explained(point.row for point in drawn)
    scale, unit = flop_unit(y for trace in traces for y in trace["y"])
    for trace in traces:
        trace["y"] = [None if y is None else y / scale for y in trace["y"]]
    layout = {**_across(inner, outer), "yaxis": log_axis(unit, [y for trace in traces for y in trace["y"]])}
    return Plot(
        section=SECTION,
        title=printable(f"Everything measured on {name}"),
        says=_says(points, roofs) + thinned_note(len(drawn), len(points), "points"),
        figure=plain_figure(traces, layout, with_legend(420, len(traces), 10)),
    )


def _spans(points: Sequence[Point], roofs: Mapping[str, Ceiling]) -> tuple[Span, Span]:
    """The intensities from the lowest to the highest point or ridge, and those of the whole figure with its strips."""
    memory = roofs.get(_MEMORY)
    xs = [point.intensity for point in points]
    xs += [roof.value / memory.value for metric, roof in roofs.items() if memory is not None and computes(metric)]
    known = list(filter(drawable, xs))
    low, high = min(known, default=1.0) / 2, max(known, default=1.0) * 2
    factor = 10 ** max(_LEAST_STRIP, _STRIP * math.log10(high / low))
    left, right = (any(getattr(one, name) is None for one in points) for name in ("flops", "moved"))
    return (low, high), (low / factor if left else low, high * factor if right else high)


def _across(inner: Span, outer: Span) -> dict[str, Any]:
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
            ticks[math.sqrt(start * end)] = text
            place = {"x0": start, "x1": end, "y0": 0, "y1": 1, "yref": "paper"}
            look = {"type": "rect", "layer": "below", "fillcolor": "rgba(128,128,128,0.14)", "line": {"width": 0}}
            shapes.append({**look, **place})
    shown = {"tickvals": list(ticks), "ticktext": list(ticks.values()), "tickangle": 0}
    bounds = [math.log10(outer[0]), math.log10(outer[1])]
    return {"xaxis": axis(found["title"]["text"], type="log", range=bounds, **shown), "shapes": shapes}


def _roof_traces(roofs: Mapping[str, Ceiling], span: Span, strip_end: float) -> list[Trace]:
    """Slopes of what moves bytes and levels of what computes; links have slopes in the strip of bytes alone."""
    low, high = span
    memory = roofs.get(_MEMORY)
    top = max((roof.value for metric, roof in roofs.items() if computes(metric)), default=math.inf)
    traces = []
    for metric, roof in roofs.items():
        text = rate_words(roof.value, metric)
        if computes(metric):
            kind = metric.removesuffix("TFLOPS").removesuffix("_") or "arithmetic"
            start = max(low, roof.value / memory.value) if memory is not None else low
            texts = ["", f"{kind} {text}"]
            traces += dashed([start, high], [roof.value] * 2, f"{kind} {text} ({roof.source})", text=texts)
            continue
        end = min(high, top / roof.value) if metric == _MEMORY else strip_end
        if low < end:
            kind = "memory" if metric == _MEMORY else _LINKS.get(rate_suffix(metric) or "", metric)
            # Not at the end of a slope: there is the other roof's text, and a strip is narrow on a phone.
            xs = [low, low**0.25 * end**0.75, end]
            look = {"text": ["", text, ""], "textposition": "top left" if metric == _MEMORY else "bottom right"}
            traces += dashed(xs, [roof.value * x for x in xs], f"{kind} {text} ({roof.source})", **look)
    return traces


def _series(points: Sequence[Point], inner: Span, outer: Span) -> list[Trace]:
    """A series for each benchmark; with many of them the last stands for the rest."""
    groups: dict[str, list[Point]] = {}
    for point in points:
        name = point.row.benchmark
        groups.setdefault(name if name in groups or len(groups) < MOST_SERIES - 1 else "others", []).append(point)
    ordered = [point for members in groups.values() for point in members]
    xs = {id(point): point.intensity or 0.0 for point in ordered}
    # In a strip those of a series are next to each other, evenly.
    xs |= _spread([point for point in ordered if point.flops is None], outer[0], inner[0])
    xs |= _spread([point for point in ordered if point.moved is None], inner[1], outer[1])
    return [
        marks(
            name,
            [xs[id(point)] for point in members],
            [point.flops if point.flops is not None else (point.moved or 0.0) * xs[id(point)] for point in members],
            list(map(_told, members)),
            index,
            rows=[point.row for point in members],
            lines=False,
        )
        for index, (name, members) in enumerate(groups.items())
    ]


def _spread(points: Sequence[Point], start: float, end: float) -> dict[int, float]:
    low, high = math.log(start), math.log(end)
    shares = [_MARGIN + (1 - 2 * _MARGIN) * (index + 0.5) / len(points) for index in range(len(points))]
    return {id(point): math.exp(low + share * (high - low)) for point, share in zip(points, shares, strict=True)}


def _told(point: Point) -> list[str]:
    at = f"{point.intensity:.3g} FLOP/byte, " if point.intensity is not None else ""
    return [*hover(point.row, point.row.label), f"{at}{format_flops(point.flops)}" if point.flops is not None else ""]


def _share(point: Point, roofs: Mapping[str, Ceiling]) -> float | None:
    """The rate as a share of what its roof allows: the memory's or link's, or where its type has one, the lower one."""
    arithmetic, moving = roofs.get(point.row.counting or ""), roofs.get(point.counting)
    shares = []
    if point.flops is not None and arithmetic is not None and computes(arithmetic.metric):
        shares.append(point.flops / arithmetic.value)
    # Bytes that came from a cache are no share of the memory's.
    if point.moved is not None and moving is not None and "cache_resident" not in (point.row.labels or ()):
        shares.append(point.moved / moving.value)
    return max(shares, default=None)


def _says(points: Sequence[Point], roofs: Mapping[str, Ceiling]) -> str:
    trusted = [one for one in points if one.row.verdict != Kind.INVALID]
    sound = sorted(((share, one.row.label) for one in trusted if (share := _share(one, roofs))), reverse=True)
    if sound:
        (most, nearest), (least, farthest) = sound[0], sound[-1]
        told = f"nearest to its roof {nearest} ({format_share(most)})"
        told += f", farthest {farthest} ({format_share(least)})" if len(sound) > 1 else ""
    else:
        why = "none of them can be held to a roof" if roofs else "no roof is known for what is shown"
        told = why if trusted else "none of them to be trusted"
    bare, alone = sum(point.flops is None for point in points), sum(point.moved is None for point in points)
    text = f"{count(len(points), 'measurement')}: {told}."
    text += f" {bare} without FLOPs, such as copies, at the left end." * bool(bare)
    return printable(text + f" {alone} with FLOPs whose bytes nobody counted, at the right end." * bool(alone))
