"""A gate that compared nothing, or let something slip through, is red: by one last item that says why."""

import json
import xml.etree.ElementTree as ET

import pytest

from ..golden.cases import THRESHOLD

NAME = "roofline gate"
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
MISSED = "this run did not measure 1 of the baseline's entries ({})"


@pytest.fixture
def recorded(desk):
    """A desk whose three tests all have a recorded baseline."""
    desk.baseline(text=TWO)
    return desk


def gate_of(result, desk):
    """What the last item says, which must be the only failure in JUnit; empty where there is none and all is green."""
    suite = ET.parse(desk.path / "junit.xml").getroot().find("testsuite")
    failures = [
        (case, failure) for case in suite.iter("testcase") for failure in case.findall("failure")
    ]
    assert int(suite.get("failures")) == len(failures)
    if not failures:
        assert result.ret == 0
        return ""
    ((case, failure),) = failures
    assert case is list(suite.iter("testcase"))[-1]
    assert case.get("name") == NAME
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    return f"{failure.get('message')}\n{failure.text}"


def gated(desk, *options):
    return gate_of(desk.run(*ONCE, "--junitxml=junit.xml", *options), desk)


def test_a_green_gate_has_no_item_of_its_own(recorded):
    recorded.suite(
        TWO + "\n@pytest.mark.roofline(measures=False)\ndef test_facts(roofline): assert True\n"
    )
    assert gated(recorded, "--roofline-ci") == ""
    recorded.run("--roofline-ci", *ONCE).assert_outcomes(passed=4)
    # A test of facts gates nothing alone.
    assert "nothing was compared" in gated(recorded, "--roofline-ci", "-k", "facts")


SLIPPING = {
    "skipped": (
        "pytest.skip('not today')",
        "nothing was compared, since 0 of 1 test measured anything: not today",
    ),
    "returning": (
        "return",
        "nothing was compared, since 0 of 1 test measured anything; 1 test ended without",
    ),
    "skipped after": (
        "{measure}; pytest.skip('slow')",
        "1 test skipped after a measurement (test_one)",
    ),
    "xfailed after": (
        "{measure}; pytest.xfail('slow')",
        "1 test skipped after a measurement (test_one)",
    ),
}
MEASURE = "roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9, write_bytes=10**9))"


UNITTEST = f"""
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
"""


def test_every_test_that_slips_through_is_red_although_none_failed(desk):
    desk.script(slow=3.0)
    for body, said in SLIPPING.values():
        desk.suite(
            "import pytest\nfrom pytest_roofline import Work\n"
            f"def test_one(roofline, busy): {body.format(measure=MEASURE)}\n"
        )
        assert said in gated(desk, "--roofline-ci")
        assert desk.run().ret == 0
    desk.suite(UNITTEST)
    assert "1 test skipped after a measurement (test_one)" in gated(
        desk, "--roofline-ci", "--roofline-min-percent=50"
    )


def test_a_test_that_skips_itself_after_measuring_is_told_its_own_reason_and_where_to_skip(desk):
    desk.suite(
        "import pytest\nfrom pytest_roofline import Work\n"
        f"def test_one(roofline, busy): {MEASURE}; pytest.skip('slow today')\n"
    )
    lines = desk.run("--roofline-ci").stdout.lines
    assert "  SKIPPED one: slow today" in lines
    assert any(
        "Move pytest.skip() or pytest.xfail() above roofline.measure()" in line for line in lines
    )


KEPT = f"""
from pytest_roofline import Work
kept = []
def test_one(roofline, busy):
    kept.append(roofline)
    {MEASURE}
def test_other(busy):
    roofline = kept[0]
    {MEASURE}
"""


def test_a_fixture_that_outlives_its_test_names_that_test_and_what_to_write(desk):
    desk.suite(KEPT)
    result = desk.run()
    result.assert_outcomes(passed=1, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*BadInput: the fixture roofline of test_one was used after the verdict of that test, "
            "in a teardown or in another test; add roofline to the arguments of every "
            "test that measures"
        ]
    )


