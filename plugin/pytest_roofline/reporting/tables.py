"""Tables that a person reads at 80 columns, plain where the output is no terminal."""

import io
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..core.records import Measurement
from ..core.units import format_bytes, format_percent, format_seconds, printable
from ..judging.comparing import Row
from ..judging.proposals import Change
from ..judging.verdicts import Kind, Verdict, interval_text
from .messages import Result, rate_text

_STYLES = {
    Kind.REGRESSED.value: "bold red",
    Kind.INVALID.value: "yellow",
    Kind.INCONCLUSIVE.value: "yellow",
    Kind.IMPROVED.value: "green",
    Kind.PASSED.value: "green",
    "FAILED": "bold red",
}
_RANK = {"FAILED": 0, Kind.REGRESSED.value: 1, Kind.INVALID.value: 2, Kind.INCONCLUSIVE.value: 3}


def results_table(results: Sequence[Result], width: int, colour: bool) -> str:
    """Test, size, time, rate, share of the roofline, baseline, difference, verdict; worst first when one failed."""
    failed = any(result.word in ("FAILED", Kind.REGRESSED.value) for result in results)
    ordered = sorted(results, key=_badness) if failed else list(results)
    rates = ["" if _unresolved(result.measurement) else rate_text(result.measurement) for result in ordered]
    # One unit for all goes into the heading, which leaves its room to the tests' names.
    units = {rate.rpartition(" ")[2] for rate in rates if rate}
    heading = units.pop() if len(units) == 1 else ""
    table = _table(("test", "left"), ("size", "right"), ("time", "right"), (heading or "rate", "right"),
                   ("roof", "right"), ("baseline", "right"), ("diff", "right"), ("verdict", "left"))  # fmt: skip
    for result, rate in zip(ordered, rates, strict=True):
        measurement, verdict = result.measurement, result.verdict
        table.add_row(
            _short(result),
            _size(result),
            format_seconds(measurement.median_s),
            rate.removesuffix(heading).strip(),
            _roof(measurement),
            _baseline(verdict),
            "" if verdict is None or verdict.change is None else format_percent(verdict.change),
            Text(result.word, style=_STYLES.get(result.word, "")),
        )
    return _render(table, width, colour)


def _unresolved(measurement: Measurement) -> bool:
    return "unresolved" in measurement.samples.labels


def _roof(measurement: Measurement) -> str:
    """The share of the roofline, with a star where that was measured; `cache` where no memory stood behind the rate."""
    if measurement.share_of_ceiling is None or measurement.ceiling is None:
        return ""
    if "cache_resident" in measurement.samples.labels:
        return "cache"
    if measurement.share_of_ceiling >= 10:
        return ">999%"
    return f"{measurement.share_of_ceiling:.0%}" + "*" * (measurement.ceiling.source == "measured")


def roofline_note(results: Sequence[Result]) -> str:
    """What the column `roof` is a share of; empty where nothing is known."""
    ceilings = {m.ceiling for m in (result.measurement for result in results) if m.ceiling is not None}
    parts = [
        f"{'* ' * (c.source == 'measured')}{c.metric} {c.value / 1e9:.4g} GB/s, {c.source}: {printable(c.origin)}"
        for c in sorted(ceilings, key=lambda c: (c.source, c.metric))
    ]
    return f"roof: {'; '.join(parts)}" if parts else ""


def comparison_table(rows: Sequence[Row], width: int, colour: bool) -> str:
    """The offline comparison, in the order given."""
    table = _table(("test", "left"), ("old", "right"), ("new", "right"), ("diff", "right"), ("99 % interval", "left"),
                   ("n", "right"), ("verdict", "left"))  # fmt: skip
    for row in rows:
        verdict = row.verdict
        table.add_row(
            printable(row.label),
            "" if row.old_s is None else format_seconds(row.old_s),
            format_seconds(row.new_s),
            "" if verdict.change is None else format_percent(verdict.change),
            "" if verdict.interval is None else interval_text(verdict),
            "" if verdict.reference is None else str(len(verdict.reference.medians_s)),
            Text(verdict.kind.value, style=_STYLES.get(verdict.kind.value, "")),
        )
    return _render(table, width, colour)


def changes_table(changes: Sequence[Change], width: int, colour: bool) -> str:
    """What an approval would do: each entry with the time before and after."""
    table = _table(("entry", "left"), ("before", "right"), ("after", "right"), ("change", "right"), ("from", "left"))
    for change in changes:
        entry = change.entry
        both = change.before_s is not None and change.after_s is not None
        table.add_row(
            printable(entry.label),
            "new" if change.before_s is None else format_seconds(change.before_s),
            printable(f"{entry.value} {entry.unit}") if change.after_s is None else format_seconds(change.after_s),
            format_percent(change.after_s / change.before_s - 1) if both else "",  # type: ignore[operator]
            _processes(change),
        )
    return _render(table, width, colour)


def _processes(change: Change) -> str:
    """How many processes stand behind an entry, and how many stood there before."""
    count = len(change.entry.medians)
    if not count:
        return change.entry.kind
    before = f"{change.processes_before} → " * (change.processes_before not in (0, count))
    return f"{before}{count} process{'es' * (count > 1)}"


def _short(result: Result) -> str:
    """The benchmark with its parameters other than the size, which has a column of its own."""
    key = result.measurement.key
    if "size_bytes" not in key.parameters:
        return printable(result.measurement.label)
    rest = "-".join(f"{value}" for name, value in key.parameters.items() if name != "size_bytes")
    return printable(key.benchmark + (f"[{rest}]" if rest else "") + (f".{key.name}" if key.name else ""))


def _size(result: Result) -> str:
    work = result.measurement.work
    size = work.payload_bytes or max(work.read_bytes, work.write_bytes) or work.wire_bytes
    return format_bytes(size) if size else ""


def _baseline(verdict: Verdict | None) -> str:
    if verdict is None or verdict.reference is None:
        return ""
    return format_seconds(verdict.reference.median_s)


def _badness(result: Result) -> tuple[int, float]:
    change = result.verdict.change if result.verdict is not None else None
    return _RANK.get(result.word, 4), -(change or 0.0)


def _table(*columns: tuple[str, str]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for name, justify in columns:
        # Numbers stay whole; only the test's name may fold, so nothing is lost at 80 columns.
        first = name in ("test", "entry")
        table.add_column(name, justify=justify, no_wrap=not first, overflow="fold")  # type: ignore[arg-type]
    return table


def _render(table: Table, width: int, colour: bool) -> str:
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, color_system="standard" if colour else None, highlight=False,
        legacy_windows=False,
        markup=False,
        emoji=False,
    )  # fmt: skip
    console.print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))
