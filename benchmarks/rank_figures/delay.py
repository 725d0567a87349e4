"""Figure 7: what a delay of 20 ms on one of two ranks does to the time."""

from pathlib import Path
from statistics import median

from .page import Figure, Goal, table
from .runs import PYTEST, prepared, run

DELAY_S, WITHIN_S = 0.02, 0.003
TIMINGS = ("isolated", "pipelined")
REPEATS = 3
SUITE = f"""
import time

import pytest
import torch
import torch.distributed as dist
from pytest_roofline import Work


def late(rank, who):
    values = torch.ones(1024)

    def call():
        if rank == who:
            time.sleep({DELAY_S})
        dist.all_reduce(values)

    return call


@pytest.mark.roofline(ranks=2, budget=1)
@pytest.mark.parametrize("repeat", range({REPEATS}))
@pytest.mark.parametrize("who", [-1, 0, 1])
@pytest.mark.parametrize("timing", {TIMINGS!r})
def test_late(roofline, distributed, timing, who, repeat):
    roofline.measure_ranks(distributed, late, who, work=Work(algbw_bytes=4096), timing=timing)
"""


def measure(folder: Path) -> Figure:
    """Run the suite, and compare medians."""
    from pytest_roofline.baselines.runs import read_run

    place = prepared(folder / "delay", SUITE)
    done = run(place, [*PYTEST, "--roofline-save=delay"])
    if done.returncode:
        raise RuntimeError(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    found = read_run(place / ".roofline" / "runs" / "delay.jsonl").measurements
    seconds: dict[tuple[str, int], list[float]] = {}
    for one in found:
        seconds.setdefault((one.key.timing, int(one.key.parameters["who"])), []).append(
            one.median_s
        )
    return figure(seconds, sum(bool(one.invalid) for one in found))


def figure(seconds: dict[tuple[str, int], list[float]], disturbed: int) -> Figure:
    """The figure of the medians.

    Args:
        seconds: medians of the repeats, by timing and late rank; −1 is none.
        disturbed: measurements that busy neighbours made INVALID, which count here all the same.
    """
    base = {timing: median(seconds[timing, -1]) for timing in TIMINGS}
    more = {
        (timing, who): median(seconds[timing, who]) - base[timing]
        for timing in TIMINGS
        for who in (0, 1)
    }
    goals = tuple(
        Goal(
            f"20 ms on rank {who} show as, {timing}",
            f"{DELAY_S * 1e3:g} ± {WITHIN_S * 1e3:g} ms",
            f"{value * 1e3:+.2f} ms",
            abs(value - DELAY_S) <= WITHIN_S,
        )
        for (timing, who), value in more.items()
    )
    rows = [
        (
            timing,
            "none" if who < 0 else f"rank {who}",
            *(f"{value * 1e3:.2f} ms" for value in sorted(values)),
        )
        for (timing, who), values in sorted(seconds.items())
    ]
    text = f"""Two ranks, a sum of 4 KiB, `time.sleep({DELAY_S:g})` in front of it on one of them; medians of
{REPEATS} measurements of a second each, in rising order. The increase is that of their median. {disturbed} of
{sum(map(len, seconds.values()))} were INVALID for busy neighbours, and count here all the same.

{table(("timing", "late", *(f"{number}." for number in range(1, REPEATS + 1))), rows)}"""
    return Figure("A late rank", goals, text)
