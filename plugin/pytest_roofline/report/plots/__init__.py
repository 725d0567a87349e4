"""The plots of a report, as data.

Each answers one question, and says its answer in words.
"""

from collections.abc import Sequence

from ...baselines.runs import Run
from ...core.rows import Row
from .bars import attention_plots, memory_plots, time_plots
from .chart import Plot
from .devices import device_plots
from .over_time import over_time_plots
from .pairs import pair_plots
from .rates import peer_plots, sweep_plots
from .roofline import roofline_plots


def plots_of(rows: Sequence[Row], runs: Sequence[Run] = ()) -> list[Plot]:
    """Return the plots of runs, in the order of reading.

    A plot without data is left out.

    Args:
        rows: of the runs.
        runs: with their profiles and records of memory.
    """
    measured_rows = [row for row in rows if row.measurement is not None]
    return [
        *device_plots(rows),
        *sweep_plots(measured_rows),
        *peer_plots(measured_rows),
        *attention_plots(rows),
        *pair_plots(measured_rows),
        *time_plots(runs),
        *memory_plots(runs),
        *over_time_plots(runs),
        *roofline_plots(measured_rows),
    ]
