"""Files of tests that the cases run."""

from ..plugin.rank_runs import SCRIPTED_CLOCK

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

# The compiler's figures stand in figures.json.
KERNEL = """
import json
from pathlib import Path

import pytest
from pytest_roofline.kernel_gate import compile as compiling

FIGURES = Path(__file__).with_name("figures.json")

@pytest.fixture(autouse=True)
def compiler(monkeypatch):
    def compile_for(kernel, target, arguments, options):
        figures = json.loads(FIGURES.read_text())
        return compiling.KernelBinary(target, figures, dict(options), {}, {"triton": "3.9.0"}, "")

    monkeypatch.setattr(compiling, "compile_for", compile_for)
    monkeypatch.setattr(compiling, "is_compiled", lambda kernel: False)

def test_flash(roofline):
    roofline.resources("kernel", target="sm_90", options={"num_warps": 8})
"""

NUMBERS = """
import pytest
import torch
from torch import nn
from pytest_roofline import Work

WORK = Work(read_bytes=10**9, write_bytes=10**9, tokens=500)

def starting(fake):
    left = [0.25]

    def step():
        if left:
            fake.pass_time(left.pop())
        fake.work(1e-3)

    return step

def test_figures(roofline, busy):
    roofline.measure(lambda: busy(1e-3), work=WORK, name="efficiency")
    roofline.figure("efficiency", 0.873, "share")
    roofline.figure("bytes", 2**20, "B")

def test_first_calls(roofline, fake):
    roofline.measure(starting(fake), work=WORK, compiles=True, first_calls=2)

def test_memory(roofline):
    model, x = nn.Sequential(nn.Linear(8, 16, bias=False), nn.GELU()), torch.ones(64, 8)
    roofline.memory(model, x, model=model)

@pytest.mark.parametrize("size_bytes", [2**20, 2**23, 2**26, 2**29, 2**32])
def test_curve(roofline, busy, size_bytes):
    work = Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)
    roofline.measure(lambda: busy(1e-4 + 2 * size_bytes / 2e12), work=work)
"""

# Appended to the desk's conftest.py: as many cards as `cards.json` has rows of factors, one for each round.
CARDS = """

import contextlib
from dataclasses import replace as _replace

FACTORS = json.loads((HERE / "cards.json").read_text())


def make_cards(config):
    from pytest_roofline.engine.devices.fake import FakeDevice

    class Card(FakeDevice):
        def __init__(self, index):
            super().__init__()
            self.index = index

        def facts(self):
            return _replace(super().facts(), index=self.index, uuid=f"GPU-{self.index}")

        def siblings(self):
            return tuple(f"cuda:{index}" for index in range(len(FACTORS)))

        @contextlib.contextmanager
        def current(self):
            config.now = self
            yield

        def busy_siblings(self):
            return {}

    return [Card(index) for index in range(len(FACTORS))]


@pytest.hookimpl(optionalhook=True, tryfirst=True)
def pytest_roofline_device(config, name):
    if not hasattr(config, "cards"):
        config.cards = make_cards(config)
    return config.cards[int(name.partition(":")[2]) if name else 0]


@pytest.fixture
def spend(pytestconfig):
    def spend(seconds):
        rounds = FACTORS[pytestconfig.now.index]
        pytestconfig.now.work(seconds * rounds[min(round_number(pytestconfig), len(rounds)) - 1])

    return spend
"""
SIBLINGS = """
import pytest
from pytest_roofline import Work

@pytest.mark.roofline(needs="siblings")
def test_all(roofline, spend):
    work = Work(read_bytes=10**9, write_bytes=10**9)
    roofline.measure_siblings(lambda: spend(1e-3), make_args=lambda device: tuple, work=work, cache="warm")
"""

# On two processors.
RANKS = (
    """
import os

import pytest
import torch
import torch.distributed as dist
from pytest_roofline import Work
from pytest_roofline.engine.devices import cpu

WORK = Work(algbw_bytes=2**20, busbw_bytes=2**20)
os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
cpu.too_busy = lambda taken: ""
"""
    + SCRIPTED_CLOCK
    + """
@pytest.mark.roofline(ranks=2)
def test_all_reduce(roofline, distributed):
    roofline.measure_ranks(distributed, takes, 0.01, work=WORK, collective="all_reduce")
"""
)
