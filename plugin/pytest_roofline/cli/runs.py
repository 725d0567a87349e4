"""The commands `roofline compare` and `roofline explain`.

They compare runs, and show the reasons of a verdict.
"""

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import click

from ..baselines.comparing import Comparison
from ..baselines.comparing import compare as compare_files
from ..baselines.pairs import compare_by
from ..baselines.picking import is_imported
from ..baselines.run_files import paths_of, resolve_run
from ..baselines.run_rows import rows_of, rows_of_run
from ..baselines.runs import Run, read_run
from ..core.errors import BadInput
from ..core.rows import Row, worst_first
from ..core.statuses import Status, status_of
from ..core.units import count, cut, listed, parse_tolerance, printable
from ..core.verdicts import Kind
from ..report.comparison import (
    comparison_as_json,
    comparison_lines,
    contrast_as_json,
    contrast_text,
)
from ..report.conditions import peak_lines
from ..report.devices import Quantity, device_tables, devices_as_json, devices_text
from ..report.explain import explanation, explanation_as_json, note_labels, note_lines
from ..report.published import idle_lines
from ..report.tables import comparison_table, exact_reason_lines, kernels_table
from ..report.words import totals_text
from ..stats.paired import FEWEST_BLOCKS_RED, PROCESSES_PER_BLOCK_SIDE
from .options import command, folder_option, note_cuts, print_json, say, width

# The quantities of --table.
QUANTITIES = ("time", "rate", "peak")
# The largest number of reasons of single tests below a comparison.
MOST_REASONS = 8
# The largest number of tests that a message names.
MOST_NAMED = 8


@command(folder_option)
@click.argument("old")
@click.argument("new", default="", metavar="NEW")
@click.option(
    "--tolerance",
    help="Largest slowdown that passes: 5% or 0.05 (default: 5%, on a CPU 15%).",
)
@click.option(
    "--table", is_flag=True, help="Show a column for each run of OLD, without NEW and verdicts."
)
@click.option(
    "--by",
    metavar="PARAMETER",
    help="Compare the values of this parameter of the tests, such as execution, within OLD.",
)
@click.option(
    "--base",
    metavar="VALUE",
    help="With --by: the value that the other values are compared with, such as eager.",
)
@click.option(
    "--of",
    type=click.Choice(QUANTITIES),
    help="With --table: the quantity to show (default: the rate of copies, the time of other tests).",
)
def compare(
    old: str,
    new: str,
    tolerance: str | None,
    table: bool,
    by: str | None,
    base: str | None,
    of: Quantity | None,
    as_json: bool,
    folder: Path,
) -> int:
    """Compare NEW with OLD, worst first. Each is a saved run (NAME or PATH), a folder, a pattern, or a baseline.

    Separate several by commas.

    With --table devices as columns: runs of several machines beside each other by test, such as CPU, MPS and CUDA.

    With --by two or more values of one parameter, such as eager and compiled, within OLD and without NEW: each process
    that timed two of them is a pair, and five pairs decide.

    Example: roofline compare before1,before2,before3 after1,after2,after3

    Example: roofline compare --table cpu,a100,mi300x

    Example: roofline compare steps --by execution --base eager

    Exit status: 0 nothing is slower, 1 something is, or was lost, 2 it cannot tell: nothing was compared, what is
    undecided looks slower than its tolerance or is of imported logs, different things were timed under one name, or the
    input cannot be used.
    """
    accepted_slowdown = None if tolerance is None else parse_tolerance(tolerance, "--tolerance")
    _check_together(
        new=bool(new),
        table=table,
        of=of is not None,
        by=by is not None,
        base=base is not None,
    )
    if by is not None:
        return _compare_by(_side(old, folder), by, base, accepted_slowdown, as_json)
    if table:
        return _print_table(_side(old, folder), of, as_json)
    sides = _side(old, folder), _side(new, folder)
    comparison = compare_files(*sides, accepted_slowdown)
    note_cuts(comparison.runs)
    if comparison.only_old:
        say(f"note: tests only in {old}: {printable(', '.join(comparison.only_old))}", err=True)
    if as_json:
        print_json(comparison_as_json(comparison))
    else:
        _print_comparison(comparison, *sides)
    is_of_logs = bool(comparison.runs) and all(map(is_imported, comparison.runs))
    # Live tests are measured again until they are decided, logs are not.
    is_open = is_of_logs and any(row.verdict == Kind.INCONCLUSIVE for row in comparison.everything)
    status = status_of(comparison.everything, complete=not (comparison.unlike or is_open))
    if is_of_logs and status is Status.CANNOT_TELL:
        say(
            f"note: {PROCESSES_PER_BLOCK_SIDE * FEWEST_BLOCKS_RED} processes a side decide where the tool runs on both "
            "sides in turn; type: roofline ab A B --run 'COMMAND' --read TOOL, or: roofline ab 'cmd:OLD' 'cmd:NEW' "
            "--read TOOL",
            err=True,
        )
    return status


def _check_together(*, new: bool, table: bool, of: bool, by: bool, base: bool) -> None:
    """Refuse arguments of `compare` that exclude each other.

    A missing NEW is refused too. Each argument tells whether the one of that name was given.
    """
    # Only --table and --by do without NEW; --base without --by has its own message.
    if not (new or table or by or base):
        ctx = click.get_current_context()
        raise click.MissingParameter(
            ctx=ctx,
            param=next(parameter for parameter in ctx.command.params if parameter.name == "new"),
        )
    if (table and new) or (of and not table):
        raise BadInput(
            "--table shows only the runs of OLD; leave out NEW; give --of only together with --table: "
            "roofline compare cpu,a100,mi300x --table --of time"
        )
    if (by and (new or table)) or (base and not by):
        raise BadInput(
            "--by compares tests within OLD; leave out NEW and --table; give --base only together with "
            "--by: roofline compare RUN --by execution --base eager"
        )


