"""Baselines of compiled kernels: exact entries from whole runs, merged into the file of a folder."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..core.entries import RESOURCES, ExactEntry
from ..core.units import printable
from ..core.verdicts import FigureChange
from ..core.writing import lock_file
from .exact import entry_of, figure_changes, provenance_of
from .files import baseline_of, write_baseline
from .runs import Run


def propose_exact(
    runs: Sequence[Run], *, accept_worse: bool = False
) -> tuple[tuple[ExactEntry, ...], tuple[str, ...]]:
    """Return exact entries, and a line for each kernel left out, with the reason.

    With `accept_worse`, kernels count whose test failed only for a verdict, or that lack a figure of their baseline.
    A kernel is left out as well if runs disagree on it; else the entry of the newest run is taken.
    """
    candidates: dict[str, list[tuple[Run, ExactEntry]]] = {}
    unfit: dict[tuple[str, str], str] = {}
    for run in runs:
        for resources in run.resources:
            identity, reason = resources.key.identity, run.unfit_resources(resources, accept_worse)
            reason = reason or ("" if accept_worse else run.unjudged(resources))
            if reason:
                unfit[identity, run.header.run_id] = (
                    f"{resources.label} of {run.header.run_id}: {reason}"
                )
            else:
                candidates.setdefault(identity, []).append(
                    (run, entry_of(resources, provenance_of(run)))
                )
    disagreeing = {
        identity: reason
        for identity, entries in candidates.items()
        if (reason := _disagreement(entries))
    }
    newest = (
        _newest(entries) for identity, entries in candidates.items() if identity not in disagreeing
    )
    left_out = [*dict.fromkeys(unfit.values()), *disagreeing.values()]
    return tuple(newest), tuple(map(printable, left_out))


def _newest(entries: Sequence[tuple[Run, ExactEntry]]) -> ExactEntry:
    """Return the entry of the newest run."""
    _, entry = max(entries, key=lambda run_and_entry: run_and_entry[0].header.started)
    return entry


def _disagreement(entries: Sequence[tuple[Run, ExactEntry]]) -> str:
    """Return why the entries of several runs disagree; empty if they do not.

    A compiler reports the same figures every time, so something was changed between the runs.
    """
    first_run, first_entry = entries[0]
    for run, entry in entries[1:]:
        if entry.figures != first_entry.figures:
            differing = figure_changes(first_entry.figures, entry.figures, {})
            differences = ", ".join(
                f"{change.figure} {change.before} and {change.after}" for change in differing[:3]
            )
            return (
                f"{entry.label}: the runs {first_run.header.run_id} and {run.header.run_id} differ in {differences}; "
                "propose only one of these runs"
            )
    return ""


@dataclass(frozen=True, slots=True)
class ExactChange:
    """The effect of an approval on an exact entry.

    The figures in `changes` differ from the entry before.
    """

    entry: ExactEntry
    before: ExactEntry | None
    action: Literal["new", "replaced", "unchanged"]
    changes: tuple[FigureChange, ...] = ()


def exact_path(folder: Path) -> Path:
    """Return the path of a folder's exact entries."""
    return folder / f"{RESOURCES}.json"


def exact_changes(entries: Sequence[ExactEntry], folder: Path) -> list[ExactChange]:
    """Return the effect of approving entries into a folder, by entry."""
    entries_before = {entry.identity: entry for entry in baseline_of(RESOURCES, folder).exact}
    return [_change_of(entry, entries_before.get(entry.identity)) for entry in entries]


def _change_of(entry: ExactEntry, before: ExactEntry | None) -> ExactChange:
    """Return the effect of approving an entry in place of the one before."""
    if before is None:
        return ExactChange(entry, None, "new")
    # An entry that differs only in the run that it came from stays, so that there is no diff to review.
    if replace(entry, provenance=before.provenance, called=before.called) == before:
        return ExactChange(before, before, "unchanged")
    return ExactChange(entry, before, "replaced", figure_changes(before.figures, entry.figures, {}))


def approve_exact(entries: Sequence[ExactEntry], folder: Path) -> Path:
    """Merge entries into the file of a folder, all of them or none.

    Other entries stay as they are. Return the path of the file.
    """
    path = exact_path(folder)
    with lock_file(path):
        before = baseline_of(RESOURCES, folder)
        after = {entry.identity: entry for entry in before.exact}
        for change in exact_changes(entries, folder):
            after[change.entry.identity] = change.entry
        write_baseline(path, replace(before, exact=tuple(after.values())))
    return path
