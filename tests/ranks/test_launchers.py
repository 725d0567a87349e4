"""One unchanged file under every launcher, and what else pytest does as a process of a launch."""

import os
import re
import shutil
import socket
import sys

import pytest

from pytest_roofline.baselines.runs import read_run

from .. import warm
from ..tools import require_tools
from .launches import (
    FOUR,
    LAUNCHES,
    PATIENCE_S,
    PYTEST,
    SUITE,
    TORCHRUN,
    affinities,
    cases,
    environment,
    expected_of,
    free_port,
    reports,
    run,
)


@pytest.fixture
def folder(tmp_path):
    """A root folder of its own for pytest."""
    (tmp_path / "pytest.ini").touch()
    return tmp_path


@pytest.fixture
def suite(folder):
    """The one file, unchanged."""
    shutil.copy(SUITE, folder / "test_suite.py")
    return folder


def start(folder, command, environ):
    """A launch to its end; a pytest that starts its ranks itself is forked from a process that has torch already."""
    if command[0] != sys.executable or command[1:3] != ["-m", "pytest"]:
        return run(folder, command, environ)
    return warm.run(command[1:], cwd=folder, env=environment(environ), timeout=PATIENCE_S)


@pytest.mark.parametrize("launch", LAUNCHES)
def test_one_file_has_the_same_outcomes_and_one_report_however_it_is_launched(suite, request, launch):
    require_tools(*(["mpirun"] if "mpirun" in launch else []))
    nodes = request.getfixturevalue("slurm").environ if "srun" in launch else {}
    done = start(suite, LAUNCHES[launch](), nodes)

    found = cases(suite)
    assert {name: outcome for name, (outcome, _) in found.items()} == expected_of(launch), done.stdout + done.stderr
    assert reports(done.stdout) == (1, 1, 1)
    # What srun ends in place of an agent counts for it with the signal.
    assert done.returncode == 1 or (launch == "under srun and torchrun" and done.returncode)
    rank = rf"rank 1 \(pid \d+ on {re.escape(socket.gethostname())}\)"
    assert re.search(rf"{rank} was lost: killed by SIGKILL", found["test_loses_a_rank"][1])
    assert re.search(rf"{rank} did not answer within 1.5 s: it is at test_suite.py", found["test_hangs"][1])
    assert found["test_skips"][1] == "no such device"
    if expected_of(launch).get(FOUR) == "skipped":
        assert found[FOUR][1] == "needs 4 ranks, this launch has 2"
    assert len(affinities(suite)) == 1
    _check_affinity(launch, affinities(suite)[0])


def _check_affinity(launch, told):
    """Open MPI binds two ranks to a core each, unless it is asked not to; nobody else binds any."""
    everywhere = len(os.sched_getaffinity(0))
    per_rank = [len(cores_of(text)) for text in told.split()]
    bound = launch == "under mpirun" and everywhere > 1
    assert per_rank == [1 if bound else everywhere] * len(per_rank)


def cores_of(text):
    """`0-3,8` as numbers."""
    spans = [piece.partition("-") for piece in text.split(",")]
    return {core for first, _, last in spans for core in range(int(first), int(last or first) + 1)}


# Short of a launcher: two processes that are told as a Kubernetes job tells them.


