"""The agreement of ranks while they measure together.

A collective needs every rank. If one rank made a call more than the others, that call would be paired with their next
one, or hang. So every number that decides how many calls are made is the same on all ranks: times are the longest of
all ranks, a cause that excludes a block on one rank excludes it on all, and one common clock ends the budget.
"""

from collections.abc import Callable, Sequence
from typing import Protocol
from zlib import crc32

# Stands for an unknown number among those that ranks exchange. All known ones are zero or more.
UNKNOWN = -1.0


class Peers(Protocol):
    """The ranks that measure together.

    Every rank must call the methods in the same order.
    """

    size: int
    host: str

    def __int__(self) -> int:
        """Return this rank's number."""

    def barrier(self) -> None:
        """Wait on the host for every rank."""

    def gather(self, values: tuple[float, ...]) -> list[tuple[float, ...]]:
        """Return the values of every rank, by rank. All ranks give equally many."""


class Alone:
    """The only rank of a measurement in one process."""

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
    """An agreement of the ranks on numbers, and on a common time.

    Every exchange of numbers also exchanges the clocks. Reading the common time makes no exchange of its own.
    """

    def __init__(self, peers: Peers, host_s: Callable[[], float]) -> None:
        """Prepare to exchange numbers with `peers`. `host_s` returns the time of this rank's host."""
        self.is_alone = peers.size == 1
        self._peers = peers
        self._host_s = host_s
        self._epoch_s = host_s()
        self._agreed_s = 0.0

    def now_s(self) -> float:
        """Return the time in seconds, the same on every rank.

        It is that of the last exchange. A single rank reads its host's clock.
        """
        return self._host_s() if self.is_alone else self._agreed_s

    def rows(self, *numbers: float) -> list[tuple[float, ...]]:
        """Return the numbers of every rank, by rank."""
        if self.is_alone:
            return [numbers]
        # The first number of a row is the rank's time.
        rows = self._peers.gather((self._host_s() - self._epoch_s, *numbers))
        self._agreed_s = max(row[0] for row in rows)
        return [row[1:] for row in rows]

    def most(self, *numbers: float) -> tuple[float, ...]:
        """Return the largest of every number over the ranks."""
        return numbers if self.is_alone else tuple(map(max, zip(*self.rows(*numbers), strict=True)))

    def meet_s(self) -> float:
        """Wait for every rank, and return the common time."""
        self.rows()
        return self.now_s()

    def on_every_rank(self, holds: bool) -> bool:
        """Return whether something holds on every rank."""
        return all(row[0] for row in self.rows(float(holds)))

    def barrier(self) -> None:
        """Wait on the host for every rank."""
        if not self.is_alone:
            self._peers.barrier()


def of_ranks(ranks: Sequence[int], size: int) -> str:
    """Return ` (rank 3)` or ` (ranks 0, 3)`; empty if these are all `size` ranks."""
    if len(ranks) == size:
        return ""
    noun = "ranks" if len(ranks) > 1 else "rank"
    return f" ({noun} {', '.join(map(str, ranks))})"
