"""The kernels of both sides in words: every figure that differs, by kernel and target."""

from collections.abc import Iterator, Sequence

from ..core.rows import Row
from ..core.units import count, printable
from ..core.verdicts import FigureChange
from ..report.kernels import advice_lines
from ..report.summary import code, line, remarks_of
from ..report.tables import TextTable, render, styled

# The largest number of remarks on how kernels were compiled.
MOST_REMARKS = 8
_COLUMNS = ("test", "target", "figure", "A", "B", "B is", "verdict")


def figures_table(rows: Sequence[Row], width: int, colour: bool) -> str:
    """Return a table of the figures that differ between both sides.

    It is empty if none does. `width` is in columns.
    """
    table = TextTable(*((name, "right" if name in ("A", "B") else "left") for name in _COLUMNS))
    lines = list(_lines(rows))
    for *cells, verdict in lines:
        table.add_row(*map(printable, cells), styled(verdict))
    return render(table, width, colour) if lines else ""


def figures_markdown(rows: Sequence[Row], most: int) -> list[str]:
    """Return the lines of a Markdown table of the figures that differ.

    `most` is the largest number of figures. A last line has the number of the others.
    """
    lines = list(_lines(rows))
    if not lines:
        return []
    table = ["", line(_COLUMNS), "|---|---|---|---:|---:|---|---|"]
    for test, *cells in lines[:most]:
        table.append(line([code(test) if test else "", *map(printable, cells)]))
    hidden_count = len(lines) - most
    return [*table, *([f"\n… and {hidden_count} more figures"] if hidden_count > 0 else [])]


def kernel_notes(rows: Sequence[Row]) -> list[str]:
    """Return notes on kernels: how many differ, how they were compiled, and advice.

    A remark that is not on all kernels has its count. Advice is on figures that became worse.
    """
    if not rows:
        return []
    differing_count = sum(bool(_changes(row)) for row in rows)
    remarks, total = remarks_of(rows)
    texts = [
        text if number == total else f"{text} ({number} of {total})"
        for text, number in remarks.most_common(MOST_REMARKS)
    ]
    sentence = f"{differing_count} of {count(len(rows), 'kernel')} differ in their resources"
    advice = dict.fromkeys(text for row in rows for text in advice_lines(_changes(row)))
    return ["; ".join([sentence, *texts]), *advice]


def _lines(rows: Sequence[Row]) -> Iterator[list[str]]:
    """Yield the cells of each figure that differs.

    Only the first line of a kernel has its test, target and verdict; they are empty in the others.
    """
    for row in rows:
        target = row.target or ""
        head, verdict = [row.label.removesuffix(f"@{target}"), target], row.verdict
        for change in _changes(row):
            values = (
                "not read" if value is None else f"{value}"
                for value in (change.before, change.after)
            )
            yield [*head, change.figure, *values, change.verdict, verdict]
            head, verdict = ["", ""], ""


def _changes(row: Row) -> Sequence[FigureChange]:
    """Return the figures of a kernel that differ; none without a comparison."""
    return row.exact.changes if row.exact is not None else ()
