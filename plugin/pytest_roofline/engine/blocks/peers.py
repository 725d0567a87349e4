"""The agreement of one world's ranks while they measure together.

A collective needs every rank. A rank that made one call more than the others would pair it with their next one, or
hang. So whatever decides how many calls are made is a number that all ranks hold: times are the longest of all ranks,
a cause that excludes a block on one rank excludes it on all, and the clock that ends a budget is a common one.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol
from zlib import crc32

from ...core.errors import BadInput
from ...core.samples import Calibration
from ..devices import Traits, cpu
from .conditions import CAUSES, HOST_GAP, JUMPED, NEIGHBOUR, STOPPED

# In the order in which they are named where ranks differ: the first of these that any rank saw.
CODES = ("", STOPPED, JUMPED, HOST_GAP, *CAUSES, NEIGHBOUR)
NEIGHBOURS: tuple[Literal["none", "unknown", "seen"], ...] = ("none", "unknown", "seen")
# Of the traits, those that decide how blocks are taken. Ticks may differ: the coarsest is calibrated.
DECISIVE = ("shortest_span_s", "queues", "spins", "graphs", "stamps", "warmup_floor_s", "precision")
UNKNOWN = -1.0


class Peers(Protocol):
    """The ranks that measure together. Every one of them must make the same calls in the same
    order.
    """

    size: int
    host: str

    def __int__(self) -> int:
        """Return this rank's number."""

    def barrier(self) -> None:
        """Wait on the host for every rank."""

    def gather(self, values: tuple[float, ...]) -> list[tuple[float, ...]]:
        """Return the values of every rank, by rank. Each rank gives as many."""


class Alone:
    """A measurement in one process."""

    size = 1
    host = ""

    def __int__(self) -> int:
        """Return the only rank's number."""
        return 0

    def barrier(self) -> None:
        """Wait for nobody."""

    def gather(self, values: tuple[float, ...]) -> list[tuple[float, ...]]:
        """Return the only row."""
        return [values]


ALONE = Alone()


def host_number(peers: Peers) -> float:
    """Return this rank's host as a number, which ranks can exchange."""
    return float(crc32(peers.host.encode()))


class Agreement:
    """Agrees on numbers and, beside them, on the time. There is no collective of its own for
    reading a clock.
    """

    def __init__(self, peers: Peers, host_s: Callable[[], float]) -> None:
        self.alone = peers.size == 1
        self._peers = peers
        self._host_s = host_s
        self._epoch_s = host_s()
        self._agreed_s = 0.0

    def now_s(self) -> float:
        """Return the time in seconds, the same on every rank. Alone it is this host's own; else as
        of the last agreement.
        """
        return self._host_s() if self.alone else self._agreed_s

    def rows(self, *numbers: float) -> list[tuple[float, ...]]:
        """Return the numbers of every rank, by rank."""
        if self.alone:
            return [numbers]
        rows = self._peers.gather((self._host_s() - self._epoch_s, *numbers))
        self._agreed_s = max(row[0] for row in rows)
        return [row[1:] for row in rows]

    def most(self, *numbers: float) -> tuple[float, ...]:
        """Return the largest of every number over the ranks."""
        return numbers if self.alone else tuple(map(max, zip(*self.rows(*numbers), strict=True)))

    def meet_s(self) -> float:
        """Wait for every rank, and return the time then."""
        self.rows()
        return self.now_s()

    def on_every_rank(self, yes: bool) -> bool:
        """Return whether every rank says yes."""
        return all(row[0] for row in self.rows(float(yes)))

    def barrier(self) -> None:
        """Wait on the host for every rank."""
        if not self.alone:
            self._peers.barrier()


@dataclass(frozen=True, slots=True)
class BlockState:
    """The state of the devices in a block. A fact is None if none was seen and not all tell.

    Args:
        cause: why it does not count; empty where it does; `cause_text` names the ranks that it comes from.
        spoiled: why none of the last `judged` blocks counts, this one among them; `power_capped` is of all of them.
        neighbours: whether another process was seen on any device.
        throttle_known: whether every device tells of thermal slowdown and power brake.
        clock_moved: whether the clock of any moved within a block, and nobody tells why.
    """

    cause: str = ""
    power_capped: bool | None = None
    neighbours: Literal["none", "seen", "unknown"] = "unknown"
    throttle_known: bool = False
    cause_text: str = ""
    spoiled: str = ""
    judged: int = 0
    clock_moved: bool = False


def agreed_state(agreement: Agreement, state: BlockState) -> BlockState:
    """Return the state of all devices. What spoiled the block on one rank spoiled it for all, who
    waited for that one.
    """
    if agreement.alone:
        return replace(state, cause_text=state.cause)
    capped = UNKNOWN if state.power_capped is None else float(state.power_capped)
    numbers = (
        CODES.index(state.cause),
        capped,
        NEIGHBOURS.index(state.neighbours),
        state.throttle_known,
        CODES.index(state.spoiled),
        state.judged,
        state.clock_moved,
    )
    causes, caps, neighbours, throttles_known, spoils, judged, clocks_moved = zip(
        *agreement.rows(*map(float, numbers)), strict=True
    )
    code, spoil = (min((code for code in codes if code), default=0.0) for codes in (causes, spoils))
    cause = CODES[int(code)]
    # Every rank asks at its own pace: those that found something wrong say how far back it reaches.
    reaches = max(
        (count for count, code in zip(judged, spoils, strict=True) if code), default=min(judged)
    )
    return BlockState(
        cause,
        power_capped=True if 1.0 in caps else None if UNKNOWN in caps else False,
        neighbours=NEIGHBOURS[int(max(neighbours))],
        throttle_known=all(throttles_known),
        cause_text=cause
        + of_ranks(
            [rank for rank, rank_cause in enumerate(causes) if rank_cause == code], len(causes)
        )
        * bool(cause),
        spoiled=CODES[int(spoil)],
        judged=int(reaches),
        clock_moved=any(clocks_moved),
    )


