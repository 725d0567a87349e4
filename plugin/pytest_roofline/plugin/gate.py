"""The items behind the tests: `device health`, and `roofline gate` where a gate lacks something.

Fifty slow tests on a DEGRADED device have one cause. The gate's item comes behind everything else, also behind verdicts
that waited for further rounds, and only where it has to say something: a green run has as many tests as it has.
"""

import contextlib
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.runner import runtestprotocol

from ..baselines.rows import together_row
from ..core.errors import BadFile
from ..core.facts import Finding, Gpu
from ..core.records import Outcome
from ..core.rows import DEGRADED
from ..core.units import encodable
from ..engine.inventory import take_stock
from ..machine.expectation import differences, rated_by, read_expectation
from ..machine.health import degradations, unknown_health
from ..report.messages import GATE
from ..report.overview import together_text
from ..report.verdicts import health_message
from ..settings.command_line import commands_gate
from ..settings.options import LOOKING, SIDE_BY_SIDE
from ..settings.parsing import Options
from ..settings.round import in_round
from .current import open_session
from .ending import end_status_key, refuse_no_verdict, why_no_test_runs
from .results import DEVICE, PROPERTY, fail, shadow_sentences
from .shortfalls import (
    Coverage,
    Shortfall,
    missing_entries,
    nothing_compared,
    replaced_baselines,
    shortfalls,
    unknown_tests,
)

if TYPE_CHECKING:
    from .session import RooflineSession

HEALTH = "device health"
# The name of the item that fails if all tests together are slower.
TOGETHER = "all tests together"


class Closing(pytest.Item):
    """An item that this plugin adds behind the tests; it stands in no file."""

    def reportinfo(self) -> tuple[str, None, str]:
        """Return the place of the item in reports."""
        return self.name, None, self.name


class DeviceHealth(Closing):
    """The item behind the tests that judges the device under load."""

    def __init__(self, *, parent: pytest.Session, state: "RooflineSession") -> None:
        super().__init__(HEALTH, parent, nodeid=HEALTH)
        self._state = state

    def runtest(self) -> None:
        """Fail for a DEGRADED device, with the cause first."""
        state = self._state
        is_degraded = bool(look(state, at_the_end=True))
        fails = is_degraded and "degraded" in state.options.fail_on
        first_line, *_ = state.health.split("\n")
        outcome = Outcome(
            HEALTH,
            "failed" if fails else "passed",
            verdicts=(DEGRADED,) if is_degraded else (),
            reason=first_line,
        )
        state.note_outcome(
            replace(outcome, by_verdict=fails, shadow=fails and state.options.shadow)
        )
        if fails:
            fail(self, state.options, state.health, DEVICE)


def looks_at_device(state: "RooflineSession") -> bool:
    """Return whether the device has sensors or the node has an expectation."""
    return state.under_test.gpu is not None or state.options.expect is not None


def look(state: "RooflineSession", *, at_the_end: bool = False) -> list[Finding]:
    """Note and return the findings that make the device DEGRADED.

    With `at_the_end` the sensors are read once more, now that the device has been under load.
    """
    path = state.options.expect
    try:
        expectation = read_expectation(path) if path is not None else None
    except BadFile as error:
        raise pytest.UsageError(str(error)) from None

    def rate(gpu: Gpu | None) -> Gpu | None:
        """Return a GPU's state, rated by the expectation if any."""
        return gpu if gpu is None or expectation is None else rated_by(expectation, gpu)

    # The states before the first test, and after the last.
    before, after = (
        rate(state.under_test.gpu),
        rate(state.under_test.device.gpu() if at_the_end else None),
    )
    measured = [row.measurement for row in state.rows if row.measurement is not None]
    findings = degradations(
        before,
        after,
        measured,
        differences(expectation, take_stock()) if expectation is not None else [],
    )
    state.degraded = tuple(finding.observed for finding in findings)
    state.health = health_message(findings) if findings else unknown_health(after or before)
    return findings


