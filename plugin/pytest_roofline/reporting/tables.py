"""Tables that a person reads at 80 columns, plain where the output is no terminal."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from ..core.memory import WORD, OutOfMemory
from ..core.records import Measurement
from ..core.rows import badness
from ..core.units import format_bytes, format_memory, format_percent, format_seconds, printable, three_digits
from ..judging.comparing import Row
from ..judging.hardware import format_ceiling, is_arithmetic
from ..judging.stats import growth
from ..judging.verdicts import Kind, Verdict, interval_text
from .layout import new_table, render
from .results import Result, limit_text, new_s, rate_text

STYLES = {
    Kind.REGRESSED.value: "bold red",
    Kind.INVALID.value: "yellow",
    Kind.INCONCLUSIVE.value: "yellow",
    Kind.IMPROVED.value: "green",
    Kind.PASSED.value: "green",
    "FAILED": "bold red",
    WORD: "yellow",
}
# With less room for longer names than this many characters, tests get a second table, of these columns.
NAME_ROOM, APART = 24, ("tokens/s", "limit", "peak", "held", "compile")
# What the share is called where work has tokens.
_MFU = {
    "datasheet": " (with tokens: MFU)",
    "measured": " (with tokens: MFU, but of this product and no datasheet's peak)",
}
# Where a share of the roofline would stand, of what the last-level cache holds; so many are named below the table.
CACHED, MOST_CACHED = "cache", 3


def results_table(results: Sequence[Result], width: int, colour: bool, exhausted: Sequence[OutOfMemory] = ()) -> str:
    """Test, size, time, rates, roofline, limit, memory, compiling, difference with its interval, processes, verdict.

    The worst come first where a test failed.
    Behind them, without figures, stand the tests that ran out of memory. Where there is no room for names, tokens,
    limits, memory and compiling stand in a second table.
    """
    failed = any(result.word in ("FAILED", Kind.REGRESSED.value) for result in results)
    ordered = sorted(results, key=_badness) if failed else list(results)
    rates = ["" if _unresolved(r.measurement) else rate_text(r.measurement, new_s(r)) for r in ordered]
    # One unit for all goes into the heading, which leaves its room to the tests' names.
    units = {rate.rpartition(" ")[2] for rate in rates if rate}
    heading = units.pop() if len(units) == 1 else ""
    rows = [_row(result, rate.removesuffix(heading).strip()) for result, rate in zip(ordered, rates, strict=True)]
    rows += [_exhausted_row(record) for record in exhausted]
    columns = [("test", "left"), ("size", "right"), ("time", "right"), (heading or "rate", "right"),
               ("tokens/s", "right"), ("roof", "right"), ("limit", "right"), ("peak", "right"),
               ("held", "right"), ("compile", "right"), ("diff %", "right"), ("99 %", "right"), ("n", "right"),
               ("verdict", "left")]  # fmt: skip
    # A column with nothing in it only takes room from the tests' names.
    filled = [index for index in range(len(columns)) if any(row[index] for row in rows)]
    tables = [[columns[index][0] for index in filled]]
    longest = max((cell_len(str(row[0])) for row in rows), default=0)
    if _room(columns, rows, filled, width) < min(NAME_ROOM, longest):
        apart = [name for name in tables[0] if name in APART]
        tables = [[name for name in tables[0] if name not in apart], *([["test", *apart]] if apart else [])]
    return "\n".join(_rendered(columns, rows, names, width, colour) for names in tables)


def _room(
    columns: Sequence[tuple[str, str]], rows: Sequence[Sequence[str | Text]], filled: Sequence[int], width: int
) -> int:
    """Characters of a line that are left for the tests' names, which stand in the first column."""
    widths = (max(cell_len(str(cell)) for cell in (columns[i][0], *(row[i] for row in rows))) for i in filled[1:])
    return width - sum(2 + each for each in widths)


def _rendered(
    columns: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[str | Text]],
    names: Sequence[str],
    width: int,
    colour: bool,
) -> str:
    """A table of some of the columns; behind the first, rows without any of them are left out."""
    chosen = [index for index, column in enumerate(columns) if column[0] in names]
    table = new_table(*(columns[index] for index in chosen))
    for row in rows:
        if any(row[index] for index in chosen[1:]):
            table.add_row(*(row[index] for index in chosen))
    return render(table, width, colour)


def _row(result: Result, rate: str) -> list[str | Text]:
    measurement, verdict = result.measurement, result.verdict
    return [
        _short(result),
        _size(result),
        format_seconds(new_s(result) or measurement.median_s),
        rate,
        _tokens(result),
        _roof(measurement),
        limit_text(result),
        f"{_memory(measurement.peak_bytes)} {_peak(verdict)}".strip(),
        _memory(measurement.held_bytes),
        "" if measurement.compile_s is None else format_seconds(measurement.compile_s),
        "" if verdict is None or verdict.change is None else f"{verdict.change * 100:+.1f}",
        _bounds(verdict),
        _counts(verdict),
        Text(result.word, style=STYLES.get(result.word, "")),
    ]


