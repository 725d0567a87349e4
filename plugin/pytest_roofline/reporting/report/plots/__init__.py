"""The plots of a report, as data: each answers one question, says its answer in words, and has a table beside it."""

from collections.abc import Sequence

from ....judging.report_rows import ReportRow
from ..plot import Plot
from .bandwidth import bandwidth_plots


def plots_of(rows: Sequence[ReportRow]) -> list[Plot]:
    """The plots of one run or several, in the order in which they are read; none where there is nothing to plot."""
    return bandwidth_plots([row for row in rows if row.measurement is not None])