CUT = Shortfall(
    "pytest.exit(returncode=0) ended the run before every test had its verdict",
    "Let the test fail or be skipped. To end a run, pass another status to pytest.exit().",
)
CUT_AT_END = "pytest.exit(returncode=0) ended the run before its report"


class Gate(Closing):
    """The item that fails with the gaps of a gate."""

    def __init__(
        self,
        *,
        parent: pytest.Session,
        options: Options,
        state: "RooflineSession | None",
        gaps: list[Shortfall],
        name: str = GATE,
    ) -> None:
        """Make the item that fails for the gaps of a gate; its id is its name."""
        super().__init__(name, parent, nodeid=name)
        self._options, self._state, self._gaps = options, state, gaps

    def runtest(self) -> None:
        """Fail with the gaps of the gate.

        In shadow mode they are noted.
        """
        gap_texts = "; ".join(gap.text for gap in self._gaps)
        if self._state is not None:
            self._state.note_outcome(
                Outcome(
                    self.name,
                    "failed",
                    reason=encodable(gap_texts),
                    by_verdict=True,
                    shadow=self._options.shadow,
                )
            )
        # The item has another name where all tests together are slower.
        word = "GATE" if self.name == GATE else "REGRESSED"
        fail(
            self,
            self._options,
            "\n".join([f"{word}: {gap_texts}", *(f"  {gap.remedy}" for gap in self._gaps)]),
        )

    def run_last(self) -> None:
        """Run the item as pytest does, without other plugins' protocols.

        A plugin that reruns failed tests must not rerun a verdict.
        """
        self.session.testscollected += 1
        reporter: Any = self.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            # The line of the test before ends with its percentage, so the item begins a new line.
            reporter.currentfspath = None
        self.ihook.pytest_runtest_logstart(nodeid=self.nodeid, location=self.location)
        runtestprotocol(self, nextitem=None)
        self.ihook.pytest_runtest_logfinish(nodeid=self.nodeid, location=self.location)
        # No collection finds this item, so --lf would look for it in every later run.
        last_failed = _last_failed(self.config)
        for test_id in [test_id for test_id in last_failed if str(test_id) == self.name]:
            del last_failed[test_id]


