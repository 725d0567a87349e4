"""Results with FLOPs and bytes on one roofline: FLOP per byte against FLOP per second."""

from collections.abc import Mapping, Sequence
from statistics import median

from ...core.groups import group_by
from ...core.records import Ceiling
from ...core.rows import Row
from ...core.units import count, format_flops, format_share, printable
from ...core.verdicts import Kind
from .chart import (
    DASHES,
    MOST_POINTS,
    MOST_SERIES,
    Plot,
    Trace,
    dashed_line,
    drawable,
    limit_plots,
    log_axis,
    marks,
    marks_explained,
    plain_figure,
    thin,
    thinning_note,
    with_legend,
)
from .words import ceiling_of, computes, flop_unit, hover, rate_words

SECTION = "Roofline"
_MEMORY = "traffic_GBps"
# A row, its FLOP per byte of memory's traffic, and its FLOP per second.
Point = tuple[Row, float, float]


def roofline_plots(rows: Sequence[Row]) -> list[Plot]:
    """Return one plot for each kind of device.

    A device has a plot if one of its measurements has both FLOPs and bytes.
    """
    by_device = group_by(
        (row for row in rows if row.key is not None),
        lambda row: (row.device or "", f"{row.key.hardware.alone}" if row.key is not None else ""),
    )
    # A device is its name and its hardware key, which the title has only where several devices have plots.
    groups = [(device, members) for device, members in by_device.items() if points_of(members)]
    return limit_plots(
        groups,
        lambda group: _plot(", ".join(group[0] if len(groups) > 1 else group[0][:1]), group[1]),
        lambda group: group[1],
    )


def points_of(rows: Sequence[Row]) -> list[Point]:
    """Return a point for each measurement with FLOPs and bytes.

    A point has its row, the FLOPs for each byte, and the FLOPs per second.
    """
    rates = (
        (row, row.rate_of(row.time_s, "TFLOPS"), row.rate_of(row.time_s, _MEMORY))
        for row in rows
        if row.time_s
    )
    return [
        (row, flop_rate / byte_rate, flop_rate)
        for row, flop_rate, byte_rate in rates
        if drawable(flop_rate) and drawable(byte_rate)
    ]


def _roofs(rows: Sequence[Row]) -> dict[str, Ceiling]:
    """Return the roofs by metric, the lowest first.

    A roof is that of the datasheet, else the median of the measured ones.
    """
    ceilings = [
        ceiling
        for row in rows
        if (ceiling := ceiling_of(row)) is not None
        and (ceiling.metric == _MEMORY or computes(ceiling.metric))
        and drawable(ceiling.value)
    ]
    roofs = []
    for members in group_by(ceilings, lambda ceiling: ceiling.metric).values():
        members_of_source = [
            ceiling for ceiling in members if ceiling.source == "datasheet"
        ] or members
        value = median(ceiling.value for ceiling in members_of_source)
        roofs.append(
            Ceiling(
                members_of_source[0].metric,
                value,
                members_of_source[0].source,
                members_of_source[0].origin,
            )
        )
    return {roof.metric: roof for roof in sorted(roofs, key=lambda roof: roof.value)}


def _plot(name: str, rows: Sequence[Row]) -> Plot:
    """Return the roofline of a device with the points of its tests."""
    roofs, points = _roofs(rows), points_of(rows)
    selected = thin(points, MOST_POINTS, lambda point: point[0].red)
    memory = roofs.get(_MEMORY)
    # The intensities at which the memory's slope meets a level of arithmetic.
    ridges = [
        roof.value / memory.value
        for metric, roof in roofs.items()
        if memory is not None and computes(metric)
    ]
    xs = list(filter(drawable, [*(x for _, x, _ in selected), *ridges]))
    traces = _roof_traces(roofs, min(xs) / 2, max(xs) * 2) + _series(selected)
    traces += marks_explained(row for row, *_ in selected)
    scale, unit = flop_unit(y for trace in traces for y in trace["y"])
    for trace in traces:
        trace["y"] = [None if y is None else y / scale for y in trace["y"]]
    layout = {
        "xaxis": log_axis("operational intensity (FLOP/byte)", [min(xs) / 2, max(xs) * 2]),
        "yaxis": log_axis(unit, [y for trace in traces for y in trace["y"]]),
    }
    skipped_count = len(rows) - len(points)
    text = _sentence(points, roofs) + thinning_note(len(selected), len(points), "points")
    if skipped_count:
        text += f" The table has {skipped_count} more, without FLOPs or bytes."
    figure = plain_figure(traces, layout, with_legend(420, len(traces), 10))
    return Plot(SECTION, printable(f"FLOP/s by operational intensity on {name}"), text, figure)


