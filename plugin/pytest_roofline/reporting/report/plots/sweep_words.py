"""What a sweep says in sentences: its plateau beside the roofline, and which sizes got slower."""

from collections.abc import Sequence
from statistics import median

from ....core.rows import Row
from ....core.units import format_bytes, format_share, printable
from .series import Series
from .words import INVALID, metric_of, rate_words, sentence, verdicts

# Fewer sizes make no plateau; as in the terminal's line on a sweep.
FEWEST_POINTS = 4
# So many series are told in a sentence each.
MOST_TOLD = 3


def sweep_says(all_series: Sequence[Series]) -> str:
    worst = sorted(all_series, key=lambda one: -sum(row.red for row in one.rows))
    named = len(all_series) > 1
    told = [f"{one.name}: {_sentence(one)}." if named else sentence(_sentence(one)) for one in worst[:MOST_TOLD]]
    more = f" {len(worst) - MOST_TOLD} more series are in the figure." if len(worst) > MOST_TOLD else ""
    banded = any(row.baseline_medians_s for one in all_series for row in one.rows)
    band = " A band reaches from the slowest to the fastest process of the baseline." if banded else ""
    return printable(" ".join(told) + more + band)


def _sentence(one: Series) -> str:
    """`plateau 3.9 TB/s, 81.2 % of the datasheet's 4.8 TB/s; 2 of 20 sizes slower …`."""
    sound = [row for row in one.rows if row.verdict != INVALID]
    bare = [f"{one.unresolved} without a rate to be drawn, as below the clock's resolution"] if one.unresolved else []
    sizes = {id(row): format_bytes(size) for size, row in one.points}
    found = verdicts(one.rows, "size", lambda row: sizes[id(row)])
    return "; ".join([*_plateau(sound), found, *_cached(sound), *bare])


def _plateau(rows: Sequence[Row]) -> list[str]:
    """The median rate of the largest third of the sizes beside the roofline; of few sizes the rate of the largest."""
    if not rows:
        return ["no size to be trusted"]
    last, largest = rows[-max(2, len(rows) // 3) :], rows[-1]
    enough = len(rows) >= FEWEST_POINTS
    value = median(row.rate or 0.0 for row in last) if enough else largest.rate or 0.0
    reached = rate_words(value, metric_of(largest))
    text = f"plateau {reached}" if enough else f"{reached} at the largest size"
    ceiling = largest.measurement.ceiling if largest.measurement is not None else None
    if ceiling is None or largest.roofline_share is None or not largest.rate:
        return [text]
    share = largest.roofline_share * value / largest.rate
    whose = "the datasheet's" if ceiling.source == "datasheet" else "the measured"
    return [f"{text}, {format_share(share)} of {whose} {rate_words(ceiling.value, ceiling.metric)}"]


def _cached(rows: Sequence[Row]) -> list[str]:
    count = sum("cache_resident" in row.measurement.samples.labels for row in rows if row.measurement is not None)
    return [f"{count} small enough to stay in a cache, which the roofline does not bound"] if count else []
