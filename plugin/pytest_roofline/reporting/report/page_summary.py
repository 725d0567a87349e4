"""The first lines of the page: how it went in a sentence, and how often each verdict was given."""

from collections import Counter
from collections.abc import Sequence

from ...core.units import format_percent, printable, slug
from ...judging.report_rows import FAILED, OUT_OF_MEMORY, SKIPPED, ReportRow, worst_first
from ...judging.verdicts import Kind
from ..results import count

# A verdict is told by its word and by a shape, so that nobody has to see colours.
SHAPES = {
    FAILED: "✖",
    Kind.REGRESSED.value: "▲",
    "DEGRADED": "▲",
    OUT_OF_MEMORY: "■",
    Kind.INVALID.value: "◆",
    Kind.INCONCLUSIVE.value: "◐",
    Kind.NO_BASELINE.value: "○",
    Kind.IMPROVED.value: "▼",
    Kind.PASSED.value: "●",
    SKIPPED: "–",
}
# One of these families gives a verdict its colour.
_FAMILIES = {
    FAILED: "bad",
    Kind.REGRESSED.value: "bad",
    "DEGRADED": "bad",
    OUT_OF_MEMORY: "doubt",
    Kind.INVALID.value: "doubt",
    Kind.INCONCLUSIVE.value: "doubt",
    Kind.IMPROVED.value: "good",
    Kind.PASSED.value: "good",
}
MEANINGS = (
    (Kind.REGRESSED.value, "slower by more than the tolerance, and the spread cannot explain it; the test fails"),
    (Kind.IMPROVED.value, "surely faster by more than the tolerance"),
    (Kind.PASSED.value, "shown to be within the tolerance"),
    (Kind.INCONCLUSIVE.value, "none of these; the reason says what would decide it"),
    (Kind.INVALID.value, "the number cannot be trusted; the reason says why"),
    (Kind.NO_BASELINE.value, "nothing to compare with on this hardware"),
    ("DEGRADED", "the device itself runs below its rated facts; of the test `device health`"),
    (OUT_OF_MEMORY, "memory ran out, which the test expected"),
    (FAILED, "the test failed for itself: wrong data, an exception, a lost process; no verdict"),
)
# What was held against something and got a sound verdict.
_COMPARED = (Kind.REGRESSED.value, Kind.INCONCLUSIVE.value, Kind.IMPROVED.value, Kind.PASSED.value)


def shape(word: str) -> str:
    """The sign in front of a verdict."""
    return SHAPES.get(word, "·")


def family(word: str) -> str:
    """`bad`, `doubt`, `good` or `plain`: the colour of a verdict."""
    return _FAMILIES.get(word, "plain")


def chips(rows: Sequence[ReportRow]) -> list[tuple[str, int, str]]:
    """Each verdict with how often it was given, worst first, and the name under which the page filters by it."""
    counts = Counter(row.word for row in worst_first(rows))
    return [(word, number, slug(word)) for word, number in counts.items()]


def sentence(rows: Sequence[ReportRow]) -> str:
    """`2 of 34 tests are slower: worst memcpy_d2d[64MiB], +104.2 % time.`"""
    if not rows:
        return "Nothing was measured."
    compared = [row for row in rows if _was_compared(row)]
    slower = [row for row in rows if row.word == Kind.REGRESSED.value]
    parts = []
    if slower:
        parts.append(f"{len(slower)} of {_tests(len(compared))} {_is(slower)} slower: worst {_worst(slower)}.")
    parts += _failures(rows)
    if not compared:
        told = [row for row in rows if row.what != "test"]
        parts.append(f"Nothing was compared: {_why(told)}." if told else "Nothing was measured.")
    elif not slower:
        parts.append(_without_red(compared))
    return " ".join(parts)


def _was_compared(row: ReportRow) -> bool:
    return row.word in _COMPARED and (row.judgement is not None or row.exact is not None)


def _is(rows: Sequence[ReportRow]) -> str:
    return "are" if len(rows) > 1 else "is"


def _tests(number: int) -> str:
    return count(number, "result")


def _worst(slower: Sequence[ReportRow]) -> str:
    worst = worst_first(slower)[0]
    change = f", {format_percent(worst.change)} time" if worst.change is not None else ""
    return printable(worst.label) + change


def _failures(rows: Sequence[ReportRow]) -> list[str]:
    failed = [row for row in rows if row.red and row.word != Kind.REGRESSED.value]
    if not failed:
        return []
    first = worst_first(failed)[0]
    also = f": first {printable(first.label)}" if len(failed) > 1 else f": {printable(first.label)}"
    return [f"{count(len(failed), 'test')} failed for another reason than time{also} ({printable(first.word)})."]


def _why(rows: Sequence[ReportRow]) -> str:
    reasons = Counter(printable(row.reason) or printable(row.word) for row in rows)
    first, times = reasons.most_common(1)[0]
    return first + (f" (and {len(reasons) - 1} other reasons)" if len(reasons) > 1 else "") * (times > 0)


def _without_red(compared: Sequence[ReportRow]) -> str:
    open_ = sum(row.word == Kind.INCONCLUSIVE.value for row in compared)
    faster = sum(row.word == Kind.IMPROVED.value for row in compared)
    told = f"None of {_tests(len(compared))} is shown to be slower"
    extra = [f"{faster} faster"] * bool(faster) + [f"{open_} undecided"] * bool(open_)
    return told + (f" ({', '.join(extra)})" if extra else "") + "."
