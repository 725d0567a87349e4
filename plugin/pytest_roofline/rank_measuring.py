"""Measuring over ranks for one test: the plan goes out, the times come back, and one measurement is made of them."""

import itertools
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from .core.facts import HardwareKey
from .core.keys import Key, Timing
from .core.ranks import Ranks
from .core.records import Measurement
from .core.samples import OVERSUBSCRIBED, Block, Calibration, Samples
from .core.work import Work
from .planned import encodable
from .ranks import Distributed

if TYPE_CHECKING:
    from .distributed.functions import FunctionRef
    from .distributed.lockstep import RankPlan, RankTimes
    from .distributed.members import Member

JOB_METRIC = "job_wall_s"
# Whole programs, unless the budget is spent before: two tell whether they agree.
FEWEST_JOBS, MOST_JOBS = 2, 5
# What a job's own clock can tell apart: the operating system's slices, not the counter's ticks.
JOB_TICK_S = 1e-3


@dataclass(frozen=True, slots=True)
class RankRequest:
    """The checked arguments of one `measure_ranks` or `measure_job`."""

    function: "FunctionRef"
    args: tuple[object, ...]
    size: int
    work: Work
    name: str
    timing: Timing
    cache: Literal["warm", "rotate"]
    budget_s: float
    tolerance: float | None
    metric: str
    backend: str | None
    timeout_s: float | None
    peak_bytes: bool = False
    drill: float | None = None
    replaced: bool = False
    collective: str | None = None


@dataclass(frozen=True, slots=True)
class Taken:
    """What came of a request: samples, the ranks behind them, and what was found wrong."""

    samples: Samples
    ranks: Ranks
    calibration: Calibration | None = None
    verified: bool | None = None
    wrong: str = ""
    disturbed: str = ""
    peak_bytes: int | None = None


# Takes what had been measured when something went wrong, and what that was.
Keep = Callable[[Taken, BaseException], None]


def take(distributed: Distributed, request: RankRequest, keep: Keep) -> Taken:
    """Have the ranks measure.

    Args:
        distributed: of the test.
        request: what to measure.
        keep: gets what had been measured where something goes wrong on the way.

    Raises:
        Exception: whatever went wrong.
    """
    __tracebackhide__ = True
    told: dict[int, list[dict[str, Any]]] = {}

    def tell(rank: int, progress: dict[str, Any]) -> None:
        told.setdefault(rank, []).append(progress)

    pool = distributed.pool(request.size)
    members: list[Member] = []
    try:
        members = pool.members[: request.size]
        times: list[RankTimes] = distributed.call(
            request.function,
            request.args,
            request.size,
            timeout=request.timeout_s,
            backend=request.backend,
            plan=_plan(request),
            tell=tell,
        )
    except BaseException as error:
        partial = _partial(distributed, request, members, told)
        if partial is not None:
            keep(partial, error)
        raise
    return _taken(distributed, request, members, times)


def _plan(request: RankRequest) -> "RankPlan":
    from .distributed.lockstep import RankPlan

    assert request.timing in ("isolated", "pipelined")
    return RankPlan(
        work=request.work,
        timing=request.timing,
        cache=request.cache,
        budget_s=request.budget_s,
        drill=request.drill,
        peak_bytes=request.peak_bytes,
    )


def _taken(
    distributed: Distributed, request: RankRequest, members: "Sequence[Member]", times: "Sequence[RankTimes]"
) -> Taken:
    first = times[0]
    assert first.samples is not None
    labels = _labels(members, request)
    peaks = [one.peak_bytes for one in times if one.peak_bytes is not None]
    found = [(rank, one.wrong) for rank, one in enumerate(times) if one.wrong]
    wrong = [f"rank {rank}: {text}" for rank, text in found if "are right" not in text]
    ranks = replace(
        _ranks(distributed, request, members, [one.own for one in times]),
        straggler=first.straggler,
        lag_s=first.lag_s,
        **_told(distributed, request),
    )
    return Taken(
        samples=replace(first.samples, labels=tuple(sorted({*first.samples.labels, *labels}))),
        ranks=ranks,
        calibration=first.calibration,
        verified=first.verified,
        wrong="; ".join(wrong) or first.wrong,
        disturbed=next((one.disturbed for one in times if one.disturbed), ""),
        peak_bytes=max(peaks, default=None),
    )


