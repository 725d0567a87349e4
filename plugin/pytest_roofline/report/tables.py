"""Tables that a person reads at 80 columns, plain where the output is no terminal."""

import io
import re
from collections.abc import Mapping, Sequence
from itertools import compress

from rich.cells import cell_len, chop_cells
from rich.console import Console
from rich.text import Text

from ..baselines.exact_proposals import ExactChange
from ..core.entries import ExactEntry
from ..core.memory import WORD
from ..core.resources import registers_of, spills_of
from ..core.rows import Row, badness
from ..core.units import format_bytes, format_seconds, listed, printable
from ..core.verdicts import Kind
from ..hardware import format_ceiling
from .figures import STEPS, WARM_UPS, after_warm_up, deviation_text
from .kernels import advice_lines, changes_text
from .words import (
    CACHED,
    against_text,
    baseline_text,
    cells,
    difference_text,
    is_value,
    now_text,
    peak_text,
    processes_text,
    roof_text,
    span_text,
)

# The places where an id that is longer than a line may be broken.
_BREAKS = re.compile(r"(?<=[-/.,:;\[\]()= ])")


class TextTable:
    """A table of text. A column is a heading, of one line or several, and `left` or `right`.

    A column whose cells are all empty is left out. Numbers and words are never broken; an id (`test`, `entry`) that
    leaves them no room gets a line of its own.
    """

    def __init__(self, *columns: tuple[str, str]) -> None:
        self._columns = columns
        self._rows: list[list[Text]] = []

    def add_row(self, *cells: str | Text) -> None:
        """Add one row, a cell for each column."""
        self._rows.append([cell if isinstance(cell, Text) else Text(cell) for cell in cells])

    def text(self, width: int) -> Text:
        """Return the lines of the table, of at most `width` columns.

        A line is longer where the cells beside the id do not fit.
        """
        # The first column is always shown; others where a row has text in them.
        is_shown = [
            number == 0 or any(row[number].plain for row in self._rows)
            for number in range(len(self._columns))
        ]
        columns = list(compress(self._columns, is_shown))
        rows = [list(compress(row, is_shown)) for row in self._rows]
        heads = [name.split("\n") for name, _ in columns]
        widths = [
            max(*map(cell_len, head), *(row[number].cell_len for row in rows), 0)
            for number, head in enumerate(heads)
        ]
        id_number = next(
            (number for number, (name, _) in enumerate(columns) if name in ("test", "entry")), None
        )
        if id_number is not None:
            # Columns are two spaces apart; the id gets what the others leave.
            room = width - sum(widths) - 2 * len(widths) + 2 + widths[id_number]
            id_heading, _ = columns[id_number]
            widths[id_number] = max(len(id_heading), min(widths[id_number], room))
        text = _heading(heads, columns, widths)
        for row in rows:
            if id_number is not None and row[id_number].cell_len > widths[id_number]:
                text.append("".join(f"{line}\n" for line in fold(row[id_number].plain, width)))
                row[id_number] = Text()
            text.append_text(_line(row, columns, widths))
        return text


def _heading(
    heads: Sequence[list[str]], columns: Sequence[tuple[str, str]], widths: Sequence[int]
) -> Text:
    """Return the lines of the heading, and the rule below them.

    Args:
        heads: the lines of each column's heading. A short heading has empty lines above it.
        columns: the heading and the alignment of each column.
        widths: of the columns, in cells of the terminal.
    """
    text, most_lines = Text(), max(map(len, heads))
    padded_heads = ([""] * (most_lines - len(head)) + head for head in heads)
    for line in zip(*padded_heads, strict=True):
        text.append_text(_line([Text(part) for part in line], columns, widths))
    # Two spaces part the columns; none follow the last one.
    return text.append("─" * (sum(widths) + 2 * len(widths) - 2) + "\n")


