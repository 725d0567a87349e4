"""The commands `roofline baseline show` and `check`.

They show entries, their mistakes, and those that no test uses.
"""

import datetime
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import click

from ..baselines.checks import Health, health_of
from ..baselines.checks import check as check_baseline
from ..baselines.files import read_baseline
from ..baselines.renewal import select
from ..core.entries import Baseline, Entry, ExactEntry
from ..core.errors import BadFile, BadInput, Flaw
from ..core.facts import HARDWARE_FILE
from ..core.units import cut, printable
from ..hardware.lookup import hardware_files, mistakes, read_hardware
from ..hardware.specs import Catalogue
from ..report.baseline_tables import (
    LEGEND,
    MOST_LINES,
    MOST_OF_ONE,
    count_text,
    health_as_json,
    health_table,
    provisional_lines,
    published_as_json,
    published_lines,
    renewal_lines,
)
from ..report.tables import exact_as_json, exact_table
from .options import command, into_option, print_json, say, use_hardware_of, width
from .pruning import collect, find_unused, hints, remove_unused


@command(into_option)
@click.argument("selectors", nargs=-1, metavar="[WHAT]...")
def show(selectors: tuple[str, ...], into: Path, as_json: bool) -> None:
    """Show what each entry is based on, and how small a slowdown it detects.

    WHAT: baseline files (*.json; default: all of the folder), and parts of the labels to show.

    Example: roofline baseline show baselines/h200.json memcpy

    Exit status: 0 shown, 2 a file cannot be read.
    """
    files = [Path(text) for text in selectors if text.endswith(".json")]
    parts = [text for text in selectors if not text.endswith(".json")]
    baselines = read_baselines(files, into)
    entries = [entry for baseline in baselines.values() for entry in baseline.entries]
    kernels = [entry for baseline in baselines.values() for entry in baseline.exact]
    selected_entries: list[Entry | ExactEntry] = [
        *select(entries, parts, other_labels=[kernel.label for kernel in kernels]),
        *select(kernels, parts, other_labels=[entry.label for entry in entries]),
    ]
    identities = {entry.identity for entry in selected_entries}
    rows = []
    for path, baseline in baselines.items():
        # The prior of an entry comes from all entries of its file, so the entries are selected afterwards.
        healths = [
            health for health in health_of(baseline.entries) if health.entry.identity in identities
        ]
        published_entries = [
            entry
            for entry in baseline.entries
            if entry.identity in identities and entry.kind != "measured"
        ]
        exact = [entry for entry in baseline.exact if entry.identity in identities]
        if as_json:
            rows += [{"file": str(path), **exact_as_json(entry)} for entry in exact]
            rows += [{"file": str(path), **health_as_json(health)} for health in healths]
            rows += [{"file": str(path), **published_as_json(entry)} for entry in published_entries]
        elif healths or published_entries or exact:
            _print_health(path, healths, published_entries, all_published=bool(parts))
            if exact:
                say(exact_table(exact, width(), sys.stdout.isatty()))
    if as_json:
        print_json(rows)


def _print_health(
    path: Path,
    healths: Sequence[Health],
    published_entries: Sequence[Entry],
    *,
    all_published: bool,
) -> None:
    """Print the entries of a baseline file with their evidence.

    `all_published` prints every published entry, instead of the first ones.
    """
    say(printable(str(path)))
    if healths:
        say(health_table(healths, width(), sys.stdout.isatty()))
        say(LEGEND)
        drivers = {driver for health in healths for driver in health.drivers}
        if len(drivers) == 1:
            say(f"driver: {printable(drivers.pop())}")
    published_texts = published_lines(published_entries, None if all_published else MOST_OF_ONE)
    for line in [
        *cut(renewal_lines(healths), MOST_LINES, "of these"),
        *cut(provisional_lines(healths), MOST_LINES, "of these"),
        *published_texts,
    ]:
        say(line)


