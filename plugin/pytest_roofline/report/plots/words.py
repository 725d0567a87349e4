"""What is said of a row beside its point, in the table that has the same content, and of several in a sentence."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence

from ...core.records import Ceiling
from ...core.rows import Row
from ...core.units import (
    count,
    format_bytes,
    format_flops,
    format_percent,
    format_rate,
    format_seconds,
    format_share,
    printable,
)
from ...core.work import RATE_UNITS, rate_suffix
from ...stats.verdicts import Kind
from ..words import interval_text
from .chart import drawable, median_of

COLUMNS = ("series", "size", "time", "rate", "of the roofline", "baseline", "difference (time)", "99 % interval",
           "processes", "verdict")  # fmt: skip
# Runs whose own measured roofline stands beside the pointer.
_MOST_TOLD = 8


def rate_unit(metric: str) -> tuple[float, str]:
    """What one of the unit is that a metric is shown in, in bytes or FLOP per second, and the unit's name."""
    suffix = rate_suffix(metric)
    return (RATE_UNITS[suffix], "TFLOP/s") if suffix == "TFLOPS" else (1e9, "GB/s")


def rate_words(value: float, metric: str) -> str:
    """A rate as people say it: `4.8 TB/s`, `25.3 GB/s`, `989 TFLOP/s`."""
    if rate_suffix(metric) == "TFLOPS":
        return format_flops(value)
    return f"{value / 1e12:.3g} TB/s" if value >= 1e12 else format_rate(value)


def flop_unit(flops: Iterable[float | None]) -> tuple[float, str]:
    """The unit that fits FLOP/s of which the largest is shown in digits before the point, with its name."""
    most = max((value for value in flops if value is not None), default=0.0)
    return (1e12, "TFLOP/s") if most >= 1e12 else (1e9, "GFLOP/s")


def sentence(text: str) -> str:
    """With a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def ceiling_words(ceiling: Ceiling) -> str:
    """`roofline 4.8 TB/s (datasheet)`."""
    return f"roofline {rate_words(ceiling.value, ceiling.metric)} ({ceiling.source})"


def roofs_of(rows: Sequence[Row]) -> list[tuple[Ceiling, str, list[str]]]:
    """Each roofline once, with its label and the lines beside the pointer: of measured ones the median of a device."""
    found: dict[tuple[str, str | None, float | None], list[tuple[str, Ceiling]]] = {}
    for row in rows:
        ceiling = row.measurement.ceiling if row.measurement is not None else None
        if ceiling is not None:
            value = ceiling.value if ceiling.source == "datasheet" else None
            found.setdefault((ceiling.metric, row.device, value), []).append((row.run or "", ceiling))
    several = len({product for _, product, _ in found}) > 1
    return [_roof(same, f", {product}" if several else "") for (_, product, _), same in found.items()]


def _roof(same: Sequence[tuple[str, Ceiling]], whose: str) -> tuple[Ceiling, str, list[str]]:
    first, values = same[0][1], {ceiling.value for _, ceiling in same}
    middle = Ceiling(first.metric, median_of(values), first.source, first.origin)
    runs: dict[str, list[float]] = {}
    for name, ceiling in same:
        runs.setdefault(name, []).append(ceiling.value)
    many = f" in {len(runs)} runs" if len(runs) > 1 else f", median of {len(values)}"
    label = f"R{ceiling_words(middle)[1:].removesuffix(')')}{many * (len(values) > 1)}{whose})"
    own = [f"run {name}: {rate_words(median_of(each), first.metric)}" for name, each in runs.items()]
    return middle, label, [label, *(own[:_MOST_TOLD] if len(values) > 1 else [])]


def hover(row: Row, name: str) -> list[str]:
    """All that is known of a point, a line each."""
    one = row.measurement
    assert one is not None
    spent = [format_seconds(row.time_s)] if row.time_s is not None else []
    reached = [rate_words(row.rate, one.key.metric)] if row.rate is not None else []
    parts = [name, ", ".join([*([format_bytes(row.size_bytes)] if row.size_bytes else []), *spent, *reached])]
    if row.roofline_share is not None and one.ceiling is not None:
        parts.append(f"{format_share(row.roofline_share)} of the {ceiling_words(one.ceiling)}")
    if one.work.algbw_bytes and row.rate is not None and row.time_s is not None:
        # The other ways in which a collective's bytes are counted.
        counted = {"algbw": one.work.algbw_bytes, "busbw": one.work.busbw_bytes, "wirebw": one.work.wire_bytes}
        parts.append(
            ", ".join(f"{way} {format_rate(bytes_ / row.time_s)}" for way, bytes_ in counted.items() if bytes_)
        )
    if row.change is not None:
        held = "the baseline" if row.baseline_time_s is not None else "the limit"
        inside = f", 99 % interval {interval_text(row)}" if row.interval is not None else ""
        parts.append(f"{format_percent(row.change)} time against {held}{inside}")
    parts.append(f"{count(row.processes, 'process', 'es')}: {row.verdict}" if row.processes else row.verdict)
    parts.append(f"measured: {', '.join(row.labels)}" if row.labels else "")
    return [*parts, row.reason if row.red or row.verdict == Kind.INVALID else ""]


def cells(row: Row, name: str) -> tuple[str, ...]:
    """A row of the table, under `COLUMNS`."""
    metric, reference = row.counting or "", row.baseline_time_s
    held = row.baseline_rate if drawable(row.baseline_rate) else None
    texts = (
        name,
        format_bytes(row.size_bytes) if row.size_bytes else "",
        format_seconds(row.time_s) if row.time_s is not None else "",
        rate_words(row.rate, metric) if row.rate is not None else "",
        format_share(row.roofline_share) if row.roofline_share is not None else "",
        rate_words(held, metric) if held is not None else format_seconds(reference) if reference is not None else "",
        format_percent(row.change) if row.change is not None else "",
        interval_text(row),
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
    slower = [row for row in rows if row.verdict == Kind.REGRESSED]
    judged, total = sum(row.change is not None for row in rows), count(len(rows), what)
    parts = [f"{judged} of {total} compared, none found slower" if judged else f"none of {total} compared"]
    if slower:
        worst = max(slower, key=lambda row: row.change or 0.0)
        by = f", worst {where(worst)} ({format_percent(worst.change)} time)" if worst.change is not None else ""
        parts = [f"{len(slower)} of {total} slower than the baseline or limit{by}"]
    others = Counter("failed" if row.red else "invalid" if row.verdict == Kind.INVALID else "" for row in rows
                     if row not in slower)  # fmt: skip
    return "; ".join([*parts, *(f"{others[word]} {word}" for word in ("failed", "invalid") if others[word])])


def of_run(row: Row, rows: Iterable[Row]) -> str:
    """What stands behind the name of something of a row where the rows are of several runs: `, run nightly`."""
    return f", run {row.run}" if len({one.run for one in rows}) > 1 else ""


def devices(rows: Sequence[Row], at_most: int = 2) -> str:
    """The devices of rows: `NVIDIA H200`, at most a few of them."""
    names = list(dict.fromkeys(row.device or "" for row in rows))
    more = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return printable(", ".join(names[:at_most]) + more)
