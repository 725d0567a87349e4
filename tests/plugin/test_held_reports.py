"""Verdicts that are open when a test ends: its report waits for the end of the loop, and pytest sees one outcome."""

import json
import os
import xml.etree.ElementTree as ET

import pytest

# Six tests, each 7 % slower: not surely slower alone, but not by chance all together (Benjamini and Hochberg).
SIX = """
import pytest
from pytest_roofline import Work

@pytest.mark.parametrize("n", range(6))
def test_six(roofline, busy, n):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""
DOUBTFUL, SURE = 1.07, 1.3
# Not in its rounds, which would fail for themselves.
IN_THE_RUN = "if __import__('pytest_roofline.settings.round').settings.round.in_round(request.config) is None"
# Slow in its first process alone.
RECOVERS = {"*": [DOUBTFUL, 1.0, 1.0]}
# Events, in the order in which pytest and the suite come to them.
EVENTS = """
import os
from pathlib import Path

def happened(event):
    with Path("events").open("a") as file:
        file.write(f"{os.getpid()} {event}\\n")

def pytest_runtest_logreport(report):
    happened(f"{report.when} of {report.nodeid.rpartition('::')[2]} {report.outcome}")
"""


@pytest.fixture
def six(desk):
    """The options that compare six tests with five sessions of theirs, in which each of them is now doubtful."""
    against = desk.sessions(SIX)
    desk.script(slow=DOUBTFUL)
    return against


def failures(path):
    """(failures, errors) and the test cases of a JUnit file."""
    suite = ET.parse(path).getroot().find("testsuite")
    return (suite.get("failures"), suite.get("errors")), list(suite.iter("testcase"))


def test_a_doubtful_test_alone_passes_and_a_doubtful_suite_turns_red_as_pytest_sees_it_once(
    desk, six
):
    desk.pytester.makeconftest(desk.conftest + EVENTS + LEARNING)
    desk.suite(SIX.replace("n):", "n, record_property):\n    record_property('mine', 'kept')"))
    result = desk.run(*six, "-v", "--junitxml=report.xml")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(failed=6, errors=0)
    result.stdout.fnmatch_lines(["RED: 6 REGRESSED, 0 of 6 *"])
    run, names = desk.last_run(), [f"test_six[{n}]" for n in range(6)]
    assert [(outcome.outcome, outcome.by_verdict) for outcome in run.outcomes] == [
        ("failed", True)
    ] * 6
    assert {verdict.kind for verdict in run.verdicts} == {"REGRESSED"}
    assert all(verdict.p < verdict.p_adjusted <= 0.05 for verdict in run.verdicts)
    # JUnit, with the figures once, beside the user's own.
    counts, cases = failures(desk.path / "report.xml")
    assert (counts, [case.get("name") for case in cases]) == (("6", "0"), names)
    for case in cases:
        assert [child.get("message").partition(":")[0] for child in case.findall("failure")] == [
            "Failed"
        ]
        figures = [prop.get("name") for prop in case.iter("property")]
        assert len(figures) == len(set(figures))
        told = {prop.get("name"): prop.get("value") for prop in case.iter("property")}
        assert (told["mine"], told["roofline.verdict"]) == ("kept", "REGRESSED")
    # The lines of a verbose run, and every phase once and in order.
    assert result.stdout.str().count("PENDING, ") == 6
    events = events_of(desk)
    for name in names:
        assert [event for event in events if name in event] == [
            f"setup of {name} passed", f"call of {name} failed", f"teardown of {name} passed",
        ]  # fmt: skip
    # A fixture's teardown comes before the verdict is out.
    assert (desk.path / "learnt").read_text() == "passed"
    # --lf knows them, and forgets one that passes.
    desk.run("--collect-only", "--lf").stdout.fnmatch_lines(
        ["run-last-failure: rerun previous 6 failures"]
    )
    result = desk.run(*six, "--roofline-rounds=1", "-q", "-k", "six and 0")
    assert (result.ret, "PENDING" in result.stdout.str()) == (0, False)
    result.stdout.fnmatch_lines(["GREY: 0 of 1 *, 1 undecided (six[[]0] +7 %)"])
    known = json.loads((desk.path / ".pytest_cache" / "v" / "cache" / "lastfailed").read_text())
    assert sorted(known) == [f"test_suite.py::{name}" for name in names[1:]]


# As in pytest's own example: a fixture that learns how its test went.
LEARNING = """
@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_makereport(item, call):
    report = yield
    setattr(item, f"report_of_{report.when}", report)
    return report

