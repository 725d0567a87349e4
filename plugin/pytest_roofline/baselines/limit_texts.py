"""Published figures, floors and shares of the roofline in words, made where they are printed."""

import math
from dataclasses import replace

from ..core.entries import OUT_OF_MEMORY, Entry, Statistic
from ..core.units import count, format_tolerance
from ..core.verdicts import TimeLimit
from ..hardware import format_ceiling

# The remedies for a card below its floor.
FLOOR_REMEDY = (
    "a healthy card of this product reaches the floor; `roofline doctor` shows what slows this card; if that setting "
    "is intended, lower or remove the floor in your own baseline, with a reason (docs/reference/verdicts.md)"
)


def limit_text(limit: TimeLimit) -> str:
    """Return `threshold 1225 GB/s (read + write, 1e9; fastest call; the vendor's guide)`."""
    if limit.peak is None or limit.share is None:
        assert limit.entry is not None
        return describe(limit.entry)
    share = format_tolerance(limit.share)
    if limit.entry is None:
        return f"{share} of the roofline ({format_ceiling(limit.peak)}; {limit.peak.origin})"
    least = format_ceiling(replace(limit.peak, value=limit.peak.value * limit.share))
    return f"the floor {least} ({share} of {format_ceiling(limit.peak)}; {rests_on(limit.entry)})"


def limit_source(limit: TimeLimit) -> str:
    """Return the source of a limit, or the roofline's share."""
    if limit.entry is None:
        assert limit.share is not None
        return f"{format_tolerance(limit.share)} of the roofline (--roofline-min-percent)"
    if limit.kind == "floor":
        return f"floor, {rests_on(limit.entry)}"
    return limit.entry.source or ""


def breach_text(limit: TimeLimit, estimate: float) -> str:
    """Return the sentence on a time that lies `estimate` log seconds beyond a limit."""
    if limit.peak is None or limit.share is None:
        return f"BELOW THRESHOLD: {limit_text(limit)}"
    observed = format_tolerance(round(limit.share * math.exp(-estimate), 3))
    if limit.entry is not None:
        return f"BELOW FLOOR: observed {observed} of the peak, expected {limit_text(limit)}; {FLOOR_REMEDY}"
    least, peak = format_tolerance(limit.share), limit.peak
    return f"BELOW {least} OF THE ROOFLINE (observed {observed} of {format_ceiling(peak)}; {peak.origin})"


# The name of a statistic in a sentence.
_WORDS: dict[Statistic, str] = {"median": "median", "mean": "mean", "best": "fastest call"}


def describe(entry: Entry) -> str:
    """Return a published figure in words.

    It reads `threshold 235 GB/s (payload, 1e9; fastest call; vendor's acceptance guide)`.
    """
    if entry.kind == "floor":
        return f"floor {value_text(entry)} ({rests_on(entry)})"
    how = f"; {_WORDS[entry.statistic]}" if entry.statistic else ""
    return f"{entry.kind} {value_text(entry)} ({entry.convention}{how}; {entry.source})"


def rests_on(entry: Entry) -> str:
    """Return the sources that a floor rests on.

    It reads `figures of 2 sources: …`. For a floor that a site lowered, the reason follows.
    """
    text = f"{entry.source}"
    if entry.figures:
        text = f"figures of {count(entry.figures, 'source')}: {text}"
    if entry.reason:
        text += f"; set by this site, because {entry.reason}"
    return text


def value_text(entry: Entry) -> str:
    """Return a published value as its source has it.

    It reads `235 GB/s`, `1.5 to 2 s`, `out of memory`.
    """
    if entry.kind == "floor":
        assert isinstance(entry.value, float | int)
        return f"{format_tolerance(entry.value)} of the datasheet's peak"
    if entry.value is None or entry.value == OUT_OF_MEMORY:
        return OUT_OF_MEMORY
    # A value may be a range, with two ends.
    ends = entry.value if isinstance(entry.value, tuple) else (entry.value,)
    if only_below(entry):
        highest = ends[-1]
        return f"less than {highest:.10g} {entry.unit}"
    return f"{' to '.join(f'{end:.10g}' for end in ends)} {entry.unit}"


def only_below(entry: Entry) -> bool:
    """Return True where the source gives only an upper bound: a range from 0."""
    return isinstance(entry.value, tuple) and entry.value[0] == 0
