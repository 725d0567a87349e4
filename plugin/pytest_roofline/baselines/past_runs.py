"""The last run in a folder in which a test passed, and what has changed since then."""

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path

from ..core.errors import BadFile
from ..core.facts import HardwareKey
from ..core.verdicts import Kind, LastPass
from ..hardware import key_of
from ..stats.verdicts import changes_between
from .nights import ended_runs
from .runs import Run, read_run

# At most so many runs are read, the newest first.
MOST_RUNS = 30
_GREEN = (Kind.PASSED, Kind.IMPROVED)


@dataclass(frozen=True, slots=True)
class _PastRun:
    """The environment of a run, and its passed measurements as (test id, name)."""

    run_id: str
    day: str
    environment: dict[str, str]
    passed: frozenset[tuple[str, str]]


class PastRuns:
    """The runs in a folder on one hardware that began before a given run. Files are read when they are needed.

    Args:
        folder: of runs, as `--roofline-dir` names it.
        hardware: of the machine.
        before: when the given run began, ISO 8601.
    """

    def __init__(self, folder: Path, hardware: HardwareKey, before: str) -> None:
        self._folder, self._hardware, self._before = folder, hardware, before
        self._read: dict[Path, _PastRun | None] = {}

    @cached_property
    def _paths(self) -> list[Path]:
        """Return the files, that of the newest run first."""
        runs = (
            (header.started, path)
            for path, header, _ in ended_runs(self._folder)
            if header.started < self._before
            and key_of(header.environment).alone == self._hardware.alone
        )
        return [path for _, path in islice(sorted(runs, reverse=True), MOST_RUNS)]

    def last_pass(self, test_id: str, name: str, now: Mapping[str, str]) -> LastPass | None:
        """Return the newest run in which a measurement passed, or None.

        Args:
            test_id: the test's node id.
            name: of the measurement in the test.
            now: the facts of today's environment, by name.
        """
        for path in self._paths:
            run = self._run(path)
            if run is not None and (test_id, name) in run.passed:
                changed = changes_between([now], [run.environment])
                return LastPass(run=run.run_id, day=run.day, changed=changed)
        return None

    def _run(self, path: Path) -> _PastRun | None:
        """Return a run, read once; None of a damaged file."""
        if path not in self._read:
            # This stays where the file cannot be read.
            self._read[path] = None
            with contextlib.suppress(BadFile, OSError):
                self._read[path] = _past_run(read_run(path))
        return self._read[path]


def _past_run(run: Run) -> _PastRun:
    """Return the parts of a run that are needed here, so that the rest is freed."""
    passed = {
        (verdict.subject.test_id, verdict.subject.name)
        for verdict in run.verdicts
        if verdict.kind in _GREEN
    }
    header = run.header
    return _PastRun(
        header.run_id, header.started[:10], header.environment.everything(), frozenset(passed)
    )
