"""A row in words: its number, its baseline's, the difference, and why it is what it is."""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..core.directions import inverse_if_higher, is_of_tool, is_own_figure
from ..core.resources import registers_of, spills_of
from ..core.rows import FIGURE, PEAK, Columns, Row
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
from .kernels import changes_text

# Below this a link's rate says more about its latency; the time is shown instead.
RATE_FROM_BYTES = 16 * MIB
# Undecided tests that look slow that a text lists.
MOST_SLOW = 3
# Columns of a test's time that its properties in JUnit XML have.
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
# Those of a program's figure, which has no time.
_FIGURE_PROPERTIES = ("value", "unit", "baseline_value")
# Shown in place of a share of the roofline where the last-level cache holds the buffers.
CACHED = "cache"
# Columns of a test's peak memory that its properties in JUnit XML have.
_PEAK_PROPERTIES = ("verdict", "baseline_value", "change")


def rate_text(row: Row, seconds: float | None = None) -> str:
    """Return the rate of a row's work, in the metric's unit.

    It is a time where the work has no rate. `seconds` replaces the row's own time, for example by
    the baseline's.
    """
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
    """Return the rate of a measurement, or its time.

    It is the time where the work sends little over links. `seconds` replaces the row's own time.
    """
    work, seconds = row.work, seconds or row.time_s
    is_small_message = (
        work is not None
        and bool(work.wire_bytes or work.algbw_bytes)
        and work.size_bytes < RATE_FROM_BYTES
    )
    if is_small_message and seconds is not None:
        return format_seconds(seconds)
    return rate_text(row, seconds)


def limit_text(row: Row) -> str:
    """Return the limit that replaced a baseline: `235 GB/s`.

    It is a rate or a time, and empty where there is none.
    """
    limit_s = row.time_verdict.limit_s if row.time_verdict is not None else None
    return "" if limit_s is None else rate_text(row, limit_s)


def kept_text(metric: str, seconds: float) -> str:
    """Return a time, or of a program's own figure what the program states where seconds are kept."""
    if not is_own_figure(metric):
        return format_seconds(seconds)
    return three_digits(inverse_if_higher(metric, seconds))


def subject_text(row: Row) -> str:
    """Return what a change is of, ahead of a text: ` time`. It is empty of a figure, as its name tells it."""
    return "" if row.metric == FIGURE else " time"


def now_text(row: Row) -> str:
    """Return the number of a result in words.

    It is a rate or a time, a kernel's registers and spills, or a figure. A test that ran out of
    memory has the sizes that it asked for.
    """
    if row.resources is not None:
        figures = row.resources.figures
        numbers = {"registers": registers_of(figures), "spills": spills_of(figures)}
        return ", ".join(
            f"{number} {name}" for name, number in numbers.items() if number is not None
        )
    if is_value(row):
        return _own_text(row, row.value)
    return row.lost.allocation.sizes if row.lost is not None else figure(row)


def is_value(row: Row) -> bool:
    """Return True where a result is a figure and no time."""
    return row.value is not None and row.time_s is None


def _own_text(row: Row, value: float | None) -> str:
    """Return a value of a result that is no time, such as its own or its baseline's.

    A figure of a program has three digits, or the form of a rate if it is one.
    """
    if value is None or row.metric != FIGURE:
        return value_text(value, row.unit)
    forms = {"B/s": format_rate, "FLOP/s": format_flops}
    if row.unit in forms:
        return forms[row.unit](value)
    return f"{three_digits(value)} {row.unit or ''}".rstrip()


def value_text(value: float | None, unit: str | None) -> str:
    """Return a figure that is no time: `12.5 J`.

    It is empty where there is none.
    """
    return "" if value is None else f"{value:g} {unit or ''}".rstrip()


def baseline_text(row: Row) -> str:
    """Return the number of the baseline, in the same unit.

    It is empty where there is no baseline, also where a limit replaces it.
    """
    if is_value(row):
        return _own_text(row, row.baseline_value)
    return "" if row.baseline_time_s is None else figure(row, row.baseline_time_s)


def difference_text(row: Row) -> str:
    """Return `+25.1 %`, or the changes of a kernel."""
    if row.exact is not None and row.exact.changes:
        return changes_text(row.exact.changes)
    return "" if row.change is None else format_percent(row.change)


