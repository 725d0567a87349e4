"""Rates against size: copies, STREAM and whatever else moves bytes in a sweep, and collectives by size and world."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from ....core.rows import Row
from ....core.work import rate_suffix
from ..plot import Plot
from .drawing import MOST_SERIES, limited
from .series import FEWEST_SIZES, Series, series_of
from .sweeps import sweep_plot
from .words import devices

BANDWIDTH, COLLECTIVES = "Bandwidth against size", "Collectives by size and world"
_MOVED = {
    "traffic_GBps": "bytes read and written a second",
    "payload_GBps": "bytes arrived a second",
    "wirebw_GBps": "bytes over the link a second",
}
_COLLECTIVE = {"busbw_GBps": "bus bandwidth", "algbw_GBps": "algorithm bandwidth"}
# A world is a line of its own, so that two sizes of each already show what size and world do.
_FEWEST_OF_WORLD = 2


def bandwidth_plots(rows: Sequence[Row]) -> list[Plot]:
    """A plot for each benchmark with three sizes or more; with many series it takes several."""
    return _plots(BANDWIDTH, rows, _MOVED, FEWEST_SIZES)


def collective_plots(rows: Sequence[Row]) -> list[Plot]:
    """A plot for each operation with two sizes or more, a series for each world."""
    return _plots(COLLECTIVES, rows, _COLLECTIVE, _FEWEST_OF_WORLD)


@dataclass(frozen=True, slots=True)
class _Sheet:
    """What comes onto one figure."""

    title: str
    rate_name: str
    series: Sequence[Series]


def _plots(section: str, rows: Sequence[Row], counted: dict[str, str], fewest: int) -> list[Plot]:
    sheets = _sheets(rows, counted, fewest)
    return limited(
        sheets,
        lambda sheet: sweep_plot(section, sheet.title, sheet.series, sheet.rate_name),
        lambda sheet: any(one.red for one in sheet.series),
    )


def _sheets(rows: Sequence[Row], counted: dict[str, str], fewest: int) -> list[_Sheet]:
    sheets = []
    for (benchmark, suffix), members in _by_benchmark(rows, counted).items():
        found = series_of(members, fewest)
        parts = [found[start : start + MOST_SERIES] for start in range(0, len(found), MOST_SERIES)]
        for number, part in enumerate(parts, 1):
            told = f", part {number} of {len(parts)}" if len(parts) > 1 else ""
            sheets.append(_Sheet(f"{benchmark} on {devices(members)}{told}", counted[suffix], part))
    return sheets


def _by_benchmark(rows: Sequence[Row], suffixes: Collection[str]) -> dict[tuple[str, str], list[Row]]:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        one = row.measurement
        suffix = rate_suffix(one.key.metric) if one is not None else None
        if one is not None and suffix is not None and suffix in suffixes:
            groups.setdefault((one.key.benchmark, suffix), []).append(row)
    return groups
