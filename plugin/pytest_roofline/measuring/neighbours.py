"""Whether other processes were at work beside what is measured on processors; ranks themselves are no neighbours."""

import time

from . import host
from .peers import Peers, host_number

UNKNOWN = -1.0


class CoreWatch:
    """Watches the processors from its making until `disturbed` is asked; every rank of the world does both.

    Args:
        peers: the ranks that measure together.
        on_processors: whether it is them that are measured; beside others, what they do disturbs nobody.
    """

    def __init__(self, peers: Peers, *, on_processors: bool) -> None:
        self._peers = peers
        self._on_processors = on_processors
        self._watch = host.Neighbours()
        self._began_s, self._own_s = time.perf_counter(), time.process_time()

    def disturbed(self) -> str:
        """Why the times tell nothing of the machine, the same on every rank; empty where they do."""
        own = (time.process_time() - self._own_s) / max(time.perf_counter() - self._began_s, 1e-9)
        taken = self._watch.cores_taken() if self._on_processors else None
        rows = self._peers.gather((UNKNOWN if taken is None else taken, own, host_number(self._peers)))
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
