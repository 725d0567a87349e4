"""One rank alone, over the back end that the device has: NCCL boots, a collective runs and is right."""

import torch
import torch.distributed as dist

from pytest_roofline import Timed, Work

NUMEL = 2**20


def all_reduce(rank):
    """Called on the rank; what it gives is timed."""
    x = torch.ones(NUMEL, device=rank.device)
    return Timed(lambda: dist.all_reduce(x), verify=lambda: bool((x == 1).all()))


def test_one_rank(roofline, distributed):
    roofline.measure_ranks(distributed, all_reduce, world_size=1, work=Work(algbw_bytes=4 * NUMEL))
