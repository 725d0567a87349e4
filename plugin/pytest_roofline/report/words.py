"""A row in words: its number, its baseline's, the difference, and why it is what it is."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..core.resources import registers_of, spills_of
from ..core.rows import PEAK, Columns, Row
from ..core.statuses import is_compared, looks_slow
from ..core.units import (
    MIB,
    format_flops,
    format_memory,
    format_percent,
    format_rate,
    format_seconds,
    format_size,
    format_tolerance,
    listed,
    printable,
    three_digits,
)
from ..core.work import rate_suffix
from ..hardware import is_arithmetic
from ..kernel_gate.text import changes_text

# Below this a link's rate says more about its latency; the time is shown instead.
RATE_FROM_BYTES = 16 * MIB
# Of undecided tests that look slow, so many are named.
MOST_SLOW = 3
# Columns that the properties of a test in JUnit XML have, of its time and of its memory.
_PROPERTIES = (
    *(
        "time_s",
        "rate",
        "rate_unit",
        "tokens_per_second",
        "roofline_share",
        "verdict",
        "tolerance",
        "detectable",
    ),
    *("change", "change_low", "change_high", "baseline_time_s", "processes"),
)
# Where a share of the roofline would stand, of what the last-level cache holds.
CACHED = "cache"
_PEAK_PROPERTIES = ("verdict", "baseline_value", "change")


def cut(lines: Sequence[str], at_most: int, what: str) -> list[str]:
    """At most so many of the lines, and behind them `… and 3 more of these`, where `what` is `of these`."""
    return [
        *lines[:at_most],
        *([f"… and {len(lines) - at_most} more {what}"] if len(lines) > at_most else []),
    ]


def rate_text(row: Row, seconds: float | None = None) -> str:
    """The rate of its work, in the metric's unit; of another time than its own where `seconds` is given."""
    seconds = seconds or row.time_s
    per_second = row.rate_of(seconds)
    if per_second is None or row.key is None:
        return "" if seconds is None else format_seconds(seconds)
    return (
        format_flops(per_second)
        if rate_suffix(row.key.metric) == "TFLOPS"
        else format_rate(per_second)
    )


def figure(row: Row, seconds: float | None = None) -> str:
    """The number that stands for a measurement: its rate, or its time where what crosses links is small."""
    work, seconds = row.work, seconds or row.time_s
    crosses = (
        work is not None
        and bool(work.wire_bytes or work.algbw_bytes)
        and work.size_bytes < RATE_FROM_BYTES
    )
    return format_seconds(seconds) if crosses and seconds is not None else rate_text(row, seconds)


def limit_text(row: Row) -> str:
    """The rate (or time) that a result was held against in place of a baseline, as `235 GB/s`; else empty."""
    limit_s = row.time_verdict.limit_s if row.time_verdict is not None else None
    return "" if limit_s is None else rate_text(row, limit_s)


def now_text(row: Row) -> str:
    """What was found: a rate or a time, a kernel's registers and spills, a figure, or the memory that was asked for."""
    if row.resources is not None:
        held = row.resources.figures
        known = {"registers": registers_of(held), "spills": spills_of(held)}
        return ", ".join(f"{number} {name}" for name, number in known.items() if number is not None)
    if is_value(row):
        return value_text(row.value, row.unit)
    return row.lost.sizes if row.lost is not None else figure(row)


def is_value(row: Row) -> bool:
    """Return whether a result is one figure that is no time."""
    return row.value is not None and row.time_s is None


def value_text(value: float | None, unit: str | None) -> str:
    """A figure that is no time with its unit, as `12.5 J`; empty where there is none."""
    return "" if value is None else f"{value:g} {unit or ''}".rstrip()


def baseline_text(row: Row) -> str:
    """What it was compared with, in the same unit; empty where it was not, or with a limit."""
    if is_value(row):
        return value_text(row.baseline_value, row.unit)
    return "" if row.baseline_time_s is None else figure(row, row.baseline_time_s)


def difference_text(row: Row) -> str:
    """`+25.1 %` of the time or of another figure, or which figures of a kernel changed."""
    if row.exact is not None and row.exact.changes:
        return changes_text(row.exact.changes)
    return "" if row.change is None else format_percent(row.change)


def interval_text(row: Row) -> str:
    """`+20.4 % … +30.0 %`, the 99 % interval of the difference."""
    return "" if row.interval is None else " … ".join(map(format_percent, row.interval))


def span_text(row: Row) -> str:
    """The same as a person reads it in a line: `+20.4 … +30.0 %`."""
    return interval_text(row).replace(" %", "", 1)


def cells(row: Row) -> dict[str, tuple[str, float | None]]:
    """What tables show of a result by column: the text, and the number that it is sorted by; empty is unknown."""
    one = row.measurement
    time_s = row.time_s or (one.median_s if one is not None else None)
    peak_bytes = one.peak_bytes if one is not None else None
    return {
        "size": _amount(row.size_bytes or None, lambda size: format_size(int(size))),
        "time": _amount(time_s, format_seconds),
        "rate": ("", None) if row.rate is None else (rate_text(row), row.rate),
        "tokens/s": _amount(row.tokens_per_second, three_digits),
        "roof": (roof_text(row), row.roofline_share),
        "limit": (limit_text(row), None),
        "baseline": _amount(row.baseline_time_s, format_seconds)
        if not is_value(row)
        else (baseline_text(row), row.baseline_value),
        "peak": (f"{_amount(peak_bytes, format_memory)[0]} {peak_text(row)}".strip(), peak_bytes),
        "held": _amount(row.held_bytes, format_memory),
        "compile": _amount(row.compile_s, format_seconds),
        "diff %": _amount(row.change, lambda change: f"{change * 100:+.1f}"),
        "99 %": (span_text(row).replace(" … ", "…").removesuffix(" %"), row.change_low),
        "n": (processes_text(row), row.processes),
        "value": _amount(
            row.value if is_value(row) else None,
            lambda value: f"{value_text(value, row.unit)} {row.metric}",
        ),
    }


