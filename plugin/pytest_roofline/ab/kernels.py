"""The figures of both sides' compiled kernels: exact, of one process a side; a second A shows figures that are not.

A compiler says the same of the same code every time. A figure in which two processes of A differ is named, and not
judged.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from ..baselines.exact import (
    KernelRecords,
    compare_exact,
    figure_changes,
    records_in_runs,
    without_comparison,
)
from ..baselines.rows import kernel_row
from ..core.resources import ResourceKey, Resources
from ..core.rows import Row
from ..core.units import listed
from ..core.verdicts import FigureChange, Kind
from ..report.kernels import change_text
from .results import CONTROL, SidesResults, run_name

# At most so many figures of a kernel in which the second A differs are named.
MOST_FIGURES = 5


@dataclass(frozen=True, slots=True)
class KernelsOfSides:
    """The comparison of the kernels that both sides compiled: a row each; and what was not judged."""

    rows: tuple[Row, ...] = ()
    notes: tuple[str, ...] = ()


def compare_kernels(results: SidesResults) -> KernelsOfSides:
    """Return B's kernels against A's. Figures in which the second A differs are left out."""
    before, control, after = (
        records_in_runs(results.warming_runs_of_twins(side)) for side in ("A", CONTROL, "B")
    )
    after = replace(after, unfit=_unfit_on_b_alone(before, after, results.trouble("B")))
    unsteady = {
        identity: figure_changes(kernel.entry.figures, control.kernels[identity].entry.figures, {})
        for identity, kernel in before.kernels.items()
        if identity in control.kernels
    }
    left_out = {
        identity: {change.figure for change in changes} for identity, changes in unsteady.items()
    }
    rows, _ = compare_exact(_without(before, left_out), _without(after, left_out))
    rows = (*rows, *_unguarded_rows(before, control, after))
    tests = {identity: kernel.test_id for identity, kernel in results.kernels("B").items()}
    return KernelsOfSides(
        rows=tuple(_with_test(row, tests, run_name(results.state.name, "A")) for row in rows),
        notes=tuple(_unsteady_notes(before, unsteady)),
    )


def _with_test(row: Row, tests: Mapping[str, str], source: str) -> Row:
    """Return a row with its test's node id and A's run.

    An exact entry holds no node id.
    """
    assert row.exact is not None
    key = ResourceKey(row.benchmark, row.parameters, row.target or "", row.name)
    test = tests[key.identity]
    return replace(row, test=test, exact=replace(row.exact, test_id=test, source=source))


def _unfit_on_b_alone(
    before: KernelRecords, after: KernelRecords, trouble: Collection[str]
) -> dict[str, tuple[Resources, str]]:
    """Return B's kernels that cannot be compared.

    Those of tests that failed are left out; they have rows of their own.
    """
    return {
        identity: (kernel, reason)
        for identity, (kernel, reason) in after.unfit.items()
        if identity not in before.unfit and kernel.test_id not in trouble
    }


def _without(side: KernelRecords, figures: Mapping[str, Collection[str]]) -> KernelRecords:
    """Return the kernels named in `figures`, each without its figures there."""
    kernels = {}
    for identity, kernel in side.kernels.items():
        if identity in figures:
            figures_left = {
                name: figure
                for name, figure in kernel.entry.figures.items()
                if name not in figures[identity]
            }
            kernels[identity] = replace(kernel, entry=replace(kernel.entry, figures=figures_left))
    return replace(side, kernels=kernels)


def _unguarded_rows(
    before: KernelRecords, control: KernelRecords, after: KernelRecords
) -> Iterator[Row]:
    """Yield an INVALID row for each kernel of both sides that the second A lacks."""
    for identity, kernel in after.kernels.items():
        if identity in before.kernels and identity not in control.kernels:
            entry = kernel.entry
            reason = "the second process of A did not compile the kernel"
            exact = without_comparison(entry.key, entry.label, Kind.INVALID, reason)
            figures = before.kernels[identity].entry.figures
            yield kernel_row(entry.key, entry.figures, exact, baseline_figures=figures)


def _unsteady_notes(
    before: KernelRecords, unsteady: Mapping[str, tuple[FigureChange, ...]]
) -> Iterator[str]:
    """Yield a sentence a kernel in which two processes of A differ."""
    for identity, changes in unsteady.items():
        if changes:
            texts = listed([change_text(change) for change in changes], MOST_FIGURES)
            label = before.kernels[identity].entry.label
            yield f"not judged, since two processes of A differ: {label}: {texts}"
