"""The marks of a figure of samples: blocks process by process, the processes of the baseline, and its tolerance."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from ....core.records import Measurement
from ....core.rows import Row
from ....core.units import format_seconds, format_tolerance
from .axes import drawable, median_of
from .drawing import COLOURS, GREY, MOST_POINTS, Trace, level, lines_of, thinned

# How much of the room between two processes their samples take.
_WIDTH = 0.7
_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"), (1e-9, "ns"))


@dataclass(frozen=True, slots=True)
class Block:
    """The median of a block's samples, and why it does not count; empty where it does."""

    seconds: float
    excluded: str


def unit_of(seconds: Sequence[float]) -> tuple[float, str]:
    """The unit in which times like these are a few digits, in seconds, and its name."""
    middle = median_of(seconds)
    return next(((scale, name) for scale, name in _UNITS if middle >= scale), _UNITS[-1])


def blocks_of(one: Measurement) -> Iterator[Block]:
    """The median of every block, in the order taken; without blocks every sample by itself."""
    samples = one.samples
    if not samples.blocks:
        yield from (Block(seconds, "") for seconds in samples.seconds)
    at = 0
    for block in samples.blocks:
        yield Block(median(samples.seconds[at : at + block.samples]), block.excluded)
        at += block.samples


def name_of(row: Row, one: Measurement) -> str:
    """`round 2`; with the process where a round has several attempts."""
    same = [other for other in row.measurements if other.round == one.round]
    return f"round {one.round}" if len(same) == 1 else f"round {one.round}, attempt {same.index(one) + 1}"


def strips(row: Row, drawn: Sequence[Sequence[Block]], scale: float, first: int) -> list[Trace]:
    """What counts as filled circles, what was left out as hollow ones."""
    traces = []
    for excluded in (False, True):
        points = [
            (first + process + _offset(index, len(blocks)), block, name_of(row, row.measurements[process]))
            for process, blocks in enumerate(drawn)
            for index, block in enumerate(blocks)
            if bool(block.excluded) is excluded
        ]
        if points:
            traces.append(_strip(points, scale, excluded))
    return traces


def _offset(index: int, count: int) -> float:
    return _WIDTH * ((index + 0.5) / count - 0.5)


def _strip(points: Sequence[tuple[float, Block, str]], scale: float, excluded: bool) -> Trace:
    symbol = "circle-open" if excluded else "circle"
    why = [f"left out: {block.excluded}" if block.excluded else "" for _, block, _ in points]
    return {
        "type": "scatter",
        "x": [x for x, _, _ in points],
        "y": [block.seconds / scale for _, block, _ in points],
        "mode": "markers",
        "marker": {"symbol": symbol, "size": 7, "color": COLOURS[1 if excluded else 0], "opacity": 1,
                   "line": {"color": COLOURS[1] if excluded else GREY, "width": 1}},
        "name": "block left out" if excluded else "block of this run",
        "hoverinfo": "text",
        "hovertext": [
            lines_of([name, format_seconds(block.seconds), told])
            for (_, block, name), told in zip(points, why, strict=True)
        ],
    }  # fmt: skip


def reference_marks(row: Row, scale: float) -> list[Trace]:
    """The processes behind the baseline, in a place of their own ahead of this run's."""
    medians = thinned([value for value in row.baseline_medians_s if drawable(value / scale)], MOST_POINTS // 4)
    if not medians:
        return []
    return [
        {
            "type": "scatter",
            "x": [_offset(index, len(medians)) for index in range(len(medians))],
            "y": [value / scale for value in medians],
            "mode": "markers",
            "marker": {"symbol": "diamond", "size": 9, "color": COLOURS[2], "line": {"color": GREY, "width": 1}},
            "name": "process of the baseline, its median",
            "hoverinfo": "text",
            "hovertext": [lines_of(["process of the baseline", format_seconds(value)]) for value in medians],
        }
    ]


def levels(row: Row, scale: float, span: Sequence[float]) -> list[Trace]:
    """Where the baseline lies, and how far from it its tolerance reaches."""
    if row.baseline_time_s is None or row.judgement is None:
        return []
    limit_s = row.baseline_time_s * (1 + row.judgement.tolerance)
    told = [
        (row.baseline_time_s, "baseline", "dot"),
        (limit_s, f"tolerance {format_tolerance(row.judgement.tolerance)}:", "dash"),
    ]
    return [
        level(span, seconds / scale, f"{name} {format_seconds(seconds)}", dash)
        for seconds, name, dash in told
        if drawable(seconds / scale)
    ]
