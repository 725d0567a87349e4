"""The last run in a folder in which a test passed, and what has changed since then."""

import contextlib
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path

from ..core.errors import BadFile
from ..core.facts import HardwareKey
from ..core.records import Header
from ..core.verdicts import Kind, LastPass
from ..hardware import key_of
from ..stats.verdicts import changes_between
from .nights import ended_runs
from .runs import read_run

# At most so many runs are read, the newest first.
MOST_RUNS = 30
_GREEN = (Kind.PASSED, Kind.IMPROVED)


class PastRuns:
    """The runs in a folder on one hardware that began before a given run. Files are read when they are needed.

    Args:
        folder: of runs, as `--roofline-dir` names it.
        hardware: of the machine.
        before: when the given run began, ISO 8601.
    """

    def __init__(self, folder: Path, hardware: HardwareKey, before: str) -> None:
        self._folder, self._hardware, self._before = folder, hardware, before
        # By file the measurements that passed, as (test id, name); the rest of a run is freed.
        self._passed: dict[Path, frozenset[tuple[str, str]]] = {}

    @cached_property
    def _runs(self) -> list[tuple[Path, Header]]:
        """Return the files with their headers, the newest run first."""
        runs = (
            (path, header)
            for path, header, _ in ended_runs(self._folder)
            if header.started < self._before
            and key_of(header.environment).alone == self._hardware.alone
        )
        return sorted(runs, key=lambda run: (run[1].started, run[0]), reverse=True)[:MOST_RUNS]

    def last_pass(self, test_id: str, name: str, now: Mapping[str, str]) -> LastPass | None:
        """Return the newest run in which a measurement passed, or None.

        Args:
            test_id: the test's node id.
            name: of the measurement in the test.
            now: the facts of today's environment, by name.
        """
        for path, header in self._runs:
            if path not in self._passed:
                self._passed[path] = _passed_in(path)
            if (test_id, name) in self._passed[path]:
                changed = changes_between([now], [header.environment.everything()])
                return LastPass(run=header.run_id, day=header.started[:10], changed=changed)
        return None


def _passed_in(path: Path) -> frozenset[tuple[str, str]]:
    """Return the passed measurements of a run; none of a damaged file."""
    with contextlib.suppress(BadFile, OSError):
        return frozenset(
            (verdict.subject.test_id, verdict.subject.name)
            for verdict in read_run(path).verdicts
            if verdict.kind in _GREEN
        )
    return frozenset()
