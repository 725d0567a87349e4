"""Copies between devices as a heat map: source by row, target by column."""

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from ....core.rows import Row
from ....core.units import printable, size_label, three_digits
from ....core.work import rate_suffix
from ...matrix import FEWEST_PAIRS, pair_of
from ..plot import Plot
from .axes import axis
from .drawing import MOST_ROWS, limited, lines_of, plain_figure, safe, thinned, thinned_note
from .words import COLUMNS, INVALID, ceiling_words, cells, devices, hover, rate_unit, rate_words, verdicts

SECTION = "Copies between devices"
# The darkest colour is at most this share of the brightest one's rate.
_LEAST_SPAN = 0.7
_RED = "✕"
# Sources and targets of one figure: those of a rack; each has every other as a cell.
MOST_DEVICES = 72
# More of them leave no room for a number in each cell.
_MOST_NUMBERED = 16


@dataclass(frozen=True, slots=True)
class _Matrix:
    title: str
    rows: Sequence[Row]

    @property
    def red(self) -> bool:
        return any(row.red for row in self.rows)


def peer_plots(rows: Sequence[Row]) -> list[Plot]:
    """A heat map for every benchmark and size that was measured between three pairs of devices or more."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        one = row.measurement
        if one is not None and _pair(row) and rate_suffix(one.key.metric) is not None:
            groups.setdefault((_title(row), row.run or ""), []).append(row)
    several = len({run for _, run in groups}) > 1
    found = [
        _Matrix(f"{title} on {devices(members)}" + (f", run {run}" if several else ""), members)
        for (title, run), members in groups.items()
        if len({_pair(row) for row in members}) >= FEWEST_PAIRS
    ]
    return limited(found, _drawn, lambda matrix: matrix.red)


def _pair(row: Row) -> tuple[int, int] | None:
    return pair_of(row) if row.measurement is not None else None


def _between(row: Row) -> str:
    return "→".join(f"{index}" for index in _pair(row) or ())


def _title(row: Row) -> str:
    """The benchmark with its parameters other than the pair."""
    one = row.measurement
    assert one is not None
    rest = [
        size_label(value) if name.endswith("_bytes") and isinstance(value, int) else f"{value}"
        for name, value in one.key.parameters.items()
        if name not in ("source", "target")
    ]
    inside = f"[{'-'.join(rest)}]" if rest else ""
    return one.key.benchmark + inside + (f".{one.key.name}" if one.key.name else "") + f", {one.key.metric}"


def _shown(by_pair: dict[tuple[int, int], Row]) -> dict[tuple[int, int], Row]:
    """The pairs of so many sources and targets as a figure has room for, those of failed tests first."""
    sources: set[int] = set()
    targets: set[int] = set()
    for source, target in sorted(by_pair, key=lambda pair: (not by_pair[pair].red, pair)):
        if len(sources | {source}) <= MOST_DEVICES and len(targets | {target}) <= MOST_DEVICES:
            sources.add(source)
            targets.add(target)
    return {pair: row for pair, row in by_pair.items() if pair[0] in sources and pair[1] in targets}


def _drawn(matrix: _Matrix) -> Plot:
    known = {pair: row for row in matrix.rows if (pair := _pair(row)) is not None}
    by_pair = _shown(known)
    sources, targets = sorted({pair[0] for pair in by_pair}), sorted({pair[1] for pair in by_pair})
    grid = [[by_pair.get((source, target)) for target in targets] for source in sources]
    assert matrix.rows[0].measurement is not None
    unit, unit_name = rate_unit(matrix.rows[0].measurement.key.metric)
    numbered = max(len(sources), len(targets)) <= _MOST_NUMBERED
    heights = [height for row in by_pair.values() if (height := _height(row, unit)) is not None]
    trace = {
        "type": "heatmap",
        "x": [f"{target}" for target in targets],
        "y": [f"{source}" for source in sources],
        "z": [[_height(row, unit) for row in line] for line in grid],
        "text": [[_cell(row, unit, numbered) for row in line] for line in grid],
        "texttemplate": "%{text}",
        "hoverinfo": "text",
        "hovertext": [[_hover(row) for row in line] for line in grid],
        # From zero, a few percent would not show; from the lowest, they would look like a collapse.
        "zmin": min([*heights, _LEAST_SPAN * max(heights, default=0.0)], default=0.0),
        "zmax": max(heights, default=1.0),
        # Perceptually even, and made to look the same to the colour-blind.
        "colorscale": "Cividis",
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"title": {"text": unit_name}, "thickness": 12, "len": 0.9},
        "name": safe(matrix.title),
    }
    layout = {
        "xaxis": axis("target", type="category", showgrid=False),
        "yaxis": axis("source", type="category", autorange="reversed", showgrid=False),
        "annotations": _beside(by_pair),
    }
    ceiling = _expected(matrix.rows)
    listed = thinned(sorted(known.items()), MOST_ROWS, lambda pair: pair[1].red)
    notes = thinned_note(len(by_pair), len(known), "pairs") + thinned_note(len(listed), len(known), "rows of the table")
    return Plot(
        section=SECTION,
        title=printable(matrix.title + (f", {ceiling}" if ceiling else "")),
        says=_says(known) + notes,
        figure=plain_figure([trace], layout, height=120 + (44 if numbered else 22) * max(4, len(sources))),
        columns=("source", "target", *COLUMNS[1:]),
        rows=[(str(source), str(target), *cells(row, "")[1:]) for (source, target), row in listed],
    )


def _expected(rows: Sequence[Row]) -> str:
    """The roofline of a link where all pairs have the same; else empty."""
    found = {row.measurement.ceiling for row in rows if row.measurement is not None}
    only = found.pop() if len(found) == 1 else None
    return ceiling_words(only) if only is not None else ""


def _height(row: Row | None, unit: float) -> float | None:
    return None if row is None or row.rate is None or row.verdict == INVALID else row.rate / unit


def _cell(row: Row | None, unit: float, numbered: bool) -> str:
    height = _height(row, unit)
    if row is None or height is None:
        return ""
    return "<br>".join([three_digits(height)] * numbered + [_RED] * row.red)


def _hover(row: Row | None) -> str:
    return "" if row is None else lines_of(hover(row, row.label))


def _beside(by_pair: dict[tuple[int, int], Row]) -> list[dict[str, object]]:
    """What stands in a cell without a number, whose background is the page's."""
    texts = {
        pair: "inv." if row.verdict == INVALID else "?"
        for pair, row in by_pair.items()
        if row.verdict == INVALID or row.rate is None
    }
    return [
        {"x": f"{target}", "y": f"{source}", "text": text, "showarrow": False, "font": {"size": 10}}
        for (source, target), text in texts.items()
    ]


def _says(by_pair: dict[tuple[int, int], Row]) -> str:
    """`Lowest 312 GB/s for 2→5, median 390 GB/s, highest 395 GB/s for 0→1; …`."""
    sound = {pair: row for pair, row in by_pair.items() if row.verdict != INVALID and row.rate is not None}
    told = f"{verdicts(list(by_pair.values()), 'pair', _between)}."
    if not sound:
        return f"No pair has a number to be trusted; {told}"
    low, high = (bound(sound, key=lambda pair: sound[pair].rate or 0.0) for bound in (min, max))
    middle = median(row.rate or 0.0 for row in sound.values())
    metric = next(one.key.metric for row in sound.values() if (one := row.measurement) is not None)
    parts = [
        f"lowest {rate_words(sound[low].rate or 0.0, metric)} for {low[0]}→{low[1]}",
        f"median {rate_words(middle, metric)}",
        f"highest {rate_words(sound[high].rate or 0.0, metric)} for {high[0]}→{high[1]}",
    ]
    text = ", ".join(parts)
    crossed = " ✕ marks a failed test." if any(row.red for row in by_pair.values()) else ""
    return f"{text[:1].upper()}{text[1:]}; {told} Rows are sources, columns targets.{crossed}"
