"""The compiled kernels of a run and the verdicts on them.

Verdicts are exact, so they are out at once: no rounds, no held reports, no other tests to pay for.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from ..baselines.files import BaselineFolders
from ..baselines.rows import compiled_row
from ..core.resources import ExactJudgement, ResourceKey, Resources
from ..core.rows import FAILED, Row
from ..kernel_gate.judging import ExactKnown, entry_of, judge_exact, known_by, known_in_baselines
from .settings import Options

# In place of a verdict, where a test expected that.
DOES_NOT_FIT = "DOES NOT FIT"

if TYPE_CHECKING:
    from ..baselines.comparators import Comparator
    from ..baselines.run_files import RunWriter


class CompiledKernels:
    """Everything that a run knows of compiled kernels."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.known = ExactKnown({}, "")
        self._pending: dict[str, list[Resources]] = {}

    def open(self, comparator: "Comparator", options: Options) -> None:
        """Read what to compare with.

        Raises:
            BadFile: a file of baselines cannot be used.
        """
        if options.against:
            self.known = known_by(comparator)
        else:
            self.known = known_in_baselines(BaselineFolders(options.baselines).resources())

    def add(self, resources: Resources) -> None:
        """Take in what a test found; the verdict follows when its body has ended."""
        self._pending.setdefault(resources.test_id, []).append(resources)

    def judge(self, test_id: str) -> None:
        """The verdicts on everything that a test compiled; none on what cannot run, which the test itself expected."""
        for resources in self._pending.pop(test_id, []):
            if resources.invalid:
                self._show(compiled_row(resources, verdict=DOES_NOT_FIT))
            else:
                self._show(compiled_row(resources, self._judgement_on(resources)))

    def missed(self, test_id: str, benchmark: str, parameters: Mapping[str, object]) -> list[ResourceKey]:
        """Kernels that the baseline has of a test, and that the test has not compiled so far."""
        compiled = {resources.key.identity for resources in self._pending.get(test_id, [])}
        return [key for key in self.known.of(benchmark, parameters) if key.identity not in compiled]

    def _judgement_on(self, resources: Resources) -> ExactJudgement:
        known, why_none = self.known.find(resources.key)
        exact = judge_exact(
            entry_of(resources, {}),
            known.entry if known is not None else None,
            slack=resources.slack,
            source=known.source if known is not None else "",
            why_none=why_none,
            unread=resources.unread,
        )
        return replace(exact, test_id=resources.test_id, label=resources.label)

    def abandon(self, test_id: str | None = None, word: str = FAILED) -> None:
        """Keep what a test found that did not end well, without a verdict; of all tests where none is named.

        Args:
            test_id: the test.
            word: how it ended.
        """
        for name in [test_id] if test_id is not None else list(self._pending):
            for resources in self._pending.pop(name, []):
                self._show(compiled_row(resources, verdict=word))

    def _show(self, row: Row) -> None:
        """One row a kernel: a rerun takes the place of the attempt before."""
        assert row.resources is not None
        identity = row.resources.key.identity
        self.rows = [known for known in self.rows if known.resources and known.resources.key.identity != identity]
        self.rows.append(row)

    def of(self, test_id: str) -> list[Row]:
        """What is said of a test's kernels."""
        return [row for row in self.rows if row.test == test_id]

    def call_it(self, test_id: str, word: str) -> None:
        """Name how a test without verdicts ended."""
        self.rows = [
            replace(row, verdict=word) if row.test == test_id and row.exact is None else row for row in self.rows
        ]

    def retract(self, test_id: str) -> None:
        """Take back the verdicts of a test that failed for itself after all."""
        self.rows = [
            replace(row, verdict=FAILED, reason="", exact=None) if row.test == test_id and row.exact else row
            for row in self.rows
        ]

    def write_verdicts(self, writer: "RunWriter") -> None:
        """Put the verdicts into the run file."""
        for row in self.rows:
            if row.exact is not None:
                writer.write(row.exact)
