"""`roofline baseline show`, `check` and `prune`: what there is, whether it is sane, and what no test uses any more."""

import datetime
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..baselines.files import PlannedTest, Unused, read_baseline, unused, write_baseline
from ..core.entries import Baseline, Entry, ExactEntry
from ..core.errors import BadFile, BadInput
from ..core.facts import HARDWARE_FILE
from ..core.units import printable
from ..core.writing import alone
from ..plugin.options import PLAN_VARIABLE
from .options import command, into_option, print_json, say, width

if TYPE_CHECKING:
    from ..baselines.checks import Health
    from ..baselines.plausible import Flaw

# How much of a failed collection's output is shown.
LAST_LINES = 15


@command("Show what each entry is based on.", into_option)
@click.argument("what", nargs=-1)
def show(what: tuple[str, ...], into: Path, as_json: bool) -> None:
    """Show what each entry is based on, and how small a slowdown it detects.

    WHAT: baseline files (*.json; default: all of the folder), and parts of the labels to show.

    Example: roofline baseline show baselines/h200.json memcpy

    Exit status: 0 shown, 2 a file cannot be read.
    """
    from ..baselines.checks import health_of
    from ..baselines.renewal import select
    from ..report.baseline_tables import health_as_json, published_as_json
    from ..report.tables import exact_as_json, exact_table

    files = [Path(text) for text in what if text.endswith(".json")]
    parts = [text for text in what if not text.endswith(".json")]
    baselines = read_baselines(files, into)
    entries = [entry for baseline in baselines.values() for entry in baseline.entries]
    kernels = [entry for baseline in baselines.values() for entry in baseline.exact]
    selected: list[Entry | ExactEntry] = [
        *select(entries, parts, [kernel.label for kernel in kernels]),
        *select(kernels, parts, [entry.label for entry in entries]),
    ]
    chosen = {entry.identity for entry in selected}
    rows = []
    for path, baseline in baselines.items():
        # The prior of an entry is what all of its file tell, so the choice comes after.
        healths = [
            health for health in health_of(baseline.entries) if health.entry.identity in chosen
        ]
        published = [e for e in baseline.entries if e.identity in chosen and e.kind != "measured"]
        exact = [entry for entry in baseline.exact if entry.identity in chosen]
        if as_json:
            rows += [{"file": str(path), **exact_as_json(entry)} for entry in exact]
            rows += [{"file": str(path), **health_as_json(health)} for health in healths]
            rows += [{"file": str(path), **published_as_json(entry)} for entry in published]
        elif healths or published or exact:
            _print_health(path, healths, published, whole=bool(parts))
            if exact:
                say(exact_table(exact, width(), sys.stdout.isatty()))
    if as_json:
        print_json(rows)


def _print_health(
    path: Path, healths: "Sequence[Health]", published: Sequence[Entry], *, whole: bool
) -> None:
    """The entries of a file; where they were chosen, the whole list of what was published."""
    from ..report.baseline_tables import (
        LEGEND,
        MOST_OF_ONE,
        capped,
        health_table,
        provisional_lines,
        published_lines,
        renewal_lines,
    )

    say(printable(str(path)))
    if healths:
        say(health_table(healths, width(), sys.stdout.isatty()))
        say(LEGEND)
        drivers = {driver for health in healths for driver in health.drivers}
        if len(drivers) == 1:
            say(f"driver: {printable(drivers.pop())}")
    shown = published_lines(published, None if whole else MOST_OF_ONE)
    for line in [*capped(renewal_lines(healths)), *capped(provisional_lines(healths)), *shown]:
        say(line)


@command("Validate baselines.", into_option)
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
def check(files: tuple[Path, ...], into: Path, as_json: bool) -> int:
    """Validate baseline FILES (default: all of the folder): values that cannot be true, and facts that are missing.

    Times are checked against the datasheet's peak; also provenance, conventions, dates and duplicates.

    Example: roofline baseline check baselines/h200.json

    Exit status: 0 nothing is wrong, hints aside, 1 something is, 2 a file cannot be read.
    """
    from ..baselines.checks import check as check_baseline
    from ..report.baseline_tables import flaw_as_json

    baselines = read_baselines(files, into)
    now = datetime.datetime.now(datetime.UTC)
    found = [
        (path, flaw)
        for path, baseline in baselines.items()
        for flaw in check_baseline(path, baseline, now)
    ]
    wrong = sum(not flaw.hint for _, flaw in found)
    if as_json:
        print_json([flaw_as_json(path, flaw) for path, flaw in found])
    else:
        _print_flaws(found, baselines, wrong)
    return 1 if wrong else 0


