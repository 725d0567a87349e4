"""What a published figure says: in words, and as the time that some work takes by it."""

from ..core.entries import OUT_OF_MEMORY, PEAK_METRIC, Entry, Statistic
from ..core.units import format_tolerance
from ..core.work import RATE_UNITS, Work, rate_suffix

# What a statistic is called in a sentence.
_WORDS: dict[Statistic, str] = {"median": "median", "mean": "mean", "best": "fastest call"}


def describe(entry: Entry) -> str:
    """A published figure in words: `threshold 235 GB/s (payload, 1e9; fastest call; vendor's acceptance guide)`.

    Of a floor `floor 86 % of the datasheet's peak (figures of 2 sources: …)`.
    """
    if entry.kind == "floor":
        return f"floor {value_text(entry)} ({rests_on(entry)})"
    how = f"; {_WORDS[entry.statistic]}" if entry.statistic else ""
    return f"{entry.kind} {value_text(entry)} ({entry.convention}{how}; {entry.source})"


def rests_on(entry: Entry) -> str:
    """Whose figures a floor rests on: `figures of 2 sources: …`; of one that a site lowered, also why."""
    count = entry.figures or 0
    whose = f"figures of {count} source{'s' * (count != 1)}: {entry.source}" if count else f"{entry.source}"
    return whose + (f"; set here, since {entry.reason}" if entry.reason else "")


def value_text(entry: Entry) -> str:
    """The value of a published figure as its source has it: `235 GB/s`, `1.5 to 2 s`, `out of memory`."""
    if entry.kind == "floor":
        assert isinstance(entry.value, float | int)
        return f"{format_tolerance(entry.value)} of the datasheet's peak"
    if entry.value is None or entry.value == OUT_OF_MEMORY:
        return OUT_OF_MEMORY
    ends = entry.value if isinstance(entry.value, tuple) else (entry.value,)
    if only_below(entry):
        return f"less than {ends[-1]:.10g} {entry.unit}"
    return f"{' to '.join(f'{end:.10g}' for end in ends)} {entry.unit}"


def only_below(entry: Entry) -> bool:
    """Whether its source says no more than that it was less than a value: a range from nothing."""
    return isinstance(entry.value, tuple) and entry.value[0] == 0


def limit_seconds(entry: Entry, work: Work) -> float | None:
    """The time at which `work` just meets a published limit; None where the limit says nothing of it."""
    return published_s(entry, entry.value, work) if isinstance(entry.value, float | int) else None


def published_s(entry: Entry, value: float, work: Work) -> float | None:
    """The time that `work` takes at a value of an entry's metric.

    None where the work has nothing of what it counts, and for the lower end of a range from nothing.
    """
    suffix = rate_suffix(entry.metric)
    if value == 0 or entry.metric == PEAK_METRIC or entry.kind == "floor":
        return None
    if suffix is None:
        return float(value)
    amount = work.amount(entry.metric)
    return None if amount is None else amount / (value * RATE_UNITS[suffix])
