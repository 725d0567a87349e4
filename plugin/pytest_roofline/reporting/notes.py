"""What a run found of one test besides times, for `roofline explain`: figures, memory uses, profiles."""

from ..core.figures import Figure
from ..core.memory_use import MemoryUse
from ..core.profiles import Profile
from ..core.units import printable
from ..judging.runs import Run
from ..observe.memory_text import memory_lines
from ..observe.profile_text import profile_lines
from .figures import figure_lines


def note_labels(run: Run) -> dict[str, str]:
    """Every label that has a note, with its test id."""
    notes: tuple[Figure | MemoryUse | Profile, ...] = (*run.figures, *run.memory_uses, *run.profiles)
    return {note.label: note.test_id for note in notes}


def note_lines(run: Run, label: str, width: int) -> list[str]:
    """The notes of one label, as the run itself showed them; empty where it has none."""
    figures = [one for one in run.figures if one.label == label]
    uses = [one for one in run.memory_uses if one.label == label]
    profiles = [one for one in run.profiles if one.label == label]
    lines = figure_lines(figures) + memory_lines(uses) + profile_lines(profiles, width)
    return [printable(f"found besides times in {run.path}:"), *lines] if lines else []