def _told(distributed: Distributed, request: RankRequest) -> dict[str, Any]:
    """Algorithm and protocol of a collective, where the library tells of them."""
    from .distributed.algorithms import told
    from .distributed.worlds import default_backend

    if request.collective is None:
        return {}
    found = told(
        os.environ,
        distributed.pool(request.size).placement.printed(),
        request.collective,
        request.work.algbw_bytes,
        request.size,
        request.backend or default_backend(distributed.kind),
    )
    return {} if found is None else {"algorithm": found.name or "", "protocol": found.protocol or ""}


def _partial(
    distributed: Distributed,
    request: RankRequest,
    members: "Sequence[Member]",
    told: dict[int, list[dict[str, Any]]],
) -> Taken | None:
    """What the ranks had told before one of them failed; None where that is nothing."""
    from .distributed.lockstep import own_of, samples_of

    if len(told) < request.size:
        return None
    # Some may have come one block further than others before it ended.
    common = min(len(progress) for progress in told.values())
    rows = [told[rank][:common] for rank in range(request.size)]
    samples = samples_of(rows[0])
    if samples is None:
        return None
    return Taken(samples, _ranks(distributed, request, members, [own_of(row) for row in rows]))


def _ranks(
    distributed: Distributed,
    request: RankRequest,
    members: "Sequence[Member]",
    own: Sequence[tuple[float, ...]],
) -> Ranks:
    from .distributed.worlds import default_backend

    pool = distributed.pool(request.size)
    environments = [member.environment for member in members if member.environment is not None]
    threads = {environment.host.threads for environment in environments}
    return Ranks(
        size=request.size,
        launcher=distributed.launcher,
        backend=request.backend or default_backend(distributed.kind),
        hosts=tuple(member.host for member in members),
        seconds=tuple(own),
        threads=threads.pop() if len(threads) == 1 else None,
        generation=pool.generation,
    )


def _labels(members: "Sequence[Member]", request: RankRequest) -> set[str]:
    labels = {"replaced"} if request.replaced else set()
    hosts: dict[str, list[Member]] = {}
    for member in members:
        hosts.setdefault(member.host, []).append(member)
    for there in hosts.values():
        cores = max((member.facts.cores for member in there if member.facts is not None), default=len(there))
        if len(there) > cores:
            labels.add(OVERSUBSCRIBED)
    return labels


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
    from .distributed.jobs import JobPlan

    pool = distributed.pool(request.size)
    pool.stop()
    before, pool.size = pool.size, _job_size(distributed, request, pool.size)
    seconds: list[float] = []
    members: list[Member] = []
    began_s = time.perf_counter()
    try:
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
            members = pool.members[: request.size]
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


def _job_size(distributed: Distributed, request: RankRequest, most: int) -> int:
    """A launch that pytest is a part of has the size that it has; any other starts what the job needs."""
    return most if distributed.launcher == "attach" else request.size


def _jobs(
    distributed: Distributed, request: RankRequest, members: "Sequence[Member]", seconds: Sequence[float]
) -> Taken:
    labels = {*_labels(members, request), *({"noisy"} if len(seconds) < 5 else set())}
    samples = Samples(
        seconds=tuple(seconds),
        iterations=1,
        tick_s=JOB_TICK_S,
        measuring_s=sum(seconds),
        labels=tuple(sorted(labels)),
        blocks=tuple(Block(1) for _ in seconds),
        mode="host",
    )
    return Taken(samples, _ranks(distributed, request, members, []))


def key_of_ranks(
    request: RankRequest, hardware: HardwareKey, benchmark: str, parameters: dict[str, Any], link: str
) -> Key:
    """The key of a measurement over ranks: the hardware counts their devices, and names the link between them."""
    return Key(
        benchmark=benchmark,
        parameters=parameters,
        metric=request.metric,
        hardware=replace(hardware, devices=request.size, link=link),
        cache=request.cache,
        timing=request.timing,
        name=request.name,
    )


def invalid_of(taken: Taken) -> str:
    """Why the numbers of ranks must not be trusted; empty where they can."""
    return encodable(taken.wrong or taken.disturbed or taken.samples.trouble)


def measurement_of(
    taken: Taken,
    request: RankRequest,
    key: Key,
    *,
    test_id: str,
    label: str,
    process: str,
    gate: bool,
    invalid: str,
) -> Measurement:
    """The record of what was taken."""
    return Measurement(
        key=key,
        test_id=test_id,
        label=label,
        process=process,
        work=request.work,
        samples=taken.samples,
        gate=gate and OVERSUBSCRIBED not in taken.samples.labels,
        tolerance=request.tolerance,
        verified=taken.verified,
        invalid=invalid,
        peak_bytes=taken.peak_bytes,
        ranks=taken.ranks,
    )