@command(into_option)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--prune", is_flag=True, help="Also list entries that no test uses; pytest collects all tests."
)
@click.option("--apply", "applied", is_flag=True, help="With --prune: remove the entries listed.")
@click.option(
    "--tests",
    multiple=True,
    metavar="PATH",
    help="With --prune: the path of the tests (repeatable; default: pytest's choice).",
)
@click.pass_context
def check(
    ctx: click.Context,
    files: tuple[Path, ...],
    into: Path,
    prune: bool,
    applied: bool,
    tests: tuple[str, ...],
    as_json: bool,
) -> int:
    """Validate FILES of baselines and of hardware (default: all of the folder): what cannot be true, or is missing.

    Times are checked against the datasheet's peak; also provenance, conventions, dates and duplicates. Of a
    hardware.json form, names, sources and the range of every figure are checked.

    Example: roofline baseline check --prune --tests perf_tests

    Exit status: 0 nothing is wrong, hints aside, 1 something is, 2 a file cannot be read or written, or the tests
    cannot be collected.
    """
    if (applied or tests) and not prune:
        raise BadInput("--apply or --tests is given without --prune; add --prune")
    hardware, baselines = _read_files(ctx.obj, files, into)
    flaws = [(path, flaw) for path, catalogue in hardware.items() for flaw in mistakes(catalogue)]
    # A wrong file of hardware is not put in force.
    if baselines and not flaws:
        use_hardware_of(ctx, ctx.obj)
    now = datetime.datetime.now(datetime.UTC)
    flaws += [
        (path, flaw)
        for path, baseline in baselines.items()
        for flaw in check_baseline(path, baseline, now)
    ]
    planned_tests = collect(tests) if prune else []
    unused = find_unused(baselines, planned_tests) if prune else {}
    flaws += hints(unused, applied)
    mistake_count = sum(not flaw.hint for _, flaw in flaws)
    entry_count = sum(
        len(baseline.entries) + len(baseline.exact) for baseline in baselines.values()
    )
    if not as_json:
        _print_flaws(flaws, entry_count, mistake_count, len(baselines) + len(hardware))
    if prune:
        for line in remove_unused(
            unused, entry_count, len(planned_tests), into if applied else None
        ):
            say(line, err=as_json)
    if as_json:
        print_json([{"file": str(path), **asdict(flaw)} for path, flaw in flaws])
    return 1 if mistake_count else 0


def _read_files(
    folders: tuple[Path, ...], files: tuple[Path, ...], into: Path
) -> tuple[dict[Path, Catalogue], dict[Path, Baseline]]:
    """Return the named hardware files and baselines, by path.

    Without names they are all files of the folder `into`, and the hardware files of `folders`.
    """
    hardware_paths = [path for path in files if path.name == HARDWARE_FILE]
    baseline_paths = [path for path in files if path.name != HARDWARE_FILE]
    if not files:
        hardware_paths = hardware_files(dict.fromkeys((*folders, into)))
    hardware = {path: read_hardware(path) for path in hardware_paths}
    # If only hardware files are named, no baseline is read.
    if files and not baseline_paths:
        return hardware, {}
    return hardware, read_baselines(baseline_paths, into)


def _print_flaws(
    flaws: Sequence[tuple[Path, Flaw]], entry_count: int, mistake_count: int, file_count: int
) -> None:
    """Print the flaws, and the numbers of all.

    These are of mistakes, entries and files.
    """
    for path, flaw in flaws:
        start = "hint: " if flaw.hint else ""
        where = f"{path}: {flaw.entry}" if flaw.entry else f"{path}"
        text = f"{flaw.observed}; expected {flaw.expected}; {flaw.remedy}"
        say(printable(f"{start}{where}: {text}"))
    entry_text = count_text(entry_count, "entry", "entries")
    file_text = count_text(file_count, "file", "files")
    say(f"{mistake_count or 'nothing'} wrong in {entry_text} of {file_text}")


def read_baselines(files: Sequence[Path], into: Path) -> dict[Path, Baseline]:
    """Return the named baselines by path; without names all of a folder.

    Raise BadFile if there is no folder.
    """
    if not files and not into.is_dir():
        raise BadFile(
            f"there is no folder {into} with baselines; name files, or the folder with --into"
        )
    paths = (path for path in sorted(into.glob("*.json")) if path.name != HARDWARE_FILE)
    return {path: read_baseline(path) for path in files or paths}