def _roof_traces(roofs: Mapping[str, Ceiling], low: float, high: float) -> list[Trace]:
    """Return the memory's slope, and a level for each type of arithmetic.

    The slope ends at the highest level, and a level begins at the slope. `low` and `high` are the
    ends of the horizontal axis, in FLOP per byte.
    """
    memory = roofs.get(_MEMORY)
    traces: list[Trace] = []
    for metric, roof in roofs.items():
        name = f"{rate_words(roof.value, metric)} ({roof.source})"
        if computes(metric):
            start = max(low, roof.value / memory.value) if memory is not None else low
            kind = metric.removesuffix("TFLOPS").removesuffix("_") or "arithmetic"
            dash = DASHES[(1 + len(traces)) % len(DASHES)]
            traces += dashed_line([start, high], [roof.value] * 2, f"{kind} {name}", dash)
        else:
            top = max(
                (ceiling.value for key, ceiling in roofs.items() if computes(key)),
                default=high * roof.value,
            )
            end = min(high, top / roof.value)
            traces += dashed_line(
                [low, end], [roof.value * low, roof.value * end], f"memory {name}"
            )
    return traces


def _series(points: Sequence[Point]) -> list[Trace]:
    """Return a series for each benchmark.

    Where there are too many benchmarks, the last series holds all others.
    """
    groups: dict[str, list[Point]] = {}
    for point in points:
        name = point[0].benchmark
        groups.setdefault(
            name if name in groups or len(groups) < MOST_SERIES - 1 else "others", []
        ).append(point)
    traces = []
    for index, (name, members) in enumerate(groups.items()):
        rows, xs, ys = ([*column] for column in zip(*members, strict=True))
        texts = [
            [*hover(row, row.label), f"{x:.3g} FLOP/byte, {format_flops(y)}"]
            for row, x, y in members
        ]
        traces.append(marks(name, xs, ys, texts, index, rows=rows, lines=False))
    return traces


def _share(point: Point, roofs: Mapping[str, Ceiling]) -> float | None:
    """Return the rate of a point as a share of its roof.

    It is None where no roof is known. The roof is the memory's or that of the row's arithmetic, whichever is lower
    here.
    """
    row, intensity, flops = point
    arithmetic, memory = roofs.get(row.counting or ""), roofs.get(_MEMORY)
    shares = (
        [flops / arithmetic.value] if arithmetic is not None and computes(arithmetic.metric) else []
    )
    # The memory does not limit a test whose bytes come from a cache.
    if memory is not None and "cache_resident" not in (row.labels or ()):
        shares.append(flops / intensity / memory.value)
    # The lower of two roofs is the one of which the rate is the larger share.
    return max(shares, default=None)


def _sentence(points: Sequence[Point], roofs: Mapping[str, Ceiling]) -> str:
    """Return the tests nearest to and farthest from their roofs."""
    valid_points = [point for point in points if point[0].verdict != Kind.INVALID]
    shares = sorted(
        ((share, point[0].label) for point in valid_points if (share := _share(point, roofs))),
        reverse=True,
    )
    if shares:
        (highest, nearest), (lowest, farthest) = shares[0], shares[-1]
        text = f"nearest to its roof {nearest} ({format_share(highest)})"
        text += f", farthest {farthest} ({format_share(lowest)})" if len(shares) > 1 else ""
    elif valid_points:
        text = (
            "no measurement has a roofline"
            if roofs
            else "no roofline is known for these measurements"
        )
    else:
        text = "no measurement is valid"
    return printable(f"{count(len(points), 'measurement')}: {text}.")
