"""Entries of baselines that no test uses. A collection of all tests finds them."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from ..baselines.files import (
    PlannedTest,
    Unused,
    read_baseline,
    unused_entries,
    write_baseline,
)
from ..core.entries import Baseline, Entry, ExactEntry
from ..core.errors import BadInput, Flaw
from ..core.units import printable
from ..core.writing import lock_file
from ..report.baseline_tables import count_text
from ..settings.options import PLAN_VARIABLE
from .options import say

# The number of last lines that are shown of the output of a failed collection.
LAST_LINES = 15


def find_unused(
    baselines: Mapping[Path, Baseline], planned_tests: Sequence[PlannedTest]
) -> dict[Path, list[Unused]]:
    """Return the entries of each baseline that no planned test uses."""
    return {
        path: unused_entries([*baseline.entries, *baseline.exact], planned_tests)
        for path, baseline in baselines.items()
    }


def hints(
    unused_by_path: Mapping[Path, Sequence[Unused]], removes: bool
) -> list[tuple[Path, Flaw]]:
    """Return a hint for each unused entry, with its file."""
    return [
        (path, _hint_of(entry, reason, removes))
        for path, entries_of_file in unused_by_path.items()
        for entry, reason in entries_of_file
    ]


def remove_unused(
    unused_by_path: Mapping[Path, Sequence[Unused]],
    entry_count: int,
    test_count: int,
    into: Path | None,
) -> Iterator[str]:
    """Yield the number of unused entries. Remove them from the folder `into`, unless it is None.

    Args:
        unused_by_path: the unused entries of each file.
        entry_count: of all entries, used or not.
        test_count: of all tests that measure.
        into: the folder of baselines; None where the user only wants to see the entries.

    Raises:
        BadInput: no entry is used at all, so the tests are probably not those of the baselines.
    """
    unused_count = sum(map(len, unused_by_path.values()))
    tests = count_text(test_count, "test that measures", "tests that measure")
    entries = count_text(entry_count, "entry", "entries")
    yield f"unused: {unused_count} of {entries}; pytest collected {tests}"
    if into is None or not unused_count:
        return
    if unused_count == entry_count:
        raise BadInput(
            f"no collected test uses any of the {entry_count} entries in {into}, so pytest has probably "
            "collected the wrong tests; name the right tests with --tests, or remove the files yourself"
        )
    for path, entries_of_file in unused_by_path.items():
        _remove(path, {entry.identity for entry, _ in entries_of_file})
    yield f"{count_text(unused_count, 'entry', 'entries')} removed"


def _hint_of(entry: Entry | ExactEntry, reason: str, removes: bool) -> Flaw:
    """Return a hint on an entry that no test uses, with the reason.

    `removes` says that the entry is removed in this call.
    """
    details = (
        f"{entry.target}; exact"
        if isinstance(entry, ExactEntry)
        else f"{entry.hardware}; {entry.kind}"
    )
    return Flaw(
        f"no test uses this entry, since {reason}",
        "a test that measures this entry",
        "the entry is removed" if removes else "--apply removes the entry",
        hint=True,
        entry=f"{entry.label} ({details})",
    )


def _remove(path: Path, identities: Collection[str]) -> None:
    """Remove entries from a file.

    It is read again, since others may have changed it while the tests were collected.
    """
    if not identities:
        return
    with lock_file(path):
        baseline = read_baseline(path)
        entries = tuple(entry for entry in baseline.entries if entry.identity not in identities)
        exact = tuple(entry for entry in baseline.exact if entry.identity not in identities)
        write_baseline(path, replace(baseline, entries=entries, exact=exact))


def _run_collection(tests: tuple[str, ...], plan: Path) -> "subprocess.CompletedProcess[str]":
    """Run a pytest that collects tests.

    It writes those that measure into the file `plan`. Return its ended process.
    """
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
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return subprocess.run(
        command,
        env=environment | {PLAN_VARIABLE: str(plan)},
        capture_output=True,
        text=True,
        check=False,
    )


def collect(tests: tuple[str, ...]) -> list[PlannedTest]:
    """Return the tests that measure, of every tier, as pytest collects them.

    `tests` are paths for pytest. Raise BadInput if the collection fails or has no such test.
    """
    with tempfile.TemporaryDirectory(prefix="roofline-") as folder:
        # pytest writes the tests that measure into this file, a line each.
        plan = Path(folder) / "plan.jsonl"
        process = _run_collection(tests, plan)
        if process.returncode != 0:
            output_lines = [*process.stdout.splitlines(), *process.stderr.splitlines()]
            for line in output_lines[-LAST_LINES:]:
                say(printable(line), err=True)
            raise BadInput(
                f"pytest ended with status {process.returncode} while it collected the tests, so the unused entries "
                "are unknown; correct the fault, or name other tests with --tests"
            )
        lines = plan.read_text(encoding="utf-8").splitlines() if plan.exists() else []
    planned_tests = [PlannedTest(**json.loads(line)) for line in lines]
    if not planned_tests:
        raise BadInput(
            "pytest collected no test that measures, so the unused entries are unknown; name the tests with --tests"
        )
    return planned_tests
