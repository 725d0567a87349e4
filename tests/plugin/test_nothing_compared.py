"""A gate that compared nothing, or let something slip through, is red: by one last item that says why."""

import json
import xml.etree.ElementTree as ET

import pytest

from pytest_roofline.baselines.files import read_baseline, write_baseline

NAME = "roofline gate"
GATES = ["--roofline-ci", "--roofline-qualify"]
# Two benchmarks of a millisecond, one of them at two sizes.
TWO = """
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)

@pytest.mark.parametrize("size", [64, 128])
def test_copy(roofline, busy, size):
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_other(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""
ONCE = ("--roofline-rounds=1",)
OTHER = "def test_other(roofline, busy):"
MISSED = "1 of the baseline's entries not measured ({})"


@pytest.fixture
def recorded(desk):
    """A desk whose three tests all have a recorded baseline."""
    desk.baseline(text=TWO)
    return desk


def gate_of(result, desk):
    """What the last item says, which must be the only failure in JUnit; empty where there is none and all is green."""
    suite = ET.parse(desk.path / "junit.xml").getroot().find("testsuite")
    failures = [(case, failure) for case in suite.iter("testcase") for failure in case.findall("failure")]
    assert int(suite.get("failures")) == len(failures)
    if not failures:
        assert result.ret == 0
        return ""
    ((case, failure),) = failures
    assert case is list(suite.iter("testcase"))[-1]
    assert case.get("name") == NAME
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    return failure.get("message") + failure.text


def gated(desk, *options):
    return gate_of(desk.run(*ONCE, "--junitxml=junit.xml", *options), desk)


@pytest.mark.parametrize("gate", GATES)
def test_a_green_gate_has_no_item_of_its_own(recorded, gate):
    assert gated(recorded, gate) == ""
    recorded.run(gate, *ONCE).assert_outcomes(passed=3)


SLIPPING = {
    "skipped": ("pytest.skip('not today')", "nothing was compared, since 0 of 1 test measured anything: not today"),
    "returning": ("return", "nothing was compared, since 0 of 1 test measured anything; 1 test ended without"),
    "skipped after": ("{measure}; pytest.skip('slow')", "1 test skipped after a measurement (test_one)"),
    "xfailed after": ("{measure}; pytest.xfail('slow')", "1 test skipped after a measurement (test_one)"),
}
MEASURE = "roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9, write_bytes=10**9))"


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("how", SLIPPING)
def test_every_test_that_slips_through_is_red_although_none_failed(desk, gate, how):
    body, said = SLIPPING[how]
    desk.script(slow=3.0)
    desk.suite(
        "import pytest\nfrom pytest_roofline import Work\n"
        f"def test_one(roofline, busy): {body.format(measure=MEASURE)}\n"
    )
    assert said in gated(desk, gate)
    assert desk.run().ret == 0


def test_a_unittest_that_skips_itself_after_a_slow_measurement_is_red(desk):
    desk.suite(f"""
