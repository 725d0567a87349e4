"""What all tests of a run share is told once and is no test's own slowdown; and how many processes a red one needs."""

import pytest

SIX = """
import json

import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)

@pytest.mark.parametrize("way", ["a", "b", "c", "d", "e", "f"])
def test_way(roofline, busy, way):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""
# Days on which all tests were slower or faster together, 3 % apart.
TOGETHER = (1.0, 1.03, 0.97, 1.02, 0.98)


def verdicts(desk):
    return {
        judgement.label: (judgement.verdict, judgement.processes)
        for judgement in desk.last_run().judgements
    }


@pytest.fixture
def six(desk):
    """The options that compare six tests with five days, on each of which all moved together."""
    return desk.sessions(SIX, TOGETHER, together=True)


def test_what_all_share_as_on_other_days_turns_no_test_red(desk, six):
    desk.script(slow=1.03)
    assert desk.run(*six).ret == 0
    assert {verdict for verdict, _ in verdicts(desk).values()} <= {"PASSED", "INCONCLUSIVE"}


def test_a_test_that_is_slower_than_the_others_is_red_by_itself(desk, six):
    desk.script(slow={"*": 1.03, "test_way[c]": 1.03 * 1.12})
    result = desk.run(*six)
    assert result.ret == 1
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(
        [
            "way[[]c]: +12.0 % time * REGRESSED*",
            "*all tests of this run moved together, +3.0 % of it is taken out here*",
        ]
    )


def test_all_tests_together_fail_the_run_where_none_of_them_stands_out(desk, six):
    desk.script(slow=1.3)
    result = desk.run(*six)
    assert result.ret == 1
    result.assert_outcomes(passed=6, failed=1)
    result.stdout.fnmatch_lines(
        ["REGRESSED: all tests together take +30.0 % time (*, 3 processes against 5), *"]
    )
    # What is said once is said of no test again.
    assert set(verdicts(desk).values()) == {("PASSED", 3)}


def test_what_looks_slow_is_red_after_three_processes_without_any_option(desk):
    against = desk.five_sessions_of_one()
    desk.script(slow=1.3)
    assert desk.run(*against).ret == 1
    assert verdicts(desk) == {"one": ("REGRESSED", 3)}
    result = desk.run(*against, "--roofline-rounds=1")
    assert result.ret == 0
    assert verdicts(desk) == {"one": ("INCONCLUSIVE", 1)}
    result.stdout.fnmatch_lines(
        [
            "INCONCLUSIVE one: looks 30 % slower; --roofline-rounds=auto decides: red needs 3 processes*"
        ]
    )


def test_where_no_time_is_left_the_last_look_stands(desk, six):
    # Too near the tolerance for a first look of twelve, and near enough to pass by the last one.
    desk.script(slow={"*": 1.03, "test_way[c]": 1.03 * 1.028})
    desk.run(*six, "--roofline-rounds=auto", "--roofline-time=0.001s")
    assert verdicts(desk)["way[c]"] == ("PASSED", 1)
