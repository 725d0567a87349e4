"""Programs of Debian under `roofline ab --run`, a command line each. What they measure is this machine's affair."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ...tools import require_tools

ROOFLINE = Path(sys.executable).parent / "roofline"
PROGRAMS = {
    "mbw": (
        "mbw -q -n 3 4",
        ("--read=regex", r"--higher=copy=^\d+\tMethod: (?P<method>\w+).*Copy: ([\d.]+) MiB/s"),
        ["mbw[DUMB].copy", "mbw[MCBLOCK].copy", "mbw[MEMCPY].copy"],
    ),
    "sysbench": (
        "sysbench memory --memory-total-size=64M run",
        ("--read=regex", r"--higher=MiB/s=transferred \(([\d.]+) MiB/sec\)"),
        ["sysbench.MiB/s"],
    ),
    "hyperfine": (
        "hyperfine --shell=none --warmup 1 --runs 5 --export-json {out} true",
        ("--lower=time=results.*.times",),
        ["hyperfine[true].time"],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_of_debian_is_read_and_runs_in_turn(name, tmp_path):
    require_tools(name)
    command, figures, labels = PROGRAMS[name]
    words = [ROOFLINE, "ab", "--json", "--processes=4", ".", ".", "--run", command, *figures]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode in (0, 1, 2), done.stderr
    report = json.loads(done.stdout)
    assert sorted(row["label"] for row in report["tests"]) == labels
    assert {row["verdict"] for row in report["tests"]} <= {
        *("PASSED", "IMPROVED", "REGRESSED", "INCONCLUSIVE"),
    }
