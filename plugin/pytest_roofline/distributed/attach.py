"""Attach mode: under `torchrun|mpirun|srun … -m pytest`, rank 0 is the only pytest, and leads the other processes.

Rank 0 tells them whether it needs them, has each start its rank, and lets them go after its report.
"""

import socket
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..core.errors import BadInput, RanksFailed
from .channel import Channel
from .child import Child
from .identity import Identity
from .placement import FATE_S, loopback
from .rendezvous import Meeting
from .supervising import ALONE, JOIN

# Why a test of MPI is skipped here.
NO_MPI = (
    "needs ranks that MPI itself started; under attach mode a rank is a child of such a process, and MPI_Init fails "
    "there: run it with --roofline-launcher=mpirun or srun"
)
ASK_S = 10.0
# A supervisor that was lent comes back when its borrower is gone, and ends its rank first.
BACK_S = 30.0


class Attached:
    """The processes of a launch, as rank 0 sees them.

    Args:
        identity: of rank 0.
        channels: to the others, by rank.
        hosts: of the others, by rank.
        local_ranks: of the others, by rank.
    """

    def __init__(
        self, identity: Identity, channels: dict[int, Channel], hosts: dict[int, str], local_ranks: dict[int, int]
    ) -> None:
        self.identity = identity
        self.hosts = {0: socket.gethostname(), **hosts}
        self.local_ranks = {0: identity.local_rank, **local_ranks}
        self._channels = channels
        self._lent: set[int] = set()

    @property
    def size(self) -> int:
        """Ranks of the launch."""
        return self.identity.size

    @property
    def on_one_host(self) -> bool:
        """Whether all of it runs on this host."""
        return len(set(self.hosts.values())) == 1

    def placement(self) -> "AttachPlacement":
        """Ranks under these processes."""
        return AttachPlacement(self)

    def lost(self, rank: int) -> bool:
        """Whether the process that stands for a rank is gone."""
        return rank != 0 and rank not in self._channels

    def join(self) -> None:
        """Tell the others that they are needed."""
        self._tell_all({"do": JOIN})

    def release(self) -> None:
        """Tell the others to go on by themselves; none of them is led any more."""
        self._tell_all({"do": ALONE})
        self._hang_up()

    def end(self) -> None:
        """Let the others exit with 0; for after the report."""
        self._await_back(list(self._channels))
        self._tell_all({"do": "bye"})
        self._hang_up()

    def ask(self, ranks: Sequence[int], order: dict[str, Any], seconds: float = ASK_S) -> dict[int, Any]:
        """The replies to an order, by rank; None from those that are gone, or do not answer in time."""
        self._await_back(ranks)
        asked = [rank for rank in ranks if rank in self._channels and self._send(rank, order)]
        until_s = time.monotonic() + seconds
        return dict.fromkeys(ranks) | {rank: self._reply(rank, until_s - time.monotonic()) for rank in asked}

    def lend(self, meeting: Meeting) -> None:
        """Have the others serve another controller, until that says bye or is gone."""
        order = {"do": "lend", "addresses": list(meeting.addresses), "port": meeting.port, "key": meeting.key}
        self._await_back(list(self._channels))
        for rank in list(self._channels):
            if self._send(rank, order):
                self._lent.add(rank)

    def _await_back(self, ranks: Sequence[int]) -> None:
        """Wait until those of these processes that were lent answer to this controller again, or lose them."""
        until_s = time.monotonic() + BACK_S
        for rank in self._lent.intersection(ranks, self._channels):
            self._reply(rank, until_s - time.monotonic())
        self._lent.difference_update(ranks)

    def _send(self, rank: int, order: dict[str, Any]) -> bool:
        try:
            self._channels[rank].send(order)
        except OSError:
            self._lose(rank)
            return False
        return True

    def _reply(self, rank: int, seconds: float) -> Any:
        try:
            return self._channels[rank].receive(max(0.01, seconds))["done"]
        except (EOFError, OSError):
            # One that answers late would be taken for answering the next question.
            self._lose(rank)
            return None

    def _lose(self, rank: int) -> None:
        self._channels.pop(rank).close()

    def _tell_all(self, order: dict[str, Any]) -> None:
        for rank in list(self._channels):
            self._send(rank, order)

    def _hang_up(self) -> None:
        for rank in list(self._channels):
            self._lose(rank)


