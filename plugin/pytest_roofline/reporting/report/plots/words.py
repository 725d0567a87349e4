"""What is said of a row beside its point, and in the table that has the same content."""

from collections.abc import Callable, Iterable, Sequence

from ....core.records import Ceiling
from ....core.rows import Row
from ....core.units import (
    count,
    format_bytes,
    format_flops,
    format_percent,
    format_rate,
    format_seconds,
    format_share,
    printable,
)
from ....core.work import RATE_UNITS, rate_suffix
from ....judging.verdicts import Kind
from .axes import drawable

REGRESSED, INVALID = Kind.REGRESSED.value, Kind.INVALID.value
COLUMNS = ("series", "size", "time", "rate", "of the roofline", "baseline", "difference (time)", "99 % interval",
           "processes", "verdict")  # fmt: skip


def metric_of(row: Row) -> str:
    """The metric of a row with a measurement."""
    assert row.measurement is not None
    return row.measurement.key.metric


def rate_unit(metric: str) -> tuple[float, str]:
    """What one of the unit is that a metric is shown in, in bytes or FLOP per second, and the unit's name."""
    suffix = rate_suffix(metric)
    return (RATE_UNITS[suffix], "TFLOP/s") if suffix == "TFLOPS" else (1e9, "GB/s")


def rate_words(value: float, metric: str) -> str:
    """A rate as people say it: `4.8 TB/s`, `25.3 GB/s`, `989 TFLOP/s`."""
    if rate_suffix(metric) == "TFLOPS":
        return format_flops(value)
    return f"{value / 1e12:.3g} TB/s" if value >= 1e12 else format_rate(value)


def rate_at(row: Row, seconds: float | None, metric: str | None = None) -> float | None:
    """What of a row's work is done in so many seconds, as a rate; None where that has no place on an axis.

    Args:
        row: of a measurement.
        seconds: per call.
        metric: whose counting; the key's own by default.
    """
    found = row.rate_of(seconds, metric) if seconds else None
    return found if drawable(found) else None


def flop_unit(flops: Iterable[float]) -> tuple[float, str]:
    """The unit that fits FLOP/s of which the largest is shown in digits before the point, with its name."""
    return (1e12, "TFLOP/s") if max(flops, default=0.0) >= 1e12 else (1e9, "GFLOP/s")


def ceiling_words(ceiling: Ceiling) -> str:
    """`roofline 4.8 TB/s (datasheet)`."""
    return f"roofline {rate_words(ceiling.value, ceiling.metric)} ({ceiling.source})"


def roof_label(ceiling: Ceiling) -> str:
    """The same at the beginning of a label."""
    return f"R{ceiling_words(ceiling)[1:]}"


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def hover(row: Row, name: str) -> list[str]:
    """All that is known of a point, a line each."""
    one = row.measurement
    assert one is not None
    size = [format_bytes(one.work.size_bytes)] if one.work.size_bytes else []
    spent = [format_seconds(row.time_s)] if row.time_s is not None else []
    reached = [rate_words(row.rate, one.key.metric)] if row.rate is not None else []
    parts = [name, ", ".join([*size, *spent, *reached])]
    if row.roofline_share is not None and one.ceiling is not None:
        parts.append(f"{format_share(row.roofline_share)} of the {ceiling_words(one.ceiling)}")
    parts += _beside(row) + _compared(row)
    parts.append(f"{count(row.processes, 'process', 'es')}: {row.verdict}" if row.processes else row.verdict)
    labels = ", ".join(one.samples.labels)
    parts.append(f"measured: {labels}" if labels else "")
    return [*parts, row.reason if row.red or row.verdict == INVALID else ""]


def _beside(row: Row) -> list[str]:
    """The other ways in which a collective's bytes are counted."""
    one = row.measurement
    if one is None or one.work.algbw_bytes == 0 or row.time_s is None:
        return []
    counted = {"algbw": one.work.algbw_bytes, "busbw": one.work.busbw_bytes, "wirebw": one.work.wire_bytes}
    told = [f"{name} {format_rate(amount / row.time_s)}" for name, amount in counted.items() if amount]
    return [", ".join(told)] if row.rate is not None else []


def _compared(row: Row) -> list[str]:
    if row.change is None:
        return []
    held = "the baseline" if row.baseline_time_s is not None else "the limit"
    inside = f", 99 % interval {interval(row)}" if row.interval is not None else ""
    return [f"{format_percent(row.change)} time against {held}{inside}"]


def interval(row: Row) -> str:
    """`-1.2 … +3.4 %`; empty without one."""
    if row.interval is None:
        return ""
    low, high = (format_percent(bound).removesuffix(" %") for bound in row.interval)
    return f"{low} … {high} %"


def cells(row: Row, name: str) -> tuple[str, ...]:
    """A row of the table, under `COLUMNS`."""
    one = row.measurement
    assert one is not None
    metric, reference = one.key.metric, row.baseline_time_s
    held = rate_at(row, reference)
    texts = (
        name,
        format_bytes(one.work.size_bytes) if one.work.size_bytes else "",
        format_seconds(row.time_s) if row.time_s is not None else "",
        rate_words(row.rate, metric) if row.rate is not None else "",
        format_share(row.roofline_share) if row.roofline_share is not None else "",
        rate_words(held, metric) if held is not None else format_seconds(reference) if reference is not None else "",
        format_percent(row.change) if row.change is not None else "",
        interval(row),
        str(row.processes or ""),
        row.verdict,
    )
    return tuple(printable(text) for text in texts)


def verdicts(rows: Sequence[Row], what: str, where: Callable[[Row], str]) -> str:
    """How many of the rows are slower than what they were held against, and which the most; how many do not count.

    Args:
        rows: of one series.
        what: `size`; its plural has an s more.
        where: what tells one of them from the others.
    """
    judged = [row for row in rows if row.change is not None]
    slower = [row for row in rows if row.verdict == REGRESSED]
    parts = []
    if slower:
        worst = max(slower, key=lambda row: row.change or 0.0)
        by = f", worst {where(worst)} ({format_percent(worst.change)} time)" if worst.change is not None else ""
        parts.append(f"{len(slower)} of {count(len(rows), what)} slower than the baseline or limit{by}")
    elif judged:
        parts.append(f"{len(judged)} of {count(len(rows), what)} compared, none found slower")
    else:
        parts.append(f"none of {count(len(rows), what)} compared")
    others = [row for row in rows if row.red and row.verdict != REGRESSED]
    invalid = [row for row in rows if row.verdict == INVALID and not row.red]
    parts += [f"{len(others)} failed"] if others else []
    parts += [f"{len(invalid)} invalid"] if invalid else []
    return "; ".join(parts)


def device(row: Row) -> str:
    """What was measured, as it calls itself."""
    return row.device or ""


def several_runs(rows: Iterable[Row]) -> bool:
    """Whether what is of one run has to be told from what is of another."""
    return len({row.run for row in rows}) > 1


def of_run(row: Row, several: bool) -> str:
    """What stands behind the name of something of a row where there are several runs: `, run nightly`."""
    return f", run {row.run}" if several else ""


def devices(rows: Sequence[Row], at_most: int = 2) -> str:
    """The devices of rows: `NVIDIA H200`, at most a few of them."""
    names = list(dict.fromkeys(device(row) for row in rows))
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return printable(", ".join(names[:at_most]) + more)
