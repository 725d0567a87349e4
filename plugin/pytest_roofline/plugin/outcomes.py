"""How each test ended, for the run file and for the closing counts."""

import re
from typing import Literal

import pytest

from ..core.records import Outcome
from ..core.rows import FAILED
from .holding import ended_well
from .planned import encodable
from .session import RooflineSession

_VERDICT = re.compile(r"roofline\.(.*\.)?verdict", re.DOTALL)


def note(session: RooflineSession, item: pytest.Item, report: pytest.TestReport, by_verdict: bool) -> None:
    """Write a test's end down: after its call, and again where its teardown fails.

    Args:
        session: the run.
        item: a test that measures.
        report: of one phase.
        by_verdict: whether the test failed only because a verdict turned it red.
    """
    if type(report) is not pytest.TestReport:
        # A sub-test's report; the test's own follows.
        return
    test_id = encodable(item.nodeid)
    if session.round is not None and ended_well(report) and report.failed:
        # Expected to fail by its verdict, which only the parent gives.
        by_verdict = True
    if report.failed and not by_verdict and report.when == "call":
        session.retract(test_id)
    if report.skipped and (session.timed.of(test_id) or session.compiled.of(test_id)):
        session.call_it(test_id, "XFAIL" if hasattr(report, "wasxfail") else "SKIPPED")
    elif report.skipped and not hasattr(report, "wasxfail"):
        session.not_measured[_skip_reason(report)] += 1
    if report.when == "call" or report.failed or (report.when == "setup" and report.skipped):
        verdicts = tuple(row.verdict for row in session.timed.of(test_id))
        verdicts += tuple(word for record in session.exhausted.of(test_id) for word in record.words)
        verdicts += tuple(row.verdict for row in session.compiled.of(test_id))
        session.note_outcome(
            Outcome(
                test_id=test_id,
                outcome="passed" if session.round is not None and ended_well(report) else _outcome(report, by_verdict),
                verdicts=verdicts,
                reason=_reason(report),
                by_verdict=by_verdict and report.when == "call",
                shadow=by_verdict and report.failed and report.when == "call" and session.options.shadow,
            )
        )


def name_failed(item: pytest.Item, report: pytest.TestReport) -> None:
    """Put FAILED for the verdict among the figures of a test that failed for itself, as a report of the run says."""
    pairs = [(name, FAILED if _VERDICT.fullmatch(name) else value) for name, value in item.user_properties]
    item.user_properties[:] = pairs
    report.user_properties = list(pairs)


def _outcome(report: pytest.TestReport, by_verdict: bool) -> Literal["passed", "failed", "skipped"]:
    if report.failed or by_verdict:
        return "failed"
    # An expected failure is reported as skipped, but what it measured did not pass.
    return "failed" if hasattr(report, "wasxfail") and report.skipped else report.outcome


def _skip_reason(report: pytest.TestReport) -> str:
    longrepr = report.longrepr
    reason = longrepr[2] if isinstance(longrepr, tuple) else str(longrepr)
    return encodable(reason.removeprefix("Skipped: "))


def _reason(report: pytest.TestReport) -> str:
    if hasattr(report, "wasxfail"):
        return encodable(f"xfail: {report.wasxfail}")
    if report.failed:
        crash = getattr(report.longrepr, "reprcrash", None)
        text = crash.message if crash is not None else str(report.longrepr)
        return encodable(text.splitlines()[0] if text else "failed")[:300]
    return _skip_reason(report) if report.skipped else ""