EXIT = "pytest.exit('the node is needed', returncode={status})"
CUT = "pytest.exit(returncode=0) ended the run before every test had its verdict"


def test_a_run_that_is_ended_with_status_0_is_red_and_keeps_what_it_measured(recorded):
    recorded.script(slow=3.0)
    exits = TWO.replace(OTHER, f"{OTHER}\n    {MEASURE}\n    {EXIT}")
    recorded.suite(exits.format(status=0))
    said = gated(recorded, "--roofline-ci")
    assert said.endswith(
        f"GATE: {CUT}\n  Let the test fail or be skipped. To end a run, pass another status to pytest.exit()."
    )
    run = recorded.last_run()
    assert [one.label for one in run.measurements] == ["copy[64]", "copy[128]", "other"]
    assert (run.footer.exit_status, run.outcomes[-1].reason) == (1, CUT)
    # One that only watches notes it; any other status is the one that was asked for.
    result = recorded.run("--roofline-ci=shadow", *ONCE)
    assert (result.ret, f"SHADOW: would have failed: GATE: {CUT}" in result.stdout.lines) == (
        0,
        True,
    )
    recorded.suite(exits.format(status=7))
    assert recorded.run("--roofline-ci", *ONCE).ret == 7
    # It may be ended before any test was found.
    hook = f"def pytest_collection_modifyitems(): {EXIT.format(status=0)}"
    recorded.pytester.makeconftest(f"{recorded.conftest}\n{hook}\n")
    assert f"GATE: {CUT}" in gated(recorded, "--roofline-ci")
    assert recorded.run().ret == 0


def test_a_gate_for_which_no_test_that_measures_is_selected_is_red(recorded):
    options = "--roofline-ci", "-k", "nosuchtest"
    assert "no test that measures was selected" in gated(recorded, *options)
    for text in ("", "def test_plain(): pass\n"):
        recorded.suite(text)
        (recorded.path / "opened").unlink(missing_ok=True)
        assert "no test that measures was selected" in gated(recorded, "--roofline-ci")
        assert not (recorded.path / "opened").exists()
    # Without a profile such a run is none of ours.
    result = recorded.run()
    result.assert_outcomes(passed=1)
    assert "roofline gate" not in result.stdout.str()


def test_one_silent_test_among_measured_ones_is_red_and_named_however_pytest_reports(recorded):
    recorded.suite(TWO + "\ndef test_quiet(roofline): pass\n")
    for options in (("-v",), ("-p", "no:terminal"), ("--reruns=2",)):
        said = gated(recorded, "--roofline-ci", *options)
        assert said.startswith(
            ("Failed: GATE: 1 test ended without a measurement (test_quiet)", "GATE: 1 test ended")
        )
        assert "@pytest.mark.roofline(measures=False)" in said
    # It stands in the run file.
    run = recorded.last_run()
    (outcome,) = [outcome for outcome in run.outcomes if outcome.test_id == NAME]
    assert (outcome.outcome, outcome.by_verdict) == ("failed", True)
    assert "1 test ended without a measurement (test_quiet)" in outcome.reason
    assert run.footer.exit_status == 1
    # It comes behind verdicts that waited for rounds.
    recorded.script(slow={"test_other": [1.07, 1.0]})
    result = recorded.run("--roofline-ci", "--roofline-rounds=2", "-v")
    assert [line for line in result.stdout.lines if line.endswith("%]")][-1].startswith(
        f"{NAME} FAILED"
    )


def test_a_test_that_records_something_else_or_is_skipped_before_is_not_silent(recorded):
    for body in (
        "roofline.figure('ratio', 2.0, 'x')",
        "pytest.skip('no')",
        "pytest.importorskip('no_such_library')",
    ):
        recorded.suite(TWO + f"\ndef test_quiet(roofline): {body}\n")
        assert gated(recorded, "--roofline-ci") == "", body


