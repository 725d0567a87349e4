"""Everything that has both bytes and FLOPs on one roofline: FLOP per byte against FLOP per second."""

import math
from collections.abc import Sequence
from statistics import median

from ....core.records import Ceiling
from ....core.units import format_flops, format_rate, format_share, printable
from ....core.work import rate_suffix
from ....judging.report_rows import ReportRow
from ..plot import Plot
from .drawing import (
    GREY,
    MOST_POINTS,
    MOST_ROWS,
    MOST_SERIES,
    RED_SYMBOL,
    Trace,
    legend_only,
    limited,
    lines_of,
    log_axis,
    plain_figure,
    safe,
    short,
    style,
    thinned,
    thinned_note,
)
from .words import INVALID, device, flop_unit, hover, rate_words

SECTION = "Roofline"
COLUMNS = ("test", "FLOP/byte", "FLOP/s", "bytes a second", "of the roof", "verdict")


def roofline_plots(rows: Sequence[ReportRow]) -> list[Plot]:
    """One plot for each kind of device that did work with bytes and FLOPs."""
    by_device: dict[tuple[str, str], list[ReportRow]] = {}
    for row in rows:
        if row.measurement is not None and row.rate is not None:
            by_device.setdefault((device(row), f"{row.measurement.key.hardware.alone}"), []).append(row)
    found = {key: members for key, members in by_device.items() if any(map(_has_both, members))}
    return limited(
        list(found.items()),
        lambda pair: _plot(", ".join(pair[0] if len(found) > 1 else pair[0][:1]), pair[1]),
        lambda pair: any(row.red for row in pair[1]),
    )


def _has_both(row: ReportRow) -> bool:
    one = row.measurement
    return one is not None and one.work.flops > 0 and one.work.traffic_bytes > 0


def _intensity(row: ReportRow) -> float:
    value = row.measurement.work.operational_intensity if row.measurement is not None else None
    assert value is not None
    return value


def _flops(row: ReportRow) -> float:
    assert row.measurement is not None
    assert row.seconds is not None
    return row.measurement.work.flops / row.seconds


def _plot(name: str, rows: Sequence[ReportRow]) -> Plot:
    points = [row for row in rows if _has_both(row)]
    drawn = thinned(points, MOST_POINTS, lambda row: row.red)
    memory, compute = _roofs(rows)
    xs = [_intensity(row) for row in drawn]
    span = _span(xs, memory, compute)
    traces = _roof_traces(span, memory, compute) + _series(drawn)
    scale, unit = flop_unit([y for trace in traces for y in trace["y"] if y is not None])
    for trace in traces:
        trace["y"] = [None if y is None else y / scale for y in trace["y"]]
    heights = [y for trace in traces for y in trace["y"] if y is not None]
    layout = {"xaxis": log_axis("operational intensity (FLOP/byte)", span), "yaxis": log_axis(unit, heights)}
    listed = thinned(points, MOST_ROWS, lambda row: row.red)
    notes = thinned_note(len(drawn), len(points), "points") + thinned_note(len(listed), len(points), "rows")
    return Plot(
        section=SECTION,
        title=printable(f"All work with bytes and FLOPs on {name}"),
        says=_says(points, rows, memory, compute) + notes,
        figure=plain_figure(traces, layout, height=460),
        columns=COLUMNS,
        rows=[_cells(row, memory, compute) for row in listed],
    )


def _roofs(rows: Sequence[ReportRow]) -> tuple[Ceiling | None, dict[str, Ceiling]]:
    """The memory's roof, and those of arithmetic by metric: a datasheet's, else the median of measured ones."""
    found: dict[str, list[Ceiling]] = {}
    for row in rows:
        ceiling = row.measurement.ceiling if row.measurement is not None else None
        if ceiling is not None and rate_suffix(ceiling.metric) in ("traffic_GBps", "TFLOPS"):
            found.setdefault(ceiling.metric, []).append(ceiling)
    roofs = {metric: _one(ceilings) for metric, ceilings in found.items()}
    return roofs.pop("traffic_GBps", None), dict(sorted(roofs.items(), key=lambda pair: pair[1].value))


def _one(ceilings: Sequence[Ceiling]) -> Ceiling:
    rated = [ceiling for ceiling in ceilings if ceiling.source == "datasheet"]
    first, *_ = rated or ceilings
    return Ceiling(first.metric, median(one.value for one in rated or ceilings), first.source, first.origin)


def _span(xs: Sequence[float], memory: Ceiling | None, compute: dict[str, Ceiling]) -> tuple[float, float]:
    """The intensities that are shown: all points, and the ridges, where the memory's slope meets a roof."""
    ridges = [roof.value / memory.value for roof in compute.values()] if memory is not None else []
    return min(xs) / 2, max([*xs, *ridges]) * 2


