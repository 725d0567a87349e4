"""Rates against size on log axes: the roofline dashed, the baseline's band, and the points of each series."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median

from ...core.facts import HardwareKey
from ...core.keys import Scalar
from ...core.rows import Row
from ...core.units import format_bytes, format_share, printable, size_label
from ...core.work import rate_suffix
from ...stats.verdicts import Kind
from .chart import (
    GREY,
    MOST_POINTS,
    MOST_ROWS,
    MOST_SERIES,
    Plot,
    Trace,
    dashed,
    drawable,
    limited,
    lines_of,
    log_axis,
    marks,
    marks_explained,
    plain_figure,
    size_axis,
    style,
    thinned,
    thinned_note,
    with_legend,
)
from .words import COLUMNS, cells, devices, hover, rate_unit, rate_words, roofs_of, sentence, verdicts

SIZE = "size_bytes"
# By section, what a rate counts, by metric; and how many sizes make a line. A world is a line of its own, so that two
# sizes of each already show what size and world do.
SECTIONS: tuple[tuple[str, dict[str, str], int], ...] = (
    ("Bandwidth against size", {"traffic_GBps": "bytes read and written a second",
                                "payload_GBps": "bytes arrived a second",
                                "wirebw_GBps": "bytes over the link a second"}, 3),
    ("Collectives by size and world", {"busbw_GBps": "bus bandwidth", "algbw_GBps": "algorithm bandwidth"}, 2),
)  # fmt: skip
# Fewer sizes make no plateau; as in the terminal's line on a sweep.
FEWEST_POINTS = 4
# So many series are told in a sentence each.
MOST_TOLD = 3
# How far a band reaches to both sides of a size that has no neighbour.
_WIDER = 1.08


@dataclass(frozen=True, slots=True)
class Series:
    """Points to be joined by a line, by size.

    Args:
        name: what tells it from the others of its figure.
        points: size in bytes and row.
        unresolved: how many sizes have no rate to be drawn, as where they took less than the clock can tell.
    """

    name: str
    points: tuple[tuple[int, Row], ...]
    unresolved: int = 0

    @property
    def rows(self) -> list[Row]:
        return [row for _, row in self.points]


def sweep_plots(rows: Sequence[Row]) -> list[Plot]:
    """A plot for each benchmark with several sizes; with many series it takes several."""
    plots = []
    for section, counted, fewest in SECTIONS:
        groups: dict[tuple[str, str], list[Row]] = {}
        for row in rows:
            suffix = rate_suffix(row.counting or "")
            if suffix in counted:
                groups.setdefault((row.benchmark, suffix), []).append(row)
        sheets = []
        for (benchmark, suffix), members in groups.items():
            found = series_of(members, fewest)
            parts = [found[start : start + MOST_SERIES] for start in range(0, len(found), MOST_SERIES)]
            for number, part in enumerate(parts, 1):
                told = f", part {number} of {len(parts)}" if len(parts) > 1 else ""
                sheets.append((section, f"{benchmark} on {devices(members)}{told}", counted[suffix], part))
        plots += limited(sheets, lambda sheet: _plot(*sheet), lambda sheet: any(_red(one) for one in sheet[3]))
    return plots


def _red(one: Series) -> bool:
    return any(row.red for row in one.rows)


def _plot(section: str, title: str, rate_name: str, all_series: Sequence[Series]) -> Plot:
    total = sum(len(one.points) for one in all_series)
    drawn = [_thinned(one, total) for one in all_series]
    rows = [row for one in drawn for row in one.rows]
    unit, unit_name = rate_unit(rows[0].counting or "")
    sizes = [size for one in drawn for size, _ in one.points]
    traces: list[Trace] = []
    for ceiling, label, told in roofs_of(rows):
        traces += dashed([min(sizes), max(sizes)], [ceiling.value / unit] * 2, label, told=told)
    for index, one in enumerate(drawn):
        # One entry of the legend explains all bands, which have their series' colours.
        explained = not any(trace["name"] == "baseline" for trace in traces)
        traces += _band(one, index, unit, explained=explained)
        ys = [(row.rate or 0.0) / unit for row in one.rows]
        beside = [hover(row, one.name) for row in one.rows]
        traces.append(marks(one.name, [size for size, _ in one.points], ys, beside, index, rows=one.rows))
    traces += _limits(drawn, unit) + marks_explained(rows)
    heights = [y for trace in traces for y in trace["y"]]
    layout = {"xaxis": size_axis("size", sizes), "yaxis": log_axis(f"{rate_name} ({unit_name})", heights)}
    pairs = [(row, one.name) for one in all_series for row in one.rows]
    shown = thinned(pairs, MOST_ROWS, lambda pair: pair[0].red)
    notes = thinned_note(len(rows), total, "points") + thinned_note(len(shown), len(pairs), "rows of the table")
    return Plot(
        section=section,
        title=printable(title),
        says=_says(all_series) + notes,
        figure=plain_figure(traces, layout, with_legend(420, len(traces))),
        columns=COLUMNS,
        rows=[cells(row, name) for row, name in shown],
    )


def _thinned(one: Series, total: int) -> Series:
    share = len(one.points) if total <= MOST_POINTS else max(2, len(one.points) * MOST_POINTS // total)
    return replace(one, points=tuple(thinned(one.points, share, lambda point: point[1].red)))


def _band(one: Series, index: int, unit: float, *, explained: bool) -> list[Trace]:
    """The band from the slowest to the fastest process of the baseline; sizes without one part it."""
    colour, _, _ = style(index)
    parts: list[list[tuple[float, float, float]]] = [[]]
    for place, row in one.points:
        rates = [rate / unit for seconds in row.baseline_medians_s if drawable(rate := row.rate_of(seconds))]
        if rates:
            parts[-1].append((place, min(rates), max(rates)))
        elif parts[-1]:
            parts.append([])
    xs: list[float | None] = []
    ys: list[float | None] = []
    for part in filter(None, parts):
        size, low, high = part[0]
        wide = part if len(part) > 1 else [(size / _WIDER, low, high), (size * _WIDER, low, high)]
        xs += [*(x for x, _, _ in wide), *(x for x, _, _ in reversed(wide)), None]
        ys += [*(top for _, _, top in wide), *(bottom for _, bottom, _ in reversed(wide)), None]
    if not xs:
        return []
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return [
        {
            "type": "scatter", "mode": "lines", "x": xs[:-1], "y": ys[:-1], "fill": "toself", "name": "baseline",
            "showlegend": explained, "legendgroup": f"series {index}", "hoverinfo": "skip",
            "fillcolor": f"rgba({red},{green},{blue},0.22)", "line": {"width": 0.5, "color": colour},
        }
    ]  # fmt: skip


def _limits(drawn: Sequence[Series], unit: float) -> list[Trace]:
    """A mark where a published limit or a share of the roofline gates."""
    held = [(size, row, row.rate_of(row.judgement.limit_s)) for one in drawn for size, row in one.points
            if row.judgement is not None]  # fmt: skip
    held = [one for one in held if drawable(one[2])]
    marker = {"symbol": "line-ew-open", "size": 22, "color": GREY, "line": {"width": 3, "color": GREY}}
    trace = {
        "type": "scatter", "mode": "markers", "marker": marker, "name": "limit that gates", "hoverinfo": "text",
        "x": [size for size, _, _ in held], "y": [(rate or 0.0) / unit for _, _, rate in held],
        "hovertext": [lines_of([row.label, row.reason]) for _, row, _ in held],
    }  # fmt: skip
    return [trace] if held else []


def series_of(rows: Sequence[Row], fewest: int) -> list[Series]:
    """The series of one benchmark by name, each of at least so many sizes; none where no parameter is the size.

    Args:
        rows: measurements of one benchmark.
        fewest: sizes that make a line.
    """
    parameter = size_parameter(rows)
    if parameter is None:
        return []
    found: dict[tuple[str, ...], dict[int, Row]] = {}
    unresolved: Counter[tuple[str, ...]] = Counter()
    for row in rows:
        size = row.parameters.get(SIZE) if parameter == SIZE else row.size_bytes
        if isinstance(size, int) and not isinstance(size, bool) and size > 0:
            parts = _parts(row, parameter)
            if drawable(row.rate):
                found.setdefault(parts, {})[size] = row
            else:
                unresolved[parts] += 1
    names = _names([*found, *unresolved])
    made = [
        Series(names[parts], tuple(sorted(points.items(), key=lambda pair: pair[0])), unresolved[parts])
        for parts, points in found.items()
        if len(points) >= fewest
    ]
    return sorted(made, key=lambda one: natural(one.name))


def natural(name: str) -> list[tuple[str, int]]:
    """A key that sorts `2 ranks` before `16 ranks`, so that an order does not depend on what failed."""
    return [(text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]{0,18})", name)]


def size_parameter(rows: Iterable[Row]) -> str | None:
    """The parameter that is the size: `size_bytes`, else a whole number that the work's size is a multiple of."""
    factors: dict[str, set[float]] = {}
    values: dict[str, set[int]] = {}
    for row in rows:
        for name, value in row.parameters.items():
            if isinstance(value, int) and not isinstance(value, bool) and value > 0:
                factors.setdefault(name, set()).add((row.size_bytes or 0) / value)
                values.setdefault(name, set()).add(value)
    if SIZE in values:
        return SIZE
    fixed = (name for name in factors if len(factors[name]) == 1 and 0 not in factors[name] and len(values[name]) > 1)
    return next(fixed, None)