import unittest
import pytest
from pytest_roofline import Work
class TestSlow(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def take(self, roofline, busy):
        self.roofline, self.busy = roofline, busy
    def test_one(self):
        roofline, busy = self.roofline, self.busy
        {MEASURE}
        self.skipTest("slow")
""")
    assert "1 test skipped after a measurement (test_one)" in gated(desk, "--roofline-ci", "--roofline-min-percent=50")


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize("selecting", [("-k", "nosuchtest"), ("--deselect", "test_suite.py")], ids=" ".join)
def test_a_selection_of_nothing_is_red(recorded, gate, selecting):
    assert "no test that measures was selected" in gated(recorded, gate, *selecting)


@pytest.mark.parametrize("text", ["", "def test_plain(): pass\n"], ids=["no tests", "no test that measures"])
def test_a_gate_without_any_test_that_measures_is_red(desk, text):
    desk.suite(text)
    assert "no test that measures was selected" in gated(desk, "--roofline-ci")
    assert not (desk.path / "opened").exists()


def test_without_a_profile_such_a_run_is_none_of_ours(desk):
    desk.suite("def test_plain(): pass\n")
    result = desk.run()
    result.assert_outcomes(passed=1)
    assert "roofline gate" not in result.stdout.str()


def test_one_silent_test_among_measured_ones_is_red_and_named(recorded):
    recorded.suite(TWO + "\ndef test_quiet(roofline): pass\n")
    said = gated(recorded, "--roofline-ci")
    assert said.startswith(("Failed: GATE: 1 test ended without a measurement (test_quiet)", "GATE: 1 test ended"))
    assert "@pytest.mark.roofline(measures=False)" in said


@pytest.mark.parametrize(
    "body",
    [
        "roofline.figure('ratio', 2.0, 'x')",
        "pytest.skip('no such library')",
        "pytest.importorskip('no_such_library')",
    ],
)
def test_a_test_that_records_something_else_or_is_skipped_before_is_not_silent(recorded, body):
    recorded.suite(TWO + f"\ndef test_quiet(roofline): {body}\n")
    assert gated(recorded, "--roofline-ci") == ""


def test_a_test_of_facts_says_so_and_is_green_beside_others_but_gates_nothing_alone(recorded):
    recorded.suite(TWO + "\n@pytest.mark.roofline(measures=False)\ndef test_facts(roofline): assert True\n")
    assert gated(recorded, "--roofline-ci") == ""
    assert "nothing was compared" in gated(recorded, "--roofline-ci", "-k", "facts")


def test_an_unusable_value_of_the_marker_is_one_sentence(desk, sentence):
    desk.one("@pytest.mark.roofline(measures='no')")
    sentence(desk.run(), "measures='no'", "True, or False")


@pytest.mark.parametrize("gate", GATES)
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("def test_other", "def helper_other"), MISSED.format("other: there is no such test")),
        (("[64, 128]", "[64]"), MISSED.format("copy[128]: its test has other parameters now")),
        ((f"{OTHER}\n", f"{OTHER}\n    pytest.skip('broken')\n"), MISSED.format("other: its test did not measure it")),
        (
            (f"{OTHER}\n    roofline.measure(", f"{OTHER}\n    (lambda *a, **b: 0)("),
            f"1 test ended without a measurement (test_other); {MISSED.format('other: its test did not measure it')}",
        ),
    ],
    ids=["deleted", "fewer parameters", "skipped", "measures no more"],
)
def test_an_entry_that_nobody_measured_is_red_and_the_cure_is_named(recorded, gate, change, said):
    recorded.suite(TWO.replace(*change))
    message = gated(recorded, gate)
    assert said in message
    assert "roofline baseline prune --apply" in message


def test_a_renamed_test_is_red_for_its_entry_and_for_its_new_name(recorded):
    recorded.suite(TWO.replace("test_other", "test_new"))
    result = recorded.run(*ONCE, "--roofline-ci")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["new: NO BASELINE *", "GATE: *entries not measured (other: there is no such test)"])


def test_prune_cures_a_stale_entry(recorded):
    recorded.suite(TWO.replace("def test_other", "def helper_other"))
    path = recorded.path / "baselines" / "h100.json"
    known = read_baseline(path)
    assert gated(recorded, "--roofline-ci") != ""
    kept = tuple(entry for entry in known.entries if entry.benchmark != "other")
    write_baseline(path, type(known)(known.family, kept))
    assert gated(recorded, "--roofline-ci") == ""


@pytest.mark.parametrize(
    ("options", "left_out"),
    [
        (("-k", "other"), 2),
        (("-k", "64"), 2),
        (("-m", "not slow"), 0),
        (("--deselect", "test_suite.py::test_other"), 1),
        (("test_suite.py::test_copy[64]",), 2),
        (("test_suite.py::test_copy",), 1),
    ],
    ids=str,
)
def test_what_a_selection_leaves_out_is_counted_and_fails_nothing(recorded, options, left_out):
    result = recorded.run(*ONCE, "--roofline-ci", *options)
    assert result.ret == 0
    told = f", {left_out} of the baseline's entries left out by the selection" if left_out else ""
    line = next(line for line in result.stdout.lines if line.endswith(f"{3 - left_out} measured{told}"))
    assert line == f"{3 - left_out} measured{told}"


def test_a_higher_tier_leaves_out_and_fails_nothing(recorded):
    recorded.suite(TWO.replace("def test_other", "@pytest.mark.roofline(tier='nightly')\ndef test_other"))
    result = recorded.run(*ONCE, "--roofline-ci")
    assert result.ret == 0
    result.stdout.fnmatch_lines(["2 measured, 1 of the baseline's entries left out by the selection"])


@pytest.mark.parametrize(
    "options", [("-k", "copy"), ("test_suite.py",), ("--deselect", "x.py"), ("--ignore=x",)], ids=str
)
def test_a_deleted_test_is_not_missed_where_a_selection_may_have_left_it_out(recorded, options):
    recorded.suite(TWO.replace("def test_other", "def helper_other"))
    result = recorded.run(*ONCE, "--roofline-ci", *options)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["2 measured, 1 of the baseline's entries left out by the selection"])


def test_a_function_that_was_selected_misses_the_parameters_that_it_lost(recorded):
    recorded.suite(TWO.replace("[64, 128]", "[64]"))
    assert "copy[128]: its test has other parameters now" in gated(recorded, "--roofline-ci", "-k", "copy")


@pytest.mark.parametrize(
    ("testpaths", "given"),
    [("suite", (".",)), ("suite", ("suite",)), ("suite", ()), (".", ()), ("sui*", ("suite",)), ("", ()), ("", (".",))],
)
def test_paths_where_pytest_looks_by_itself_are_no_selection(recorded, testpaths, given):
    (recorded.path / "suite").mkdir()
    recorded.ini(f"testpaths = {testpaths}")
    (recorded.path / "test_suite.py").rename(recorded.path / "suite" / "test_suite.py")
    recorded.path.joinpath("suite", "test_suite.py").write_text(TWO.replace("def test_other", "def helper_other"))
    assert "other: there is no such test" in gated(recorded, "--roofline-ci", *given)


def test_an_entry_of_other_hardware_is_not_missed(recorded):
    recorded.script(product="NVIDIA H100 PCIe")
    result = recorded.run(*ONCE, "--roofline-ci")
    assert "entries not measured" not in result.stdout.str()
    assert "nothing was compared: 0 of 3 results" in result.stdout.str()


def test_an_entry_whose_test_is_red_is_not_missed_as_well(recorded):
    recorded.suite(TWO.replace("def test_other(roofline, busy):", "def test_other(roofline, busy):\n    assert False"))
    result = recorded.run(*ONCE, "--roofline-ci")
    result.assert_outcomes(passed=2, failed=1)


def test_without_a_profile_the_last_line_says_it_and_nothing_fails(recorded):
    recorded.suite(TWO.replace("def test_other", "def helper_other") + "\ndef test_quiet(roofline): pass\n")
    result = recorded.run()
    assert result.ret == 0
    result.assert_outcomes(passed=3)
    missed = MISSED.format("other: there is no such test")
    said = f"--roofline-ci would fail this run: 1 test ended without a measurement (test_quiet); {missed}"
    assert result.stdout.lines[-3:-1] == ["2 measured", said]


def test_until_something_is_recorded_here_single_tests_without_baseline_pass_where_something_was_compared(desk):
    limit = {
        "benchmark": "copy", "metric": "traffic_GBps", "kind": "threshold", "hardware": {"product": "h100-sxm5"},
        "value": 100.0, "unit": "GB/s", "convention": "traffic, 1e9", "source": "somebody", "confidence": "high",
    }  # fmt: skip
    (desk.path / "baselines").mkdir()
    (desk.path / "baselines" / "h100.json").write_text(json.dumps({"schema": 1, "family": "h100", "entries": [limit]}))
    desk.suite(TWO)
    result = desk.run(*ONCE, "--roofline-ci")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["2 of 3 compared with published limits alone: 1 NO BASELINE, 2 PASSED*"])
    for strict in ("--roofline-qualify", "--roofline-require-baseline", "--roofline-fail-on=regressed,no-baseline"):
        desk.run(*ONCE, "--roofline-ci", strict).assert_outcomes(passed=2, failed=1)


def test_once_something_is_recorded_here_a_test_without_baseline_fails(recorded):
    recorded.suite(TWO + TWO.partition("\ndef test_other")[2].join(["\ndef test_new", ""]))
    result = recorded.run(*ONCE, "--roofline-ci")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["new: NO BASELINE (*), and a baseline is required"])


@pytest.mark.parametrize(
    "options", [("--collect-only",), ("--collect-only", "-q"), ("--setup-plan",), ("--setup-only",)]
)
def test_where_nothing_runs_there_is_no_item(desk, options):
    desk.suite("def test_quiet(roofline): pass\n")
    result = desk.run("--roofline-ci", *options)
    assert result.ret == 0
    assert NAME not in result.stdout.str()


@pytest.mark.parametrize("options", [("-q",), ("-v",), ("-p", "no:terminal"), ("--reruns=2",)], ids=" ".join)
def test_it_is_there_however_pytest_reports(desk, options):
    desk.suite("def test_quiet(roofline): pass\n")
    assert "1 test ended without a measurement (test_quiet)" in gated(desk, "--roofline-ci", *options)


def test_it_comes_behind_verdicts_that_waited_for_rounds(recorded):
    recorded.script(slow={"test_other": [1.07, 1.0]})
    recorded.suite(TWO + "\ndef test_quiet(roofline): pass\n")
    result = recorded.run("--roofline-ci", "--roofline-rounds=2", "-v")
    lines = [line for line in result.stdout.lines if line.endswith("%]")]
    assert lines[-1].startswith(f"{NAME} FAILED")


@pytest.mark.parametrize("option", ["-x", "--maxfail=1"])
def test_a_run_that_stopped_at_a_failure_has_that_failure_alone(recorded, option):
    recorded.suite("def test_bad(): assert False\n" + TWO)
    recorded.run(*ONCE, "--roofline-ci", option).assert_outcomes(failed=1)


def test_x_does_not_keep_the_item_away(desk):
    desk.suite("def test_quiet(roofline): pass\n")
    desk.run("--roofline-ci", "-x").assert_outcomes(passed=1, failed=1)


def test_lf_does_not_look_for_the_item(desk):
    desk.suite(TWO)
    desk.run(*ONCE, "--roofline-ci").assert_outcomes(passed=3, failed=1)
    cache = desk.path / ".pytest_cache" / "v" / "cache" / "lastfailed"
    assert not cache.exists() or json.loads(cache.read_text()) == {}
    desk.run(*ONCE, "--lf").assert_outcomes(passed=3)


def test_lf_runs_only_what_failed_and_misses_no_entry(recorded):
    text = TWO.replace("def test_other(roofline, busy):", "def test_other(roofline, busy):\n    assert {fine}")
    recorded.suite(text.format(fine=False))
    recorded.run(*ONCE, "--roofline-ci").assert_outcomes(passed=2, failed=1)
    recorded.suite(text.format(fine=True))
    result = recorded.run(*ONCE, "--roofline-ci", "--lf")
    assert result.ret == 0
    result.assert_outcomes(passed=1)


def test_it_stands_in_the_run_file(recorded):
    recorded.suite(TWO + "\ndef test_quiet(roofline): pass\n")
    recorded.run(*ONCE, "--roofline-ci")
    run = recorded.last_run()
    (outcome,) = [outcome for outcome in run.outcomes if outcome.test_id == NAME]
    assert (outcome.outcome, outcome.by_verdict) == ("failed", True)
    assert "1 test ended without a measurement (test_quiet)" in outcome.reason
    assert run.footer.exit_status == 1