class Gatekeeper:
    """The last look of a gate at what its run has compared."""

    def __init__(self, options: Options) -> None:
        self._options = options

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        """Refuse options that keep a gate from measuring.

        A conftest.py may have set some.
        """
        refuse_no_verdict(session.config)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, object, object]:
        """Fail a run that ends during collection with status 0."""
        with self._no_green_exit(session):
            return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> Generator[None, object, object]:
        """Add the gate's item behind every test and every deferred report.

        A run that pytest has stopped early gets none, since it is red already.
        """
        with self._no_green_exit(session):
            result = yield
        if not (session.shouldfail or session.shouldstop):
            state = open_session(session.config)
            if session.config.pluginmanager.hasplugin("dsession"):
                # With xdist, workers ran the tests, and those must not measure side by side.
                gaps = [Shortfall("nothing was compared", SIDE_BY_SIDE)]
            else:
                gaps = nothing_compared(state, why_no_test_runs(session.config))
            gaps += replaced_baselines(state.options if state is not None else self._options)
            if state is not None:
                missing = missing_entries(state)
                coverage = Coverage(state)
                gaps += shortfalls(state, missing, coverage)
                state.run_notes.warn(unknown_tests(missing, coverage))
            self._require(session, gaps)
        return result

    @contextlib.contextmanager
    def _no_green_exit(self, session: pytest.Session) -> Iterator[None]:
        """Fail the gate if `pytest.exit(returncode=0)` ends the run."""
        try:
            yield
            return
        except pytest.exit.Exception as error:
            stopped = error
        if stopped.returncode == pytest.ExitCode.OK:
            # The test that ended the run was not torn down, so its fixtures are finished here.
            session._setupstate.teardown_exact(None)
            self._require(session, [CUT])
            stopped.returncode = (
                pytest.ExitCode.TESTS_FAILED if session.testsfailed else pytest.ExitCode.OK
            )
        raise stopped

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(
        self, session: pytest.Session, exitstatus: int
    ) -> Generator[None, object, object]:
        """Note the end status, and turn a green exit red.

        That is an exit by `pytest.exit`.
        """
        try:
            result = yield
        except pytest.exit.Exception as error:
            # A round or a worker of xdist does not decide.
            decides = in_round(session.config) is None and not hasattr(
                session.config, "workerinput"
            )
            if error.returncode != pytest.ExitCode.OK or not decides or self._options.shadow:
                raise
            status = int(session.exitstatus) or int(pytest.ExitCode.TESTS_FAILED)
            raise pytest.exit.Exception(f"GATE: {CUT_AT_END}", status) from None
        # A conftest.py may set `session.exitstatus` to 0, but not the argument. This plugin sets the former to 1 where
        # a file could not be saved.
        session.config.stash[end_status_key] = int(exitstatus) or int(session.exitstatus)
        return result

    def _require(self, session: pytest.Session, gaps: list[Shortfall]) -> None:
        """Add a failed item for the gaps of a gate.

        A run that does not decide gets none.
        """
        config = session.config
        # An editor lists the tests of a project whose ini file asks for a gate.
        only_lists = not commands_gate(config) and any(
            config.getoption(name, False) for name in LOOKING
        )
        # A round or a worker of xdist does not decide.
        is_part = in_round(config) is not None or hasattr(config, "workerinput")
        if gaps and not only_lists and not is_part:
            Gate.from_parent(
                session, options=self._options, state=open_session(config), gaps=gaps
            ).run_last()

    @pytest.hookimpl(tryfirst=True)
    def pytest_report_teststatus(self, report: pytest.TestReport) -> tuple[str, str, str] | None:
        """Mark a test that a shadow gate would have failed.

        It has passed, and gets the mark `!`.
        """
        has_passed = report.when == "call" and report.outcome == "passed"
        if self._options.shadow and has_passed and PROPERTY in dict(report.user_properties):
            word = getattr(report, "roofline_word", "")
            prefix = f"PASSED {word}; " if word else ""
            return "passed", "!", f"{prefix}SHADOW: would have failed"
        return None

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print the shadow failures of a run that opened no device."""
        if self._options.shadow and open_session(terminalreporter.config) is None:
            for sentence in shadow_sentences(terminalreporter.config):
                terminalreporter.write_line(f"SHADOW: would have failed: {sentence}")


def fail_together(session: pytest.Session, state: "RooflineSession") -> None:
    """Fail a run if all tests together are slower.

    They are slower beyond the tolerance. Nothing happens where they are not, although single tests may be.
    """
    shared = state.timed.shared
    verdict = shared.regressed if shared is not None else None
    if verdict is None:
        return
    remedy = "Look for one common cause (clock, power limit, other processes, driver) before you look at single tests."
    gaps = [Shortfall(together_text(together_row(verdict)), remedy)]
    Gate.from_parent(
        session, options=state.options, state=state, gaps=gaps, name=TOGETHER
    ).run_last()
    if not state.options.shadow:
        _repeat_measuring(session, state)


def _repeat_measuring(session: pytest.Session, state: "RooflineSession") -> None:
    """Let pytest's `--lf` run every measuring test again."""
    measured_ids = {row.test for row in state.timed.rows}
    _last_failed(session.config).update(
        {item.nodeid: True for item in session.items if encodable(item.nodeid) in measured_ids}
    )


def _last_failed(config: pytest.Config) -> dict[str, bool]:
    """Return pytest's own mapping of the tests that `--lf` will run.

    The caller changes it in place. Where pytest keeps no cache it is a new mapping, which nobody reads.
    """
    plugin = config.pluginmanager.get_plugin("lfplugin")
    failed: dict[str, bool] = getattr(plugin, "lastfailed", {})
    return failed
