"""What a run found besides times: figures, what memory goes into, where the time goes. Shown, never judged."""

from dataclasses import dataclass, field
from pathlib import Path

from .core.figures import Figure
from .core.memory_use import MemoryUse
from .core.profiles import Profile

Note = Figure | MemoryUse | Profile


@dataclass(slots=True)
class Noted:
    """The notes of a run, in the order in which they came, and the words about those that could not be taken."""

    figures: list[Figure] = field(default_factory=list)
    memory_uses: list[MemoryUse] = field(default_factory=list)
    profiles: list[Profile] = field(default_factory=list)
    # Memory snapshots for torch's viewer, each behind the label of what was called.
    snapshots: list[tuple[str, Path]] = field(default_factory=list)
    # Whether torch.profiler has watched a device in this process: what it hooked into the driver may stay there.
    watched: bool = False
    # Each said once at the end of the run.
    warnings: list[str] = field(default_factory=list)

    def add(self, note: Note) -> None:
        """Take in a note."""
        if isinstance(note, Figure):
            self.figures.append(note)
        elif isinstance(note, MemoryUse):
            self.memory_uses.append(note)
        else:
            self.profiles.append(note)

    def warn(self, sentence: str) -> None:
        """Say at the end of the run, once, what could not be had."""
        if sentence not in self.warnings:
            self.warnings.append(sentence)
