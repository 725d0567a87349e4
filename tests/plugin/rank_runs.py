"""Runs of pytest over real ranks, each in a process of its own: what they said, what they wrote, what they left."""

import contextlib
import json
import os
import time
import uuid
import xml.etree.ElementTree as ET
from pathlib import Path

from pytest_roofline.baselines.runs import read_run

from .. import warm

# Ranks start slowly on a machine with others at work, and a run starts dozens of them.
PATIENCE_S = 600.0
# Every process of a run inherits this variable, so that none can hide.
MARK = "ROOFLINE_RANKS_TEST"

# At the top of every suite; ranks load the file, too. What neighbours on a shared machine do is tested elsewhere.
PREAMBLE = """
import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from pytest_roofline import Timed, Work
from pytest_roofline.engine.devices import cpu

cpu.too_busy = lambda taken: ""

WORK = Work(algbw_bytes=4096, busbw_bytes=4096)


def pid(rank):
    return os.getpid()


def nap(rank, seconds):
    values = torch.ones(8)

    def call():
        time.sleep(seconds)
        dist.all_reduce(values)

    return call
"""

# Two cores, however many there are: what is oversubscribed must not depend on the machine.
# Of a processor: it moves only where a test says so, a little where it is read, so verdicts are those of any machine.
SCRIPTED_CLOCK = """
import time

from pytest_roofline.engine.devices.cpu import CpuDevice

CLOCK_NS = [0]


def stamp(device):
    CLOCK_NS[0] += 100
    return CLOCK_NS[0]


CpuDevice.stamp = stamp
# No sample is longer than its block was by the host's clock.
CpuDevice.host_s = lambda device: time.perf_counter() + CLOCK_NS[0] * 1e-9


def takes(rank, seconds):
    values = torch.ones(8)

    def call():
        dist.all_reduce(values)
        CLOCK_NS[0] += round(seconds * 1e9)

    return call
"""
CONFTEST = """
import os

os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
"""


def processes(mark):
    """Processes of a run that still run, by number, with their command lines."""
    found = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if (folder / "stat").read_text().rpartition(")")[2].split()[0] in ("Z", "X"):
                continue
            if f"{MARK}={mark}".encode() in (folder / "environ").read_bytes().split(b"\0"):
                found[int(folder.name)] = (
                    (folder / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                )
    return found


class RankRuns:
    """A root folder with one suite, in which pytest runs with a folder for temporary files of its own."""

    def __init__(
        self, path: Path, suite: str, *, ini: str = "roofline_budget = 0.05", conftest: str = ""
    ) -> None:
        self.path = path
        self.mark = uuid.uuid4().hex
        self.temporary = path / "tmp"
        self.temporary.mkdir(parents=True)
        (path / "pytest.ini").write_text(
            f"[pytest]\nroofline_device = cpu\njunit_family = xunit1\n{ini}\n"
        )
        (path / "conftest.py").write_text(CONFTEST + conftest)
        (path / "test_suite.py").write_text(PREAMBLE + suite)

    def start(self, *args: str, under: tuple[str, ...] = (), **environ: str) -> warm.Process:
        """pytest, started, maybe by a module that launches it; what it says goes to `output`."""
        known = {
            name: value
            for name, value in os.environ.items()
            if name not in ("FORCE_COLOR", "PYTEST_ADDOPTS")
        }
        own = {MARK: self.mark, "TMPDIR": str(self.temporary), "COLUMNS": "1000", "NO_COLOR": "1"}
        without = [f"-pno:{plugin}" for plugin in ("hypothesispytest", "benchmark")]
        command = [*under, "-m", "pytest", "-v", *without, "--junitxml=junit.xml", *args]
        output = self.path / "output"
        output.write_text("")
        return warm.Process(command, cwd=self.path, env=known | own | environ, stdout=output)

    def run(self, *args: str, **environ: str) -> "RankRuns":
        """pytest, to its end."""
        child = self.start(*args, **environ)
        try:
            self.status = child.wait(PATIENCE_S)
        finally:
            child.kill()
            child.wait()
        return self

    @property
    def text(self) -> str:
        """What the last run said."""
        return (self.path / "output").read_text()

    def cases(self) -> "dict[str, tuple[str, str]]":
        """By the name of a test its outcome and its whole reason."""
        found = {}
        for case in ET.parse(self.path / "junit.xml").iter("testcase"):
            (told,) = [node for node in case if node.tag in ("failure", "error", "skipped")] or [
                None
            ]
            tag = "passed" if told is None else {"failure": "failed"}.get(told.tag, told.tag)
            found[case.get("name")] = (
                tag,
                "" if told is None else f"{told.get('message')}\n{told.text}",
            )
        return found

    def properties(self, name: str) -> "dict[str, str]":
        """What a test wrote down beside its outcome."""
        (case,) = [
            each
            for each in ET.parse(self.path / "junit.xml").iter("testcase")
            if each.get("name") == name
        ]
        return {node.get("name"): node.get("value") for node in case.iter("property")}

    def run_path(self, name: str) -> Path:
        """Where a saved run lies."""
        return self.path / ".roofline" / "runs" / f"{name}.jsonl"

    def saved(self, name: str):
        """A saved run, read back."""
        return read_run(self.run_path(name))

    def notes(self, name: str = "notes"):
        """What tests and ranks wrote down, line by line."""
        path = self.path / name
        return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []

    def left_over(self, patience_s: float = 10.0) -> "dict[int, str]":
        """Processes of this folder's runs that still run, after so many seconds of patience."""
        until_s = time.monotonic() + patience_s
        while (left := processes(self.mark)) and time.monotonic() < until_s:
            time.sleep(0.05)
        return left


def by_label(run):
    """The measurements of a run by label; there is one of each."""
    found = {measurement.label: measurement for measurement in run.measurements}
    assert len(found) == len(run.measurements)
    return found
