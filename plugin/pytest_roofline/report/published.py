"""What was published elsewhere, beside what was measured here: figures for a reader, and the limits that gate."""

import math
from collections.abc import Iterable, Sequence

from ..core.entries import OUT_OF_MEMORY, PEAK_METRIC, Entry
from ..core.keys import JOB_METRIC
from ..core.rows import Row
from ..core.units import count, format_memory, listed, printable
from ..stats.limits import describe, only_below, published_s, value_text
from .words import figure

# A source may be a long address; what a person needs is whose it is.
LONGEST_SOURCE = 72
WHOLE_PROGRAM = "of whole programs, not comparable with a steady-state time"


def published_lines(rows: Sequence[Row], at_most: int = 12, *, verbose: bool = False) -> list[str]:
    """A line for each measurement with figures from elsewhere, which are for a reader and never gate.

    First what is slower here than everything published, the slowest first. `verbose` tells all of them, and below each
    every figure with what its source says of it.
    """
    shown = sorted((row for row in rows if _figures(row)), key=_lag)
    told = shown if verbose else shown[:at_most]
    lines = [line for row in told for line in [_line(row), *(_each(row) if verbose else [])]]
    left = len(shown) - len(told)
    return lines + (
        [f"… and published figures beside {count(left, 'more measurement')} (-v shows all)"]
        if left
        else []
    )


def figure_texts(row: Row) -> tuple[str, ...]:
    """Every figure beside a measurement that does not gate it, with what must be known of it."""
    idle = {entry.identity: why for entry, why in row.idle}
    return tuple(figure_text(entry, idle.get(entry.identity, "")) for entry in _figures(row))


def _figures(row: Row) -> tuple[Entry, ...]:
    known = (*row.published, *(entry for entry, _ in row.idle))
    asked = row.measurement is not None and row.measurement.peak_bytes is not None
    return tuple(entry for entry in known if asked or entry.metric != PEAK_METRIC)


def _each(row: Row) -> list[str]:
    return [f"    {text}" for text in figure_texts(row)]


def figure_text(entry: Entry, why_idle: str = "") -> str:
    """A published figure with all that must be known of it, where it could gate also why it does not."""
    parts = [describe(entry), *([f"confidence {entry.confidence}"] if entry.confidence else [])]
    parts += [f"does not gate: {why_idle}"] if why_idle else []
    parts += [f"note: {entry.note}"] if entry.note else []
    parts += [f"IMPLAUSIBLE: {entry.implausible}"] if entry.implausible else []
    return printable(", ".join(parts))


def _line(row: Row) -> str:
    """`memcpy_h2d[512MiB-pinned]: 25.4 GB/s; published 25.1 … 26.3 GB/s (3 figures; …), shown, never gating`."""
    entries, peak_bytes = (
        _figures(row),
        row.measurement.peak_bytes if row.measurement is not None else None,
    )
    peaks = [entry for entry in entries if not entry.implausible and entry.metric == PEAK_METRIC]
    believed = [entry for entry in entries if not entry.implausible and entry.metric != PEAK_METRIC]
    bounds = [entry for entry in believed if only_below(entry)]
    points = [entry for entry in believed if not only_below(entry)]
    parts = [_span(row, points)] if _seconds(row, points) else []
    parts += [f"{value_text(bounds[0])} ({_short(bounds[0])})"] if bounds else []
    failed = [entry for entry in believed if entry.value == OUT_OF_MEMORY]
    parts += [f"{OUT_OF_MEMORY} ({_short(failed[0])})"] if failed else []
    if believed and not parts:
        parts = [f"in another counting ({count(len(believed), 'figure')})"]
    parts += [_peak(peaks)] if _amounts(peaks) else []
    held = f", peak {format_memory(peak_bytes or 0)}" if _amounts(peaks) else ""
    text = f"{row.label}: {figure(row)}{held}; "
    text += (
        f"published {', '.join(parts)}, shown, never gating"
        if parts
        else "nothing published that can be true"
    )
    doubted = [entry for entry in entries if entry.implausible]
    if doubted:
        left = count(len(doubted), "implausible figure")
        text += f" ({left} left out: {doubted[0].implausible})"
    return printable(text)


