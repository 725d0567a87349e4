"""What all tests of a run share is told once and is no test's own slowdown; and how many processes a red one needs."""

import csv
import json
import xml.etree.ElementTree as ET

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
        verdict.subject.label: (verdict.kind, verdict.processes)
        for verdict in desk.last_run().verdicts
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
            "*all tests of this run changed together; this common part, +3.0 %, is subtracted from each test*",
        ]
    )


def properties(path):
    """Return the properties of each test of a JUnit file, by its name."""
    cases = ET.parse(path).getroot().iter("testcase")
    return {
        case.get("name"): {pair.get("name"): pair.get("value") for pair in case.iter("property")}
        for case in cases
    }


def test_all_tests_together_fail_the_run_and_each_of_them_says_by_how_much_it_is_slower(desk, six):
    desk.script(slow=1.3)
    result = desk.run(*six, "--junitxml=junit.xml", "--roofline-report=out")
    assert result.ret == 1
    result.assert_outcomes(passed=6, failed=1)
    result.stdout.fnmatch_lines(
        [
            "*::test_way[[]a] PASSED*+30.0 %*SHIFTED*",
            "REGRESSED: all tests together take +30.0 % time (*, 5 processes against 5), *",
            "RED: 1 REGRESSED, 0 of 6 fast enough, 6 SHIFTED",
        ]
    )
    assert set(verdicts(desk).values()) == {("SHIFTED", 5)}
    reason = "all 6 tests changed together by +30.0 %; beyond that, this test changed by +0.0 %"
    with (desk.path / "out" / "results.csv").open() as file:
        rows = [row for row in csv.DictReader(file) if row["test"] != "all tests together"]
    document = json.loads((desk.path / "out" / "run.json").read_text())
    results = [row for row in document["results"] if row["test"] != "all tests together"]
    figures = [
        pairs
        for name, pairs in properties(desk.path / "junit.xml").items()
        if name != "all tests together"
    ]
    assert [len(rows), len(results), len(figures)] == [6, 6, 6]
    assert {row["verdict"] for row in [*rows, *results]} == {"SHIFTED"}
    assert {pairs["roofline.verdict"] for pairs in figures} == {"SHIFTED"}
    for row in [*rows, *results]:
        assert float(row["change"]) == pytest.approx(0.3, abs=0.01)
        assert float(row["change_low"]) > 0.2
        assert float(row["time_s"]) / float(row["baseline_time_s"]) == pytest.approx(1.3, abs=0.01)
        assert row["reason"] == reason
    for pairs in figures:
        assert float(pairs["roofline.change"]) == pytest.approx(0.3, abs=0.01)
        assert float(pairs["roofline.baseline_time_s"]) == pytest.approx(1e-3, rel=0.01)
    explained = desk.cli("explain", desk.run_paths()[-1], "way[a]").stdout.splitlines()
    assert explained[-1] == f"SHIFTED: {reason}"
    # What is left was asked, and not the whole that is shown.
    assert "effect worth reporting, 2 %? not asked" in explained[-2]
    assert not any("is subtracted here" in line for line in explained)


def test_a_comparison_of_the_same_run_says_the_same(desk, six):
    desk.script(slow={"*": 1.3, "test_way[c]": 1.3 * 1.25})
    desk.run(*six, "--roofline-rounds=5", "--roofline-save=slow")
    words = {label: verdict for label, (verdict, _) in verdicts(desk).items()}
    assert words == {f"way[{name}]": "SHIFTED" for name in "abdef"} | {"way[c]": "REGRESSED"}
    days = ",".join(option.partition("=")[2] for option in six)
    compared = desk.cli("compare", days, "slow", "--json")
    assert compared.exit_code == 1
    rows = {row["label"]: row for row in json.loads(compared.stdout)}
    together = rows.pop("all tests together")
    assert together["verdict"] == "REGRESSED"
    assert {label: row["verdict"] for label, row in rows.items()} == words
    for label, row in rows.items():
        whole = 1.3 * 1.25 if label == "way[c]" else 1.3
        assert row["change"] == pytest.approx(whole - 1, abs=0.01)
        assert row["reason"].startswith(
            "all 6 tests changed together by +30.0 %; beyond that, this test"
        )
    told = desk.cli("compare", days, "slow").stdout
    assert "5 SHIFTED" in told