def test_an_entry_that_nobody_measured_is_red_and_the_cure_is_named(recorded):
    for change, said in (
        (("def test_other", "def helper_other"), MISSED.format("other: the test no longer exists")),
        (("[64, 128]", "[64]"), MISSED.format("copy[128]: the test has other parameters now")),
        (
            (f"{OTHER}\n", f"{OTHER}\n    pytest.skip('broken')\n"),
            MISSED.format("other: the test was skipped: broken"),
        ),
        (
            (f"{OTHER}\n    roofline.measure(", f"{OTHER}\n    (lambda *a, **b: 0)("),
            "1 test ended without a measurement (test_other); "
            + MISSED.format("other: the test ran without this measurement"),
        ),
    ):
        recorded.suite(TWO.replace(*change))
        message = gated(recorded, "--roofline-ci")
        assert said in message
        assert "roofline baseline check --prune --apply" in message
    # A renamed test is red for its entry and for its new name; one that is red for itself is not missed as well.
    recorded.suite(TWO.replace("test_other", "test_new"))
    result = recorded.run(*ONCE, "--roofline-ci")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(
        [
            "new: NO BASELINE *",
            "GATE: *of the baseline's entries (other: the test no longer exists)",
        ]
    )
    recorded.suite(TWO.replace(OTHER, f"{OTHER}\n    assert False"))
    recorded.run(*ONCE, "--roofline-ci").assert_outcomes(passed=2, failed=1)


DELETED = ("def test_other", "def helper_other")
MARKED = TWO.replace("def test_other", "@pytest.mark.perf\ndef test_other")
DROPS = """
def pytest_collection_modifyitems(config, items):
    dropped = [item for item in items if item.name == "test_other"]
    items[:] = [item for item in items if item not in dropped]
    {announce}
"""


def test_what_a_selection_leaves_out_fails_nothing(recorded):
    for text, options, left_out in (
        (TWO, ("-k", "64"), 2),
        (TWO, ("-m", "not slow"), 0),
        (TWO, ("--deselect", "test_suite.py::test_other"), 1),
        (TWO, ("test_suite.py::test_copy[64]",), 2),
        (TWO, ("test_suite.py::test_copy",), 1),
        # Of one that is gone, its entry tells that this run would not have selected it.
        (TWO.replace(*DELETED), ("-k", "copy"), 1),
        (TWO.replace(*DELETED), ("--deselect", "test_suite.py::test_other"), 1),
        (TWO.replace(*DELETED), ("test_suite.py::test_copy",), 1),
        (TWO.replace("[64, 128]", "[64]"), ("-k", "64 or other"), 1),
    ):
        recorded.suite(text)
        result = recorded.run(*ONCE, "--roofline-ci", *options)
        assert result.ret == 0, options
        assert f"{3 - left_out} measured" in result.stdout.lines, options


def test_the_entry_of_a_test_that_is_gone_is_red_where_the_command_would_have_selected_it(desk):
    desk.ini("markers = perf")
    desk.baseline(text=MARKED)
    desk.suite(MARKED.replace(*DELETED))
    text = MISSED.format("other: the test no longer exists")
    for options in (
        ("-k", "copy or other"),
        ("-k", "TEST_OTHER or 64"),
        ("-k", "test_suite and not 128"),
        ("-m", "not slow"),
        ("test_suite.py",),
        (".", "-k", "perf or copy"),
        ("--deselect", "test_suite.py::test_copy[64]"),
        ("--ignore", "test_more.py"),
    ):
        assert text in gated(desk, "--roofline-ci", *options), options
    desk.suite(MARKED.replace("test_other", "test_new").replace("[64, 128]", "[64]"))
    text = MISSED.format("copy[128]: the test has other parameters now")
    assert text in gated(desk, "--roofline-ci", "-k", "copy")


