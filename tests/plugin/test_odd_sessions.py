"""A session that is strange in many tests of a baseline is set aside in these, and the run names it."""

import json

import pytest

from pytest_roofline.baselines.remarks import remarks

TWELVE = """
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, payload_bytes=10**9)

@pytest.mark.parametrize("way", list("abcdefghijkl"))
def test_way(roofline, busy, way):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""
NIGHTS = (1.0, 1.004, 0.996, 1.002, 0.998)
# On these all tests were slower or faster together.
TOGETHER = (1.0, 1.03, 0.97, 1.02, 0.98)
# The third of five nights; the year is told where it is not this one.
NAMED = "session of 3 Jan*: 6 of 12 tests * % slower; left out"


def slow_down(path, ways):
    """Rewrite a saved run as one in which some of its tests took a fifth more time."""
    records = [json.loads(line) for line in path.read_text().splitlines()]
    for record in records:
        if record["type"] == "measurement" and record["key"]["parameters"].get("way") in ways:
            record["samples"]["seconds"] = [
                seconds * 1.2 for seconds in record["samples"]["seconds"]
            ]
    path.write_text("".join(json.dumps(record) + "\n" for record in records))


@pytest.fixture
def nights(desk):
    """The options that compare with five nights, on the third of which half of the tests were slower."""
    against = desk.sessions(TWELVE, NIGHTS)
    slow_down(desk.run_path("day3"), "abcdef")
    return against


def verdicts(desk):
    return {verdict.subject.label: verdict for verdict in desk.last_run().verdicts}


def test_the_night_is_named_once_and_set_aside_where_it_was_strange_alone(desk, nights):
    desk.script()
    result = desk.run(*nights)
    assert result.ret == 0
    result.stdout.fnmatch_lines([NAMED])
    judged = verdicts(desk)
    assert {verdict.kind for verdict in judged.values()} == {"PASSED"}
    assert {label: len(one.sessions) for label, one in judged.items()} == {
        f"way[{way}]": 4 if way in "abcdef" else 5 for way in "abcdefghijkl"
    }
    named = {label for label, one in judged.items() if any("left out" in r for r in remarks(one))}
    assert named == {f"way[{way}]" for way in "abcdef"}


def test_a_slow_test_is_found_whether_it_lost_the_night_or_not_and_its_message_names_it(
    desk, nights
):
    desk.script(slow={"test_way[a]": 1.1, "test_way[l]": 1.1})
    result = desk.run(*nights)
    assert result.ret == 1
    result.assert_outcomes(passed=10, failed=2)
    result.stdout.fnmatch_lines(["way[[]a]: +* % time * REGRESSED*", f"*; {NAMED};*"])
    assert remarks(verdicts(desk)["way[l]"]) == ()


def test_what_all_share_is_taken_out_of_the_tests_that_lost_the_night_too(desk):
    against = desk.sessions(TWELVE, TOGETHER, together=True)
    slow_down(desk.run_path("day3"), "abcde")
    slower = {f"test_way[{way}]": 1.03 * 1.15 for way in "af"}
    desk.script(slow={"*": 1.03} | slower)
    desk.run(*against)
    judged = verdicts(desk)
    assert [len(judged[f"way[{way}]"].sessions) for way in "abcdef"] == [4, 4, 4, 4, 4, 5]
    assert {way: judged[f"way[{way}]"].kind for way in "af"} == dict.fromkeys("af", "REGRESSED")
    shifts = [judged[f"way[{way}]"].reference.shift for way in "af"]
    assert shifts == pytest.approx([0.03, 0.03], abs=0.005)


def test_a_run_of_tests_that_all_lost_the_night_names_it_and_of_others_does_not(desk, nights):
    desk.script()
    result = desk.run(*nights, *(f"test_suite.py::test_way[{way}]" for way in "abcdef"))
    result.stdout.fnmatch_lines([NAMED])
    result = desk.run(*nights, *(f"test_suite.py::test_way[{way}]" for way in "ghij"))
    result.stdout.no_fnmatch_line("*session of 3 Jan*")
