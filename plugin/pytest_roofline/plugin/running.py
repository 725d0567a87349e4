"""The hooks of a run that measures, a few lines each. They are registered when collection has a measuring test."""

import os
import sys
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ..core import features
from ..processes.system import remove_abandoned
from ..settings.options import LOOKING, SAVED_VARIABLE, SIDE_BY_SIDE
from ..settings.parsing import Options, parse_options
from ..settings.round import in_round
from .bridge import bridge_of
from .current import session_key
from .deciding import Deciding
from .display import header_lines, progress_line, summary_lines, wrap_failures
from .fixture import Roofline
from .gate import DeviceHealth, look, looks_at_device
from .held_reports import (
    call_key,
    deferral_key,
    ended_well,
    failure_key,
    is_undecided,
    may_defer,
    name_failed,
    note,
    pass_in_shadow,
    publish,
    test_id_of,
)
from .observing import forget_locals, ran_out, watch_memory
from .planned import by_world, clash_key, measures, plan, read_marks, select, uses_ranks
from .recording_run import ENDED, is_lacking, refusals, write_baselines
from .results import require
from .rounds import why_no_rounds
from .session import RooflineSession
from .terminal import tell, wrapped
from .tracebacks import UsersFramesFirst

if TYPE_CHECKING:
    from .distributed import Distributed

# The colours of the last sentence, by its first word.
MARKUP = {
    "GREEN": {"green": True},
    "RECORDED": {"green": True},
    "GREY": {"yellow": True},
    "RED": {"red": True, "bold": True},
}


def join(
    config: pytest.Config,
    items: list[pytest.Item],
    measuring_items: Sequence[pytest.Item],
    collected_items: Sequence[pytest.Item] = (),
) -> None:
    """Check markers, select tests, and register the hooks.

    Args:
        config: pytest's configuration.
        items: all selected tests; changed in place.
        measuring_items: those of them that use this plugin.
        collected_items: the tests that used it before other plugins left some out.
    """
    marks = {item.nodeid: read_marks(item) for item in measuring_items}
    with_ranks = any(map(uses_ranks, measuring_items))
    if not (with_ranks or any(map(measures, measuring_items))):
        return
    if sys.flags.optimize:
        raise pytest.UsageError(
            f"Python leaves out assert statements (PYTHONOPTIMIZE or -O, level {sys.flags.optimize}), so wrong "
            "data would pass. Unset PYTHONOPTIMIZE, and run Python without -O"
        )
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(WorkerGuard(parse_options(config)))
        return
    config.pluginmanager.register(UsersFramesFirst(config))
    this_round = in_round(config)
    if this_round is None or this_round.ids is None:
        # The tests of a round were selected by its parent.
        select(config, items, marks)
    if this_round is not None and this_round.ids is None:
        items[:] = filter(measures, items)
    if with_ranks:
        items[:] = by_world(items)
        _plan_ranks(config, items)
    if not any(map(measures, measuring_items)):
        return
    running = Running(config)
    running.state.collected = tuple(filter(measures, collected_items))
    config.pluginmanager.register(running)
    config.pluginmanager.register(running.deciding)
    if running.bridge is not None:
        config.pluginmanager.register(running.bridge)


def _plan_ranks(config: pytest.Config, items: Sequence[pytest.Item]) -> None:
    """Plan the pools of ranks that the tests need.

    Without the feature nothing is planned, and the fixture raises in each test that uses it.
    """
    if "ranks" in features.FEATURES:
        from .launcher import launcher_of

        launcher_of(config, parse_options(config)).plan(items)


def make_fixture(request: pytest.FixtureRequest) -> Roofline:
    """Make the fixture `roofline` of a test."""
    state = request.config.stash.get(session_key, None)
    if state is None or request.node.nodeid not in state.planned:
        raise pytest.UsageError(
            f"{request.node.nodeid} asks for the fixture 'roofline' by getfixturevalue, so collection cannot find that "
            "this test measures. Add roofline to the test's arguments, or to @pytest.mark.usefixtures"
        )
    return Roofline(state, request.node)