def _span(row: Row, entries: Sequence[Entry]) -> str:
    """The slowest and the fastest figure in the measurement's own unit, how many there are, whose the nearest is."""
    times = _seconds(row, entries)
    slowest, fastest = (figure(row, bound(seconds for _, seconds in times)) for bound in (max, min))
    low, high = (slowest, fastest) if slowest.endswith("/s") else (fastest, slowest)
    value, _, unit = low.rpartition(" ")
    text = low if low == high else f"{value if high.endswith(f' {unit}') else low} … {high}"
    nearest, _ = min(times, key=lambda pair: abs(math.log(pair[1] / (row.time_s or 1.0))))
    distinct = {entry.identity: entry for entry, _ in times}
    noted = sum(bool(entry.note) for entry in distinct.values())
    figures = count(len(distinct), "figure") + (f", {noted} with a note (-v)" if noted else "")
    job = f"; {WHOLE_PROGRAM}" if row.counting == JOB_METRIC else ""
    return f"{text} ({figures}; {'nearest ' * (low != high)}{_short(nearest)}{job})"


def _peak(entries: Sequence[Entry]) -> str:
    """The smallest and the largest amount of memory published: `peak 17.4 MiB (2 figures; …)`."""
    amounts = _amounts(entries)
    low, high = (format_memory(bound(amounts)) for bound in (min, max))
    return f"peak {low if low == high else f'{low} … {high}'} ({count(len(entries), 'figure')}; {_short(entries[0])})"


def _amounts(entries: Iterable[Entry]) -> list[float]:
    return [entry.value for entry in entries if isinstance(entry.value, float | int)]


def _seconds(row: Row, entries: Iterable[Entry]) -> list[tuple[Entry, float]]:
    """Each figure as the time that this measurement's work takes by it; both ends of a range."""
    found = []
    for entry in entries:
        for value in entry.value if isinstance(entry.value, tuple) else (entry.value,):
            if isinstance(value, float | int):
                seconds = published_s(entry, value, row.work) if row.work is not None else None
                found += [(entry, seconds)] if seconds is not None else []
    return found


def _lag(row: Row) -> float:
    """Sort key: how far behind all that is published, in log seconds; zero where it is not."""
    figures = [entry for entry in _figures(row) if not (entry.implausible or only_below(entry))]
    times = [seconds for _, seconds in _seconds(row, figures)]
    # A clock's last digit must not shuffle the tests of a run.
    return -max(0.0, round(math.log((row.time_s or 1.0) / max(times)), 3)) if times else 0.0


def _short(entry: Entry) -> str:
    source = entry.source or ""
    return source if len(source) <= LONGEST_SOURCE else source[: LONGEST_SOURCE - 1] + "…"


def limit_lines(rows: Sequence[Row], at_most: int = 4) -> list[str]:
    """Which limits the results were held against in place of a baseline, by whose they are."""
    labels: dict[str, list[str]] = {}
    for row in rows:
        if row.judgement is not None and row.judgement.limit_source:
            labels.setdefault(row.judgement.limit_source, []).append(row.label)
    lines = [
        printable(f"limit: {whose}: {listed(list(dict.fromkeys(names)), 3)}")
        for whose, names in labels.items()
    ]
    more = (
        [f"… and limits of {count(len(lines) - at_most, 'more source')}"]
        if len(lines) > at_most
        else []
    )
    return lines[:at_most] + more


def idle_lines(rows: Iterable[Row]) -> list[str]:
    """Published limits that could gate and do not here, once for each reason; each with the label it speaks of."""
    labels: dict[str, list[str]] = {}
    for row in rows:
        for entry, why in row.idle:
            labels.setdefault(why, []).append(f"{row.label} ({value_text(entry)})")
    return [
        printable(
            f"a published limit does not gate, since {why}: {listed(list(dict.fromkeys(names)), 3)}"
        )
        for why, names in labels.items()
    ]
