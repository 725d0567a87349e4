"""`roofline baseline show` and `check`: what there is, and whether it is sane."""

import datetime
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .cli_options import into_option, json_option, print_json, width
from .core.errors import BadFile
from .core.facts import HARDWARE_FILE
from .core.units import printable

if TYPE_CHECKING:
    from .core.entries import Baseline, Entry, ExactEntry
    from .judging.baseline_health import Health
    from .judging.plausible import Flaw


@click.command(short_help="Show what stands behind each entry.")
@click.argument("what", nargs=-1)
@into_option
@json_option
def show(what: tuple[str, ...], into: Path, as_json: bool) -> None:
    """Show what stands behind each entry, and how small a slowdown it finds.

    WHAT: baseline files (*.json; those of the folder without), and parts of the labels to show.

    Example: roofline baseline show baselines/h200.json memcpy

    Exit status: 0 shown, 2 a file cannot be read.
    """
    from .judging.baseline_health import health_of
    from .judging.renewal import select
    from .reporting.baseline_tables import health_as_json, published_as_json
    from .reporting.exact_tables import exact_as_json

    files = [Path(text) for text in what if text.endswith(".json")]
    parts = [text for text in what if not text.endswith(".json")]
    baselines = read_baselines(files, into)
    entries = [entry for baseline in baselines.values() for entry in baseline.entries]
    kernels = [entry for baseline in baselines.values() for entry in baseline.exact]
    chosen = {entry.identity for entry in select(entries, parts, [kernel.label for kernel in kernels])}
    chosen |= {kernel.identity for kernel in select(kernels, parts, [entry.label for entry in entries])}
    rows = []
    for path, baseline in baselines.items():
        # The prior of an entry is what all of its file tell, so the choice comes after.
        healths = [health for health in health_of(baseline.entries) if health.entry.identity in chosen]
        published = [e for e in baseline.entries if e.identity in chosen and e.kind != "measured"]
        exact = [entry for entry in baseline.exact if entry.identity in chosen]
        if as_json:
            rows += [{"file": str(path), **exact_as_json(entry)} for entry in exact]
            rows += [{"file": str(path), **health_as_json(health)} for health in healths]
            rows += [{"file": str(path), **published_as_json(entry)} for entry in published]
        elif healths or published or exact:
            _print_health(path, healths, published, whole=bool(parts))
            _print_exact(exact)
    if as_json:
        print_json(rows)


def _print_health(path: Path, healths: "Sequence[Health]", published: "Sequence[Entry]", *, whole: bool) -> None:
    """The entries of a file; where they were chosen, the whole list of what was published."""
    from .reporting.baseline_tables import (
        LEGEND,
        MOST_OF_ONE,
        capped,
        health_table,
        provisional_lines,
        published_lines,
        renewal_lines,
    )

    click.echo(printable(str(path)))
    if healths:
        click.echo(health_table(healths, width(), sys.stdout.isatty()))
        click.echo(LEGEND)
        drivers = {driver for health in healths for driver in health.drivers}
        if len(drivers) == 1:
            click.echo(f"driver: {printable(drivers.pop())}")
    shown = published_lines(published, None if whole else MOST_OF_ONE)
    for line in [*capped(renewal_lines(healths)), *capped(provisional_lines(healths)), *shown]:
        click.echo(line)


def _print_exact(entries: "Sequence[ExactEntry]") -> None:
    from .reporting.exact_tables import exact_table

    if entries:
        click.echo(exact_table(entries, width(), sys.stdout.isatty()))


@click.command(short_help="Say what in baselines cannot be true.")
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@into_option
@json_option
def check(files: tuple[Path, ...], into: Path, as_json: bool) -> None:
    """Say what in baseline FILES cannot be true, or is not told.

    Without FILES those of the folder. Times against the datasheet's peak, provenance, conventions, dates, duplicates.

    Example: roofline baseline check baselines/h200.json

    Exit status: 0 nothing is wrong, hints aside, 1 something is, 2 a file cannot be read.
    """
    from .judging.baseline_checks import check as check_baseline
    from .reporting.baseline_json import flaw_as_json

    baselines = read_baselines(files, into)
    now = datetime.datetime.now(datetime.UTC)
    found = [(path, flaw) for path, baseline in baselines.items() for flaw in check_baseline(path, baseline, now)]
    wrong = sum(not flaw.hint for _, flaw in found)
    if as_json:
        print_json([flaw_as_json(path, flaw) for path, flaw in found])
    else:
        _print_flaws(found, baselines, wrong)
    sys.exit(1 if wrong else 0)


def _print_flaws(found: "Sequence[tuple[Path, Flaw]]", baselines: "dict[Path, Baseline]", wrong: int) -> None:
    from .reporting.baseline_tables import counted

    for path, flaw in found:
        where = f"{path}{': ' if flaw.entry else ''}{flaw.entry}"
        told = f"{flaw.observed}; expected {flaw.expected}; {flaw.remedy}"
        click.echo(printable(f"{'hint: ' if flaw.hint else ''}{where}: {told}"))
    count = sum(len(baseline.entries) + len(baseline.exact) for baseline in baselines.values())
    entries, files_read = counted(count, "entry", "entries"), counted(len(baselines), "file", "files")
    click.echo(f"{wrong or 'nothing'} wrong in {entries} of {files_read}")


def read_baselines(files: "Sequence[Path]", into: Path) -> "dict[Path, Baseline]":
    """The named baselines, or all of a folder.

    Raises:
        BadFile: one cannot be read, or the folder is none.
    """
    from .judging.baselines import read_baseline

    if not files and not into.is_dir():
        raise BadFile(f"there is no folder {into} with baselines; name files, or the folder with --into")
    found = (path for path in sorted(into.glob("*.json")) if path.name != HARDWARE_FILE)
    return {path: read_baseline(path) for path in files or found}
