"""Processes that stand on both sides of a comparison, which says nothing then."""

from collections.abc import Sequence

from ..core.entries import Session as RecordedSession
from ..core.errors import BadInput
from ..core.samples import IMPORTED
from .comparators import Comparator
from .runs import Run


def refuse_both_sides(old: Sequence[Run], new: Sequence[Run]) -> None:
    """Raise BadInput where a process is on both sides.

    The names of files do not matter.
    """
    paths = {identity: run.path for run in old for identity in _identities(run)}
    for run in new:
        path = next((paths[identity] for identity in _identities(run) if identity in paths), None)
        if path is not None:
            names = f"run {path.stem}" if path == run.path else f"the run in {path} and {run.path}"
            raise BadInput(
                f"{names} is on both sides; name a run from before the change and another run from after the change"
            )


def refuse_own_baseline(before: Comparator, after: Comparator) -> None:
    """Raise BadInput where a side is part of the other side's baseline.

    That is a run that the baseline was recorded from, or two baselines with the same sessions.
    """
    for baseline, side in ((before, after), (after, before)):
        recorded = {(session.run_id, session.started) for session in _sessions(baseline)}
        for run in side.runs:
            if (run.header.run_id, run.header.started) in recorded:
                raise BadInput(
                    f"run {run.path.stem} is a session of {baseline.name}, so a comparison can show nothing; "
                    "name a run that the baseline does not hold"
                )
    sessions = _sessions(before)
    if sessions and sessions == _sessions(after):
        raise BadInput(
            f"{before.name} and {after.name} hold the same sessions; name the baseline "
            "from before the change and a run from after the change"
        )


def _sessions(comparator: Comparator) -> list[RecordedSession]:
    """Return every session in a baseline's entries; empty for runs."""
    return [session for entry in comparator.entries for session in entry.sessions]


def _identities(run: Run) -> list[object]:
    """Return identities that no other run has.

    There is one for each measurement of a process, or that of the header where nothing was measured.
    """
    header = run.header.run_id, run.header.started
    # A process of an import is named by its log. Several imports may hold the same log, so its header does not count.
    return [
        ("" if IMPORTED in timed.samples.labels else header, timed.process, timed.key.identity)
        for timed in run.measurements
    ] or [header]
