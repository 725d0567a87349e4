"""The agreement of one world's ranks while they measure together.

A collective needs every rank. A rank that made one call more than the others would pair it with their next one, or
hang. So whatever decides how many calls are made is a number that all ranks hold: times are the longest of all ranks,
a cause that excludes a block on one rank excludes it on all, and the clock that ends a budget is a common one.
"""

from collections.abc import Callable, Sequence
from typing import Protocol
from zlib import crc32

# Among numbers that ranks exchange, what nobody tells.
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


def of_ranks(ranks: Sequence[int], size: int) -> str:
    """Return ` (rank 3)`, ` (ranks 0, 3)`, or nothing for all ranks."""
    if len(ranks) == size:
        return ""
    return f" (rank{'s' * (len(ranks) > 1)} {', '.join(map(str, ranks))})"
