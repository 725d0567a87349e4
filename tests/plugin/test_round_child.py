"""The child's side of a round, run in this process: which tests it runs, what it leaves alone, what it tells."""

import json
import os
import shutil
import sys
from types import SimpleNamespace

import pytest

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.plugin import round_child
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
        self.events = [
            tuple(*json.loads(line).items())
            for line in (folder / "status").read_text().splitlines()
        ]
        self.paths = sorted((folder / "runs").glob("*.jsonl"))

    @property
    def run(self):
        (path,) = self.paths
        return read_run(path)

    @property
    def measured(self):
        return [
            measurement.test_id
            for path in self.paths
            for measurement in read_run(path).measurements
        ]


@pytest.fixture
def child(desk, monkeypatch):
    """Runs pytest in this process as a round of some other run would be."""
    desk.ini("markers = slow")

    def start(ids, *args, text=SUITE, parent=None, deadline=None, **more):
        if text is not None:
            desk.suite(text)
        folder = desk.path / "round"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        (folder / "status").touch()
        asked = {
            "round": 2, "ids": ids, "folder": str(folder), "parent": parent or os.getppid(),
            "deadline": deadline, **more,
        }  # fmt: skip
        (folder / "round.json").write_text(json.dumps(asked))
        monkeypatch.setenv(VARIABLE, str(folder / "round.json"))
        return Child(desk.run(*args), folder)

    return start


ALL = [("start", FIRST), ("end", FIRST), ("start", SECOND), ("end", SECOND)]
FAILS_FIRST = SUITE.replace(
    "def test_first(roofline, busy):", "def test_first(roofline, busy):\n    assert False"
)


def test_a_round_runs_the_tests_it_was_asked_for_in_the_order_of_the_run_and_tells_of_each(
    child, desk
):
    seen = child([THIRD, FIRST], "--roofline-save=mine")
    assert (seen.result.ret, seen.measured) == (0, [FIRST, THIRD])
    assert seen.events == [("start", FIRST), ("end", FIRST), ("start", THIRD), ("end", THIRD)]
    # Its run lies in the folder of the round alone.
    assert len(seen.paths) == 1
    assert not (desk.path / ".roofline").exists()
    text = (
        "import os\nfrom pathlib import Path\nfrom pytest_roofline.settings.round import in_round\n"
        "def test_first(roofline, pytestconfig):\n"
        '    assert "test_first" in Path("round/status").read_text()\n'
        "    assert in_round(pytestconfig).number == 2\n"
        "    assert 'ROOFLINE_ROUND' not in os.environ, 'what a test starts is no round'\n"
    )
    child([FIRST], text=text).result.assert_outcomes(passed=1)
    seen = child(["test_suite.py::test_nobody"])
    assert (seen.result.ret, seen.events) == (pytest.ExitCode.NO_TESTS_COLLECTED, [])


def test_a_round_imports_the_files_of_its_tests_alone(child, desk):
    elsewhere = (
        "import json\n\nwith open('imported', 'a') as file:\n    file.write(__name__ + ' ')\n"
    )
    desk.suite(SUITE)
    (desk.path / "test_another.py").write_text(f"{elsewhere}\ndef test_another(roofline): pass\n")
    seen = child([FIRST], ".", text=elsewhere + SUITE)
    assert (seen.result.ret, seen.measured) == (0, [FIRST])
    assert (desk.path / "imported").read_text().split() == ["test_suite"]


def test_a_round_whose_files_are_not_found_collects_what_the_command_line_names(child, desk):
    seen = child([FIRST, "gone/test_gone.py::test_gone"], ".")
    assert (seen.result.ret, seen.measured) == (0, [FIRST])


def test_a_round_runs_a_test_above_the_tier_that_its_parent_was_asked_for_by_name(child, desk):
    mark = "@pytest.mark.roofline(tier='nightly')\n"
    nightly = SUITE.replace("def test_first", f"{mark}def test_first")
    assert child([FIRST], text=nightly).measured == [FIRST]


def test_a_round_judges_nothing_starts_no_rounds_and_looks_at_no_device(child, desk):
    against = desk.sessions(SUITE.replace("assert False", "pass"))
    gpu = {"index": 0, "power_limit_w": 400, "power_default_w": 700}
    for slow, option in ((2.0, "--roofline-ci"), (1.07, "--roofline-rounds=auto")):
        desk.script(slow=slow, gpu=gpu)
        seen = child([FIRST], *against, option, "-v")
        assert (seen.result.ret, len(seen.measured), seen.run.verdicts) == (0, 1, ()), option
        assert [outcome.outcome for outcome in seen.run.outcomes] == ["passed"], option
        assert not any(
            word in seen.result.stdout.str() for word in ("PENDING", "round 2", "device health")
        )


def test_what_selects_stops_or_repeats_in_the_run_does_not_in_its_rounds(child, desk):
    desk.suite(FAILS_FIRST)
    # The last run knows of another failure, and of a place to go on from.
    desk.run("--deselect", FIRST, "--sw")
    for ini, options in (
        ("markers = slow", ("-k", "third", "-m", "slow", "--maxfail=1", "--reruns=2")),
        ("markers = slow", ("-x", "--lf", "--deselect", FIRST, "--force-reruns=2")),
        ("markers = slow", ("--ff", "--nf", "--sw", "--sw-skip")),
        ("markers = slow", ("--sw-reset",) if pytest.version_tuple >= (9,) else ()),
        ("reruns = 2", ()),
        ("addopts = -k third -m slow -x -n 2 --junitxml=report.xml", ()),
    ):
        desk.ini("markers = slow", *({ini} - {"markers = slow"}))
        seen = child([FIRST, SECOND], *options, text=FAILS_FIRST)
        assert (seen.events, seen.measured) == (ALL, [SECOND]), (ini, options)
        seen.result.assert_outcomes(passed=1, failed=1)
    assert not (desk.path / "report.xml").exists()