def test_a_test_that_was_decided_before_all_together_were_is_shifted_as_well(desk):
    eight = SIX.replace('"f"]', '"f", "g", "h"]')
    against = desk.sessions(eight, TOGETHER, together=True)
    steady = {f"test_way[{name}]": 1.0 for name in "abcd"}
    # Slower from the second process on, which takes all together some more to tell.
    later = {f"test_way[{name}]": [1.09, 1.13] for name in "efgh"}
    desk.script(slow=steady | later)
    result = desk.run(*against, "--roofline-rounds=auto", "--junitxml=junit.xml")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["REGRESSED: all tests together *"])
    found = verdicts(desk)
    decided = [name for name in "abcd" if found[f"way[{name}]"][1] < found["way[e]"][1]]
    assert decided == list("abcd")
    figures = properties(desk.path / "junit.xml")
    for name in decided:
        assert found[f"way[{name}]"][0] == "SHIFTED"
        assert figures[f"test_way[{name}]"]["roofline.verdict"] == "SHIFTED"


def test_last_failed_repeats_the_tests_of_which_all_together_are_made(desk, six):
    desk.suite("def test_other():\n    assert False", name="test_other")
    desk.script(slow=1.3)
    desk.run(*six).assert_outcomes(passed=6, failed=2)
    result = desk.run(*six, "--lf", "-v")
    result.assert_outcomes(passed=6, failed=2)
    result.stdout.fnmatch_lines(["REGRESSED: all tests together *"])
    # What passes with all the others is not repeated for ever.
    desk.script()
    desk.run(*six, "--lf").assert_outcomes(passed=6, failed=1)
    desk.run(*six, "--lf").assert_outcomes(failed=1)


def test_last_failed_repeats_nothing_where_a_gate_only_watches(desk, six):
    desk.suite("def test_other():\n    assert False", name="test_other")
    desk.script(slow=1.3)
    desk.run(*six, "--roofline-ci=shadow").assert_outcomes(passed=7, failed=1)
    desk.run(*six, "--lf").assert_outcomes(failed=1)


@pytest.mark.parametrize(
    ("tests", "days"),
    [("abc", 5), ("abcdef", 1), ("abcdef", 2)],
    ids=["three tests", "one session", "two sessions"],
)
def test_where_little_is_known_every_test_that_is_slower_is_red_or_undecided(desk, tests, days):
    suite = SIX.replace('["a", "b", "c", "d", "e", "f"]', json.dumps([*tests]))
    against = desk.sessions(suite, TOGETHER[:days], together=True)
    desk.script(slow=1.1)
    result = desk.run(*against, "--roofline-rounds=5")
    found = verdicts(desk)
    assert len(found) == len(tests)
    assert {verdict for verdict, _ in found.values()} <= {"REGRESSED", "INCONCLUSIVE"}
    assert not any(line.startswith("GREEN") for line in result.outlines)
    assert not any("all tests together" in line for line in result.outlines)


def test_what_looks_slow_is_red_after_five_processes_without_any_option(desk):
    against = desk.five_sessions_of_one()
    desk.script(slow=1.3)
    assert desk.run(*against).ret == 1
    assert verdicts(desk) == {"one": ("REGRESSED", 5)}
    result = desk.run(*against, "--roofline-rounds=1")
    assert result.ret == 0
    assert verdicts(desk) == {"one": ("INCONCLUSIVE", 1)}
    result.stdout.fnmatch_lines(
        ["INCONCLUSIVE one: looks 30 % slower; a red verdict needs 5 processes*"]
    )


def test_where_no_time_is_left_the_last_look_stands(desk, six):
    # Too near the tolerance for a first look of twelve, and near enough to pass by the last one.
    desk.script(slow={"*": 1.03, "test_way[c]": 1.03 * 1.028})
    desk.run(*six, "--roofline-rounds=auto", "--roofline-time=0.001s")
    assert verdicts(desk)["way[c]"] == ("PASSED", 1)
