"""The `roofline` command: compare runs, make baselines, look at the machine. Exit status 0 fine, 1 not, 2 bad input."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..bundle.cli import bundle
from ..core.facts import HARDWARE_FILE
from ..core.units import parse_tolerance, printable
from ..many.cli import fleet, history
from ..version import __version__
from .baseline import baseline
from .export import export
from .gone import GONE, gone
from .hardware import hardware
from .help import Commands
from .imports import import_
from .init import init
from .machine import doctor, selftest
from .options import folder_option, json_option, print_json, width
from .report import report
from .runs import drill, explain

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ..baselines.comparing import Comparison
    from ..baselines.runs import Run


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="roofline")
@click.option(
    "--hardware", "own_hardware", multiple=True, type=click.Path(path_type=Path), metavar="DIR",
    help="A folder whose hardware.json is read before that of ./baselines and what ships (repeatable).",
)  # fmt: skip
@click.pass_context
def main(ctx: click.Context, own_hardware: tuple[Path, ...]) -> None:
    """Is this machine as fast as it should be? Offline companion of the pytest plugin.

    `roofline COMMAND --help` has an example of each. Exit status of every command: 0 all is well or done, 1 it found
    what it looks for (a regression, a flaw), 2 the input cannot be used, which standard error says in a sentence.
    """
    ctx.obj = folders = (*own_hardware, Path("baselines"))
    # Its own commands tell more of a file that cannot be used; most folders have none.
    if ctx.invoked_subcommand != "hardware" and any((folder / HARDWARE_FILE).exists() for folder in folders):
        from ..hardware import use_hardware

        ctx.call_on_close(use_hardware(folders))


@main.command(short_help="Hold a run against another or a baseline, worst first.")
@click.argument("old")
@click.argument("new")
@click.option("--tolerance", help="How much slower is still the same: 5% or 0.05 (default: 5%, of hosts 15%).")
@click.option(
    "--control", nargs=2, metavar="OLD NEW", help="Runs of devices that did not change: from before, and after."
)
@json_option
@folder_option
def compare(
    old: str, new: str, tolerance: str | None, control: tuple[str, str] | None, as_json: bool, folder: Path
) -> None:
    """Hold NEW against OLD, worst first. Each is a saved run (NAME or PATH), a folder, a pattern, or a baseline.

    Several stand with commas between.

    With --control a staged rollout: each device is held against itself, and what the devices of --control did
    meanwhile is taken away. These may be among OLD and NEW as well.

    Example: roofline compare before1,before2,before3 after1,after2,after3

    Exit status: 0 nothing regressed, 1 something did or was lost, 2 the input cannot be used.
    """
    from ..baselines.comparing import compare as compare_files

    allowed = None if tolerance is None else parse_tolerance(tolerance, "--tolerance")
    sides = _side(old, folder), _side(new, folder)
    if control is not None:
        sys.exit(_compare_rollout(sides, (_side(control[0], folder), _side(control[1], folder)), allowed, as_json))
    compared = compare_files(*sides, allowed)
    _note_cuts(compared.runs)
    if compared.only_old:
        click.echo(f"note: only in {old}: {printable(', '.join(compared.only_old))}", err=True)
    if as_json:
        from ..report.comparison import comparison_as_json

        print_json(comparison_as_json(compared))
    else:
        _print_comparison(compared, *sides)
    sys.exit(1 if compared.regressed else 0)


def _side(names: str, folder: Path) -> list[Path]:
    """One side of a comparison: one file, or several with commas between their names."""
    from ..baselines.run_files import paths_of

    parts = [names] if Path(names).exists() else names.split(",")
    return [Path(path) for part in parts if part for path in paths_of(part, folder)]


def _compare_rollout(
    sides: "Sequence[Sequence[Path]]", control: "Sequence[Sequence[Path]]", tolerance: float | None, as_json: bool
) -> int:
    """Judge and print a staged rollout; returns the exit status."""
    from ..baselines.rollout import judge_rollout
    from ..baselines.runs import read_run
    from ..report.comparison import rollout_as_json, rollout_text

    before, after, old, new = ([read_run(path) for path in side] for side in (*sides, *control))
    _note_cuts([*before, *after, *old, *new])
    found = judge_rollout(before, after, (old, new), tolerance)
    if as_json:
        print_json(rollout_as_json(found))
    else:
        click.echo(rollout_text(found, width(), sys.stdout.isatty()))
    return 1 if found.worse else 0


def _print_comparison(compared: "Comparison", old: "Sequence[Path]", new: "Sequence[Path]") -> None:
    from ..core.rows import worst_first
    from ..report.comparison import comparison_lines
    from ..report.messages import peak_lines
    from ..report.overview import ladder_lines, ladder_of
    from ..report.published import idle_lines
    from ..report.tables import comparison_table, exact_reason_lines, kernels_table
    from ..report.words import counts_text

    rows, kernels = compared.rows, compared.kernels
    terminal = sys.stdout.isatty()
    before, after = ([run for run in compared.runs if run.path in side] for side in (old, new))
    for line in comparison_lines(compared, before, after):
        click.echo(line)
    if rows or not (kernels or compared.lost):
        click.echo(comparison_table(rows, width(), terminal))
    told = [row for row in rows if row.judgement is not None and row.judgement.reason]
    lines = [printable(f"{row.judgement.verdict} {row.label}: {row.judgement.reason}") for row in told if row.judgement]
    lines += peak_lines(rows, at_most=len(rows)) + idle_lines(rows)
    lines += [kernels_table(kernels, width(), terminal)] if kernels else []
    lines += exact_reason_lines(kernels)
    lines += [printable(f"{row.verdict} {row.label}: {row.reason}") for row in compared.lost]
    lines += ladder_lines(ladder_of(rows, after))
    for line in [*lines, counts_text(worst_first(compared.everything))]:
        click.echo(line)


def _note_cuts(runs: "Iterable[Run]") -> None:
    for run in runs:
        if run.cut:
            click.echo(f"note: {run.path} ends in the middle of a line, which is left out", err=True)


main.add_command(baseline)
main.add_command(bundle)
main.add_command(doctor)
main.add_command(drill)
main.add_command(explain)
main.add_command(export)
main.add_command(fleet)
main.add_command(hardware)
main.add_command(history)
main.add_command(import_)
main.add_command(init)
main.add_command(report)
main.add_command(selftest)
for _name in GONE:
    main.add_command(gone(_name))