def against_text(row: Row) -> str:
    """`+30.0 % (+25.8…+34.4)`, what it changed against its baseline; of a limit alone `limit 235 GB/s`."""
    if limit_text(row) and row.baseline_time_s is None:
        return f"limit {limit_text(row)}"
    span = span_text(row).replace(" … ", "…").removesuffix(" %")
    return difference_text(row) + (f" ({span})" if span else "")


def _amount(value: float | None, form: Callable[[float], str]) -> tuple[str, float | None]:
    return ("", None) if value is None else (form(value), value)


def roof_text(row: Row) -> str:
    """The share of the roofline, with a star where that was measured; `cache` where a rate of bytes was a cache's."""
    ceiling = row.measurement.ceiling if row.measurement is not None else None
    if row.roofline_share is None or ceiling is None:
        return ""
    if "cache_resident" in (row.labels or ()) and not is_arithmetic(ceiling):
        return CACHED
    if row.roofline_share >= 10:
        return ">999%"
    return f"{row.roofline_share:.0%}" + "*" * (ceiling.source == "measured")


def peak_text(row: Row) -> str:
    """By how much the peak of memory differs from the baseline's."""
    change = row.peak.change if row.peak is not None else None
    return "" if change is None else format_percent(change)


def processes_text(row: Row) -> str:
    """New processes against those behind the baseline; a published limit has none behind it."""
    if row.interval is None or row.processes is None:
        return ""
    return f"{row.processes}" + (f":{row.baseline_processes}" if row.baseline_processes else "")


def sentence(row: Row) -> str:
    """A result in a sentence, the difference first: `+25.1 % time (57.8 GB/s, baseline 118 GB/s), …`."""
    told = [row.reason]
    timed = row.exact is None and not row.by_peak
    if timed and row.tolerance is not None and row.change is not None:
        parts = [now_text(row), *(f"baseline {text}" for text in [baseline_text(row)] if text)]
        told.insert(0, f"{difference_text(row)} time ({', '.join(parts)}), 99 % interval {interval_text(row)}, "
                       f"tolerance {format_tolerance(row.tolerance)}")  # fmt: skip
    elif row.exact is not None and difference_text(row):
        told.insert(0, difference_text(row))
    return "; ".join(filter(None, told)) or f"{row.verdict} {now_text(row)}".strip()


def counts_text(rows: Iterable[Row]) -> str:
    """How many of each word, in the order of the rows: `1 REGRESSED, 6 PASSED`."""
    counts = Counter(row.verdict for row in rows)
    return ", ".join(f"{number} {word}" for word, number in counts.items())


def tolerance_text(rows: Iterable[Row]) -> str:
    """Return the tolerance that times were judged by: `tolerance 5 %`, or `tolerance 5 % in 4 of 6 tests, 10 % in 2`.

    Empty where nothing was compared by one.
    """
    return tolerances_text(
        row.tolerance
        for row in rows
        if row.tolerance is not None and row.exact is None and is_compared(row)
    )


def tolerances_text(tolerances: Iterable[float]) -> str:
    """Return the tolerances of tests, each a share of the time, as one text; empty for none."""
    counts = Counter(map(format_tolerance, tolerances))
    if len(counts) < 2:
        return "".join(f"tolerance {share}" for share in counts)
    (first, number), *others = counts.most_common()
    parts = [f"{first} in {number} of {counts.total()} tests"]
    parts += [f"{share} in {times}" for share, times in others]
    return f"tolerance {', '.join(parts)}"


def slow_text(rows: Iterable[Row]) -> str:
    """Return what is undecided and looks slow, as `copy[64MiB] +30 %`; empty for none."""
    slow = [
        f"{printable(row.label)} +{format_tolerance(round(row.change, 3))}"
        for row in rows
        if looks_slow(row) and row.change is not None
    ]
    return listed(slow, MOST_SLOW)


def totals_text(rows: Sequence[Row]) -> str:
    """Return how many of each word, and what leaves a comparison undecided."""
    slow = slow_text(rows)
    return counts_text(rows) + (f"; undecided: {slow}" if slow else "")


def properties(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The times of a test as name and text, for JUnit XML and other reports; names are those of the columns."""
    pairs = []
    for row in rows:
        told = {name: getattr(row, name) for name in _PROPERTIES}
        told["limit_time_s"] = row.time_verdict.limit_s if row.time_verdict is not None else None
        pairs += _pairs(row, told)
    return pairs


def peak_properties(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """The peaks of memory of a test, in the same way."""
    return [
        pair
        for row in rows
        for column in row.columns()
        if column.metric == PEAK
        for pair in _pairs(row, _of_peak(column, judged=row.peak is not None))
    ]


def _pairs(row: Row, figures: Mapping[str, object]) -> list[tuple[str, str]]:
    prefix = f"roofline.{row.name}." if row.name else "roofline."
    texts = {
        name: f"{value:.6g}" if isinstance(value, float) else str(value)
        for name, value in figures.items()
        if value is not None
    }
    return [(printable(prefix + name), text) for name, text in texts.items()]


def _of_peak(peak: Columns, *, judged: bool) -> dict[str, object]:
    verdict = {f"{PEAK}.{name}": getattr(peak, name) for name in _PEAK_PROPERTIES} if judged else {}
    return {PEAK: peak.value, **verdict}
