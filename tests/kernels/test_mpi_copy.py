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


def test_messages_of_every_kind_arrive_and_every_mutant_is_caught_by_who_should_have_received_it():
    require_tools("mpirun")
    command = [
        "mpirun",
        *AS_ROOT,
        "--oversubscribe",
        "--bind-to",
        "none",
        "-n",
        "2",
        sys.executable,
        str(CHILD),
    ]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (sender, version), (receiver, _) = json.loads(done.stdout)
    assert "MPI" in version
    mutants = {"nothing", "without_the_last", "first_again"}
    # Rank 0 of a message that goes one way waits for nothing.
    assert {name for name, arrived in receiver.items() if not arrived} == mutants
    assert {name for name, arrived in sender.items() if not arrived} <= mutants
    assert len(receiver) == 2 * 4 * 2 + 3 + 2 + 1


def test_a_message_is_the_same_memory_as_bytes_and_contiguous():
    for dtype in [torch.uint8, torch.bfloat16, torch.float64, torch.bool]:
        tensor = torch.zeros(3, 5, dtype=dtype)
        found = mpi_copy.as_bytes(tensor)
        assert (found.data_ptr(), found.numel()) == (tensor.data_ptr(), 15 * tensor.element_size())
    with pytest.raises(
        ValueError,
        match=r"shape \(4, 4\) and the strides \(1, 4\); expected a contiguous",
    ):
        mpi_copy.as_bytes(torch.zeros(4, 4).t())


def test_a_world_of_another_size_says_both_and_one_of_one_points_to_another_mpis_mpirun(
    monkeypatch,
):
    monkeypatch.setattr(mpi, "version", lambda: "MPICH 4")
    mpi.check_world(2, 2)
    with pytest.raises(
        BadInput,
        match="COMM_WORLD has 4 ranks; expected 2: start as many ranks as the test needs",
    ):
        mpi.check_world(4, 2)
    with pytest.raises(
        BadInput, match=r"has 1 rank; expected 2: this mpirun belongs to another MPI.*MPICH 4"
    ):
        mpi.check_world(1, 2)


def result(device="cuda:0", wrong=()):
    return {"device": device, "wrong": list(wrong), "version": "Open MPI v5"}


def test_only_buffers_that_arrive_whole_on_gpus_prove_it_in_a_world_of_two_with_a_short_patience():
    for results, aware, reason in [
        (
            [result(), result("cuda:1")],
            True,
            "GPU-aware: device buffers arrived whole (Open MPI v5)",
        ),
        (
            [result(), result("cuda:1", wrong=[2**22])],
            False,
            "not GPU-aware: device buffers of 4194304 bytes arrived wrong (Open MPI v5)",
        ),
        ([result("cpu"), result("cpu")], False, "no device buffers: a rank is on cpu"),
    ]:
        asked = {}

        def run(fn, results=results, asked=asked, **keywords):
            asked.update(keywords, fn=fn)
            return results

        assert gpu_awareness(run) == mpi.Awareness(aware, reason)
        assert asked == {"fn": mpi.probe, "world_size": 2, "timeout": 20.0}


def test_ranks_that_die_or_hang_mean_not_gpu_aware_and_ctrl_c_is_not_taken_for_an_answer():
    def raising(error):
        def run(fn, **_):
            raise error

        return run

    for error, told in [
        (RuntimeError("rank 1 on n1: SIGSEGV\nstack …"), "rank 1 on n1: SIGSEGV"),
        (TimeoutError("hung"), "hung"),
        (OSError(), "OSError"),
    ]:
        found = gpu_awareness(raising(error))
        assert (found.aware, "\n" in found.reason, told in found.reason) == (False, False, True)
    with pytest.raises(KeyboardInterrupt):
        gpu_awareness(raising(KeyboardInterrupt()))
