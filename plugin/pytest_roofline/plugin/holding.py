"""Tests whose verdict is still open: their reports wait until it is out, and then go through pytest's own hooks.

So JUnit, `--lf`, `xfail(strict=True)` and the exit status see one outcome, the final one. Fixtures are torn down when
the test has ended, as ever; only what is said of it waits.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from _pytest.runner import call_and_report

from ..core.rows import Row
from ..stats.verdicts import Kind
from .planned import encodable
from .session import RooflineSession


@dataclass(slots=True)
class DeferredReport:
    """A test that has ended but for its verdict: the call as it went, and the report of its teardown if it had one."""

    item: pytest.Item
    call: pytest.CallInfo[None]
    teardown: pytest.TestReport | None

    @property
    def duration_s(self) -> float:
        """Seconds of its set-up and its call."""
        return self.call.duration + self.item.stash.get(setup_key, 0.0)


held_key: pytest.StashKey[bool] = pytest.StashKey()
call_key: pytest.StashKey[pytest.CallInfo[None]] = pytest.StashKey()
setup_key: pytest.StashKey[float] = pytest.StashKey()
failure_key: pytest.StashKey[BaseException | None] = pytest.StashKey()


def may_hold(item: pytest.Item) -> bool:
    """Whether a test's report may wait: not where another plugin runs tests again by its own loop."""
    if _may_be_rerun(item):
        return False
    # A debugger waits for a failure on the spot, and whoever watches set-ups for pytest's own words.
    return not any(item.config.getoption(name, False) for name in ("usepdb", "setupshow", "setuponly"))


def _may_be_rerun(item: pytest.Item) -> bool:
    if item.get_closest_marker("flaky") is not None or item.config.getoption("reruns", None):
        return True
    # pytest-rerunfailures knows more ways to be asked: an ini value, a forced number.
    counted = getattr(item.config.pluginmanager.get_plugin("rerunfailures"), "get_reruns_count", None)
    return bool(counted is not None and counted(item))


def run(
    item: pytest.Item, nextitem: pytest.Item | None, note: Callable[[pytest.TestReport], None]
) -> DeferredReport | None:
    """Run a test as pytest does, but hold its report back where its verdict is open; then the test that is held.

    Args:
        item: the test.
        nextitem: that follows.
        note: takes the report of a test that was to be held, and that another plugin let fail for itself.
    """
    item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
    held = _phases(item, nextitem, note)
    item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
    return held


def _phases(
    item: Any, nextitem: pytest.Item | None, note: Callable[[pytest.TestReport], None]
) -> DeferredReport | None:
    # As in pytest's own `runtestprotocol`, which offers no place between the call and its report.
    has_request = hasattr(item, "_request")
    if has_request and not item._request:
        item._initrequest()
    held = False
    try:
        if call_and_report(item, "setup", True).passed:
            call_report = call_and_report(item, "call", False)
            open_still = item.stash.get(held_key, False)
            held = open_still and ended_well(call_report)
            if open_still and not held:
                item.stash[held_key] = False
                note(call_report)
            if not held:
                item.ihook.pytest_runtest_logreport(report=call_report)
        if item.session.shouldfail or item.session.shouldstop:
            nextitem = None
        teardown = call_and_report(item, "teardown", not held, nextitem=nextitem)
    finally:
        if has_request:
            item._request = False
            item.funcargs = None
    return DeferredReport(item, item.stash[call_key], teardown) if held else None


def ended_well(report: pytest.TestReport) -> bool:
    """Whether a test's body raised nothing: a strict xfail is reported as failed for that, ahead of its verdict."""
    return report.passed or (report.failed and str(report.longrepr).startswith("[XPASS(strict)]"))


def issue(held: DeferredReport, failure: BaseException | None) -> None:
    """Say at last how a held test ended.

    Args:
        held: the test.
        failure: what turned it red; None where it passes.
    """
    item, call = held.item, held.call
    item.stash[held_key] = False
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
    # Its fixtures are gone, but other plugins look for theirs here.
    item.funcargs = {}  # type: ignore[attr-defined]
    report = hook.pytest_runtest_makereport(item=item, call=final)
    hook.pytest_runtest_logreport(report=report)
    if held.teardown is not None:
        # JUnit takes the figures from the last report of a test.
        held.teardown.user_properties = list(item.user_properties)
        hook.pytest_runtest_logreport(report=held.teardown)
    hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)


def _excinfo(failure: BaseException) -> pytest.ExceptionInfo[BaseException]:
    # Only what was raised has the traceback that a report asks for.
    try:
        raise failure
    except BaseException:
        return pytest.ExceptionInfo(sys.exc_info(), _ispytest=True)  # type: ignore[arg-type]


def undecided(state: RooflineSession, item: pytest.Item) -> bool:
    """Whether what is said of a test may still change, and nothing has turned it red for good."""
    test_id = test_id_of(item)
    for_good = state.exhausted.red(test_id) or any(map(_decided, state.red_rows(test_id)))
    return not for_good and any(map(state.timed.may_change, state.timed.of(test_id)))


def _decided(row: Row) -> bool:
    """Whether more processes would be idle; what a kernel asks for is the same in all."""
    return row.judgement is None or row.judgement.verdict not in (Kind.INCONCLUSIVE, Kind.INVALID)


def test_id_of(item: pytest.Item) -> str:
    """The id under which a test stands in the run file."""
    return encodable(item.nodeid)
