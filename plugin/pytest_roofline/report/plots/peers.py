"""Copies between devices as a heat map: source by row, target by column."""

from collections.abc import Sequence
from statistics import median

from ...core.rows import Row
from ...core.units import printable, three_digits
from ...core.work import rate_suffix
from ...stats.verdicts import Kind
from ..transfers import FEWEST_PAIRS, pair_of, title_of
from .chart import MOST_ROWS, Plot, axis, limited, lines_of, plain_figure, safe, thinned, thinned_note
from .words import COLUMNS, ceiling_words, cells, devices, hover, of_run, rate_unit, rate_words, verdicts

SECTION = "Copies between devices"
# The darkest colour is at most this share of the brightest one's rate.
_LEAST_SPAN = 0.7
_RED = "✕"
# Sources and targets of one figure: those of a rack; each has every other as a cell.
MOST_DEVICES = 72
# More of them leave no room for a number in each cell.
_MOST_NUMBERED = 16
Pairs = dict[tuple[int, int], Row]


def peer_plots(rows: Sequence[Row]) -> list[Plot]:
    """A heat map for every benchmark and size that was measured between three pairs of devices or more."""
    between = [row for row in rows if pair_of(row) is not None and rate_suffix(row.counting or "") is not None]
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in between:
        groups.setdefault((f"{title_of(row)}, {row.counting}", of_run(row, between)), []).append(row)
    found = []
    for (title, run), members in groups.items():
        pairs = {pair: row for row in members if (pair := pair_of(row)) is not None}
        if len(pairs) >= FEWEST_PAIRS:
            found.append((f"{title} on {devices(members)}{run}", pairs))
    return limited(found, lambda one: _plot(*one), lambda one: any(row.red for row in one[1].values()))


def _shown(known: Pairs) -> Pairs:
    """The pairs of so many sources and targets as a figure has room for, those of failed tests first."""
    sources: set[int] = set()
    targets: set[int] = set()
    for source, target in sorted(known, key=lambda pair: (not known[pair].red, pair)):
        if len(sources | {source}) <= MOST_DEVICES and len(targets | {target}) <= MOST_DEVICES:
            sources.add(source)
            targets.add(target)
    return {pair: row for pair, row in known.items() if pair[0] in sources and pair[1] in targets}


def _plot(title: str, known: Pairs) -> Plot:
    shown = _shown(known)
    sources, targets = sorted({pair[0] for pair in shown}), sorted({pair[1] for pair in shown})
    grid = [[shown.get((source, target)) for target in targets] for source in sources]
    unit, unit_name = rate_unit(next(iter(shown.values())).counting or "")
    numbered = max(len(sources), len(targets)) <= _MOST_NUMBERED
    heights = [height for row in shown.values() if (height := _height(row, unit)) is not None]
    trace = {
        "type": "heatmap",
        "x": [f"{target}" for target in targets],
        "y": [f"{source}" for source in sources],
        "z": [[_height(row, unit) for row in line] for line in grid],
        "text": [[_cell(row, unit, numbered) for row in line] for line in grid],
        "texttemplate": "%{text}",
        "hoverinfo": "text",
        "hovertext": [["" if row is None else lines_of(hover(row, row.label)) for row in line] for line in grid],
        # From zero, a few percent would not show; from the lowest, they would look like a collapse.
        "zmin": min([*heights, _LEAST_SPAN * max(heights, default=0.0)], default=0.0),
        "zmax": max(heights, default=1.0),
        # Perceptually even, and made to look the same to the colour-blind.
        "colorscale": "Cividis",
        "xgap": 2,
        "ygap": 2,
        "colorbar": {"title": {"text": unit_name}, "thickness": 12, "len": 0.9},
        "name": safe(title),
    }
    layout = {
        "xaxis": axis("target", type="category", showgrid=False),
        "yaxis": axis("source", type="category", autorange="reversed", showgrid=False),
        "annotations": _without_number(shown, unit),
    }
    ceilings = {row.measurement.ceiling for row in known.values() if row.measurement is not None}
    roof = [ceiling_words(only) for only in ceilings if only is not None and len(ceilings) == 1]
    listed = thinned(sorted(known.items()), MOST_ROWS, lambda pair: pair[1].red)
    notes = thinned_note(len(shown), len(known), "pairs") + thinned_note(len(listed), len(known), "rows of the table")
    return Plot(
        section=SECTION,
        title=printable(", ".join([title, *roof])),
        says=_says(known) + notes,
        figure=plain_figure([trace], layout, height=120 + (44 if numbered else 22) * max(4, len(sources))),
        columns=("source", "target", *COLUMNS[1:]),
        rows=[(str(source), str(target), *cells(row, "")[1:]) for (source, target), row in listed],
    )


def _height(row: Row | None, unit: float) -> float | None:
    return None if row is None or row.rate is None or row.verdict == Kind.INVALID else row.rate / unit


def _cell(row: Row | None, unit: float, numbered: bool) -> str:
    height = _height(row, unit)
    if row is None or height is None:
        return ""
    return "<br>".join([three_digits(height)] * numbered + [_RED] * row.red)


def _without_number(shown: Pairs, unit: float) -> list[dict[str, object]]:
    """What stands in a cell without a number, whose background is the page's."""
    return [
        {"x": f"{target}", "y": f"{source}", "showarrow": False, "font": {"size": 10},
         "text": "inv." if row.verdict == Kind.INVALID else "?"}
        for (source, target), row in shown.items() if _height(row, unit) is None
    ]  # fmt: skip


def _says(known: Pairs) -> str:
    """`Lowest 312 GB/s for 2→5, median 390 GB/s, highest 395 GB/s for 0→1; …`."""
    sound = {pair: row.rate for pair, row in known.items() if row.verdict != Kind.INVALID and row.rate is not None}
    told = f"{verdicts(list(known.values()), 'pair', lambda row: '→'.join(map(str, pair_of(row) or ())))}."
    if not sound:
        return f"No pair has a number to be trusted; {told}"
    low, high = (bound(sound, key=lambda pair: sound[pair]) for bound in (min, max))
    metric = next(iter(known.values())).counting or ""
    text = (
        f"Lowest {rate_words(sound[low], metric)} for {low[0]}→{low[1]}, "
        f"median {rate_words(median(sound.values()), metric)}, "
        f"highest {rate_words(sound[high], metric)} for {high[0]}→{high[1]}"
    )
    crossed = f" {_RED} marks a failed test." if any(row.red for row in known.values()) else ""
    return f"{text}; {told} Rows are sources, columns targets.{crossed}"
