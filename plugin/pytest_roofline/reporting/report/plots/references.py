"""What a sweep is held against: rooflines, the baseline's band, and limits that gate."""

from collections.abc import Sequence
from dataclasses import dataclass

from ....core.records import Ceiling
from ....core.rows import Row
from .axes import median_of
from .drawing import GREY, Trace, level, lines_of, safe, short, style
from .series import Series
from .words import device, rate_at, rate_words, roof_label

# How far a band reaches to both sides of a size that has no neighbour.
_WIDER = 1.08
# Runs whose own measured roofline stands beside the pointer.
_MOST_TOLD = 8


@dataclass(frozen=True, slots=True)
class Roof:
    """A roofline of what is drawn: one line, however many runs measured it.

    Args:
        ceiling: its value; of several measured ones their median.
        label: its text.
        told: what stands beside the pointer: of several measured ones each run's own.
    """

    ceiling: Ceiling
    label: str
    told: Sequence[str]


def roofs_of(rows: Sequence[Row]) -> list[Roof]:
    """Each roofline once: those of datasheets, and for each device the median of what its runs measured."""
    found: dict[tuple[object, ...], list[tuple[str, Ceiling]]] = {}
    for row in rows:
        ceiling = row.measurement.ceiling if row.measurement is not None else None
        if ceiling is not None:
            value = ceiling.value if ceiling.source == "datasheet" else None
            found.setdefault((ceiling.metric, device(row), value), []).append((row.run or "", ceiling))
    devices = len({product for _, product, _ in found}) > 1
    return [_roof(same, f", {product}" if devices else "") for (_, product, _), same in found.items()]


def _roof(same: Sequence[tuple[str, Ceiling]], whose: str) -> Roof:
    first = same[0][1]
    values = {ceiling.value for _, ceiling in same}
    middle = Ceiling(first.metric, median_of(values), first.source, first.origin)
    runs: dict[str, list[float]] = {}
    for name, ceiling in same:
        runs.setdefault(name, []).append(ceiling.value)
    several = ""
    if len(values) > 1:
        # No longer than a phone has room for.
        several = f" in {len(runs)} runs" if len(runs) > 1 else f", median of {len(values)}"
    label = f"{roof_label(middle).removesuffix(')')}{several}{whose})"
    own = [f"run {name}: {rate_words(median_of(each), first.metric)}" for name, each in runs.items()] if several else []
    more = [f"and {len(own) - _MOST_TOLD} more runs"] if len(own) > _MOST_TOLD else []
    return Roof(middle, label, [label + ", their median:" * (len(own) > 1), *own[:_MOST_TOLD], *more])


def roof_level(xs: Sequence[float], roof: Roof, unit: float) -> Trace:
    """A roofline that does not depend on the horizontal axis, dashed."""
    return level(xs, roof.ceiling.value / unit, roof.label, "dash", roof.told)


def baseline_traces(one: Series, index: int, unit: float, *, explained: bool) -> list[Trace]:
    """The band from the slowest to the fastest process of the baseline, and a thin line where its centre is."""
    colour, _, _ = style(index)
    xs: list[float | None] = []
    ys: list[float | None] = []
    for run in _neighbours(one):
        xs += [*(size for size, _, _ in run), *(size for size, _, _ in reversed(run)), None]
        ys += [*(high for _, _, high in run), *(low for _, low, _ in reversed(run)), None]
    group = {"legendgroup": f"series {index}", "type": "scatter", "hoverinfo": "skip", "mode": "lines"}
    band = {"x": xs[:-1], "y": [None if y is None else y / unit for y in ys[:-1]], "fill": "toself"}
    centres = [rate_at(row, row.baseline_time_s) for row in one.rows]
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
        rates = [rate for seconds in row.baseline_medians_s if (rate := rate_at(row, seconds)) is not None]
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


def limit_marks(drawn: Sequence[Series], unit: float) -> list[Trace]:
    """A mark where a published limit or a share of the roofline gates."""
    held = [
        (size, row, rate)
        for one in drawn
        for size, row in one.points
        if row.judgement is not None and (rate := rate_at(row, row.judgement.limit_s)) is not None
    ]
    if not held:
        return []
    return [
        {
            "type": "scatter",
            "x": [size for size, _, _ in held],
            "y": [rate / unit for _, _, rate in held],
            "mode": "markers",
            "marker": {"symbol": "line-ew-open", "size": 22, "color": GREY, "line": {"width": 3, "color": GREY}},
            "name": "limit that gates",
            "hoverinfo": "text",
            "hovertext": [lines_of([row.label, row.reason]) for _, row, _ in held],
        }
    ]