def _line(cells: Sequence[Text], columns: Sequence[tuple[str, str]], widths: Sequence[int]) -> Text:
    """Return cells as one line, each padded to the width of its column."""
    text = Text()
    for cell, (_, justify), width in zip(cells, columns, widths, strict=True):
        blanks = " " * (width - cell.cell_len)
        before, after = (blanks, "") if justify == "right" else ("", blanks)
        # Two spaces part the columns.
        text.append(before).append_text(cell).append(f"{after}  ")
    text.rstrip()
    return text.append("\n")


def fold(name: str, width: int) -> list[str]:
    """Return a name in lines of at most `width` columns.

    A word that is longer than a line is broken.
    """
    lines = [""]
    for word in (part for section in _BREAKS.split(name) for part in chop_cells(section, width)):
        if cell_len(lines[-1] + word) > width:
            lines.append("")
        lines[-1] += word
    return lines


def render(table: TextTable | Text, width: int, colour: bool) -> str:
    """Return a table as text of at most `width` columns.

    A `Text` is laid out already. No line ends in spaces.
    """
    output = io.StringIO()
    console = Console(
        file=output, width=width, force_terminal=colour, color_system="standard" if colour else None, highlight=False,
        legacy_windows=False, markup=False, emoji=False,
    )  # fmt: skip
    console.print(table if isinstance(table, Text) else table.text(width), soft_wrap=True)
    return "\n".join(line.rstrip() for line in output.getvalue().rstrip("\n").split("\n"))


STYLES = {
    Kind.REGRESSED.value: "bold red",
    Kind.SHIFTED.value: "red",
    Kind.INVALID.value: "yellow",
    Kind.INCONCLUSIVE.value: "yellow",
    Kind.IMPROVED.value: "green",
    Kind.PASSED.value: "green",
    "FAILED": "bold red",
    WORD: "yellow",
}
# Cells of the table of results between the id and the comparison, by their names in `cells`.
_FIRST = ("time", "rate", "roof")
# Headings of the table of results between the id and the verdict.
_COLUMNS = ("time", "rate", "of roof", "against baseline")
# Cells that a verbose run shows in a second table.
_MORE = ("size", "tokens/s", "limit", "baseline", "peak", "held", "compile", "n")
# The name of the share of the roofline where the work has tokens.
_MFU = {
    "datasheet": " (with tokens: MFU)",
    "measured": " (with tokens: MFU, relative to this product, not to a datasheet's peak)",
}
# Tests whose buffers stay in the last-level cache that the note below the table lists.
MOST_CACHED = 3


def results_table(rows: Sequence[Row], width: int, colour: bool) -> str:
    """Return the table of results.

    Its columns are test, time, rate, share of the roofline, difference to the baseline with its
    interval, and verdict. If a test failed, the worst come first; else the order stays.
    """
    has_failed = any(row.verdict in ("FAILED", Kind.REGRESSED) for row in rows)
    ordered = (
        sorted(rows, key=lambda row: badness(row.verdict, row.slowdown))
        if has_failed
        else list(rows)
    )
    texts_by_row = [_cell_texts(row, _FIRST) for row in ordered]
    # A unit that all rates share goes into the heading, which leaves more room for ids.
    units = {texts["rate"].partition(" ")[2] for texts in texts_by_row if texts["rate"]}
    shared_unit = units.pop() if len(units) == 1 else ""
    if shared_unit:
        for texts in texts_by_row:
            texts["rate"] = texts["rate"].removesuffix(f" {shared_unit}")
    lines = [
        [row.label, *texts.values(), against_text(row), row.verdict]
        for row, texts in zip(ordered, texts_by_row, strict=True)
    ]
    columns = (shared_unit or name if name == "rate" else name for name in _COLUMNS)
    return _align(["test", *columns, "verdict"], lines, width, colour)


def _cell_texts(row: Row, names: Sequence[str]) -> dict[str, str]:
    """Return the texts of some cells of a row by their names."""
    row_cells = cells(row)
    texts = {}
    for name in names:
        text, _sort_value = row_cells[name]
        texts[name] = text
    return texts


