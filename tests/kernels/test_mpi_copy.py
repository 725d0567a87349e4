"""MPI messages between two real ranks, and what is believed of an MPI's way with device buffers."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from pytest_roofline.core.errors import BadInput
from pytest_roofline.distributed import mpi
from pytest_roofline.distributed.mpi import gpu_awareness, hints, loaded_library, verdict
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


def test_a_running_mpi_is_found_among_the_mapped_files(found):
    library, version, cuda = found[0][1:]
    assert "libmpi" in library
    assert Path(library).is_file()
    assert version
    assert cuda in (True, False, None)


def test_what_is_not_contiguous_is_no_message():
    with pytest.raises(ValueError, match=r"shape \(4, 4\) and strides \(1, 4\) was to be sent; expected a contiguous"):
        mpi_copy.as_bytes(torch.zeros(4, 4).t())


@pytest.mark.parametrize("dtype", [torch.uint8, torch.bfloat16, torch.float16, torch.float64, torch.bool])
def test_bytes_are_the_same_memory(dtype):
    tensor = torch.zeros(3, 5, dtype=dtype)
    assert mpi_copy.as_bytes(tensor).data_ptr() == tensor.data_ptr()
    assert mpi_copy.as_bytes(tensor).numel() == 15 * tensor.element_size()


OPEN_MPI = "7f00-7f10 r-xp 00000000 08:01 12  /usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4\n"


@pytest.mark.parametrize(
    ("maps", "library"),
    [
        (OPEN_MPI, "/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4"),
        ("7f00-7f10 r-xp 0 0 0  /opt/mpich/lib/libmpich.so.12.1.0\n", "/opt/mpich/lib/libmpich.so.12.1.0"),
        ("7f00-7f10 r-xp 0 0 0  /opt/cray/lib/libmpi_gnu_123.so.12.0.0\n", "/opt/cray/lib/libmpi_gnu_123.so.12.0.0"),
        ("7f00-7f10 r-xp 0 0 0  /opt/intel/libmpi.so.12\n", "/opt/intel/libmpi.so.12"),
        ("7f00-7f10 r-xp 0 0 0  /usr/lib/libmpi_cxx.so.40\n7f20-7f30 r-xp 0 0 0  /usr/lib/libmpi_mpifh.so.40\n", ""),
        ("7f00-7f10 r-xp 0 0 0  /usr/lib/libmpi_cxx.so.40\n" + OPEN_MPI, "/usr/lib/x86_64-linux-gnu/libmpi.so.40.30.4"),
        ("7f00-7f10 r-xp 0 0 0  /usr/lib/libmpfr.so.6\n7f00 rw-p 0 0 0 [heap]\n", ""),
        ("", ""),
    ],
)
def test_the_library_is_found_and_its_companions_are_not(maps, library):
    assert loaded_library(maps) == library


def test_without_an_mpi_nothing_is_known(monkeypatch, tmp_path):
    (tmp_path / "maps").write_text("7f00 rw-p 0 0 0 [heap]\n")
    monkeypatch.setattr(mpi, "_MAPS", tmp_path / "maps")
    assert hints() == mpi.Hints()


def test_without_proc_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(mpi, "_MAPS", tmp_path / "none")
    assert hints() == mpi.Hints()


def mpich(supported, status=0):
    """An MPICH that supports these kinds of device."""

    def query(kind, answer):
        ctypes.cast(answer, ctypes.POINTER(ctypes.c_int))[0] = int(kind in supported)
        return status

    return SimpleNamespace(MPIX_GPU_query_support=query)


@pytest.mark.parametrize(
    ("library", "cuda", "rocm"),
    [
        (SimpleNamespace(), None, None),
        (SimpleNamespace(MPIX_Query_cuda_support=lambda: 1), True, None),
        (SimpleNamespace(MPIX_Query_cuda_support=lambda: 0, MPIX_Query_rocm_support=lambda: 1), False, True),
        (mpich({0}), True, False),
        (mpich({2}), False, True),
        (mpich({0, 2}, status=1), None, None),
    ],
)
def test_every_mpi_is_asked_in_its_own_way(monkeypatch, tmp_path, library, cuda, rocm):
    (tmp_path / "maps").write_text(OPEN_MPI)
    monkeypatch.setattr(mpi, "_MAPS", tmp_path / "maps")
    monkeypatch.setattr(ctypes, "CDLL", lambda path: library)
    assert (hints().cuda, hints().rocm) == (cuda, rocm)


def test_mpi_41_lists_the_kinds_of_memory_that_it_takes(monkeypatch, tmp_path):
    (tmp_path / "maps").write_text(OPEN_MPI)
    monkeypatch.setattr(mpi, "_MAPS", tmp_path / "maps")
    monkeypatch.setattr(ctypes, "CDLL", lambda path: SimpleNamespace())
    world = SimpleNamespace(Get_info=lambda: {"mpi_memory_alloc_kinds": "system,mpi,cuda:device"})
    assert hints(world).memory_kinds == "system,mpi,cuda:device"


def test_a_world_of_the_right_size_is_taken():
    mpi.check_world(SimpleNamespace(size=2), 2)


def test_a_world_of_one_points_to_another_mpis_mpirun():
    with pytest.raises(BadInput, match=r"COMM_WORLD has 1 rank; expected 2: the mpirun in use belongs to another MPI"):
        mpi.check_world(SimpleNamespace(size=1), 2)


def test_a_world_of_another_size_says_both():
    with pytest.raises(BadInput, match="COMM_WORLD has 4 ranks; expected 2: start as many ranks as the test asks for"):
        mpi.check_world(SimpleNamespace(size=4), 2)


def result(device="cuda:0", wrong=(), **told):
    return {"device": device, "wrong": list(wrong), "version": "Open MPI v5", "cuda": True, "rocm": None} | told


def test_an_mpi_whose_buffers_arrive_is_gpu_aware_whatever_it_says():
    found = verdict([result(cuda=False), result("cuda:1", cuda=False)])
    assert (found.aware, "which says CUDA no, ROCm nothing" in found.reason) == (True, True)


def test_an_mpi_whose_buffers_arrive_wrong_is_not_whatever_it_says():
    found = verdict([result(), result("cuda:1", wrong=[2**22])])
    assert (found.aware, "4194304 bytes arrived wrong" in found.reason) == (False, True)


def test_ranks_without_a_gpu_prove_nothing():
    assert verdict([result("cpu"), result("cpu")]) == mpi.Awareness(False, "no device buffers: a rank is on cpu")


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
from pytest_roofline.distributed.mpi import gpu_awareness

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
