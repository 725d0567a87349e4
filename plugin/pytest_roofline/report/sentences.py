"""The sentence with which each run ended.

It is the same on the page, in the summary and in `run.json`.
"""

from collections.abc import Sequence

from ..baselines.run_files import run_names
from ..baselines.run_rows import endings
from ..baselines.runs import Run
from ..core.rows import Row
from ..core.units import printable
from .messages import closing_lines, reds_of

# Runs whose sentence is shown.
MOST_ENDED = 8


def sentence_of(run: Run, rows: Sequence[Row]) -> str:
    """Return the sentence of a run.

    It reads `RED: 1 REGRESSED, 11 of 14 fast enough, 2 undecided (…)`.

    Args:
        run: read or just ended.
        rows: the rows of several runs; those of other runs are ignored.
    """
    rows_of_run = [row for row in rows if row.path == run.path]
    results = [row for row in rows_of_run if row.metric is not None]
    status = run.footer.exit_status if run.footer is not None else 0
    # All settings of the gate; the terminal leaves out those that an earlier green run had too.
    settings = (run.footer.elsewhere if run.footer is not None else None) or ()
    # Items that a run adds at its end, such as the device's health, have no `::`: they are no tests of a file.
    tests = list({row.test: None for row in rows_of_run if "::" in row.test})
    reds = reds_of(endings(run), results)
    # The last closing line is the sentence; the lines before it are for the terminal.
    *_, text = closing_lines(results, reds, tests, status=status, settings=settings)
    return printable(text)


def sentences(runs: Sequence[Run], rows: Sequence[Row]) -> list[str]:
    """Return the sentence of each run.

    Where there are several runs, it follows the run's name.
    """
    names = run_names(runs)
    lines = []
    for run in runs[:MOST_ENDED]:
        sentence = sentence_of(run, rows)
        lines.append(f"{names[run.path]}: {sentence}" if len(runs) > 1 else sentence)
    return lines or ["GREY: nothing was compared"]