def make_distributed(request: pytest.FixtureRequest) -> "Distributed":
    """Make the fixture `distributed` of a test.

    Skip a test that needs another kind of device than ranks have.

    Raises:
        BadInput: the feature of ranks was taken out.
    """
    features.require("ranks")
    from .distributed import distributed_of
    from .launcher import launcher_of

    session = request.config.stash.get(session_key, None)
    # To parse the options again would refuse the name of the run, whose file may exist by now.
    options = parse_options(request.config) if session is None else session.options
    return distributed_of(request.node, launcher_of(request.config, options))


class WorkerGuard:
    """The hook of a worker of xdist: it skips every test that measures, or fails it under a gate."""

    def __init__(self, options: Options) -> None:
        self._fails = options.gate and not options.shadow

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip or fail a test that measures before it is set up, since pytest-xdist runs tests side by side."""
        if not (measures(item) or uses_ranks(item)):
            return
        if self._fails:
            pytest.fail(SIDE_BY_SIDE, pytrace=False)
        _skip(item, SIDE_BY_SIDE)


class Running:
    """The hooks of a run that measures: they open the device, judge, write and report."""

    def __init__(self, config: pytest.Config) -> None:
        """Prepare the hooks of a run in which tests measure."""
        self.config = config
        self.only_looking = any(config.getoption(name, False) for name in LOOKING)
        self.state = config.stash[session_key] = RooflineSession(config, parse_options(config))
        self.deciding = Deciding(config, self.state, self.only_looking)
        self.bridge = bridge_of(self.state)

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Open the device and the baselines before the first test.

        An error of theirs then ends the run at once.
        """
        self.state.planned = plan([item for item in session.items if measures(item)])
        if self.state.planned and not self.only_looking:
            # The first access opens the device.
            assert self.state.under_test
            self.state.why_no_rounds = why_no_rounds(self.state)
            if self.state.round is None:
                remove_abandoned()
            if self.state.round is None and looks_at_device(self.state):
                # A test that turns red before the last item points to the state of the device that is known now.
                look(self.state)
                session.items.append(DeviceHealth.from_parent(session, state=self.state))

    def pytest_report_collectionfinish(self) -> list[str]:
        """Return the header lines, once a test will measure."""
        if not self.state.planned or self.config.get_verbosity() < 0:
            return []
        reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        width = reporter._tw.fullwidth if reporter is not None else 80
        return [part for line in header_lines(self.state) for part in wrapped(line, width)]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, object, object]:
        """Print a line of progress now and then."""
        if measures(item) and not self.only_looking:
            line = progress_line(self.state, item)
            if line:
                tell(self.config, line)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        """Skip a test that this device cannot run, before its set-up."""
        if measures(item) and not self.only_looking:
            if clash := item.stash.get(clash_key, ""):
                pytest.fail(clash, pytrace=False)
            self.state.start_measuring(item)
            _skip_for_device(self.state, item)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, object, object]:
        """Judge a test's results when its body has ended well.

        A regression fails it here, in the call phase.
        """
        # A test that runs once more in this pytest is judged at the end of its round.
        if not measures(item) or self.state.repetition > 1:
            return (yield)
        item.stash[failure_key], item.stash[deferral_key] = None, False
        outcome: object = None
        try:
            with watch_memory(self.state, item):
                outcome = yield
        except BaseException as error:
            if not ran_out(self.state, item, error):
                self.state.abandon(item, error)
                raise
        if self.state.round is not None:
            # The parent judges the measurements of a round, so they get no verdict here.
            self.state.abandon(item)
            return outcome
        can_wait = may_defer(item)
        # Without further rounds the verdict of this process is final.
        self.state.judge(item, further=can_wait)
        if self.bridge is not None:
            self.bridge.replay(item)
        if can_wait and is_undecided(self.state, item):
            item.stash[deferral_key] = True
            return outcome
        failure = publish(self.state, item)
        if failure is not None:
            item.stash[failure_key] = failure
            raise failure
        return outcome

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Add the status word to the report, and note the end.

        An example of the word is `1511 GB/s +0.2 %`.
        """
        report = yield
        if not measures(item) or self.state.repetition > 1:
            return report
        if call.when == "call":
            item.stash[call_key] = call
            if item.stash.get(deferral_key, False) and ended_well(report):
                # The verdict is open, so the report is made once more when it is decided.
                return report
            # A test that failed for itself is not deferred, although its verdict is open.
            item.stash[deferral_key] = False
            report.roofline_word = _status_word(self.state, item)  # type: ignore[attr-defined]
        raised = item.stash.get(failure_key, None)
        # Only the very exception that the call hook raised is the verdict's. A failure of unittest is another one.
        by_verdict = (
            raised is not None and call.excinfo is not None and call.excinfo.value is raised
        )
        by_verdict = by_verdict and test_id_of(item) not in self.deciding.failed_later
        if report.failed and not by_verdict:
            name_failed(item, report)
        note(self.state, item, report, by_verdict)
        if by_verdict and report.failed and call.when == "call" and self.state.options.shadow:
            pass_in_shadow(self.state, item, report, str(raised))
        if call.excinfo is not None and not item.config.getoption("usepdb", False):
            # The traceback outlives the test (sys.last_traceback). Its buffers must not, or the next test lacks memory.
            forget_locals(call.excinfo.value)
        return report

    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Return `PASSED 1511 GB/s +0.2 %` for a verbose run.

        A failure stays a plain FAILED, since tools look for it.
        """
        word = getattr(report, "roofline_word", "")
        if (
            word
            and report.when == "call"
            and report.outcome == "passed"
            and not hasattr(report, "wasxfail")
        ):
            return "passed", ".", f"PASSED {word}"
        return None

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> None:
        """Refuse further measurements of a test, since nobody would judge them."""
        self.state.end_measuring(item)

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, object, object]:
        """End the run file, also if another plugin's hook raises."""
        try:
            return (yield)
        finally:
            self.finish(session, exitstatus)

    def finish(self, session: pytest.Session, exitstatus: int) -> None:
        """Write the baselines, the run's end, and the reports.

        Status 0 becomes 1 where one of them could not be written, or a test was not recorded.
        """
        if not self.state.opened or self.state.stayed_busy:
            return
        if exitstatus in ENDED:
            self.state.refusals = refusals(self.state)
        write_baselines(self.state, exitstatus)
        lacking = bool(self.state.refusals) or is_lacking(self.state)
        self.state.close(int(exitstatus) or int(lacking))
        # `roofline drill` names a file in which it looks for the path of the run.
        saved_file = os.environ.get(SAVED_VARIABLE)
        if saved_file and self.state.writer.path is not None and self.state.round is None:
            Path(saved_file).write_text(str(self.state.writer.path), encoding="utf-8")
        self.state.reports.make(self.state.writer, self.state.planned, self.config)
        reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            wrap_failures(self.state, reporter)
        failed = self.state.lost_output or lacking
        if failed and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_terminal_summary(
        self, terminalreporter: Any, exitstatus: int
    ) -> Generator[None, object, object]:
        """Print our summary behind the other plugins', even if one raises."""
        try:
            return (yield)
        finally:
            self.summarise(terminalreporter, int(exitstatus))

    def summarise(self, terminalreporter: Any, status: int) -> None:
        """Print our summary, and a CI job's annotations."""
        if not self.state.opened or self.state.stayed_busy:
            return
        terminalreporter.section("roofline")
        writer = terminalreporter._tw
        for line in summary_lines(self.state, writer.fullwidth, writer.hasmarkup, status):
            terminalreporter.write_line(line, **_markup(line))
        for line in self.state.reports.annotations:
            terminalreporter.write_line(line)


def _markup(line: str) -> dict[str, bool]:
    """Return the colour of the closing sentence; none for other lines."""
    word = line.partition(" ")[0].removesuffix(":")
    return MARKUP.get(word, {})


def _status_word(state: RooflineSession, item: pytest.Item) -> str:
    """Return the text behind PASSED: `1511 GB/s +0.2 %`."""
    test_id = test_id_of(item)
    return "; ".join(word for kind in state.kinds for word in kind.words(test_id))


def _skip_for_device(state: RooflineSession, item: pytest.Item) -> None:
    """Skip a test that needs another device.

    It fails if hardware is required.
    """
    needs = state.planned[item.nodeid].marks.needs
    reason = state.unmet(needs)
    if reason is None:
        return
    # A test of the CPU that is skipped on a GPU does not lack hardware.
    if needs == "accelerator":
        require(item, state.options, reason)
    _skip(item, reason)


def _skip(item: pytest.Item, reason: str) -> None:
    """Skip a test before its set-up."""
    if item.config.pluginmanager.hasplugin("skipping"):
        # With a mark the report names the line of the test, and not this one.
        item.add_marker(pytest.mark.skip(reason=reason))
    else:
        pytest.skip(reason)