def of_ranks(ranks: Sequence[int], size: int) -> str:
    """Return ` (rank 3)`, ` (ranks 0, 3)`, or nothing for all ranks."""
    if len(ranks) == size:
        return ""
    return f" (rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))})"


@dataclass(frozen=True, slots=True)
class Room:
    """The sizes that decide how many argument sets there are, in bytes. These are what is free, the
    cache, all memory, and what one set takes.

    The ranks of a host share its memory (`on_host`); each device has its own.
    """

    free_bytes: int
    cache_bytes: int
    memory_bytes: int | None
    set_bytes: int
    on_host: bool


def agreed_room(peers: Peers, room: Room) -> Room:
    """Return the room that all ranks have. It is the largest cache and set, and of each memory an
    equal part, where that is least.
    """
    if peers.size == 1:
        return room
    pool = host_number(peers) if room.on_host else -1.0 - int(peers)
    memory = float("inf") if room.memory_bytes is None else room.memory_bytes
    rows = peers.gather((room.free_bytes, room.cache_bytes, pool, memory, room.set_bytes))
    pools = [row[2] for row in rows]
    free_bytes, memory_bytes = (
        min(row[column] / pools.count(row[2]) for row in rows) for column in (0, 3)
    )
    return Room(
        int(free_bytes),
        int(max(row[1] for row in rows)),
        None if memory_bytes == float("inf") else int(memory_bytes),
        int(max(row[4] for row in rows)),
        room.on_host,
    )


def agreed_calibration(agreement: Agreement, calibration: Calibration) -> Calibration:
    """Return the most that stamps and launches cost on any rank. The spin's rate stays this rank's
    own.
    """
    tick_s, event_pair_s, record_host_s, call_host_s = agreement.most(
        calibration.tick_s,
        calibration.event_pair_s,
        calibration.record_host_s,
        calibration.call_host_s,
    )
    (shallow,) = agreement.most(
        -float("inf") if calibration.queue_depth is None else -calibration.queue_depth
    )
    return replace(
        calibration,
        tick_s=tick_s,
        event_pair_s=event_pair_s,
        record_host_s=record_host_s,
        call_host_s=call_host_s,
        queue_depth=None if shallow == -float("inf") else int(-shallow),
    )


def require_alike(agreement: Agreement, traits: Traits) -> None:
    """Refuse ranks that would have to be timed in different ways."""
    own_traits = [getattr(traits, name) for name in DECISIVE]
    rows = agreement.rows(*(UNKNOWN if trait is None else float(trait) for trait in own_traits))
    for rank, row in enumerate(rows):
        for name, first, rank_trait in zip(DECISIVE, rows[0], row, strict=True):
            if first != rank_trait:
                raise BadInput(
                    f"the devices of rank 0 and rank {rank} must be timed in different ways ({name} {first:g} and "
                    f"{rank_trait:g}); expected ranks on devices of one kind"
                )


class CoreWatch:
    """Watches the processors until `disturbance` is asked. Every rank of the world makes a watch,
    and asks it.

    Where something else is measured, what happens `on_processors` disturbs nobody.
    """

    def __init__(self, peers: Peers, *, on_processors: bool) -> None:
        self._peers = peers
        self._on_processors = on_processors
        self._watch = cpu.Neighbours()
        self._began_s, self._own_s = time.perf_counter(), time.process_time()

    def disturbance(self) -> str:
        """Return why the times tell nothing of the machine. It is the same on every rank; empty if
        they do.
        """
        own_cores = (time.process_time() - self._own_s) / max(
            time.perf_counter() - self._began_s, 1e-9
        )
        cores_taken = self._watch.cores_taken() if self._on_processors else None
        if self._peers.size == 1:
            return cpu.too_busy(cores_taken)
        rows = self._peers.gather(
            (UNKNOWN if cores_taken is None else cores_taken, own_cores, host_number(self._peers))
        )
        return cpu.too_busy(most_cores_taken([(row[0], row[1], row[2]) for row in rows]))


def most_cores_taken(rows: list[tuple[float, float, float]]) -> float | None:
    """Return the cores that processes outside of this world kept busy. It is the most of any host;
    None if no host tells.

    A row of each rank: cores that all others kept busy (negative is unknown), cores that it kept busy, and its host.
    """
    beside = [
        cores_taken
        - sum(
            other_cores
            for other_rank, (_, other_cores, other_host) in enumerate(rows)
            if other_rank != rank and other_host == host
        )
        for rank, (cores_taken, _, host) in enumerate(rows)
        if cores_taken >= 0
    ]
    return max(0.0, *beside) if beside else None