def interval_text(row: Row) -> str:
    """Return the 99 % interval of a difference: `+20.4 % … +30.0 %`."""
    return "" if row.interval is None else " … ".join(map(format_percent, row.interval))


def span_text(row: Row) -> str:
    """Return the interval with one percent sign: `+20.4 … +30.0 %`."""
    return interval_text(row).replace(" %", "", 1)


def cells(row: Row) -> dict[str, tuple[str, float | None]]:
    """Return the cells of a result by column.

    A cell is its text and the number that it is sorted by; an unknown cell is empty text and None.
    """
    measurement = row.measurement
    time_s = row.time_s
    # A row without a time of its own shows that of its measurement, as far as it is a time.
    if not time_s and measurement is not None and not is_value(row):
        time_s = measurement.median_s
    peak_bytes = measurement.peak_bytes if measurement is not None else None
    peak_amount, _ = _amount_cell(peak_bytes, format_memory)
    baseline_cell = _amount_cell(row.baseline_time_s, format_seconds)
    if is_value(row):
        baseline_cell = baseline_text(row), row.baseline_value
    return {
        "size": _amount_cell(row.size_bytes or None, lambda size: format_size(int(size))),
        "time": _amount_cell(time_s, format_seconds),
        "rate": _rate_cell(row),
        "tokens/s": _amount_cell(row.tokens_per_second, three_digits),
        "roof": (roof_text(row), row.roofline_share),
        "limit": (limit_text(row), None),
        "baseline": baseline_cell,
        "peak": (f"{peak_amount} {peak_text(row)}".strip(), peak_bytes),
        "held": _amount_cell(row.held_bytes, format_memory),
        "compile": _amount_cell(row.compile_s, format_seconds),
        "diff %": _amount_cell(row.change, lambda change: f"{change * 100:+.1f}"),
        "99 %": (span_text(row).replace(" … ", "…").removesuffix(" %"), row.change_low),
        "n": (processes_text(row), row.processes),
        "value": _amount_cell(
            row.value if is_value(row) and row.metric != FIGURE else None,
            lambda value: f"{_own_text(row, value)} {row.metric}",
        ),
    }


def _rate_cell(row: Row) -> tuple[str, float | None]:
    """Return the cell of a rate, or of a program's figure."""
    if row.metric == FIGURE:
        return now_text(row), row.value
    return ("", None) if row.rate is None else (rate_text(row), row.rate)


def against_text(row: Row) -> str:
    """Return the change against the baseline: `+30.0 % (+25.8…+34.4)`.

    It is `limit 235 GB/s` where a limit replaces the baseline.
    """
    if limit_text(row) and row.baseline_time_s is None:
        return f"limit {limit_text(row)}"
    span = span_text(row).replace(" … ", "…").removesuffix(" %")
    return difference_text(row) + (f" ({span})" if span else "")


def _amount_cell(
    value: float | None, format_value: Callable[[float], str]
) -> tuple[str, float | None]:
    return ("", None) if value is None else (format_value(value), value)


def roof_text(row: Row) -> str:
    """Return the share of the roofline, as `81%` or `81%*`.

    The star marks a roofline that was measured on this machine. It is `cache` where the bytes came
    from a cache.
    """
    ceiling = row.measurement.ceiling if row.measurement is not None else None
    if row.roofline_share is None or ceiling is None:
        return ""
    if "cache_resident" in (row.labels or ()) and not is_arithmetic(ceiling):
        return CACHED
    if row.roofline_share >= 10:
        return ">999%"
    mark = "*" if ceiling.source == "measured" else ""
    return f"{row.roofline_share:.0%}{mark}"


def peak_text(row: Row) -> str:
    """Return the change of the peak memory: `+2.0 %`."""
    change = row.peak.change if row.peak is not None else None
    return "" if change is None else format_percent(change)


def processes_text(row: Row) -> str:
    """Return the numbers of new and of baseline processes: `1:15`.

    A row that was compared with a published limit has the first number only.
    """
    if row.interval is None or row.processes is None:
        return ""
    return f"{row.processes}" + (f":{row.baseline_processes}" if row.baseline_processes else "")


