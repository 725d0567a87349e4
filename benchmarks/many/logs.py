"""Logs of nccl-tests as the tool prints them, of made-up nodes with eight GPUs."""

import math
import random
from pathlib import Path

SIZES = [2**power for power in range(3, 34)]
HEAD = """# nThread 1 nGpus 8 minBytes 8 maxBytes 8589934592 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1 \
validation: 1 graph: 0
# Collective test starting: all_reduce_perf
#
# Using devices
{ranks}
#
#                                                              out-of-place                       in-place
#       size         count      type   redop    root     time   algbw   busbw #wrong     time   algbw   busbw #wrong
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
"""
TAIL = """# Out of bounds values : 0 OK
# Avg bus bandwidth    : 100
"""


def write_logs(folder: Path, nodes: int) -> None:
    """Write a log of each node into `before` and `after`; the first half is 5 % slower after."""
    chance = random.Random(3)
    for side in ("before", "after"):
        (folder / side).mkdir()
    for number in range(nodes):
        name, own = f"gpu{number + 1:04}", math.exp(chance.gauss(0, 0.02))
        for side in ("before", "after"):
            factor = own * (1.05 if side == "after" and number < nodes // 2 else 1)
            (folder / side / f"{name}.log").write_text(log(name, factor, chance), encoding="utf-8")


def log(node: str, factor: float, chance: random.Random) -> str:
    """Return one log, with 1 % of noise on every time."""
    pid = chance.randrange(10**6)
    ranks = "\n".join(
        f"#  Rank {rank:2} Group  0 Pid {pid:6} on {node} device {rank:2} [0000:{16 + rank:x}:00] NVIDIA H100 80GB HBM3"
        for rank in range(8)
    )
    return HEAD.format(ranks=ranks) + "".join(_row(size, factor, chance) for size in SIZES) + TAIL


def _row(size: int, factor: float, chance: random.Random) -> str:
    typical_us = 20 + size / 2.74e5
    cells = ""
    for _ in range(2):
        time_us = typical_us * factor * math.exp(chance.gauss(0, 0.01))
        rate = size / time_us / 1e3
        cells += f" {time_us:8.2f} {rate:7.2f} {rate * 1.75:7.2f}      0"
    return f"{size:12} {size // 4:13}     float     sum      -1{cells}\n"
