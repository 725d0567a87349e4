"""One file with every outcome, run unchanged under every launcher; `test_launchers` copies it as `test_suite.py`."""

import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

from pytest_roofline import Work

NUMEL = 64
HANG_S = 1.5


def total(rank, tag):
    """A sum that only ranks of the same test can give, and who took part."""
    values = torch.full((NUMEL,), float(1000 * tag + rank))
    dist.all_reduce(values)
    return values.unique().tolist(), os.getpid()


def all_reduce(rank, numel):
    values = torch.ones(numel)
    return lambda: dist.all_reduce(values)


def skips(rank):
    rank.skip("no such device")


def killed(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(NUMEL))


def hangs(rank):
    if rank == 1:
        time.sleep(600)
    dist.all_reduce(torch.ones(NUMEL))


def check_total(distributed, tag, size):
    found = distributed.run(total, tag, world_size=size)
    expected = [float(size * 1000 * tag + sum(range(size)))]
    assert [values for values, _ in found] == [expected] * size
    assert len({pid for _, pid in found}) == size


def test_without_ranks():
    assert "torch" in torch.__name__


def test_passes(distributed):
    check_total(distributed, 1, 2)


@pytest.mark.roofline(ranks=2, budget=0.05)
def test_measures(roofline, distributed, record_property):
    measurement = roofline.measure_ranks(
        distributed, all_reduce, NUMEL, work=Work(algbw_bytes=4 * NUMEL)
    )
    assert measurement.ranks.size == 2
    assert len(measurement.ranks.seconds) == 2
    record_property("affinity", " ".join(facts.affinity for facts in distributed.facts))


def test_fails(distributed):
    check_total(distributed, 2, 2)
    assert distributed.kind == "none"


def test_skips(distributed):
    distributed.run(skips, world_size=2)


def test_loses_a_rank(distributed):
    distributed.run(killed, world_size=2)


def test_goes_on(distributed):
    check_total(distributed, 3, 2)


def test_hangs(distributed):
    distributed.run(hangs, world_size=2, timeout=HANG_S)


def test_needs_4_ranks(distributed):
    check_total(distributed, 4, 4)