@pytest.fixture(autouse=True)
def learning(request):
    yield
    Path("learnt").write_text(request.node.report_of_call.outcome)
"""


def events_of(desk):
    """What happened in the run itself: its rounds are processes of their own."""
    lines = (line.split(" ", 1) for line in (desk.path / "events").read_text().splitlines())
    return [event for process, event in lines if int(process) == os.getpid()]


FIXTURES = """
import pytest
from conftest import happened
from pytest_roofline import Work

@pytest.fixture(scope="module")
def of_module():
    happened("module up")
    yield
    happened("module down")

@pytest.fixture
def of_test(request, of_module):
    happened(f"up {request.node.name}")
    yield
    happened(f"down {request.node.name}")

@pytest.mark.parametrize("n", range(6))
def test_six(roofline, busy, n, of_test):
    print("what", n, "printed")
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""


def test_the_fixtures_of_a_held_test_are_torn_down_before_the_next_and_what_it_printed_is_shown(
    desk, monkeypatch
):
    monkeypatch.syspath_prepend(desk.path)
    desk.pytester.makeconftest(desk.conftest + EVENTS)
    against = desk.sessions(FIXTURES)
    desk.script(slow=DOUBTFUL)
    (desk.path / "events").unlink()
    result = desk.run(*against)
    result.assert_outcomes(failed=6)
    own = [event for event in events_of(desk) if " of " not in event]
    each = [event for n in range(6) for event in (f"up test_six[{n}]", f"down test_six[{n}]")]
    assert own == ["module up", *each, "module down"]
    assert [result.stdout.str().count(f"what {n} printed") for n in range(6)] == [1] * 6


def test_a_teardown_that_fails_on_a_held_test_is_an_error_beside_its_own_outcome(desk, six):
    text = SIX.replace(
        "n):", f"n, request):\n    {IN_THE_RUN}: request.addfinalizer(lambda: 1 / 0)"
    )
    desk.suite(text)
    desk.script(slow=RECOVERS)
    result = desk.run(*six, "-k", "six and 0", "--junitxml=report.xml", "--roofline-save=r")
    assert result.ret == 1
    result.assert_outcomes(passed=1, errors=1)
    assert failures(desk.path / "report.xml")[0] == ("0", "1")
    run = desk.saved("r")
    assert "ZeroDivisionError" in run.unfit(run.measurements[0], accept_slower=True)


UNITTEST = """
import unittest
import pytest
from pytest_roofline import Work

class TestOld(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def tools(self, roofline, busy):
        self.roofline, self.busy = roofline, busy

    def test_old(self):
        self.roofline.measure(lambda: self.busy(1e-3), work=Work(read_bytes=10**9))
        # the end
"""


def test_a_test_of_unittest_is_held_and_judged_as_any_other(desk):
    against = desk.sessions(UNITTEST)
    desk.script(slow=DOUBTFUL)
    desk.run(*against).assert_outcomes(failed=1)
    assert [each.outcome for each in desk.last_run().outcomes] == ["failed"]
    # One that fails for itself has no verdict, although that does not pass through pytest's call hook.
    desk.suite(UNITTEST.replace("# the end", "self.fail('results are wrong')"))
    for slow in (DOUBTFUL, 1.0):
        desk.script(slow=slow)
        result = desk.run(*against)
        result.assert_outcomes(failed=1)
        assert any(
            line.startswith("TestOld.old ") and line.endswith("FAILED")
            for line in result.stdout.lines
        )
        (outcome,) = desk.last_run().outcomes
        assert (outcome.outcome, outcome.by_verdict) == ("failed", False)
        assert "results are wrong" in outcome.reason


SPOILER = """
@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item, call):
    report = yield
    if call.when == "call":
        report.outcome, report.longrepr = "failed", "spoiled by another plugin"
    return report
"""


def test_a_test_that_another_plugin_fails_while_its_verdict_is_open_has_failed_for_itself(
    desk, six
):
    desk.pytester.makeconftest(desk.conftest + SPOILER)
    desk.run(*six, "-k", "six and 0").assert_outcomes(failed=1)
    (outcome,) = desk.last_run().outcomes
    assert (outcome.outcome, outcome.by_verdict) == ("failed", False)


SUBTESTS = """
from pytest_roofline import Work
def test_six(roofline, busy, subtests):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
    {body}
"""


