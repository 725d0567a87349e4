"""Timing whole programs over ranks: from the start of their processes to their end."""

import itertools
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from .core.samples import Block, Samples
from .rank_measuring import labels_of, ranks_of
from .rank_requests import Keep, RankRequest, Taken
from .ranks import Distributed

if TYPE_CHECKING:
    from .distributed.driving import Member

# Whole programs, unless the budget is spent before: two tell whether they agree.
FEWEST_JOBS, MOST_JOBS = 2, 5
# What a job's own clock can tell apart: the operating system's slices, not the counter's ticks.
JOB_TICK_S = 1e-3


def take_jobs(distributed: Distributed, request: RankRequest, keep: Keep) -> Taken:
    """Time whole programs: from starting the processes to their orderly end, each with ranks of its own.

    Args:
        distributed: of the test.
        request: the rank function is called once a job.
        keep: gets what had been measured where something goes wrong on the way.

    Raises:
        Exception: whatever went wrong.
    """
    __tracebackhide__ = True
    from .distributed.local import whole_processes
    from .distributed.messages import JobPlan

    pool = distributed.pool(request.size)
    pool.stop()
    # What only this process needs, once, is no part of a job.
    pool.prepare()
    before, pool.size = pool.size, request.size
    seconds: list[float] = []
    members: list[Member] = []
    began_s = time.perf_counter()
    try:
        with whole_processes(pool.placement):
            for count in itertools.count():
                spent_s = time.perf_counter() - began_s
                if count >= MOST_JOBS or (count >= FEWEST_JOBS and spent_s >= request.budget_s):
                    break
                started_s = time.perf_counter()
                distributed.call(
                    request.function,
                    request.args,
                    request.size,
                    timeout=request.timeout_s,
                    backend=request.backend,
                    plan=JobPlan(),
                )
                members = pool.present
                pool.stop()
                seconds.append(time.perf_counter() - started_s)
    except BaseException as error:
        if seconds:
            keep(_jobs(distributed, request, members, seconds), error)
        raise
    finally:
        pool.stop()
        pool.size = before
    return _jobs(distributed, request, members, seconds)


def _jobs(
    distributed: Distributed, request: RankRequest, members: "Sequence[Member]", seconds: Sequence[float]
) -> Taken:
    labels = {*labels_of(members, request), *({"noisy"} if len(seconds) < 5 else set())}
    samples = Samples(
        seconds=tuple(seconds),
        iterations=1,
        tick_s=JOB_TICK_S,
        measuring_s=sum(seconds),
        labels=tuple(sorted(labels)),
        blocks=tuple(Block(1) for _ in seconds),
        mode="host",
    )
    link = "memory" if distributed.kind == "cpu" else "unknown"
    return Taken(samples, ranks_of(distributed, request, members, []), environment=members[0].environment, link=link)
