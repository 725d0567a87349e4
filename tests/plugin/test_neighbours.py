"""Beside other plugins and pytest's own flows: xfail, reruns, xdist, and plugins switched off."""

import pytest

XFAIL = "@pytest.mark.xfail(strict=True, reason='known since 570')"


def test_a_regression_can_be_acknowledged_by_xfail(desk):
    against = desk.five_runs_of_one(XFAIL)
    desk.script(slow=1.3)
    result = desk.run("-v", *against)
    assert result.ret == 0
    result.assert_outcomes(xfailed=1)


def test_an_acknowledged_regression_is_no_fit_measurement(desk):
    against = desk.five_runs_of_one(XFAIL)
    desk.script(slow=1.3)
    desk.run(*against, "--roofline-save=known")
    run = desk.saved("known")
    assert run.unfit(run.measurements[0], accept_slower=False)


def test_a_strict_xfail_that_passes_turns_red(desk):
    against = desk.five_runs_of_one(XFAIL)
    result = desk.run("-v", *against)
    assert result.ret == 1
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*XPASS(strict)*known since 570*"])


def test_a_lax_xfail_that_passes_is_an_xpass(desk):
    against = desk.five_runs_of_one("@pytest.mark.xfail(reason='noisy')")
    result = desk.run(*against)
    assert result.ret == 0
    result.assert_outcomes(xpassed=1)


RERUN = """
from pytest_roofline import Work
attempts = []
def test_one(roofline, fake):
    attempts.append(1)
    seconds = {seconds} * (1.5 if len(attempts) == 1 and {slow} else 1.0)
    roofline.measure(lambda: fake.work(seconds), work=Work(read_bytes=10**6))
"""
FIRST_FAILS = "    assert len(attempts) > 1\n"


@pytest.mark.parametrize("seconds", [0.001, 0.02], ids=["short", "long"])
def test_a_lucky_second_attempt_cannot_make_a_slow_one_unseen(desk, seconds):
    # Of a long call the slow attempt takes fewer samples, so the lucky one could outvote it.
    against = desk.five_runs(RERUN.format(seconds=seconds, slow=False))
    desk.suite(RERUN.format(seconds=seconds, slow=True) + FIRST_FAILS)
    result = desk.run("--reruns", "1", *against)
    result.stdout.fnmatch_lines(["INCONCLUSIVE one: looks 50 % slower;*"])


def test_all_samples_of_all_attempts_are_kept(desk):
    against = desk.five_runs(RERUN.format(seconds=0.001, slow=False))
    desk.suite(RERUN.format(seconds=0.001, slow=True) + FIRST_FAILS)
    desk.run("--reruns", "1", *against)
    first, second = desk.last_run().measurements
    assert first.median_s == pytest.approx(1.5e-3)
    assert second.median_s == pytest.approx(1e-3)


def test_reruns_leave_an_unchanged_run_green_and_judged_once(desk):
    against = desk.five_runs_of_one()
    result = desk.run("--reruns", "2", *against)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["1 of 1 compared: 1 PASSED", "1 measured"])


def test_xdist_with_workers_is_a_usage_error_that_says_why(desk):
    desk.suite()
    result = desk.subprocess("-n", "2", "-p", "no:hypothesispytest")
    text = f"{result.stdout.str()}\n{result.stderr.str()}"
    assert result.ret == pytest.ExitCode.USAGE_ERROR, text
    assert "side by side" in text
    assert "-n 0" in text
    assert "Traceback" not in text
    assert "INTERNALERROR" not in text
    assert not (desk.path / ".roofline").exists()


def test_xdist_without_workers_measures(desk):
    desk.suite()
    result = desk.run("-n", "0")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["2 measured"])


def test_xdist_leaves_a_suite_that_does_not_measure_alone(desk):
    desk.suite("def test_a(): pass\ndef test_b(): pass\n")
    result = desk.subprocess("-n", "2", "-p", "no:hypothesispytest")
    assert result.ret == 0
    result.assert_outcomes(passed=2)


def test_without_the_plugin_other_suites_run(desk):
    desk.suite("def test_nothing(): pass\n")
    assert desk.run("-p", "no:roofline").ret == 0


def test_without_the_plugin_its_options_are_unknown(desk):
    desk.suite("def test_nothing(): pass\n")
    assert desk.run("-p", "no:roofline", "--roofline-tier=quick").ret == 4


@pytest.mark.parametrize("name", ["benchmark", "terminal", "cacheprovider", "xdist", "rerunfailures", "randomly"])
def test_without_another_plugin_it_still_gates(desk, name):
    against = desk.five_runs()
    arguments = ["-p", f"no:{name}", *against]
    assert desk.run(*arguments).ret == 0
    desk.script(slow=1.3)
    assert desk.run(*arguments).ret == 1
    assert desk.last_run().footer.exit_status == 1


def test_it_measures_beside_pytest_benchmark(desk):
    pytest.importorskip("pytest_benchmark")
    desk.suite("""
from pytest_roofline import Work
def test_theirs(benchmark): benchmark.pedantic(lambda: None, rounds=1, iterations=1)
def test_ours(roofline, busy): roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
""")
    result = desk.run()
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["1 measured"])


def test_tests_of_unittest_and_doctest_run_beside_it(desk):
    desk.suite()
    desk.suite(
        """
import unittest
class TestOld(unittest.TestCase):
    def test_it(self):
        '''
        >>> 1 + 1
        2
        '''
""",
        "test_old",
    )
    desk.run("--doctest-modules").assert_outcomes(passed=4)


def test_no_capture_changes_nothing(desk):
    desk.suite()
    result = desk.run("-s")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["2 measured"])