def _parts(row: Row, size_parameter: str) -> tuple[str, ...]:
    """What may tell a row's series from the others of its benchmark."""
    assert row.key is not None
    parameters = ", ".join(_value(name, value) for name, value in row.parameters.items() if name != size_parameter)
    hardware = _without_count(row.key.hardware)
    return parameters, row.name, row.key.metric, row.key.cache, row.key.timing, hardware, f"run {row.run}"


@lru_cache(maxsize=256)
def _without_count(hardware: HardwareKey) -> str:
    """How many devices there are, the size of the world says already."""
    return str(replace(hardware, devices=1))


def _names(found: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """The parameters, and whatever else differs between any two."""
    differs = [len(set(values)) > 1 for values in zip(*found, strict=True)]
    told = {
        parts: [part for index, part in enumerate(parts) if part and (index == 0 or differs[index])] for parts in found
    }
    return {parts: ", ".join(names) or "this run" for parts, names in told.items()}


def _value(name: str, value: Scalar) -> str:
    """The value of a parameter as it stands in the name of a series."""
    if isinstance(value, bool) or not isinstance(value, int):
        return f"{value}"
    if name.endswith("_bytes"):
        return size_label(value)
    # A bare number would say nothing.
    return f"{value} ranks" if name == "world_size" else f"{name} {value}"


def _says(all_series: Sequence[Series]) -> str:
    """What each of the worst series says: its plateau beside the roofline, and which sizes got slower."""
    worst = sorted(all_series, key=lambda one: -sum(row.red for row in one.rows))
    named = len(all_series) > 1
    told = [f"{one.name}: {_sentence(one)}." if named else sentence(_sentence(one)) for one in worst[:MOST_TOLD]]
    more = f" {len(worst) - MOST_TOLD} more series are in the figure." if len(worst) > MOST_TOLD else ""
    banded = any(row.baseline_medians_s for one in all_series for row in one.rows)
    band = " A band reaches from the slowest to the fastest process of the baseline." if banded else ""
    return printable(" ".join(told) + more + band)


def _sentence(one: Series) -> str:
    """`plateau 3.9 TB/s, 81.2 % of the datasheet's 4.8 TB/s; 2 of 20 sizes slower …`."""
    sound = [row for row in one.rows if row.verdict != Kind.INVALID]
    sizes = {id(row): format_bytes(size) for size, row in one.points}
    parts = [_plateau(sound), verdicts(one.rows, "size", lambda row: sizes[id(row)])]
    cached = sum("cache_resident" in (row.labels or ()) for row in sound)
    parts += [f"{cached} small enough to stay in a cache, which the roofline does not bound"] * bool(cached)
    bare = f"{one.unresolved} without a rate to be drawn, as below the clock's resolution"
    return "; ".join([*parts, *[bare] * bool(one.unresolved)])


def _plateau(rows: Sequence[Row]) -> str:
    """The median rate of the largest third of the sizes beside the roofline; of few sizes the rate of the largest."""
    if not rows:
        return "no size to be trusted"
    last, largest = rows[-max(2, len(rows) // 3) :], rows[-1]
    enough = len(rows) >= FEWEST_POINTS
    value = median(row.rate or 0.0 for row in last) if enough else largest.rate or 0.0
    reached = rate_words(value, largest.counting or "")
    text = f"plateau {reached}" if enough else f"{reached} at the largest size"
    ceiling = largest.measurement.ceiling if largest.measurement is not None else None
    if ceiling is None or largest.roofline_share is None or not largest.rate:
        return text
    share = largest.roofline_share * value / largest.rate
    whose = "the datasheet's" if ceiling.source == "datasheet" else "the measured"
    return f"{text}, {format_share(share)} of {whose} {rate_words(ceiling.value, ceiling.metric)}"