def test_a_module_in_place_of_a_path_covers_the_tests_of_its_file(desk, monkeypatch):
    monkeypatch.syspath_prepend(desk.path)
    package = desk.path / "package"
    (package / "perf").mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "perf" / "__init__.py").touch()
    desk.baseline(text=TWO)
    path = desk.path / "test_suite.py"
    path.write_text(TWO.replace(*DELETED))
    text = MISSED.format("other: the test no longer exists")
    assert text in gated(desk, "--roofline-ci", "--pyargs", "test_suite")
    assert text in gated(desk, "--roofline-ci", "--pyargs", "test_suite.py")
    assert gated(desk, "--roofline-ci", "--pyargs", "test_suite::test_copy") == ""
    move_entries(desk, "package/perf/test_suite.py")
    path.rename(package / "perf" / "test_suite.py")
    for name in ("package", "package.perf", "package.perf.test_suite"):
        assert text in gated(desk, "--roofline-ci", "--pyargs", name), name


def test_a_node_id_covers_what_it_names_and_nothing_of_the_paths_beside_it(desk):
    desk.baseline(text=TWO)
    (desk.path / "perf").mkdir()
    (desk.path / "test_suite.py").unlink()
    desk.suite(TWO.replace(*DELETED), "perf/test_suite")
    desk.suite("def test_nothing(): pass\n", "test_beside")
    move_entries(desk, "perf/test_suite.py")
    text = MISSED.format("other: the test no longer exists")
    copy = "perf/test_suite.py::test_copy"
    wider = [(copy, "perf")]
    if pytest.version_tuple >= (9,):
        # Older ones collect no more of a folder than the test that is named before it.
        wider += [(f"{copy}[64]", "perf"), ("test_beside.py::test_nothing", ".")]
    for arguments in wider:
        assert text in gated(desk, "--roofline-ci", *arguments), arguments
    for arguments in ((copy,), (copy, "test_beside.py"), (f"{copy}[64]", f"{copy}[128]")):
        assert gated(desk, "--roofline-ci", *arguments) == "", arguments
    desk.suite(TWO.replace("[64, 128]", "[64]"), "perf/test_suite")
    text = MISSED.format("copy[128]: the test has other parameters now")
    assert text in gated(desk, "--roofline-ci", copy, "test_beside.py")
    assert gated(desk, "--roofline-ci", f"{copy}[64]") == ""


def test_a_test_that_moved_out_of_the_paths_of_a_gate_is_green_after_the_commands_of_the_message(
    desk,
):
    desk.baseline(text=TWO)
    (desk.path / "test_suite.py").unlink()
    (desk.path / "perf").mkdir()
    (desk.path / "more").mkdir()
    other = TWO.partition("@pytest")[0] + OTHER + TWO.partition(OTHER)[2]
    desk.suite(other, "more/test_other")
    desk.suite(TWO.replace(*DELETED), "perf/test_suite")
    move_entries(desk, "perf/test_suite.py")
    message = gated(desk, "--roofline-ci", "perf")
    assert MISSED.format("other: the test no longer exists") in message
    assert "its entry keeps the old file, marks and tier. Record the test again" in message
    # JUnit has the message twice.
    lines = dict.fromkeys(map(str.strip, message.splitlines()))
    commands = [line.split() for line in lines if line.startswith(("pytest ", "roofline "))]
    (_, *words), *steps = commands
    assert 0 == desk.run(*["more" if word == "FILE" else word for word in words]).ret
    for _, *words in steps:
        assert 0 == desk.cli(*words).exit_code, words
    assert "" == gated(desk, "--roofline-ci", "perf")
    assert "" == gated(desk, "--roofline-ci", "perf", "more")


def test_the_entry_of_a_test_that_is_skipped_is_red_with_the_reason_of_the_skip(desk):
    desk.baseline(text=TWO)
    desk.suite(TWO.replace(OTHER, f"@pytest.mark.skip(reason='flaky')\n{OTHER.lstrip()}"))
    message = gated(desk, "--roofline-ci")
    assert MISSED.format("other: the test was skipped: flaky") in message
    assert "let the test run, or leave it out with `-k` or `--deselect` in the command" in message


def move_entries(desk, path):
    """Have the entries of the baseline say that their tests stand in another file."""
    baseline = desk.path / "baselines" / "h100.json"
    baseline.write_text(baseline.read_text().replace('"test_suite.py::', f'"{path}::'))


