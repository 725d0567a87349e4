"""docs/ci/slurm.sbatch and torchrun-nodes.sbatch, on two emulated nodes.

The status of the gate is that of the job, and runs are kept by job.
"""

import os
import re
import shutil
import subprocess
from types import SimpleNamespace

import pytest
from click.testing import CliRunner

from pytest_roofline.cli.main import main

from ...waiting import until
from .conftest import ALL_PASSED, REPORT, SHIPPED, SOME_REGRESSED, Checkout, files, runs

FILE = SHIPPED / "slurm.sbatch"
NAME = "roofline.sbatch"
TORCHRUN = "torchrun-nodes.sbatch"
# One rank on each of two nodes.
RANKS = """
import torch
import torch.distributed as dist
from pytest_roofline import Work


def all_reduce(rank, numel):
    x = torch.ones(numel, device=rank.device)
    return lambda: dist.all_reduce(x)


def test_all_reduce(roofline, distributed):
    work = Work(algbw_bytes=2**20, busbw_bytes=2**20)
    roofline.measure_ranks(distributed, all_reduce, 2**18, world_size=2, work=work)
"""


class Job:
    """A batch job; `sbatch --wait` would look for its end every eight seconds.

    Args:
        slurm: the nodes.
        checkout: the folder in which it is submitted.
        arguments: of `sbatch`.
        options: of pytest.
        script: the words behind the options of `sbatch`: the script and its arguments.
        environ: what the script finds in its environment besides.
    """

    def __init__(self, slurm, checkout, *arguments, options="", script=(NAME,), **environ):
        self._environ = checkout.environment(options) | slurm.environ | environ
        self._checkout = checkout
        command = ["sbatch", "--parsable", *arguments, *script]
        self.waiting = subprocess.Popen(
            command, cwd=checkout.path, env=self._environ, stdout=subprocess.PIPE, text=True
        )
        self.number = int(self.waiting.stdout.readline())

    def ended(self):
        """The job after its end, with its exit status and what it printed."""
        assert until(lambda: re.search(r"JobState=(?:COMPLETED|FAILED) ", self._shown()), 180), (
            self._shown()
        )
        self.status = int(re.search(r" ExitCode=(\d+):0 ", self._shown())[1])
        (output,) = self._checkout.path.glob(f"roofline-*{self.number}.out")
        self.said = output.read_text()
        return self

    def _shown(self):
        command = ["scontrol", "--oneliner", "show", "job", str(self.number)]
        return subprocess.run(
            command, env=self._environ, capture_output=True, text=True, check=True
        ).stdout


@pytest.fixture(scope="module")
def jobs(slurm, tmp_path_factory):
    """Jobs in one folder: without a baseline, with one, and slowed down; the first by a sbatch that waits for it."""
    checkout = Checkout(tmp_path_factory.mktemp("slurm"))
    first = Job(slurm, checkout, "--wait").ended()
    folder = ["--dir", str(checkout.path / ".roofline")]
    proposal = str(checkout.path / "proposal.json")
    proposed = CliRunner().invoke(main, ["baseline", "propose", *folder, "-o", proposal])
    assert proposed.exit_code == 0, proposed.output
    checkout.approve(checkout.path / "proposal.json")
    healthy = Job(slurm, checkout).ended()
    red = Job(slurm, checkout, options="--roofline-drill=100%").ended()
    yield SimpleNamespace(first=first, healthy=healthy, red=red, checkout=checkout)
    for job in (first, healthy, red):
        job.waiting.communicate(timeout=60)


