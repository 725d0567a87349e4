"""The end of a recording: whether anything is fit, the baselines that it writes, and its last lines.

A recording is a saved run of several processes a test, and no gate. Without a fit result it ends early with status 1;
`roofline baseline propose` decides what is fit, and `--roofline-record` writes it.
"""

import math
from collections.abc import Generator, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..baselines.fit import Refusal, fewest_of, fit_of
from ..baselines.foresight import foresee
from ..baselines.proposals import NothingFit, propose
from ..baselines.recordings import Recording, record
from ..baselines.run_files import makes_way
from ..baselines.runs import Run
from ..core.errors import RooflineError
from ..core.records import Outcome
from ..core.rows import Row
from ..core.samples import SIBLINGS, for_neighbours
from ..core.units import count, cut, encodable, listed, printable
from ..core.verdicts import Kind
from ..engine.devices import cpu
from ..report.messages import compared_of
from ..settings.command_line import option_value
from ..settings.options import LOOKING, SIDE_BY_SIDE
from ..settings.parsing import Options
from .current import open_session
from .held_reports import relative

if TYPE_CHECKING:
    from .session import RooflineSession

# The most reasons of single measurements in a sentence.
MOST_REASONS = 3
# The status of a run that came to its end.
ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED)
# The most lines on results that are not recorded.
MOST_NAMED = 5
# The statuses after which entries are written. An interrupted run has measured some tests often enough.
_RECORDABLE = (*ENDED, pytest.ExitCode.INTERRUPTED)


def refusals(state: "RooflineSession", waiting: Iterable[str] = ()) -> tuple[str, ...]:
    """Return why no baseline can be made of a recording.

    There is nothing to return for a run that records none. There is a reason for each measurement.

    Args:
        state: of a run, or of its first process.
        waiting: the tests that passed and whose verdicts are open, so that the run file has no outcome of them.
    """
    if not state.options.is_recording or (_is_comparison(state) and not state.options.record):
        return ()
    run = state.writer.read_back()
    if run is None:
        return tuple(map(printable, state.not_measured)) or ("no test measured anything",)
    passed_outcomes = tuple(Outcome(test_id, "passed") for test_id in waiting)
    run = replace(run, lines=run.lines + passed_outcomes)
    if state.options.record:
        # After the first process one is enough: the further ones are still to come.
        fewest_processes = 1 if passed_outcomes else fewest_of(state.options.recording)
        return _why_unrecorded(run, fewest_processes)
    try:
        propose([run])
    except NothingFit as error:
        return error.reasons
    except RooflineError as error:
        return (str(error),)
    return ()


def _why_unrecorded(run: Run, fewest_processes: int) -> tuple[str, ...]:
    """Return why nothing of a run fits the baselines, else nothing.

    An entry needs `fewest_processes` sound processes.
    """
    entries, kernels, refusals = fit_of(run, fewest_processes)
    if entries or kernels:
        return ()
    return tuple(refusal.why for refusal in refusals) or (
        "no test measured anything that a baseline can hold",
    )


def _is_comparison(state: "RooflineSession") -> bool:
    """Return whether a run records nothing, since it only compared.

    It compared a drill, or only like devices with each other.
    """
    replaced_rows = [row for row in state.rows if "replaced" in (row.labels or ())]
    is_drill = compared_of(replaced_rows) > 0
    are_siblings = [SIBLINGS in (row.labels or ()) for row in state.rows if row.lost is None]
    return is_drill or (bool(are_siblings) and all(are_siblings))


def refusal_line(
    reasons: Sequence[str], rounds: str, run: Run | None, *, named: bool = True
) -> str:
    """Return the last line of a recording without a fit result.

    Args:
        reasons: why nothing is fit.
        rounds: after which, as `1 of 5 rounds`.
        run: as it was saved; None where nothing was.
        named: whether somebody chose the run's name.
    """
    faults = [reason for reason in reasons if not for_neighbours(reason)]
    is_busy = len(faults) < len(reasons)
    observed, remedies, wait_hint = [], [], ""
    if faults:
        observed.append(listed(faults, MOST_REASONS, "; "))
        remedies.append("correct the cause of the invalid results")
    if is_busy:
        # Reasons that busy neighbours explain are replaced by one text on who they are.
        observed.append(busy_now())
        remedies.append(cpu.QUIETEN)
        wait_hint = " To wait for a quiet machine, add --roofline-wait=10m."
    # Only a run without any valid result gives its name to the next.
    name = "the same" if run is None or makes_way(run) else "another"
    name_hint = f", under {name} name" if named else ""
    return (
        f"No baseline can be made of this run, after {rounds}: {'; '.join(observed)}. Expected at least one valid "
        f"result, so pytest ended with status 1. {', '.join(remedies).capitalize()}, and run this "
        f"again{name_hint}.{wait_hint}"
    )


def busy_now() -> str:
    """Return who keeps the cores busy, after a second."""
    return cpu.neighbours_now() or "other processes kept the cores of this machine busy"


def write_baselines(state: "RooflineSession", status: int) -> None:
    """Write a recording into the baselines.

    Its outcome is kept in the state.

    Args:
        state: of the run; without `--roofline-record`, or where nothing is fit, nothing happens.
        status: with which the tests ended.
    """
    options = state.options
    run = state.writer.read_back() if options.target is not None and not state.refusals else None
    if run is None or options.target is None or status not in _RECORDABLE:
        return
    fewest_processes = fewest_of(options.recording)
    try:
        state.recording = record(
            run, fewest_processes, options.target, reason=options.accept_slower
        )
    except RooflineError as error:
        state.refusals = (str(error),)