def more_table(rows: Sequence[Row], width: int) -> str:
    """Return the other columns of each test.

    They are size, tokens, limit, baseline, memory, compiling and processes.
    """
    texts_by_row = [list(_cell_texts(row, _MORE).values()) for row in rows]
    if not any(any(texts) for texts in texts_by_row):
        return ""
    # The last column of `_align` is for a verdict, which this table does not have.
    lines = [[row.label, *texts, ""] for row, texts in zip(rows, texts_by_row, strict=True)]
    return _align(["test", *_MORE, ""], lines, width, colour=False)


def warm_up_table(rows: Sequence[Row], width: int) -> str:
    """Return a table of the mean and standard deviation of calls after warm-up.

    They are of ten calls each, one test a row. The table is empty where no test timed enough first calls.
    """
    series = [
        (row.label, after_warm_up(row.measurement)) for row in rows if row.measurement is not None
    ]
    # The last column of `_align` is for a verdict, which this table does not have.
    lines = [
        [label, *(deviation_text(mean_s, std_s) for mean_s, std_s in pairs), ""]
        for label, pairs in series
        if pairs
    ]
    headings = ["test", *(f"after {number}" for number in WARM_UPS), ""]
    title = f"mean and standard deviation of {STEPS} steps after {listed(list(map(str, WARM_UPS)), 3)} warm-up steps:\n"
    return title + _align(headings, lines, width, colour=False) if lines else ""


def _align(headings: Sequence[str], rows: Sequence[Sequence[str]], width: int, colour: bool) -> str:
    """Return rows of cells as a table whose first and last column are left-aligned.

    The last column is a verdict, in its colour.
    """
    *middle, last = headings[1:]
    table = TextTable((headings[0], "left"), *((name, "right") for name in middle), (last, "left"))
    for *values, verdict in ([printable(cell) for cell in row] for row in rows):
        table.add_row(*values, styled(verdict))
    return render(table, width, colour)


def styled(word: str) -> Text:
    """Return a verdict in its colour."""
    return Text(word, style=STYLES.get(word, ""))


def roofline_note(rows: Sequence[Row]) -> str:
    """Return the note on the rooflines of the column `roof`.

    It also names the tests whose buffers stay in a cache, which have no share. It is empty where no
    roofline is known.
    """
    pairs = [(row, row.measurement) for row in rows if row.measurement is not None]
    cached = [row for row, _ in pairs if roof_text(row) == CACHED]
    ceilings = {
        measurement.ceiling
        for row, measurement in pairs
        if roof_text(row) != CACHED
        and row.verdict != Kind.INVALID
        and measurement.ceiling is not None
    }
    # Rooflines of tests that count tokens; their share is also known as model FLOPs utilization (MFU).
    token_ceilings = {
        measurement.ceiling for _, measurement in pairs if measurement.mfu is not None
    }
    parts = []
    for ceiling in sorted(ceilings, key=lambda ceiling: (ceiling.source, ceiling.metric)):
        mark = "* " if ceiling.source == "measured" else ""
        mfu_note = _MFU[ceiling.source] if ceiling in token_ceilings else ""
        parts.append(
            f"{mark}{ceiling.metric} {format_ceiling(ceiling)}, "
            f"{ceiling.source}: {printable(ceiling.origin)}{mfu_note}"
        )
    if cached:
        names = listed([printable(row.label) for row in cached], MOST_CACHED)
        parts.append(
            f"{CACHED}: the buffers of {names} stay in the last-level cache, where the memory's roofline is no limit; "
            'use larger buffers, or make_args with cache="rotate"'
        )
    return f"roof: {'; '.join(parts)}" if parts else ""


def comparison_table(rows: Sequence[Row], width: int, colour: bool) -> str:
    """Return the table of a comparison, in the order of the rows."""
    # A column without any text, such as that of peak memory, is not shown.
    table = TextTable(("test", "left"), ("old", "right"), ("new", "right"), ("diff", "right"),
                      ("99 % interval", "left"), ("n", "right"), ("peak", "right"),
                      ("verdict", "left"))  # fmt: skip
    for row in rows:
        table.add_row(
            printable(row.label),
            _old_cell(row),
            now_text(row) if row.time_s is None else format_seconds(row.time_s),
            difference_text(row),
            span_text(row),
            processes_text(row),
            peak_text(row),
            styled(row.verdict),
        )
    return render(table, width, colour)


