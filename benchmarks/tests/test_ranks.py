"""The program that measures ranks: its faults, whom a report blames, what it counts, and its page."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

HOST = "node7"


@pytest.fixture(scope="module")
def lab(program):
    """The modules that the program is made of."""
    names = ("page", "faults", "runs", "speed", "blame", "launching", "pairing", "ending", "delay")
    return SimpleNamespace(**{name: program(f"rank_figures.{name}") for name in names})


@pytest.fixture
def killed(lab):
    """The fault of a rank 1 that is killed."""
    return next(fault for fault in lab.faults.FAULTS if fault.name == "SIGKILL, rank 1")


@pytest.fixture
def found(lab, killed):
    """What came of it, made up."""
    return lab.blame.Found(killed, "rank 1 …", True, 0.1, False, True, peer=1, peer_s=2.5)


def test_the_faults_are_twenty_over_all_four_kinds_and_can_be_done(lab):
    from tests.ranks import rank_functions

    counts = Counter(fault.kind for fault in lab.faults.FAULTS)
    assert (sum(counts.values()), set(counts)) == (20, {1, 2, 3, 4})
    assert len({fault.name for fault in lab.faults.FAULTS}) == 20
    assert all(callable(getattr(rank_functions, fault.function)) for fault in lab.faults.FAULTS)
    assert all(0 <= fault.guilty < fault.size for fault in lab.faults.FAULTS)


@pytest.mark.parametrize(
    ("line", "right"),
    [
        ("rank 1 (pid 7 on node7) was lost: killed by SIGKILL (out of memory? dmesg tells)", True),
        ("rank 0 (pid 6 on node7) was lost: killed by SIGKILL", False),
        ("rank 1 (pid 7 on node8) was lost: killed by SIGKILL", False),
        ("rank 1 (pid 7 on node7) raised RuntimeError: Connection closed by peer", False),
        ("ranks 0 and rank 1 (pid 7 on node7) was lost: killed by SIGKILL", False),
        ("no failure was reported", False),
    ],
)
def test_the_guilty_its_host_and_the_cause_must_all_be_in_the_first_line(lab, killed, line, right):
    assert lab.faults.blamed(line, killed, HOST) is right


@pytest.mark.parametrize(
    ("text", "rank"),
    [
        ("process 1 terminated with signal SIGKILL", 1),
        ("\n\n-- Process 0 terminated with the following error:\nTraceback …\n-- Process 1 …", 0),
        ("process 1 terminated with exit code 3", 1),
        ("", None),
    ],
)
def test_the_peer_is_held_to_the_rank_that_it_names_first(lab, text, rank):
    assert lab.faults.blamed_by_spawn(text) == rank


HANG = """rank 1 (pid 7 on node7) did not answer within 1.5 s: it is at f.py:8 in late
  rank 1 (pid 7 on node7): stuck, at f.py:8 in late
      File "f.py", line 8 in late
  rank 0 (pid 6 on node7): stuck, in all_reduce at f.py:9 in late
      File "f.py", line 9 in late"""


def test_a_hang_needs_the_stack_of_every_rank_that_can_give_one(lab):
    hangs = {fault.function: fault for fault in lab.faults.FAULTS if fault.kind == 4}
    without = HANG.replace('      File "f.py", line 8 in late\n', "")
    assert lab.faults.has_stacks(HANG, hangs["hang"])
    assert not lab.faults.has_stacks(without, hangs["hang"])
    assert lab.faults.has_stacks(without, hangs["stop_itself"])
    assert not lab.faults.has_stacks(HANG, replace(hangs["hang"], size=3))


def test_blame_counts_both_sides(lab, found):
    other = replace(found, right=False, peer=None, peer_s=None)
    figure = lab.blame.blame_figure([found, other])
    (goal,) = figure.goals
    assert (goal.wanted, goal.found, goal.reached) == ("2 of 2", "1 of 2", False)
    assert "does so in 1 of 2" in figure.text.replace("\n", " ")
    assert "| no, none | killed after 45 s |" in figure.text


def test_a_hang_is_timed_from_its_time_out(lab, found):
    hang = next(fault for fault in lab.faults.FAULTS if fault.name == "hang in Python")
    late = replace(found, fault=hang, seconds=lab.faults.HANG_S + 2.5, stacks=True)
    soon = replace(late, seconds=lab.faults.HANG_S + 0.5, own_payloads=False)
    report, stacks, on = lab.blame.hang_figure([found, late, soon]).goals
    assert (report.found, report.reached) == ("2.50 s", False)
    assert (stacks.found, stacks.reached) == ("2 of 2", True)
    assert (on.found, on.reached) == ("1 of 2", False)


@pytest.mark.parametrize(("late_s", "reached"), [(0.0225, True), (0.0235, False), (0.0165, False)])
def test_a_delay_must_show_as_itself_within_3_ms(lab, late_s, reached):
    seconds = {(timing, who): [0.001, 0.002, 0.003] for timing in lab.delay.TIMINGS for who in (-1, 0, 1)}
    seconds["pipelined", 1] = [0.0, 0.002 + late_s, 1.0]
    goals = lab.delay.figure(seconds, 0).goals
    assert goals[-1].found == f"{late_s * 1e3:+.2f} ms"
    assert [goal.reached for goal in goals] == [False, False, False, reached]


def test_payloads_of_tests_that_did_not_come_so_far_are_no_payloads(lab):
    told = {"a": {"met": "True"}, "b": {"met": "False"}, "c": {}}
    assert lab.pairing.met(told) == [True, False]


def test_outcomes_are_counted(lab):
    assert lab.launching.words_of({"a": "passed", "b": "failed", "c": "passed"}) == "1 failed, 2 passed"


def test_what_never_ended_is_no_time_and_no_success(lab):
    assert lab.ending.shown(None) == "more than 20 s"
    goal = lab.ending._goal(next(iter(lab.ending.MOST_S)), [0.1, None])
    assert (goal.found, goal.reached) == ("more than 20 s", False)


FACTS = {"cpu": "EPYC", "cores": "2", "torch": "2.13", "before": "0.2", "after": "1.4"}


@pytest.fixture
def figures(lab):
    """Two figures, one of which misses its goal."""
    goals = [lab.page.Goal(f"goal {number}", "≤ 1 s", f"{number} s", number < 2) for number in (1, 2)]
    return [lab.page.Figure(f"Figure {goal.found}", (goal,), "Told.") for goal in goals]


def test_the_page_says_plainly_what_misses_its_goal(lab, figures):
    text = lab.page.page(figures, FACTS)
    assert "Missed: goal 2." in text
    assert "| 1 | goal 1 | ≤ 1 s | 1 s | yes |" in text
    assert "| 2 | goal 2 | ≤ 1 s | 2 s | **no** |" in text
    assert "## 2. Figure 2 s\n\nTold.\n" in text
    assert "Every goal was reached." in lab.page.page(figures[:1], FACTS)


def test_paragraphs_are_filled_and_tables_are_not(lab):
    words, rows = "word\n" * 50, lab.page.table(("a", "b"), [("1" * 90, "2" * 90)])
    first, last = lab.page.filled(f"{words}\n{rows}").split("\n\n")
    assert max(map(len, first.splitlines())) <= 120
    assert first.split() == ["word"] * 50
    assert last == rows


@pytest.mark.parametrize(("load", "said"), [("0.5", False), ("2.1", True)])
def test_the_page_says_whether_others_were_at_work(lab, figures, load, said):
    text = lab.page.page(figures, FACTS | {"before": load}).replace("\n", " ")
    assert ("others were at work beside it" in text) is said
    assert f"Load average {load} when it began" in text


def test_figures_of_tests_are_read_from_what_pytest_wrote(lab, tmp_path):
    suite = ElementTree.Element("testsuite")
    case = ElementTree.SubElement(suite, "testcase", name="test_a", time="0.25")
    ElementTree.SubElement(ElementTree.SubElement(case, "properties"), "property", name="met", value="True")
    ElementTree.ElementTree(suite).write(tmp_path / "junit.xml")
    assert lab.runs.test_seconds(tmp_path) == {"test_a": 0.25}
    assert lab.runs.properties(tmp_path) == {"test_a": {"met": "True"}}


def test_every_process_of_a_run_is_found_by_its_mark_and_ended(lab, tmp_path):
    sleeps = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    with lab.runs.started(tmp_path, [sys.executable, "-c", sleeps], {}) as (child, mark):
        while len(lab.runs.running(mark)) < 2:
            assert child.poll() is None
        assert child.pid in lab.runs.running(mark)
        assert list(lab.runs.running(mark, "-c import time")) != []
        assert lab.runs.running("0" * 32) == {}
    assert lab.runs.running(mark) == {}


def test_what_a_run_does_not_write_is_told_with_its_words(lab, tmp_path):
    with lab.runs.started(tmp_path, [sys.executable, "-c", "print('no ranks today')"], {}) as (child, _):
        child.wait()
        with pytest.raises(RuntimeError, match="never came: no ranks today"):
            lab.runs.wait_for(tmp_path / "hanging", child)


def test_the_peer_is_a_program_that_says_whom_spawn_names(lab, killed):
    import json

    asked = {"function": killed.function, "guilty": 1, "arguments": killed.arguments, "size": 2, "group_s": 8}
    done = subprocess.run(
        [sys.executable, str(lab.blame.PEER), json.dumps(asked)],
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert lab.faults.blamed_by_spawn(done.stdout) == 1
