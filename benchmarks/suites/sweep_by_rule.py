"""The memcpy sweep of the document that proposed this project, timed by three rules; see `memcpy_sweep.py`."""

import json
import os
import time
from pathlib import Path
from statistics import median

import pytest
import torch

from pytest_roofline import Work

# Powers of two from 4 KiB, below the embedding table of Llama 3 8B, which that sweep never reaches.
SIZES = [2**power for power in range(12, 31)]
OUT = Path(os.environ["SWEEP_RESULTS"])

sizes = pytest.mark.parametrize("size_bytes", SIZES)


@pytest.fixture(autouse=True)
def wall(request, pair):
    """Notes how long the whole test took."""
    began_s = time.perf_counter()
    request.node.seconds = None
    yield
    row = {
        "rule": request.function.__name__.removeprefix("test_"),
        "size_bytes": request.node.callspec.params["size_bytes"],
        "seconds": request.node.seconds,
        "wall_s": time.perf_counter() - began_s,
    }
    with OUT.open("a", encoding="utf-8") as out:
        out.write(json.dumps(row) + "\n")


@pytest.fixture(scope="module")
def largest():
    """Two buffers of the largest size, every page touched; making them is no part of any rule's time."""
    return torch.ones(SIZES[-1] // 4), torch.zeros(SIZES[-1] // 4).fill_(2)


@pytest.fixture
def pair(largest, size_bytes):
    """The first so many bytes of them."""
    return tuple(buffer[: size_bytes // 4] for buffer in largest)


@sizes
def test_loop(request, pair):
    """Its rule: copies for one second by the host's clock, one mean."""
    source, target = pair
    start_s = time.time()
    iterations = 0
    while time.time() - start_s < 1:
        target.copy_(source)
        iterations += 1
    request.node.seconds = (time.time() - start_s) / iterations


@sizes
def test_benchmark(request, benchmark, pair):
    """pytest-benchmark with its defaults: calibrated rounds for one second, at least five."""
    source, target = pair
    benchmark(target.copy_, source)
    request.node.seconds = median(benchmark.stats.stats.data)


@sizes
def test_roofline(request, roofline, pair, size_bytes):
    """This engine, with the budget of the command line."""
    source, target = pair
    work = Work(read_bytes=size_bytes, write_bytes=size_bytes, payload_bytes=size_bytes)
    request.node.seconds = roofline.measure(lambda: target.copy_(source), work=work).median_s
