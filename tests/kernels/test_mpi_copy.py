"""MPI messages between two real ranks, and what is believed of an MPI's way with device buffers."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pytest_roofline.core.errors import BadInput
from pytest_roofline.ranks import mpi
from pytest_roofline.ranks.mpi import gpu_awareness
from roofline_kernels import mpi_copy

from ..tools import require_tools

CHILD = Path(__file__).with_name("mpi_child.py")
AS_ROOT = ["--allow-run-as-root"] if os.geteuid() == 0 else []


@pytest.fixture(scope="module")
def found():
    """What two ranks found, by rank."""
    require_tools("mpirun")
    done = subprocess.run(
        ["mpirun", *AS_ROOT, "--oversubscribe", "--bind-to", "none", "-n", "2", sys.executable, str(CHILD)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


SENT = [
    f"{name} {size} {way}"
    for name in ("mpi", "staged")
    for size in (1, 4096, 65_537, 2**20)
    for way in ("one way", "back")
]


@pytest.mark.parametrize("message", SENT)
def test_every_pass_of_a_message_arrives(found, message):
    # Rank 0 of a message that goes one way waits for nothing.
    assert [rank[0][message] for rank in found] == [True, True]


@pytest.mark.parametrize("mutant", ["nothing", "without_the_last", "first_again"])
def test_every_mutant_is_caught_by_who_should_have_received_it(found, mutant):
    assert found[1][0][mutant] is False


@pytest.mark.parametrize("dtype", ["torch.float16", "torch.bfloat16"])
def test_types_that_mpi_does_not_know_go_as_bytes(found, dtype):
    assert [rank[0][dtype] for rank in found] == [True, True]


def test_buffers_of_the_host_survive_the_probe(found):
    assert [rank[0]["survives"] for rank in found] == [True, True]


def test_a_running_mpi_says_what_it_is(found):
    assert "MPI" in found[0][1]


def test_what_is_not_contiguous_is_no_message():
    with pytest.raises(ValueError, match=r"shape \(4, 4\) and strides \(1, 4\) was to be sent; expected a contiguous"):
        mpi_copy.as_bytes(torch.zeros(4, 4).t())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float16, torch.float64, torch.bool])
def test_bytes_are_the_same_memory(dtype):
    tensor = torch.zeros(3, 5, dtype=dtype)
    assert mpi_copy.as_bytes(tensor).data_ptr() == tensor.data_ptr()
    assert mpi_copy.as_bytes(tensor).numel() == 15 * tensor.element_size()


def test_a_world_of_another_size_says_both_and_one_of_one_points_to_another_mpis_mpirun(monkeypatch):
    monkeypatch.setattr(mpi, "version", lambda: "MPICH 4")
    mpi.check_world(2, 2)
    with pytest.raises(BadInput, match="COMM_WORLD has 4 ranks; expected 2: start as many ranks as the test asks for"):
        mpi.check_world(4, 2)
    with pytest.raises(BadInput, match=r"has 1 rank; expected 2: the mpirun in use belongs to another MPI.*MPICH 4"):
        mpi.check_world(1, 2)


def result(device="cuda:0", wrong=()):
    return {"device": device, "wrong": list(wrong), "version": "Open MPI v5"}


@pytest.mark.parametrize(
    ("results", "aware", "reason"),
    [
        ([result(), result("cuda:1")], True, "GPU-aware: device buffers arrived whole (Open MPI v5)"),
        (
            [result(), result("cuda:1", wrong=[2**22])],
            False,
            "not GPU-aware: device buffers of 4194304 bytes arrived wrong (Open MPI v5)",
        ),
        ([result("cpu"), result("cpu")], False, "no device buffers: a rank is on cpu"),
    ],
)
def test_only_buffers_that_arrive_whole_on_gpus_prove_it(results, aware, reason):
    assert gpu_awareness(lambda *_, **__: results) == mpi.Awareness(aware, reason)


def test_the_probe_runs_in_a_world_of_two_with_a_short_patience():
    asked = {}

    def run(fn, **keywords):
        asked.update(keywords, fn=fn)
        return [result(), result()]

    assert gpu_awareness(run).aware
    assert asked == {"fn": mpi.probe, "world_size": 2, "timeout": 20.0}


@pytest.mark.parametrize("error", [RuntimeError("rank 1 on n1: SIGSEGV\nstack …"), TimeoutError("hung"), OSError()])
def test_ranks_that_die_or_hang_mean_not_gpu_aware(error):
    def run(fn, **_):
        raise error

    found = gpu_awareness(run)
    assert (found.aware, "\n" in found.reason) == (False, False)
    assert (str(error).partition("\n")[0] or "OSError") in found.reason


def test_ctrl_c_is_not_taken_for_an_answer():
    def run(fn, **_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        gpu_awareness(run)


IN_A_WORLD = """
import os, signal
import pytest
from pytest_roofline.ranks.mpi import gpu_awareness

def crashes(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGSEGV)
    rank.barrier()

@pytest.mark.roofline(mpi=True, ranks=2)
def test_probe(distributed):
    print("PROBED", gpu_awareness(distributed.run))
    print("CRASHED", gpu_awareness(lambda fn, **asked: distributed.run(crashes, **asked)))
"""


def test_a_world_that_dies_of_the_probe_is_an_answer(pytester):
    require_tools("mpirun")
    pytester.makepyfile(IN_A_WORLD)
    pytester.makefile(".ini", pytest="[pytest]\n")
    result = pytester.runpytest_subprocess("-s", "-p", "no:cacheprovider", "--roofline-device=cpu", timeout=120)
    result.stdout.fnmatch_lines(
        [
            "*PROBED Awareness(aware=False, reason='no device buffers: a rank is on cpu')",
            "CRASHED Awareness(aware=False, reason='not GPU-aware: its ranks did not survive*rank 1*SIGSEGV*",
        ]
    )
