"""The samples of whatever failed or cannot be trusted, process by process, beside the processes of the baseline."""

from collections.abc import Sequence
from dataclasses import replace

from ....core.records import Measurement
from ....core.rows import Row, worst_first
from ....core.units import count, format_percent, format_seconds, printable
from ..plot import Plot
from .axes import axis, drawable
from .drawing import MOST_POINTS, MOST_ROWS, plain_figure, safe, short, thinned, thinned_note
from .sample_traces import Block, blocks_of, levels, name_of, reference_marks, strips, unit_of
from .words import INVALID, device, of_run, sentence, several_runs

SECTION, INVALID_SECTION = "Samples of what failed", "Samples of what cannot be trusted"
COLUMNS = ("process", "median", "blocks", "excluded", "why", "fastest block", "slowest block")
# In a section.
MOST_DRAWN = 10


def sample_plots(rows: Sequence[Row]) -> list[Plot]:
    """A plot for each measurement whose test failed, the worst first, at most ten; then so for other INVALID ones."""
    known = [row for row in worst_first(rows) if row.measurements]
    failed = [row for row in known if row.red]
    invalid = [row for row in known if row.verdict == INVALID and not row.red]
    return _drawn(SECTION, failed, "failed") + _drawn(INVALID_SECTION, invalid, "cannot be trusted")


def _drawn(section: str, rows: Sequence[Row], how: str) -> list[Plot]:
    several = several_runs(rows)
    plots = [_plot(section, row, several) for row in rows[:MOST_DRAWN]]
    if len(rows) > MOST_DRAWN:
        more = f" {len(rows) - MOST_DRAWN} more {how}; `roofline explain` shows the samples of each."
        plots[-1] = replace(plots[-1], says=plots[-1].says + more)
    return plots


def _plot(section: str, row: Row, several: bool) -> Plot:
    scale, unit = unit_of([one.median_s for one in row.measurements])
    taken = [list(blocks_of(one)) for one in row.measurements]
    room = max(2, MOST_POINTS // len(taken)) if sum(map(len, taken)) > MOST_POINTS else MOST_POINTS
    placed = [[block for block in blocks if drawable(block.seconds / scale)] for blocks in taken]
    drawn = [thinned(blocks, room, lambda block: bool(block.excluded)) for blocks in placed]
    names = ["baseline"] * bool(row.baseline_medians_s) + [name_of(row, one) for one in row.measurements]
    span = [-0.5, len(names) - 0.5]
    labelled = _few(range(len(names)))
    layout = {
        "xaxis": axis(
            "process, its blocks in the order taken",
            tickvals=labelled,
            ticktext=[safe(short(names[index], 24)) for index in labelled],
            range=span,
            showgrid=False,
        ),
        "yaxis": axis(f"time of a call ({unit})"),
    }
    traces = reference_marks(row, scale) + strips(row, drawn, scale, len(names) - len(drawn)) + levels(row, scale, span)
    listed = list(zip(row.measurements, taken, strict=True))[:MOST_ROWS]
    notes = thinned_note(sum(map(len, drawn)), sum(map(len, taken)), "blocks")
    notes += thinned_note(len(listed), len(taken), "rows")
    return Plot(
        section=section,
        title=printable(f"{row.label} on {device(row)}: {row.verdict}{of_run(row, several)}"),
        says=_says(row, taken) + notes,
        figure=plain_figure(traces, layout),
        columns=COLUMNS,
        rows=[_cells(row, one, blocks) for one, blocks in listed],
    )


def _few(indices: Sequence[int], at_most: int = 12) -> list[int]:
    return list(indices)[:: -(-len(indices) // at_most)]


def _says(row: Row, taken: Sequence[Sequence[Block]]) -> str:
    """What the verdict says, how the processes lie to the baseline's, and how many blocks do not count."""
    parts = []
    if row.change is not None:
        held = "the baseline" if row.baseline_time_s is not None else "the limit"
        parts.append(f"{format_percent(row.change)} time against {held}")
    known, counted = row.baseline_medians_s, [one for one in row.measurements if not one.invalid]
    if known and counted:
        beyond = sum(one.median_s > max(known) for one in counted)
        parts.append(f"{beyond} of {count(len(counted), 'process', 'es')} slower than all {len(known)} of the baseline")
    total, excluded = sum(map(len, taken)), sum(bool(block.excluded) for blocks in taken for block in blocks)
    parts += [f"{excluded} of {count(total, 'block')} left out"] if excluded else []
    text = "; ".join(parts) or f"{count(len(row.measurements), 'process', 'es')} measured"
    return printable(sentence(text) + (f" {sentence(row.reason)}" if row.reason else ""))


def _cells(row: Row, one: Measurement, blocks: Sequence[Block]) -> tuple[str, ...]:
    excluded = [block.excluded for block in blocks if block.excluded]
    seconds = [block.seconds for block in blocks if not block.excluded] or [block.seconds for block in blocks]
    texts = (
        name_of(row, one),
        format_seconds(one.median_s),
        str(len(blocks)),
        str(len(excluded)),
        one.invalid or ", ".join(dict.fromkeys(excluded)),
        format_seconds(min(seconds)),
        format_seconds(max(seconds)),
    )
    return tuple(printable(text) for text in texts)
