"""The two Slurm nodes that the tests run on."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from ...ranks.slurm import TOOLS, Slurm, SlurmFailed, two_nodes
from ...tools import require_tools


def command_lines():
    """Of every process that runs."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:
            continue
    return found


def test_a_command_runs_on_both_nodes(slurm):
    done = slurm.srun("-N2", "-n2", "--label", "sh", "-c", "echo $SLURMD_NODENAME")
    assert (done.returncode, sorted(done.stdout.splitlines())) == (0, ["0: n1", "1: n2"])


def test_the_host_name_is_this_hosts_on_every_node(slurm):
    done = slurm.srun("-N2", "-n2", "hostname")
    assert done.stdout.split() == [os.uname().nodename] * 2


def test_a_batch_script_is_no_launch_and_srun_within_it_is_one(slurm):
    program = "import os; from pytest_roofline.ranks.identity import identify; print(identify(os.environ))"
    both = f"{sys.executable} -c '{program}'; srun --overlap -n2 {sys.executable} -c '{program}'"
    done = subprocess.run(
        ["salloc", "-N2", "-n2", "sh", "-c", both],
        env=os.environ | slurm.environ,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    first, *others = done.stdout.splitlines()
    assert first == "None"
    assert sorted(others) == [
        f"Identity(rank={rank}, size=2, local_rank=0, local_size=None, launcher='srun')" for rank in (0, 1)
    ]


def test_nothing_is_left_behind():
    require_tools(*TOOLS)
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        with two_nodes(Path(folder)) as nodes:
            assert nodes.idle()
            assert any(folder in line for line in command_lines())
            sleeper = subprocess.Popen(["srun", "-N2", "sleep", "987"], env=os.environ | nodes.environ)
            while sum("sleep 987" in line and "srun" not in line for line in command_lines()) < 2:
                assert sleeper.poll() is None
        assert sleeper.wait(30) != 0
        left = [line for line in command_lines() if folder in line or line.startswith("sleep 987")]
        assert left == []


def test_daemons_that_do_not_come_up_say_why(monkeypatch):
    require_tools(*TOOLS)
    monkeypatch.setattr(Slurm, "_configure", lambda self, munge: Path(self.environ["SLURM_CONF"]).write_text("No=1\n"))
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:
        slurm = Slurm(Path(folder) / "1")
        with pytest.raises(SlurmFailed, match="the daemons' last words") as caught:
            slurm.start()
        slurm.stop()
    assert "slurmctld.out: " in str(caught.value)
