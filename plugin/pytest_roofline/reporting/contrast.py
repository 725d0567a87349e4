"""Pairs of tests that differ in one parameter, as tables: time, time, difference and percent in every cell."""

from collections.abc import Sequence
from typing import Any

from ..core.keys import label_of
from ..core.units import format_seconds, printable
from ..judging.contrasts import UNSOUND, Contrast, Side
from .layout import new_table, render

# Of the reasons for which times do not count.
MOST_LISTED = 12
# What two rows of one name may differ in.
_APART = ("hardware", "cache", "timing")
NOTE = (
    "Medians of one call; no interval, so a small difference may be chance: `roofline compare` judges one side against "
    "another run of itself."
)


def contrast_table(contrasts: Sequence[Contrast], base: str, other: str, width: int, colour: bool) -> str:
    """A row a pair: the test without the parameter, both times, the difference and its share of the base.

    Where pairs differ in hardware, cache policy or timing, it stands behind the test's name.
    """
    apart = _apart(contrasts)
    table = new_table(("test", "left"), *((name, "right") for name in (printable(base), printable(other), "diff", "%")))
    for contrast in contrasts:
        table.add_row(printable(_label(contrast, apart)), *cells(contrast))
    return render(table, width, colour)


def contrast_markdown(contrasts: Sequence[Contrast], base: str, other: str, across: str | None = None) -> str:
    """The same as a table of Markdown.

    Args:
        contrasts: the pairs.
        base: heading of the side to compare with.
        other: heading of the side that is compared.
        across: a parameter whose values stand side by side; without, each has rows of its own.
    """
    values = list(dict.fromkeys(str(one.parameters.get(across, "")) for one in contrasts)) if across else [""]
    rows: dict[str, dict[str, Contrast]] = {}
    apart = _apart(contrasts)
    for contrast in contrasts:
        value = str(contrast.parameters.get(across, "")) if across else ""
        rows.setdefault(_label(contrast, apart, without=across), {})[value] = contrast
    head = ["test"] + [_heading(value, what) for value in values for what in (base, other, "difference", "change")]
    lines = [_line(head), "|---" + "|---:" * (len(head) - 1) + "|"]
    for label, row in rows.items():
        lines.append(_line([label] + [cell for value in values for cell in _markdown_cells(row.get(value))]))
    return "\n".join(lines)


def contrast_as_json(contrast: Contrast) -> dict[str, Any]:
    """One pair as plain data, in seconds."""
    return {
        "benchmark": contrast.benchmark,
        "name": contrast.name,
        "parameters": contrast.parameters,
        "hardware": str(contrast.hardware),
        "cache": contrast.cache,
        "timing": contrast.timing,
        "base_s": contrast.base.seconds,
        "other_s": contrast.other.seconds,
        "difference_s": contrast.difference_s,
        "change": contrast.change,
        "base_is": contrast.base.words,
        "other_is": contrast.other.words,
    }


def unsound_lines(contrasts: Sequence[Contrast], base: str, other: str) -> list[str]:
    """Why times do not count: `copy[64MiB], bf16: not sound: busy neighbours`."""
    apart = _apart(contrasts)
    lines = [
        printable(f"{_label(contrast, apart)}, {value}: {side.words}")
        for contrast in contrasts
        for value, side in ((base, contrast.base), (other, contrast.other))
        if side.unsound
    ]
    more = [f"… and {len(lines) - MOST_LISTED} more"] if len(lines) > MOST_LISTED else []
    return lines[:MOST_LISTED] + more


def cells(contrast: Contrast) -> tuple[str, str, str, str]:
    """Both times, the signed difference, and the change in percent; words and nothing where one side has no time."""
    difference_s, change = contrast.difference_s, contrast.change
    told = "" if difference_s is None else ("-" if difference_s < 0 else "+") + format_seconds(abs(difference_s))
    return _time(contrast.base), _time(contrast.other), told, "" if change is None else f"{change * 100:+.1f}"


def _time(side: Side) -> str:
    if side.seconds is not None:
        return format_seconds(side.seconds)
    return UNSOUND if side.unsound else side.words


def _apart(contrasts: Sequence[Contrast]) -> list[str]:
    """What of hardware, cache policy and timing is not the same in all pairs."""
    told = {name: {str(getattr(contrast, name)) for contrast in contrasts} - {""} for name in _APART}
    return [name for name, values in told.items() if len(values) > 1]


def _label(contrast: Contrast, apart: Sequence[str], without: str | None = None) -> str:
    parameters = {name: value for name, value in contrast.parameters.items() if name != without}
    told = ", ".join(filter(None, (str(getattr(contrast, name)) for name in apart)))
    return label_of(contrast.benchmark, parameters, contrast.name) + (f" ({told})" if told else "")


def _heading(value: str, what: str) -> str:
    return f"{value}: {what}" if value else what


def _markdown_cells(contrast: Contrast | None) -> tuple[str, ...]:
    if contrast is None:
        return ("",) * 4
    base, other, difference, change = cells(contrast)
    return base, other, difference, f"{change} %" if change else ""


def _line(texts: Sequence[str]) -> str:
    # A bar in an id would end its cell.
    return "| " + " | ".join(printable(text).replace("|", "\\|") for text in texts) + " |"