def test_the_script_is_bash_that_slurm_would_take_and_old_ones_know(slurm, checkout):
    text = FILE.read_text()
    done = subprocess.run(["bash", "-n", str(FILE)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    # An array that may be empty is unbound for an old bash.
    every = re.findall(r'(\S*)"\$\{(\w+)\[@\]\}"', text)
    assert every == [(f"${{{name}[@]+", name) for _, name in every] != []
    told = set(re.findall(r"^#SBATCH (\S+)", text, re.MULTILINE))
    assert {"--exclusive", "--requeue", "--open-mode=append"} <= told
    command, environ = ["sbatch", "--test-only", NAME], os.environ | slurm.environ
    done = subprocess.run(
        command, cwd=checkout.path, env=environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"Job \d+ to start at .* on nodes n[12]", done.stderr)


def test_green_on_day_one_and_when_healthy_red_when_slower_with_run_and_report_by_job(jobs):
    assert [jobs.first.status, jobs.healthy.status, jobs.red.status] == [0, 0, 1], jobs.first.said
    assert "NO BASELINE" in jobs.first.said
    assert ALL_PASSED.search(jobs.healthy.said)
    assert SOME_REGRESSED.search(jobs.red.said)
    # A sbatch that waits hands the status on.
    assert jobs.first.waiting.wait(60) == jobs.first.status
    names = {f"slurm-{job.number}-0" for job in (jobs.first, jobs.healthy, jobs.red)}
    assert names <= runs(jobs.checkout.path / ".roofline" / "runs")
    for name in names:
        assert REPORT == files(jobs.checkout.path / "roofline-report" / name)


def test_a_job_that_was_requeued_keeps_the_run_of_its_first_attempt(jobs):
    environ = jobs.checkout.environment() | {
        "SLURM_SUBMIT_DIR": str(jobs.checkout.path), "SLURM_JOB_NUM_NODES": "1",
        "SLURM_JOB_ID": str(jobs.healthy.number), "SLURM_RESTART_COUNT": "1",
    }  # fmt: skip
    folder = jobs.checkout.path / ".roofline" / "runs"
    before = (folder / f"slurm-{jobs.healthy.number}-0.jsonl").read_bytes()
    done = jobs.checkout.bash(f"bash {NAME}", environ)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"slurm-{jobs.healthy.number}-1" in runs(folder)
    assert before == (folder / f"slurm-{jobs.healthy.number}-0.jsonl").read_bytes()


def test_on_two_nodes_srun_starts_the_ranks(slurm, checkout):
    suite = checkout.path / "perf_tests"
    for path in suite.iterdir():
        path.unlink()
    (suite / "test_ranks.py").write_text(RANKS)
    options = "-v --roofline-device=cpu --roofline-budget=0.05"
    job = Job(slurm, checkout, "--nodes=2", options=options, ROOFLINE_TESTS="all_reduce").ended()
    job.waiting.communicate(timeout=60)
    assert "ranks: srun, gloo" in job.said
    assert "1 measured" in job.said
    # Nothing is known of these nodes yet.
    assert (
        job.status,
        "NO BASELINE" in job.said or "INVALID" in job.said or "OVERSUBSCRIBED" in job.said,
    ) == (1, True)


def test_torchrun_on_two_nodes_makes_one_report_of_all_ranks_and_fails_if_a_test_does(
    slurm, checkout
):
    shutil.copy(SHIPPED / TORCHRUN, checkout.path / TORCHRUN)
    (checkout.path / "test_ranks.py").write_text(RANKS)
    (checkout.path / "test_red.py").write_text("def test_red(distributed):\n    assert False\n")
    options = "-v --roofline-device=cpu --roofline-budget=0.05"

    def ended(file):
        words = {"options": options, "script": (TORCHRUN, file), "ROOFLINE_RANKS": "1"}
        job = Job(slurm, checkout, "--nodes=2", **words).ended()
        job.waiting.communicate(timeout=60)
        return job

    green, red = ended("test_ranks.py"), ended("test_red.py")
    assert (0, True) == (green.status, red.status > 0), green.said + red.said
    assert "ranks: attach, gloo" in green.said
    # Only rank 0 reports.
    assert ["1 passed"] == re.findall(r"\d+ passed", green.said)
