"""Rounds in fresh processes: what they decide, what a crash costs, and that the run itself sees none of it."""

import json
import os
import re
import subprocess
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from click.testing import CliRunner

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.cli.main import main

from ...plugin.conftest import CONFTEST, write_sessions

# One run of up to three rounds in which everything happens; the first tests look at what it left.
EVENTS = """

@pytest.fixture
def number(pytestconfig):
    return round_number(pytestconfig)

@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    with (HERE / "events").open("a") as file:
        file.write(json.dumps([round_number(item.config), os.getpid(), item.nodeid]) + "\\n")
"""
SUITE = """
import unittest
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9)

@pytest.fixture
def measure(roofline, busy):
    return lambda **options: roofline.measure(lambda: busy(1e-3), work=WORK, **options)

def test_steady(measure): measure()
def test_slow(measure): measure()
def test_recovers(measure): measure()
def test_crashes(measure): measure()
def test_after_the_crash(measure): measure()
def test_dies_twice(measure): measure()
def test_fails_later(measure): measure()
def test_fails_at_last(measure): measure()

def test_wrong_later(measure, number): measure(verify=lambda: number != 2)

@pytest.mark.xfail(strict=True, reason="known since 570")
def test_known_to_be_slow(measure): measure()

@pytest.mark.xfail(strict=True, reason="known since 570")
def test_known_no_more(measure): measure()

@pytest.mark.parametrize("way", ["a b", "x[y]", "µ-é-日本"])
def test_ways(measure, way): measure()

class TestGroup:
    def test_in_a_class(self, measure): measure()

class TestOld(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def tools(self, measure): self.measure = measure
    def test_of_unittest(self): self.measure()

@pytest.fixture(scope="module")
def shared(): return []

def test_shares(measure, shared):
    shared.append(1)
    assert len(shared) == 1
    measure()

def test_invalid_once(measure): measure()
def test_invalid_always(measure): measure()
def test_plain(): pass
def test_not_selected(measure): measure()
"""
BELOW = "def test_below(below): below()\n"
BELOW_CONFTEST = """
import pytest
from pytest_roofline import Work

@pytest.fixture
def below(roofline, busy):
    return lambda: roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""
# Nine days that differ so little that three processes turn red, and that 6 % in the first of three is passed.
CALM = (1.0, 1.005, 0.995, 1.0025, 0.9975, 1.004, 0.996, 1.001, 0.999)
OPEN = [1.06, 1.0, 1.0]
SLOW = {
    "test_slow": [1.3, 1.31, 1.29],
    "test_recovers": OPEN,
    "test_crashes": [1.055, "crash", 1.0],
    "test_after_the_crash": OPEN,
    # Beyond the tolerance, and too few for red where the first process is the last.
    "test_dies_twice": [1.06, "crash"],
    "test_fails_later": [1.06, "fail"],
    "test_fails_at_last": [1.3, 1.31, "fail"],
    "test_wrong_later": OPEN,
    "test_known_to_be_slow": [1.3, 1.31, 1.29],
    "test_known_no_more": OPEN,
    "test_ways[a b]": OPEN,
    "test_ways[x[y]]": OPEN,
    "test_ways[µ-é-日本]": OPEN,
    "test_in_a_class": OPEN,
    "test_of_unittest": OPEN,
    "test_shares": OPEN,
    # Above the datasheet's peak.
    "test_invalid_once": [0.3, 1.0],
    "test_invalid_always": 0.3,
    "test_below": OPEN,
}
PLAIN_IDS = "disable_test_id_escaping_and_forfeit_all_rights_to_community_support"
# Under tox, pytest's default is a folder of the environment.
INI = f"[pytest]\n{PLAIN_IDS} = true\nmarkers = none\ncache_dir = .pytest_cache\n"


class Story:
    """What the run printed and left behind."""

    def __init__(self, path, done):
        self.path = path
        self.status = done.returncode
        self.text = done.stdout
        self.lines = done.stdout.splitlines()
        self.run = read_run(path / ".roofline" / "runs" / "story.jsonl")
        self.events = [json.loads(line) for line in (path / "events").read_text().splitlines()]
        self.suite = ET.parse(path / "report.xml").getroot().find("testsuite")

    def case(self, name):
        (case,) = [case for case in self.suite.iter("testcase") if case.get("name") == name]
        return case

    def rounds(self, name):
        """The rounds in which a test began."""
        return [number for number, _, node_id in self.events if node_id.rpartition("::")[2] == name]

    def measured(self, label):
        """(round, invalid) of every measurement under a label."""
        return [(m.round, m.invalid) for m in self.run.measurements if m.label == label]

    def verdict(self, label):
        (verdict,) = [one for one in self.run.verdicts if one.subject.label == label]
        return verdict

    def outcome(self, name):
        found = [o for o in self.run.outcomes if o.test_id.rpartition("::")[2] == name]
        assert len(found) == 1, found
        return found[0]


def run_pytest(path, *options):
    environment = {name: value for name, value in os.environ.items() if name != "PYTEST_ADDOPTS"}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "-p", "no:hypothesispytest", *options],
        cwd=path, env=environment | {"WITHOUT_TORCH": "1", "COLUMNS": "80"}, capture_output=True, text=True,
        timeout=300, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def story(tmp_path_factory):
    """A run that compares with nine sessions and takes up to three rounds."""
    path = tmp_path_factory.mktemp("a story with é")
    (path / "conftest.py").write_text(CONFTEST + EVENTS)
    (path / "pytest.ini").write_text(INI)
    (path / "test_story.py").write_text(SUITE)
    (path / "sub").mkdir()
    (path / "sub" / "conftest.py").write_text(BELOW_CONFTEST)
    (path / "sub" / "test_below.py").write_text(BELOW)
    (path / "script.json").write_text(json.dumps({"device": {}, "slow": {}}))
    recorded = run_pytest(path, "-q", "--roofline-save=once", "--runxfail")
    assert recorded.returncode == 0, recorded.stdout
    runs = path / ".roofline" / "runs"
    against = write_sessions(runs, (runs / "once.jsonl").read_text(), CALM)
    (path / "script.json").write_text(json.dumps({"device": {}, "slow": SLOW}))
    (path / "events").unlink()
    done = run_pytest(
        path, "-v", *against, "--roofline-rounds=3", "--roofline-save=story", "-k", "not not_selected",
        "-m", "not none", "--lf", "--junitxml=report.xml",
    )  # fmt: skip
    return Story(path, done)


RECOVERED = ["recovers", "after_the_crash", "ways[a b]", "ways[x[y]]", "ways[µ-é-日本]", "TestGroup.in_a_class",
             "TestOld.of_unittest", "shares", "below"]  # fmt: skip


def test_rounds_take_what_is_open_and_no_more(story):
    rounds = {
        "test_steady": [1], "test_recovers": [1, 2, 3], "test_slow": [1, 2, 3], "test_plain": [1],
        "test_not_selected": [], "test_crashes": [1, 2, 3], "test_dies_twice": [1, 2, 3], "test_fails_later": [1, 2],
        "test_fails_at_last": [1, 2, 3],
    }  # fmt: skip
    assert {name: story.rounds(name) for name in rounds} == rounds
    assert "round 4" not in story.text.replace("at most 4", "")
    # Each process has a name of its own and belongs to one round. In the second two crashed and were replaced; in the
    # third one was.
    numbers = {}
    for measurement in story.run.measurements:
        numbers.setdefault(measurement.process, set()).add(measurement.round)
    assert sorted(tuple(found) for found in numbers.values()) == [
        (1,),
        (2,),
        (2,),
        (2,),
        (3,),
        (3,),
    ]


def test_a_test_that_is_surely_slower_after_three_processes_fails_in_its_call_phase(story):
    case = story.case("test_slow")
    (failure,) = case.findall("failure")
    assert "REGRESSED" in failure.get("message")
    assert "3 against 9 processes" in failure.get("message")
    assert case.findall("error") == []
    figures = {prop.get("name"): prop.get("value") for prop in case.iter("property")}
    assert (figures["roofline.verdict"], figures["roofline.processes"]) == ("REGRESSED", "3")
    outcome = story.outcome("test_slow")
    assert (outcome.outcome, outcome.by_verdict) == ("failed", True)
    assert (story.verdict("slow").kind, story.verdict("slow").processes) == ("REGRESSED", 3)


def test_a_test_whose_verdict_was_open_passes_once_a_fresh_process_says_so(story):
    for label in RECOVERED:
        assert (story.verdict(label).kind, story.verdict(label).processes) == ("PASSED", 3), label
        assert story.measured(label) == [(1, ""), (2, ""), (3, "")], label
        (measurement,) = [m for m in story.run.measurements if m.label == label and m.round == 2]
        outcomes = [
            outcome.outcome
            for outcome in story.run.outcomes
            if outcome.test_id == measurement.test_id
        ]
        assert outcomes == ["passed"], label


def test_a_crash_costs_its_test_that_round_and_no_more(story):
    assert story.measured("crashes") == [(1, ""), (3, "")]
    assert story.verdict("crashes").kind == "PASSED"
    assert story.outcome("test_crashes").outcome == "passed"
    # What comes after it is measured in another process of the same round.
    second = {m.label: m.process for m in story.run.measurements if m.round == 2}
    assert (
        second["recovers"] != second["after_the_crash"] != second["shares"] == second["ways[a b]"]
    )
    # After two nobody tries again.
    assert story.verdict("dies_twice").kind == "INCONCLUSIVE"
    assert story.outcome("test_dies_twice").outcome == "passed"


def test_a_test_that_fails_for_itself_in_a_later_round_fails_and_has_no_verdict(story):
    for name, words in (
        ("fails_later", ["wrong in this round", "round 2"]),
        ("fails_at_last", ["wrong in this round", "round 3"]),
        ("wrong_later", ["wrong data"]),
    ):
        (failure,) = story.case(f"test_{name}").findall("failure")
        assert all(word in failure.get("message") for word in words), failure.get("message")
        outcome = story.outcome(f"test_{name}")
        assert (outcome.outcome, outcome.by_verdict) == ("failed", False)
        assert [one for one in story.run.verdicts if one.subject.label == name] == []
    # All its processes stand in the report, as in the file.
    figures = {
        prop.get("name"): prop.get("value")
        for prop in story.case("test_fails_at_last").iter("property")
    }
    assert (figures["roofline.verdict"], figures["roofline.processes"]) == ("FAILED", "2")
    assert story.measured("fails_at_last") == [(1, ""), (2, "")]
    wrong = [m for m in story.run.measurements if m.label == "wrong_later"]
    assert [m.round for m in wrong] == [1, 2]
    assert all(story.run.unfit(m, accept_slower=True) for m in wrong)
    assert "wrong data" in wrong[1].invalid


def test_a_test_that_is_expected_to_be_slow_is_an_xfail_until_it_recovers(story):
    case = story.case("test_known_to_be_slow")
    assert (len(case.findall("skipped")), case.findall("failure")) == (1, [])
    assert story.verdict("known_to_be_slow").kind == "REGRESSED"
    (slow, *_) = [m for m in story.run.measurements if m.label == "known_to_be_slow"]
    assert story.run.unfit(slow, accept_slower=False), "an acknowledged regression is no baseline"
    (failure,) = story.case("test_known_no_more").findall("failure")
    assert "XPASS(strict)" in failure.get("message")
    assert story.measured("known_no_more") == [(1, ""), (2, ""), (3, "")]
    assert story.outcome("test_known_no_more").outcome == "failed"


def test_a_number_that_cannot_be_trusted_is_taken_again_and_three_times_is_invalid(story):
    first, second = story.measured("invalid_once")
    assert (first[0], "datasheet" in first[1], second) == (1, True, (2, ""))
    assert (story.verdict("invalid_once").kind, story.verdict("invalid_once").processes) == (
        "PASSED",
        1,
    )
    assert [number for number, _ in story.measured("invalid_always")] == [1, 2, 3]
    assert story.verdict("invalid_always").kind == "INVALID"


def test_pytest_sees_every_test_once_as_it_ended(story):
    assert story.status == story.run.footer.exit_status == pytest.ExitCode.TESTS_FAILED
    names = [case.get("name") for case in story.suite.iter("testcase")]
    assert sorted(names) == sorted({node_id.rpartition("::")[2] for _, _, node_id in story.events})
    assert (story.suite.get("failures"), story.suite.get("errors"), story.suite.get("skipped")) == (
        "5",
        "0",
        "1",
    )
    known = json.loads((story.path / ".pytest_cache" / "v" / "cache" / "lastfailed").read_text())
    failed = {
        "test_slow",
        "test_fails_later",
        "test_fails_at_last",
        "test_wrong_later",
        "test_known_no_more",
    }
    assert set(known) == {f"test_story.py::{name}" for name in failed}
    ended = [
        line for line in story.lines if re.search(r" (PASSED|FAILED|XFAIL).*\[ *\d+%\]$", line)
    ]
    assert len({line.partition(" ")[0] for line in ended}) <= len(ended) == 21
    assert ended[-1].endswith("[100%]")

    def place(start):
        return next(
            index
            for index, line in enumerate(story.lines)
            if line.startswith(start) and "PENDING" not in line
        )

    # As soon as its verdict is out.
    assert (
        place("test_story.py::test_fails_later")
        < place("roofline: round 3")
        < place("test_story.py::test_slow")
    )


def test_rounds_leave_nothing_of_their_own(story):
    names = {path.stem for path in (story.path / ".roofline" / "runs").glob("*.jsonl")}
    assert names == {"once", "story", *(f"day{number}" for number in range(1, 10))}
    pids = {pid for _, pid, _ in story.events}
    assert len(pids) == 6
    assert [pid for pid in pids if Path(f"/proc/{pid}").exists()] == []


def test_explain_shows_every_process_and_a_proposal_takes_none_of_a_test_that_went_wrong(
    story, tmp_path
):
    path, proposal = story.path / ".roofline" / "runs" / "story.jsonl", tmp_path / "p.json"
    answer = CliRunner().invoke(main, ["explain", str(path), "test_story.py::test_slow"])
    assert (answer.exit_code, "REGRESSED" in answer.output) == (0, True)
    for number, figure in ((1, "1.30 ms"), (2, "1.31 ms"), (3, "1.29 ms")):
        assert re.search(rf"round {number}, process \w+: {figure}", answer.output)
    answer = CliRunner().invoke(main, ["explain", str(path), "wrong_later"])
    assert len(re.findall(r"left out: .*wrong data", answer.output)) == 1
    answer = CliRunner().invoke(main, ["baseline", "propose", str(path), "-o", str(proposal)])
    assert answer.exit_code == 0, answer.output
    proposed = {entry["benchmark"]: entry for entry in json.loads(proposal.read_text())["entries"]}
    assert not {"fails_later", "wrong_later", "invalid_always", "slow"} & set(proposed)
    (session,) = proposed["recovers"]["sessions"]
    assert len(session["process_medians"]) == 3
