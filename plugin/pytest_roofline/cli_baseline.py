"""`roofline baseline`, and `approve`: what a person read becomes a baseline."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .cli_help import InOrder
from .cli_options import into_option, json_option, print_json
from .cli_propose import propose, provisional_lines
from .cli_prune import prune
from .cli_upkeep import check, show
from .core.errors import BadFile, CannotStore

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .kernel_gate.recording import ExactChange


@click.group(cls=InOrder, short_help="Make, renew and check baselines.")
def baseline() -> None:
    """Make and renew baselines: runs become a proposal, a person approves it."""


@click.command(short_help="Merge a proposal into the baselines.")
@click.argument("proposal", type=click.Path(path_type=Path))
@into_option
@click.option("--only", multiple=True, metavar="EXPR", help="Only entries with this in their label (repeatable).")
@click.option("--replace", is_flag=True, help="Take the new sessions in place of the old, unless they are too slow.")
@click.option(
    "--accept-slower",
    is_flag=True,
    help="Take what crept beyond the tolerance since its anchor, and anchor it anew; and what takes more memory.",
)
@click.option("--dry-run", is_flag=True, help="Show the changes, write nothing.")
@json_option
def approve(
    proposal: Path,
    into: Path,
    only: tuple[str, ...],
    replace: bool,
    accept_slower: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Show what PROPOSAL changes in the baseline of its hardware, and merge it; other entries stay as they are.

    Compiled kernels go into resources.json, whatever the hardware.

    New sessions replace the old where they surely differ by more than the tolerance, and join them everywhere else: so
    noise neither tightens nor loosens a baseline. What is slower than the oldest sessions of its entry by more than the
    tolerance, in one step or many, or takes more memory, is refused without --accept-slower.

    Example: roofline baseline approve driver-570.json --dry-run

    Exit status: 0 merged, or nothing to change, 2 the proposal cannot be used, is too slow for an anchor, or a file
    cannot be written.
    """
    from .judging.baselines import read_baseline
    from .judging.renewal import approve as approve_entries
    from .judging.renewal import changes, kernel_changes
    from .kernel_gate.recording import approve_exact, exact_path
    from .reporting.baseline_json import changes_as_json
    from .reporting.baseline_tables import changes_table, counted

    if not proposal.exists():
        raise BadFile(f"proposal {proposal} does not exist; expected a file that `roofline baseline propose` wrote")
    say = _silent if as_json else click.echo
    proposed = read_baseline(proposal)
    path, kernel_path = into / f"{proposed.family}.json", exact_path(into)
    found = changes(proposed, into, only=only, replaces=replace, accept_slower=accept_slower)
    kernels = kernel_changes(proposed, into, only=only)
    pending = [change for change in found if change.action != "unchanged"]
    exact = [change for change in kernels if change.action != "unchanged"]
    if not pending and not exact:
        held = [str(path)] * bool(found) + [str(kernel_path)] * bool(kernels)
        say(f"nothing to change: {' and '.join(held) or path} already holds all that it proposes")
    done = "would change in" if dry_run else "written to"
    if pending:
        say(changes_table(found, 80, sys.stdout.isatty()))
        for line in provisional_lines([change.entry for change in found], proposal if dry_run else path):
            say(line)
        if not dry_run:
            approve_entries(proposed, into, only=only, replaces=replace, accept_slower=accept_slower)
        say(f"{counted(len(pending), 'entry', 'entries')} {done} {path}")
    if exact:
        for line in _exact_lines(exact):
            say(line)
        if not dry_run:
            try:
                approve_exact([change.entry for change in exact], into)
            except CannotStore as error:
                raise CannotStore(f"{error}; {path} has been written already" if pending else f"{error}") from None
        say(f"{counted(len(exact), 'exact entry', 'exact entries')} {done} {kernel_path}")
    if as_json:
        written = bool(pending or exact) and not dry_run
        print_json(changes_as_json(found, kernels, path, kernel_path, written=written))


def _silent(_: str) -> None:
    """Says nothing: standard output is for the machine alone."""


def _exact_lines(changes: "Sequence[ExactChange]") -> list[str]:
    from .reporting.exact_tables import exact_change_lines, exact_table

    table = exact_table([change.entry for change in changes], 80, sys.stdout.isatty())
    return [table, *exact_change_lines(changes)]


for command in (propose, approve, show, check, prune):
    baseline.add_command(command)
