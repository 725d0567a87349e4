"""The main story: saved runs as comparison, an equal run passes, a slower one turns the build red."""

import re
import xml.etree.ElementTree as ET

import pytest


def test_an_equal_run_passes(desk):
    against = desk.five_runs()
    result = desk.run(*against)
    assert result.ret == 0
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["2 of 2 compared: 2 PASSED", "2 measured"])


def test_a_run_thirty_percent_slower_fails_in_the_call_phase(desk):
    against = desk.five_runs()
    desk.script(slow={"test_copy[64MiB]": 1.3})
    result = desk.run(*against)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(passed=1, failed=1, errors=0)
    result.stdout.fnmatch_lines(["2 of 2 compared: 1 REGRESSED, 1 PASSED"])


def test_the_message_of_a_regression_has_two_lines_in_the_promised_form(desk):
    against = desk.five_runs()
    desk.script(slow={"test_copy[64MiB]": 1.3}, driver="570.86")
    result = desk.run(*against)
    lines = result.stdout.lines
    first = next(index for index, line in enumerate(lines) if line.startswith("copy[64MiB]: "))
    assert re.fullmatch(
        r"copy\[64MiB\]: \+30\.\d % time \(1538 GB/s, baseline 2000 GB/s\) REGRESSED, tolerance 5 %, "
        r"99 % interval \+\d+\.\d … \+\d+\.\d %, 3 against 5 processes",
        lines[first],
    )
    second = lines[first + 1]
    assert second.startswith("  driver 550.54 → 570.86; ")
    assert "; 5 of 5 processes behind the baseline were faster" in second
    assert re.search(r"Details: \.roofline/runs/\S+\.jsonl; .*`roofline baseline propose", second)


def test_a_message_names_no_change_where_nothing_changed(desk):
    against = desk.five_runs()
    desk.script(slow=1.3)
    assert "→" not in desk.run(*against).stdout.str()


def test_a_regression_shows_no_traceback_of_the_plugin(desk):
    against = desk.five_runs()
    desk.script(slow=1.3)
    text = desk.run(*against).stdout.str()
    assert "plugin.py" not in text
    assert "pytest.fail" not in text


def test_junit_counts_one_failure_and_carries_the_figures(desk):
    against = desk.five_runs()
    desk.script(slow={"test_copy[64MiB]": 1.3})
    desk.run(*against, "--junitxml=junit.xml")
    suite = ET.parse(desk.path / "junit.xml").getroot().find("testsuite")
    assert (suite.get("failures"), suite.get("errors")) == ("1", "0")
    case = next(case for case in suite.iter("testcase") if "64MiB" in case.get("name"))
    figures = {prop.get("name"): prop.get("value") for prop in case.iter("property")}
    assert figures["roofline.verdict"] == "REGRESSED"
    assert float(figures["roofline.change"]) == pytest.approx(0.3, abs=0.01)
    assert (float(figures["roofline.rate"]), figures["roofline.rate_unit"]) == (pytest.approx(1538e9, rel=0.01), "B/s")
    assert "REGRESSED" in case.find("failure").get("message")


def test_the_run_file_holds_the_verdict_and_that_it_alone_failed_the_test(desk):
    against = desk.five_runs()
    desk.script(slow={"test_copy[64MiB]": 1.3})
    desk.run(*against)
    run = desk.last_run()
    outcomes = {outcome.test_id.partition("::")[2]: outcome for outcome in run.outcomes}
    assert outcomes["test_copy[64MiB]"].verdicts == ("REGRESSED",)
    assert outcomes["test_copy[64MiB]"].outcome == "failed"
    assert outcomes["test_copy[64MiB]"].by_verdict
    assert outcomes["test_copy[1GiB]"].outcome == "passed"
    assert run.footer.exit_status == 1


def test_lf_reruns_only_the_regressed_test(desk):
    against = desk.five_runs()
    desk.script(slow={"test_copy[64MiB]": 1.3})
    desk.run(*against)
    result = desk.run("--lf", "-v", *against)
    result.assert_outcomes(failed=1)
    assert "1GiB" not in result.stdout.str()


