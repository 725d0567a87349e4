"""A rate against size on log axes: the roofline dashed, the baseline's band, and the points of this run."""

from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from ....core.records import Ceiling
from ....core.units import format_bytes, format_share, printable
from ....judging.report_rows import ReportRow
from ..plot import Plot
from .drawing import (
    GREY,
    MOST_POINTS,
    MOST_ROWS,
    RED_SYMBOL,
    Trace,
    legend_only,
    level,
    lines_of,
    log_axis,
    plain_figure,
    safe,
    short,
    size_axis,
    style,
    thinned,
    thinned_note,
)
from .series import Series
from .words import COLUMNS, INVALID, cells, hover, rate_at, rate_unit, rate_words, roof_label, sentence, verdicts

# So many series are told in a sentence each.
MOST_TOLD = 3
# How far a band reaches to both sides of a size that has no neighbour.
_WIDER = 1.08


def sweep_plot(section: str, title: str, all_series: Sequence[Series], rate_name: str) -> Plot:
    """One figure of some series that share an axis.

    Args:
        section: of the page.
        title: of the plot.
        all_series: at most as many as there are styles.
        rate_name: what the vertical axis shows, without its unit.
    """
    total = sum(len(one.points) for one in all_series)
    drawn = [_drawn(one, total) for one in all_series]
    metric = _metric(all_series[0].rows[0])
    unit, unit_name = rate_unit(metric)
    sizes = [size for one in drawn for size in one.sizes]
    ceilings = _ceilings([row for one in drawn for row in one.rows])
    traces = [level(sizes, ceiling.value / unit, text, dash) for ceiling, text, dash in ceilings]
    banded = [index for index, one in enumerate(drawn) if any(row.reference_medians_s for row in one.rows)]
    for index, one in enumerate(drawn):
        # One entry of the legend explains all bands, which have their series' colours.
        traces += _baseline(one, index, unit, explained=index == banded[0]) if index in banded else []
        traces.append(_points(one, index, unit))
    traces += _limits(drawn, unit) + _legend([row for one in drawn for row in one.rows])
    heights = [y for trace in traces for y in trace["y"] if y is not None]
    layout = {
        "xaxis": size_axis("size", sizes),
        "yaxis": log_axis(f"{rate_name} ({unit_name})", heights),
    }
    pairs = [(row, one.name) for one in all_series for row in one.rows]
    shown = thinned(pairs, MOST_ROWS, lambda pair: pair[0].red)
    says = _says(all_series) + thinned_note(sum(len(one.points) for one in drawn), total, "points")
    return Plot(
        section=section,
        title=printable(title),
        says=says + thinned_note(len(shown), len(pairs), "rows of the table"),
        figure=plain_figure(traces, layout, height=420 + 22 * min(6, len(traces))),
        columns=COLUMNS,
        rows=[cells(row, name) for row, name in shown],
    )


def _metric(row: ReportRow) -> str:
    assert row.measurement is not None
    return row.measurement.key.metric


