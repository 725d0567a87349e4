"""A rank of the tests of lockstep: `python lockstep_rank.py RANK SIZE PORT FILE` measures every scenario of this file.

One world does all of them, since starting one takes seconds. What each rank measured goes into FILE, by pickle. The
clock of its device moves where a scenario says so, and a little where it is read: times are those of any machine.
"""

import pickle
import sys
import time
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

from pytest_roofline.core.errors import BadInput
from pytest_roofline.core.work import Work
from pytest_roofline.engine.devices.cpu import CpuDevice
from pytest_roofline.engine.request import RankOptions, Request, Timed
from pytest_roofline.ranks.lockstep import RankTimes, measure
from pytest_roofline.ranks.worlds import Rank, Skipped

LATE_S, CALL_S = 0.02, 1e-3
NUMEL = 256
BUDGET_S = 0.15
MIB = 2**20


WAIT = dist.Work.wait


class Meter(CpuDevice):
    """A processor with such a clock; what it takes to meet costs no time of it."""

    now_ns = 0

    def stamp(self):
        self.now_ns += 100
        return self.now_ns

    def host_s(self):
        # No sample is longer than its block was by the host's clock.
        return time.perf_counter() + self.now_ns * 1e-9

    def take(self, seconds):
        self.now_ns += round(seconds * 1e9)


@dataclass
class Outcome:
    """What a rank measured, told, and how often its function was called."""

    times: RankTimes | None
    progress: list[dict] = field(default_factory=list)
    calls: int = 0
    error: str = ""


class Count:
    """Counts the calls of a rank function's function."""

    def __init__(self, call):
        self.call, self.made = call, 0

    def __call__(self, *arguments):
        self.made += 1
        return self.call(*arguments)


LAST: list[Count] = []


def counted(call):
    LAST[:] = [Count(call)]
    return LAST[0]


def late(rank, guilty, where):
    """A sum that a rank comes late to, is late to leave behind, or to which it is late from a broadcast."""
    x = torch.ones(NUMEL)

    def call():
        rank.meter.take(CALL_S)
        if where == "between":
            dist.broadcast(x, 0)
        if where == "after":
            dist.all_reduce(x)
        if rank == guilty:
            rank.meter.take(LATE_S)
        if where != "after":
            dist.all_reduce(x)

    return counted(call)


def one_way(rank):
    """A broadcast, which its root leaves long before the other."""
    x = torch.ones(NUMEL)

    def wait(work, *arguments, **named):
        rank.meter.take(LATE_S * rank)
        return WAIT(work, *arguments, **named)

    dist.Work.wait = wait
    return counted(lambda: dist.broadcast(x, 0))


def itself(rank):
    """A rank function that is timed itself: it returns nothing to call."""
    rank.meter.take(CALL_S)
    dist.all_reduce(torch.ones(NUMEL))


def quiet(rank):
    """No collective at all; rank 1 takes twice as long."""
    return counted(lambda: rank.meter.take(0.004 * (1 + rank)))


def summing(rank, wrong=-1, once=False, as_timed=True):
    """A sum out of place with values of every rank; `wrong` spoils its own, and with `once` works once only."""
    done = []

    def call(into, source):
        rank.meter.take(CALL_S)
        if once and any(into is each for each in done):
            dist.barrier()
            return
        done.append(into)
        into.copy_(source)
        dist.all_reduce(into)
        if rank == wrong:
            into[-1] = -1.0

    def verify(into, source):
        others = sum(source - rank + other for other in range(rank.size))
        assert torch.equal(into, others), (
            f"last is {into[-1].item():g}, expected {others[-1].item():g}"
        )

    def refill(into, source):
        into.zero_()
        source.add_(1.0)

    return Timed(
        counted(call),
        lambda: (torch.zeros(NUMEL), torch.full((NUMEL,), float(rank))),
        verify,
        refill,
        as_timed=as_timed,
    )


def short(rank):
    """So short that many calls make a sample, without a collective."""
    return counted(lambda: rank.meter.take(1e-6))