def is_lacking(state: "RooflineSession") -> bool:
    """Return whether a recording lacks something.

    It lacks a test, or kept an old entry.
    """
    if state.recording is None:
        return False
    return bool(state.recording.slower) or not _expected_tests(state) <= state.recording.tests


def recording_lines(state: "RooflineSession", recording: Recording) -> list[str]:
    """Return the last lines of a recording, the missing entries first.

    The last of them names the files, and the slowdown that a gate will find with them.
    """
    slower = [f"{_text(refusal)}; the earlier entry stays" for refusal in recording.slower]
    lines = cut(slower, MOST_NAMED, "tests keep their earlier entries")
    if slower:
        lines.append(
            "Find the cause, or record the slower time with --roofline-accept-slower=REASON."
        )
    missing = [f"not recorded: {_text(refusal)}" for refusal in recording.refusals]
    missing += [f"not recorded: {line}" for line in _silent_tests(state, recording)]
    lines += cut(missing, MOST_NAMED, "tests are not recorded")
    expected = _expected_tests(state)
    counts = f"RECORDED {len(expected & recording.tests)} of {len(expected)}"
    if not recording.paths:
        return [*lines, f"{counts}: nothing was written"]
    files = " and ".join(printable(relative(path, Path.cwd())) for path in recording.paths)
    pronoun = "them" if len(recording.paths) > 1 else "it"
    processes = _lost_processes(state, recording)
    return [
        *lines,
        f"{counts} in {files}{processes}{_foresight(state, recording)}. Commit {pronoun}.",
    ]


def _lost_processes(state: "RooflineSession", recording: Recording) -> str:
    """Return a text on the fewest processes of a test.

    The text is empty if every process counts.
    """
    planned = state.options.recording
    counts = [len(entry.newest_session.process_medians) for entry in recording.entries]
    fewest = min(counts, default=planned)
    return f", {fewest} of {planned} processes count" if fewest < planned else ""


def name_recorded(recording: Recording, rows: Sequence[Row]) -> list[Row]:
    """Return the rows of a recording with its own words.

    RECORDED or NOT RECORDED stand in place of NO BASELINE.
    """
    recorded = recording.tests
    return [
        replace(row, verdict="RECORDED" if row.test in recorded else "NOT RECORDED")
        if row.verdict == Kind.NO_BASELINE
        else row
        for row in rows
    ]


def _text(refusal: Refusal) -> str:
    """Return why a result was not recorded."""
    return printable(refusal.why)


def _expected_tests(state: "RooflineSession") -> set[str]:
    """Return the tests that the recording should record.

    Left out are tests that were skipped, that only compared siblings, or whose memory ran out as expected.
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


def _silent_tests(state: "RooflineSession", recording: Recording) -> Iterator[str]:
    """Yield a line for each silent unrecorded test.

    No other line mentions it.
    """
    refusals = {refusal.test_id for refusal in (*recording.refusals, *recording.slower)}
    for test_id in sorted(_expected_tests(state) - recording.tests - refusals):
        outcome = state.outcomes.get(test_id)
        name = printable(test_id.rpartition("::")[2])
        if outcome is None:
            yield f"{name}: the test did not run"
        elif outcome.outcome == "failed":
            yield f"{name}: the test failed"
        else:
            yield f"{name}: the test measured nothing"


def _foresight(state: "RooflineSession", recording: Recording) -> str:
    """Return a text on the slowdowns that a gate will find.

    An example is `; finds slowdowns from 13 %, recordings of more days find smaller ones`. It is empty where only
    compiled kernels were recorded, which are judged exactly.
    """
    if not recording.entries:
        return ""
    tolerances = {
        row.test: row.measurement.tolerance for row in state.rows if row.measurement is not None
    }
    slowdown, shrinks = foresee(
        recording.entries, lambda entry: tolerances.get(entry.test.id), state.options.tolerance
    )
    if slowdown is None:
        return "; the processes are too few to find a slowdown; record the test again"
    percent = math.ceil(100 * slowdown)
    more_days = ", recordings of more days find smaller ones" if shrinks else ""
    return f"; finds slowdowns from {percent} %{more_days}"


class Recorder:
    """The check of a recording: it fails a run in which no test that measures began."""

    def __init__(self, options: Options) -> None:
        self._options = options

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, object, object]:
        """Turn status 0 of an empty recording into 1."""
        if exitstatus == pytest.ExitCode.OK and self._is_empty(session.config):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        return (yield)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any, exitstatus: int) -> None:
        """Print why nothing was recorded, if no device was opened.

        Otherwise the summary of the run prints it.
        """
        config = terminalreporter.config
        if exitstatus in ENDED and self._is_empty(config):
            side_by_side = config.pluginmanager.hasplugin("dsession")
            reason = SIDE_BY_SIDE if side_by_side else "no test that measures was selected"
            rounds = f"0 of {count(self._options.recording, 'round')}"
            has_name = option_value(config, "save") is not None
            terminalreporter.write_line(refusal_line([reason], rounds, None, named=has_name))

    def _is_empty(self, config: pytest.Config) -> bool:
        """Return whether the run was to record, and did not.

        It opened no device. It is False for a run that only lists tests, and for a worker of xdist: these were not to
        record.
        """
        only_lists = any(config.getoption(name, False) for name in LOOKING)
        is_open = open_session(config) is not None
        return not (only_lists or is_open or hasattr(config, "workerinput"))
