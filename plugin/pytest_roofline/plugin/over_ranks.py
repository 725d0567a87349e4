"""Measurements over ranks: the request goes out, the times come back, and a record is made of them."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any

from ..core.errors import BadInput, WrongData, short_repr
from ..core.facts import Environment, HardwareKey
from ..core.groups import group_by
from ..core.records import Ceiling, Measurement
from ..core.samples import OVERSUBSCRIBED, Block, Ranks, Samples
from ..core.units import printable_lines
from ..core.work import rate_suffix
from ..engine.log import LatestBlock
from ..engine.measure import MeasuredRequest
from ..engine.request import RankOptions, Request, one_of, positive
from ..hardware import collective_ceiling, datasheet_ceiling, product_of
from ..ranks.driving import Member, Tell
from ..ranks.facts import cores_of
from ..ranks.local import whole_processes
from ..ranks.lockstep import RankTimes, rank_seconds, samples_of
from ..ranks.pool import Pool
from ..ranks.tasks import JOB, FunctionRef, reference
from ..ranks.worlds import check_backend, default_backend
from .distributed import Distributed, checked_call
from .recording import CurrentTest, key_for, record, why_partial

# How many whole programs are timed: at least two, to see whether they agree, and more while the budget lasts.
FEWEST_JOBS, MOST_JOBS = 2, 5
# The resolution of a whole program's time: the operating system's time slices are longer than the clock's ticks.
JOB_TICK_S = 1e-3
# As roofline_kernels.work.COLLECTIVES names them.
COLLECTIVES = (
    *("all_reduce", "all_gather", "reduce_scatter", "all_to_all", "all_to_all_v"),
    *("broadcast", "reduce", "gather", "scatter", "send_recv"),
)


@dataclass(frozen=True, slots=True)
class RankResult:
    """The result of a request over ranks: the common measurement, and the ranks behind it."""

    measured: MeasuredRequest
    ranks: Ranks
    environment: Environment | None = None
    link: str = "unknown"


@dataclass(frozen=True, slots=True)
class RankCall:
    """A function to measure on ranks, with its request."""

    distributed: Distributed
    function: FunctionRef
    args: tuple[object, ...]
    request: Request

    @property
    def options(self) -> RankOptions:
        """The options of ranks in the request."""
        assert self.request.ranks is not None
        return self.request.ranks

    def send(self, plan: object, tell: Tell | None = None) -> list[Any]:
        """Send a plan; return the answer of every rank, by rank."""
        options = self.options
        return self.distributed.call(
            self.function,
            self.args,
            options.size,
            timeout=options.timeout_s,
            backend=options.backend,
            plan=plan,
            tell=tell,
        )


# Takes the partial result of a measurement that failed, and the error.
Keep = Callable[[RankResult, BaseException], None]


def check_call(distributed: object, fn: Callable[..., object], args: tuple[object, ...]) -> None:
    """Refuse a call that ranks cannot run.

    A `distributed` that is not the fixture is refused too.

    Raises:
        BadInput: it is something else, ranks cannot load the function, or its arguments are no plain data.
    """
    if not isinstance(distributed, Distributed):
        raise BadInput(
            f"the first argument is {short_repr(distributed)}; expected the fixture `distributed` of the test"
        )
    checked_call(fn, args)


def rank_options(distributed: Distributed, world_size: int | None, **options: Any) -> RankOptions:
    """Return the checked options of a measurement over ranks (BadInput).

    The test is skipped for lack of ranks.
    """
    check_backend(options.get("backend"))
    one_of("collective", options.get("collective"), (None, *COLLECTIVES))
    timeout_s = positive("timeout", options.pop("timeout", None))
    return RankOptions(distributed.size_of(world_size), timeout_s=timeout_s, **options)


def measure_over(
    test: CurrentTest,
    distributed: Distributed,
    fn: Callable[..., object],
    args: tuple[object, ...],
    request: Request,
) -> Measurement:
    """Measure on the ranks and record the measurement.

    A request by the host's clock is one of whole programs.

    Raises:
        BadInput: ranks cannot load what a hook put in the function's place.
        WrongData: the buffers of a rank do not hold what they should.
        RanksFailed: a rank raised, was lost, or did not answer in time.
    """
    # A replaced function is not slowed down by a drill as well.
    function, replacement = reference(fn), test.replacement(request.name, fn)
    if replacement is not None:
        function, request = (
            reference(replacement),
            replace(request, labels=(*request.labels, "replaced")),
        )
    else:
        request = replace(request, drill=test.session.options.drill)
    call = RankCall(distributed, function, args, request)

    def keep(result: RankResult, error: BaseException) -> None:
        """Record the result of the blocks before an error as invalid."""
        reason = f"the ranks failed during the measurement: {error}".partition("\n")[0]
        # An error while recording must not hide the error of the measurement.
        with contextlib.suppress(Exception):
            write(test, request, result, why_partial(error, reason))

    measure = measure_jobs if request.timing == "wall" else measure_on_ranks
    result = measure(call, keep)
    measurement = write(test, request, result)
    if result.measured.wrong:
        raise WrongData(f"{measurement.label}: {printable_lines(result.measured.wrong)}")
    return measurement


def write(
    test: CurrentTest, request: Request, result: RankResult, invalid: str = ""
) -> Measurement:
    """Record the result of a request.

    Its hardware is that of the ranks, and counts their devices.
    """
    hardware = test.session.under_test.hardware_of_ranks(
        result.environment, result.ranks.hosts, result.link
    )
    key = key_for(test, request, hardware)
    ceiling = _ceiling(request, result, hardware)
    return record(test, request, result.measured, key, ceiling, invalid=invalid, ranks=result.ranks)


def _ceiling(request: Request, result: RankResult, hardware: HardwareKey) -> Ceiling | None:
    """Return the roofline of the ranks' links, or of a rank's FLOPs.

    It is None where it is not known.
    """
    assert request.ranks is not None
    work, metric = request.work, request.shown_metric
    if result.environment is None:
        return None
    # All ranks have devices of one product, so that of rank 0 is enough.
    device = result.environment.device
    if rate_suffix(metric) != "TFLOPS":
        return collective_ceiling(
            product_of(device), hardware, work, metric, request.ranks.collective or ""
        )
    ceiling = datasheet_ceiling(device, work, metric)
    if ceiling is None:
        return None
    return replace(
        ceiling,
        origin=f"{ceiling.origin}; the roofline of one rank, from its device and its share of the work",
    )


def measure_on_ranks(call: RankCall, keep: Keep) -> RankResult:
    """Measure a request on the ranks, and return their common result.

    If a rank fails, `keep` gets the result of the blocks so far, with the error.
    """
    blocks_by_rank: dict[int, list[LatestBlock]] = {}

    def tell(rank: int, block: LatestBlock) -> None:
        blocks_by_rank.setdefault(rank, []).append(block)

    members: Sequence[Member] = ()
    with _new_ranks(call) if call.options.fresh else contextlib.nullcontext():
        try:
            members = call.distributed.members(call.options.size)
            times: list[RankTimes] = call.send(call.request, tell=tell)
        except BaseException as error:
            if partial := _partial(call, members, blocks_by_rank):
                keep(partial, error)
            raise
        return _result(call, members, times)


@contextlib.contextmanager
def _new_ranks(call: RankCall) -> Iterator[Pool]:
    """Start new ranks for a request alone.

    They are no more than it needs, and stop after the block. With idle ranks in the pool each would have fewer threads.
    The number of those depends on the other tests.
    """
    pool = call.distributed.pool(call.options.size)
    pool.stop()
    usual_size = pool.size
    pool.size = call.options.size
    try:
        yield pool
    finally:
        pool.stop()
        pool.size = usual_size


def _result(call: RankCall, members: Sequence[Member], times: Sequence[RankTimes]) -> RankResult:
    """Return the common result of all ranks.

    All ranks agree on the samples, so those of rank 0 are taken. The peak memory is the largest of any rank.
    """
    first, results = times[0], [rank_times.measured for rank_times in times]
    peaks = [result.peak_bytes for result in results if result.peak_bytes is not None]
    # A rank whose own data are right only says that other ranks have wrong data. Those say more.
    wrong = [
        f"rank {rank}: {result.wrong}"
        for rank, result in enumerate(results)
        if result.wrong and "are right" not in result.wrong
    ]
    measured = replace(
        _with_labels(first.measured, members),
        wrong="; ".join(wrong) or first.measured.wrong,
        doubt=next((result.doubt for result in results if result.doubt), ""),
        peak_bytes=max(peaks, default=None),
    )
    ranks = _ranks_of(call, members, [result.rank_seconds for result in results])
    ranks = replace(ranks, straggler=first.straggler, lag_s=first.lag_s)
    return RankResult(
        measured, ranks, members[0].environment, call.distributed.link(call.options.size)
    )


def _partial(
    call: RankCall, members: Sequence[Member], blocks_by_rank: dict[int, list[LatestBlock]]
) -> RankResult | None:
    """Return the result of the blocks before a failure.

    All ranks have finished these blocks. It is None without any.
    """
    # A rank without any block leaves nothing that all ranks have measured.
    if len(blocks_by_rank) < call.options.size:
        return None
    # Some ranks may have finished one block more than others before the failure.
    common_count = min(len(blocks) for blocks in blocks_by_rank.values())
    common_blocks = [blocks_by_rank[rank][:common_count] for rank in range(call.options.size)]
    # All ranks agree on the samples, so those of rank 0 are taken.
    samples = samples_of(common_blocks[0])
    if samples is None:
        return None
    # The link is left out: the ranks are gone, and cannot be asked for it.
    ranks = _ranks_of(call, members, [rank_seconds(blocks) for blocks in common_blocks])
    return RankResult(MeasuredRequest(samples), ranks, environment=members[0].environment)


def _ranks_of(
    call: RankCall, members: Sequence[Member], seconds_by_rank: Sequence[tuple[float, ...]]
) -> Ranks:
    """Return the record of the ranks.

    `members` are the ranks in their order, and `seconds_by_rank` each rank's seconds per sample.
    """
    options, distributed = call.options, call.distributed
    threads = {member.environment.host.threads for member in members if member.environment}
    return Ranks(
        size=options.size,
        launcher=distributed.launcher,
        backend=options.backend or default_backend(distributed.kind),
        hosts=tuple(member.host for member in members),
        seconds=tuple(seconds_by_rank),
        # Ranks with different numbers of threads have no common number.
        threads=threads.pop() if len(threads) == 1 else None,
        generation=distributed.pool(options.size).generation,
        fresh=options.fresh,
    )


def _with_labels(measured: MeasuredRequest, members: Sequence[Member]) -> MeasuredRequest:
    """Return the measurement with the label of oversubscription, if it holds.

    It does if the ranks of a host outnumber its cores.
    """
    facts = [member.facts for member in members if member.facts is not None]
    hosts = group_by(facts, key=attrgetter("host"))
    if not any(len(ranks) > cores_of(ranks) for ranks in hosts.values()):
        return measured
    labels = tuple(sorted({*measured.samples.labels, OVERSUBSCRIBED}))
    return replace(measured, samples=replace(measured.samples, labels=labels))


def measure_jobs(call: RankCall, keep: Keep) -> RankResult:
    """Time whole programs from start to end, each with new ranks."""
    seconds: list[float] = []
    members: list[Member] = []
    began_s = time.perf_counter()
    with _new_ranks(call) as pool, whole_processes(pool.placement):
        # This port is opened once in this process, so it is no part of a job's time.
        pool.store_port()
        try:
            while len(seconds) < FEWEST_JOBS or (
                len(seconds) < MOST_JOBS and time.perf_counter() - began_s < call.request.budget_s
            ):
                started_s = time.perf_counter()
                call.send(JOB)
                members = pool.present
                pool.stop()
                seconds.append(time.perf_counter() - started_s)
        except BaseException as error:
            if seconds:
                keep(_jobs(call, members, seconds), error)
            raise
    return _jobs(call, members, seconds)


def _jobs(call: RankCall, members: Sequence[Member], seconds: Sequence[float]) -> RankResult:
    """Return the result of the times of whole programs, in seconds.

    With fewer than five it is labelled `noisy`.
    """
    labels = set(call.request.labels)
    if len(seconds) < 5:
        labels.add("noisy")
    samples = Samples(
        seconds=tuple(seconds),
        iterations=1,
        tick_s=JOB_TICK_S,
        measuring_s=sum(seconds),
        labels=tuple(sorted(labels)),
        blocks=tuple(Block(1) for _ in seconds),
        mode="host",
    )
    measured = _with_labels(MeasuredRequest(samples), members)
    link = "memory" if call.distributed.kind == "cpu" else "unknown"
    return RankResult(measured, _ranks_of(call, members, []), members[0].environment, link)
