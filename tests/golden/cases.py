"""The golden cases: a file of tests, which device there is, and what a user types.

A step that is a dict says which device there is and how fast, as `Desk.script` takes it; a pair is a file that is
written, by name and text; any other is a command.
`{against}` stands for five saved sessions of the same suite, `{reported}` for the options that write every file.
"""

import json
from dataclasses import dataclass

from ..plugin.conftest import ONE, SUITE

REPORTED = "--roofline-report=out --junitxml=junit.xml --roofline-save=run"
DAYS = "day1,day2,day3,day4,day5"
FILES = ("out/results.csv", "out/run.json", "out/summary.md", "junit.xml", ".roofline/runs/run.jsonl")


@dataclass(frozen=True)
class Case:
    """One story.

    Args:
        steps: commands, files, devices.
        suite: the file of tests.
        days: whether five sessions of the suite were saved before.
        keeps: patterns of files that are stored beside those of a report.
    """

    steps: tuple[str | dict | tuple[str, str], ...]
    suite: str = ONE.format(marks="")
    days: bool = False
    keeps: tuple[str, ...] = ()


UNEVEN = """
import pytest
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9)

def test_fine(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)

def test_broken(roofline):
    raise AssertionError("never measured")

def test_wrong_data(roofline, busy):
    def wrong():
        assert [1, 2, 3] == [1, 2, 4]
    roofline.measure(lambda: busy(1e-3), work=WORK, verify=wrong)

def test_elsewhere(roofline):
    roofline.skip_for_hardware("needs 2 GPUs, found 1")
"""


OUT_OF_MEMORY = """
import pytest
import torch
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9)
OutOfMemoryError = getattr(torch, "OutOfMemoryError", type("OutOfMemoryError", (RuntimeError,), {}))

def run_out():
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of "
                           "which 1.10 GiB is free. Of the allocated memory 77.20 GiB is allocated by PyTorch.")

@pytest.mark.roofline(oom="record")
def test_recorded(roofline):
    roofline.measure(run_out, work=WORK)

def test_not_recorded(roofline):
    roofline.measure(run_out, work=WORK)

def test_next(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK)
"""

PEAK = """
from pathlib import Path
from pytest_roofline import Work

GIB = float(Path(__file__).with_name("gib.txt").read_text())

def test_step(roofline, busy, fake):
    size = int(GIB * 2**30)
    def step():
        fake.allocate(size)
        busy(1e-3)
        fake.allocate(-size)
    roofline.measure(step, work=Work(read_bytes=10**9, write_bytes=10**9), peak_bytes=True)
"""

SOUND = {
    "index": 0, "power_limit_w": 700.0, "power_default_w": 700.0, "pcie_generation": 5, "pcie_generation_rated": 5,
    "pcie_width": 16, "pcie_width_rated": 16, "links": 18, "ecc": True, "ecc_errors": 0, "remap_pending": False,
    "remap_failed": False, "throttle_known": True, "active": [],
}  # fmt: skip

THRESHOLD = {
    "benchmark": "one", "kind": "threshold", "metric": "traffic_GBps", "value": 2500, "unit": "GB/s",
    "convention": "traffic, 1e9", "source": "the maker", "confidence": "high",
}  # fmt: skip
PUBLISHED = ("baselines/h100.json", json.dumps({"schema": 1, "family": "h100", "entries": [THRESHOLD]}))

CASES = {
    "pass": Case(("pytest -v {against} {reported}", "roofline explain run 1GiB"), SUITE, days=True),
    "regression": Case(
        (
            {"slow": {"test_copy[1GiB]": 1.3}},
            "pytest -v {against} {reported}",
            "roofline explain run 1GiB",
            "roofline explain run 1GiB --json",
            f"roofline compare {DAYS} run",
            f"roofline compare {DAYS} run --json",
        ),
        SUITE,
        days=True,
    ),
    "improvement": Case(
        ({"slow": 0.8}, "pytest {against} {reported} --roofline-rounds=1", f"roofline compare {DAYS} run"), days=True
    ),
    "inconclusive": Case(
        ({"slow": 1.06}, "pytest {against} {reported} --roofline-rounds=1", "roofline explain run"), days=True
    ),
    "invalid": Case(
        ({"others_busy": 0.5}, "pytest {against} {reported} --roofline-rounds=1", "roofline explain run"), days=True
    ),
    "no_baseline": Case(("pytest {reported}", "roofline explain run")),
    "nothing_compared": Case(("pytest --roofline-ci",)),
    "degraded": Case(
        ({"slow": 1.3, "gpu": SOUND | {"power_limit_w": 400.0}}, "pytest {against} {reported} --roofline-rounds=3"),
        days=True,
    ),
    "uneven": Case(("pytest {reported}",), UNEVEN),
    "out_of_memory": Case(("pytest -v {reported}", "roofline explain run"), OUT_OF_MEMORY),
    "limit": Case((PUBLISHED, "pytest {reported}", "roofline explain run")),
    "floor": Case(({"slow": 1.3}, "pytest {reported} --roofline-min-percent=55", "roofline explain run")),
    "peak_memory": Case(
        (
            ("gib.txt", "1"),
            "pytest -q --roofline-save=before",
            ("gib.txt", "1.5"),
            "pytest {reported} --roofline-against=before --roofline-rounds=1",
            "roofline compare before run",
        ),
        PEAK,
    ),
    "drill": Case(("pytest {against} {reported} --roofline-drill=30%",), SUITE, days=True),
    "shadow": Case(
        ({"slow": 1.5}, "pytest {reported} --roofline-ci=shadow --roofline-rounds=1 --roofline-min-percent=55")
    ),
}