def _print_flaws(
    flaws: "Sequence[tuple[Path, Flaw]]", baselines: dict[Path, Baseline], wrong: int
) -> None:
    from ..report.baseline_tables import counted

    for path, flaw in flaws:
        where = f"{path}{': ' if flaw.entry else ''}{flaw.entry}"
        text = f"{flaw.observed}; expected {flaw.expected}; {flaw.remedy}"
        say(printable(f"{'hint: ' if flaw.hint else ''}{where}: {text}"))
    count = sum(len(baseline.entries) + len(baseline.exact) for baseline in baselines.values())
    entries, files_read = (
        counted(count, "entry", "entries"),
        counted(len(baselines), "file", "files"),
    )
    say(f"{wrong or 'nothing'} wrong in {entries} of {files_read}")


def read_baselines(files: Sequence[Path], into: Path) -> dict[Path, Baseline]:
    """The named baselines, or all of a folder."""
    if not files and not into.is_dir():
        raise BadFile(
            f"there is no folder {into} with baselines; name files, or the folder with --into"
        )
    paths = (path for path in sorted(into.glob("*.json")) if path.name != HARDWARE_FILE)
    return {path: read_baseline(path) for path in files or paths}


@command("List the entries that no test uses any more.", into_option)
@click.option(
    "--tests",
    multiple=True,
    metavar="PATH",
    help="Where the tests are (repeatable); default: as pytest chooses.",
)
@click.option(
    "--apply",
    "applied",
    is_flag=True,
    help="Remove the entries that no test uses, after listing them.",
)
def prune(into: Path, tests: tuple[str, ...], applied: bool, as_json: bool) -> None:
    """List the entries that no test uses any more, found by a collection of all tests; --apply removes them.

    Example: roofline baseline prune --tests perf_tests

    Exit status: 0 listed or removed, 2 the tests cannot be collected, or a file cannot be read or written.
    """
    from ..report.baseline_tables import counted, unused_as_json

    baselines = read_baselines((), into)
    planned = _collect(tests)
    found = {
        path: unused([*known.entries, *known.exact], planned) for path, known in baselines.items()
    }
    count = sum(len(idle) for idle in found.values())
    total = sum(len(known.entries) + len(known.exact) for known in baselines.values())
    if not as_json:
        for path, idle in found.items():
            _list_unused(path, idle)
        tests_found = counted(len(planned), "test that measures", "tests that measure")
        say(f"{count} of {counted(total, 'entry', 'entries')} unused by the {tests_found}")
    if count and applied:
        if count == total:
            raise BadInput(
                f"none of the {total} entries in {into} is used by the tests that were collected, so these are hardly "
                "the tests that they were made from; name them with --tests, or remove the files yourself"
            )
        _remove(found)
        if not as_json:
            say(f"{counted(count, 'entry', 'entries')} removed")
    if as_json:
        print_json(
            {
                "entries": total,
                "tests": len(planned),
                "removed": bool(count) and applied,
                "unused": [
                    unused_as_json(path, entry) for path, idle in found.items() for entry in idle
                ],
            }
        )


def _remove(unused_by_path: Mapping[Path, Sequence[Unused]]) -> None:
    """Remove the listed entries from the files as they are now: the collection of tests took its time."""
    for path, idle in unused_by_path.items():
        if idle:
            removed = {listed.entry.identity for listed in idle}
            with alone(path):
                baseline = read_baseline(path)
                entries = tuple(
                    entry for entry in baseline.entries if entry.identity not in removed
                )
                exact = tuple(entry for entry in baseline.exact if entry.identity not in removed)
                write_baseline(path, replace(baseline, entries=entries, exact=exact))


def _list_unused(path: Path, idle: Sequence[Unused]) -> None:
    for listed in idle:
        why = (
            "its test has other parameters now"
            if listed.benchmark_known
            else "there is no such test"
        )
        entry = listed.entry
        what = (
            f"{entry.target}; exact"
            if isinstance(entry, ExactEntry)
            else f"{entry.hardware}; {entry.kind}"
        )
        say(printable(f"unused in {path}: {entry.label} ({what}): {why}"))


def _collect(tests: tuple[str, ...]) -> list[PlannedTest]:
    """The measuring tests that pytest finds in a process of its own, of every tier."""
    with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
        plan = Path(folder) / "plan.jsonl"
        command = [
            sys.executable,
            "-m",
            "pytest",
            *tests,
            "--collect-only",
            "-q",
            "--roofline-tier=full",
            # Options of the ini file or the shell may deselect tests, whose entries would then look unused.
            *("-k", "", "-m", ""),
        ]
        surroundings = {
            name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"
        }
        done = subprocess.run(
            command,
            env=surroundings | {PLAN_VARIABLE: str(plan)},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            for line in [*done.stdout.splitlines(), *done.stderr.splitlines()][-LAST_LINES:]:
                say(printable(line), err=True)
            raise BadInput(
                f"pytest ended with status {done.returncode} while it collected the tests, so nothing can be called "
                "unused; mend that, or name other tests with --tests"
            )
        lines = plan.read_text(encoding="utf-8").splitlines() if plan.exists() else []
    planned = [PlannedTest(**json.loads(line)) for line in lines]
    if not planned:
        raise BadInput(
            "pytest collected no test that measures, so nothing can be called unused; name them with --tests"
        )
    return planned
