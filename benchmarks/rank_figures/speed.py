"""Figure 1: sixteen tests of two and four ranks through pytest, against a launch for each of them."""

import time
from pathlib import Path
from statistics import median

from .page import Figure, Goal, table
from .runs import PYTEST, prepared, run, test_seconds

TESTS = 16
MOST_S, MOST_PER_TEST_S = 12.0, 0.1
SUITE = f"""
import pytest
import torch
import torch.distributed as dist


def all_reduce(rank, numel):
    values = torch.full((numel,), float(rank))
    for _ in range(5):
        dist.all_reduce(values)
    return values[0].item()


@pytest.mark.parametrize("number", range({TESTS // 2}))
@pytest.mark.parametrize("world_size", [2, 4])
def test_all_reduce(distributed, world_size, number):
    found = distributed.run(all_reduce, 1024)
    assert found == [float(sum(range(world_size)) * world_size**4)] * world_size
"""
PEER = f"""
import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing


def all_reduce(rank, size, numel, store):
    dist.init_process_group("gloo", init_method=f"file://{{store}}", rank=rank, world_size=size)
    values = torch.full((numel,), float(rank))
    for _ in range(5):
        dist.all_reduce(values)
    assert values[0].item() == float(sum(range(size)) * size**4)
    dist.destroy_process_group()


@pytest.mark.parametrize("number", range({TESTS // 2}))
@pytest.mark.parametrize("world_size", [2, 4])
def test_all_reduce(tmp_path, world_size, number):
    torch.multiprocessing.spawn(all_reduce, (world_size, 1024, tmp_path / "store"), nprocs=world_size)
"""


def measure(folder: Path) -> Figure:
    """Run both suites."""
    own_s, own = _timed(prepared(folder / "own", SUITE))
    peer_s, peer = _timed(prepared(folder / "peer", PEER))
    # The first test waits for all ranks to come.
    boot, *rest = own
    goals = (
        Goal(
            f"{TESTS} tests, start of pytest to its end",
            f"≤ {MOST_S:g} s",
            f"{own_s:.1f} s",
            own_s <= MOST_S,
        ),
        Goal(
            "a test after boot, median (longest)",
            f"≤ {MOST_PER_TEST_S:g} s",
            f"{median(rest):.3f} s ({max(rest):.3f} s)",
            median(rest) <= MOST_PER_TEST_S,
        ),
    )
    rows = [
        (
            "kept ranks",
            f"{own_s:.1f} s",
            f"{boot:.2f} s",
            f"{median(rest):.3f} s",
            f"{max(rest):.3f} s",
        ),
        ("a spawn each", f"{peer_s:.1f} s", "–", f"{median(peer):.3f} s", f"{max(peer):.3f} s"),
    ]
    head = ("", "whole run", "first test, with the boot", "a test, median", "a test, longest")
    text = f"""Eight tests of two ranks and eight of four, five sums of 4 KiB each, one run of each suite. That is
{peer_s / own_s:.1f} times as fast as a spawn each; {len(rest)} tests after the first share the ranks that it waited
for.

{table(head, rows)}"""
    return Figure("Speed", goals, text)


def _timed(folder: Path) -> tuple[float, list[float]]:
    began_s = time.perf_counter()
    done = run(folder, PYTEST)
    took_s = time.perf_counter() - began_s
    if done.returncode:
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return took_s, list(test_seconds(folder).values())
