"""Rates against size, with roofline and baseline; and copies between devices as a matrix."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from statistics import median
from typing import Any, TypeGuard

from ...core.facts import HardwareKey
from ...core.groups import group_by
from ...core.keys import JOB_METRIC
from ...core.rows import Row
from ...core.units import (
    format_bytes,
    format_seconds,
    format_share,
    printable,
    three_digits,
)
from ...core.verdicts import Kind
from ...core.work import rate_suffix
from ...stats.curves import FEWEST_POINTS, summarise
from ..conditions import fit_text, rate_unit
from ..transfers import BY_KERNEL, FEWEST_PAIRS, pair_of, title_of
from .chart import (
    COLOURS,
    DASHES,
    GREY,
    MOST_POINTS,
    MOST_SERIES,
    Grid,
    Plot,
    Trace,
    dashed_line,
    drawable,
    limit_plots,
    lines_of,
    log_axis,
    marks,
    marks_explained,
    plain_figure,
    size_axis,
    thin,
    thinning_note,
    with_legend,
)
from .words import (
    RED,
    ceiling_of,
    ceiling_words,
    devices,
    hover,
    mark_text,
    of_run,
    of_several_runs,
    rate_words,
    roofs_of,
    sentence,
    value_words,
    verdicts,
)

SIZE = "size_bytes"
# The sizes that a series needs.
_FEWEST = 3
# The sections of the page. Each has the quantities of its plots, by metric.
SECTIONS: tuple[tuple[str, dict[str, str]], ...] = (
    ("Bandwidth against size", {"traffic_GBps": "bytes read and written a second",
                                "payload_GBps": "bytes arrived a second",
                                "wirebw_GBps": "bytes over the link a second"}),
    ("Collectives by size and world", {"busbw_GBps": "bus bandwidth", "algbw_GBps": "algorithm bandwidth"}),
    ("Whole programs by size and world", {JOB_METRIC: "time of a program"}),
)  # fmt: skip
# Series that have a sentence each.
MOST_SENTENCES = 3
BETWEEN = "Copies between devices"
# The rate of the darkest cell is at most this share of the brightest one's.
_LEAST_SPAN = 0.7
# Sources and targets of one matrix: as many as a rack has devices.
MOST_DEVICES = 72

# The rows of one line by size in bytes, smallest first.
Series = dict[int, Row]
Pairs = dict[tuple[int, int], Row]


def sweep_plots(rows: Sequence[Row]) -> list[Plot]:
    """Return a plot for each benchmark with several sizes.

    Where it has too many series, they are split into several plots.
    """
    plots = []
    for section, names in SECTIONS:
        rows_of_section = [row for row in rows if _counting(row) in names]
        # A benchmark that copies by a kernel is drawn beside the one that lets the driver copy.
        groups = group_by(
            rows_of_section, lambda row: (row.benchmark.removesuffix(BY_KERNEL), _counting(row))
        )
        sheets = []
        for (benchmark, counting), members in groups.items():
            series = list(series_of(members).items())
            starts = range(0, len(series), MOST_SERIES)
            for number, start in enumerate(starts, 1):
                part = f", part {number} of {len(starts)}" if len(starts) > 1 else ""
                title = f"{benchmark} on {devices(members)}{part}"
                selected = dict(series[start : start + MOST_SERIES])
                sheets.append((section, title, names[counting], selected))
        plots += limit_plots(sheets, lambda sheet: _sweep(*sheet), lambda sheet: _rows(sheet[3]))
    return plots


def _rows(series_by_name: Mapping[str, Series]) -> list[Row]:
    return [row for series in series_by_name.values() for row in series.values()]


def _counting(row: Row) -> str:
    """Return the quantity of a rate, as `SECTIONS` names it.

    It is empty where there is none.
    """
    return JOB_METRIC if row.counting == JOB_METRIC else rate_suffix(row.counting or "") or ""


def _sweep(section: str, title: str, rate_name: str, series_by_name: dict[str, Series]) -> Plot:
    """Return the plot of the rates of series against size.

    Rooflines, the baseline's processes and limits that gate are drawn beside them.
    """
    total = sum(map(len, series_by_name.values()))
    drawn_series = {name: _thin_series(series, total) for name, series in series_by_name.items()}
    rows = _rows(drawn_series)
    unit, unit_name = (
        (1.0, "s") if rows[0].counting == JOB_METRIC else rate_unit(rows[0].counting or "")
    )
    sizes = [size for series in drawn_series.values() for size in series]
    traces: list[Trace] = []
    for number, (ceiling, label) in enumerate(roofs_of(rows), 1):
        dash = DASHES[number % len(DASHES)]
        traces += dashed_line([min(sizes), max(sizes)], [ceiling.value / unit] * 2, label, dash)
    for index, (name, series) in enumerate(drawn_series.items()):
        traces += _baseline(
            series, index, unit, in_legend=not any(trace["name"] == "baseline" for trace in traces)
        )
        ys = [(_height(row) or 0.0) / unit for row in series.values()]
        texts = [hover(row, name) for row in series.values()]
        traces.append(marks(name, list(series), ys, texts, index, rows=list(series.values())))
    traces += _limits(drawn_series.values(), unit) + marks_explained(rows)
    heights = log_axis(f"{rate_name} ({unit_name})", [y for trace in traces for y in trace["y"]])
    layout = {"xaxis": size_axis("size", sizes), "yaxis": heights}
    figure = plain_figure(traces, layout, with_legend(420, len(traces)))
    return Plot(
        section,
        printable(title),
        _sentences(series_by_name) + thinning_note(len(rows), total, "points"),
        figure,
    )


def _height(row: Row) -> float | None:
    """Return the number to draw: a rate, or the time of a whole program."""
    return row.time_s if row.counting == JOB_METRIC else row.rate


def _thin_series(series: Series, total: int) -> Series:
    """Return the points of a series that a figure of `total` points has room for.

    Each series keeps the same share of its points; failed tests are kept first.
    """
    room = len(series) if total <= MOST_POINTS else max(2, len(series) * MOST_POINTS // total)
    return dict(thin(list(series.items()), room, lambda point: point[1].red))


def _baseline(series: Series, index: int, unit: float, *, in_legend: bool) -> list[Trace]:
    """Return error bars over the baseline's processes, one for each size of a series.

    A bar reaches from the slowest to the fastest process. One series of a figure puts them in the
    legend.
    """
    rates = {
        size: [
            rate / unit
            for seconds in row.baseline_medians_s
            if drawable(rate := row.rate_of(seconds))
        ]
        for size, row in series.items()
    }
    spans = {size: (min(ys), median(ys), max(ys)) for size, ys in rates.items() if ys}
    if not spans:
        return []
    bars = {
        "type": "data",
        "symmetric": False,
        "array": [high - middle for _, middle, high in spans.values()],
        "arrayminus": [middle - low for low, middle, _ in spans.values()],
        "color": COLOURS[index % len(COLOURS)],
    }
    return [
        {
            "type": "scatter", "mode": "markers", "x": list(spans),
            "y": [middle for _, middle, _ in spans.values()], "name": "baseline",
            "showlegend": in_legend, "hoverinfo": "skip", "error_y": bars,
            "marker": {"symbol": "line-ew-open", "size": 9, "color": GREY},
        }
    ]  # fmt: skip


def _limits(drawn_series: Iterable[Series], unit: float) -> list[Trace]:
    """Return the marks of limits that gate.

    A limit is a published one, or a share of the roofline.
    """
    limits = [
        (size, row, rate)
        for series in drawn_series
        for size, row in series.items()
        if row.time_verdict is not None and drawable(rate := row.rate_of(row.time_verdict.limit_s))
    ]
    marker = {
        "symbol": "line-ew-open",
        "size": 22,
        "color": GREY,
        "line": {"width": 3, "color": GREY},
    }
    trace = {
        "type": "scatter", "mode": "markers", "marker": marker, "name": "limit that gates", "hoverinfo": "text",
        "x": [size for size, _, _ in limits], "y": [rate / unit for _, _, rate in limits],
        "hovertext": [lines_of([row.label, row.reason]) for _, row, _ in limits],
    }  # fmt: skip
    return [trace] if limits else []


def series_of(rows: Sequence[Row]) -> dict[str, Series]:
    """Return the series of one benchmark by name.

    A series has three sizes or more. There are none where no parameter is the size.
    """
    parameter = size_parameter(rows)
    by_parts: dict[tuple[str, ...], Series] = {}
    for row in rows:
        size = row.parameters.get(SIZE) if parameter == SIZE else row.size_bytes
        if parameter is not None and _is_positive_integer(size) and drawable(_height(row)):
            by_parts.setdefault(_parts(row, parameter), {})[size] = row
    names = _names(list(by_parts))
    series = {
        names[parts]: dict(sorted(rows_of_size.items()))
        for parts, rows_of_size in by_parts.items()
        if len(rows_of_size) >= _FEWEST
    }
    return dict(sorted(series.items(), key=lambda pair: natural(pair[0])))


def _is_positive_integer(value: object) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def natural(name: str) -> list[tuple[str, int]]:
    """Return a sort key that puts `2 ranks` before `16 ranks`.

    Sorted names have the same order in every run, whichever tests failed.
    """
    return [
        (text, int(digits or 0)) for text, digits in re.findall(r"([^0-9]*)([0-9]{0,18})", name)
    ]


def size_parameter(rows: Iterable[Row]) -> str | None:
    """Return the parameter that is the size, or None.

    It is `size_bytes`, else a whole number to which the bytes of the work are proportional.
    """
    bytes_per_unit: dict[str, dict[Any, float]] = {}
    for row in rows:
        for name, value in row.parameters.items():
            if _is_positive_integer(value):
                bytes_per_unit.setdefault(name, {})[value] = (row.size_bytes or 0) / value
    if SIZE in bytes_per_unit:
        return SIZE
    # Such a parameter has several values, all with the same bytes per unit, and every test of it moves bytes.
    proportional = (
        name
        for name, factors in bytes_per_unit.items()
        if len(factors) > 1 and len({*factors.values()}) == 1 and 0 not in factors.values()
    )
    return next(proportional, None)


def _parts(row: Row, size_parameter: str) -> tuple[str, ...]:
    """Return the parts of a row that may name its series.

    Rows with equal parts are points of one series; they differ in their size only.
    """
    assert row.key is not None
    parameters = ", ".join(
        value_words(name, value) for name, value in row.parameters.items() if name != size_parameter
    )
    hardware = _without_count(row.key.hardware)
    engine = BY_KERNEL.strip("_") if row.benchmark.endswith(BY_KERNEL) else ""
    return (
        parameters,
        engine,
        row.name,
        row.key.metric,
        row.key.cache,
        row.key.timing,
        hardware,
        f"run {row.run}",
    )


@lru_cache(maxsize=256)
def _without_count(hardware: HardwareKey) -> str:
    """Return hardware without its number of devices.

    The name of a series has that number already, as the number of ranks.
    """
    return str(replace(hardware, devices=1))


def _names(series: Sequence[tuple[str, ...]]) -> dict[tuple[str, ...], str]:
    """Return the names of series, made of their parts.

    The first part, the parameters, is always in a name; another part only where series differ in it.
    """
    differs = [len(set(values)) > 1 for values in zip(*series, strict=True)]
    return {
        parts: ", ".join(
            part for place, part in enumerate(parts) if part and (place == 0 or differs[place])
        )
        or "this run"
        for parts in series
    }


def _sentences(series_by_name: dict[str, Series]) -> str:
    """Return a sentence for each of the worst series.

    The sentence has the plateau beside the roofline, and the sizes that are slower.
    """
    worst = sorted(
        series_by_name, key=lambda name: -sum(row.red for row in series_by_name[name].values())
    )
    texts = [f"{name}: {_series_text(series_by_name[name])}." for name in worst[:MOST_SENTENCES]]
    if len(worst) == 1:
        texts = [sentence(_series_text(series_by_name[worst[0]]))]
    if len(worst) > MOST_SENTENCES:
        texts.append(f"{len(worst) - MOST_SENTENCES} more series are in the figure.")
    if any(row.baseline_medians_s for row in _rows(series_by_name)):
        texts.append("A bar reaches from the slowest to the fastest process of the baseline.")
    return printable(" ".join(texts))


def _series_text(series: Series) -> str:
    """Return the plateau and verdicts of a series, as the text on it.

    It reads `plateau 3.9 TB/s, 81.2 % of the datasheet's 4.8 TB/s; 2 of 20 sizes slower …`.
    """
    valid_rows = [row for row in series.values() if row.verdict != Kind.INVALID]
    sizes = {id(row): format_bytes(size) for size, row in series.items()}
    cached_count = sum("cache_resident" in (row.labels or ()) for row in valid_rows)
    texts = [
        _plateau(valid_rows),
        verdicts(list(series.values()), "size", lambda row: sizes[id(row)]),
    ]
    if cached_count:
        texts.append(
            f"sizes small enough to stay in a cache, where the roofline is no limit: {cached_count}"
        )
    return "; ".join(texts)


def _plateau(rows: Sequence[Row]) -> str:
    """Return the plateau of the rate of a series beside the roofline, as text.

    The plateau is the median rate of the largest third of the sizes. With few sizes, the text has
    the rate of the largest size; for a whole program it has the fit of latency and bandwidth.
    """
    if not rows:
        return "no valid size"
    if rows[0].counting == JOB_METRIC:
        curves = summarise(row.measurement for row in rows if row.measurement is not None)
        return (
            fit_text(curves[0])
            if curves
            else f"{format_seconds(rows[-1].time_s or 0.0)} at the largest size"
        )
    # Rows are in the order of their sizes.
    last, largest = rows[-max(2, len(rows) // 3) :], rows[-1]
    # The terminal's line on a sweep needs as many sizes for a plateau.
    has_plateau = len(rows) >= FEWEST_POINTS
    value = median(row.rate or 0.0 for row in last) if has_plateau else largest.rate or 0.0
    rate = rate_words(value, largest.counting or "")
    text = f"plateau {rate}" if has_plateau else f"{rate} at the largest size"
    ceiling = ceiling_of(largest)
    if ceiling is None or largest.roofline_share is None or not largest.rate:
        return text
    # The share is known for the largest size; that of the plateau is in proportion to its rate.
    share = largest.roofline_share * value / largest.rate
    source = "the datasheet's" if ceiling.source == "datasheet" else "the measured"
    return f"{text}, {format_share(share)} of {source} {rate_words(ceiling.value, ceiling.metric)}"


def peer_plots(rows: Sequence[Row]) -> list[Plot]:
    """Return a matrix of rates between devices for every benchmark and size.

    A matrix needs three pairs of devices or more.
    """
    copies = [
        row
        for row in rows
        if pair_of(row) is not None and rate_suffix(row.counting or "") is not None
    ]
    has_several_runs = of_several_runs(copies)
    groups = group_by(
        copies, lambda row: (f"{title_of(row)}, {row.counting}", of_run(row, has_several_runs))
    )
    plots = []
    for (title, run), members in groups.items():
        pairs = {pair: row for row in members if (pair := pair_of(row)) is not None}
        if len(pairs) >= FEWEST_PAIRS:
            plots.append((f"{title} on {devices(members)}{run}", pairs))
    return limit_plots(
        plots,
        lambda plot: _matrix(*plot),
        lambda plot: plot[1].values(),
    )


def _select_pairs(pairs: Pairs) -> Pairs:
    """Return as many pairs as a figure has room for.

    The numbers of sources and targets are limited. Those of failed tests are chosen first.
    """
    sources: set[int] = set()
    targets: set[int] = set()
    for source, target in sorted(pairs, key=lambda pair: (not pairs[pair].red, pair)):
        if len(sources | {source}) <= MOST_DEVICES and len(targets | {target}) <= MOST_DEVICES:
            sources.add(source)
            targets.add(target)
    return {pair: row for pair, row in pairs.items() if pair[0] in sources and pair[1] in targets}


def _matrix(title: str, pairs: Pairs) -> Plot:
    """Return the rates of copies between pairs of devices as coloured cells, sources by targets."""
    selected = _select_pairs(pairs)
    sources, targets = (sorted({pair[end] for pair in selected}) for end in (0, 1))
    unit, unit_name = rate_unit(next(iter(selected.values())).counting or "")
    valid_rates = [
        row.rate
        for row in selected.values()
        if row.rate is not None and row.verdict != Kind.INVALID
    ]
    high = max(valid_rates, default=1.0)
    # On a scale from zero, a difference of a few percent would not show. On a scale from the lowest rate, it would look
    # like a collapse.
    low = min([*valid_rates, _LEAST_SPAN * high])

    def cell(pair: tuple[int, int]) -> tuple[str, float, str]:
        """Return the text of a cell, its darkness from 0 to 1, and its hover text."""
        row = selected.get(pair)
        if row is None:
            return "", 0.0, ""
        text = mark_text(row, three_digits((row.rate or 0.0) / unit))
        is_valid = row.rate is not None and row.verdict != Kind.INVALID
        # Where all rates are equal, 1.0 keeps the division from failing.
        darkness = (high - (row.rate or 0.0)) / ((high - low) or 1.0) if is_valid else 0.0
        return text, round(darkness, 2), "; ".join(filter(None, hover(row, row.label)))

    rows = [(f"{source}", [cell((source, target)) for target in targets]) for source in sources]
    roofs = {ceiling for row in pairs.values() if (ceiling := ceiling_of(row)) is not None}
    title = ", ".join([title, *(ceiling_words(roof) for roof in roofs if len(roofs) == 1)])
    caption = _pairs_text(pairs) + thinning_note(len(selected), len(pairs), "pairs")
    return Plot(
        BETWEEN,
        printable(title),
        caption,
        Grid(f"{unit_name} from ↓ to →", [*map(str, targets)], rows),
    )


def _pairs_text(pairs: Pairs) -> str:
    """Return the lowest, median and highest rate of pairs.

    It reads `Lowest 312 GB/s for 2→5, median 390 GB/s, highest 395 GB/s for 0→1; …`.
    """
    rates = {
        pair: row.rate
        for pair, row in pairs.items()
        if row.verdict != Kind.INVALID and row.rate is not None
    }
    counts = f"{verdicts(list(pairs.values()), 'pair', lambda row: '→'.join(map(str, pair_of(row) or ())))}."
    if not rates:
        return f"No pair has a valid number; {counts}"
    low, high = (bound(rates, key=lambda pair: rates[pair]) for bound in (min, max))
    metric = next(iter(pairs.values())).counting or ""
    text = (
        f"Lowest {rate_words(rates[low], metric)} for {low[0]}→{low[1]}, "
        f"median {rate_words(median(rates.values()), metric)}, "
        f"highest {rate_words(rates[high], metric)} for {high[0]}→{high[1]}"
    )
    red_note = f" {RED} marks a failed test." if any(row.red for row in pairs.values()) else ""
    return f"{text}; {counts} Darker cells are slower.{red_note}"
