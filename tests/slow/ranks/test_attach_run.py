"""Ranks of a real launch attach: lost and come again under torchrun, and across two nodes under srun."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest


def launched(tmp_path, launcher, *arguments, environ=None):
    """What rank 0 said, of a launch of two processes that all ended well."""
    done = subprocess.run(
        [*launcher, str(Path(__file__).with_name("attach_run.py")), str(tmp_path), *arguments],
        env=os.environ | (environ or {}),
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.glob("attach/*")) == []
    return (tmp_path / "said").read_text().splitlines()


@pytest.mark.parametrize("secret", [{}, {"ROOFLINE_ATTACH_KEY": "0123456789abcdef"}], ids=["by a file", "by a secret"])
def test_ranks_under_torchrun_are_lost_and_come_again(tmp_path, secret):
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    first, lost, again = launched(tmp_path, torchrun, "lose", environ=secret)
    assert (first, again) == ("torchrun [3.0, 3.0]", "torchrun [3.0, 3.0]")
    assert re.match(r"rank 1 \(pid \d+ on \S+\) was lost: killed by SIGKILL\b", lost)


def test_ranks_under_srun_meet_across_two_nodes(slurm, tmp_path):
    assert launched(tmp_path, ["srun", "-N2", "-n2", sys.executable], environ=slurm.environ) == ["srun [3.0, 3.0]"]
