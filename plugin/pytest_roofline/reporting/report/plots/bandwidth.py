"""Bandwidth against size: copies, STREAM and whatever else moves bytes in a sweep."""

from collections.abc import Sequence

from ....core.work import rate_suffix
from ....judging.report_rows import ReportRow
from ..plot import Plot
from .drawing import MOST_SERIES
from .series import series_of
from .sweeps import sweep_plot
from .words import devices

SECTION = "Bandwidth against size"
_COUNTED = {
    "traffic_GBps": "bytes read and written a second",
    "payload_GBps": "bytes arrived a second",
    "wirebw_GBps": "bytes over the link a second",
}


def bandwidth_plots(rows: Sequence[ReportRow]) -> list[Plot]:
    """A plot for each benchmark with three sizes or more; with many series it takes several."""
    groups: dict[tuple[str, str], list[ReportRow]] = {}
    for row in rows:
        one = row.measurement
        suffix = rate_suffix(one.key.metric) if one is not None else None
        if one is not None and suffix in _COUNTED:
            groups.setdefault((one.key.benchmark, suffix), []).append(row)
    plots = []
    for (benchmark, suffix), members in groups.items():
        found = series_of(members)
        for start in range(0, len(found), MOST_SERIES):
            part = f", part {start // MOST_SERIES + 1}" if len(found) > MOST_SERIES else ""
            title = f"{benchmark} on {devices(members)}{part}"
            plots.append(sweep_plot(SECTION, title, found[start : start + MOST_SERIES], _COUNTED[suffix]))
    return plots
