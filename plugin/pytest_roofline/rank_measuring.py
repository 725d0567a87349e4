"""Measuring over ranks for one test: the plan goes out, the times come back, and one measurement is made of them."""

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from .core.ranks import Ranks
from .core.samples import OVERSUBSCRIBED
from .rank_requests import Keep, RankRequest, Taken
from .ranks import Distributed

if TYPE_CHECKING:
    from .distributed.driving import Member
    from .distributed.facts import RankFacts
    from .distributed.lockstep import RankPlan, RankTimes


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

    members: Sequence[Member] = ()
    with _ranks(distributed, request):
        try:
            members = distributed.members(request.size)
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


@contextlib.contextmanager
def _ranks(distributed: Distributed, request: RankRequest) -> Iterator[None]:
    """The ranks that the run keeps; or new ones, and no more than the request needs.

    Beside idle ones each would have fewer threads, and how many depends on which other tests were selected.
    """
    if not request.fresh:
        yield
        return
    pool = distributed.pool(request.size)
    pool.stop()
    before, pool.size = pool.size, request.size
    try:
        yield
    finally:
        pool.stop()
        pool.size = before


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
        first_calls=request.first_calls,
    )


def _taken(
    distributed: Distributed, request: RankRequest, members: "Sequence[Member]", times: "Sequence[RankTimes]"
) -> Taken:
    first = times[0]
    assert first.samples is not None
    labels = labels_of(members, request)
    peaks = [one.peak_bytes for one in times if one.peak_bytes is not None]
    found = [(rank, one.wrong) for rank, one in enumerate(times) if one.wrong]
    wrong = [f"rank {rank}: {text}" for rank, text in found if "are right" not in text]
    ranks = replace(
        ranks_of(distributed, request, members, [one.own for one in times]),
        straggler=first.straggler,
        lag_s=first.lag_s,
    )
    return Taken(
        samples=replace(first.samples, labels=tuple(sorted({*first.samples.labels, *labels}))),
        ranks=ranks,
        calibration=first.calibration,
        verified=first.verified,
        wrong="; ".join(wrong) or first.wrong,
        disturbed=next((one.disturbed for one in times if one.disturbed), ""),
        environment=members[0].environment,
        link=distributed.link(request.size),
        peak_bytes=max(peaks, default=None),
    )


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
    ranks = ranks_of(distributed, request, members, [own_of(row) for row in rows])
    # The ranks are gone, so nothing more can be asked of them.
    return Taken(samples, ranks, environment=members[0].environment)


def ranks_of(
    distributed: Distributed,
    request: RankRequest,
    members: "Sequence[Member]",
    own: Sequence[tuple[float, ...]],
) -> Ranks:
    """The record of the ranks that took part; `own` has each one's seconds per sample."""
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
        fresh=request.fresh,
    )


def labels_of(members: "Sequence[Member]", request: RankRequest) -> set[str]:
    """What must be said of numbers of these ranks."""
    from .distributed.facts import cores_of

    labels = {"replaced"} if request.replaced else set()
    hosts: dict[str, list[RankFacts]] = {}
    for facts in (member.facts for member in members if member.facts is not None):
        hosts.setdefault(facts.host, []).append(facts)
    if any(len(there) > cores_of(there) for there in hosts.values()):
        labels.add(OVERSUBSCRIBED)
    return labels