def _exhausted_row(record: OutOfMemory) -> list[str | Text]:
    return [printable(record.label), *[""] * 12, Text(record.word, style=STYLES[record.word])]


def _tokens(result: Result) -> str:
    """Tokens per second of the time that stands beside them."""
    measurement = result.measurement
    if measurement.tokens_per_s is None:
        return ""
    return three_digits(measurement.work.tokens / (new_s(result) or measurement.median_s))


def _memory(size_bytes: int | None) -> str:
    return "" if size_bytes is None else format_memory(size_bytes)


def _peak(verdict: Verdict | None) -> str:
    """By how much the peak differs from the baseline's."""
    change = verdict.peak.change if verdict is not None and verdict.peak is not None else None
    return "" if change is None else format_percent(change)


def _bounds(verdict: Verdict | None) -> str:
    """The interval of the difference, in percent, short enough for a column."""
    if verdict is None or verdict.interval is None:
        return ""
    return "…".join(format_percent(growth(bound)).removesuffix(" %") for bound in verdict.interval)


def _counts(verdict: Verdict | None) -> str:
    """New processes against those behind the baseline."""
    if verdict is None or verdict.interval is None:
        return ""
    # A published limit has no processes behind it.
    return f"{verdict.processes}" + (f":{len(verdict.reference.medians_s)}" if verdict.reference is not None else "")


def _unresolved(measurement: Measurement) -> bool:
    return "unresolved" in measurement.samples.labels


def _roof(measurement: Measurement) -> str:
    """The share of the roofline, with a star where that was measured; `cache` where a rate of bytes was a cache's."""
    if measurement.share_of_ceiling is None or measurement.ceiling is None:
        return ""
    if "cache_resident" in measurement.samples.labels and not is_arithmetic(measurement.ceiling):
        return CACHED
    if measurement.share_of_ceiling >= 10:
        return ">999%"
    return f"{measurement.share_of_ceiling:.0%}" + "*" * (measurement.ceiling.source == "measured")


def roofline_note(results: Sequence[Result]) -> str:
    """What the column `roof` is a share of, and of which tests it is none; empty where nothing is known."""
    measurements = [result.measurement for result in results]
    cached = [m for m in measurements if _roof(m) == CACHED]
    ceilings = {m.ceiling for m in measurements if m.ceiling is not None and _roof(m) != CACHED}
    utilized = {m.ceiling for m in measurements if m.mfu is not None}
    parts = [
        f"{'* ' * (c.source == 'measured')}{c.metric} {format_ceiling(c)}, {c.source}: {printable(c.origin)}"
        + (_MFU[c.source] if c in utilized else "")
        for c in sorted(ceilings, key=lambda c: (c.source, c.metric))
    ]
    if cached:
        names = ", ".join(printable(m.label) for m in cached[:MOST_CACHED])
        more = f" and {len(cached) - MOST_CACHED} more" if len(cached) > MOST_CACHED else ""
        parts.append(
            f"{CACHED}: the buffers of {names}{more} stay in the last-level cache, which no roofline of memory bounds"
        )
    return f"roof: {'; '.join(parts)}" if parts else ""


def comparison_table(rows: Sequence[Row], width: int, colour: bool) -> str:
    """The offline comparison, in the order given."""
    peaks = any(_peak(row.verdict) for row in rows)
    table = new_table(("test", "left"), ("old", "right"), ("new", "right"), ("diff", "right"),
                      ("99 % interval", "left"), ("n", "right"), *[("peak", "right")] * peaks,
                      ("verdict", "left"))  # fmt: skip
    for row in rows:
        verdict = row.verdict
        table.add_row(
            printable(row.label),
            _old(row),
            format_seconds(row.new_s),
            "" if verdict.change is None else format_percent(verdict.change),
            "" if verdict.interval is None else interval_text(verdict),
            _counts(verdict),
            *[_peak(verdict)] * peaks,
            Text(verdict.overall.value, style=STYLES.get(verdict.overall.value, "")),
        )
    return render(table, width, colour)


def _old(row: Row) -> str:
    """The time before; where there is none but a limit, the time that just meets it."""
    if row.old_s is None and row.verdict.limit is not None:
        return f"≤ {format_seconds(row.verdict.limit.seconds)}"
    return "" if row.old_s is None else format_seconds(row.old_s)


def _short(result: Result) -> str:
    """The benchmark with its parameters other than the size, which has a column of its own."""
    key = result.measurement.key
    if "size_bytes" not in key.parameters:
        return printable(result.measurement.label)
    rest = "-".join(f"{value}" for name, value in key.parameters.items() if name != "size_bytes")
    return printable(key.benchmark + (f"[{rest}]" if rest else "") + (f".{key.name}" if key.name else ""))


def _size(result: Result) -> str:
    size_bytes = result.measurement.work.size_bytes
    return format_bytes(size_bytes) if size_bytes else ""


def _badness(result: Result) -> tuple[int, float]:
    return badness(result.word, result.verdict.change if result.verdict is not None else None)