def _drawn(one: Series, total: int) -> Series:
    if total <= MOST_POINTS:
        return one
    share = max(2, len(one.points) * MOST_POINTS // total)
    return replace(one, points=tuple(thinned(one.points, share, lambda point: point[1].red)))


def _ceilings(rows: Sequence[ReportRow]) -> list[tuple[Ceiling, str, str]]:
    """Each roofline once with its text and its dash: those of datasheets, and measured ones, each run's as a median."""
    found: dict[tuple[object, ...], list[Ceiling]] = {}
    for row in rows:
        ceiling = row.measurement.ceiling if row.measurement is not None else None
        if ceiling is not None and ceiling.source == "datasheet":
            found.setdefault((ceiling.metric, ceiling.value), []).append(ceiling)
        elif ceiling is not None:
            found.setdefault((ceiling.metric, row.run.header.run_id), []).append(ceiling)
    told = []
    for same in found.values():
        values = sorted({ceiling.value for ceiling in same})
        middle = Ceiling(same[0].metric, median(values), same[0].source, same[0].origin)
        several = f", median of {len(values)}" if len(values) > 1 else ""
        text = roof_label(middle).removesuffix(")") + f"{several})"
        told.append((middle, text, "dash" if middle.source == "datasheet" else "dot"))
    return told


def _points(one: Series, index: int, unit: float) -> Trace:
    colour, symbol, dash = style(index)
    return {
        "type": "scatter",
        "x": one.sizes,
        "y": [(row.rate or 0.0) / unit for row in one.rows],
        "mode": "lines+markers",
        "name": safe(short(one.name)),
        "legendgroup": f"series {index}",
        "line": {"color": colour, "dash": dash, "width": 2},
        "marker": {
            "color": colour,
            "symbol": [_symbol(row, symbol) for row in one.rows],
            "size": [13 if row.red else 9 for row in one.rows],
            "line": {"color": GREY, "width": 1},
            "opacity": 1,
        },
        "hoverinfo": "text",
        "hovertext": [lines_of(hover(row, one.name)) for row in one.rows],
    }


def _symbol(row: ReportRow, symbol: str) -> str:
    if row.red:
        return RED_SYMBOL
    return f"{symbol}-open" if row.word == INVALID else symbol


def _baseline(one: Series, index: int, unit: float, *, explained: bool) -> list[Trace]:
    """The band from the slowest to the fastest process of the baseline, and a thin line where its centre is."""
    colour, _, _ = style(index)
    xs: list[float | None] = []
    ys: list[float | None] = []
    for run in _neighbours(one):
        xs += [*(size for size, _, _ in run), *(size for size, _, _ in reversed(run)), None]
        ys += [*(high for _, _, high in run), *(low for _, low, _ in reversed(run)), None]
    group = {"legendgroup": f"series {index}", "type": "scatter", "hoverinfo": "skip", "mode": "lines"}
    band = {"x": xs[:-1], "y": [None if y is None else y / unit for y in ys[:-1]], "fill": "toself"}
    centres = [rate_at(row, row.reference_s) for row in one.rows]
    return [
        {
            **group,
            **band,
            "name": "baseline",
            "showlegend": explained,
            "fillcolor": _faint(colour),
            "line": {"width": 0.5, "color": colour},
        },
        {
            **group,
            "x": one.sizes,
            "y": [None if rate is None else rate / unit for rate in centres],
            "line": {"color": colour, "width": 1, "dash": "dot"},
            "name": safe(short(f"baseline of {one.name}, centre")),
            "showlegend": False,
        },
    ]


def _neighbours(one: Series) -> list[list[tuple[float, float, float]]]:
    """Size, lowest and highest rate of the baseline's processes, in runs of sizes that all have them."""
    runs: list[list[tuple[float, float, float]]] = [[]]
    for size, row in one.points:
        rates = [rate for seconds in row.reference_medians_s if (rate := rate_at(row, seconds)) is not None]
        if rates:
            runs[-1].append((size, min(rates), max(rates)))
        elif runs[-1]:
            runs.append([])
    return [_widened(run) for run in runs if run]


def _widened(run: list[tuple[float, float, float]]) -> list[tuple[float, float, float]]:
    if len(run) > 1:
        return run
    size, low, high = run[0]
    return [(size / _WIDER, low, high), (size * _WIDER, low, high)]


def _faint(colour: str) -> str:
    red, green, blue = (int(colour[start : start + 2], 16) for start in (1, 3, 5))
    return f"rgba({red},{green},{blue},0.22)"


def _limits(drawn: Sequence[Series], unit: float) -> list[Trace]:
    """A mark where a published limit or a share of the roofline gates: where the difference that was found begins."""
    held = [(size, row) for one in drawn for size, row in one.points if _limit_rate(row) is not None]
    if not held:
        return []
    return [
        {
            "type": "scatter",
            "x": [size for size, _ in held],
            "y": [(_limit_rate(row) or 0.0) / unit for _, row in held],
            "mode": "markers",
            "marker": {"symbol": "line-ew-open", "size": 22, "color": GREY, "line": {"width": 3, "color": GREY}},
            "name": "limit that gates",
            "hoverinfo": "text",
            "hovertext": [lines_of([row.label, row.reason]) for _, row in held],
        }
    ]


def _limit_rate(row: ReportRow) -> float | None:
    """The rate that just meets what a row was held against in place of a baseline; None where it was not."""
    if row.change is None or row.change <= -1 or row.reference_s is not None or row.seconds is None:
        return None
    return rate_at(row, row.seconds / (1 + row.change))


def _legend(rows: Sequence[ReportRow]) -> list[Trace]:
    red = [legend_only("test failed", RED_SYMBOL)] if any(row.red for row in rows) else []
    invalid = any(row.word == INVALID and not row.red for row in rows)
    return red + ([legend_only("INVALID: not to be trusted", "circle-open")] if invalid else [])


def _says(all_series: Sequence[Series]) -> str:
    worst = sorted(all_series, key=lambda one: -sum(row.red for row in one.rows))
    named = len(all_series) > 1
    told = [f"{one.name}: {_sentence(one)}." if named else sentence(_sentence(one)) for one in worst[:MOST_TOLD]]
    more = f" {len(worst) - MOST_TOLD} more series are in the figure." if len(worst) > MOST_TOLD else ""
    banded = any(row.reference_medians_s for one in all_series for row in one.rows)
    band = " A band reaches from the slowest to the fastest process of the baseline." if banded else ""
    return printable(" ".join(told) + more + band)


def _sentence(one: Series) -> str:
    """`plateau 3.9 TB/s, 81.2 % of the datasheet's 4.8 TB/s; 2 of 20 sizes slower …`."""
    sound = [row for row in one.rows if row.word != INVALID]
    bare = [f"{one.unresolved} below the clock's resolution, without a rate"] if one.unresolved else []
    sizes = {id(row): format_bytes(size) for size, row in one.points}
    found = verdicts(one.rows, "sizes", lambda row: sizes[id(row)])
    return "; ".join([*_plateau(sound), found, *_cached(sound), *bare])


def _plateau(rows: Sequence[ReportRow]) -> list[str]:
    """The median rate of the largest third of the sizes, as in the terminal's line on a sweep."""
    if not rows:
        return ["no size to be trusted"]
    last = rows[-max(2, len(rows) // 3) :]
    value, largest = median(row.rate or 0.0 for row in last), last[-1]
    text = f"plateau {rate_words(value, _metric(largest))}"
    ceiling = largest.measurement.ceiling if largest.measurement is not None else None
    if ceiling is None or largest.share_of_ceiling is None or not largest.rate:
        return [text]
    share = largest.share_of_ceiling * value / largest.rate
    whose = "the datasheet's" if ceiling.source == "datasheet" else "the measured"
    return [f"{text}, {format_share(share)} of {whose} {rate_words(ceiling.value, ceiling.metric)}"]


def _cached(rows: Sequence[ReportRow]) -> list[str]:
    count = sum("cache_resident" in row.measurement.samples.labels for row in rows if row.measurement is not None)
    return [f"{count} small enough to stay in a cache, which the roofline does not bound"] if count else []
