"""Tests with an open verdict: they get further rounds, and their reports once the verdict is final."""

import contextlib
import gc
import itertools
import time
from collections.abc import Generator, Sequence
from typing import TYPE_CHECKING, Any

import pytest

from ..core.units import count, listed
from ..settings.options import ranks_key
from .gate import fail_together
from .held_reports import (
    DeferredReport,
    call_key,
    deferral_key,
    is_undecided,
    issue,
    may_defer,
    name_failed,
    note,
    publish,
    test_id_of,
)
from .held_reports import run as run_item
from .observing import profiled_labels
from .planned import measures
from .recording_run import refusals
from .rounds import Rounds
from .terminal import tell

if TYPE_CHECKING:
    from .launcher import Launcher
    from .session import RooflineSession


class Deciding:
    """Runs measuring tests with deferred reports, and decides the open verdicts behind the last test."""

    def __init__(self, config: pytest.Config, state: "RooflineSession", only_looking: bool) -> None:
        """Prepare the hooks that decide open verdicts by further rounds.

        With `only_looking` pytest only lists tests, so nothing is decided.
        """
        self.config = config
        self.state = state
        self.only_looking = only_looking
        self.deferred_reports: dict[str, DeferredReport] = {}
        # Deferred tests whose own verdict is final. Their reports wait for the verdict on all tests together.
        self.decided_ids: set[str] = set()
        # The tests that failed for themselves in a later round.
        self.failed_later: set[str] = set()
        self.began_s = time.monotonic()
        # Whether the rounds ended before every verdict was decided.
        self.is_cut = False
        self.has_canaries = False

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(
        self, item: pytest.Item, nextitem: pytest.Item | None
    ) -> bool | None:
        """Run a measuring test, and defer an open report.

        All other tests are left to pytest.
        """
        if (
            not measures(item)
            or self.only_looking
            or self.state.round is not None
            or not may_defer(item)
        ):
            return None
        try:
            deferred_report = run_item(self.state, item, nextitem)
        except BaseException:
            # The test was interrupted in its teardown. Its measurements get their verdict all the same.
            if item.stash.get(deferral_key, False):
                self.deferred_reports[test_id_of(item)] = DeferredReport(
                    item, item.stash[call_key], None
                )
            raise
        if deferred_report is not None:
            self.deferred_reports[test_id_of(item)] = deferred_report
            reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
            if reporter is not None and self.config.get_verbosity() > 0:
                reporter.write("PENDING, more rounds to come")
        return True

    @pytest.hookimpl(wrapper=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Decide open verdicts after the last test, and report those tests."""
        try:
            outcome = yield
            # Canaries are for a run that may become a baseline, so a saved one, and for the parent of a round.
            if self.state.options.save or self.state.round is not None:
                self.measure_canaries()
            if self.deferred_reports:
                self.decide()
        finally:
            # However the loop ended, every measurement gets its verdict, from the processes that there are.
            self.issue_all()
        if self.state.opened and self.state.round is None and not session.shouldstop:
            fail_together(session, self.state)
        return outcome

    def measure_canaries(self) -> None:
        """Measure the canaries once in this process.

        These are small loads that show the speed of the machine itself. None are measured under a profiler, which slows
        them down, or where only ranks have measured, since ranks are other processes.
        """
        state = self.state
        has_measured = any(row.ranks is None for row in state.timed.rows)
        if self.has_canaries or self.only_looking or not has_measured or profiled_labels(state):
            return
        from ..engine.ceiling import measure_canaries

        self.has_canaries = True
        for measurement in measure_canaries(
            state.under_test.device, state.under_test.hardware, state.process
        ):
            state.record(measurement)

    def decide(self) -> None:
        """Run further rounds until every verdict is decided.

        They end earlier if the rounds or the time are used up.
        """
        longest_s = max(
            deferred_report.duration_s for deferred_report in self.deferred_reports.values()
        )
        with contextlib.closing(Rounds(self.state, self.say, longest_s)) as rounds:
            # Each verdict names the rounds that its test has lost.
            self.state.timed.note_lost_rounds(rounds.crashes)
            self.issue_decided(rounds)
            if refusals(self.state, self.deferred_reports):
                # Nothing is fit to be recorded, and more minutes on this machine would not help. The last line says so.
                self.is_cut = True
                return
            self._decide_by(rounds)

    def issue_decided(self, rounds: Rounds) -> None:
        """Report the tests whose result nothing can change any more."""
        self.state.timed.settle({*self.open_tests()})
        for test_id in self.open_tests():
            failure = rounds.failures.get(test_id)
            if failure is None and is_undecided(self.state, self.deferred_reports[test_id].item):
                continue
            # A test that failed for itself is reported at once, whatever its verdict.
            if failure is None and self.state.timed.is_shifted(test_id):
                # The change that all tests share may still grow or shrink, so the report waits for the end.
                self.decided_ids.add(test_id)
            else:
                self.issue(test_id, failure)

    def open_tests(self) -> list[str]:
        """Return the deferred tests whose own verdict is open."""
        return [test_id for test_id in self.deferred_reports if test_id not in self.decided_ids]

    def _decide_by(self, rounds: Rounds) -> None:
        """Run one round after the other, until no test wants another.

        It ends early, and sets `is_cut`, if the time is over or no round can run.
        """
        options = self.state.options
        deadline = None if options.time_s is None else self.began_s + options.time_s
        for number in itertools.count(2):
            test_ids = [test_id for test_id in self.open_tests() if self.wants(rounds, test_id)]
            most_rounds = self._most_rounds(test_ids)
            if not test_ids or rounds.broken or number > most_rounds:
                break
            if deadline is not None and time.monotonic() > deadline:
                self.say(
                    f"roofline: the time of --roofline-time ended after round {number - 1}, with {_tests(test_ids)} "
                    "undecided"
                )
                self.is_cut = True
                break
            tell(
                self.config,
                f"roofline: round {number} of at most {most_rounds}: {_tests(test_ids)} "
                f"{'to record' if options.record else 'undecided'}",
            )
            self.run_round(rounds, number, test_ids, deadline)
        if rounds.broken:
            self.is_cut = True
            self._say_broken(rounds.broken)

    def _say_broken(self, reason: str) -> None:
        """Print the reason why no further round can run.

        Its lines after the first are indented.
        """
        first_line, *further_lines = reason.splitlines()
        self.say(f"roofline: no further rounds: {first_line}")
        for line in further_lines:
            self.say(f"    {line}")

    def wants(self, rounds: Rounds, test_id: str) -> bool:
        """Return whether a deferred test is worth another process.

        It is if a verdict of one of its measurements is open, and a further process may decide it. None can
        where its test failed for itself, or lost the measurement in two rounds (`hopeless`).
        """
        return any(
            self.state.timed.wants_round(row)
            and not (row.key is not None and rounds.hopeless(test_id, row.key.name))
            for row in self.state.timed.of(test_id)
        )

    def _most_rounds(self, test_ids: Sequence[str]) -> int:
        """Return the most processes that these tests may have."""
        timed = self.state.timed
        limits = (timed.most_rounds(row) for test_id in test_ids for row in timed.of(test_id))
        return max(self.state.options.recording, *limits, 0)

    def run_round(
        self, rounds: Rounds, number: int, test_ids: Sequence[str], deadline: float | None
    ) -> None:
        """Run tests once more, and judge the results.

        They are judged however the round ends.
        """
        self.measure_canaries()
        self.make_room()
        # Tests that measure programs run again in this pytest, all others in a process of their own.
        here = [test_id for test_id in test_ids if self.state.has_only_programs(test_id)]
        items = {test_id: self.deferred_reports[test_id].item for test_id in test_ids}
        try:
            rounds.repeat(number, [items[test_id] for test_id in here], deadline)
            rounds.run(
                number,
                [item.nodeid for test_id, item in items.items() if test_id not in here],
                deadline,
            )
        finally:
            for test_id in test_ids:
                self.state.timed.judge(test_id)
        if not rounds.broken:
            self.state.rounds_used = number
        self.issue_decided(rounds)

    def make_room(self) -> None:
        """Free the device memory of this process for a child."""
        gc.collect()
        launcher: Launcher | None = self.config.stash.get(ranks_key, None)
        if launcher is not None:
            # A round starts ranks of its own. The present ranks would disturb them.
            launcher.end_ranks()
        self.state.under_test.device.release()

    def issue_all(self) -> None:
        """Report every test whose report is still deferred.

        It has its last verdict.
        """
        if self.deferred_reports:
            still_open = {*self.open_tests()}
            self.state.timed.end_rounds(still_open, cut=self.is_cut)
            self.state.timed.settle(still_open)
        for test_id in list(self.deferred_reports):
            self.issue(test_id)

    def issue(self, test_id: str, later_failure: str | None = None) -> None:
        """Issue the report of a deferred test.

        With `later_failure`, the reason why it failed for itself in a later round, it fails, whatever its verdict.
        """
        deferred_report = self.deferred_reports.pop(test_id)
        if later_failure is not None:
            self.failed_later.add(test_id)
            self.state.retract(test_id)
        failure = publish(self.state, deferred_report.item)
        if later_failure is not None:
            failure = pytest.fail.Exception(later_failure, pytrace=False)
        teardown = deferred_report.teardown
        failed_teardown = teardown if teardown is not None and teardown.failed else None
        if failed_teardown is not None:
            name_failed(deferred_report.item, failed_teardown)
        issue(deferred_report, failure)
        if failed_teardown is not None:
            # The failed teardown is how the test ended, so it is noted once more, after the verdict.
            note(self.state, deferred_report.item, failed_teardown, by_verdict=False)

    def say(self, line: str) -> None:
        """Print a line on the terminal, also with -q."""
        tell(self.config, line, progress=False)


def _tests(test_ids: Sequence[str]) -> str:
    """Return tests in short: `2 tests (a, b)`."""
    names = [test_id.rpartition("::")[2] for test_id in test_ids]
    return f"{count(len(names), 'test')} ({listed(names, 3)})"
