"""What tests start besides Python is found, hidden, and named where it is missing."""

import os
import subprocess
from pathlib import Path

import pytest

from . import tools, warm

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A PATH of two folders, of which one has a launcher and, where only root looks, its daemon."""
    for name in ("slurm/bin/srun", "slurm/bin/date", "slurm/sbin/munged", "plain/bin/date"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/sh\necho {name}\n")
        path.chmod(0o755)
    monkeypatch.setenv("PATH", os.pathsep.join([str(tmp_path / "slurm/bin"), "", str(tmp_path / "plain/bin")]))
    return tmp_path


def test_a_tool_is_found_in_path_and_in_the_sbin_beside(machine):
    places = [str(machine / "slurm/bin/srun"), str(machine / "slurm/sbin/munged"), None]
    assert places == [tools.find_tool(name) for name in ("srun", "munged", "mpirun")]


def test_hidden_tools_are_found_nowhere_and_all_else_is(machine, monkeypatch):
    monkeypatch.setenv("PATH", tools.hide(machine / "links"))
    assert [None, None] == [tools.find_tool(name) for name in ("srun", "munged")]
    assert subprocess.check_output(["date"], text=True) == "slurm/bin/date\n"


def test_a_folder_of_path_without_a_tool_stays(machine):
    assert [str(machine / "links/0"), str(machine / "plain/bin")] == tools.hide(machine / "links").split(os.pathsep)


def test_a_daemon_alone_is_hidden_too(machine, monkeypatch):
    (machine / "slurm/bin/srun").unlink()
    monkeypatch.setenv("PATH", tools.hide(machine / "links"))
    assert tools.find_tool("munged") is None


def test_a_skipped_test_names_its_tools_and_their_packages(machine):
    with pytest.raises(pytest.skip.Exception, match=r"^needs mpirun, chromium, found none in PATH; on Debian"):
        tools.require_tools("srun", "mpirun", "chromium")
    assert tools.what_lacks("slurmd", "scontrol").endswith("on Debian: apt-get install slurm-wlm")
    assert tools.what_lacks("srun", "munged") == ""


def test_without_the_tools_tests_of_them_are_skipped_and_none_fails(tmp_path):
    """Two files of many, in which a test has failed before; `.ci/run` runs all of them so."""
    environ = os.environ | {"PATH": tools.hide(tmp_path), "MPI4PY_LIBMPI": "hidden"}
    files = ["tests/slow/ci/test_slurm.py", "tests/kernels/test_mpi_copy.py"]
    done = warm.run(["-m", "pytest", *files, "-p", "no:cacheprovider", "-p", "no:xdist"], cwd=ROOT, env=environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"apt-get install {package}" in done.stdout for package in ("munge slurm-wlm", "openmpi-bin"))
