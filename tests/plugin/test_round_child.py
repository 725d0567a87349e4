"""The child's side of a round, run in this process: which tests it runs, what it leaves alone, what it tells."""

import json
import os

import pytest

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.plugin.round_child import VARIABLE

SUITE = """
import os
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9)

def test_first(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_second(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)

@pytest.mark.slow
def test_third(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_plain():
    assert False
"""
FIRST, SECOND, THIRD = (f"test_suite.py::test_{name}" for name in ("first", "second", "third"))


class Child:
    """What a round left behind: pytest's result, what it told its parent, and its run file."""

    def __init__(self, result, folder):
        self.result = result
        self.events = [tuple(*json.loads(line).items()) for line in (folder / "status").read_text().splitlines()]
        self.paths = sorted((folder / "runs").glob("*.jsonl"))

    @property
    def run(self):
        (path,) = self.paths
        return read_run(path)

    @property
    def measured(self):
        return [measurement.test_id for path in self.paths for measurement in read_run(path).measurements]


@pytest.fixture
def child(desk, monkeypatch):
    """Runs pytest in this process as a round of some other run would be."""
    desk.ini("markers = slow")

    def start(ids, *args, text=SUITE, parent=None, deadline=None):
        if text is not None:
            desk.suite(text)
        folder = desk.path / "round"
        folder.mkdir()
        (folder / "status").touch()
        asked = {
            "round": 2, "ids": list(ids), "folder": str(folder), "parent": parent or os.getppid(),
            "deadline": deadline, "status": str(folder / "status"),
        }  # fmt: skip
        (folder / "round.json").write_text(json.dumps(asked))
        monkeypatch.setenv(VARIABLE, str(folder / "round.json"))
        return Child(desk.run(*args), folder)

    return start


def test_a_round_runs_only_the_tests_it_was_asked_for_in_the_order_of_the_run(child):
    seen = child([THIRD, FIRST])
    assert seen.result.ret == 0
    assert seen.measured == [FIRST, THIRD]
    seen.result.assert_outcomes(passed=2)


def test_a_round_tells_of_every_test_as_it_starts_and_as_it_ends(child):
    assert child([FIRST, SECOND]).events == [("start", FIRST), ("end", FIRST), ("start", SECOND), ("end", SECOND)]


def test_a_test_stands_as_started_before_it_does_anything(child):
    text = 'from pathlib import Path\ndef test_look(roofline): assert "test_look" in Path("round/status").read_text()\n'
    child(["test_suite.py::test_look"], text=text).result.assert_outcomes(passed=1)


def test_a_round_leaves_its_run_in_the_folder_of_the_round_alone(child, desk):
    seen = child([FIRST], "--roofline-save=mine")
    assert len(seen.paths) == 1
    assert not (desk.path / ".roofline").exists()


@pytest.mark.parametrize(
    "options", [(), ("--roofline-require-baseline",), ("--roofline-ci",), ("--roofline-qualify",)], ids=str
)
def test_a_round_judges_nothing(child, desk, options):
    against = desk.sessions(SUITE.replace("assert False", "pass"))
    desk.script(slow=2.0)
    seen = child([FIRST], *against, *options)
    assert seen.result.ret == 0
    assert seen.run.judgements == ()
    assert [outcome.outcome for outcome in seen.run.outcomes] == ["passed"]


def test_a_round_starts_no_rounds_of_its_own(child, desk):
    against = desk.sessions(SUITE.replace("assert False", "pass"))
    desk.script(slow=1.07)
    seen = child([FIRST], *against, "--roofline-rounds=auto", "-v")
    assert "HELD" not in seen.result.stdout.str()
    assert "round 2" not in seen.result.stdout.str()
    assert len(seen.measured) == 1


