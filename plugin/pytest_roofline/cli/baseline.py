"""The commands `roofline baseline propose` and `approve`.

A person reads the proposal of some runs, and approves it.
"""

import platform
import sys
from collections.abc import Callable, Collection, Iterable, Sequence
from pathlib import Path

import click

from ..baselines import proposals, renewal
from ..baselines.checks import health_of
from ..baselines.exact_proposals import ExactChange, approve_exact, exact_path
from ..baselines.files import read_baseline, write_baseline
from ..baselines.picking import Choice, RunSelection, is_fake, parse_moment, pick, scan
from ..baselines.proposals import Proposal
from ..baselines.renewal import Change
from ..baselines.run_files import resolve_run
from ..baselines.runs import Run, cut_note, read_run
from ..core.entries import Entry
from ..core.errors import BadFile, BadInput, CannotStore
from ..core.units import cut, printable
from ..engine.devices import cpu
from ..report.baseline_tables import (
    MOST_LINES,
    changes_as_json,
    changes_table,
    count_text,
    proposal_as_json,
    provisional_note,
)
from ..report.tables import exact_change_lines, exact_table
from .options import (
    Commands,
    command,
    folder_option,
    into_option,
    print_json,
    say,
    use_hardware_of,
)

SECTIONS = {
    "Commands": {
        "propose": ("cli.baseline:propose", "Make a proposal from saved runs."),
        "approve": ("cli.baseline:approve", "Merge a proposal into the baselines."),
        "show": ("cli.upkeep:show", "Show what each entry is based on."),
        "check": ("cli.upkeep:check", "Validate baselines."),
    }
}


@click.group(cls=Commands, sections=SECTIONS)
@click.pass_context
def baseline(ctx: click.Context) -> None:
    """Make and renew baselines: runs become a proposal, a person approves it."""
    # `check` reads hardware.json itself, since it lists every mistake in the file.
    if ctx.invoked_subcommand != "check":
        use_hardware_of(ctx, ctx.obj)


@command(folder_option)
@click.argument("runs", nargs=-1)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), required=True, help="The file to write."
)
@click.option(
    "--driver",
    default="",
    help="Use only runs whose driver version begins like this: 550.",
)
@click.option(
    "--before",
    default="",
    metavar="DATE",
    help="Use only runs started before this date or time (ISO 8601, UTC).",
)
@click.option(
    "--after",
    default="",
    metavar="DATE",
    help="Use only runs started at this date or time, or later (ISO 8601, UTC).",
)
@click.option(
    "--product",
    default="",
    help="Use only runs on this hardware, given by its key or by words of its key: h200-sxm.",
)
@click.option(
    "--all", "everything", is_flag=True, help="Include tests that are not marked gate=True."
)
@click.option(
    "--accept-slower",
    is_flag=True,
    help="Include tests that failed only because their time, memory or kernel resources grew, and sessions "
    "that were slower in many tests.",
)
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
    """Build baseline entries from RUNS (NAME or PATH; default: all saved runs), a session each, into a new file.

    Tests that failed, were invalid or had wrong data are left out and named; so is a session, in those of its tests in
    which it is strange, where these are many. Runs that contradict each other are refused.

    Example: roofline baseline propose -o driver-570.json --driver 570

    Exit status: 0 the proposal is written, 2 the input cannot be used, or nothing in it can become a baseline.
    """
    if output.exists():
        raise CannotStore(
            f"{output} exists already; choose another name with -o, or remove that file"
        )
    choice = Choice(
        driver=driver,
        before=parse_moment(before, "--before") if before else None,
        after=parse_moment(after, "--after") if after else None,
        product=product,
    )
    picked_runs, notes_on_others = _pick_runs(runs, folder, choice)
    notes = [*notes_on_others, *_notes(picked_runs)]
    _print_notes(notes, "note: ")
    proposal = _proposal(picked_runs, everything, accept_slower)
    # Another process may have written a file of this name in the meantime.
    write_baseline(output, proposal.baseline, new=True)
    _print_notes(proposal.left_out, "left out: ")
    if as_json:
        print_json(
            proposal_as_json(proposal, output, notes, provisional(proposal.baseline.entries))
        )
    else:
        _print_proposal(proposal, output)