def _roof_traces(span: tuple[float, float], memory: Ceiling | None, compute: dict[str, Ceiling]) -> list[Trace]:
    low, high = span
    traces = []
    if memory is not None:
        top = max((roof.value for roof in compute.values()), default=memory.value * high)
        end = min(high, top / memory.value)
        ys = [memory.value * low, memory.value * end]
        text = f"memory {rate_words(memory.value, memory.metric)}"
        # Half-way up, where the room above the slope is free.
        middle = math.sqrt(low * end)
        traces.append(_roof([low, middle, end], [ys[0], memory.value * middle, ys[1]], text, memory))
    for metric, roof in compute.items():
        start = max(low, roof.value / memory.value) if memory is not None else low
        kind = metric.removesuffix("TFLOPS").removesuffix("_") or "FLOP/s"
        text = f"{kind} {format_flops(roof.value)}"
        traces.append(_roof([start, high], [roof.value] * 2, text, roof))
    return traces


def _roof(xs: Sequence[float], ys: Sequence[float], text: str, roof: Ceiling) -> Trace:
    line = {"color": GREY, "dash": "dash" if roof.source == "datasheet" else "dot", "width": 2}
    whole = safe(f"{text} ({roof.source})")
    shown = {"name": whole, "hoverinfo": "text", "hovertext": whole, "textposition": "top left"}
    texts = [safe(text) if index == 1 else "" for index in range(len(xs))]
    return {"type": "scatter", "x": list(xs), "y": list(ys), "mode": "lines+text", "text": texts, "line": line, **shown}


def _series(rows: Sequence[ReportRow]) -> list[Trace]:
    """A series for each benchmark; with many of them the last stands for the rest."""
    groups: dict[str, list[ReportRow]] = {}
    for row in rows:
        assert row.measurement is not None
        name = row.measurement.key.benchmark
        groups.setdefault(name if name in groups or len(groups) < MOST_SERIES - 1 else "others", []).append(row)
    traces = []
    for index, (name, members) in enumerate(groups.items()):
        colour, symbol, _ = style(index)
        symbols = [RED_SYMBOL if row.red else f"{symbol}-open" if row.word == INVALID else symbol for row in members]
        marker = {"color": colour, "symbol": symbols, "size": 10, "line": {"color": GREY, "width": 1}, "opacity": 1}
        traces.append(
            {
                "type": "scatter",
                "x": [_intensity(row) for row in members],
                "y": [_flops(row) for row in members],
                "mode": "markers",
                "name": safe(short(name)),
                "marker": marker,
                "hoverinfo": "text",
                "hovertext": [lines_of(_hover(row)) for row in members],
            }
        )
    red = [legend_only("test failed", RED_SYMBOL)] if any(row.red for row in rows) else []
    invalid = any(row.word == INVALID and not row.red for row in rows)
    return traces + red + ([legend_only("INVALID: not to be trusted", "circle-open")] if invalid else [])


def _hover(row: ReportRow) -> list[str]:
    return [*hover(row, row.label), f"{_intensity(row):.3g} FLOP/byte, {format_flops(_flops(row))}"]


def _roof_at(row: ReportRow, memory: Ceiling | None, compute: dict[str, Ceiling]) -> float | None:
    """FLOP/s that the roof allows at a row's intensity: the memory's, or where its type has a roof, the lower one."""
    assert row.measurement is not None
    own = compute.get(row.measurement.key.metric)
    bounds = [own.value] if own is not None else []
    bounds += [memory.value * _intensity(row)] if memory is not None else []
    return min(bounds, default=None)


def _share(row: ReportRow, memory: Ceiling | None, compute: dict[str, Ceiling]) -> float | None:
    roof = _roof_at(row, memory, compute)
    return None if roof is None else _flops(row) / roof


def _cells(row: ReportRow, memory: Ceiling | None, compute: dict[str, Ceiling]) -> tuple[str, ...]:
    assert row.measurement is not None
    assert row.seconds is not None
    share = _share(row, memory, compute)
    moved = format_rate(row.measurement.work.traffic_bytes / row.seconds)
    told = "" if share is None else format_share(share)
    return printable(row.label), f"{_intensity(row):.3g}", format_flops(_flops(row)), moved, told, row.word


def _says(
    points: Sequence[ReportRow], rows: Sequence[ReportRow], memory: Ceiling | None, compute: dict[str, Ceiling]
) -> str:
    sound = [(share, row) for row in points if row.word != INVALID and (share := _share(row, memory, compute))]
    parts = []
    if sound:
        best, worst = max(sound, key=lambda pair: pair[0]), min(sound, key=lambda pair: pair[0])
        parts.append(f"nearest to its roof {best[1].label} ({format_share(best[0])})")
        parts += [f"farthest {worst[1].label} ({format_share(worst[0])})"] if worst[1] is not best[1] else []
    else:
        parts.append(
            "no roof is known for what is shown" if not (memory or compute) else "none of them can be held to a roof"
        )
    copies = sum(row.measurement is not None and not row.measurement.work.flops for row in rows)
    bare = len(rows) - len(points) - copies
    text = ", ".join(parts)
    left = [f"{copies} without FLOPs, such as copies"] if copies else []
    left += [f"{bare} with FLOPs whose bytes nobody counted"] if bare else []
    out = f" Not shown: {', and '.join(left)}." if left else ""
    return printable(f"{len(points)} measurements: {text}.{out}")
