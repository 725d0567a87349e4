"""The last run in a folder in which a test passed, and what has changed since then."""

import contextlib
from collections.abc import Mapping
from functools import cached_property
from itertools import islice
from pathlib import Path

from ..core.errors import BadFile
from ..core.facts import HardwareKey
from ..core.verdicts import Kind, LastPass
from ..hardware import key_of
from ..stats.verdicts import changes_between
from .run_files import ended_runs
from .runs import Run, read_run

# Runs that are looked through, the newest first.
MOST_RUNS = 30
_GREEN = (Kind.PASSED, Kind.IMPROVED)


class PastRuns:
    """The runs in a folder on one hardware that began before another one, read as far as somebody asks.

    Args:
        folder: of runs, as `--roofline-dir` names it.
        hardware: of the machine.
        before: when the other run began, ISO 8601.
    """

    def __init__(self, folder: Path, hardware: HardwareKey, before: str) -> None:
        self._folder, self._hardware, self._before = folder, hardware, before
        self._read: dict[Path, Run | None] = {}

    @cached_property
    def _paths(self) -> list[Path]:
        """The files, that of the newest run first."""
        runs = (
            (header.started, path)
            for path, header, _ in ended_runs(self._folder)
            if header.started < self._before
            and key_of(header.environment).alone == self._hardware.alone
        )
        return [path for _, path in islice(sorted(runs, reverse=True), MOST_RUNS)]

    def last_pass(self, test_id: str, name: str, now: Mapping[str, str]) -> LastPass | None:
        """Return the newest run in which a measurement passed; None where no run here tells of one.

        Args:
            test_id: the test's node id.
            name: of the measurement in the test.
            now: the facts of today's environment, by name.
        """
        for path in self._paths:
            run = self._run(path)
            for verdict in run.verdicts if run is not None else ():
                subject = verdict.subject
                if (subject.test_id, subject.name) == (test_id, name) and verdict.kind in _GREEN:
                    assert run is not None
                    then = run.header.environment.everything()
                    return LastPass(
                        run=run.header.run_id,
                        day=run.header.started[:10],
                        changed=changes_between([now], [then]),
                    )
        return None

    def _run(self, path: Path) -> Run | None:
        """Read a run once; a damaged file tells nothing."""
        if path not in self._read:
            self._read[path] = None
            with contextlib.suppress(BadFile, OSError):
                self._read[path] = read_run(path)
        return self._read[path]
