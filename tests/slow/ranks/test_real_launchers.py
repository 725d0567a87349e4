"""Real launchers start a small script in place of a rank, and tell of one that was killed."""

import os
import re
import subprocess
import sys

import pytest

from pytest_roofline.baselines.runs import read_run
from pytest_roofline.ranks import command_lines
from pytest_roofline.ranks.launching import LauncherPlacement

from ...ranks.real_ranks import until
from ...ranks.test_launching import KEY
from ...tools import require_tools

# It prints in one piece: mpirun labels every piece.
PROGRAM = """
import os, signal, sys, time
from pytest_roofline.ranks.identity import identify
identity = identify(os.environ)
print(f"rank {identity.rank} of {identity.size} {os.environ['ROOFLINE_RANK_CONTROLLER']}", flush=True)
if identity.rank == 1:
    os.kill(os.getpid(), signal.SIGKILL)
time.sleep(600)
"""


@pytest.fixture
def small_rank(tmp_path, monkeypatch):
    """A small script in place of the rank."""
    (tmp_path / "small_rank.py").write_text(PROGRAM)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    monkeypatch.setattr(command_lines, "_RANK", (sys.executable, "-m", "small_rank"))


@pytest.mark.parametrize("name", ["mpirun", "torchrun"])
def test_a_real_launcher_tells_of_a_rank_that_was_killed(small_rank, name):
    require_tools(*(["mpirun"] if name == "mpirun" else []))
    placement = LauncherPlacement(name)
    placement.start(2, {KEY: "5ec4e7"})
    until(lambda: "rank 1 of 2 5ec4e7" in placement.tail(1))
    until(placement.trouble)
    assert placement.trouble().startswith(f"{name} has ended: ")
    assert re.search(r"signal 9|SIGKILL", placement.tail(1))
    placement.kill()


def test_srun_starts_ranks_on_two_nodes(small_rank, slurm, monkeypatch):
    for name, value in slurm.environ.items():
        monkeypatch.setenv(name, value)
    placement = LauncherPlacement("srun", ("-N2",))
    placement.start(2, {KEY: "5ec4e7"})
    until(lambda: "rank 1 of 2 5ec4e7" in placement.tail(1))
    until(placement.trouble)
    assert "Killed" in placement.tail(1)
    placement.kill()


def test_torchrun_starts_ranks_on_the_nodes_of_an_allocation(small_rank, slurm):
    program = """
import time
import sys
from pytest_roofline.baselines.runs import read_run
from pytest_roofline.ranks import command_lines
from pytest_roofline.ranks.launching import LauncherPlacement
command_lines._RANK = (sys.executable, "-m", "small_rank")
placement = LauncherPlacement("torchrun")
placement.start(2, {"ROOFLINE_RANK_CONTROLLER": "5ec4e7"})
while not placement.trouble():
    time.sleep(0.05)
print("rank 0 of 2" in placement.tail(0), "rank 1 of 2" in placement.tail(0))
placement.kill()
"""
    done = subprocess.run(
        ["salloc", "-N2", "-n2", sys.executable, "-c", program],
        env=os.environ | slurm.environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.stdout == "True True\n", done.stderr


ON_NODES = """
SCRIPT = 'test "$SLURM_PROCID" = 1 && echo "$SLURMD_NODENAME" > node || echo "{\\\\"x\\\\": $SLURM_NTASKS}"'

def test_bus(roofline):
    roofline.measure_command(["sh", "-c", SCRIPT], higher={"GB/s": "x"}, ranks=2)
"""


def test_srun_starts_the_program_of_a_test_on_two_nodes(slurm, tmp_path):
    (tmp_path / "test_suite.py").write_text(ON_NODES)
    # Both nodes are this host, where PMIx would make the same folder for both.
    arguments = "--roofline-launcher-args=-N2 --mpi=none"
    options = ("--roofline-launcher=srun", arguments, "--roofline-save=one")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "--roofline-device=cpu", *options],
        cwd=tmp_path,
        env=os.environ | slurm.environ,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    (measurement,) = read_run(tmp_path / ".roofline" / "runs" / "one.jsonl").tested
    assert (1 / measurement.median_s, measurement.key.hardware.devices) == (2, 2)
    assert (measurement.ranks.size, measurement.ranks.launcher) == (2, "srun")
    assert (tmp_path / "node").read_text() == "n2\n"
