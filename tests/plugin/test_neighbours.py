"""Beside other plugins and pytest's own flows: reruns, xdist, and plugins switched off."""

import pytest

from .conftest import ONE


def test_xdist_with_workers_skips_what_measures_with_the_reason_and_runs_the_rest(desk):
    desk.suite(f"{ONE.format(marks='')}\ndef test_ordinary(): pass\n")
    asked = ("-n", "1", "-rfE", "-p", "no:hypothesispytest")
    result = desk.subprocess(*asked)
    result.assert_outcomes(passed=1, skipped=1)
    result.stdout.fnmatch_lines(
        ["roofline: skipped tests that measure: 1; pytest-xdist runs *; expected -n 0 or no -n*"]
    )
    # A gate that measures nothing is red.
    result = desk.subprocess(*asked, "--roofline-ci")
    result.assert_outcomes(passed=1, failed=1, errors=1)
    result.stdout.fnmatch_lines(
        ["FAILED roofline gate*nothing was compared*", "ERROR *::test_one - *side by side*"]
    )
    result = desk.subprocess(*asked, "--roofline-ci=shadow")
    result.assert_outcomes(passed=2, skipped=1)
    result.stdout.fnmatch_lines(["SHADOW: would have failed: GATE: nothing was compared"])
    assert not (desk.path / ".roofline").exists()
    assert desk.run("-n", "0", "-s").ret == 0


def test_without_the_plugin_other_suites_run_and_its_options_are_unknown(desk):
    desk.suite("def test_nothing(): pass\n")
    assert desk.run("-p", "no:roofline").ret == 0
    assert desk.run("-p", "no:roofline", "--roofline-tier=quick").ret == 4


def test_without_another_plugin_it_still_gates(desk):
    desk.one()
    for names in (
        ["terminal"],
        ["benchmark", "cacheprovider", "junitxml"],
        ["xdist", "rerunfailures", "skipping"],
    ):
        arguments = [
            *(option for name in names for option in ("-p", f"no:{name}")),
            "--roofline-min-percent=55",
        ]
        for slow in (1.0, 1.3):
            desk.script(slow=slow)
            assert (
                desk.run(*arguments).ret == desk.last_run().footer.exit_status == int(slow > 1)
            ), names


def test_it_measures_beside_pytest_benchmark_unittest_and_doctest(desk):
    pytest.importorskip("pytest_benchmark")
    desk.suite("""
import unittest
from pytest_roofline import Work
def test_theirs(benchmark): benchmark.pedantic(lambda: None, rounds=1, iterations=1)
def test_ours(roofline, busy): roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
class TestOld(unittest.TestCase):
    def test_it(self):
        '''
        >>> 1 + 1
        2
        '''
""")
    result = desk.run("--doctest-modules")
    result.assert_outcomes(passed=4)
    result.stdout.fnmatch_lines(["1 measured"])