def sentence(row: Row) -> str:
    """Return a result as a sentence, the difference first.

    It reads `+25.1 % time (57.8 GB/s, baseline 118 GB/s), …`.
    """
    texts = [row.reason]
    is_timed = row.exact is None and not row.by_peak
    if is_timed and row.tolerance is not None and row.change is not None:
        parts = [now_text(row)]
        if baseline := baseline_text(row):
            parts.append(f"baseline {baseline}")
        change = difference_text(row) + subject_text(row)
        texts.insert(0, f"{change} ({', '.join(parts)}), 99 % interval {interval_text(row)}, "
                       f"tolerance {format_tolerance(row.tolerance)}")  # fmt: skip
    elif row.exact is not None and difference_text(row):
        texts.insert(0, difference_text(row))
    return "; ".join(filter(None, texts)) or f"{row.verdict} {now_text(row)}".strip()


def counts_text(rows: Iterable[Row]) -> str:
    """Return how many rows have each verdict: `1 REGRESSED, 6 PASSED`.

    Verdicts are in the order of the rows.
    """
    counts = Counter(row.verdict for row in rows)
    return ", ".join(f"{number} {word}" for word, number in counts.items())


def tolerance_text(rows: Iterable[Row]) -> str:
    """Return the tolerance by which times were judged.

    It reads `tolerance 5 %`, or `tolerance 5 % in 4 of 6 tests, 10 % in 2`. It is empty where no
    time was compared.
    """
    return tolerances_text(
        row.tolerance
        for row in rows
        if row.tolerance is not None and row.exact is None and is_compared(row)
    )


def tolerances_text(tolerances: Iterable[float]) -> str:
    """Return the tolerances of tests, shares of time, as text.

    It is empty for none.
    """
    counts = Counter(map(format_tolerance, tolerances))
    if len(counts) < 2:
        return "".join(f"tolerance {share}" for share in counts)
    (first, first_count), *other_counts = counts.most_common()
    parts = [f"{first} in {first_count} of {counts.total()} tests"]
    parts += [f"{share} in {number}" for share, number in other_counts]
    return f"tolerance {', '.join(parts)}"


def slow_text(rows: Iterable[Row]) -> str:
    """Return the undecided tests that look slow: `copy[64MiB] +30 %`.

    It is empty for none.
    """
    texts = []
    for row in rows:
        if looks_slow(row) and row.change is not None:
            # A figure of which higher is better gets worse by a negative change.
            is_negative = row.change < 0
            rounded_change = f"+{format_tolerance(round(row.change, 3))}"
            texts.append(
                f"{printable(row.label)} {difference_text(row) if is_negative else rounded_change}"
            )
    return listed(texts, MOST_SLOW)


def totals_text(rows: Sequence[Row]) -> str:
    """Return the counts of verdicts, and undecided tests that look slow."""
    slow = slow_text(rows)
    return counts_text(rows) + (f"; undecided: {slow}" if slow else "")


def properties(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the times of a test as names and texts.

    They are for JUnit XML and other reports. Each name is `roofline.` and the name of a column.
    """
    pairs = []
    for row in rows:
        names = (*_PROPERTIES, *(_FIGURE_PROPERTIES if row.metric == FIGURE else ()))
        figures = {name: getattr(row, name) for name in names}
        figures["limit_time_s"] = row.time_verdict.limit_s if row.time_verdict is not None else None
        pairs += _property_pairs(row, figures)
    return pairs


def peak_properties(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the peak memory of a test as names and texts.

    They are for JUnit XML and other reports.
    """
    return [
        pair
        for row in rows
        for column in row.columns()
        if column.metric == PEAK
        for pair in _property_pairs(row, _peak_fields(column, has_verdict=row.peak is not None))
    ]


def _property_pairs(row: Row, figures: Mapping[str, object]) -> list[tuple[str, str]]:
    """Return known figures as names and texts.

    The name of a named result of the test is part of each name.
    """
    # The figures of a tool may share their names.
    name = row.label if is_of_tool(row.benchmark) else row.name
    prefix = f"roofline.{name}." if name else "roofline."
    texts = {
        name: f"{value:.6g}" if isinstance(value, float) else str(value)
        for name, value in figures.items()
        if value is not None
    }
    return [(printable(prefix + name), text) for name, text in texts.items()]


def _peak_fields(peak: Columns, *, has_verdict: bool) -> dict[str, object]:
    """Return the columns of the peak memory by name.

    Those of its verdict follow if it has one.
    """
    verdict_fields = (
        {f"{PEAK}.{name}": getattr(peak, name) for name in _PEAK_PROPERTIES} if has_verdict else {}
    )
    return {PEAK: peak.value, **verdict_fields}
