"""Figures published elsewhere, beside those measured here: some for a reader, and the limits that gate."""

import math
from collections.abc import Iterable, Sequence

from ..baselines.limit_texts import describe, limit_source, only_below, value_text
from ..core.entries import OUT_OF_MEMORY, PEAK_METRIC, Entry
from ..core.keys import JOB_METRIC
from ..core.rows import Row
from ..core.units import count, format_memory, listed, printable
from ..stats.limits import published_s
from .words import figure

# Characters of a source that are shown. It may be a long address, of which the beginning tells whose it is.
LONGEST_SOURCE = 72
WHOLE_PROGRAM = "times of whole programs, not comparable with a steady-state time"


def published_lines(rows: Sequence[Row], at_most: int = 12, *, verbose: bool = False) -> list[str]:
    """Return a line for each measurement with published figures.

    The figures never gate. Measurements that are slower than everything published come first, the
    slowest first. With `verbose` all have a line, and below it every figure with the words of its
    source.
    """
    published = sorted((row for row in rows if _figures(row)), key=_lag)
    selected = published if verbose else published[:at_most]
    lines = [
        line
        for row in selected
        for line in (
            _published_line(row),
            *(f"    {text}" for text in figure_texts(row) if verbose),
        )
    ]
    remaining = len(published) - len(selected)
    if remaining:
        measurements = count(remaining, "more measurement")
        lines.append(f"… and published figures for {measurements} (-v shows all)")
    return lines


def figure_texts(row: Row) -> tuple[str, ...]:
    """Return every published figure that does not gate a measurement.

    Each has its remarks.
    """
    idle_reasons = {entry.identity: reason for entry, reason in row.idle}
    return tuple(
        figure_text(entry, idle_reasons.get(entry.identity, "")) for entry in _figures(row)
    )


def _figures(row: Row) -> tuple[Entry, ...]:
    """Return the published entries that do not gate a measurement.

    These are figures, and limits that are idle: they do not gate here for some reason. Peaks of memory are left
    out where
    the row has none to compare.
    """
    entries = (*row.published, *(entry for entry, _ in row.idle))
    has_peak = row.measurement is not None and row.measurement.peak_bytes is not None
    return tuple(entry for entry in entries if has_peak or entry.metric != PEAK_METRIC)


def figure_text(entry: Entry, why_idle: str = "") -> str:
    """Return a published figure with its remarks.

    `why_idle` is the reason why a limit does not gate; empty for a figure that is no limit.
    """
    remarks = (
        ("confidence", entry.confidence),
        ("does not gate:", why_idle),
        ("note:", entry.note),
        ("IMPLAUSIBLE:", entry.implausible),
    )
    texts = (f"{word} {remark}" for word, remark in remarks if remark)
    return printable(", ".join([describe(entry), *texts]))


def _published_line(row: Row) -> str:
    """Return a measurement beside its published figures.

    It reads `memcpy_h2d[512MiB-pinned]: 25.4 GB/s; published 25.1 … 26.3 GB/s (3 figures; …),
    shown, never gating`.
    """
    entries = _figures(row)
    plausible = [entry for entry in entries if not entry.implausible]
    times = [entry for entry in plausible if entry.metric != PEAK_METRIC]
    peaks = [entry for entry in plausible if entry.metric == PEAK_METRIC]
    parts = _time_parts(row, times)
    text = f"{row.label}: {figure(row)}"
    if _amounts(peaks):
        peak_bytes = row.measurement.peak_bytes if row.measurement is not None else None
        text += f", peak {format_memory(peak_bytes or 0)}"
        parts.append(_peak_text(peaks))
    text += (
        f"; published {', '.join(parts)}, shown, never gating"
        if parts
        else "; no plausible published figure"
    )
    # The reasons why figures are implausible; the first one is shown.
    reasons = [entry.implausible for entry in entries if entry.implausible]
    if reasons:
        number = count(len(reasons), "implausible figure")
        text += f" ({number} left out: {reasons[0]})"
    return printable(text)


def _time_parts(row: Row, entries: Sequence[Entry]) -> list[str]:
    """Return the parts of a line on published times.

    They are the span of the times, an upper bound, and a note that memory ran out. Figures that count
    the work differently are only counted.
    """
    bounds = [entry for entry in entries if only_below(entry)]
    points = [entry for entry in entries if not only_below(entry)]
    out_of_memory = [entry for entry in entries if entry.value == OUT_OF_MEMORY]
    parts = [_span_text(row, points)] if _seconds(row, points) else []
    parts += [f"{value_text(entry)} ({_short_source(entry)})" for entry in bounds[:1]]
    parts += [f"{OUT_OF_MEMORY} ({_short_source(entry)})" for entry in out_of_memory[:1]]
    if entries and not parts:
        parts = [f"counted differently ({count(len(entries), 'figure')})"]
    return parts


