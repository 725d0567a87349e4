"""Ranks that are forked from a process that has torch already are like any, and nothing of it stays."""

import atexit
import os
import signal
import subprocess
import sys
import time

import pytest

from pytest_roofline.core.errors import RanksFailed
from pytest_roofline.processes.system import FORKER
from pytest_roofline.ranks.local import Local, whole_processes
from pytest_roofline.ranks.pool import Pool
from pytest_roofline.ranks.tasks import reference

from . import rank_functions as ranks
from .real_ranks import PATIENCE_S, RealRanks, end_within, runs

# Starts a server, and waits until it is killed.
PARENT = """
import os, sys
from pytest_roofline.processes.fork_server import ForkServer

server = ForkServer(os.environ, "needs_long")
sys.stdin.read()
"""


@pytest.fixture
def two():
    own = RealRanks(2, Local(forks=True))
    yield own
    own.pool.stop()


def asked(own, function, *arguments):
    return own.pool.run(reference(function), arguments, own.size, timeout_s=PATIENCE_S)


def import_instead(monkeypatch, folder, text):
    """Have processes import this in place of torch."""
    (folder / "torch.py").write_text(f"{text}\n")
    path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
    monkeypatch.setenv("PYTHONPATH", path)


def server_of(own):
    (parent,) = {found["parent"] for found in asked(own, ranks.about_its_process)}
    return parent


def test_a_rank_leads_its_session_and_has_its_own_environment_folder_and_random_numbers(
    two, monkeypatch, tmp_path
):
    monkeypatch.setenv("OF_THIS_TEST", "seen")
    monkeypatch.chdir(tmp_path)
    first, second = asked(two, ranks.about_its_process)
    for number, found in enumerate((first, second)):
        assert found["pid"] == found["session"]
        assert (found["rank"], found["seen"], found["folder"]) == (
            str(number),
            "seen",
            str(tmp_path),
        )
        assert found["input"] == ""
    assert first["numpy"] != second["numpy"]
    assert first["python"] != second["python"]
    # As in any process that nobody has seeded.
    assert first["torch"] == second["torch"]


def test_ranks_that_take_the_place_of_lost_ones_need_no_import_unless_the_server_or_the_environment_is_another(
    two, monkeypatch
):
    first = server_of(two)
    with pytest.raises(RanksFailed):
        asked(two, ranks.die_by, 0, int(signal.SIGKILL))
    two.works()
    assert server_of(two) == first
    # The end of the server is the end of its ranks, and the next task has others.
    os.kill(first, signal.SIGKILL)
    assert end_within(PATIENCE_S, two.pids)
    second = server_of(two)
    assert second != first
    two.pool.kill()
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    third = server_of(two)
    assert third != second
    assert end_within(PATIENCE_S, [second])
    # Nothing stays of a pool that was stopped.
    two.works()
    two.pool.stop()
    assert end_within(PATIENCE_S, [third, *two.pids])


def test_a_server_that_is_killed_is_blamed_and_none_of_its_ranks(two):
    with pytest.raises(RanksFailed) as caught:
        asked(two, ranks.kill_its_parent, int(signal.SIGKILL))
    first, *lines = str(caught.value).splitlines()
    assert first == f"{FORKER} was killed by SIGKILL (maybe out of memory; check dmesg)"
    about = sorted(line for line in lines if line.startswith("  rank"))
    assert [line.partition(" (")[0] for line in about] == ["  rank 0", "  rank 1"]
    assert [line.rpartition(")")[2] for line in about] == [": lost", ": lost"]
    two.works()


def test_nothing_stays_of_a_pool_that_nobody_holds_any_more_and_what_a_job_imports_is_a_part_of_it():
    own = RealRanks(1, Local(forks=True))
    with whole_processes(own.pool.placement):
        parents = {found["parent"] for found in asked(own, ranks.about_its_process)}
        own.pool.stop()
    assert parents == {os.getpid()}
    server = server_of(own)
    assert server != os.getpid()
    own.pool.kill()
    assert runs(server)
    atexit.unregister(own.pool.kill)
    own.pool.placement = None
    assert end_within(PATIENCE_S, [server])


@pytest.mark.parametrize(
    ("torch", "end", "words"),
    [
        (
            "raise ImportError('libtorch_cpu.so: cannot open shared object file')",
            "ended with exit code 1",
            "libtorch_cpu.so: cannot open shared object file",
        ),
        ("import os; os.kill(os.getpid(), 9)", "was killed by SIGKILL", ""),
    ],
)
def test_a_server_that_ends_while_it_imports_is_blamed_with_its_last_words(
    monkeypatch, tmp_path, torch, end, words
):
    import_instead(monkeypatch, tmp_path, torch)
    pool = Pool(Local(forks=True), 2, "cpu", boot_s=PATIENCE_S)
    with pytest.raises(RanksFailed) as caught:
        pool.run(reference(ranks.echo), (), 2, timeout_s=PATIENCE_S)
    first, *lines = str(caught.value).splitlines()
    assert first.startswith(f"{FORKER} {end}")
    assert words in "\n".join(lines)


def test_a_server_ends_with_its_parent_even_while_it_imports(tmp_path):
    pid_file = tmp_path / "pid"
    (tmp_path / "needs_long.py").write_text(
        f"import os, pathlib, threading\npathlib.Path({str(pid_file)!r}).write_text(f'{{os.getpid()}}.')\n"
        "threading.Event().wait()\n"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(tmp_path), *filter(None, sys.path)])},
        stdin=subprocess.PIPE,
    )
    try:
        until_s = time.monotonic() + PATIENCE_S
        while not (pid_file.exists() and pid_file.read_text().endswith(".")):
            assert parent.poll() is None
            assert time.monotonic() < until_s
            time.sleep(0.02)
        parent.kill()
        assert end_within(PATIENCE_S, [int(pid_file.read_text()[:-1])])
    finally:
        parent.kill()
        parent.communicate()


def test_ranks_that_are_not_there_yet_are_ended_with_their_server(monkeypatch, tmp_path):
    import_instead(monkeypatch, tmp_path, "import time\ntime.sleep(600)")
    placement = Local(forks=True)
    pool = Pool(placement, 2, "cpu", boot_s=0.5)
    with pytest.raises(RanksFailed, match=r"did not connect within 0\.5 s"):
        pool.run(reference(ranks.echo), (), 2, timeout_s=PATIENCE_S)
    assert not placement.trouble()
    pool.stop()