class AttachPlacement:
    """Ranks as children of the processes that a launcher has started.

    Args:
        attached: those processes.
        child: this process's own rank.
    """

    name = "attach"

    def __init__(self, attached: Attached, child: Child | None = None) -> None:
        self._attached = attached
        self._child = child or Child()
        self._ranks: range = range(0)
        self.bind = "127.0.0.1" if attached.on_one_host else ""

    def start(self, size: int, variables: dict[str, str]) -> None:
        """Start `size` ranks with these environment variables."""
        if size > self._attached.size:
            raise BadInput(f"{size} ranks are asked of a launch of {self._attached.size}; expected no more than that")
        self._ranks = range(size)
        common = variables | (loopback() if self._attached.on_one_host else {})
        try:
            self._child.start(common | self._who(0))
        except OSError as error:
            raise RanksFailed(f"rank 0 could not be started: {error}") from None
        for rank in self._others:
            order = {"do": "start", "variables": common | self._who(rank)}
            why = self._attached.ask([rank], order)[rank]
            if why != "":
                raise RanksFailed(f"rank {rank} on {self._attached.hosts[rank]}: {why or self._gone(rank)}")

    def trouble(self) -> str:
        """Why ranks will not come: one of them, or the process that stands for it, has ended."""
        ended = self._ask("ended")
        for rank in self._ranks:
            if self._attached.lost(rank):
                return f"rank {rank} on {self._attached.hosts[rank]}: {self._gone(rank)}"
            if ended[rank]:
                return f"rank {rank} ended during its boot: {ended[rank]}\n{self.tail(rank)}".rstrip()
        return ""

    def fate(self, rank: int) -> str:
        """How a rank ended."""
        if rank == 0:
            return self._child.fate()
        told = self._attached.ask([rank], {"do": "fate"}, FATE_S + ASK_S)[rank]
        return str(told) if told is not None else self._gone(rank)

    def signal(self, rank: int, number: int) -> bool:
        """Send a signal to a rank; whether it could be reached."""
        if rank == 0:
            return self._child.signal(number)
        return bool(self._attached.ask([rank], {"do": "signal", "number": int(number)})[rank])

    def stacks(self, files: Mapping[int, int]) -> dict[int, str]:
        """What blocked ranks of other processes write into their files of stacks, at a signal.

        Args:
            files: the descriptors of these files, by rank.
        """
        others = [rank for rank in files if rank != 0]
        replies = self._attached.ask(others, {"do": "stacks", "files": dict(files)})
        return {rank: text for rank, text in replies.items() if text}

    def tail(self, rank: int) -> str:
        """The last words of its log."""
        return self._child.tail() if rank == 0 else self._attached.ask([rank], {"do": "tail"})[rank] or ""

    def kill(self) -> None:
        """End every rank, and reap it."""
        self._child.kill()
        self._attached.ask(self._others, {"do": "kill"})
        self._ranks = range(0)

    def wait(self, seconds: float) -> bool:
        """Whether every rank has ended by itself within so many seconds."""
        until_s = time.monotonic() + seconds
        own = self._child.wait(seconds)
        left_s = max(0.0, until_s - time.monotonic())
        replies = self._attached.ask(self._others, {"do": "wait", "seconds": left_s}, left_s + ASK_S)
        # A process that is gone took its rank along.
        if not own or any(reply is False for reply in replies.values()):
            return False
        self.kill()
        return True

    @property
    def _others(self) -> list[int]:
        return [rank for rank in self._ranks if rank != 0]

    def _ask(self, do: str) -> dict[int, Any]:
        return {0: self._child.ended()} | self._attached.ask(self._others, {"do": do})

    def _who(self, rank: int) -> dict[str, str]:
        size, local_rank = len(self._ranks), self._attached.local_ranks[rank]
        return Identity(rank, size, local_rank, None, "attach").environ

    def _gone(self, rank: int) -> str:
        return f"the process of the launch that stands for rank {rank} is gone"
