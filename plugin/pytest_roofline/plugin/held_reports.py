"""Tests with an open verdict: their reports wait for it, and then go through pytest's own hooks.

So JUnit, `--lf`, `xfail(strict=True)` and the exit status see one outcome, the final one. Fixtures are torn down when
the test has ended, as ever; only what is said of it waits. How each test ended stands in the run file.
"""

import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import pytest
from _pytest.runner import call_and_report

from ..core.records import Outcome
from ..core.rows import FAILED
from ..core.units import encodable
from ..core.verdicts import Kind
from ..settings.command_line import ON_THE_SPOT
from .results import OTHER, SLOWER, let_pass

if TYPE_CHECKING:
    from .session import RooflineSession


@dataclass(slots=True)
class DeferredReport:
    """A test that has ended without its verdict: the call, and the report of its teardown, if any.

    `duration_s` are seconds from its set-up to its teardown.
    """

    item: pytest.Item
    call: pytest.CallInfo[None]
    teardown: pytest.TestReport | None
    duration_s: float = 0.0


deferral_key: pytest.StashKey[bool] = pytest.StashKey()
call_key: pytest.StashKey[pytest.CallInfo[None]] = pytest.StashKey()
failure_key: pytest.StashKey[BaseException | None] = pytest.StashKey()
_VERDICT = re.compile(r"roofline\.(.*\.)?verdict", re.DOTALL)


def may_defer(item: pytest.Item) -> bool:
    """Return whether a test's report may wait.

    It may not where another plugin runs tests again in its own loop, or where an option asks for reports at once.
    """
    config = item.config
    # pytest-rerunfailures also reads an ini value and a forced number, so its own function is called.
    count_reruns = getattr(
        config.pluginmanager.get_plugin("rerunfailures"), "get_reruns_count", None
    )
    if item.get_closest_marker("flaky") or (count_reruns is not None and count_reruns(item)):
        return False
    # A debugger needs the failure at once, and `--setup-show` prints in pytest's own order.
    return not any(config.getoption(name, None) for name in ON_THE_SPOT)


def run(
    state: "RooflineSession", item: pytest.Item, nextitem: pytest.Item | None
) -> DeferredReport | None:
    """Run a test as pytest does, with set-up, call and teardown.

    Return its report if that has to wait for the verdict.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    deferred_report = _phases(state, item, nextitem)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return deferred_report


def _phases(
    state: "RooflineSession", item: Any, nextitem: pytest.Item | None
) -> DeferredReport | None:
    """Run the phases of a test.

    Return its deferred report, if any.
    """
    # This is pytest's own `runtestprotocol`, which has no hook between the call and its report.
    has_request = hasattr(item, "_request")
    if has_request and not item._request:
        item._initrequest()
    is_deferred, began_s = False, time.monotonic()
    try:
        if call_and_report(item, "setup", True).passed:
            call_report = call_and_report(item, "call", False)
            # The hook around the call has set this where the verdict needs further rounds.
            is_open = item.stash.get(deferral_key, False)
            is_deferred = is_open and ended_well(call_report)
            if is_open and not is_deferred:
                # The verdict was open, but another plugin made the test fail.
                item.stash[deferral_key] = False
                note(state, item, call_report, by_verdict=False)
            if not is_deferred:
                item.ihook.pytest_runtest_logreport(report=call_report)
        if item.session.shouldfail or item.session.shouldstop:
            # No test follows, so the teardown ends the fixtures of modules and session too.
            nextitem = None
        teardown = call_and_report(item, "teardown", not is_deferred, nextitem=nextitem)
    finally:
        if has_request:
            item._request = False
            item.funcargs = None
    return (
        DeferredReport(item, item.stash[call_key], teardown, time.monotonic() - began_s)
        if is_deferred
        else None
    )


def ended_well(report: pytest.TestReport) -> bool:
    """Return whether a test's body raised nothing.

    It passed, or passed against a strict xfail. pytest reports a strict xfail as failed for that, although its verdict
    may still fail it as expected.
    """
    return report.passed or (report.failed and str(report.longrepr).startswith("[XPASS(strict)]"))


def issue(deferred_report: DeferredReport, failure: BaseException | None) -> None:
    """Report how a test with a deferred report ended.

    `failure` is what its verdict raises; None lets it pass.
    """
    item, call = deferred_report.item, deferred_report.call
    item.stash[deferral_key] = False
    item.stash[failure_key] = failure
    final: pytest.CallInfo[None] = pytest.CallInfo(
        result=None if failure is not None else call.result,
        excinfo=_excinfo(failure) if failure is not None else None,
        start=call.start,
        stop=call.stop,
        duration=call.duration,
        when="call",
        _ispytest=True,
    )
    hook = item.ihook
    hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    # The fixtures are gone, but other plugins look for theirs in this mapping.
    item.funcargs = {}  # type: ignore[attr-defined]
    report = hook.pytest_runtest_makereport(item=item, call=final)
    hook.pytest_runtest_logreport(report=report)
    if deferred_report.teardown is not None:
        # JUnit XML takes the figures from the last report of a test.
        deferred_report.teardown.user_properties = list(item.user_properties)
        hook.pytest_runtest_logreport(report=deferred_report.teardown)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _excinfo(failure: BaseException) -> pytest.ExceptionInfo[BaseException]:
    """Return pytest's information on a failure.

    It is raised here, since a report needs a traceback.
    """
    try:
        raise failure
    except BaseException:
        return pytest.ExceptionInfo(sys.exc_info(), _ispytest=True)  # type: ignore[arg-type]


def publish(state: "RooflineSession", item: pytest.Item) -> BaseException | None:
    """Attach a test's figures, and return its failure, if any."""
    test_id = test_id_of(item)
    # The figures of an earlier attempt of a rerun are dropped; what others attached stays.
    other_properties = [
        (name, value) for name, value in item.user_properties if not name.startswith("roofline.")
    ]
    figures = [pair for kind in state.kinds for pair in kind.properties(test_id)]
    item.user_properties[:] = [*other_properties, *figures]
    path = state.writer.path
    where = "" if path is None else relative(path, item.config.rootpath)
    messages = [kind.message(row, where, state.degraded) for kind, row in state.reds(test_id)]
    return pytest.fail.Exception("\n".join(messages), pytrace=False) if messages else None


