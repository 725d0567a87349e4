"""The program that measures ranks: its faults, whom a report blames, what it counts, and its page."""

import os
import subprocess
import sys
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
        (
            "rank 1 (pid 7 on node7) was lost: killed by SIGKILL (maybe out of memory; check dmesg)",
            True,
        ),
        ("rank 0 (pid 6 on node7) was lost: killed by SIGKILL", False),
        ("rank 1 (pid 7 on node8) was lost: killed by SIGKILL", False),
        ("rank 1 (pid 7 on node7) raised RuntimeError: Connection closed by peer", False),
        ("ranks 0 and rank 1 (pid 7 on node7) was lost: killed by SIGKILL", False),
        ("no failure was reported", False),
    ],
)
def test_the_guilty_its_host_and_the_cause_must_all_be_in_the_first_line(lab, killed, line, right):
    assert lab.faults.blamed(line, killed, HOST) is right


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


def test_a_hang_is_timed_from_its_time_out(lab, found):
    hang = next(fault for fault in lab.faults.FAULTS if fault.name == "hang in Python")
    late = replace(found, fault=hang, seconds=lab.faults.HANG_S + 2.5, stacks=True)
    soon = replace(late, seconds=lab.faults.HANG_S + 0.5, own_payloads=False)
    report, stacks, on = lab.blame.hang_figure([found, late, soon]).goals
    assert (report.found, report.reached) == ("2.50 s", False)
    assert (stacks.found, stacks.reached) == ("2 of 2", True)
    assert (on.found, on.reached) == ("1 of 2", False)


FACTS = {"cpu": "EPYC", "cores": "2", "torch": "2.13", "before": "0.2", "after": "1.4"}


@pytest.fixture
def figures(lab):
    """Two figures, one of which misses its goal."""
    goals = [
        lab.page.Goal(f"goal {number}", "≤ 1 s", f"{number} s", number < 2) for number in (1, 2)
    ]
    return [lab.page.Figure(f"Figure {goal.found}", (goal,), "Told.") for goal in goals]


def test_the_page_says_plainly_what_misses_its_goal(lab, figures):
    text = lab.page.page(figures, FACTS)
    assert "**1 of 2 goals is missed**: goal 2: 2 s." in text
    assert "| 1 | goal 1 | ≤ 1 s | 1 s | yes |" in text
    assert "| 2 | goal 2 | ≤ 1 s | 2 s | **no** |" in text
    assert "## 2. Figure 2 s\n\nTold.\n" in text
    assert "**All 1 goals are reached.**" in lab.page.page(figures[:1], FACTS)


def test_every_process_of_a_run_is_found_by_its_mark_and_ended(lab, tmp_path):
    sleeps = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; time.sleep(600)'])"
    with lab.runs.started(tmp_path, [sys.executable, "-c", sleeps], {}) as (child, mark):
        while len(lab.runs.running(mark)) < 2:
            assert child.poll() is None
        assert child.pid in lab.runs.running(mark)
        assert list(lab.runs.running(mark, "-c import time")) != []
        assert lab.runs.running("0" * 32) == {}
    assert lab.runs.running(mark) == {}


def test_the_peer_is_a_program_that_says_whom_spawn_names(lab, killed):
    import json

    # The first: where both have ended before it looks, spawn names that one.
    asked = {
        "function": killed.function,
        "guilty": 0,
        "arguments": killed.arguments,
        "size": 2,
        "group_s": 8,
    }
    done = subprocess.run(
        [sys.executable, str(lab.blame.PEER), json.dumps(asked)],
        env=os.environ | {"GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert lab.faults.blamed_by_spawn(done.stdout) == 0