def test_a_round_leaves_the_reports_and_folders_of_the_run_alone(child, desk):
    (desk.path / "there" / "runs").mkdir(parents=True)
    (desk.path / "base").mkdir()
    kept = [
        desk.path / "kept",
        desk.path / "there" / "runs" / "r.jsonl",
        desk.path / "base" / "artifact",
    ]
    for path in kept:
        path.write_text("what the run wrote")
    # pytest empties the folder of --basetemp when a test first asks for a temporary one.
    text = SUITE.replace(
        "def test_first(roofline, busy):", "def test_first(roofline, busy, tmp_path):"
    )
    for ini, options in (
        ((), ("--junitxml=kept", "--basetemp=base")),
        ((), ("--junit-xml", "kept", "--roofline-save=r", "--roofline-dir=there")),
        (("log_file = kept", "log_file_level = DEBUG"), ()),
    ):
        desk.ini("markers = slow", *ini)
        assert child([FIRST], *options, text=text).measured == [FIRST], options
        assert {path.read_text() for path in kept} == {"what the run wrote"}, options


def test_a_round_that_is_over_starts_no_test(child):
    seen = child([FIRST, SECOND], deadline=1.0)
    assert (seen.result.ret, seen.events, seen.paths) == (pytest.ExitCode.INTERRUPTED, [], [])


def test_a_variable_that_another_run_left_behind_is_refused_and_ends_nothing_else(
    child, desk, sentence, monkeypatch
):
    # It once ended its whole process group without a word.
    sentence(child([FIRST], parent=-1).result, "ROOFLINE_ROUND is ", "Unset ROOFLINE_ROUND")
    for text in ("", "[]", "{}", None):
        path = desk.path / "left.json"
        path.unlink() if text is None else path.write_text(text)
        monkeypatch.setenv(VARIABLE, str(path))
        sentence(desk.run(), f"ROOFLINE_ROUND is '{path}'", "Unset ROOFLINE_ROUND")


FAILING = """
import pytest
from pytest_roofline import Work

@pytest.fixture
def broken(): raise OSError("no room left")

def test_first(roofline, busy, broken):
    roofline.measure(lambda: busy(1e-3), work=Work(read_bytes=10**9))
"""


def test_a_round_tells_of_what_failed_there_and_not_of_what_is_expected_to_be_slow(child):
    (outcome,) = child([FIRST], text=FAILING).run.outcomes
    assert (outcome.test_id, outcome.outcome, outcome.by_verdict) == (FIRST, "failed", False)
    assert "no room left" in outcome.reason
    run = child(
        [FIRST], text=SUITE.replace("work=WORK)", "work=WORK, verify=lambda: False)", 1)
    ).run
    assert [outcome.outcome for outcome in run.outcomes] == ["failed"]
    assert "wrong data" in run.measurements[0].invalid
    for strict in (True, False):
        # By itself it passes: whether it is slow is for the parent to say.
        marked = f"@pytest.mark.xfail(strict={strict}, reason='known')\ndef test_first"
        seen = child([FIRST], text=SUITE.replace("def test_first", marked))
        assert [outcome.outcome for outcome in seen.run.outcomes] == ["passed"]


def test_a_process_of_ab_measures_all_that_was_chosen_judges_nothing_and_tells_of_code_from_elsewhere(
    child, desk, monkeypatch
):
    gate = (
        "--roofline-ci",
        "--roofline-against=absent",
        "--roofline-expect=absent",
        "--roofline-fail-on=nonsense",
    )
    here = str(desk.path)
    seen = child(None, "-k", "first or plain", *gate, side={"checkout": here, "folder": here})
    # Tests that measure nothing are left out.
    assert (seen.result.ret, seen.measured) == (0, [FIRST])
    assert seen.events == [("planned", FIRST), ("start", FIRST), ("end", FIRST)]
    seen = child(
        [SECOND], "-k", "first", *gate, side={"checkout": here, "folder": f"{here}-elsewhere"}
    )
    assert (seen.result.ret, seen.measured) == (0, [SECOND])
    assert ("stray", f"{here}/test_suite.py") in seen.events
    # Through a link, and by an interpreter whose folder holds the checkout.
    (desk.path.parent / "link").symlink_to(here)
    monkeypatch.setattr(sys, "base_prefix", str(desk.path.parent))
    side = {"checkout": here, "folder": f"{here}-elsewhere"}
    assert ("stray", f"{here}/test_suite.py") in child(
        None, f"{desk.path.parent}/link/test_suite.py", side=side
    ).events


@pytest.mark.parametrize("own_process", [True, False])
def test_only_a_process_that_was_started_for_a_round_leaves_its_memory_to_its_end(
    monkeypatch, own_process
):
    frozen = []
    monkeypatch.setattr(round_child.gc, "freeze", lambda: frozen.append(True))
    round_child.Watch(SimpleNamespace(own_process=own_process)).pytest_unconfigure()
    assert bool(frozen) is own_process
