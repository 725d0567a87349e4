"""What tests start besides Python is hidden, and named where it is missing."""

import os
from pathlib import Path

import pytest

from . import tools, warm

ROOT = Path(__file__).resolve().parents[1]


@pytest.mark.feature("ranks")
def test_without_the_tools_tests_of_them_are_skipped_and_none_fails(tmp_path):
    """Two files of many, in which a test has failed before; `.ci/run` runs all of them so."""
    environ = os.environ | {"PATH": tools.hide(tmp_path), "MPI4PY_LIBMPI": "hidden"}
    files = ["tests/slow/ci/test_slurm.py", "tests/kernels/test_mpi_copy.py"]
    done = warm.run(
        ["-m", "pytest", *files, "-p", "no:cacheprovider", "-p", "no:xdist"], cwd=ROOT, env=environ
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(
        f"apt-get install {package}" in done.stdout
        for package in ("munge slurm-wlm", "openmpi-bin")
    )
