"""What a run leaves for others once its file is closed: the report asked for, the summary of a CI job, annotations."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from .core.errors import CannotStore
from .core.units import printable
from .options import SUMMARY_VARIABLE
from .planned import Planned, encodable
from .settings import Options

if TYPE_CHECKING:
    from .judging.runs import Run, RunWriter
    from .reporting.report.annotations import Place

# A plugin that tells GitHub of every failed test itself.
ANNOTATING = "pytest_github_actions_annotate_failures"


class Reports:
    """The reports of one run.

    Args:
        options: of the run.
        speaks: whether this process tells others of the run; a further round leaves that to its parent.
    """

    def __init__(self, options: Options, *, speaks: bool) -> None:
        self._folder = options.report if speaks else None
        self._summary = os.environ.get(SUMMARY_VARIABLE, "") if speaks else ""
        self._on_github = speaks and os.environ.get("GITHUB_ACTIONS") == "true"
        # Sentences for the end of the run, and workflow commands, which must begin their lines.
        self.lines: list[str] = []
        self.annotations: list[str] = []
        # Whether a report was asked for that could not be written.
        self.broken = False

    @property
    def wanted(self) -> bool:
        """Whether anybody is told of tests that ended before anything was measured."""
        return self._folder is not None or bool(self._summary) or self._on_github

    def make(self, writer: "RunWriter", planned: Mapping[str, Planned], config: pytest.Config) -> None:
        """Write everything that is wanted of a run.

        Args:
            writer: of its file, closed.
            planned: the tests that were to measure, by node id.
            config: pytest's configuration.
        """
        run = writer.read_back() if self.wanted else None
        if run is None:
            return
        if self._folder is not None:
            self._write(run, self._folder)
        if self._summary:
            self._append(run, Path(self._summary))
        if self._on_github:
            self._annotate(run, planned, config)

    def _write(self, run: "Run", folder: Path) -> None:
        from .reporting.report.writing import write_report

        try:
            *_, page = write_report([run], folder)
            self.lines.append(printable(f"report written to {folder}, to be opened at {page}"))
        except CannotStore as error:
            self.broken = True
            self.lines.append(printable(f"WARNING: the report is not complete: {error}"))

    def _append(self, run: "Run", path: Path) -> None:
        from .reporting.report.writing import append_summary

        try:
            append_summary([run], path)
        except CannotStore as error:
            self.lines.append(printable(f"WARNING: the summary of this job is not shown: {error}"))

    def _annotate(self, run: "Run", planned: Mapping[str, Planned], config: pytest.Config) -> None:
        from .judging.report_rows import report_rows
        from .reporting.report.annotations import annotations

        places = {encodable(test_id): place_of(plan.item, config) for test_id, plan in planned.items()}
        told_elsewhere = config.pluginmanager.hasplugin(ANNOTATING)
        self.annotations = annotations(report_rows(run), places.get, errors=not told_elsewhere)


def place_of(item: pytest.Item, config: pytest.Config) -> "Place | None":
    """Where a test stands, relative to the root of the repository; None outside of it."""
    file, line, _ = item.location
    root = Path(os.environ.get("GITHUB_WORKSPACE") or config.rootpath).resolve()
    path = (config.rootpath / file).resolve()
    if not path.is_relative_to(root):
        return None
    return path.relative_to(root).as_posix(), None if line is None else line + 1
