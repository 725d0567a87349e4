"""The plots of a report, as data: each answers one question, says its answer in words, and has a table beside it."""

import math
from collections.abc import Sequence

from ....judging.report_rows import ReportRow
from ..plot import Plot
from .attention import attention_plots
from .bandwidth import bandwidth_plots, collective_plots
from .intensity import roofline_plots
from .models import model_plots
from .peers import peer_plots
from .samples import sample_plots


def plots_of(rows: Sequence[ReportRow]) -> list[Plot]:
    """The plots of one run or several, in the order in which they are read; none where there is nothing to plot."""
    measured = [row for row in rows if row.measurement is not None and _drawable(row)]
    return [
        *sample_plots(measured),
        *bandwidth_plots(measured),
        *collective_plots(measured),
        *peer_plots(measured),
        *attention_plots([row for row in rows if _drawable(row)]),
        *model_plots(rows),
        *roofline_plots(measured),
    ]


def _drawable(row: ReportRow) -> bool:
    """Whether its rate is a number that has a place on a plot: much work over almost no time gives none."""
    return row.rate is None or 0 < row.rate < math.inf