def _old_cell(row: Row) -> str:
    """Return the old time, or the longest time that meets the limit.

    It is empty where there is neither a baseline nor a limit.
    """
    if row.baseline_time_s is not None:
        return format_seconds(row.baseline_time_s)
    if is_value(row):
        return baseline_text(row)
    limit_s = row.time_verdict.limit_s if row.time_verdict is not None else None
    return "" if limit_s is None else f"≤ {format_seconds(limit_s)}"


# Headings of what `kernel_cells` returns.
KERNEL_COLUMNS = ("registers", "shared", "spills", "matrix")
_FIGURES = tuple((name, "right") for name in KERNEL_COLUMNS)


def kernels_table(rows: Sequence[Row], width: int, colour: bool) -> str:
    """Return the kernels of a run with their verdicts.

    The worst come first. In a comparison the figures are those of the new side.
    """
    table = TextTable(("test", "left"), ("target", "left"), *_FIGURES, ("verdict", "left"))
    for row in sorted(rows, key=lambda row: badness(row.verdict)):
        target = row.target or ""
        table.add_row(
            *_names(row.label, target), *kernel_cells(row.figures or {}), styled(row.verdict)
        )
    return render(table, width, colour)


def exact_table(entries: Sequence[ExactEntry], width: int, colour: bool) -> str:
    """Return a row for each exact entry.

    It has the figures, and the version of Triton that compiled the kernel.
    """
    table = TextTable(("entry", "left"), ("target", "left"), *_FIGURES, ("triton", "left"))
    for entry in entries:
        triton = printable(entry.compiler.get("triton", ""))
        table.add_row(*_names(entry.label, entry.target), *kernel_cells(entry.figures), triton)
    return render(table, width, colour)


def exact_change_lines(changes: Sequence[ExactChange]) -> list[str]:
    """Return the changes of each entry that is replaced.

    A line reads `gemm[sm_90]: replaced, registers 108 → 120`.
    """
    texts = (
        (change.entry.label, changes_text(change.changes, at_most=None))
        for change in changes
        if change.action == "replaced"
    )
    unchanged = "the same figures, compiled differently or by another test"
    return [printable(f"{label}: replaced, {text or unchanged}") for label, text in texts]


def exact_reason_lines(rows: Sequence[Row]) -> list[str]:
    """Return lines on compiled kernels with a reason or changes.

    Each kernel has a line. The advice on the changes follows, each sentence once.
    """
    lines: list[str] = []
    advice: list[str] = []
    for row in rows:
        assert row.exact is not None
        advice += advice_lines(row.exact.changes)
        texts = [row.exact.reason]
        if row.exact.changes:
            texts += [changes_text(row.exact.changes), ", ".join(row.exact.remarks)]
        if any(texts):
            lines.append(printable(f"{row.verdict} {row.label}: {'; '.join(filter(None, texts))}"))
    return [*lines, *dict.fromkeys(advice)]


def exact_as_json(entry: ExactEntry) -> dict[str, object]:
    """Return the entry of a compiled kernel, whose figures are compared exactly, as JSON."""
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
    """Return test and target, each for its own column."""
    return printable(label.removesuffix(f"@{target}")), printable(target)


def kernel_cells(figures: Mapping[str, int]) -> list[str]:
    """Return registers, shared memory, spills and matrix instructions.

    A figure that was not read is `?`.
    """
    shared_bytes = figures.get("shared_bytes")
    values = (
        registers_of(figures),
        None if shared_bytes is None else format_bytes(shared_bytes),
        spills_of(figures),
        figures.get("matrix_instructions"),
    )
    return ["?" if value is None else f"{value}" for value in values]
