"""Bars of attention back ends, and of the parts of calls.

The back ends stand side by side by sequence length; the parts are of the time and the memory of a call.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

from ...baselines.run_files import run_names
from ...baselines.runs import Run
from ...core.keys import label_of
from ...core.memory import CATEGORIES, MemoryUse
from ...core.profiles import CLASSES, Profile
from ...core.rows import Row
from ...core.units import (
    GIB,
    MIB,
    count,
    format_flops,
    format_memory,
    format_seconds,
    format_share,
    printable,
    three_digits,
)
from ...core.verdicts import Kind
from .chart import (
    DASHES,
    Plot,
    Trace,
    axis,
    bar_marker,
    dashed_line,
    limit_plots,
    lines_of,
    plain_figure,
    safe,
    short,
    thin,
    thinning_note,
    with_legend,
    wrap_label,
)
from .rates import natural
from .words import (
    computes,
    devices,
    flop_unit,
    hover,
    mark_text,
    of_run,
    of_several_runs,
    roofs_of,
    sentence,
    share_words,
    value_words,
    verdicts,
)

ATTENTION, TIME, MEMORY = (
    "Attention by sequence length",
    "Where the time goes",
    "Where the memory goes",
)
_SEQUENCE, _BACK_ENDS = "sequence", ("implementation", "name", "backend", "back_end", "attention")
# Bars side by side that leave room for a number on each, and bars below each other that a person still reads.
_MOST_NUMBERED, MOST_BARS = 8, 20

Note = TypeVar("Note", Profile, MemoryUse)
# A back end, a sequence length, and its row: a measurement, or memory that ran out before there was one.
Bar = tuple[str, int, Row]
# One call: its name, and its parts by kind, each with its length and the lines that are shown beside the pointer.
Call = tuple[str, dict[str, tuple[float, Sequence[str]]]]


def attention_plots(rows: Sequence[Row]) -> list[Plot]:
    """Return a plot for each benchmark and shape of attention.

    Such a benchmark has a parameter `sequence` and one that names the back end.
    """
    computing = [row for row in rows if row.lost is not None or computes(row.counting)]
    groups: dict[str, list[Bar]] = {}
    has_several_runs = of_several_runs(computing)
    for row in computing:
        sequence, back_end_parameter = row.parameters.get(_SEQUENCE), of_attention(row)
        if back_end_parameter is None or not isinstance(sequence, int):
            continue
        values = [
            value_words(parameter, value)
            for parameter, value in row.parameters.items()
            if parameter not in (_SEQUENCE, back_end_parameter)
        ]
        title = ", ".join([label_of(row.benchmark, {}, row.name), *values])
        back_end = f"{row.parameters[back_end_parameter]}{of_run(row, has_several_runs)}"
        groups.setdefault(title, []).append((back_end, sequence, row))
    # A plot needs two bars to compare, and a rate in at least one of them.
    plots = [
        group
        for group in groups.items()
        if len(group[1]) > 1 and any(row.rate is not None for *_, row in group[1])
    ]
    return limit_plots(
        plots, lambda group: _attention(*group), lambda group: [row for *_, row in group[1]]
    )


def of_attention(row: Row) -> str | None:
    """Return the parameter that names the back end of attention, or None.

    It is None for a row that has no sequence length.
    """
    sequence = row.parameters.get(_SEQUENCE)
    if not isinstance(sequence, int) or isinstance(sequence, bool):
        return None
    return next((name for name in _BACK_ENDS if isinstance(row.parameters.get(name), str)), None)


def _attention(title: str, bars: Sequence[Bar]) -> Plot:
    """Return a plot of the rates of back ends by sequence length, with rooflines.

    A bar has the name of its back end, its sequence length and its row.
    """
    rows, sequences = [row for *_, row in bars], sorted({sequence for _, sequence, _ in bars})
    scale, unit = flop_unit(row.rate for row in rows)
    # The horizontal axis counts sequences, so that lines reach past the outermost bars.
    span = [-0.5, len(sequences) - 0.5]
    traces = []
    for index, name in enumerate(sorted({name for name, *_ in bars}, key=natural)):
        bars_of_name = [bar for bar in bars if bar[0] == name]
        traces.append(
            _back_end(bars_of_name, index, sequences, scale, numbered=len(bars) <= _MOST_NUMBERED)
        )
    for number, (ceiling, label) in enumerate(roofs_of(rows), 1):
        traces += dashed_line(
            span, [ceiling.value / scale] * 2, label, DASHES[number % len(DASHES)]
        )
    highest = max(y for trace in traces for y in trace["y"])
    ticks = {
        "tickvals": list(range(len(sequences))),
        "ticktext": [f"{sequence}" for sequence in sequences],
    }
    layout = {
        "barmode": "group",
        "bargap": 0.2,
        "xaxis": axis("sequence length (tokens)", range=span, showgrid=False, **ticks),
        # The room above the highest bar is for its number.
        "yaxis": axis(unit, range=[0, highest * 1.18]),
    }
    figure = plain_figure(traces, layout, with_legend(400, len(traces)))
    return Plot(ATTENTION, printable(f"{title} on {devices(rows)}"), _attention_text(bars), figure)


def _back_end(
    bars: Sequence[Bar], index: int, sequences: Sequence[int], scale: float, *, numbered: bool
) -> Trace:
    """Return the bars of one back end.

    Args:
        bars: of the back end.
        index: of the back end, which its colour and pattern follow.
        sequences: all sequence lengths of the plot, in order.
        scale: the unit of the axis, in FLOP per second.
        numbered: whether each bar has its number on it.
    """
    rows = [row for *_, row in bars]
    return {
        "type": "bar",
        "x": [sequences.index(sequence) for _, sequence, _ in bars],
        "y": [(row.rate or 0.0) / scale for row in rows],
        "name": safe(short(bars[0][0])),
        "marker": bar_marker(
            index, opacity=[0.35 if row.verdict == Kind.INVALID else 1.0 for row in rows]
        ),
        "text": [
            mark_text(row, three_digits((row.rate or 0.0) / scale) if numbered else "")
            for row in rows
        ],
        "textposition": "outside",
        # Otherwise Plotly shrinks the text above narrow bars until it is unreadable.
        "constraintext": "none",
        "textfont": {"size": 10},
        "textangle": 0 if numbered else -90,
        "cliponaxis": False,
        "hoverinfo": "text",
        "hovertext": [lines_of(_hover_lines(*bar)) for bar in bars],
    }


def _hover_lines(back_end: str, sequence: int, row: Row) -> list[str]:
    """Return the lines beside the pointer, on one bar of attention."""
    name = f"{back_end}, {sequence} tokens"
    return (
        hover(row, name) if row.lost is None else [name, "out of memory", row.lost.allocation.sizes]
    )


def _attention_text(bars: Sequence[Bar]) -> str:
    """Return the fastest back end, and those that ran out of memory.

    The fastest is that at the longest sequence with a valid rate; its lead follows.
    """
    measured_rows = [row for *_, row in bars if row.measurement is not None]
    parts = [_fastest(bars), verdicts(measured_rows, "measurement", lambda row: row.label)]
    shortest_lost: dict[str, int] = {}
    for name, sequence, row in sorted(bars, key=lambda bar: bar[1]):
        if row.lost is not None:
            shortest_lost.setdefault(name, sequence)
    parts += [
        f"{name} runs out of memory (OOM) from {sequence} tokens on"
        for name, sequence in shortest_lost.items()
    ]
    return printable(sentence("; ".join(parts)))


def _fastest(bars: Sequence[Bar]) -> str:
    """Return the fastest back end at the longest sequence, with its lead over the next.

    Only bars with a valid rate count.
    """
    valid_bars = [bar for bar in bars if bar[2].rate is not None and bar[2].verdict != Kind.INVALID]
    longest = max((sequence for _, sequence, _ in valid_bars), default=0)
    ordered = sorted(
        (bar for bar in valid_bars if bar[1] == longest), key=lambda bar: -(bar[2].rate or 0.0)
    )
    if not ordered:
        return "no valid number"
    # Every valid bar has a rate, so `or` below only satisfies the types.
    (name, _, row), *slower = ordered
    texts = [
        f"at {longest} tokens {name} is fastest with {format_flops(row.rate or 0.0)}",
        share_words(row),
        *(
            f"{(row.rate or 0.0) / (second.rate or 1.0):.2f} times {back_end}"
            for back_end, _, second in slower[:1]
        ),
    ]
    return ", ".join(filter(None, texts))


def time_plots(runs: Sequence[Run]) -> list[Plot]:
    """Return the plot of the shares of calls by class of kernel.

    If a measurement was profiled several times, it shows the last profile.
    """
    profiles = [pair for pair in latest(runs, lambda run: run.profiles) if pair[1].classes]
    if not profiles:
        return []
    selected = thin(profiles, MOST_BARS)
    # The sentence is on the call that takes longest.
    label, longest = max(profiles, key=lambda pair: pair[1].span_s / pair[1].calls)
    largest = max(longest.classes, key=lambda kernels: kernels.share)
    text = printable(
        f"Most of the time of {label} goes into {largest.name} ({format_share(largest.share)}). "
    )
    text += "Profiled times are never judged." + thinning_note(
        len(selected), len(profiles), "profiles"
    )
    calls = [(label, _classes(profile)) for label, profile in selected]
    figure = _stacked_bars(calls, CLASSES, "share of the span (%)")
    return [Plot(TIME, "Shares of a call by class of kernel, under a profiler", text, figure)]


def _classes(profile: Profile) -> dict[str, tuple[float, Sequence[str]]]:
    """Return the share in percent and the hover lines of each class of kernels in a profile."""
    return {
        kernels.name: (
            100 * kernels.share,
            [
                f"{kernels.name}: {format_share(kernels.share)}",
                f"{format_seconds(kernels.total_s / profile.calls)} a call",
                f"{count(kernels.count, 'launch', 'es')} in {count(profile.calls, 'call')}",
                *kernels.largest[:3],
            ],
        )
        for kernels in profile.classes
    }


def memory_plots(runs: Sequence[Run]) -> list[Plot]:
    """Return the plot of the memory of calls at their peak, by category.

    If the memory of a call was recorded several times, it shows the last record.
    """
    uses = [pair for pair in latest(runs, lambda run: run.memory_uses) if pair[1].peak_bytes]
    if not uses:
        return []
    selected = thin(uses, MOST_BARS)
    scale, unit = memory_unit(use.peak_bytes for _, use in selected)
    label, highest = max(uses, key=lambda pair: pair[1].peak_bytes)
    kind, size = max(highest.categories.items(), key=lambda pair: pair[1])
    text = printable(
        f"The highest peak is that of {label}, {format_memory(highest.peak_bytes)}; "
        f"most of it is {kind} ({format_share(size / highest.peak_bytes)})."
    ) + thinning_note(len(selected), len(uses), "calls")
    calls = [(label, _categories(use, scale)) for label, use in selected]
    figure = _stacked_bars(calls, CATEGORIES, f"peak memory ({unit})")
    return [Plot(MEMORY, "Memory at the peak by category", text, figure)]


def _categories(use: MemoryUse, scale: float) -> dict[str, tuple[float, Sequence[str]]]:
    """Return the size in units of `scale` bytes and the hover lines of each category of memory."""
    return {
        kind: (
            size / scale,
            [
                f"{kind}: {format_memory(size)}",
                f"{format_share(size / use.peak_bytes)} of the peak",
            ],
        )
        for kind, size in use.categories.items()
    }


def latest(runs: Sequence[Run], notes: Callable[[Run], Sequence[Note]]) -> list[tuple[str, Note]]:
    """Return the last note of each test and name in each run.

    A note is a profile or a record of memory use, and `notes` returns those of a run. It comes with its label, which
    names the run where several runs have notes.
    """
    runs_with_notes = [run for run in runs if notes(run)]
    names = run_names(runs_with_notes)
    labels = {
        (id(run), note.test_id, note.name): (
            f"{note.label}, run {names[run.path]}" if len(runs_with_notes) > 1 else note.label,
            note,
        )
        for run in runs_with_notes
        for note in notes(run)
    }
    return list(labels.values())


def memory_unit(sizes: Iterable[float]) -> tuple[int, str]:
    """Return the bytes and the name of the unit for the largest size."""
    return (GIB, "GiB") if max(sizes) >= GIB else (MIB, "MiB")


def _stacked_bars(calls: Sequence[Call], kinds: Iterable[str], title: str) -> dict[str, Any]:
    """Return a figure with a bar for each call, made of its parts.

    A call has its name, and the size and hover lines of its parts by kind. Bars lie below each other.
    The parts have the order of `kinds`, and differ in colour and pattern.
    """
    present = [kind for kind in kinds if any(kind in parts for _, parts in calls)]
    traces = [
        {
            "type": "bar",
            "orientation": "h",
            "x": [parts.get(kind, (0.0, ()))[0] for _, parts in calls],
            "y": list(range(len(calls))),
            "name": kind,
            "marker": bar_marker(index),
            "hoverinfo": "text",
            "hovertext": [
                lines_of([name, *parts.get(kind, (0.0, ()))[1]]) for name, parts in calls
            ],
        }
        for index, kind in enumerate(present)
    ]
    names = {
        "tickvals": list(range(len(calls))),
        "ticktext": [wrap_label(name) for name, _ in calls],
    }
    layout = {
        "barmode": "stack",
        "xaxis": axis(title, rangemode="tozero"),
        "yaxis": axis("", autorange="reversed", showgrid=False, tickfont={"size": 10}, **names),
    }
    return plain_figure(traces, layout, height=190 + 46 * len(calls) + 12 * len(present))
