"""Exact entries merged into the baseline: the proposal's word stands, and what changes is shown first."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..core.entries import RESOURCES, Baseline, ExactEntry
from ..core.resources import FigureChange
from .baselines import read_baseline, write_baseline
from .exact import figure_changes
from .writing import alone


@dataclass(frozen=True, slots=True)
class ExactChange:
    """What an approval does to one exact entry: `changes` are the figures that differ from the entry before."""

    entry: ExactEntry
    before: ExactEntry | None
    action: Literal["new", "replaced", "unchanged"]
    changes: tuple[FigureChange, ...] = ()


def exact_path(folder: Path) -> Path:
    """The file of a folder that holds exact entries."""
    return folder / f"{RESOURCES}.json"


def exact_changes(entries: Sequence[ExactEntry], folder: Path) -> list[ExactChange]:
    """What approving entries into a folder would do to each.

    Raises:
        BadFile: the file that is there cannot be read.
    """
    known = {entry.identity: entry for entry in _file(folder).exact}
    return [_change(entry, known.get(entry.identity)) for entry in entries]


def _change(entry: ExactEntry, before: ExactEntry | None) -> ExactChange:
    if before is None:
        return ExactChange(entry, None, "new")
    if _told(entry) == _told(before):
        # The same again from a later run is no news, and no diff to review.
        return ExactChange(before, before, "unchanged")
    return ExactChange(entry, before, "replaced", figure_changes(before.figures, entry.figures, {}))


def _told(entry: ExactEntry) -> tuple[object, ...]:
    return entry.figures, entry.options, entry.arguments, entry.compiler


def approve_exact(entries: Sequence[ExactEntry], folder: Path) -> Path:
    """Merge entries into the file of a folder, whole or not at all; other entries stay as they are.

    Raises:
        BadFile: the file that is there cannot be read, so merging would lose it.
        CannotStore: the file cannot be written.
    """
    path = exact_path(folder)
    with alone(path):
        before = _file(folder)
        known = {entry.identity: entry for entry in before.exact}
        known |= {change.entry.identity: change.entry for change in exact_changes(entries, folder)}
        write_baseline(path, replace(before, exact=tuple(known.values())))
    return path


def _file(folder: Path) -> Baseline:
    path = exact_path(folder)
    return read_baseline(path) if path.exists() else Baseline(RESOURCES, ())
