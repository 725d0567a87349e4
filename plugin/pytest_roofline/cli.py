"""The `roofline` command: compare runs, make baselines, look at the machine. Exit status 0 fine, 1 not, 2 bad input."""

import json
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from .cli_machine import doctor, selftest
from .core.errors import CannotStore, RooflineError
from .core.units import parse_fraction, printable
from .version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from .judging.comparing import Row
    from .judging.runs import Run

folder_option = click.option(
    "--dir",
    "folder",
    type=click.Path(path_type=Path),
    default=Path(".roofline"),
    show_default=True,
    help="Where runs are kept; a NAME means DIR/runs/NAME.jsonl.",
)


class _Commands(click.Group):
    """Turns our own errors into one sentence and exit status 2."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except RooflineError as error:
            click.echo(f"roofline: {printable(str(error))}", err=True)
            ctx.exit(2)
        except OSError as error:
            click.echo(f"roofline: {printable(f'{error.filename}: {error.strerror}')}", err=True)
            ctx.exit(2)


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="roofline")
def main() -> None:
    """Is this machine as fast as it should be? Offline companion of the pytest plugin."""


@main.command()
@click.argument("old")
@click.argument("new")
@click.option("--tolerance", default="5%", show_default=True, help="How much slower is still the same: 5% or 0.05.")
@click.option("--json", "as_json", is_flag=True, help="Print machine-readable JSON.")
@folder_option
def compare(old: str, new: str, tolerance: str, as_json: bool, folder: Path) -> None:
    """Hold NEW against OLD, each a saved run (NAME or PATH) or a baseline file; worst first.

    Exit status: 0 nothing regressed, 1 something did, 2 the input cannot be used.
    """
    from .judging.comparing import compare as compare_files
    from .judging.runs import resolve_run
    from .judging.verdicts import Kind

    compared = compare_files(
        resolve_run(old, folder), resolve_run(new, folder), parse_fraction(tolerance, "--tolerance")
    )
    rows = compared.rows
    _note_cuts(compared.runs)
    if compared.only_old:
        click.echo(f"note: only in {old}: {printable(', '.join(compared.only_old))}", err=True)
    if as_json:
        click.echo(json.dumps([_row_as_json(row) for row in rows], indent=2, ensure_ascii=False, allow_nan=False))
    else:
        _print_comparison(rows)
    sys.exit(1 if any(row.verdict.kind is Kind.REGRESSED for row in rows) else 0)


def _print_comparison(rows: "Sequence[Row]") -> None:
    from .judging.verdicts import Kind
    from .reporting.tables import comparison_table

    terminal = sys.stdout.isatty()
    click.echo(comparison_table(rows, shutil.get_terminal_size((80, 24)).columns if terminal else 80, terminal))
    for row in rows:
        if row.verdict.reason:
            click.echo(f"{row.verdict.kind.value} {printable(row.label)}: {printable(row.verdict.reason)}")
    counts = {kind: sum(row.verdict.kind is kind for row in rows) for kind in Kind}
    click.echo(", ".join(f"{count} {kind.value}" for kind, count in counts.items() if count))


def _row_as_json(row: "Row") -> dict[str, Any]:
    verdict = row.verdict
    return {
        "test": row.label,
        "benchmark": row.key.benchmark,
        "name": row.key.name,
        "parameters": row.key.parameters,
        "old_s": row.old_s,
        "new_s": row.new_s,
        "verdict": verdict.kind.value,
        "change": verdict.change,
        "log_interval": verdict.interval,
        "p": verdict.p,
        "tolerance": verdict.tolerance,
        "processes": len(verdict.reference.medians_s) if verdict.reference else 0,
        "reason": verdict.reason,
    }


@main.group()
def baseline() -> None:
    """Make and renew baselines: runs become a proposal, a person approves it."""


@baseline.command()
@click.argument("runs", nargs=-1, required=True)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The proposal to write.")
@click.option("--all", "everything", is_flag=True, help="Also what is not marked gate=True.")
@click.option(
    "--accept-slower", is_flag=True, help="Also tests that failed only because they were slower: a slowdown accepted."
)
@folder_option
def propose(runs: tuple[str, ...], output: Path, everything: bool, accept_slower: bool, folder: Path) -> None:
    """Build baseline entries from RUNS (NAME or PATH), best from several sessions, into a new file.

    What failed, was invalid or held wrong data is left out and named.
    """
    from .judging.baselines import write_baseline
    from .judging.proposals import propose as propose_entries

    if output.exists():
        raise CannotStore(f"{output} exists already, and a proposal is a new file; choose another name or remove it")
    read = _read_runs(runs, folder)
    proposal = propose_entries(read, everything=everything, accept_slower=accept_slower)
    if any(run.header.environment.device.type == "fake" for run in read):
        click.echo("note: these runs are of a fake device; approve them into no folder that real devices use", err=True)
    write_baseline(output, proposal.baseline)
    for line in proposal.left_out:
        click.echo(f"left out: {line}", err=True)
    entries = proposal.baseline.entries
    sessions = max(len(entry.sessions) for entry in entries)
    click.echo(
        f"{len(entries)} entries for {printable(str(entries[0].hardware))}, from up to {sessions} sessions, in {output}"
    )
    if sessions < 3:
        click.echo("provisional: fewer than 3 sessions stand behind it, so how much they differ is hardly known")
    click.echo(f"read it, then: roofline baseline approve {output}")


def _read_runs(names: tuple[str, ...], folder: Path) -> "list[Run]":
    from .judging.runs import read_run, resolve_run

    runs = [read_run(resolve_run(name, folder)) for name in names]
    _note_cuts(runs)
    return runs


def _note_cuts(runs: "Iterable[Run]") -> None:
    for run in runs:
        if run.cut:
            click.echo(f"note: {run.path} ends in the middle of a line, which is left out", err=True)


@baseline.command()
@click.argument("proposal", type=click.Path(path_type=Path))
@click.option(
    "--into",
    type=click.Path(path_type=Path),
    default=Path("baselines"),
    show_default=True,
    help="The folder that holds one baseline file a hardware family.",
)
@click.option("--dry-run", is_flag=True, help="Show the changes, write nothing.")
def approve(proposal: Path, into: Path, dry_run: bool) -> None:
    """Show what PROPOSAL changes in the baseline of its hardware, and merge it; other entries stay as they are."""
    from .judging.baselines import read_baseline
    from .judging.proposals import approve as approve_entries
    from .judging.proposals import changes
    from .reporting.tables import changes_table

    proposed = read_baseline(proposal)
    pending = changes(proposed, into)
    if not pending:
        click.echo(
            f"nothing to change: {into / proposed.family}.json already holds these {len(proposed.entries)} entries"
        )
        return
    click.echo(changes_table(pending, 80, sys.stdout.isatty()))
    if dry_run:
        click.echo(f"{len(pending)} entries would change in {into / proposed.family}.json")
        return
    path = approve_entries(proposed, into)
    click.echo(f"{len(pending)} entries written to {path}")


main.add_command(doctor)
main.add_command(selftest)