def _side(names: str, folder: Path) -> list[Path]:
    """Return the files of one side.

    Their names are separated by commas. A path that exists is not split.
    """
    parts = [names] if Path(names).exists() else names.split(",")
    return [Path(path) for part in parts if part for path in paths_of(part, folder)]


def _print_table(paths: Sequence[Path], quantity: Quantity | None, as_json: bool) -> int:
    """Print runs of several machines beside each other. Return the exit status."""
    runs = [read_run(path) for path in paths]
    note_cuts(runs)
    tables = device_tables(rows_of(runs), quantity)
    if not tables:
        raise BadInput(
            f"none of {count(len(runs), 'run')} has a {quantity or 'time'}; name runs with a {quantity or 'time'}"
        )
    _show(tables, devices_as_json if as_json else devices_text, as_json)
    return 0


def _compare_by(
    paths: Sequence[Path], by: str, base: str | None, tolerance: float | None, as_json: bool
) -> int:
    """Compare tests by the values of a parameter.

    They are of the same runs and differ in the value of `by`. The verdicts are printed. Return the exit status. `base`
    is the value to compare with; None leaves the choice to the comparison.
    """
    runs = [read_run(path) for path in paths]
    note_cuts(runs)
    contrast = compare_by(runs, by, base, tolerance)
    if contrast.alone:
        names = printable(", ".join(contrast.alone))
        say(f"note: tests with only one value of {by}: {names}", err=True)
    _show(contrast, contrast_as_json if as_json else contrast_text, as_json)
    return status_of([row for _, row in contrast.rows])


def _show(comparison: Any, convert: Callable[..., Any], as_json: bool) -> None:
    """Print a comparison as JSON or as text.

    `convert` returns plain data, or the text for a width and a terminal.
    """
    if as_json:
        print_json(convert(comparison))
    else:
        say(convert(comparison, width(), sys.stdout.isatty()))


def _print_comparison(comparison: Comparison, old: Sequence[Path], new: Sequence[Path]) -> None:
    """Print the tables, then the reasons, then the totals.

    `old` and `new` are the files of both sides.
    """
    rows, kernels = comparison.rows, comparison.kernels
    is_terminal = sys.stdout.isatty()
    # A side that is a baseline has no runs.
    before = [run for run in comparison.runs if run.path in old]
    after = [run for run in comparison.runs if run.path in new]
    for line in comparison_lines(comparison, before, after):
        say(line)
    if rows or not (kernels or comparison.lost):
        say(comparison_table(rows, width(), is_terminal))
    lines = [
        printable(f"{row.time_verdict.kind} {row.label}: {row.time_reason}")
        for row in rows
        if row.time_verdict is not None and row.time_reason
    ]
    lines = cut(lines, MOST_REASONS, "tests that are undecided or INVALID; --json has all of them")
    lines += peak_lines(rows, at_most=len(rows)) + idle_lines(rows)
    lines += [kernels_table(kernels, width(), is_terminal)] if kernels else []
    lines += exact_reason_lines(kernels)
    lines += [printable(f"{row.verdict} {row.label}: {row.reason}") for row in comparison.lost]
    for line in [*lines, totals_text(worst_first(comparison.everything))]:
        say(line)


@command(folder_option)
@click.argument("run")
@click.argument("test", default="")
def explain(run: str, test: str, as_json: bool, folder: Path) -> None:
    """Show why each verdict of RUN on TEST (part of its name or id; default: all) is what it is.

    Samples by process, the intervals, the spreads and where they come from, and the rule step by step. For a compiled
    kernel its figures, target and compiler. Also the test's other figures, its memory use and its profile.

    Example: roofline explain driver-570 64MiB

    Exit status: 0 shown, 2 the run cannot be used, or measured nothing of that name.
    """
    measured_run = read_run(resolve_run(run, folder))
    rows = rows_of_run(measured_run)
    test_ids = _matching(measured_run, rows, test)
    if as_json:
        print_json(explanation_as_json(measured_run, list(test_ids.items())))
        return
    blocks = []
    for label in test_ids:
        lines = [line for row in rows if row.label == label for line in explanation(row, width())]
        blocks.append([*lines, *note_lines(measured_run, label, width())])
    say("\n\n".join("\n".join(lines) for lines in blocks))


def _matching(run: Run, rows: Sequence[Row], test: str) -> dict[str, str]:
    """Return the labels that match a text, with test ids.

    Tests whose label, id or parameter equals the text are preferred: `4MiB` does not match `2004MiB`. Otherwise the
    text is a part of the label or the id. Raise BadInput if nothing matches.
    """
    ids = {row.label: row.test for row in rows if row.metric is not None} | note_labels(run)
    labels = list(ids)
    # The parameters stand in brackets in a label, with hyphens between them: `copy[4MiB-pinned]`.
    parameters = {
        label: [part.split("-") for part in re.findall(r"\[([^][]*)\]", label)] for label in labels
    }
    exact = [
        label
        for label in labels
        if test in (label, ids[label]) or any(test in words for words in parameters[label])
    ]
    matches = exact or [label for label in labels if test in label or test in ids[label]]
    if not matches:
        if not labels:
            raise BadInput(
                f"{run.path} has no test {test!r}, since this run measured nothing; name another run"
            )
        raise BadInput(
            f"{run.path} has no test with {test!r} in its name; "
            f"name one of these tests: {listed(labels, MOST_NAMED)}"
        )
    return {label: ids[label] for label in matches}