class Bulk:
    """A `verify` that can look at all sets at once."""

    def __call__(self, x):
        return bool((x == x[0]).all())

    def spoil(self, sets):
        for (x,) in sets:
            x[0] = -1.0

    def first_wrong(self, sets):
        return next((index for index, arguments in enumerate(sets) if not self(*arguments)), None)


def in_bulk_on(rank, bulk):
    """All sets are verified at once on some ranks, and those of the others are made by a collective."""

    def make_args():
        x = torch.ones(8)
        if len(bulk) == 1:
            dist.all_reduce(x)
        return x

    def call(x):
        rank.meter.take(CALL_S)
        x.fill_(1.0)

    bulky = Bulk()
    verify = bulky if int(rank) in bulk else bulky.__call__
    return Timed(counted(call), make_args, verify)


def crowded(rank):
    """Of two ranks one has no free memory."""
    rank.meter.free_bytes = lambda: 0 if rank == 1 else 2**40
    return summing(rank)


def differing(rank):
    """A function on one rank, something to call again on the other."""
    return (lambda: None) if rank == 0 else None


def raising(rank):
    raise ValueError(f"from rank {int(rank)}")


def plan(timing="pipelined", cache="warm", work=None, **more):
    work = work or Work(algbw_bytes=4 * NUMEL)
    return Request(work, BUDGET_S, timing=timing, cache=cache, ranks=RankOptions(2), **more)


SCENARIOS = {
    **{
        f"{where} {guilty} {timing}": (late, (guilty, where), plan(timing))
        for where, timing in (
            ("before", "isolated"),
            ("after", "pipelined"),
            ("between", "pipelined"),
        )
        for guilty in (-1, 0, 1)
    },
    "one_way": (one_way, (), plan()),
    "itself": (itself, (), plan()),
    "quiet": (quiet, (), plan()),
    "right": (summing, (), plan()),
    "isolated": (summing, (), plan("isolated", peak_bytes=True)),
    "short isolated": (short, (), plan("isolated")),
    "short pipelined": (short, (), plan()),
    "rotate": (summing, (), plan(cache="rotate", work=Work(algbw_bytes=MIB))),
    "in bulk on 0": (in_bulk_on, ((0,),), plan()),
    "crowded": (crowded, (), plan(cache="rotate", work=Work(algbw_bytes=MIB))),
    "as timed": (summing, (-1, False, False), plan()),
    "wrong on 1": (summing, (1,), plan()),
    "stale": (summing, (-1, True), plan()),
    "drill": (late, (-1, "before"), plan(drill=0.5)),
    "differing": (differing, (), plan()),
}


def run(rank):
    """What came of every scenario."""
    outcomes = {}
    for name, (function, arguments, how) in SCENARIOS.items():
        outcome = Outcome(None)
        try:
            outcome.times = measure(rank, function, arguments, how, outcome.progress.append)
        except (BadInput, Skipped) as error:
            outcome.error = str(error)
        vars(rank.meter).pop("free_bytes", None)
        dist.Work.wait = WAIT
        outcome.calls = LAST[0].made
        outcomes[name] = outcome
    # The last, since nobody may come together again after it.
    try:
        measure(rank, raising, (), plan(), lambda _: None)
    except ValueError as error:
        outcomes["raising"] = Outcome(None, error=str(error))
    return outcomes


def main(number, size, port, file):
    torch.set_num_threads(1)
    store = dist.TCPStore("127.0.0.1", port, None, False, timeout=timedelta(seconds=60))
    timeout = timedelta(seconds=60)
    dist.init_process_group("gloo", store=store, rank=number, world_size=size, timeout=timeout)
    side = dist.new_group(backend="gloo", timeout=timeout)
    rank = Rank.make(
        number, size=size, local_rank=number, host="here", backend="gloo", meter=Meter(), side=side
    )
    Path(file).write_bytes(pickle.dumps(run(rank)))
    dist.barrier(group=side)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
