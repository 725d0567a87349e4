"""A pytest that was itself launched as ranks: processes that are told their rank as a Kubernetes job tells them."""

import re

import pytest

from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.baselines.runs import read_run

from ... import warm
from ...ranks.launches import PATIENCE_S, PYTEST, SMALL, cases, environment, free_port, reports


@pytest.fixture
def folder(tmp_path):
    """A root folder of its own for pytest."""
    (tmp_path / "pytest.ini").touch()
    return tmp_path


class Bare:
    """Processes with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, a secret, and nothing else of a launcher."""

    def __init__(self, folder, size=2):
        self.folder = folder
        port = free_port()
        job = {"WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        self.told = [
            job | {"RANK": str(rank), "ROOFLINE_ATTACH_KEY": "0123456789abcdef"}
            for rank in range(size)
        ]

    def run(self, *arguments):
        """Exit status, standard output and standard error of every process."""
        said = [
            [self.folder / f"{name} of {told['RANK']}" for name in ("stdout", "stderr")]
            for told in self.told
        ]
        for path in (path for paths in said for path in paths):
            path.write_text("")
        processes = [
            warm.Process(
                [*PYTEST[1:], *arguments],
                cwd=self.folder,
                env=environment(told),
                stdout=out,
                stderr=err,
            )
            for told, (out, err) in zip(self.told, said, strict=True)
        ]
        statuses = [process.wait(PATIENCE_S) for process in processes]
        return [
            (status, *(path.read_text() for path in paths))
            for status, paths in zip(statuses, said, strict=True)
        ]


@pytest.fixture
def bare(folder):
    """Two such processes."""
    return Bare(folder)


MEASURES = """
import os
import time
import pytest
from pytest_roofline import Work
from pytest_roofline.engine.quiet import CoreWatch

# Ranks load this file too; whatever else runs on the machine, the numbers are to count.
CoreWatch.disturbance = lambda self: ""


def nap(rank):
    time.sleep(float(os.environ["NAP_S"]))


@pytest.mark.roofline(ranks=2, budget=0.1)
def test_nap(roofline, distributed):
    roofline.measure_ranks(distributed, nap, work=Work(flops=1))
"""


def test_processes_that_are_told_their_rank_attach_and_a_round_takes_over_the_ranks_and_gives_them_back(
    bare, monkeypatch
):
    (bare.folder / "test_measures.py").write_text(MEASURES)
    (bare.folder / "test_small.py").write_text(SMALL)
    monkeypatch.setenv("NAP_S", "0.0001")
    # Nothing is known of it: a recording of two processes.
    (status, out, _), other = bare.run("--roofline-rounds=2", "--roofline-save=after")
    assert (status, other) == (0, (0, "", "")), out
    assert reports(out)[:2] == (1, 1)
    found = cases(bare.folder)
    assert found["test_sums"] == ("passed", "")
    outcome, reason = found["test_needs_mpi"]
    assert outcome == "skipped"
    assert reason.startswith("needs ranks that MPI itself started. In attach mode")
    assert "round 2 of at most 2" in out
    measured = read_run(bare.folder / ".roofline" / "runs" / "after.jsonl").measurements
    assert [(one.round, one.ranks.launcher, one.invalid) for one in measured] == [
        (1, "attach", ""),
        (2, "attach", ""),
    ]
    assert len({one.process for one in measured}) == 2


def test_of_processes_that_attach_rank_0_alone_records(bare, monkeypatch):
    (bare.folder / "test_measures.py").write_text(MEASURES)
    # It waits for no quiet machine.
    (bare.folder / "conftest.py").write_text(
        "from pytest_roofline.engine.devices import cpu\n\ncpu.MOST_CORES_TAKEN = float('inf')\n"
    )
    monkeypatch.setenv("NAP_S", "0.0001")
    (status, out, _), other = bare.run("--roofline-record", "--roofline-rounds=5")
    assert (status, other) == (0, (0, "", "")), out
    (path,) = (bare.folder / "baselines").glob("*.json")
    (entry,) = read_baseline(path).entries
    assert [len(session.process_medians) for session in entry.sessions] == [5]
    assert [run.name for run in (bare.folder / ".roofline" / "runs").glob("*.jsonl")] == [
        f"{entry.sessions[0].run_id}.jsonl"
    ]


def test_what_ends_rank_0_early_ends_the_others_in_order_and_one_that_stays_alone_says_so(bare):
    (bare.folder / "test_broken.py").write_text("import nothing_of_this_name\n")
    (status, out, _), other = bare.run()
    assert (status, other) == (pytest.ExitCode.INTERRUPTED, (0, "", ""))
    assert "No module named 'nothing_of_this_name'" in out
    (status, _, err), other = bare.run("--roofline-rounds=many")
    assert (status, other) == (pytest.ExitCode.USAGE_ERROR, (0, "", ""))
    assert "expected a number of rounds" in err
    both = bare.told
    for rank, said in (
        (0, r"rank 1 of 2 did not connect to rank 0 on \S+ within 1 s"),
        (1, r"rank 1 of 2 on \S+ did not find rank 0 within 1 s"),
    ):
        bare.told = both[rank : rank + 1]
        ((status, _, err),) = bare.run("--roofline-rank-timeout=1")
        assert status == pytest.ExitCode.USAGE_ERROR
        assert re.search(said, err)
        assert "-p no:roofline" in err