def test_an_improvement_passes_and_is_said(desk):
    against = desk.five_runs()
    desk.script(slow=0.8)
    result = desk.run("-v", *against)
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        ["*64MiB* PASSED 2500 GB/s -20.* % (-* … -* %, 1 against 5) IMPROVED*", "2 of 2 compared: 2 IMPROVED"]
    )


def test_what_is_within_the_tolerance_passes(desk):
    against = desk.five_runs()
    desk.script(slow=1.03)
    result = desk.run(*against)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["2 of 2 compared: 2 PASSED"])


def test_one_saved_run_is_enough_to_catch_a_third(desk):
    desk.five_runs()
    desk.script(slow=1.3)
    result = desk.run("--roofline-against=run0")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*11 against 1 process*", "*one process behind the baseline. Details*"])


def test_every_measurement_of_a_test_is_judged(desk):
    text = """
from pytest_roofline import Work
def test_both(roofline, busy, request):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9), name="down")
    roofline.measure(lambda: busy(2e-3), work=Work(read_bytes=10**9), name="up")
"""
    against = desk.five_runs(text)
    desk.script(slow=1.5)
    result = desk.run(*against)
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["both.down: +50.* REGRESSED*", "both.up: +50.* REGRESSED*", "2 measured, 3 rounds"])


def test_approved_runs_gate_from_the_rootdir_without_an_option(desk):
    desk.baseline()
    desk.script(slow={"test_copy[64MiB]": 1.3})
    result = desk.run()
    assert result.ret == 1
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["copy[[]64MiB]: +30.* REGRESSED*"])


def test_approved_runs_let_an_equal_run_pass(desk):
    desk.baseline()
    result = desk.run()
    assert result.ret == 0
    result.stdout.fnmatch_lines(["roofline *against *h100.json", "2 of 2 compared: 2 PASSED"])


def test_a_sites_folder_gates(desk):
    desk.baseline("site")
    desk.script(slow=1.3)
    assert desk.run().ret == 0
    assert desk.run("--roofline-baselines=site").ret == 1


def test_a_sites_value_goes_before_the_shipped_one(desk):
    desk.baseline("baselines", slow=1.0)
    desk.baseline("site", slow=1.5)
    desk.script(slow=1.5)
    assert desk.run().ret == 1
    result = desk.run("--roofline-baselines=site")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["2 of 2 compared: 2 PASSED"])


def test_the_first_of_two_site_folders_wins(desk):
    desk.baseline("first", slow=1.5)
    desk.baseline("second", slow=1.0)
    desk.script(slow=1.5)
    assert desk.run("--roofline-baselines=first", "--roofline-baselines=second").ret == 0
    assert desk.run("--roofline-baselines=second", "--roofline-baselines=first").ret == 1


def test_a_baseline_file_can_be_named_to_compare_with(desk):
    desk.baseline("site")
    desk.script(slow=1.3)
    result = desk.run("--roofline-against=site/h100.json")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["copy*REGRESSED*"])


def test_a_baseline_holds_all_five_sessions(desk):
    entries = desk.baseline().entries
    assert [len(entry.sessions) for entry in entries] == [5, 5]
    assert [entry.parameters["size_bytes"] for entry in entries] == [64 * 2**20, 1024 * 2**20]
    assert {entry.kind for entry in entries} == {"measured"}


def test_a_regressed_run_is_not_proposed_unless_the_slowdown_is_accepted(desk):
    against = desk.five_runs()
    desk.script(slow=1.3)
    desk.run(*against, "--roofline-save=slow")
    refused = desk.cli("baseline", "propose", "slow", "-o", "p.json")
    assert refused.exit_code == 2
    assert "REGRESSED" in refused.output
    assert not (desk.path / "p.json").exists()
    assert desk.cli("baseline", "propose", "slow", "-o", "p.json", "--accept-slower").exit_code == 0