def test_the_entry_of_a_test_that_is_left_out_otherwise_than_when_it_was_recorded_is_red(desk):
    desk.ini("markers =", "    perf", "    slow")
    desk.baseline(text=MARKED)
    plain = desk.conftest
    announced = DROPS.format(announce="config.hook.pytest_deselected(items=dropped)")
    above = MARKED.replace("perf", "roofline(tier='nightly')")
    for text, drops, options, why in (
        (above, "", ("-k", "other or copy"), "the test is of tier nightly now"),
        (above, "", (), "the test is of tier nightly now"),
        (MARKED.replace("perf", "slow"), "", ("-m", "perf or not slow"), "-k or -m no longer selects the test"),
        (MARKED, DROPS.format(announce=""), (), "a conftest.py or a plugin removed the test"),
        (MARKED, DROPS.format(announce=""), ("-k", "other or 64"), "a conftest.py or a plugin removed the test"),
        (MARKED, announced, (), "a conftest.py or a plugin removed the test"),
    ):  # fmt: skip
        desk.suite(text)
        desk.pytester.makeconftest(plain + drops)
        assert MISSED.format(f"other: {why}") in gated(desk, "--roofline-ci", *options), why
    # What a higher tier measured is not asked for in a lower one.
    desk.pytester.makeconftest(plain)
    desk.suite(above)
    assert desk.run(*ONCE, "--roofline-tier=nightly", "--roofline-save=night").ret == 0
    assert desk.cli("baseline", "propose", "night", "-o", "p.json").exit_code == 0
    assert desk.cli("baseline", "approve", "p.json").exit_code == 0
    assert gated(desk, "--roofline-ci") == ""
    desk.suite(above.replace(*DELETED))
    nightly = ("--roofline-ci", "--roofline-tier=nightly")
    assert MISSED.format("other: the test no longer exists") in gated(desk, *nightly)


def test_an_entry_that_does_not_name_its_test_is_named_and_not_judged_by_a_selection(recorded):
    path = recorded.path / "baselines" / "h100.json"
    raw = json.loads(path.read_text())
    tests = [entry.pop("test") for entry in raw["entries"]]
    assert [(test["id"], test["tier"]) for test in tests] == [
        ("test_suite.py::test_copy[64]", "quick"),
        ("test_suite.py::test_copy[128]", "quick"),
        ("test_suite.py::test_other", "quick"),
    ]
    path.write_text(json.dumps(raw))
    recorded.suite(TWO.replace(*DELETED))
    result = recorded.run(*ONCE, "--roofline-ci", "-k", "copy or other")
    assert result.ret == 0
    result.stdout.fnmatch_lines(
        [
            "WARNING: this run did not measure 1 of the baseline's entries, and no entry of these names its test "
            "(other). *"
        ]
    )
    # So is one whose tier nobody knows.
    for entry in raw["entries"]:
        entry["test"] = {"id": "test_suite.py::test_other", "tier": "weekly"}
    path.write_text(json.dumps(raw))
    assert gated(recorded, "--roofline-ci", "-k", "copy or other") == ""
    # Where nothing is left out it is judged by its name.
    assert MISSED.format("other: the test no longer exists") in gated(recorded, "--roofline-ci")


def test_paths_where_pytest_looks_by_itself_are_no_selection(recorded):
    (recorded.path / "suite").mkdir()
    (recorded.path / "test_suite.py").unlink()
    (recorded.path / "suite" / "test_suite.py").write_text(
        TWO.replace("def test_other", "def helper_other")
    )
    for testpaths, given in (
        ("suite", (".",)),
        ("suite", ("suite",)),
        ("sui*", ("suite",)),
        ("", ()),
    ):
        recorded.ini(f"testpaths = {testpaths}")
        assert "other: the test no longer exists" in gated(recorded, "--roofline-ci", *given), (
            testpaths,
            given,
        )


