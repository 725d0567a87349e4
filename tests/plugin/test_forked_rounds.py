"""Rounds that are forked: from which process, with which environment, and what becomes of them when that ends."""

import json
import os
import signal

import pytest

from pytest_roofline.plugin import rounds
from pytest_roofline.processes.round_parent import ROUNDS_PER_PARENT, RoundParent

# Notes of each process what a test can tell of it.
NOTING = """
import json
import os
import sys

import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9)

def test_one(roofline, busy):
    with open("processes", "a") as file:
        command = open(f"/proc/{{os.getpid()}}/cmdline").read()
        note = [os.getpid(), os.getppid(), os.getsid(0), os.getcwd(), "round_server" in command]
        file.write(json.dumps(note) + "\\n")
    {body}
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""


# What a run on the fake device asks of torch; importing all of it takes longer than all the rest.
TORCH = """
import types
from importlib import metadata

__version__, version = metadata.version("torch"), types.SimpleNamespace(cuda=None, hip=None)
get_num_threads, Tensor = lambda: 1, type("Tensor", (), {})
"""


@pytest.fixture
def torch_instead(tmp_path_factory, monkeypatch):
    """The file that new processes import in place of torch."""
    folder = tmp_path_factory.mktemp("instead")
    monkeypatch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
    (folder / "torch.py").write_text(TORCH)
    return folder / "torch.py"


@pytest.fixture
def forking(desk, torch_instead, monkeypatch):
    """Have rounds on the fake device forked, as they are on a processor."""
    monkeypatch.setattr(rounds, "may_fork", lambda state: True)
    monkeypatch.setattr(rounds, "RoundParent", RoundParent)
    return desk


def run(desk, count, body="pass"):
    """Record a test in so many processes; what each noted."""
    desk.suite(NOTING.format(body=body))
    result = desk.run(f"--roofline-rounds={count}", "--roofline-save=kept")
    lines = (desk.path / "processes").read_text().splitlines()
    return result, [json.loads(line) for line in lines]


def test_rounds_are_forked_from_a_parent_that_is_replaced_every_few_rounds(forking):
    count = ROUNDS_PER_PARENT + 2
    result, (first, *further) = run(forking, count)
    assert result.ret == 0
    assert first[0] == os.getpid()
    parents = [parent for _, parent, *_ in further]
    assert len(set(parents)) == 2
    assert parents[:ROUNDS_PER_PARENT] == parents[:1] * ROUNDS_PER_PARENT
    assert os.getpid() not in parents
    assert len({pid for pid, *_ in further}) == count - 1
    assert all(pid == session for pid, _, session, *_ in further)
    assert {folder for *_, folder, _ in further} == {str(forking.path)}
    assert [forked for *_, forked in further] == [True] * (count - 1)
    assert len(forking.last_run().measurements) == count
    # What they were forked from ended with the run.
    assert not any(os.path.exists(f"/proc/{pid}") for pid in parents)  # noqa: PTH110


def test_rounds_are_fresh_processes_where_the_parent_cannot_start(forking, torch_instead):
    torch_instead.write_text("raise SystemExit(3)\n")
    result, (_, *further) = run(forking, 3)
    assert result.ret == 0
    assert [(parent, forked) for _, parent, _, _, forked in further] == [(os.getpid(), False)] * 2
    assert len(forking.last_run().measurements) == 3


def test_a_parent_that_is_killed_costs_the_round_in_it_and_the_next_has_another(forking):
    kill = f"""if os.getpid() != {os.getpid()} and not os.path.exists("killed"):
        open("killed", "w").close()
        os.kill(os.getppid(), {int(signal.SIGKILL)})
        __import__("time").sleep(600)
    """
    result, (_, *further) = run(forking, 3, kill)
    assert result.ret == 0
    assert "round 2 of the test is lost: the process was killed by SIGKILL" in result.stdout.str()
    (_, first, *_), (_, second, *_) = further
    assert first != second
    assert len(forking.last_run().measurements) == 2
