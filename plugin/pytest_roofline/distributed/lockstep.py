"""Measuring on a rank: the timing engine, the same on all of them, in lockstep.

Every rank runs the engine on its own device, and all that decides how many calls are made is agreed upon
(`measuring.peers`). Runs on a rank; the controller gets `RankTimes` from each, and `progress` after every block.
"""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any, Literal

from ..core.samples import Calibration, Samples
from ..core.work import Work
from ..measuring import host
from ..measuring.calls import ForAll, renewal
from ..measuring.drill import slowed
from ..measuring.peers import UNKNOWN
from ..measuring.timing import WITH_WALL, Engine, Plan
from . import straggler
from .context import Rank
from .timed import Timed, fill, host_number, verified, what_is_timed


@dataclass(frozen=True, slots=True)
class RankPlan:
    """How to measure, the same on every rank.

    Args:
        work: of one call.
        timing: `isolated` is one call a sample, on idle devices behind a barrier; `pipelined` as many calls between
            two stamps as the clock needs.
        cache: `warm` or `rotate`.
        budget_s: seconds of measuring.
        drill: slows every call down by this share; None is no drill.
        peak_bytes: whether to find the most memory that a call holds.
        first_calls: how many of the very first calls to time alone.
    """

    work: Work
    timing: Literal["isolated", "pipelined"]
    cache: Literal["warm", "rotate"]
    budget_s: float
    drill: float | None = None
    peak_bytes: bool = False
    first_calls: int = 0


@dataclass(frozen=True, slots=True)
class RankTimes:
    """What a rank measured.

    Args:
        samples: of every sample the longest over the ranks; from rank 0 only, since all hold the same.
        own: every sample as this rank took it, in seconds per call, in the same order.
        calibration: what stamps cost at most on any rank, with this rank's own spin.
        verified: whether the data of all ranks are right; None where none verifies.
        wrong: what is wrong with this rank's data, or that it is another's.
        disturbed: why times tell nothing: processors beside busy neighbours, work that no stamp is behind; or empty.
        straggler: the rank that the others wait for; None where none stands out, or nobody looked.
        lag_s: by rank, how much longer than the fastest it needs for its own part of a call, in seconds; empty where
            nobody looked: one rank alone, or wrong data.
        peak_bytes: the most memory that a call held on this rank; None where the device does not tell or nobody asked.
        argument_sets: made on this rank, as on every other.
    """

    samples: Samples | None
    own: tuple[float, ...]
    calibration: Calibration
    verified: bool | None
    wrong: str
    disturbed: str
    straggler: int | None
    lag_s: tuple[float, ...]
    peak_bytes: int | None
    argument_sets: int


def measure(
    rank: Rank,
    fn: Callable[..., object],
    args: tuple[object, ...],
    plan: RankPlan,
    tell: Callable[[dict[str, Any]], None],
) -> RankTimes:
    """Time what `fn(rank, *args)` gives; every rank of the world must come here with the same plan.

    Args:
        rank: this one.
        fn: called once. A `Timed` or a function that it returns is timed; if it returns anything else, `fn(rank,
            *args)` itself is, called again and again.
        args: for `fn`.
        plan: how.
        tell: called after every block with what `samples_of` and `own_of` understand.

    Raises:
        BadInput: the ranks do not all have the same kind of thing timed, or their devices differ in kind.
        DeviceError: the device stopped answering.
        Exception: whatever `fn` raises; what was held is released.
    """
    timed = what_is_timed(rank, fn, args)
    sets: list[tuple[object, ...]] = []
    engine: Engine | None = None
    try:
        labels = fill(rank, timed, plan.work, plan.cache, sets)
        engine = _engine(rank, timed, plan, sets, tell)
        engine.log.labels |= labels
        watch = CoreWatch(rank)
        engine.run()
        return _looked_at(rank, timed, plan, engine, watch.disturbed())
    finally:
        # The traceback of a failure holds on to this frame; what it measured must not stay allocated for that.
        sets.clear()
        if engine is not None:
            engine.close()
        del timed, engine
        # A device that cannot even do this has failed already, and that failure is the one to report.
        with contextlib.suppress(Exception):
            rank.meter.release()


def samples_of(progress: Sequence[dict[str, Any]]) -> Samples | None:
    """What had been measured when a rank told this; None where there is no sample yet."""
    told = _kept(progress)
    if not told:
        return None
    common = told[-1]["common"]
    return Samples(
        seconds=tuple(value for each in told for value in each["seconds"]),
        blocks=tuple(each["block"] for each in told),
        wall_s=median(each["wall_s"] for each in told) if WITH_WALL & set(common["labels"]) else None,
        **common,
    )


