"""What the time and the memory of a call go into: bars of parts, one for each call that was looked into."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ...baselines.run_files import run_names
from ...baselines.runs import Run
from ...core.memory import CATEGORIES, MemoryUse
from ...core.profiles import CLASSES, ClassTime, Profile
from ...core.units import GIB, MIB, count, format_memory, format_seconds, format_share, printable
from .chart import MOST_ROWS, Plot, Trace, axis, bar_marker, lines_of, plain_figure, thinned, thinned_note, wrapped

TIME, MEMORY = "Where the time goes", "Where the memory goes"
# Bars below each other that a person still reads.
MOST_BARS = 20


@dataclass(frozen=True, slots=True)
class _Bar:
    """One call: its parts by name, each with how long it is and what stands beside it."""

    name: str
    parts: dict[str, tuple[float, Sequence[str]]]


def time_plots(runs: Sequence[Run]) -> list[Plot]:
    """Shares of a call by class of kernel; of a measurement that was profiled again the last time stands."""
    latest = {(id(run), one.test_id, one.name): (one.label + behind, one)
              for run, behind in _named(runs) for one in run.profiles if one.classes}  # fmt: skip
    found = list(latest.values())
    if not found:
        return []
    shown = thinned(found, MOST_BARS)
    bars = [
        _Bar(label, {one.name: (100 * one.share, _class_texts(one, profile)) for one in profile.classes if _known(one)})
        for label, profile in shown
    ]
    classes = [one for _, profile in shown for one in profile.classes]
    left = thinned_note(sum(map(_known, classes)), len(classes), "shares")
    label, longest = max(found, key=lambda pair: pair[1].span_s / pair[1].calls)
    most = max(longest.classes, key=lambda one: one.share)
    says = printable(f"Most of the time of {label} goes into {most.name} ({format_share(most.share)}).")
    cells = [(printable(label), one.name, *_class_cells(one, profile)) for label, profile in found
             for one in profile.classes]  # fmt: skip
    return [
        Plot(
            section=TIME,
            title="Shares of a call by class of kernel, under a profiler",
            says=f"{says} Profiled times are never judged.{left}" + _notes(bars, found, cells, "profiles"),
            figure=_stacked(bars, CLASSES, "share of the span (%)"),
            columns=("measurement", "class", "share", "time of a call", "launches"),
            rows=thinned(cells, MOST_ROWS),
        )
    ]


def _known(one: ClassTime) -> bool:
    return math.isfinite(100 * one.share)


def memory_plots(runs: Sequence[Run]) -> list[Plot]:
    """Memory at the peak by category; of a call that was followed again the last time stands."""
    latest = {(id(run), use.test_id, use.name): (use.label + behind, use)
              for run, behind in _named(runs) for use in run.memory_uses if use.peak_bytes}  # fmt: skip
    found = list(latest.values())
    if not found:
        return []
    shown = thinned(found, MOST_BARS)
    scale, unit = (GIB, "GiB") if max(use.peak_bytes for _, use in shown) >= GIB else (MIB, "MiB")
    bars = [
        _Bar(label, {kind: (size / scale, _memory_texts(kind, size, use)) for kind, size in use.categories.items()})
        for label, use in shown
    ]
    label, highest = max(found, key=lambda pair: pair[1].peak_bytes)
    kind, size = max(highest.categories.items(), key=lambda pair: pair[1])
    most = f"most of it is {kind} ({format_share(size / highest.peak_bytes)})."
    cells = [(printable(label), kind, format_memory(size), format_share(size / use.peak_bytes)) for label, use in found
             for kind, size in use.categories.items()]  # fmt: skip
    return [
        Plot(
            section=MEMORY,
            title="Memory at the peak by category",
            says=printable(f"The highest peak is that of {label}, {format_memory(highest.peak_bytes)}; {most}")
            + _notes(bars, found, cells, "calls"),
            figure=_stacked(bars, CATEGORIES, f"peak memory ({unit})"),
            columns=("measurement", "category", "size", "share of the peak"),
            rows=thinned(cells, MOST_ROWS),
        )
    ]


def _named(runs: Sequence[Run]) -> list[tuple[Run, str]]:
    """Every run, with what stands behind a label of it where there are several."""
    names = run_names(runs)
    return [(run, f", run {names[run.path]}" if len(runs) > 1 else "") for run in runs]


def _class_texts(one: ClassTime, profile: Profile) -> list[str]:
    share, time, _ = _class_cells(one, profile)
    launches = count(one.count, "launch", "es")
    return [f"{one.name}: {share}", f"{time} a call", f"{launches} in {count(profile.calls, 'call')}", *one.largest[:3]]


def _class_cells(one: ClassTime, profile: Profile) -> tuple[str, str, str]:
    return format_share(one.share), format_seconds(one.total_s / profile.calls), str(one.count)


def _memory_texts(kind: str, size: int, use: MemoryUse) -> list[str]:
    return [f"{kind}: {format_memory(size)}", f"{format_share(size / use.peak_bytes)} of the peak"]


def _notes(bars: Sequence[_Bar], found: Sequence[object], cells: Sequence[object], what: str) -> str:
    listed = min(len(cells), MOST_ROWS)
    return thinned_note(len(bars), len(found), what) + thinned_note(listed, len(cells), "rows of the table")


def _stacked(bars: Sequence[_Bar], kinds: Iterable[str], title: str) -> dict[str, object]:
    """Bars below each other, each of parts in one order, which differ in colour and in pattern."""
    present = [kind for kind in kinds if any(kind in bar.parts for bar in bars)]
    traces = [_part(kind, index, bars) for index, kind in enumerate(present)]
    names = {"tickvals": list(range(len(bars))), "ticktext": [wrapped(bar.name) for bar in bars]}
    layout = {
        "barmode": "stack",
        "xaxis": axis(title, rangemode="tozero"),
        "yaxis": axis("", autorange="reversed", showgrid=False, tickfont={"size": 10}, **names),
    }
    return plain_figure(traces, layout, height=190 + 46 * len(bars) + 12 * len(present))


def _part(kind: str, index: int, bars: Sequence[_Bar]) -> Trace:
    parts = [bar.parts.get(kind, (0.0, ())) for bar in bars]
    return {
        "type": "bar",
        "orientation": "h",
        "x": [length for length, _ in parts],
        "y": list(range(len(bars))),
        "name": kind,
        "marker": bar_marker(index),
        "hoverinfo": "text",
        "hovertext": [lines_of([bar.name, *texts]) for bar, (_, texts) in zip(bars, parts, strict=True)],
    }
