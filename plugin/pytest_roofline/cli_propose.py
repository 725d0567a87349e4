"""`roofline baseline propose`: runs become a proposal."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .cli_options import folder_option, json_option, print_json
from .core.errors import CannotStore
from .core.units import printable

if TYPE_CHECKING:
    from .core.entries import Entry
    from .judging.picking import Choice, Picked
    from .judging.proposals import Proposal
    from .judging.runs import Run


@click.command(short_help="Make a proposal of saved runs.")
@click.argument("runs", nargs=-1)
@click.option("-o", "--output", type=click.Path(path_type=Path), required=True, help="The proposal to write.")
@click.option("--driver", default="", help="Only runs of this driver: its version or the first parts of it, as 550.")
@click.option("--before", default="", metavar="DATE", help="Only runs begun before this date or time (ISO 8601, UTC).")
@click.option("--after", default="", metavar="DATE", help="Only runs begun then or later.")
@click.option("--product", default="", help="Only runs of this hardware: its key, or words of it, as h200-sxm.")
@click.option("--all", "everything", is_flag=True, help="Also what is not marked gate=True.")
@click.option(
    "--accept-slower",
    is_flag=True,
    help="Also tests that failed only because they were slower, took more memory, or their kernels ask for more: that "
    "is accepted.",
)
@json_option
@folder_option
def propose(
    runs: tuple[str, ...],
    output: Path,
    driver: str,
    before: str,
    after: str,
    product: str,
    everything: bool,
    accept_slower: bool,
    as_json: bool,
    folder: Path,
) -> None:
    """Build baseline entries from RUNS (NAME or PATH; all saved ones without), a session each, into a new file.

    What failed, was invalid or held wrong data is left out and named; runs that disagree with each other are refused.

    Example: roofline baseline propose -o driver-570.json --driver 570

    Exit status: 0 the proposal is written, 2 the input cannot be used, or nothing of it is fit.
    """
    from .judging.baselines import write_baseline
    from .judging.picking import Choice, parse_moment
    from .reporting.baseline_json import proposal_as_json

    if output.exists():
        raise CannotStore(f"{output} exists already, and a proposal is a new file; choose another name or remove it")
    choice = Choice(
        driver=driver,
        before=parse_moment(before, "--before") if before else None,
        after=parse_moment(after, "--after") if after else None,
        product=product,
    )
    picked = _picked(runs, folder, choice)
    notes = [*picked.notes, *_notes(picked.runs)]
    _say(notes, "note: ")
    proposal = _proposal(picked.runs, everything, accept_slower)
    # Another proposal may have taken the name since.
    write_baseline(output, proposal.baseline, new=True)
    _say(proposal.left_out, "left out: ")
    if as_json:
        print_json(proposal_as_json(proposal, output, notes, provisional(proposal.baseline.entries)))
    else:
        _print(proposal, output)


def _print(proposal: "Proposal", output: Path) -> None:
    from .reporting.baseline_tables import counted

    entries, exact = proposal.baseline.entries, proposal.baseline.exact
    if entries:
        sessions = max(len(entry.sessions) for entry in entries)
        made = f"{counted(len(entries), 'entry', 'entries')} for {printable(str(entries[0].hardware))}"
        click.echo(f"{made}, from up to {counted(sessions, 'session', 'sessions')}, in {output}")
        for line in provisional_lines(entries, output):
            click.echo(line)
    if exact:
        targets = printable(", ".join(sorted({entry.target for entry in exact})))
        click.echo(f"{counted(len(exact), 'exact entry', 'exact entries')} for {targets}, in {output}")
    click.echo(f"read it, then: roofline baseline approve {output}")


def _picked(names: tuple[str, ...], folder: Path, choice: "Choice") -> "Picked":
    from .judging.picking import pick, scan
    from .judging.runs import read_run, resolve_run

    if not names:
        return scan(folder, choice)
    return pick([read_run(resolve_run(name, folder)) for name in names], choice)


def _notes(runs: "Iterable[Run]") -> list[str]:
    from .judging.picking import is_fake

    taken = list(runs)
    notes = [f"{run.path} ends in the middle of a line, which is left out" for run in taken if run.cut]
    if any(is_fake(run) for run in taken):
        notes.append("these runs are of a fake device; approve them into no folder that real devices use")
    return notes


def _proposal(runs: "tuple[Run, ...]", everything: bool, accept_slower: bool) -> "Proposal":
    """The proposal; where nothing is fit, each reason has its line before the error."""
    from .judging.proposals import NothingFit
    from .judging.proposals import propose as propose_entries

    try:
        return propose_entries(runs, everything=everything, accept_slower=accept_slower)
    except NothingFit as error:
        _say(error.left_out, "left out: ")
        raise


def _say(lines: Iterable[str], start: str) -> None:
    """A line each on standard error, at most twelve."""
    from .reporting.baseline_tables import capped

    for line in capped([f"{start}{printable(line)}" for line in lines]):
        click.echo(line, err=True)


def provisional(entries: "Iterable[Entry]") -> str:
    """Of which entries too little is known, in a sentence; empty where of none."""
    from .judging.baseline_health import health_of
    from .reporting.baseline_tables import provisional_note

    return provisional_note(health_of(entries)) or ""


def provisional_lines(entries: "Iterable[Entry]", path: Path) -> list[str]:
    """The same for a person, with where to look; no line where there is nothing to say."""
    note = provisional(entries)
    return [f"{note}; see `roofline baseline show {path}`"] if note else []
