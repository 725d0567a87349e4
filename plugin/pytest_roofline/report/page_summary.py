"""The first lines of the page: how it went in a sentence, and how often each verdict was given."""

import re
from collections import Counter
from collections.abc import Sequence

from ..baselines.rows import DEGRADED, INTERRUPTED, OUT_OF_MEMORY, SHADOW, SKIPPED, XFAIL
from ..core.rows import FAILED, MEASURED, Row, worst_first
from ..core.units import count, format_percent, printable, slug
from ..stats.verdicts import Kind
from .words import compared

# A verdict is told by its word and by a shape, so that nobody has to see colours.
SHAPES = {
    FAILED: "✖",
    Kind.REGRESSED.value: "▲",
    DEGRADED: "▲",
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
    DEGRADED: "bad",
    OUT_OF_MEMORY: "doubt",
    Kind.INVALID.value: "doubt",
    Kind.INCONCLUSIVE.value: "doubt",
    Kind.IMPROVED.value: "good",
    Kind.PASSED.value: "good",
}
MEANINGS = (
    (
        Kind.REGRESSED.value,
        "slower by more than the tolerance, and the spread cannot explain it, or more memory; the test fails",
    ),
    (Kind.IMPROVED.value, "surely faster by more than the tolerance"),
    (Kind.PASSED.value, "shown not to be slower by more than the tolerance"),
    (Kind.INCONCLUSIVE.value, "none of these; the reason says what would decide it"),
    (Kind.INVALID.value, "the number cannot be trusted; the reason says why"),
    (Kind.NO_BASELINE.value, "nothing to compare with on this hardware"),
    (DEGRADED, "the device itself runs below its rated facts; of the test “device health”"),
    (OUT_OF_MEMORY, "memory ran out, which the test expected"),
    (FAILED, "the test failed for itself: wrong data, an exception, a lost process; no verdict"),
    (MEASURED, "a number that was compared with nothing, as those of other tools are"),
    (SHADOW, "what a gate that only watches would have failed, as it compared too little"),
    (SKIPPED, "not measured: this machine lacks what the test needs, or the test skipped itself"),
)
_NUMBER = re.compile(r"\d+(?:\.\d+)?")
# Why a test ended so is not why its number was not compared.
_NO_REASON = {word: f"the test ended as {word}" for word in (FAILED, SKIPPED, XFAIL, INTERRUPTED)}
_NO_REASON |= {MEASURED: "the run holds no verdicts"}


def shape(word: str) -> str:
    """The sign in front of a verdict."""
    return SHAPES.get(word, "·")


def family(word: str) -> str:
    """`bad`, `doubt`, `good` or `plain`: the colour of a verdict."""
    return _FAMILIES.get(word, "plain")


def chips(rows: Sequence[Row]) -> list[tuple[str, int, str]]:
    """Each verdict with how often it was given, worst first, and the name under which the page filters by it."""
    counts = Counter(row.verdict for row in worst_first(rows))
    return [(word, number, slug(word)) for word, number in counts.items()]


def sentence(rows: Sequence[Row]) -> str:
    """`2 of 34 measurements are slower: worst memcpy_d2d[64MiB], +104.2 % time.`"""
    held = [row for row in rows if compared(row)]
    timed = [row for row in held if row.measurement is not None]
    kernels = [row for row in held if row.resources is not None]
    parts = [_slower(timed), _larger(timed), _worse(kernels), _failed(rows)]
    if not held:
        parts.append(_nothing(rows))
    elif not any(row.verdict == Kind.REGRESSED.value for row in held):
        parts.append(_sound(timed, kernels))
    return " ".join(filter(None, parts))


def _slower(timed: Sequence[Row]) -> str:
    slower = [row for row in timed if row.verdict == Kind.REGRESSED.value and not row.by_peak]
    if not slower:
        return ""
    worst = worst_first(slower)[0]
    change = f", {format_percent(worst.change)} time" if worst.change is not None else ""
    of = f"{len(slower)} of {count(len(timed), 'measurement')}"
    return f"{of} {_are(slower)} slower: {'worst ' * (len(slower) > 1)}{printable(worst.label)}{change}."


def _larger(timed: Sequence[Row]) -> str:
    worst = [row for row in timed if row.peak is not None and row.peak.verdict == Kind.REGRESSED.value]
    of = f"{len(worst)} of {count(len(timed), 'measurement')} {'take' if len(worst) > 1 else 'takes'} more memory"
    return f"{of}: {printable(worst[0].label)}{', …' * (len(worst) > 1)}." if worst else ""


def _worse(kernels: Sequence[Row]) -> str:
    worse = [row for row in kernels if row.verdict == Kind.REGRESSED.value]
    of = f"{len(worse)} of {count(len(kernels), 'compiled kernel')}"
    return f"{of} {_are(worse)} worse: {printable(worse[0].label)}{', …' * (len(worse) > 1)}." if worse else ""


def _failed(rows: Sequence[Row]) -> str:
    """Tests that are red for something else than a verdict on their number."""
    told = {(row.path, row.test) for row in rows if row.red and row.verdict == Kind.REGRESSED.value}
    failed = [row for row in rows if row.red and (row.path, row.test) not in told]
    tests = {(row.path, row.test) for row in failed}
    if not failed:
        return ""
    words = ", ".join(dict.fromkeys(row.verdict for row in failed))
    first = printable(worst_first(failed)[0].label)
    return f"{count(len(tests), 'test')} failed otherwise ({words}): {first}{', …' * (len(tests) > 1)}."


def _nothing(rows: Sequence[Row]) -> str:
    measured = [row for row in rows if row.what != "test"]
    if not measured:
        return "Nothing was timed."
    reasons: dict[str, list[str]] = {}
    for row in measured:
        told = _NO_REASON.get(row.verdict) or printable(row.reason or row.verdict)
        # Reasons that differ in their numbers alone are one.
        reasons.setdefault(_NUMBER.sub("", told), []).append(told)
    commonest = max(reasons.values(), key=len)
    of = f" ({len(commonest)} of {len(measured)})" if len(reasons) > 1 else ""
    others = f", and {count(len(reasons) - 1, 'other reason')}" if len(reasons) > 1 else ""
    return f"Nothing was compared: {commonest[0]}{of}{others}."


def _sound(timed: Sequence[Row], kernels: Sequence[Row]) -> str:
    faster = sum(row.verdict == Kind.IMPROVED.value for row in timed)
    undecided = sum(row.verdict == Kind.INCONCLUSIVE.value for row in timed)
    extra = [f"{faster} faster"] * bool(faster) + [f"{undecided} undecided"] * bool(undecided)
    parts = [
        f"none of {count(len(timed), 'measurement')} is shown to be slower" + f" ({', '.join(extra)})" * bool(extra)
    ]
    parts = parts * bool(timed) + [f"none of {count(len(kernels), 'compiled kernel')} is worse"] * bool(kernels)
    told = "; ".join(parts)
    return f"{told[:1].upper()}{told[1:]}."


def _are(rows: Sequence[Row]) -> str:
    return "are" if len(rows) > 1 else "is"
