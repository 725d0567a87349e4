"""Results of one figure with an exact verdict, in words.

Such are those of a kind that a conftest.py adds.
"""

from collections.abc import Sequence

from ..core.rows import Row, badness
from ..core.units import printable
from ..core.verdicts import Kind
from .tables import TextTable, render, styled
from .words import baseline_text, difference_text, now_text


def status_word(row: Row) -> str:
    """Return the text after PASSED in a verbose run: `12.5 J energy +0.0 %`."""
    is_compared_and_passed = row.exact is not None and row.verdict == Kind.PASSED
    verdict_text = "" if is_compared_and_passed else row.verdict
    texts = (now_text(row), row.metric, difference_text(row), verdict_text)
    return printable(" ".join(filter(None, texts)))


def failure_message(row: Row, where: str) -> str:
    """Return why a result of one exact figure is red, the difference first.

    `where` is the run file with the details; it is empty where the run could not be saved.
    """
    before = baseline_text(row)
    figures = f"({now_text(row)}, baseline {before})" if before else f"({now_text(row)})"
    headline = " ".join(filter(None, (difference_text(row), row.metric, figures, row.verdict)))
    remarks = row.exact.remarks if row.exact is not None else ()
    details = f"Details: {where}" if where else "The run could not be saved"
    reasons = "; ".join(filter(None, ("exact", row.reason, *remarks)))
    return f"{printable(f'{row.label}: {headline}; {reasons}')}\n  {details}."


def properties(rows: Sequence[Row]) -> list[tuple[str, str]]:
    """Return the figures of a test as name and text: `roofline.energy`, `roofline.energy.verdict`."""
    pairs = []
    for row in rows:
        prefix = "roofline." + (f"{row.name}." if row.name else "") + f"{row.metric}"
        # By the end of a property's name; the value itself has the prefix alone as its name.
        figures = {"": row.value, ".baseline_value": row.baseline_value, ".change": row.change}
        texts = {ending: f"{value:.6g}" for ending, value in figures.items() if value is not None}
        texts[".verdict"] = row.verdict
        pairs += [(printable(prefix + ending), text) for ending, text in texts.items()]
    return pairs


def values_table(rows: Sequence[Row], width: int, colour: bool) -> str:
    """Return a table of results of one figure each, worst first."""
    table = TextTable(
        ("test", "left"),
        ("metric", "left"),
        ("value", "right"),
        ("baseline", "right"),
        ("diff", "right"),
        ("verdict", "left"),
    )
    for row in sorted(rows, key=lambda row: badness(row.verdict, row.change)):
        table.add_row(
            printable(row.label),
            printable(row.metric or ""),
            printable(now_text(row)),
            printable(baseline_text(row)),
            difference_text(row),
            styled(row.verdict),
        )
    return render(table, width, colour)
