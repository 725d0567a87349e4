"""The end of a run with `--roofline-record`: it writes the baselines, and its last lines say which."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from ..baselines.fit import Refusal, fewest_of
from ..baselines.foresight import foresee
from ..baselines.recordings import Recording, record
from ..core.errors import RooflineError
from ..core.rows import Row
from ..core.samples import SIBLINGS
from ..core.units import encodable, printable
from ..core.verdicts import Kind
from ..report.words import cut
from .session import RooflineSession

# Of what is not recorded so much is named.
MOST_NAMED = 5
# A run that was interrupted keeps what it had measured often enough.
_ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)


def write_baselines(state: RooflineSession, status: int) -> None:
    """Write a recording into the baselines, and keep its outcome in the state.

    Args:
        state: of the run; without `--roofline-record`, or where nothing is fit, nothing happens.
        status: with which the tests ended.
    """
    options = state.options
    run = state.writer.read_back() if options.target is not None and not state.refusals else None
    if run is None or options.target is None or status not in _ENDED:
        return
    fewest = fewest_of(options.recording)
    try:
        state.recording = record(run, fewest, options.target, reason=options.accept_slower)
    except RooflineError as error:
        state.refusals = (str(error),)


def is_lacking(state: RooflineSession) -> bool:
    """Return whether a recording lacks a test or kept an old entry."""
    if state.recording is None:
        return False
    return bool(state.recording.slower) or not _expected_tests(state) <= state.recording.tests


def recording_lines(state: RooflineSession, recording: Recording) -> list[str]:
    """Return the last lines of a recording, the missing entries first.

    The last of them names the files, and the slowdown that a gate will find with them.
    """
    slower = [f"{_text(refusal)}; its earlier entry stays" for refusal in recording.slower]
    lines = cut(slower, MOST_NAMED, "that keep their earlier entries")
    if slower:
        lines.append(
            "Find the cause, or record the slower time with --roofline-accept-slower=REASON."
        )
    missing = [f"not recorded: {_text(refusal)}" for refusal in recording.refusals]
    missing += [f"not recorded: {line}" for line in _silent_tests(state, recording)]
    lines += cut(missing, MOST_NAMED, "that are not recorded")
    expected = _expected_tests(state)
    counts = f"RECORDED {len(expected & recording.tests)} of {len(expected)}"
    if not recording.paths:
        return [*lines, f"{counts}: nothing was written"]
    files = " and ".join(printable(_short_path(path)) for path in recording.paths)
    pronoun = "them" if len(recording.paths) > 1 else "it"
    return [*lines, f"{counts} in {files}{_foresight(state, recording)}. Commit {pronoun}."]


def name_recorded(recording: Recording, rows: Sequence[Row]) -> list[Row]:
    """Return the rows with RECORDED or NOT RECORDED for NO BASELINE."""
    recorded = recording.tests
    return [
        replace(row, verdict="RECORDED" if row.test in recorded else "NOT RECORDED")
        if row.verdict == Kind.NO_BASELINE
        else row
        for row in rows
    ]


def _text(refusal: Refusal) -> str:
    return printable(refusal.why)


def _expected_tests(state: RooflineSession) -> set[str]:
    """Return the tests to record.

    They were not skipped, and have a result that a baseline holds.
    """
    tests = {encodable(test_id) for test_id, plan in state.planned.items() if plan.marks.measures}
    skipped = {name for name, outcome in state.outcomes.items() if outcome.outcome == "skipped"}
    results = [row for row in state.rows if row.lost is None]
    measured = {
        row.test
        for row in results
        if row.measurement is None or SIBLINGS not in row.measurement.samples.labels
    }
    siblings = {row.test for row in results} - measured
    lost = [row.lost for row in state.rows if row.lost is not None]
    too_large = {record.test_id for record in lost if not record.red} - measured
    return tests - skipped - siblings - too_large


def _silent_tests(state: RooflineSession, recording: Recording) -> Iterator[str]:
    """Yield the tests that no other line mentions."""
    refusals = {refusal.test_id for refusal in (*recording.refusals, *recording.slower)}
    for test_id in sorted(_expected_tests(state) - recording.tests - refusals):
        outcome = state.outcomes.get(test_id)
        name = printable(test_id.rpartition("::")[2])
        if outcome is None:
            yield f"{name}: it did not run"
        elif outcome.outcome == "failed":
            yield f"{name}: it failed"
        else:
            yield f"{name}: it measured nothing"


def _short_path(path: Path) -> str:
    """Return a path relative to the current folder, if it lies there."""
    here = Path.cwd()
    return str(path.relative_to(here) if path.is_relative_to(here) else path)


def _foresight(state: RooflineSession, recording: Recording) -> str:
    """Return a text on the slowdowns that a gate will find.

    It is empty of compiled kernels, which are exact: `; finds slowdowns from 13 %, more days let it find less`.
    """
    if not recording.entries:
        return ""
    tolerances = {
        row.test: row.measurement.tolerance for row in state.rows if row.measurement is not None
    }
    foresight = foresee(
        recording.entries, lambda entry: tolerances.get(entry.test.id), state.options.tolerance
    )
    if foresight.slowdown is None:
        return "; too few processes to find a slowdown; record the test again"
    percent = math.ceil(100 * foresight.slowdown)
    more_days = ", more days let it find less" * foresight.shrinks
    return f"; finds slowdowns from {percent} %{more_days}"
