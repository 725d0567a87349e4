"""Tables that a person reads at 80 columns, plain where the output is no terminal."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..core.entries import ExactEntry
from ..core.memory import WORD, OutOfMemory
from ..core.resources import registers_of, spills_of
from ..core.rows import Row, badness
from ..core.units import format_bytes, format_seconds, listed, printable
from ..hardware import format_ceiling
from ..kernel_gate.recording import ExactChange
from ..kernel_gate.text import changes_text
from ..stats.verdicts import Kind
from .words import CACHED, cells, difference_text, peak_text, processes_text, roof_text, span_text


def new_table(*columns: tuple[str, str]) -> Table:
    """An empty table of columns, each a heading and `left` or `right`."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0), show_edge=False)
    for name, justify in columns:
        # Numbers stay whole; only the test's name may fold, so nothing is lost at 80 columns.
        first = name in ("test", "entry")
        table.add_column(name, justify=justify, no_wrap=not first, overflow="fold")  # type: ignore[arg-type]
    return table


def render(table: Table, width: int, colour: bool) -> str:
    """A table as text of at most `width` columns; no line ends in spaces."""
    out = io.StringIO()
    console = Console(
        file=out, width=width, force_terminal=colour, color_system="standard" if colour else None, highlight=False,
        legacy_windows=False,
        markup=False,
        emoji=False,
    )  # fmt: skip
    console.print(table)
    return "\n".join(line.rstrip() for line in out.getvalue().rstrip("\n").split("\n"))


STYLES = {
    Kind.REGRESSED.value: "bold red",
    Kind.INVALID.value: "yellow",
    Kind.INCONCLUSIVE.value: "yellow",
    Kind.IMPROVED.value: "green",
    Kind.PASSED.value: "green",
    "FAILED": "bold red",
    WORD: "yellow",
}
# Between a test's name and its verdict, of `words.cells`.
COLUMNS = ("size", "time", "rate", "tokens/s", "roof", "limit", "peak", "held", "compile", "diff %", "99 %", "n")
# With less room for longer names than this many characters, tests get a second table, of these columns.
NAME_ROOM, APART = 24, ("tokens/s", "limit", "peak", "held", "compile")
# What the share is called where work has tokens.
_MFU = {
    "datasheet": " (with tokens: MFU)",
    "measured": " (with tokens: MFU, but of this product and no datasheet's peak)",
}
# Of what the last-level cache holds, so many are named below the table.
MOST_CACHED = 3


def results_table(rows: Sequence[Row], width: int, colour: bool, exhausted: Sequence[OutOfMemory] = ()) -> str:
    """Test, size, time, rates, roofline, limit, memory, compiling, difference with its interval, processes, verdict.

    The worst come first where a test failed.
    Behind them, without figures, stand the tests that ran out of memory. Where there is no room for names, tokens,
    limits, memory and compiling stand in a second table.
    """
    failed = any(row.verdict in ("FAILED", Kind.REGRESSED) for row in rows)
    ordered = sorted(rows, key=lambda row: badness(row.verdict, row.change)) if failed else list(rows)
    found = [cells(row) for row in ordered]
    # One unit for all goes into the heading, which leaves its room to the tests' names.
    units = {known["rate"][0].rpartition(" ")[2] for known in found if known["rate"][0]}
    heading = units.pop() if len(units) == 1 else ""
    columns = [("test", "left"), *((heading or name if name == "rate" else name, "right") for name in COLUMNS),
               ("verdict", "left")]  # fmt: skip
    lines: list[Sequence[str | Text]] = [
        [_short(row), *(_cell(name, known[name][0], heading) for name in COLUMNS), styled(row.verdict)]
        for row, known in zip(ordered, found, strict=True)
    ]
    lines += [[printable(record.label), *[""] * len(COLUMNS), styled(record.word)] for record in exhausted]
    # A column with nothing in it only takes room from the tests' names.
    filled = [index for index in range(len(columns)) if any(row[index] for row in lines)]
    tables = [[columns[index][0] for index in filled]]
    longest = max((cell_len(str(row[0])) for row in lines), default=0)
    if _room(columns, lines, filled, width) < min(NAME_ROOM, longest):
        apart = [name for name in tables[0] if name in APART]
        tables = [[name for name in tables[0] if name not in apart], *([["test", *apart]] if apart else [])]
    return "\n".join(_rendered(columns, lines, names, width, colour) for names in tables)


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


def _cell(name: str, text: str, unit: str) -> str:
    return text.removesuffix(unit).strip() if name == "rate" else text


def styled(word: str) -> Text:
    """A verdict in its colour."""
    return Text(word, style=STYLES.get(word, ""))


