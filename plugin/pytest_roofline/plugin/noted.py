"""What a run found besides times: figures, what memory goes into and where it ran out, where the time goes."""

from dataclasses import dataclass, field
from pathlib import Path

from ..core.memory import MemoryUse, OutOfMemory
from ..core.profiles import Figure, Profile

Note = Figure | MemoryUse | Profile


class Exhausted:
    """Everything of a run that ran out of memory."""

    def __init__(self) -> None:
        self.found: list[OutOfMemory] = []

    def add(self, record: OutOfMemory) -> bool:
        """Note it, and whether it is new; a rerun or a later round cannot shake off a red one."""
        for index, known in enumerate(self.found):
            if (known.test_id, known.name) == (record.test_id, record.name):
                self.found[index] = known if known.red else record
                return False
        self.found.append(record)
        return True

    def forget_unrecorded(self, test_id: str) -> None:
        """A test begins anew: what merely failed an attempt before says nothing of this one."""
        self.found = [one for one in self.found if one.test_id != test_id or one.recorded]

    def of(self, test_id: str) -> list[OutOfMemory]:
        """What is known of a test."""
        return [one for one in self.found if one.test_id == test_id]

    def red(self, test_id: str) -> bool:
        """Whether a test fails for it by verdict."""
        return any(one.red for one in self.of(test_id))


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
