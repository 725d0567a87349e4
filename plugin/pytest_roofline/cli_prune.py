"""`roofline baseline prune`: what no test uses any more, found by a collection of all tests."""

import os
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from .cli_options import into_option, json_option, print_json
from .cli_upkeep import read_baselines
from .core.errors import BadInput
from .core.units import printable
from .options import PLAN_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .judging.pruning import PlannedTest, Unused

# How much of a failed collection's output is shown.
LAST_LINES = 15


@click.command(short_help="List the entries that no test uses any more.")
@into_option
@click.option(
    "--tests", multiple=True, metavar="PATH", help="Where the tests are (repeatable); pytest's own choice without."
)
@click.option("--apply", "applied", is_flag=True, help="Remove the entries that no test uses, after listing them.")
@json_option
def prune(into: Path, tests: tuple[str, ...], applied: bool, as_json: bool) -> None:
    """List the entries that no test uses any more, found by a collection of all tests; --apply removes them.

    Example: roofline baseline prune --tests perf_tests

    Exit status: 0 listed or removed, 2 the tests cannot be collected, or a file cannot be read or written.
    """
    from .judging.pruning import unused
    from .reporting.baseline_json import unused_as_json
    from .reporting.baseline_tables import counted

    baselines = read_baselines((), into)
    planned = _collect(tests)
    found = {path: unused([*known.entries, *known.exact], planned) for path, known in baselines.items()}
    count = sum(len(idle) for idle in found.values())
    total = sum(len(known.entries) + len(known.exact) for known in baselines.values())
    if not as_json:
        for path, idle in found.items():
            _list_unused(path, idle)
        tests_found = counted(len(planned), "test that measures", "tests that measure")
        click.echo(f"{count} of {counted(total, 'entry', 'entries')} unused by the {tests_found}")
    if count and applied:
        if count == total:
            raise BadInput(
                f"none of the {total} entries in {into} is used by the tests that were collected, so these are hardly "
                "the tests that they were made from; name them with --tests, or remove the files yourself"
            )
        _remove(found)
        if not as_json:
            click.echo(f"{counted(count, 'entry', 'entries')} removed")
    if as_json:
        idle_entries = [unused_as_json(path, one) for path, idle in found.items() for one in idle]
        print_json(
            {"entries": total, "tests": len(planned), "removed": bool(count) and applied, "unused": idle_entries}
        )


def _remove(found: "Mapping[Path, Sequence[Unused]]") -> None:
    """Take what was listed out of the files as they are now: the collection of tests took its time."""
    from .judging.baselines import read_baseline, write_baseline
    from .judging.writing import alone

    for path, idle in found.items():
        if idle:
            gone = {one.entry.identity for one in idle}
            with alone(path):
                known = read_baseline(path)
                kept = tuple(entry for entry in known.entries if entry.identity not in gone)
                exact = tuple(entry for entry in known.exact if entry.identity not in gone)
                write_baseline(path, replace(known, entries=kept, exact=exact))


def _list_unused(path: Path, idle: "Sequence[Unused]") -> None:
    from .core.entries import ExactEntry

    for one in idle:
        why = "its test has other parameters now" if one.benchmark_known else "there is no such test"
        entry = one.entry
        what = f"{entry.target}; exact" if isinstance(entry, ExactEntry) else f"{entry.hardware}; {entry.kind}"
        click.echo(printable(f"unused in {path}: {entry.label} ({what}): {why}"))


def _collect(tests: tuple[str, ...]) -> "list[PlannedTest]":
    """The measuring tests that pytest finds in a process of its own, of every tier.

    Raises:
        BadInput: the collection failed, or found none: then nothing may be called unused.
    """
    from .judging.pruning import read_plan

    with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
        plan = Path(folder) / "plan.jsonl"
        command = [sys.executable, "-m", "pytest", *tests, "--collect-only", "-q", "--roofline-tier=full"]
        # Options of the ini file or the shell may deselect tests, whose entries would then look unused.
        command += ["-k", "", "-m", ""]
        surroundings = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
        done = subprocess.run(
            command, env=surroundings | {PLAN_VARIABLE: str(plan)}, capture_output=True, text=True, check=False
        )
        if done.returncode != 0:
            for line in [*done.stdout.splitlines(), *done.stderr.splitlines()][-LAST_LINES:]:
                click.echo(printable(line), err=True)
            raise BadInput(
                f"pytest ended with status {done.returncode} while it collected the tests, so nothing can be called "
                "unused; mend that, or name other tests with --tests"
            )
        planned = read_plan(plan) if plan.exists() and plan.stat().st_size else []
    if not planned:
        raise BadInput(
            "pytest collected no test that measures, so nothing can be called unused; name them with --tests"
        )
    return planned
