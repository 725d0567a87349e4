"""One unchanged file under every launcher, and what else pytest does as a process of a launch."""

import os
import re
import shutil
import socket
import sys

import pytest

from pytest_roofline.engine.host import numbers_of

from ... import warm
from ...ranks.launches import (
    FOUR,
    LAUNCHES,
    PATIENCE_S,
    PYTEST,
    SMALL,
    SUITE,
    TORCHRUN,
    affinities,
    cases,
    environment,
    expected_of,
    reports,
    run,
)
from ...tools import require_tools


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
def test_one_file_has_the_same_outcomes_and_one_report_however_it_is_launched(
    suite, request, launch
):
    require_tools(*(["mpirun"] if "mpirun" in launch else []))
    nodes = request.getfixturevalue("slurm").environ if "srun" in launch else {}
    done = start(suite, LAUNCHES[launch](), nodes)

    found = cases(suite)
    assert {name: outcome for name, (outcome, _) in found.items()} == expected_of(launch), (
        done.stdout + done.stderr
    )
    assert reports(done.stdout) == (1, 1, 1)
    # What srun ends in place of an agent counts for it with the signal.
    assert done.returncode == 1 or (launch == "under srun and torchrun" and done.returncode)
    rank = rf"rank 1 \(pid \d+ on {re.escape(socket.gethostname())}\)"
    # What another launcher says of the end stands below, with its last words.
    how = (
        "the connection ended" if launch in ("torchrun", "mpirun", "srun") else "killed by SIGKILL"
    )
    assert re.search(rf"{rank} was lost: {how}", found["test_loses_a_rank"][1])
    assert re.search(
        rf"{rank} did not answer within 1.5 s: the rank is at test_suite.py", found["test_hangs"][1]
    )
    assert found["test_skips"][1] == "no such device"
    if expected_of(launch).get(FOUR) == "skipped":
        assert found[FOUR][1] == "needs 4 ranks, this launch has 2"
    assert len(affinities(suite)) == 1
    _check_affinity(launch, affinities(suite)[0])


def _check_affinity(launch, told):
    """Open MPI binds two ranks to a core each, unless it is asked not to; nobody else binds any."""
    everywhere = len(os.sched_getaffinity(0))
    per_rank = [len(numbers_of(text)) for text in told.split()]
    bound = launch == "under mpirun" and everywhere > 1
    assert per_rank == [1 if bound else everywhere] * len(per_rank)


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
        (
            "mpirun",
            OTHER_MPI.format(python=sys.executable),
            r"rank 0 of 1; expected ranks 0 to 1 of 2.*another MPI or Slurm",
        ),
        ("srun", NO_PMIX, r"`srun --mpi=list` names none, pmi2; expected pmix"),
    ],
)
def test_a_launcher_that_does_not_fit_the_mpi_fails_the_test_with_the_reason(
    folder, launcher, program, said
):
    (folder / "test_small.py").write_text(SMALL)
    done = start(
        folder,
        [*PYTEST, "-k", "needs_mpi", f"--roofline-launcher={launcher}"],
        put(folder, launcher, program),
    )

    outcome, reason = cases(folder)["test_needs_mpi"]
    assert (done.returncode, outcome) == (1, "failed"), done.stdout
    assert re.search(said, reason), reason
