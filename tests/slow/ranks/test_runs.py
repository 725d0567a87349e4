"""Whole runs under launchers: worlds of MPI, and runs that end while ranks are at work."""

import json
import signal

import pytest

from ...plugin.rank_runs import RankRuns
from ...plugin.test_rank_faults import MPI, ends_without_a_process_left
from ...tools import require_tools


@pytest.mark.parametrize(
    ("launcher", "number"),
    [
        ("local", signal.SIGTERM),
        ("attach", signal.SIGKILL),
        ("mpirun", signal.SIGTERM),
        ("torchrun", signal.SIGINT),
        ("torchrun", signal.SIGKILL),
    ],
)
def test_a_run_that_ends_while_a_rank_waits_in_a_collective_leaves_no_process(
    tmp_path, launcher, number
):
    ends_without_a_process_left(tmp_path, launcher, number)


def test_an_mpi_world_is_as_large_as_its_test_asks(tmp_path):
    require_tools("mpirun")
    runs = RankRuns(tmp_path, MPI).run("-p", "no:cacheprovider")
    assert runs.status == 0, runs.text
    three, two, again = (
        json.loads(runs.properties(f"test_{name}")["pids"])
        for name in ("three", "two", "two_again")
    )
    assert not set(three) & set(two)
    assert two == again
    assert runs.left_over() == {}
    assert list(runs.temporary.iterdir()) == []
