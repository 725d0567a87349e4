"""Recordings of which no baseline can be made: the rule that ends them early with status 1, and their last line.

A recording is a saved run of several processes a test, and no gate. `roofline baseline propose` decides what is fit.
"""

from collections.abc import Iterable
from dataclasses import replace

from ..baselines.proposals import NothingFit, propose
from ..baselines.run_files import makes_way
from ..core.errors import RooflineError
from ..core.records import Outcome
from ..core.samples import SIBLINGS, for_neighbours
from ..core.units import count, listed, printable
from ..report.messages import compared_of
from .session import RooflineSession

# Of the reasons of single measurements so many are named.
MOST_REASONS = 3


def is_recording(state: RooflineSession) -> bool:
    """Return whether a run is to become a baseline: it is saved, and measures what is unknown in several processes.

    A gate has its own verdict on what it could not compare. A drill that was compared did what it is for, and so did
    devices that were held against each other.
    """
    options, rows = state.options, state.rows
    if options.save is None or options.recording < 2 or options.gate:
        return False
    drilled = compared_of([row for row in rows if "replaced" in (row.labels or ())]) > 0
    siblings = bool(rows) and all(SIBLINGS in (row.labels or ()) for row in rows)
    return not (drilled or siblings)


def refusals(state: RooflineSession, waiting: Iterable[str] = ()) -> tuple[str, ...]:
    """Return why no baseline can be made of a recording, a reason for each measurement; empty where one can.

    Args:
        state: of a run, or of its first process.
        waiting: the tests that passed and whose verdicts are open, so that the run file has no outcome of them.
    """
    if not is_recording(state):
        return ()
    run = state.writer.read_back()
    if run is None:
        return tuple(map(printable, state.not_measured)) or ("no test measured anything",)
    passed = tuple(Outcome(test_id, "passed") for test_id in waiting)
    try:
        propose([replace(run, outcomes=run.outcomes + passed)])
    except NothingFit as error:
        return error.reasons
    except RooflineError as error:
        return (str(error),)
    return ()


def refusal_line(state: RooflineSession) -> str:
    """Return the last line of a recording without a fit result: what was observed, what was expected, what to type."""
    from ..engine.devices.cpu import QUIETEN

    rounds = f"{state.rounds_used} of {count(state.options.recording, 'round')}"
    faults = [reason for reason in state.refused if not for_neighbours(reason)]
    busy = len(faults) < len(state.refused)
    reasons = [listed(faults, MOST_REASONS, "; ")] * bool(faults) + [busy_now()] * busy
    remedies = ["mend that"] * bool(faults) + [QUIETEN] * busy
    run = state.writer.read_back()
    name = "the same" if run is not None and makes_way(run) else "another"
    once = ", once `roofline doctor` exits 0" * busy
    return (
        f"No baseline can be made of this run, after {rounds}: {'; '.join(reasons)}. Expected one fit result at least, "
        f"so pytest ended with status 1. {', '.join(remedies).capitalize()}, and run this again, under {name} "
        f"name{once}."
    )


def busy_now() -> str:
    """Return who keeps the cores of this machine busy, watched for a second."""
    from ..engine.devices.cpu import neighbours_now

    return neighbours_now() or "other processes kept its cores busy"
