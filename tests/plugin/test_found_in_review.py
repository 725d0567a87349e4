"""What reviewers broke once: each test tells the story of a hole that is closed."""

import json

TWO_CLASSES = """
from pytest_roofline import Work

class TestA:
    def test_same(self, roofline, busy):
        roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))

class TestB:
    class TestInner:
        def test_same(self, roofline, busy):
            roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""

UNITTEST = """
import unittest
import pytest
from pytest_roofline import Work

class TestIt(unittest.TestCase):
    @pytest.fixture(autouse=True)
    def tools(self, roofline, busy):
        self.roofline, self.busy = roofline, busy

    def test_it(self):
        self.roofline.measure(lambda: self.busy(1e-3), work=Work(read_bytes=10**9))
        self.fail("results are wrong")
"""

ONE = """
from pytest_roofline import Work

def test_one(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""


def test_tests_of_two_classes_are_told_apart(desk):
    desk.suite(TWO_CLASSES)
    desk.run("--roofline-save=it")
    assert [m.label for m in desk.saved("it").measurements] == ["TestA.same", "TestB.TestInner.same"]


def test_a_unittest_that_fails_for_itself_has_no_verdict(desk):
    desk.suite(UNITTEST)
    result = desk.run("--roofline-save=it")
    result.assert_outcomes(failed=1)
    assert any(line.startswith("TestIt.it ") and line.endswith("FAILED") for line in result.stdout.lines)
    (outcome,) = desk.saved("it").outcomes
    assert (outcome.outcome, outcome.by_verdict) == ("failed", False)


def test_looking_at_fixtures_opens_no_device(desk):
    desk.suite(ONE)
    for option in ("--fixtures", "--fixtures-per-test", "--setup-plan", "--setup-only"):
        result = desk.run(option)
        assert "GATES NOTHING" not in result.stdout.str(), option
        assert not (desk.path / "opened").exists(), option


def test_a_path_that_no_system_takes_is_one_sentence(desk, sentence):
    desk.suite(ONE)
    for option in ("--roofline-against=" + "a" * 400 + "/x", "--roofline-baselines=" + "a" * 400):
        sentence(desk.run(option), "File name too long")
    answer = desk.cli("baseline", "propose", "a" * 400 + ".jsonl", "-o", "p.json")
    assert answer.exit_code == 2


def test_a_whole_number_beyond_64_bits_in_a_run_is_refused(desk, sentence):
    desk.suite(ONE)
    desk.run("--roofline-save=it")
    path = desk.path / ".roofline" / "runs" / "it.jsonl"
    header, rest = path.read_text().split("\n", 1)
    facts = json.loads(header)
    facts["environment"]["host"]["threads"] = 10**400
    path.write_text(json.dumps(facts) + "\n" + rest)
    sentence(desk.run("--roofline-against=it"), "401 digits")


def test_the_commands_printed_under_require_baseline_work(desk):
    desk.suite(ONE)
    result = desk.run("--roofline-require-baseline", "--roofline-save=it")
    result.stdout.fnmatch_lines(["*roofline baseline propose it*"])
    answer = desk.cli("baseline", "propose", "it", "-o", "p.json")
    assert answer.exit_code == 0, answer.output


def test_a_markers_tolerance_holds_offline_as_it_does_live(desk):
    desk.suite(ONE)
    desk.run("--roofline-save=old")
    desk.suite(ONE.replace("def test_one", "import pytest\n@pytest.mark.roofline(tolerance=0.5)\ndef test_one"))
    desk.script(slow={"*": 1.3})
    assert desk.run("--roofline-save=new", "--roofline-against=old").ret == 0
    assert desk.cli("compare", "old", "new").exit_code == 0


def test_a_threshold_written_with_a_decimal_point_gates(desk):
    desk.suite(
        ONE.replace("def test_one(", "import pytest\n@pytest.mark.parametrize('size', [64])\ndef test_one(size, ")
    )
    folder = desk.path / "baselines"
    folder.mkdir()
    entry = {
        "benchmark": "one",
        "parameters": {"size": 64.0},
        "metric": "traffic_GBps",
        "kind": "threshold",
        "value": 2000.0,
        "unit": "GB/s",
        "convention": "read + write",
        "source": "the vendor's guide",
        "confidence": "high",
    }
    (folder / "h100.json").write_text(json.dumps({"schema": 1, "family": "h100", "entries": [entry]}))
    result = desk.run()
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*BELOW THRESHOLD*"])


def test_foreign_json_beside_the_baselines_is_passed_over(desk):
    desk.suite(ONE + "\nimport pytest\n@pytest.mark.roofline(tier='nightly')\ndef test_two(roofline): pass\n")
    folder = desk.path / "baselines"
    folder.mkdir()
    (folder / "mpl.json").write_text('{"images": 1}')
    assert desk.run().ret == 0