def own_of(progress: Sequence[dict[str, Any]]) -> tuple[float, ...]:
    """Every sample of the rank that told this, in seconds per call."""
    return tuple(value for each in _kept(progress) for value in each["own"])


def _kept(progress: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """What still counts: an index that comes again says that the blocks from there on were part of the warm-up."""
    told: list[dict[str, Any]] = []
    for each in progress:
        del told[each["index"] :]
        told.append(each)
    return told


def _engine(
    rank: Rank, timed: Timed, plan: RankPlan, sets: list[tuple[object, ...]], tell: Callable[[dict[str, Any]], None]
) -> Engine:
    rows = rank.gather((timed.verify is not None, timed.on_host, isinstance(timed.verify, ForAll)))
    verifies, on_host = any(row[0] for row in rows), any(row[1] for row in rows)
    # Where one rank makes its sets anew all of them do, since making them may take a collective.
    verify, make = timed.verify if all(row[2] for row in rows) else None, timed.make_args

    def after_block() -> None:
        tell(_progress(engine))

    engine = Engine(
        rank.meter,
        Plan(
            fn=timed.call if plan.drill is None else slowed(timed.call, rank.meter, plan.drill, on_host=on_host),
            sets=sets,
            budget_s=plan.budget_s,
            timing="wall" if on_host else "device",
            renew=renewal(sets, make, verify) if verifies and make is not None else None,
            peers=rank,
            isolated=plan.timing == "isolated",
            after_block=after_block,
            first_calls=plan.first_calls,
        ),
    )
    engine.log.labels |= set() if plan.drill is None else {"replaced"}
    return engine


def _progress(engine: Engine) -> dict[str, Any]:
    """The block that was just taken, and what holds for all so far."""
    kept = engine.log.kept[-1]
    return {
        "index": len(engine.log.kept) - 1,
        "seconds": kept.seconds,
        "own": kept.own,
        "block": kept.block,
        "wall_s": kept.wall_s,
        "common": engine.common(),
    }


def _looked_at(rank: Rank, timed: Timed, plan: RankPlan, engine: Engine, disturbed: str) -> RankTimes:
    """The times, with what is found out after timing."""
    samples, touched = engine.samples(), engine.sets_touched
    assert samples is not None
    assert engine.calibration is not None
    peak_bytes = engine.peak_bytes() if plan.peak_bytes else None
    engine.settle()
    right, wrong = verified(rank, timed, touched)
    late: int | None = None
    lag_s: tuple[float, ...] = ()
    if rank.size > 1 and not wrong:
        late, lag_s = straggler.find(rank, engine.plan.fn, touched, samples.median_s, plan.budget_s)
    return RankTimes(
        samples=samples if rank == 0 else None,
        own=tuple(engine.log.own),
        calibration=engine.calibration,
        verified=right,
        wrong=wrong,
        disturbed=engine.left_running or disturbed,
        straggler=late,
        lag_s=lag_s,
        peak_bytes=peak_bytes,
        argument_sets=len(engine.plan.sets),
    )


class CoreWatch:
    """Whether other processes are at work beside ranks on processors; every rank of the world makes and asks one."""

    def __init__(self, rank: Rank) -> None:
        self._rank = rank
        self._on_processors = rank.meter.facts().type == "cpu"
        self._watch = host.Neighbours()
        self._began_s, self._own_s = time.perf_counter(), time.process_time()

    def disturbed(self) -> str:
        """Why the times tell nothing of the machine, the same on every rank; empty where they do."""
        own = (time.process_time() - self._own_s) / max(time.perf_counter() - self._began_s, 1e-9)
        taken = self._watch.cores_taken() if self._on_processors else None
        rows = self._rank.gather((UNKNOWN if taken is None else taken, own, host_number(self._rank)))
        return host.too_busy(most_taken([(row[0], row[1], row[2]) for row in rows]))


def most_taken(rows: list[tuple[float, float, float]]) -> float | None:
    """Cores that processes outside of this world kept busy, on the host where it is most; None where no host tells.

    Args:
        rows: by rank: cores that all but this rank kept busy (negative is unknown), cores that it kept busy itself,
            and its host.
    """
    beside = [
        taken - sum(other_own for other, (_, other_own, at) in enumerate(rows) if other != rank and at == where)
        for rank, (taken, _, where) in enumerate(rows)
        if taken >= 0
    ]
    return max(0.0, *beside) if beside else None