@pytest.mark.parametrize(
    "options",
    [
        ("-k", "third"),
        ("-m", "slow"),
        ("-x",),
        ("--maxfail=1",),
        ("--lf",),
        ("--ff",),
        ("--nf",),
        ("--sw",),
        ("--sw-skip",),
        ("--sw-reset",),
        ("--deselect", FIRST),
        ("--reruns=2",),
        ("--force-reruns=2",),
    ],
    ids=" ".join,
)
def test_what_selects_stops_or_repeats_in_the_run_does_not_in_its_rounds(child, desk, options):
    text = SUITE.replace("def test_first(roofline, busy):", "def test_first(roofline, busy):\n    assert False")
    desk.suite(text)
    if options[0] in ("--lf", "--sw", "--sw-skip"):
        # The last run knows of another failure, and of a place to go on from.
        desk.run("-q", "--deselect", FIRST, "--sw")
    seen = child([FIRST, SECOND], *options, text=text)
    assert seen.events == [("start", FIRST), ("end", FIRST), ("start", SECOND), ("end", SECOND)]
    assert seen.measured == [SECOND]
    seen.result.assert_outcomes(passed=1, failed=1)


def test_reruns_in_the_ini_file_do_not_repeat_a_round(child, desk):
    desk.ini("reruns = 2")
    text = SUITE.replace("def test_first(roofline, busy):", "def test_first(roofline, busy):\n    assert False")
    seen = child([FIRST, SECOND], text=text)
    assert seen.events == [("start", FIRST), ("end", FIRST), ("start", SECOND), ("end", SECOND)]
    seen.result.assert_outcomes(passed=1, failed=1)


def test_options_that_the_ini_file_adds_do_not_act_either(child, desk):
    desk.ini("markers = slow", "addopts = -k third -m slow -x --junitxml=report.xml")
    seen = child([FIRST, SECOND])
    assert seen.measured == [FIRST, SECOND]
    assert not (desk.path / "report.xml").exists()


def write_log_file(desk):
    desk.ini("log_file = kept", "log_file_level = DEBUG")
    return ()


@pytest.mark.parametrize(
    "options",
    [
        lambda desk: ("--junitxml=kept",),
        lambda desk: ("--junit-xml", "kept"),
        lambda desk: ("--log-file=kept", "--log-file-level=DEBUG"),
        write_log_file,
        lambda desk: ("--roofline-save=r", "--roofline-dir=there"),
    ],
    ids=["junitxml", "junit-xml", "log-file", "log-file-in-the-ini", "roofline-save"],
)
def test_a_round_leaves_the_reports_of_the_run_alone(child, desk, options):
    (desk.path / "kept").write_text("what the run wrote")
    (desk.path / "there" / "runs").mkdir(parents=True)
    (desk.path / "there" / "runs" / "r.jsonl").write_text("what the run wrote")
    seen = child([FIRST], *options(desk))
    assert (desk.path / "kept").read_text() == "what the run wrote"
    assert (desk.path / "there" / "runs" / "r.jsonl").read_text() == "what the run wrote"
    assert seen.measured == [FIRST]


def test_a_round_leaves_the_base_of_temporary_folders_alone(child, desk):
    # pytest empties the folder of --basetemp when a test first asks for a temporary one.
    (desk.path / "base").mkdir()
    (desk.path / "base" / "artifact").write_text("what the run wrote")
    text = SUITE.replace("def test_first(roofline, busy):", "def test_first(roofline, busy, tmp_path):")
    seen = child([FIRST], "--basetemp=base", text=text)
    assert seen.measured == [FIRST]
    assert (desk.path / "base" / "artifact").read_text() == "what the run wrote"


def test_options_of_the_users_own_keep_their_values_in_a_round(child, desk):
    desk.pytester.makeconftest(
        desk.conftest
        + """
def pytest_addoption(parser):
    parser.addoption("--count", type=int, default=3)
    parser.addoption("--trace-file", default="t")
"""
    )
    text = """
from pytest_roofline import Work
def test_first(roofline, busy, pytestconfig):
    assert pytestconfig.getoption("--count") == 5
    assert pytestconfig.getoption("--trace-file") == "t"
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""
    child([FIRST], "--count=5", text=text).result.assert_outcomes(passed=1)


def test_what_a_test_starts_is_no_round(child):
    text = "import os\ndef test_first(roofline): assert 'ROOFLINE_ROUND' not in os.environ\n"
    child([FIRST], text=text).result.assert_outcomes(passed=1)


def test_a_test_can_know_its_round(child, desk):
    text = """
