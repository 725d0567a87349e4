"""docs/ci: one log a node on two emulated nodes and the judgement of both; and the check of a node in one line."""

import json
import re
import shutil
import subprocess

import pytest

from ...waiting import until
from .conftest import SHIPPED

FILE = SHIPPED / "slurm-array.sbatch"
CHECK = SHIPPED / "node-check.sh"
# Prints what nccl-tests print on a node of one GPU.
STANDIN = """#!/usr/bin/env bash
echo '# nThread 1 nGpus 2 minBytes 1048576 maxBytes 1048576 step: 2(factor) warmup iters: 5 iters: 20'\\
' agg iters: 1 validation: 1 graph: 0'
echo "# Collective test starting: all_reduce_perf"
for rank in 0 1; do
  echo "#  Rank  $rank Group  0 Pid  $$ on $SLURMD_NODENAME device  $rank [0000:1b:00] NVIDIA H100 80GB HBM3"
done
echo '# size count type redop root time algbw busbw #wrong time algbw busbw #wrong'
echo '# (B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)'
echo '1048576 262144 float sum -1 200.00 5.24 5.24 0 200.00 5.24 5.24 0'
echo '# Out of bounds values : 0 OK'
echo '# Avg bus bandwidth    : 5.24'
"""


@pytest.fixture
def job(slurm, checkout):
    """Submits the script with its arguments, and returns what the dependent job printed."""
    shutil.copy(FILE, checkout.path / FILE.name)
    standin = checkout.path / "all_reduce_perf"
    standin.write_text(STANDIN)
    standin.chmod(0o755)
    environ = checkout.environment() | slurm.environ | {"ROOFLINE_COMMAND": str(standin)}

    def submit(side, *arguments):
        command = ["sbatch", "--parsable", "--nodes=2", FILE.name, side, *arguments]
        subprocess.run(command, cwd=checkout.path, env=environ, check=True, capture_output=True)

        def judged():
            return [
                path.read_text()
                for path in checkout.path.glob(f"roofline-{side}-*.out")
                if re.search(r"roofline: |REGRESSED|PASSED|INCONCLUSIVE", path.read_text())
            ]

        assert until(judged, 180), [path.name for path in checkout.path.iterdir()]
        return judged()[0]

    return submit


def test_each_node_writes_a_log_and_a_dependent_job_judges_all(job, checkout):
    # Two nodes are too few to judge, which both commands say.
    assert "no hardware has 4 devices, nodes or links" in job("before")
    logs = sorted(path.name for path in (checkout.path / "logs" / "before").iterdir())
    assert ["n1.log", "n2.log"] == logs
    text = job("after", "--changed", "n1", "--label", "550", "570")
    assert text.splitlines()[0] == (
        "cannot tell: 1 node changed and 1 did not; expected 3 of each; differs: 550 → 570. INCONCLUSIVE"
    )


@pytest.fixture
def check(tmp_path, checkout):
    """Runs the check of a node where `roofline compare` ends with a status; returns status, output, log."""
    programs = tmp_path / "stand-ins"
    programs.mkdir()

    def run(mode, status):
        program = programs / "roofline"
        program.write_text(
            f"#!/bin/sh\nprintf 'a table\\n%s: last line\\n' \"$*\"\nexit {status}\n"
        )
        program.chmod(0o755)
        logger = programs / "logger"
        logger.write_text(f"#!/bin/sh\nprintf '%s\\n' \"$*\" > {tmp_path}/log\n")
        logger.chmod(0o755)
        environ = checkout.environment()
        environ["PATH"] = f"{programs}:{environ['PATH']}"
        done = subprocess.run(
            ["bash", str(CHECK), mode, "old", "new"],
            env=environ, capture_output=True, text=True, check=False,
        )  # fmt: skip
        log = tmp_path / "log"
        return done.returncode, done.stdout, log.read_text() if log.exists() else ""

    return run


@pytest.mark.parametrize("status", [0, 1, 2])
def test_a_monitor_gets_the_status_and_one_line(check, status):
    assert (status, "compare old new: last line\n", "") == check("monitor", status)


@pytest.mark.parametrize(("status", "expected"), [(0, 0), (1, 1), (2, 0), (127, 0)])
def test_a_gate_gets_0_where_it_could_not_be_told_and_a_line_in_the_log(check, status, expected):
    code, line, log = check("gate", status)
    assert (expected, "compare old new: last line\n") == (code, line)
    told = "-t roofline could not tell: compare old new: last line\n"
    assert log == (told if status > 1 else "")


def test_the_configuration_of_node_problem_detector_names_the_check():
    config = json.loads((SHIPPED / "node-problem-detector.json").read_text())
    (rule,), (condition,) = config["rules"], config["conditions"]
    assert (config["plugin"], rule["condition"]) == ("custom", condition["type"])
    assert (CHECK.name, "monitor") == (rule["path"].rpartition("/")[2], rule["args"][0])