def roofline_note(rows: Sequence[Row]) -> str:
    """What the column `roof` is a share of, and of which tests it is none; empty where nothing is known."""
    measured = [(row, row.measurement) for row in rows if row.measurement is not None]
    cached = [row for row, _ in measured if roof_text(row) == CACHED]
    ceilings = {one.ceiling for row, one in measured if one.ceiling is not None and roof_text(row) != CACHED}
    utilized = {one.ceiling for _, one in measured if one.mfu is not None}
    parts = [
        f"{'* ' * (c.source == 'measured')}{c.metric} {format_ceiling(c)}, {c.source}: {printable(c.origin)}"
        + (_MFU[c.source] if c in utilized else "")
        for c in sorted(ceilings, key=lambda c: (c.source, c.metric))
    ]
    if cached:
        names = listed([printable(row.label) for row in cached], MOST_CACHED)
        parts.append(
            f"{CACHED}: the buffers of {names} stay in the last-level cache, which no roofline of memory bounds"
        )
    return f"roof: {'; '.join(parts)}" if parts else ""


def comparison_table(rows: Sequence[Row], width: int, colour: bool) -> str:
    """The offline comparison, in the order given."""
    peaks = any(peak_text(row) for row in rows)
    table = new_table(("test", "left"), ("old", "right"), ("new", "right"), ("diff", "right"),
                      ("99 % interval", "left"), ("n", "right"), *[("peak", "right")] * peaks,
                      ("verdict", "left"))  # fmt: skip
    for row in rows:
        table.add_row(
            printable(row.label),
            _old(row),
            "" if row.time_s is None else format_seconds(row.time_s),
            difference_text(row),
            span_text(row),
            processes_text(row),
            *[peak_text(row)] * peaks,
            styled(row.verdict),
        )
    return render(table, width, colour)


def _old(row: Row) -> str:
    """The time before; where there is none but a limit, the time that just meets it."""
    limit_s = row.judgement.limit_s if row.judgement is not None else None
    if row.baseline_time_s is None:
        return "" if limit_s is None else f"≤ {format_seconds(limit_s)}"
    return format_seconds(row.baseline_time_s)


def _short(row: Row) -> str:
    """The benchmark with its parameters other than the size, which has a column of its own."""
    if "size_bytes" not in row.parameters:
        return printable(row.label)
    rest = "-".join(f"{value}" for name, value in row.parameters.items() if name != "size_bytes")
    return printable(row.benchmark + (f"[{rest}]" if rest else "") + (f".{row.name}" if row.name else ""))


_FIGURES = (("registers", "right"), ("shared", "right"), ("spills", "right"), ("matrix", "right"))


def kernels_table(rows: Sequence[Row], width: int, colour: bool) -> str:
    """What a run compiled, or of a comparison its new side, with the verdicts, worst first."""
    table = new_table(("test", "left"), ("target", "left"), *_FIGURES, ("verdict", "left"))
    for row in sorted(rows, key=lambda row: badness(row.verdict)):
        target = row.target or ""
        table.add_row(*_names(row.label, target), *kernel_cells(row.figures or {}), styled(row.verdict))
    return render(table, width, colour)


def exact_table(entries: Sequence[ExactEntry], width: int, colour: bool) -> str:
    """What exact entries hold, a row each, with the compiler that said so."""
    table = new_table(("entry", "left"), ("target", "left"), *_FIGURES, ("triton", "left"))
    for entry in entries:
        triton = printable(entry.compiler.get("triton", ""))
        table.add_row(*_names(entry.label, entry.target), *kernel_cells(entry.figures), triton)
    return render(table, width, colour)


def exact_change_lines(changes: Sequence[ExactChange]) -> list[str]:
    """What an approval would do to each entry that is there already: `gemm[sm_90]: replaced, registers 108 → 120`."""
    lines = []
    for change in changes:
        if change.action == "replaced":
            told = changes_text(change.changes, at_most=None) or "the same figures, compiled otherwise"
            lines.append(printable(f"{change.entry.label}: replaced, {told}"))
    return lines


def exact_reason_lines(rows: Sequence[Row]) -> list[str]:
    """What differs, a line for each kernel that does not ask for the very same."""
    lines = []
    for row in rows:
        assert row.exact is not None
        told = [row.exact.reason]
        told += [changes_text(row.exact.changes), ", ".join(row.exact.remarks)] if row.exact.changes else []
        if any(told):
            lines.append(printable(f"{row.verdict} {row.label}: {'; '.join(filter(None, told))}"))
    return lines


def exact_as_json(entry: ExactEntry) -> dict[str, Any]:
    """An exact entry for a machine."""
    return {
        "label": entry.label,
        "benchmark": entry.benchmark,
        "name": entry.name,
        "parameters": entry.parameters,
        "kind": "exact",
        "target": entry.target,
        "figures": entry.figures,
        "options": entry.options,
        "compiler": entry.compiler,
    }


def _names(label: str, target: str) -> tuple[str, str]:
    """Test and target, which stands in its own column alone."""
    return printable(label.removesuffix(f"@{target}")), printable(target)


def kernel_cells(figures: Mapping[str, int]) -> list[str]:
    """Registers, shared memory, spills and matrix instructions; a question mark for what was not read."""
    spills, matrix = spills_of(figures), figures.get("matrix_instructions")
    shared = figures.get("shared_bytes")
    return [
        _number(registers_of(figures)),
        "?" if shared is None else format_bytes(shared),
        _number(spills),
        _number(matrix),
    ]


def _number(value: int | None) -> str:
    return "?" if value is None else f"{value}"
