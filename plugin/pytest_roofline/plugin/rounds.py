"""Further rounds: processes, one after the other, that run only the tests with an open verdict.

A child is `python -m pytest` with the parent's own command line; `round_child` makes it a round. On a processor it is
forked from a process that has imported torch, pytest and the plugins, has collected nothing and opened no device;
elsewhere it is a fresh one. What it measured is read from its run file, also when it did not come to its end.

A test that only runs programs runs once more in the parent, since each run of a program is a process by itself.
"""

import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

from ..baselines.run_files import runs_of_child
from ..baselines.runs import Run
from ..core.errors import BadFile
from ..core.memory import OutOfMemory
from ..core.records import Outcome
from ..core.samples import CANARY
from ..core.units import encodable
from ..processes.children import QUIET_FACTOR, QUIET_S, ChildEnd, run_child, why_void
from ..processes.round_parent import RoundParent
from ..processes.system import owned_prefix
from ..settings.options import ROUND_VARIABLE, attached_key
from ..stats.key_results import LostRound
from .held_reports import end_reason, ended_well

if TYPE_CHECKING:
    from .session import RooflineSession

# A test whose process died so often is not tried again.
MOST_CRASHES = 2


class Rounds:
    """The rounds of one parent."""

    def __init__(
        self, state: "RooflineSession", say: Callable[[str], None], longest_s: float
    ) -> None:
        """Prepare to run the further rounds of a run.

        Args:
            state: of the run.
            say: prints a line.
            longest_s: the seconds of the longest deferred test; a process that is silent for much longer is hung.
        """
        self._state = state
        self._say = say
        self._quiet_s = max(QUIET_S, QUIET_FACTOR * longest_s)
        # By test id: the rounds that a test lost, and why a test failed for itself.
        self.crashes: dict[str, list[LostRound]] = {}
        self.failures: dict[str, str] = {}
        # Why no further round can run; empty while they can.
        self.broken = ""

    @cached_property
    def _parent(self) -> RoundParent:
        """The process that forks the rounds."""
        config = self._state.config
        plugins = {
            getattr(plugin, "__name__", type(plugin).__module__)
            for plugin, _ in config.pluginmanager.list_plugin_distinfo()
        }
        return RoundParent(sorted(plugins), folder=config.invocation_params.dir)

    def close(self) -> None:
        """End the process that forks the rounds, if there was any."""
        if "_parent" in self.__dict__:
            self._parent.close()

    def run(self, number: int, test_ids: Sequence[str], deadline: float | None) -> None:
        """Run one round of tests.

        After a crash the tests that had not begun run in another process.
        """
        remaining = list(test_ids)
        while remaining and not self.broken:
            try:
                with tempfile.TemporaryDirectory(
                    prefix=owned_prefix("round"), ignore_cleanup_errors=True
                ) as folder:
                    child_end = self._child(Path(folder), number, remaining, deadline)
            except OSError as error:
                self.broken = f"round {number} could not start: {error}"
                break
            is_late = deadline is not None and time.monotonic() > deadline
            if child_end.died_in:
                self._note_crash(number, child_end)
            elif not child_end.started and not is_late and child_end.status != pytest.ExitCode.OK:
                self.broken = f"round {number} could not start: {child_end.cause}: {child_end.tail}"
            if is_late or child_end.status == pytest.ExitCode.INTERRUPTED or not child_end.died_in:
                break
            remaining = [
                test_id for test_id in remaining if encodable(test_id) not in child_end.started
            ]

    def repeat(self, number: int, items: Sequence[pytest.Item], deadline: float | None) -> None:
        """Run tests of programs once more in this pytest.

        They keep their fixtures.
        """
        with self._state.repeating(number):
            for place, item in enumerate(items):
                if deadline is not None and time.monotonic() > deadline:
                    # The fixtures that the next test would have used are still there.
                    item.session._setupstate.teardown_exact(None)
                    break
                self._repeat(number, item, next(iter(items[place + 1 :]), None))

    def _repeat(self, number: int, item: Any, next_item: pytest.Item | None) -> None:
        """Run a test once more, and note a failure."""
        sections = list(item._report_sections)
        try:
            reports = runtestprotocol(item, log=False, nextitem=next_item)
        finally:
            # The report of the test has what its first run printed.
            item._report_sections[:] = sections
        test_id = encodable(item.nodeid)
        for report in reports:
            if report.failed and not ended_well(report):
                self.failures.setdefault(test_id, f"failed in round {number}: {end_reason(report)}")
            elif report.skipped:
                self._note_lost_round(
                    test_id, f"the test was skipped in round {number}: {end_reason(report)}"
                )

    def hopeless(self, test_id: str, name: str) -> bool:
        """Return whether a measurement is not worth another process.

        It is not if its test failed for itself, or lost it in two rounds.
        """
        lost_count = sum(name not in crash.measured for crash in self.crashes.get(test_id, ()))
        return lost_count >= MOST_CRASHES or test_id in self.failures

    def _note_crash(self, number: int, child_end: ChildEnd) -> None:
        """Note the test in which a process died.

        The end of the log of the process is printed.
        """
        text = f"round {number} of the test is lost: {child_end.cause}"
        self._note_lost_round(child_end.died_in, text)
        self._say(
            f"roofline: {child_end.died_in}: {text}. Last lines of the output of the process:"
        )
        for line in child_end.tail.splitlines():
            self._say(f"    {line}")

    def _note_lost_round(self, test_id: str, text: str, measured: Iterable[str] = ()) -> None:
        """Note that a test lost a round, and why.

        `measured` names the measurements that it did not lose.
        """
        self.crashes.setdefault(test_id, []).append(LostRound(text, frozenset(measured)))

    def _child(
        self, folder: Path, number: int, test_ids: Sequence[str], deadline: float | None
    ) -> ChildEnd:
        """Run the process of a round, and return its end.

        It has this command line.
        """
        config = self._state.config
        # The other processes of a launch, which serve the child in the meantime.
        attached = config.stash.get(attached_key, None)
        environ, descriptors = attached.lend() if attached is not None else ({}, ())
        command = [sys.executable, "-m", "pytest", *map(str, config.invocation_params.args)]
        if config.pluginmanager.hasplugin("cacheprovider"):
            # A cache of its own: it must not change, or be ordered by, the parent's list of failed tests.
            command += ["-o", f"cache_dir={folder / 'cache'}"]
        try:
            child_end = run_child(
                command,
                folder,
                {"round": number, "ids": list(test_ids), "deadline": deadline},
                variable=ROUND_VARIABLE,
                cwd=config.invocation_params.dir,
                environ=os.environ | environ,
                quiet_s=self._quiet_s,
                descriptors=descriptors,
                parent=self._parent if may_fork(self._state) else None,
            )
        finally:
            copied_ids = self._copy_results(folder, number)
        for test_id in child_end.finished:
            if test_id not in copied_ids:
                self._note_unsaved(test_id, number)
        return child_end

    def _note_unsaved(self, test_id: str, number: int) -> None:
        """Note and print that results of a round are lost.

        The test ended, and its results are not in the run file of the round.
        """
        text = (
            f"the measurements of round {number} could not be saved; check the free space of "
            f"{tempfile.gettempdir()}"
        )
        self._note_lost_round(test_id, text)
        self._say(f"roofline: {test_id}: {text}")

    def _copy_results(self, folder: Path, number: int) -> frozenset[str]:
        """Copy the results of a round into the run file.

        Return the ids of its tests.
        """
        copied_ids: set[str] = set()

        def tell(error: BadFile) -> None:
            self._say(f"roofline: the measurements of round {number} cannot be read: {error}")

        for run in runs_of_child(folder, tell):
            self._copy(run, number)
            copied_ids.update(outcome.test_id for outcome in run.outcomes)
        return frozenset(copied_ids)

    def _copy(self, run: Run, number: int) -> None:
        """Copy the results of one run file of a child.

        They are marked with the round. Tests that were skipped, failed, or ran out of memory there are noted.
        """
        outcomes = {outcome.test_id: outcome for outcome in run.outcomes}
        for outcome in outcomes.values():
            self._note_outcome(outcome, number)
        memory_failures = {
            (record.test_id, record.name) for record in run.out_of_memory if record.recorded
        }
        for measurement in run.measurements:
            test_id, void_reason = measurement.test_id, ""
            if measurement.invalid and (test_id, measurement.key.name) in memory_failures:
                # A partial measurement before memory ran out is left out; the record of memory stands for it.
                continue
            # The measurements of a test that failed afterwards are kept as invalid. Canaries belong to no test.
            if CANARY not in measurement.samples.labels:
                void_reason = why_void(outcomes.get(test_id), f"round {number}")
            self._state.record(
                replace(measurement, round=number, invalid=measurement.invalid or void_reason)
            )
        for record in run.out_of_memory:
            self._copy_memory_failure(record, run, number)
        for calibration in run.calibrations:
            self._state.writer.write(calibration)

    def _note_outcome(self, outcome: Outcome, number: int) -> None:
        """Note a test that was skipped or failed in a round."""
        if outcome.outcome == "skipped":
            text = f"the test was skipped in round {number}: {outcome.reason}"
            self._note_lost_round(outcome.test_id, text)
        if outcome.outcome == "failed":
            self.failures[outcome.test_id] = (
                f"the test failed in round {number}, in a fresh process: {outcome.reason}"
            )

    def _copy_memory_failure(self, record: OutOfMemory, run: Run, number: int) -> None:
        """Copy a record of memory that ran out in a round.

        If that is a result of its test, the round is lost for the measurements that it did not make.
        """
        self._state.record(replace(record, round=number))
        if record.recorded:
            measured = [
                measurement.key.name
                for measurement in run.measurements
                if measurement.test_id == record.test_id and not measurement.invalid
            ]
            text = f"the test ran out of memory in round {number} ({record.allocation.sizes})"
            self._note_lost_round(record.test_id, text, measured)


def why_no_rounds(state: "RooflineSession") -> str:
    """Return why this run cannot have further rounds, if so.

    A round is a further process, which a GPU in the compute mode of a single process refuses.
    """
    gpu = state.under_test.gpu
    exclusive = gpu is not None and gpu.compute_mode == "exclusive process"
    if (
        state.options.rounds != 1
        and gpu is not None
        and exclusive
        and state.under_test.is_open_here
    ):
        return (
            f"{gpu.label} takes one process at a time (compute mode exclusive process), and this process uses the "
            f"GPU. Allow further processes with nvidia-smi -i {gpu.index} -c DEFAULT"
        )
    return ""


def may_fork(state: "RooflineSession") -> bool:
    """Return whether rounds may be forked.

    They may on a processor, without attached ranks. The state of an accelerator's library does not survive a fork.
    Attached ranks are handed to a fresh process as open files, which a fork from another process does not inherit.
    """
    on_processor = state.under_test.environment.device.type == "cpu"
    return on_processor and attached_key not in state.config.stash