from pytest_roofline.plugin.round_child import in_round
def test_first(roofline, pytestconfig): print("round", getattr(in_round(pytestconfig), "number", "none"))
"""
    child([FIRST], "-s", text=text).result.stdout.fnmatch_lines(["*round 2*"])
    desk.run("-s").stdout.fnmatch_lines(["*round none*"])


@pytest.mark.parametrize(("parent", "deadline"), [(1, None), (None, 1.0)], ids=["parent-gone", "time-spent"])
def test_a_round_that_is_over_starts_no_test(child, parent, deadline):
    if parent == os.getppid():
        pytest.skip("needs a parent that is not init, found init")
    seen = child([FIRST, SECOND], parent=parent, deadline=deadline)
    assert seen.result.ret == pytest.ExitCode.INTERRUPTED
    assert seen.events == []
    assert seen.paths == []


def test_a_round_whose_tests_are_gone_says_that_it_found_none(child):
    seen = child(["test_suite.py::test_nobody"])
    assert seen.result.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert seen.events == []


FAILING = """
import pytest
from pytest_roofline import Work

@pytest.fixture
def broken(): raise OSError("no room left")

def test_first(roofline, busy, broken):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""


def test_a_round_tells_of_a_test_that_failed_before_it_measured(child):
    (outcome,) = child([FIRST], text=FAILING).run.outcomes
    assert (outcome.test_id, outcome.outcome, outcome.by_verdict) == (FIRST, "failed", False)
    assert "no room left" in outcome.reason


def test_a_round_tells_of_wrong_data_and_keeps_the_number_as_invalid(child):
    text = SUITE.replace("work=WORK)", "work=WORK, verify=lambda: False)", 1)
    run = child([FIRST], text=text).run
    assert [outcome.outcome for outcome in run.outcomes] == ["failed"]
    assert "wrong data" in run.measurements[0].invalid


@pytest.mark.parametrize("strict", [True, False])
def test_a_test_that_is_expected_to_be_slow_does_not_fail_its_round(child, strict):
    # By itself it passes: whether it is slow is for the parent to say.
    marked = f"@pytest.mark.xfail(strict={strict}, reason='known')\ndef test_first"
    seen = child([FIRST], text=SUITE.replace("def test_first", marked))
    assert [outcome.outcome for outcome in seen.run.outcomes] == ["passed"]


def test_a_round_has_no_item_for_the_device(child, desk):
    desk.script(gpu={"index": 0, "power_limit_w": 400, "power_default_w": 700})
    seen = child([FIRST], "-v")
    assert seen.result.ret == 0
    assert "device health" not in seen.result.stdout.str()


NAMES = ["a b", "x[y]z", "tab\\there", "µ-é-日本", "a::b", "a/b", "-k", '"', "'", "a\\\\b", "%s{0}"]
NAMED = """
import pytest
from pytest_roofline import Work

@pytest.mark.parametrize("way", {names}, ids=str)
def test_way(roofline, busy, way):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""


@pytest.mark.parametrize("escaped", [True, False], ids=["escaped", "plain"])
def test_a_round_finds_its_tests_by_any_id(child, desk, escaped):
    if not escaped:
        desk.ini("disable_test_id_escaping_and_forfeit_all_rights_to_community_support = true")
    others = [f"other {name}" for name in NAMES]
    desk.suite(NAMED.format(names=NAMES + others))
    ids = [
        line for line in desk.run("--collect-only", "-q").stdout.lines if "::test_way[" in line and "other" not in line
    ]
    assert len(ids) == len(NAMES)
    assert any("µ" in test_id for test_id in ids) is not escaped
    seen = child(ids, text=None)
    assert seen.measured == ids
    assert seen.events == [(event, test_id) for test_id in ids for event in ("start", "end")]


def test_a_round_finds_a_test_in_a_file_whose_name_is_no_text(child, desk):
    # A byte that is no UTF-8 stands as a surrogate in ids; pytest's own cache cannot write it.
    desk.suite(SUITE, "test_\udce4")
    seen = child(["test_\udce4.py::test_first"], "-p", "no:cacheprovider", text=None)
    assert seen.measured == ["test_\\udce4.py::test_first"]
    assert seen.events == [(event, "test_\udce4.py::test_first") for event in ("start", "end")]