def test_a_run_that_is_started_in_a_folder_below_covers_that_folder_alone(recorded, monkeypatch):
    (recorded.path / "below").mkdir()
    text = TWO.replace("test_copy", "test_below").replace(*DELETED)
    recorded.suite(text, "below/test_below")
    monkeypatch.chdir(recorded.path / "below")
    result = recorded.run(*ONCE, "--roofline-ci=shadow")
    assert "the test no longer exists" not in result.stdout.str()
    monkeypatch.chdir(recorded.path)
    recorded.suite(TWO.replace(*DELETED))
    result = recorded.run(*ONCE, "--roofline-ci=shadow")
    assert "other: the test no longer exists" in result.stdout.str()


def test_an_entry_of_other_hardware_is_not_missed_and_no_later_lf_looks_for_the_item(recorded):
    recorded.script(product="NVIDIA H100 PCIe")
    result = recorded.run(*ONCE, "--roofline-ci")
    result.assert_outcomes(passed=3, failed=1)
    assert "of the baseline's entries" not in result.stdout.str()
    assert "nothing was compared: 0 of 3 results" in result.stdout.str()
    cache = recorded.path / ".pytest_cache" / "v" / "cache" / "lastfailed"
    assert not cache.exists() or json.loads(cache.read_text()) == {}


def test_until_something_is_recorded_here_single_tests_without_baseline_pass_where_something_was_compared(
    desk,
):
    limit = THRESHOLD | {"benchmark": "copy", "value": 100.0, "hardware": {"product": "h100-sxm5"}}
    (desk.path / "baselines").mkdir()
    (desk.path / "baselines" / "h100.json").write_text(
        json.dumps({"schema": 1, "family": "h100", "entries": [limit]})
    )
    desk.suite(TWO)
    result = desk.run(*ONCE, "--roofline-ci")
    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(
        ["GREEN: 2 of 3 fast enough (2 by published limits), 1 undecided (1 NO BASELINE)"]
    )
    for strict in (
        "--roofline-fail-on=+no-baseline",
        "--roofline-fail-on=+inconclusive,+no-baseline",
        "--roofline-fail-on=regressed,no-baseline",
    ):
        desk.run(*ONCE, "--roofline-ci", strict).assert_outcomes(passed=2, failed=1)
    desk.run(*ONCE, "--roofline-ci", "--roofline-fail-on=+degraded").assert_outcomes(passed=3)


def test_once_something_is_recorded_here_a_test_without_baseline_fails(recorded):
    recorded.suite(TWO + TWO.partition("\ndef test_other")[2].join(["\ndef test_new", ""]))
    result = recorded.run(*ONCE, "--roofline-ci")
    result.assert_outcomes(passed=3, failed=1)
    result.stdout.fnmatch_lines(["new: NO BASELINE (*), and a baseline is required"])


def test_where_nothing_runs_or_a_failure_stopped_the_run_there_is_no_item(recorded):
    recorded.suite("def test_bad(): assert False\n" + TWO)
    recorded.run(*ONCE, "--roofline-ci", "-x").assert_outcomes(failed=1)
    recorded.suite("def test_quiet(roofline): pass\n")
    recorded.ini("roofline_ci = true")
    result = recorded.run("--collect-only", "-q")
    assert (result.ret, NAME in result.stdout.str()) == (0, False)


def test_lf_runs_only_what_failed_and_misses_no_entry(recorded):
    text = TWO.replace(
        "def test_other(roofline, busy):", "def test_other(roofline, busy):\n    assert {fine}"
    )
    recorded.suite(text.format(fine=False))
    recorded.run(*ONCE, "--roofline-ci").assert_outcomes(passed=2, failed=1)
    recorded.suite(text.format(fine=True))
    result = recorded.run(*ONCE, "--roofline-ci", "--lf")
    assert result.ret == 0
    result.assert_outcomes(passed=1)


def test_an_entry_without_a_test_is_not_named_where_the_selection_leaves_its_tests_out(recorded):
    path = recorded.path / "baselines" / "h100.json"
    raw = json.loads(path.read_text())
    for entry in raw["entries"]:
        del entry["test"]
    path.write_text(json.dumps(raw))
    result = recorded.run(*ONCE, "--roofline-ci", "-k", "copy")
    assert result.ret == 0
    assert "do not name their test" not in result.stdout.str()
