"""The points of a figure of FLOP per byte: where each stands, and what is said of it."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ....core.rows import Row
from ....core.units import format_flops, format_rate, format_share, printable
from .axes import drawable
from .drawing import GREY, MOST_SERIES, RED_SYMBOL, Trace, legend_only, lines_of, safe, short, style
from .roofs import Roofs
from .words import INVALID, hover, rate_at

# The share of a strip that is left free at both of its sides.
_MARGIN = 0.1
# More points than this are small, so that they leave each other room.
_MOST_LARGE = 100


@dataclass(frozen=True, slots=True)
class Point:
    """What a measurement did in a second.

    Args:
        row: of a measurement.
        flops: FLOP per second; None where it has none.
        moved: bytes per second, of memory where FLOPs stand beside them, else as its metric counts them; None where
            nobody counted any.
    """

    row: Row
    flops: float | None
    moved: float | None

    @property
    def intensity(self) -> float | None:
        """FLOP per byte; None where either is missing."""
        return self.flops / self.moved if self.flops is not None and self.moved is not None else None


def points_of(rows: Sequence[Row]) -> list[Point]:
    """A point for each measurement that has a rate of bytes or of FLOPs."""
    found = [_point(row) for row in rows if row.measurement is not None and row.measurement.has_rate and row.time_s]
    return [point for point in found if point.flops is not None or point.moved is not None]


def _point(row: Row) -> Point:
    flops, traffic = rate_at(row, row.time_s, "TFLOPS"), rate_at(row, row.time_s, "traffic_GBps")
    return Point(row, flops, traffic if flops is not None else rate_at(row, row.time_s, _counting(row)))


def _counting(row: Row) -> str:
    """How the bytes of a measurement without FLOPs are counted: as its roof is, or else as its metric is."""
    one = row.measurement
    assert one is not None
    return one.ceiling.metric if one.ceiling is not None and one.work.amount(one.ceiling.metric) else one.key.metric


def series_traces(points: Sequence[Point], inner: tuple[float, float], outer: tuple[float, float]) -> list[Trace]:
    """A series for each benchmark; with many of them the last stands for the rest.

    Args:
        points: of one figure.
        inner: the least and the largest intensity between the strips.
        outer: those of the figure.
    """
    groups: dict[str, list[Point]] = {}
    for point in points:
        assert point.row.measurement is not None
        name = point.row.measurement.key.benchmark
        groups.setdefault(name if name in groups or len(groups) < MOST_SERIES - 1 else "others", []).append(point)
    ordered = [point for members in groups.values() for point in members]
    xs = {id(point): point.intensity for point in ordered}
    # In a strip those of a series are next to each other, evenly.
    xs |= _spread([point for point in ordered if point.flops is None], outer[0], inner[0])
    xs |= _spread([point for point in ordered if point.moved is None], inner[1], outer[1])
    traces = [_series(name, members, index, xs) for index, (name, members) in enumerate(groups.items())]
    red = [legend_only("test failed", RED_SYMBOL)] if any(point.row.red for point in points) else []
    invalid = any(point.row.verdict == INVALID and not point.row.red for point in points)
    return traces + red + ([legend_only("INVALID: not to be trusted", "circle-open")] if invalid else [])


def _spread(points: Sequence[Point], start: float, end: float) -> dict[int, float | None]:
    low, high = math.log(start), math.log(end)
    shares = [_MARGIN + (1 - 2 * _MARGIN) * (index + 0.5) / len(points) for index in range(len(points))]
    return {id(point): math.exp(low + share * (high - low)) for point, share in zip(points, shares, strict=True)}


def _series(name: str, points: Sequence[Point], index: int, xs: Mapping[int, float | None]) -> Trace:
    colour, symbol, _ = style(index)
    rows = [point.row for point in points]
    symbols = [RED_SYMBOL if row.red else f"{symbol}-open" if row.verdict == INVALID else symbol for row in rows]
    size = 10 if len(xs) <= _MOST_LARGE else 6
    marker = {"color": colour, "symbol": symbols, "size": size, "line": {"color": GREY, "width": 1}, "opacity": 1}
    return {
        "type": "scatter",
        "x": [xs[id(point)] for point in points],
        "y": [_height(point, xs[id(point)]) for point in points],
        "mode": "markers",
        "name": safe(short(name)),
        "marker": marker,
        "hoverinfo": "text",
        "hovertext": [lines_of(_hover(point)) for point in points],
    }


def _height(point: Point, x: float | None) -> float | None:
    found = point.flops if point.flops is not None else (point.moved or 0.0) * (x or 0.0)
    return found if drawable(found) else None


def _hover(point: Point) -> list[str]:
    at = f"{point.intensity:.3g} FLOP/byte, " if point.intensity is not None else ""
    return [*hover(point.row, point.row.label), f"{at}{format_flops(point.flops)}" if point.flops is not None else ""]


def share_of(point: Point, roofs: Roofs) -> float | None:
    """The rate as a share of what its roof allows: the memory's or link's, or where its type has one, the lower one."""
    one = point.row.measurement
    assert one is not None
    shares = []
    arithmetic = roofs.flops.get(one.key.metric)
    if point.flops is not None and arithmetic is not None:
        shares.append(point.flops / arithmetic.value)
    moving = roofs.memory if point.flops is not None else roofs.bytes.get(_counting(point.row))
    # Bytes that came from a cache are no share of the memory's.
    if point.moved is not None and moving is not None and "cache_resident" not in one.samples.labels:
        shares.append(point.moved / moving.value)
    share = max(shares, default=None)
    return share if drawable(share) else None


def point_cells(point: Point, roofs: Roofs) -> tuple[str, ...]:
    """A row of the table: test, FLOP/byte, FLOP/s, bytes a second, share of the roof, verdict."""
    share = share_of(point, roofs)
    return (
        printable(point.row.label),
        "" if point.intensity is None else f"{point.intensity:.3g}",
        "" if point.flops is None else format_flops(point.flops),
        "" if point.moved is None else format_rate(point.moved),
        "" if share is None else format_share(share),
        printable(point.row.verdict),
    )