@pytest.mark.skipif(not hasattr(pytest, "Subtests"), reason="needs pytest 9, which has subtests")
def test_a_held_test_of_which_a_part_fails_is_red_and_never_fit(desk):
    # pytest turns it red when it prints its report, and not before.
    against = desk.sessions(SUBTESTS.format(body=""))
    fails = f"{IN_THE_RUN}:\n        with subtests.test('a part'): assert False"
    desk.suite(SUBTESTS.format(body=fails).replace("subtests):", "subtests, request):"))
    desk.script(slow=RECOVERS)
    result = desk.run(*against)
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*contains 1 failed subtest*"])
    run = desk.last_run()
    assert run.unfit(run.measurements[0], accept_slower=True)


INTERRUPTED = """
import os
import signal
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9)

def stop():
    os.kill(os.getpid(), signal.SIGINT)

@pytest.fixture
def after(request):
    yield
    if request.node.name in {teardowns}:
        stop()

@pytest.mark.parametrize("n", range(6))
def test_six(roofline, busy, n, after):
    roofline.measure(lambda: busy(1e-3), work=WORK)
    if request_stop(n):
        stop()

def request_stop(n):
    return n in {bodies}
"""


def stopped(desk, against, bodies=(), teardowns=()):
    desk.suite(INTERRUPTED.format(bodies=bodies, teardowns=teardowns))
    return desk.run(*against, "-v", "--junitxml=report.xml", "--roofline-save=stopped")


def test_ctrl_c_reports_the_held_tests_and_keeps_all_that_was_measured(desk, six):
    result = stopped(desk, six, bodies=(3,))
    assert result.ret == pytest.ExitCode.INTERRUPTED
    run = desk.saved("stopped")
    assert [m.label for m in run.measurements] == [f"six[{n}]" for n in range(4)]
    assert [outcome.test_id[-3:] for outcome in run.outcomes] == ["[0]", "[1]", "[2]"]
    assert run.footer.exit_status == 2
    ended = [
        line
        for line in result.stdout.lines
        if "::test_six" in line and ("PASSED" in line or "FAILED" in line)
    ]
    assert len(ended) == 3
    # In the teardown of a held test, that one too.
    desk.run_path("stopped").unlink()
    assert stopped(desk, six, teardowns=("test_six[1]",)).ret == pytest.ExitCode.INTERRUPTED
    run = desk.saved("stopped")
    assert [m.label for m in run.measurements] == ["six[0]", "six[1]"]
    assert [outcome.test_id[-3:] for outcome in run.outcomes] == ["[0]", "[1]"]


# The first attempt is slow and fails, the next ones are lucky.
LUCKY = """
import pytest
from pytest_roofline import Work
attempts = []
{mark}
def test_one(roofline, busy):
    attempts.append(1)
    roofline.measure(lambda: busy(1e-3 * ({slow} if len(attempts) == 1 else 1.0)), work=Work(read_bytes=10**9))
"""


def test_a_rerun_can_neither_turn_slow_into_fast_nor_be_held(desk):
    against = desk.sessions(LUCKY.format(mark="", slow=1.0))
    flaky = "@pytest.mark.flaky(reruns=2)"
    for mark, options, ini in (
        ("", ("--reruns=2", "--roofline-rounds=auto"), ()),
        (flaky, (), ()),
        ("", (), ("reruns = 2",)),
    ):
        desk.ini(*ini)
        desk.suite(LUCKY.format(mark=mark, slow=SURE))
        desk.script()
        result = desk.run(*against, *options)
        assert result.ret == 0
        result.stdout.fnmatch_lines(
            ["INCONCLUSIVE *: looks 30 % slower;*", "GREY: 0 of 1 *, 1 undecided (* +30*%)"]
        )
        assert "round 2" not in result.stdout.str()
        # Slow in both attempts, of which the first fails.
        desk.suite(LUCKY.format(mark=mark, slow=1.0) + "    assert len(attempts) > 1\n")
        desk.script(slow=DOUBTFUL)
        result = desk.run(*against, *options, "-v")
        assert "PENDING" not in result.stdout.str()
        assert result.parseoutcomes() == {"passed": 1, "rerun": 1}


def test_where_no_test_can_be_held_what_looks_slow_stays_open(desk, monkeypatch):
    # Nobody answers the debugger.
    monkeypatch.setattr("pdb.Pdb.interaction", lambda *arguments: None)
    against = desk.sessions(SIX)
    desk.script(slow={"test_six[0]": SURE})
    for option in ("--setup-show", "--pdb"):
        result = desk.run(*against, option, "--roofline-rounds=auto", "-k", "six and 0")
        assert result.ret == 0, option
        result.stdout.fnmatch_lines(["GREY: 0 of 1 *, 1 undecided (* +30*%)"])
