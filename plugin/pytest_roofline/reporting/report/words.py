"""A row of a report in words: its number, its baseline's, the difference, and why it is what it is."""

from collections import Counter
from collections.abc import Iterable

from ...core.resources import registers_of, spills_of
from ...core.units import format_percent, format_tolerance
from ...judging.ending import reason_of
from ...judging.report_rows import ReportRow
from ...judging.verdicts import Kind
from ...observe.out_of_memory_text import figures as asked_and_free
from ..resources import changes_text
from ..results import figure

# Verdicts of which there is nothing more to say.
_GREEN = (Kind.PASSED.value, Kind.IMPROVED.value)
# What was held against something; `PASSED` and `INCONCLUSIVE` of a bare test are how it ended.
_COMPARED = (Kind.REGRESSED.value, *_GREEN, Kind.INCONCLUSIVE.value)


def compared(row: ReportRow) -> bool:
    """Whether a verdict says how a result lies to its baseline or limit."""
    return row.word in _COMPARED and row.what != "test"


def now_text(row: ReportRow) -> str:
    """What was found: a rate or a time, a kernel's registers and spills, or how much memory was asked for."""
    if row.measurement is not None:
        return figure(row.measurement, row.seconds)
    if row.resources is not None:
        held = row.resources.figures
        known = {"registers": registers_of(held), "spills": spills_of(held)}
        return ", ".join(f"{count} {name}" for name, count in known.items() if count is not None)
    return asked_and_free(row.out_of_memory) if row.out_of_memory is not None else ""


def baseline_text(row: ReportRow) -> str:
    """What it was compared with, in the same unit; empty where it was not, or with a limit."""
    if row.measurement is None or row.reference_s is None:
        return ""
    return figure(row.measurement, row.reference_s)


def difference_text(row: ReportRow) -> str:
    """`+25.1 %` of the time, or which figures of a kernel changed."""
    if row.exact is not None:
        return changes_text(row.exact.changes)
    return "" if row.change is None else format_percent(row.change)


def interval_text(row: ReportRow) -> str:
    """`+20.4 % … +30.0 %`, the 99 % interval of the difference."""
    return "" if row.interval is None else " … ".join(map(format_percent, row.interval))


def why(row: ReportRow) -> str:
    """Why a result is not green, and what may explain it; empty of a green one whose test passed."""
    judged = row.judgement or row.exact
    told: list[str] = []
    if judged is None or judged.verdict not in _GREEN or row.by_peak:
        told += [row.reason, *(judged.remarks if judged is not None else ())]
    ended = row.outcome
    if row.red and ended is not None and (not ended.by_verdict or row.what == "memory"):
        # It failed for itself, ahead of any verdict; or its message names the time that the baseline has.
        told.insert(0, reason_of(ended))
    return "; ".join(dict.fromkeys(filter(None, told)))


def sentence(row: ReportRow) -> str:
    """A result in a sentence, the difference first: `+25.1 % time (57.8 GB/s, baseline 118 GB/s), …`."""
    told = [why(row)]
    if row.judgement is not None and row.change is not None and not row.by_peak:
        parts = [now_text(row), *(f"baseline {text}" for text in [baseline_text(row)] if text)]
        told.insert(0, f"{difference_text(row)} time ({', '.join(parts)}), 99 % interval {interval_text(row)}, "
                       f"tolerance {format_tolerance(row.judgement.tolerance)}")  # fmt: skip
    elif row.exact is not None and row.exact.changes:
        told.insert(0, difference_text(row))
    return "; ".join(filter(None, told)) or f"{row.word} {now_text(row)}".strip()


def counts_text(rows: Iterable[ReportRow]) -> str:
    """How many of each word, in the order of the rows: `1 REGRESSED, 6 PASSED`."""
    counts = Counter(row.word for row in rows)
    return ", ".join(f"{count} {word}" for word, count in counts.items())
