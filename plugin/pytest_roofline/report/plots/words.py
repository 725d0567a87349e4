"""The words on a row beside its point, and on several rows in a sentence."""

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from statistics import median

from ...core.groups import group_by
from ...core.keys import Scalar
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
    size_label,
)
from ...core.verdicts import Kind
from ...core.work import rate_suffix
from ..words import interval_text, subject_text

# The mark after the number of a failed test.
RED = "✕"


def computes(metric: str | None) -> bool:
    """Return True where a metric counts FLOPs."""
    return rate_suffix(metric or "") == "TFLOPS"


def rate_words(value: float, metric: str) -> str:
    """Return a rate: `4.8 TB/s`, `25.3 GB/s`, `989 TFLOP/s`."""
    if computes(metric):
        return format_flops(value)
    return f"{value / 1e12:.3g} TB/s" if value >= 1e12 else format_rate(value)


def flop_unit(flops: Iterable[float | None]) -> tuple[float, str]:
    """Return the size and name of a unit of FLOP/s.

    It is the unit in which the largest value is at least 1.
    """
    largest = max((value for value in flops if value is not None), default=0.0)
    return (1e12, "TFLOP/s") if largest >= 1e12 else (1e9, "GFLOP/s")


def value_words(name: str, value: Scalar) -> str:
    """Return a parameter's value as text, with its name unless it is a text itself."""
    if isinstance(value, bool):
        return name if value else f"not {name}"
    if name.endswith("_bytes") and isinstance(value, int):
        return size_label(value)
    if name == "world_size":
        return f"{value} ranks"
    return value if isinstance(value, str) else f"{name} {value}"


def sentence(text: str) -> str:
    """Return a text with a capital and a full stop."""
    return f"{text[:1].upper()}{text[1:].removesuffix('.')}."


def ceiling_of(row: Row) -> Ceiling | None:
    """Return the roofline of a row's work, or None."""
    return row.measurement.ceiling if row.measurement is not None else None


def ceiling_words(ceiling: Ceiling) -> str:
    """Return `roofline 4.8 TB/s (datasheet)`."""
    return f"roofline {rate_words(ceiling.value, ceiling.metric)} ({ceiling.source})"


def roofs_of(rows: Iterable[Row]) -> list[tuple[Ceiling, str]]:
    """Return the rooflines of rows, each once, with its label.

    Measured rooflines of the same device and metric are one: their median.
    """
    ceilings = [
        (ceiling, row.device, ceiling.value if ceiling.source == "datasheet" else None)
        for row in rows
        if (ceiling := ceiling_of(row)) is not None
    ]
    groups = group_by(ceilings, lambda entry: (entry[0].metric, *entry[1:]))
    has_several_devices = len({device for _, device, _ in groups}) > 1
    return [
        _roof([ceiling for ceiling, *_ in entries], f", {device}" if has_several_devices else "")
        for (_, device, _), entries in groups.items()
    ]


def _roof(ceilings: Sequence[Ceiling], device: str) -> tuple[Ceiling, str]:
    """Return the median of rooflines of one metric, and its label.

    The label ends in `device`, which is a text such as `, NVIDIA H200`, or empty.
    """
    first, values = ceilings[0], {ceiling.value for ceiling in ceilings}
    middle = Ceiling(first.metric, median(values), first.source, first.origin)
    number = f", median of {len(values)}" if len(values) > 1 else ""
    # From `roofline 4.8 TB/s (datasheet)`: a capital, and the number and the device within the brackets.
    return middle, f"R{ceiling_words(middle)[1:].removesuffix(')')}{number}{device})"


def share_words(row: Row) -> str:
    """Return `81.2 % of the roofline 4.8 TB/s (datasheet)`.

    It is empty where no roofline is known.
    """
    ceiling = ceiling_of(row)
    if row.roofline_share is None or ceiling is None:
        return ""
    return f"{format_share(row.roofline_share)} of the {ceiling_words(ceiling)}"