def pass_in_shadow(
    state: "RooflineSession", item: pytest.Item, report: pytest.TestReport, reason: str
) -> None:
    """Let a test of a shadow gate pass, and note why.

    Only its verdict fails it. Its largest slowdown is noted too, by which the reasons of a run are sorted.
    """
    test_id = test_id_of(item)
    slowdown = max((row.slowdown or 0.0 for _, row in state.reds(test_id)), default=0.0)
    regressed = any(
        row.time_verdict is not None and row.time_verdict.kind is Kind.REGRESSED
        for row in state.rows_of(test_id)
    )
    let_pass(item, reason, SLOWER if regressed else OTHER, slowdown)
    report.outcome, report.longrepr = "passed", None
    report.user_properties = list(item.user_properties)


def relative(path: Path, folder: Path) -> str:
    """Return a path as text, relative to a folder around it."""
    return str(path.relative_to(folder)) if path.is_relative_to(folder) else str(path)


def is_undecided(state: "RooflineSession", item: pytest.Item) -> bool:
    """Return whether further rounds may change a test's verdict.

    They may not if a red of it is final.
    """
    test_id = test_id_of(item)
    # A red that no further process can change ends the test.
    is_final = any(kind.is_final(row) for kind, row in state.reds(test_id))
    return not is_final and any(kind.may_change(test_id) for kind in state.kinds)


def test_id_of(item: pytest.Item) -> str:
    """Return the id of a test in the run file."""
    return encodable(item.nodeid)


def note(
    session: "RooflineSession", item: pytest.Item, report: pytest.TestReport, by_verdict: bool
) -> None:
    """Write into the run how a test ended.

    That is after its call, after a failed phase, or after a set-up that skips it. `by_verdict` tells whether its
    verdict fails it, and not the test itself.
    """
    if type(report) is not pytest.TestReport:
        # This is the report of a sub-test; that of the test follows.
        return
    test_id = test_id_of(item)
    if session.round is not None and ended_well(report) and report.failed:
        # A strict xfail expects the test to fail by its verdict, which only the parent of a round gives.
        by_verdict = True
    if report.failed and not by_verdict and report.when == "call":
        # The results of a test that failed for itself do not count.
        session.retract(test_id)
    rows = session.rows_of(test_id)
    if report.skipped and rows:
        session.name_end(test_id, "XFAIL" if hasattr(report, "wasxfail") else "SKIPPED")
    elif report.skipped and not hasattr(report, "wasxfail"):
        session.not_measured[_skip_reason(report)] += 1
    is_call = report.when == "call"
    if is_call or report.failed or (report.when == "setup" and report.skipped):
        has_passed_round = session.round is not None and ended_well(report)
        verdicts = (verdict for kind in session.kinds for verdict in kind.verdicts(test_id))
        session.note_outcome(
            Outcome(
                test_id=test_id,
                outcome="passed" if has_passed_round else _outcome(report, by_verdict),
                verdicts=tuple(verdicts),
                reason=end_reason(report),
                by_verdict=by_verdict and is_call,
                shadow=by_verdict and report.failed and is_call and session.options.shadow,
            )
        )


def name_failed(item: pytest.Item, report: pytest.TestReport) -> None:
    """Replace the verdicts in a failed test's figures by FAILED."""
    pairs = [
        (name, FAILED if _VERDICT.fullmatch(name) else value)
        for name, value in item.user_properties
    ]
    item.user_properties[:] = pairs
    report.user_properties = list(pairs)


def _outcome(report: pytest.TestReport, by_verdict: bool) -> Literal["passed", "failed", "skipped"]:
    """Return the outcome of a test for the run file.

    An expected failure is `failed`.
    """
    if report.failed or by_verdict:
        return "failed"
    # pytest reports an expected failure as skipped.
    return "failed" if hasattr(report, "wasxfail") and report.skipped else report.outcome


def _skip_reason(report: pytest.TestReport) -> str:
    """Return why a test was skipped, without pytest's prefix."""
    longrepr = report.longrepr
    if isinstance(longrepr, tuple):
        _file, _line, reason = longrepr
    else:
        reason = str(longrepr)
    return encodable(reason.removeprefix("Skipped: "))


def end_reason(report: pytest.TestReport) -> str:
    """Return why a test failed or was skipped, if so.

    An expected failure has the reason of its mark.
    """
    if hasattr(report, "wasxfail"):
        return encodable(f"xfail: {report.wasxfail}")
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash is not None else str(report.longrepr)
        return encodable(text.splitlines()[0] if text else "failed")[:300]
    return _skip_reason(report) if report.skipped else ""