def _span_text(row: Row, entries: Sequence[Entry]) -> str:
    """Return the span of the published figures.

    It is in the measurement's own unit, with the number of figures and the source of the figure nearest to the
    measured time.
    """
    times = _seconds(row, entries)
    slowest = figure(row, max(seconds for _, seconds in times))
    fastest = figure(row, min(seconds for _, seconds in times))
    # The slowest figure is the lowest rate, but the highest time.
    low, high = (slowest, fastest) if slowest.endswith("/s") else (fastest, slowest)
    low_value, _, unit = low.rpartition(" ")
    # A unit that both have is written once.
    low_text = low_value if high.endswith(f" {unit}") else low
    text = low if low == high else f"{low_text} … {high}"
    # A row with published figures has a time, so the 1.0 only satisfies the type.
    nearest_entry = _nearest(times, row.time_s or 1.0)
    # A range has two times, but is one figure.
    distinct = {entry.identity: entry for entry, _ in times}
    note_count = sum(bool(entry.note) for entry in distinct.values())
    figures = count(len(distinct), "figure") + (
        f", {note_count} with a note (-v)" if note_count else ""
    )
    source = _short_source(nearest_entry)
    if low != high:
        source = f"nearest {source}"
    # A published time is that of a whole program where the row is measured as one, from start to exit.
    program_note = f"; {WHOLE_PROGRAM}" if row.counting == JOB_METRIC else ""
    return f"{text} ({figures}; {source}{program_note})"


def _nearest(times: Sequence[tuple[Entry, float]], time_s: float) -> Entry:
    """Return the entry whose time is nearest to `time_s`, as a ratio in either direction."""

    def distance(pair: tuple[Entry, float]) -> float:
        _, seconds = pair
        return abs(math.log(seconds / time_s))

    entry, _ = min(times, key=distance)
    return entry


def _peak_text(entries: Sequence[Entry]) -> str:
    """Return the smallest and the largest published amount of memory.

    It reads `peak 17.4 MiB (2 figures; …)`.
    """
    amounts = _amounts(entries)
    low, high = format_memory(min(amounts)), format_memory(max(amounts))
    span = low if low == high else f"{low} … {high}"
    return f"peak {span} ({count(len(entries), 'figure')}; {_short_source(entries[0])})"


def _amounts(entries: Iterable[Entry]) -> list[float]:
    """Return the values that are numbers; others are ranges or words."""
    return [entry.value for entry in entries if isinstance(entry.value, float | int)]


def _seconds(row: Row, entries: Iterable[Entry]) -> list[tuple[Entry, float]]:
    """Return each figure as the time of the row's work, in seconds.

    A range has two times, of both ends. A figure that counts the work differently has none.
    """
    if row.work is None:
        return []
    times = []
    for entry in entries:
        values = entry.value if isinstance(entry.value, tuple) else (entry.value,)
        # A value may also be a word: the test ran out of memory.
        for value in values:
            seconds = (
                published_s(entry, value, row.work) if isinstance(value, float | int) else None
            )
            if seconds is not None:
                times.append((entry, seconds))
    return times


def _lag(row: Row) -> float:
    """Return a sort key by the lag behind all published figures.

    It is minus the logarithm of the time over the slowest published time, and 0 without a lag. So the
    largest lag comes first.
    """
    # An entry with an upper bound only has no time to lag behind.
    figures = [entry for entry in _figures(row) if not (entry.implausible or only_below(entry))]
    times = [seconds for _, seconds in _seconds(row, figures)]
    if not times:
        return 0.0
    # A row with published figures has a time, so the 1.0 only satisfies the type.
    # Rounded, so that noise in the last digits does not change the order of tests.
    lag = round(math.log((row.time_s or 1.0) / max(times)), 3)
    return -max(0.0, lag)


def _short_source(entry: Entry) -> str:
    source = entry.source or ""
    return source if len(source) <= LONGEST_SOURCE else source[: LONGEST_SOURCE - 1] + "…"


def limit_lines(rows: Sequence[Row], at_most: int = 4) -> list[str]:
    """Return the limits that replaced a baseline, by their source."""
    limits = [
        (limit_source(row.time_verdict.limit), row.label)
        for row in rows
        if row.time_verdict is not None and row.time_verdict.limit is not None
    ]
    lines = [printable(f"limit: {source}: {names}") for source, names in _group_names(limits)]
    if len(lines) <= at_most:
        return lines
    remaining = count(len(lines) - at_most, "more source")
    return [*lines[:at_most], f"… and limits of {remaining}"]


def idle_lines(rows: Iterable[Row]) -> list[str]:
    """Return lines on the published limits that fail no test on this machine.

    Tests with the same reason share a line.
    """
    limits = [
        (reason, f"{row.label} ({value_text(entry)})") for row in rows for entry, reason in row.idle
    ]
    return [
        printable(f"a published limit cannot fail these tests, since {reason}: {names}")
        for reason, names in _group_names(limits)
    ]


def _group_names(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Return each source or reason once, with its names listed.

    A pair is a source or reason and a name. At most three names are listed.
    """
    names_by_text: dict[str, list[str]] = {}
    for text, name in pairs:
        names_by_text.setdefault(text, []).append(name)
    return [(text, listed(list(dict.fromkeys(names)), 3)) for text, names in names_by_text.items()]
