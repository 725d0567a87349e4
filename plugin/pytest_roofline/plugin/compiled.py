"""Compiled kernels as a kind of result. Verdicts are exact, so they are out at once and no round repeats them."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from ..baselines.exact import (
    KernelRecord,
    KernelRecords,
    entry_of,
    judge_exact,
    records_in_baselines,
    records_of,
)
from ..baselines.files import entries_of
from ..baselines.rows import compiled_row
from ..core.entries import RESOURCES, Entry, ExactEntry
from ..core.keys import canonical
from ..core.resources import Resources
from ..core.rows import KERNEL, Row
from ..core.verdicts import ExactVerdict
from ..report.kernels import difference_lines, failure_message, properties, status_word
from ..report.tables import kernels_table
from .kinds import ResultKind, Table

if TYPE_CHECKING:
    from ..baselines.comparators import Comparator
    from ..settings.parsing import Options
    from .device_under_test import DeviceUnderTest

# The word in place of a verdict, for a kernel that cannot run on its target, as its test expected.
DOES_NOT_FIT = "DOES NOT FIT"


class CompiledKernels(ResultKind):
    """The compiled kernels of a run."""

    metric = KERNEL
    counted = "compiled"
    record_type = Resources
    family = RESOURCES

    def __init__(self) -> None:
        super().__init__()
        self._baseline = KernelRecords({}, "")
        self._against_runs = False

    @property
    def table(self) -> Table:
        """The table of kernels."""
        return kernels_table

    def open(self, under_test: "DeviceUnderTest", options: "Options") -> None:
        """Read the entries of compiled kernels to compare with.

        They come from the runs of `--roofline-against`, else from the files of baselines.
        """
        super().open(under_test, options)
        # A kernel that only saved runs hold, and no baseline, is not missing.
        self._against_runs = bool(under_test.comparator.runs)
        if options.against:
            self._baseline = records_of(under_test.comparator)
        else:
            self._baseline = records_in_baselines(entries_of(RESOURCES, options.baselines))

    def judge(self, test_id: str) -> None:
        """Put a row for every kernel of a test.

        Those that can run on their target are judged.
        """
        for resources in self._pending.pop(test_id, []):
            if resources.invalid:
                self._put(compiled_row(resources, verdict=DOES_NOT_FIT))
            else:
                self._put(compiled_row(resources, self._verdict_on(resources)))

    def _verdict_on(self, resources: Resources) -> ExactVerdict:
        """Return the verdict on a kernel against its entry."""
        kernel = KernelRecord(entry_of(resources, {}), "", resources.slack, resources.unread)
        exact = judge_exact(kernel, *self._baseline.find(resources.key))
        return replace(exact, test_id=resources.test_id, label=resources.label)

    def _keep_unjudged(self, record: Resources, word: str) -> None:
        """Show a kernel without a verdict; `word` says how its test ended."""
        self._put(compiled_row(record, verdict=word))

    def words(self, test_id: str) -> list[str]:
        """Return the figures of each kernel of a test, behind PASSED."""
        return [status_word(row) for row in self.of(test_id)]

    def message(self, row: Row, where: str, causes: Sequence[str]) -> str:  # noqa: ARG002
        """Return why a kernel turns its test red."""
        return failure_message(row, where)

    def properties(self, test_id: str) -> list[tuple[str, str]]:
        """Return the figures of a test's kernels as name and text."""
        return properties(self.of(test_id))

    def notes(self) -> list[str]:
        """Return the lines on harmless differences, and unread figures."""
        return difference_lines(self.rows)

    def against(self, comparator: "Comparator", benchmarks: Collection[str]) -> str:
        """Name the baseline of compiled kernels, for the header.

        It is empty if the times have the same baseline, or if no benchmark of the run has a kernel in it.
        """
        in_baseline = {kernel.entry.key.benchmark for kernel in self._baseline.kernels.values()}
        has_entries = not in_baseline.isdisjoint(benchmarks)
        is_separate = self._baseline.name != comparator.name
        return (
            f"compiled kernels against {self._baseline.name}" if is_separate and has_entries else ""
        )

    def missed(self, test_id: str, benchmark: str, parameters: Mapping[str, object]) -> list[str]:
        """Return the baseline's kernels that a test did not compile."""
        compiled = {resources.key.identity for resources in self._pending.get(test_id, [])}
        keys = self._baseline.of(benchmark, parameters)
        return [key.label for key in keys if key.identity not in compiled]

    def missing(self, elsewhere: Collection[tuple[str, str]]) -> list[Entry | ExactEntry]:
        """Return the compiled kernels of the baseline that the run lacks.

        `elsewhere` are the tests, by benchmark and canonical parameters, that need another machine.
        """
        if self._against_runs:
            return []
        compiled = [row.resources.key for row in self.rows if row.resources is not None]
        targets_by_test: dict[tuple[str, str], set[str]] = {}
        for key in compiled:
            test = key.benchmark, canonical(key.parameters)
            targets_by_test.setdefault(test, set()).add(key.target)

        def is_of_other_machine(entry: ExactEntry) -> bool:
            """Return whether only another machine compiles an entry."""
            test = entry.benchmark, canonical(entry.parameters)
            targets = targets_by_test.get(test, set())
            # A test that compiled for one target did so for the device that it launches on.
            is_of_other_device = len(targets) == 1 and entry.target not in targets
            return is_of_other_device or test in elsewhere

        identities = {key.identity for key in compiled}
        return [
            kernel.entry
            for identity, kernel in self._baseline.kernels.items()
            if identity not in identities and not is_of_other_machine(kernel.entry)
        ]