def change_words(row: Row) -> str:
    """Return the change against the baseline, or an empty text.

    It reads `+20.0 % time against the baseline, 99 % interval +18.1 % … +22.0 %`.
    """
    if row.change is None:
        return ""
    basis = "the baseline" if row.baseline_value is not None else "the limit"
    interval = f", 99 % interval {interval_text(row)}" if row.interval is not None else ""
    return f"{format_percent(row.change)}{subject_text(row)} against {basis}{interval}"


def hover(row: Row, name: str) -> list[str]:
    """Return the lines beside the pointer on a row.

    An unknown fact is an empty line, which the figure leaves out.
    """
    amounts = (
        format_bytes(row.size_bytes) if row.size_bytes else "",
        format_seconds(row.time_s) if row.time_s is not None else "",
        rate_words(row.rate, row.counting or "") if row.rate is not None else "",
    )
    return [
        name,
        ", ".join(filter(None, amounts)),
        share_words(row),
        _countings(row),
        change_words(row),
        f"{count(row.processes, 'process', 'es')}: {row.verdict}" if row.processes else row.verdict,
        f"measured: {', '.join(row.labels)}" if row.labels else "",
        row.reason if row.red or row.verdict == Kind.INVALID else "",
    ]


def _countings(row: Row) -> str:
    """Return the rate of a collective by each way to count its bytes.

    It is empty for other work. The algorithm bandwidth counts the size of the collective, the bus bandwidth that size
    times the factor of the operation, and the wire bandwidth the bytes that cross a link.
    """
    work = row.work
    if work is None or not work.algbw_bytes or row.rate is None or row.time_s is None:
        return ""
    sizes = {"algbw": work.algbw_bytes, "busbw": work.busbw_bytes, "wirebw": work.wire_bytes}
    return ", ".join(
        f"{name} {format_rate(size / row.time_s)}" for name, size in sizes.items() if size
    )


def mark_text(row: Row, number: str) -> str:
    """Return the text of a bar or cell.

    It is the number, a cross where the test failed, or why there is no number.
    """
    if row.lost is not None:
        return "OOM"
    if row.verdict == Kind.INVALID or row.rate is None:
        return "?" if row.rate is None else "inv."
    return f"{number} {RED}".strip() if row.red else number


def verdicts(rows: Sequence[Row], noun: str, name: Callable[[Row], str]) -> str:
    """Return a text on how many rows are slower, and the slowest.

    The numbers of failed and of invalid rows follow.
    """
    slower = [row for row in rows if row.verdict == Kind.REGRESSED]
    compared_count, total = sum(row.change is not None for row in rows), count(len(rows), noun)
    text = (
        f"{compared_count} of {total} compared, none found slower"
        if compared_count
        else f"none of {total} compared"
    )
    if slower:
        worst = max(slower, key=lambda row: row.slowdown or 0.0)
        change = (
            f", worst {name(worst)} ({format_percent(worst.change)}{subject_text(worst)})"
            if worst.change is not None
            else ""
        )
        text = f"{len(slower)} of {total} slower than the baseline or limit{change}"
    words = Counter("failed" if row.red else "invalid" if row.verdict == Kind.INVALID else "" for row in rows
                    if row not in slower)  # fmt: skip
    counts = (f"{words[word]} {word}" for word in ("failed", "invalid") if words[word])
    return "; ".join([text, *counts])


def of_several_runs(rows: Iterable[Row]) -> bool:
    """Return True where the rows are of several runs."""
    return len({row.run for row in rows}) > 1


def of_run(row: Row, has_several_runs: bool) -> str:
    """Return `, run nightly` where rows are of several runs."""
    return f", run {row.run}" if has_several_runs else ""


def devices(rows: Sequence[Row], at_most: int = 2) -> str:
    """Return the names of the rows' devices, then how many more there are.

    It reads `NVIDIA H200, NVIDIA L4 and 1 more`.
    """
    names = list(dict.fromkeys(row.device or "" for row in rows))
    suffix = f" and {len(names) - at_most} more" if len(names) > at_most else ""
    return printable(", ".join(names[:at_most]) + suffix)
