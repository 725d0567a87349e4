"""The reports of a run once its file is closed: report folder, summary of a CI job, annotations."""

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from ..baselines.run_files import RunWriter
from ..baselines.run_rows import rows_of
from ..baselines.runs import Run
from ..core.rows import Row
from ..core.units import encodable, printable
from ..report.files import append_summary, reason, write_report
from ..report.summary import Place, annotations
from ..settings.options import SUMMARY_VARIABLE
from ..settings.parsing import Options
from .planned import Planned

T = TypeVar("T")
# The plugin that annotates every failed test on GitHub by itself.
ANNOTATING = "pytest_github_actions_annotate_failures"


class Reports:
    """The reports of one run."""

    def __init__(self, options: Options, *, speaks: bool) -> None:
        """Prepare the reports that a run leaves; without `speaks`, as in a round, it leaves none."""
        self._folder = options.report if speaks else None
        self._summary = os.environ.get(SUMMARY_VARIABLE, "") if speaks else ""
        self._on_github = speaks and os.environ.get("GITHUB_ACTIONS") == "true"
        # Sentences for the end of the run.
        self.lines: list[str] = []
        # Workflow commands of GitHub, each a line of its own.
        self.annotations: list[str] = []
        # Whether the report folder of the command could not be written.
        self.broken = False

    @property
    def has_readers(self) -> bool:
        """The need of a report, even if no test measured."""
        return self._folder is not None or bool(self._summary) or self._on_github

    def make(
        self, writer: RunWriter, planned: Mapping[str, Planned], config: pytest.Config
    ) -> None:
        """Write every report that the run is to leave."""
        if not self.has_readers:
            return
        run_and_rows = self._try("no report of this run was written", lambda: _read(writer))
        folder = self._folder
        # The folder's report is broken until it is written.
        self.broken = folder is not None
        if run_and_rows is None:
            return
        run, rows = run_and_rows
        if folder is not None:
            is_written = self._try(
                "the report is not complete", lambda: self._write(run, rows, folder)
            )
            self.broken = not is_written
        if self._summary:
            self._try(
                "the summary of this CI job was not written",
                lambda: append_summary([run], Path(self._summary), rows),
            )
        if self._on_github:
            self._try(
                "GitHub shows no annotations of this run",
                lambda: self._annotate(rows, planned, config),
            )

    def _try(self, consequence: str, step: Callable[[], T]) -> T | None:
        """Return the result of a step.

        A failure becomes a warning and None.
        """
        try:
            return step()
        except Exception as error:
            self.lines.append(printable(f"WARNING: {consequence}: {reason(error)}"))
            return None

    def _write(self, run: Run, rows: list[Row], folder: Path) -> bool:
        """Write the report folder; return True."""
        *_, page = write_report([run], folder, rows)
        self.lines.append(printable(f"report written to {folder}; open {page}"))
        return True

    def _annotate(
        self, rows: list[Row], planned: Mapping[str, Planned], config: pytest.Config
    ) -> None:
        """Make the annotations.

        Failed tests get none where another plugin annotates them.
        """
        places = {
            encodable(test_id): place_of(plan.item, config) for test_id, plan in planned.items()
        }
        has_annotator = config.pluginmanager.hasplugin(ANNOTATING)
        self.annotations = annotations(rows, places.get, errors=not has_annotator)


def _read(writer: RunWriter) -> tuple[Run, list[Row]]:
    """Return the run with its rows, as its file holds it.

    Its path is absolute, as a later report would find it.
    """
    run = writer.read_back()
    assert run is not None, "a run that is to be reported has begun its file"
    run = replace(run, path=run.path.resolve() if run.path.is_file() else run.path)
    return run, rows_of([run])


def place_of(item: pytest.Item, config: pytest.Config) -> Place | None:
    """Return a test's file and line in the repository.

    It is None outside of it.
    """
    file, line, _ = item.location
    root = Path(os.environ.get("GITHUB_WORKSPACE") or config.rootpath).resolve()
    path = (config.rootpath / file).resolve()
    if not path.is_relative_to(root):
        return None
    return path.relative_to(root).as_posix(), None if line is None else line + 1
