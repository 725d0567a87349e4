"""The launches that one unchanged file is put through, and what is read from them; for tests and benchmarks."""

import os
import re
import socket
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

SUITE = Path(__file__).with_name("launched_suite.py")
# Importing these plugins takes longer than all else that is not torch; every process of a launch imports them.
WITHOUT = [
    word
    for plugin in ("cacheprovider", "hypothesispytest", "benchmark")
    for word in ("-p", f"no:{plugin}")
]
PYTEST = [sys.executable, "-m", "pytest", *WITHOUT, "--roofline-device=cpu", "--junitxml=junit.xml"]
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
MPIRUN = ["mpirun", "--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
# torchrun's agent and mpirun start slowly, and so do ranks on a machine with others at work.
PATIENCE_S = 180.0
_HOLDERS = []
# A file of tests that every rank of a launch runs, one of which only MPI can.
SMALL = """
import pytest
import torch
import torch.distributed as dist


def total(rank):
    values = torch.tensor([float(rank + 1)])
    dist.all_reduce(values)
    return values.item()


def test_sums(distributed):
    assert distributed.launcher == "attach"
    assert distributed.run(total, world_size=2) == [3.0, 3.0]


@pytest.mark.roofline(mpi=True, ranks=2)
def test_needs_mpi(distributed):
    distributed.run(total)
"""
OUTCOMES = {
    "test_without_ranks": "passed",
    "test_passes": "passed",
    "test_measures": "passed",
    "test_fails": "failed",
    "test_skips": "skipped",
    "test_loses_a_rank": "failed",
    "test_goes_on": "passed",
    "test_hangs": "failed",
}
# Of launches with two ranks, and of one with four. Where ranks are started for the tests, there are as many as wanted,
# and `test_launching` has it.
FOUR = "test_needs_4_ranks"
OWN = ["--deselect", f"test_suite.py::{FOUR}"]


def environment(more=None):
    """This process's, without what colours a report."""
    plain = {
        name: value
        for name, value in os.environ.items()
        if name not in ("FORCE_COLOR", "PY_COLORS")
    }
    return plain | {"NO_COLOR": "1"} | (more or {})


def run(folder, command, environ=None):
    return subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=environment(environ),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def cases(folder):
    """By the name of a test its outcome and the first line of its reason."""
    found = {}
    for case in ElementTree.parse(folder / "junit.xml").iter("testcase"):
        (told, *more) = [node for node in case if node.tag in ("failure", "error", "skipped")] or [
            None
        ]
        assert not more
        outcome = {None: "passed", "failure": "failed"}.get(
            told if told is None else told.tag, getattr(told, "tag", "")
        )
        found[case.get("name")] = (
            outcome,
            told.get("message", "").splitlines()[0] if told is not None else "",
        )
    return found


def affinities(folder):
    """The cores of every rank, as `test_measures` wrote them down."""
    nodes = ElementTree.parse(folder / "junit.xml").iter("property")
    return [node.get("value") for node in nodes if node.get("name") == "affinity"]


def reports(text):
    """How often pytest began, ended and listed failures in an output."""
    starts = text.count("test session starts")
    ends = re.findall(
        r"^=+ (.*(?:passed|failed|skipped|error).*) in [\d.]+s.*=+$", text, re.MULTILINE
    )
    return (
        starts,
        len(ends),
        len(re.findall(r"^=+ short test summary info =+$", text, re.MULTILINE)),
    )


def free_port():
    """One that nobody is given while this process runs, and on which whoever asks for it by its number may listen."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _HOLDERS.append(holder)
    return holder.getsockname()[1]


def two_by_two():
    """Two agents that meet at a port of this host, where both nodes are."""
    endpoint = f"--rdzv-endpoint=127.0.0.1:{free_port()}"
    agents = [*TORCHRUN, "--nnodes=2", "--nproc-per-node=2", "--rdzv-backend=c10d", endpoint]
    # An agent whose ranks are done waits 300 s for one that has failed, unless Slurm ends it.
    return ["srun", "-N2", "-n2", "--kill-on-bad-exit=1", *agents, *PYTEST[1:]]


LAUNCHES = {
    "local": lambda: [*PYTEST, *OWN],
    "torchrun": lambda: [*PYTEST, *OWN, "--roofline-launcher=torchrun"],
    "mpirun": lambda: [*PYTEST, *OWN, "--roofline-launcher=mpirun"],
    "srun": lambda: [*PYTEST, *OWN, "--roofline-launcher=srun", "--roofline-launcher-args=-N2"],
    "under torchrun": lambda: [*TORCHRUN, "--standalone", "--nproc-per-node=2", *PYTEST[1:]],
    "under mpirun": lambda: [*MPIRUN, "-n", "2", *PYTEST],
    "under srun": lambda: ["srun", "-N2", "-n2", *PYTEST],
    "under srun and torchrun": two_by_two,
}


def expected_of(launch):
    """Outcomes by test. A launch of two ranks skips what needs four; one that starts its own leaves that test out."""
    if not launch.startswith("under"):
        return dict(OUTCOMES)
    return OUTCOMES | {FOUR: "passed" if launch == "under srun and torchrun" else "skipped"}