def _print_proposal(proposal: Proposal, output: Path) -> None:
    """Print the numbers of entries, and the next command.

    Provisional entries get a note.
    """
    entries, exact = proposal.baseline.entries, proposal.baseline.exact
    if entries:
        session_count = max(len(entry.sessions) for entry in entries)
        say(
            f"{_entry_text(entries)} for {printable(str(entries[0].hardware))}, "
            f"from up to {count_text(session_count, 'session', 'sessions')}, in {output}"
        )
        if note := provisional(entries, output):
            say(note)
    if exact:
        targets = printable(", ".join(sorted({entry.target for entry in exact})))
        say(f"{count_text(len(exact), 'exact entry', 'exact entries')} for {targets}, in {output}")
    say(f"check the proposal, then type: roofline baseline approve {output}")


def _entry_text(entries: Collection[Entry]) -> str:
    """Return the number of entries as a text, canaries apart.

    Example: `7 entries and 3 canaries (measurements of the machine itself)`. The word is explained, since users do not
    name canaries themselves.
    """
    canary_count = sum(entry.is_canary for entry in entries)
    entry_text = count_text(len(entries) - canary_count, "entry", "entries")
    if not canary_count:
        return entry_text
    canary_text = count_text(canary_count, "canary", "canaries")
    return f"{entry_text} and {canary_text} (measurements of the machine itself)"


def _pick_runs(names: tuple[str, ...], folder: Path, choice: Choice) -> RunSelection:
    """Return the named runs that fit the choice.

    Without names they are all saved runs that fit.
    """
    if not names:
        return scan(folder, choice)
    return pick([read_run(resolve_run(name, folder)) for name in names], choice)


def _notes(runs: Collection[Run]) -> list[str]:
    """Return notes on runs that are cut or of fake devices."""
    notes = [cut_note(run.path) for run in runs if run.cut]
    if any(is_fake(run) for run in runs):
        notes.append(
            "these runs were measured on a fake device; keep them out of the folders of real devices"
        )
    return notes


def _proposal(runs: tuple[Run, ...], everything: bool, accept_slower: bool) -> Proposal:
    """Return the proposal of these runs.

    It holds the entries that they make for a baseline, and what is left out. Raise NothingFit if no measurement is fit
    for a baseline, after a line for each reason. Raise BadInput instead if other processes kept the machine busy.
    """
    try:
        return proposals.propose(runs, everything=everything, accept_slower=accept_slower)
    except proposals.NothingFit as error:
        _print_notes(error.left_out, "left out: ")
        if error.busy:
            raise BadInput(
                f"{error}{_busy_now(runs)}; record again, under the same "
                "names, once `roofline doctor` exits 0"
            ) from None
        raise


def _busy_now(runs: tuple[Run, ...]) -> str:
    """Return which processes are busy now, and the remedy.

    It is the end of a message. For runs of another machine it is the remedy alone.
    """
    are_of_this_machine = {run.header.environment.host.name for run in runs} == {platform.node()}
    busy_text = cpu.neighbours_now() if are_of_this_machine else ""
    return f"; now {busy_text}; {cpu.QUIETEN}" if busy_text else f"; {cpu.QUIETEN}"


def _print_notes(lines: Iterable[str], start: str) -> None:
    """Print lines on standard error, each behind `start`. Long lists are cut."""
    for line in cut([f"{start}{printable(line)}" for line in lines], MOST_LINES, "of these"):
        say(line, err=True)


def provisional(entries: Iterable[Entry], path: Path | None = None) -> str:
    """Return a sentence on provisional entries; empty if there are none.

    With `path` it also names the command that shows them.
    """
    note = provisional_note(health_of(entries)) or ""
    return f"{note}; see `roofline baseline show {path}`" if note and path is not None else note