class Bare:
    """Processes with RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, and nothing else of a launcher."""

    def __init__(self, folder, size=2):
        self.folder = folder
        port = free_port()
        self.told = [
            {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
            for rank in range(size)
        ]

    def run(self, *arguments):
        """Exit status, standard output and standard error of every process."""
        said = [[self.folder / f"{name} of {told['RANK']}" for name in ("stdout", "stderr")] for told in self.told]
        for path in (path for paths in said for path in paths):
            path.write_text("")
        processes = [
            warm.Process([*PYTEST[1:], *arguments], cwd=self.folder, env=environment(told), stdout=out, stderr=err)
            for told, (out, err) in zip(self.told, said, strict=True)
        ]
        statuses = [process.wait(PATIENCE_S) for process in processes]
        return [(status, *(path.read_text() for path in paths)) for status, paths in zip(statuses, said, strict=True)]


@pytest.fixture
def bare(folder):
    """Two such processes."""
    return Bare(folder)


SMALL = """
import pytest
import torch
import torch.distributed as dist


def total(rank):
    values = torch.tensor([float(rank + 1)])
    dist.all_reduce(values)
    return values.item()


def test_sums(distributed):
    assert distributed.launcher == "attach"
    assert distributed.run(total, world_size=2) == [3.0, 3.0]


@pytest.mark.roofline(mpi=True, ranks=2)
def test_needs_mpi(distributed):
    distributed.run(total)
"""


def test_processes_that_are_told_their_rank_attach_and_a_test_of_mpi_is_skipped_there(bare):
    (bare.folder / "test_small.py").write_text(SMALL)
    (status, out, _), other = bare.run()

    assert (status, other) == (0, (0, "", ""))
    assert reports(out)[:2] == (1, 1)
    outcome, reason = cases(bare.folder)["test_needs_mpi"]
    assert outcome == "skipped"
    assert reason.startswith("needs ranks that MPI itself started; under attach mode")
    assert cases(bare.folder)["test_sums"] == ("passed", "")


def test_a_collection_error_of_rank_0_ends_the_others_in_order(bare):
    (bare.folder / "test_broken.py").write_text("import nothing_of_this_name\n")
    (bare.folder / "test_small.py").write_text(SMALL)
    (status, out, _), other = bare.run()

    assert (status, other) == (pytest.ExitCode.INTERRUPTED, (0, "", ""))
    assert "No module named 'nothing_of_this_name'" in out


def test_a_usage_error_of_rank_0_ends_the_others_in_order(bare):
    (bare.folder / "test_small.py").write_text(SMALL)
    (status, _, err), other = bare.run("--roofline-rounds=many")

    assert (status, other) == (pytest.ExitCode.USAGE_ERROR, (0, "", ""))
    assert "expected a number of rounds" in err


@pytest.mark.parametrize(
    ("rank", "said"),
    [
        (0, r"rank 1 of 2 did not come to rank 0 on \S+ within 1 s"),
        (1, r"rank 1 of 2 on \S+ did not meet rank 0 within 1 s"),
    ],
)
def test_a_rank_that_stays_alone_says_so_and_fails(bare, rank, said):
    (bare.folder / "test_small.py").write_text(SMALL)
    bare.told = bare.told[rank : rank + 1]
    ((status, _, err),) = bare.run("--roofline-boot-timeout=1")

    assert status == pytest.ExitCode.USAGE_ERROR
    assert re.search(said, err)
    assert "-p no:roofline" in err


PLAIN = """
import os
import torch
import torch.distributed as dist


def test_on_every_rank():
    dist.init_process_group("gloo")
    values = torch.tensor([float(dist.get_rank())])
    dist.all_reduce(values)
    dist.destroy_process_group()
    assert (os.environ["WORLD_SIZE"], values.item()) == ("2", 1.0)
"""


def test_a_launch_whose_tests_bring_their_own_ranks_goes_on_as_it_was(folder):
    (folder / "test_plain.py").write_text(PLAIN)
    done = run(folder, [*TORCHRUN, "--standalone", "--nproc-per-node=2", *PYTEST[1:]])

    assert done.returncode == 0, done.stdout + done.stderr
    # Their lines may be mixed.
    assert (done.stdout.count("test session starts"), done.stdout.count("1 passed")) == (2, 2)


MEASURES = """
import os
import time
import pytest
from pytest_roofline import Work
from pytest_roofline.engine.peers import CoreWatch

# Ranks load this file too; whatever else runs on the machine, the numbers are to count.
CoreWatch.disturbed = lambda self: ""


def nap(rank):
    time.sleep(float(os.environ["NAP_S"]))


@pytest.mark.roofline(ranks=2, budget=0.1)
def test_nap(roofline, distributed):
    roofline.measure_ranks(distributed, nap, work=Work(flops=1))
"""


def test_rounds_of_an_attached_run_take_over_its_ranks_and_give_them_back(bare, monkeypatch):
    (bare.folder / "test_measures.py").write_text(MEASURES)
    monkeypatch.setenv("NAP_S", "0.0001")
    # Nothing is known of it: a recording of two processes.
    (status, out, _), other = bare.run("--roofline-rounds=2", "--roofline-save=after")

    assert (status, other) == (0, (0, "", "")), out
    assert "round 2 of at most 2" in out
    measured = read_run(bare.folder / ".roofline" / "runs" / "after.jsonl").measurements
    assert [(one.round, one.ranks.launcher, one.invalid) for one in measured] == [(1, "attach", ""), (2, "attach", "")]
    assert len({one.process for one in measured}) == 2


ALONE = """
def test_starts_its_own_ranks(distributed):
    assert distributed.launcher == "local"
"""


def test_a_batch_script_of_slurm_does_not_attach(folder, slurm):
    (folder / "test_alone.py").write_text(ALONE)
    (folder / "job.sh").write_text(f'#!/bin/sh\nexec "{sys.executable}" {" ".join(PYTEST[1:])}\n')
    done = run(folder, ["sbatch", "--wait", "-N2", "-n2", "--output=said", "job.sh"], slurm.environ)

    assert done.returncode == 0, done.stderr + (folder / "said").read_text()
    assert cases(folder) == {"test_starts_its_own_ranks": ("passed", "")}


# Ranks of another MPI than their launcher's.

OTHER_MPI = """#!/bin/sh
[ "$1" = --version ] && echo "mpirun (Open MPI) 4.1.4" && exit
while [ "$1" != -m ]; do shift; done
for number in 1 2; do "{python}" "$@" & done
wait
"""
NO_PMIX = """#!/bin/sh
[ "$1" = --mpi=list ] && printf 'MPI plugin types are...\\n\\tnone\\n\\tpmi2\\n' && exit
exit 9
"""


def put(folder, name, text):
    """A program in front of the others of its name; the environment that finds it."""
    path = folder / "bin" / name
    path.parent.mkdir()
    path.write_text(text)
    path.chmod(0o755)
    return {"PATH": f"{path.parent}{os.pathsep}{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("launcher", "program", "said"),
    [
        ("mpirun", OTHER_MPI.format(python=sys.executable), r"rank 0 of 1; expected ranks 0 to 1 of 2.*another MPI's"),
        ("srun", NO_PMIX, r"`srun --mpi=list` knows none, pmi2; expected pmix"),
    ],
)
def test_a_launcher_that_does_not_fit_the_mpi_fails_the_test_with_the_reason(folder, launcher, program, said):
    (folder / "test_small.py").write_text(SMALL)
    done = start(
        folder, [*PYTEST, "-k", "needs_mpi", f"--roofline-launcher={launcher}"], put(folder, launcher, program)
    )

    outcome, reason = cases(folder)["test_needs_mpi"]
    assert (done.returncode, outcome) == (1, "failed"), done.stdout
    assert re.search(said, reason), reason
