"""The exact figures of the kernels that both sides compiled.

A compiler makes the same kernel of the same code every time, so one process of each side is enough. A second process of
A checks this: a figure in which both processes of A differ is named, and not judged.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace

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

# The largest number of a kernel's figures that a note on differing processes of A names.
MOST_FIGURES = 5


def compare_kernels(results: SidesResults) -> tuple[list[Row], list[str]]:
    """Compare the compiled kernels of side B with those of side A.

    Return a row for each kernel, and notes. Figures in which both processes of A differ are left out, and named in a
    note.
    """
    before, control, after = (
        records_in_runs(results.warming_runs_of_twins(side)) for side in ("A", CONTROL, "B")
    )
    after = replace(after, unfit=_unfit_on_b_alone(before, after, results.trouble("B")))
    # The figures that differ between both processes of A, by kernel.
    control_changes = {
        identity: figure_changes(kernel.entry.figures, control.kernels[identity].entry.figures, {})
        for identity, kernel in before.kernels.items()
        if identity in control.kernels
    }
    figures_left_out = {
        identity: {change.figure for change in changes}
        for identity, changes in control_changes.items()
    }
    rows, _ = compare_exact(_without(before, figures_left_out), _without(after, figures_left_out))
    rows = (*rows, *_unguarded_rows(before, control, after))
    test_ids = {identity: kernel.test_id for identity, kernel in results.kernels("B").items()}
    source = run_name(results.state.name, "A")
    return [_with_test(row, test_ids, source) for row in rows], [
        *_unsteady_notes(before, control_changes)
    ]


def _with_test(row: Row, test_ids: Mapping[str, str], source: str) -> Row:
    """Return a row with the node id of its test and A's run.

    The row was made of an exact entry, which does not hold them. `test_ids` are by the identity of the kernel.
    """
    assert row.exact is not None
    key = ResourceKey(row.benchmark, row.parameters, row.target or "", row.name)
    test_id = test_ids[key.identity]
    return replace(row, test=test_id, exact=replace(row.exact, test_id=test_id, source=source))


def _unfit_on_b_alone(
    before: KernelRecords, after: KernelRecords, trouble: Collection[str]
) -> dict[str, tuple[Resources, str]]:
    """Return the kernels that are unfit on B only, with the reason.

    `trouble` has the tests that failed on B. Their kernels are left out, since failed tests have rows of their own.
    """
    return {
        identity: (kernel, reason)
        for identity, (kernel, reason) in after.unfit.items()
        if identity not in before.unfit and kernel.test_id not in trouble
    }


def _without(side: KernelRecords, figures: Mapping[str, Collection[str]]) -> KernelRecords:
    """Return the kernels that `figures` names, without the figures named there.

    A kernel that `figures` does not name is left out.
    """
    kernels = {}
    for identity, kernel in side.kernels.items():
        if identity in figures:
            other_figures = {
                name: figure
                for name, figure in kernel.entry.figures.items()
                if name not in figures[identity]
            }
            kernels[identity] = replace(kernel, entry=replace(kernel.entry, figures=other_figures))
    return replace(side, kernels=kernels)


def _unguarded_rows(
    before: KernelRecords, control: KernelRecords, after: KernelRecords
) -> Iterator[Row]:
    """Yield an INVALID row for each kernel that the second A did not compile.

    Without the second A nothing shows which figures are steady.
    """
    for identity, kernel in after.kernels.items():
        if identity in before.kernels and identity not in control.kernels:
            entry = kernel.entry
            reason = "the second process of A did not compile the kernel"
            exact = without_comparison(entry.key, entry.label, Kind.INVALID, reason)
            figures = before.kernels[identity].entry.figures
            yield kernel_row(entry.key, entry.figures, exact, baseline_figures=figures)


def _unsteady_notes(
    before: KernelRecords, control_changes: Mapping[str, tuple[FigureChange, ...]]
) -> Iterator[str]:
    """Yield a sentence for each kernel in which two processes of A differ."""
    for identity, changes in control_changes.items():
        if changes:
            differences = listed([change_text(change) for change in changes], MOST_FIGURES)
            label = before.kernels[identity].entry.label
            yield f"{label} is not judged, since two processes of A differ: {differences}"