@command(into_option)
@click.argument("proposal", type=click.Path(path_type=Path))
@click.option(
    "--only",
    multiple=True,
    metavar="EXPR",
    help="Approve only entries whose label contains this text (repeatable).",
)
@click.option(
    "--replace",
    is_flag=True,
    help="Replace the old sessions by the new ones, unless the new ones are too slow.",
)
@click.option(
    "--accept-slower",
    is_flag=True,
    help="Accept entries that became slower than the tolerance allows, over all renewals, or that take more memory.",
)
@click.option("--dry-run", is_flag=True, help="Show the changes, write nothing.")
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

    New sessions replace the old where they surely differ by more than the tolerance; otherwise they are added, so that
    noise neither tightens nor loosens a baseline. An entry that is slower than its oldest sessions by more than the
    tolerance, in one step or many, or takes more memory, is refused without --accept-slower.

    Example: roofline baseline approve driver-570.json --dry-run

    Exit status: 0 merged, or nothing to change, 2 the proposal cannot be used or is too slow, or a file cannot be
    written.
    """
    if not proposal.exists():
        raise BadFile(
            f"proposal {proposal} does not exist; write the file with `roofline baseline propose -o {proposal}`; if "
            "this command refuses, correct the faults that it names; record runs of a busy machine again once "
            "`roofline doctor` exits 0"
        )
    # With --json only the document goes to standard output.
    print_line: Callable[[str], None] = (lambda _: None) if as_json else say
    new_baseline = read_baseline(proposal)
    path, kernel_path = into / f"{new_baseline.family}.json", exact_path(into)
    changes = renewal.changes(
        new_baseline, into, only=only, replaces=replace, accept_slower=accept_slower
    )
    kernels = renewal.kernel_changes(new_baseline, into, only=only)
    # An unchanged entry is not written. `exact` are entries of compiled kernels, which are in a file of their own.
    pending = [change for change in changes if change.action != "unchanged"]
    exact = [change for change in kernels if change.action != "unchanged"]
    if not pending and not exact:
        files = [str(path)] if changes else []
        files += [str(kernel_path)] if kernels else []
        print_line(
            f"nothing to change: {' and '.join(files) or path} already holds all entries of the proposal"
        )
    state = "would change in" if dry_run else "written to"
    if pending:
        _print_changes(changes, proposal if dry_run else path, print_line)
        if not dry_run:
            renewal.approve(
                new_baseline, into, only=only, replaces=replace, accept_slower=accept_slower
            )
        print_line(f"{_entry_text([change.entry for change in pending])} {state} {path}")
    if exact:
        _print_kernel_changes(exact, print_line)
        if not dry_run:
            _write_kernels(exact, into, written=path if pending else None)
        exact_text = count_text(len(exact), "exact entry", "exact entries")
        print_line(f"{exact_text} {state} {kernel_path}")
    if as_json:
        is_written = bool(pending or exact) and not dry_run
        print_json(changes_as_json(changes, kernels, path, kernel_path, written=is_written))


def _print_changes(
    changes: Sequence[Change], shown_file: Path, print_line: Callable[[str], None]
) -> None:
    """Print the changes of tests as a table.

    Provisional entries get a note. `shown_file` is the file in which the note tells to look the entries up.
    """
    test_changes = [change for change in changes if not change.entry.is_canary]
    if test_changes:
        print_line(changes_table(test_changes, 80, sys.stdout.isatty()))
    note = provisional([change.entry for change in changes], shown_file)
    if note:
        print_line(note)


def _print_kernel_changes(
    kernels: Sequence[ExactChange], print_line: Callable[[str], None]
) -> None:
    """Print the changes of compiled kernels, first as a table."""
    print_line(exact_table([change.entry for change in kernels], 80, sys.stdout.isatty()))
    for line in exact_change_lines(kernels):
        print_line(line)


def _write_kernels(kernels: Sequence[ExactChange], into: Path, *, written: Path | None) -> None:
    """Write the entries of compiled kernels into the folder of baselines.

    Raise CannotStore if that fails; the error also names the file that was written before.
    """
    try:
        approve_exact([change.entry for change in kernels], into)
    except CannotStore as error:
        message = f"{error}" if written is None else f"{error}; {written} has been written already"
        raise CannotStore(message) from None
