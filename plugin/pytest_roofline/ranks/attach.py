"""Attach mode: rank 0 is the only pytest of a launch. Under `torchrun|mpirun|srun … -m pytest` it
leads the other processes.

Rank 0 tells them whether it needs them, has each start the rank that it stands for, so that whatever befalls that costs
one test only, and lets them go after its report. A round of rank 0, which is a child of it, inherits its connections.
"""

import json
import os
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

from ..core.errors import BadInput, RanksFailed
from ..processes.system import FATE_S, loopback
from .channel import Channel
from .identity import Identity
from .local import Local
from .rendezvous import MEET_S, Rendezvous, meet

# Why a test of MPI is skipped here.
NO_MPI = (
    "needs ranks that MPI itself started; in attach mode a rank is a child of such a process, where MPI_Init "
    "fails; use --roofline-launcher=mpirun or srun"
)
ASK_S = 10.0
# Names the connections that a round of rank 0 has inherited.
LENT_VARIABLE = "ROOFLINE_ATTACH_LENT"
JOIN, ALONE, BYE = "join", "on your own", "bye"
# What rank 0 may have the others do with their ranks: methods of `Local`.
_ORDERS = ("start_one", "trouble", "fate", "stacks_of", "tail", "kill", "wait")


class AttachedProcesses:
    """The processes of a launch, as rank 0 sees them."""

    def __init__(
        self,
        identity: Identity,
        channels: dict[int, Channel],
        hosts: dict[int, str],
        local_ranks: dict[int, int],
        *,
        borrowed: bool = False,
    ) -> None:
        self.identity = identity
        self.hosts = {0: socket.gethostname(), **hosts}
        self.local_ranks = {0: identity.local_rank, **local_ranks}
        self._channels = channels
        self._borrowed = borrowed

    @property
    def size(self) -> int:
        """Ranks of the launch."""
        return self.identity.size

    @property
    def on_one_host(self) -> bool:
        """Return whether the whole launch runs on this host."""
        return len(set(self.hosts.values())) == 1

    def is_gone(self, rank: int) -> bool:
        """Return whether the process of a rank is gone."""
        return rank != 0 and rank not in self._channels

    def tell(self, word: str) -> None:
        """Tell the other processes whether they are needed. `JOIN` keeps them. After another word
        they go on by themselves, or exit, and nobody leads them any more.
        """
        for rank in [] if self._borrowed else list(self._channels):
            self._send(rank, {"do": word})
        if word != JOIN:
            for rank in list(self._channels):
                self._channels.pop(rank).close(shut=not self._borrowed)

    def ask(
        self, ranks: Sequence[int], do: str, *arguments: Any, seconds: float = ASK_S
    ) -> dict[int, Any]:
        """Return the replies of some ranks' processes to an order. It is None from a process that
        is gone, or late.
        """
        # A round that was killed may have left a reply that nobody read.
        mark = secrets.token_hex(4)
        reached_ranks = [
            rank for rank in ranks if self._send(rank, {"do": do, "what": arguments, "mark": mark})
        ]
        until_s = time.monotonic() + seconds
        return dict.fromkeys(ranks) | {
            rank: self._reply(rank, mark, until_s) for rank in reached_ranks
        }

    def lend(self) -> tuple[dict[str, str], tuple[int, ...]]:
        """Return what a round needs to lead the other processes: environment and descriptors. A
        round is a child of this process.
        """
        entries = [
            [rank, channel.fileno(), self.hosts[rank], self.local_ranks[rank]]
            for rank, channel in self._channels.items()
        ]
        return {LENT_VARIABLE: json.dumps(entries)}, tuple(
            channel.fileno() for channel in self._channels.values()
        )

    def _send(self, rank: int, order: dict[str, Any]) -> bool:
        if rank not in self._channels:
            return False
        try:
            self._channels[rank].send(order)
        except OSError:
            self._lose(rank)
            return False
        return True

    def _reply(self, rank: int, mark: str, until_s: float) -> Any:
        try:
            while True:
                reply = self._channels[rank].receive(max(0.01, until_s - time.monotonic()))
                if reply["mark"] == mark:
                    return reply["done"]
        except (EOFError, OSError, BadInput):
            self._lose(rank)
            return None

    def _lose(self, rank: int) -> None:
        self._channels.pop(rank).close()


def inherit_processes(identity: Identity) -> AttachedProcesses | None:
    """Return the processes that a round of rank 0 inherits. None if this process is no such round.
    Call it once.
    """
    text = os.environ.pop(LENT_VARIABLE, "")
    if not text:
        return None
    channels, hosts, local_ranks = {}, {}, {}
    for rank, descriptor, host, local_rank in json.loads(text):
        # What this process starts shall not have it as well.
        os.set_inheritable(descriptor, False)
        channels[rank] = Channel(socket.socket(fileno=descriptor))
        hosts[rank], local_ranks[rank] = host, local_rank
    return AttachedProcesses(identity, channels, hosts, local_ranks, borrowed=True)


def gather(
    identity: Identity, rendezvous: Rendezvous, timeout: float = MEET_S, bind: str = ""
) -> AttachedProcesses:
    """Wait, as rank 0, until every other process of the launch has come."""
    until_s = time.monotonic() + timeout

    def check(missing: list[int]) -> None:
        if time.monotonic() > until_s:
            raise RanksFailed(
                f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} of {identity.size} did not connect "
                f"to rank 0 on {socket.gethostname()} within {timeout:g} s{listener.remark}. "
                f"Expected every process of this launch ({identity.launcher}) to run the same pytest; "
                "to run pytest alone, start it outside of the launch"
            )

    arrivals: dict[int, tuple[Channel, Any]] = {}
    listener = rendezvous.listen(bind)
    try:
        listener.gather(range(1, identity.size), identity.size, arrivals, check)
    finally:
        rendezvous.close()
        listener.close()
    channels = {rank: channel for rank, (channel, _) in arrivals.items()}
    hosts, local_ranks = (
        {rank: hello[name] for rank, (_, hello) in arrivals.items()}
        for name in ("host", "local_rank")
    )
    return AttachedProcesses(identity, channels, hosts, local_ranks)


class AttachPlacement:
    """Ranks as children of the processes that a launcher has started."""

    name = "attach"

    def __init__(self, attached: AttachedProcesses, local: Local | None = None) -> None:
        self._attached = attached
        self._local = local or Local()
        self._ranks = range(0)
        self.bind = "127.0.0.1" if attached.on_one_host else ""

    def start(self, size: int, variables: dict[str, str]) -> None:
        """Start `size` ranks with these environment variables."""
        if size > self._attached.size:
            raise BadInput(
                f"{size} ranks are needed, but the launch has {self._attached.size}; start a larger launch"
            )
        self._ranks = range(size)
        common = variables | (loopback() if self._attached.on_one_host else {})
        for rank in self._ranks:
            identity = Identity(rank, size, self._attached.local_ranks[rank], None, self.name)
            if (reason := self._ask(rank, "start_one", rank, common | identity.environ)) != "":
                raise RanksFailed(
                    f"rank {rank} on {self._attached.hosts[rank]}: {reason or self._gone_text(rank)}"
                )

    def trouble(self) -> str:
        """Return why ranks will not come; empty while all is well. A rank, or the process that
        stands for it, may have ended.
        """
        reasons = {0: self._local.trouble()} | self._attached.ask(self._ranks[1:], "trouble")
        for rank in self._ranks:
            if self._attached.is_gone(rank):
                return f"rank {rank} on {self._attached.hosts[rank]}: {self._gone_text(rank)}"
        return next(filter(None, reasons.values()), "")

    def fate(self, rank: int) -> str:
        """Return the end of a rank, in words."""
        reply = self._ask(rank, "fate", rank, seconds=FATE_S + ASK_S)
        return self._gone_text(rank) if reply is None else str(reply)

    def stacks_of(self, rank: int, descriptor: int) -> str:
        """Return the stacks that a blocked rank writes at a signal."""
        return self._ask(rank, "stacks_of", rank, descriptor) or ""

    def tail(self, rank: int) -> str:
        """The last words of its log."""
        return self._ask(rank, "tail", rank) or ""

    def kill(self) -> None:
        """End every rank, and reap it."""
        self._local.kill()
        self._attached.ask(self._ranks[1:], "kill")
        self._ranks = range(0)

    def wait(self, seconds: float) -> bool:
        """Return whether every rank ends by itself within so many seconds."""
        until_s = time.monotonic() + seconds
        first_ended = self._local.wait(seconds)
        left_s = max(0.0, until_s - time.monotonic())
        replies = self._attached.ask(self._ranks[1:], "wait", left_s, seconds=left_s + ASK_S)
        # A process that is gone took its rank along.
        if not first_ended or any(reply is False for reply in replies.values()):
            return False
        self._ranks = range(0)
        return True

    def _ask(self, rank: int, do: str, *arguments: Any, seconds: float = ASK_S) -> Any:
        if rank == 0:
            return getattr(self._local, do)(*arguments)
        return self._attached.ask([rank], do, *arguments, seconds=seconds)[rank]

    def _gone_text(self, rank: int) -> str:
        return f"the launched process of rank {rank} has ended"


def follow(identity: Identity, rendezvous: Rendezvous, timeout: float) -> Channel:
    """Meet rank 0, and introduce this process."""
    channel = meet(identity, rendezvous, timeout)
    channel.send(
        {
            "rank": identity.rank,
            "size": identity.size,
            "local_rank": identity.local_rank,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
    )
    return channel


def supervise(channel: Channel, local: Local | None = None) -> int | None:
    """Serve rank 0 until it lets this process go. Return exit status 0 after an orderly end, 1 if
    rank 0 is gone, None if pytest goes on here.
    """
    local = local or Local()
    with _calm():
        try:
            if channel.receive()["do"] == ALONE:
                return None
            while (order := channel.receive())["do"] in _ORDERS:
                channel.send(
                    {"mark": order["mark"], "done": getattr(local, order["do"])(*order["what"])}
                )
            return 0 if order["do"] == BYE else 1
        except (EOFError, OSError):
            return 1
        finally:
            local.kill()
            channel.close()


@contextmanager
def _calm() -> Iterator[None]:
    """Leave Ctrl-C to rank 0, which says bye. At the launcher's SIGTERM, clear everything away and
    exit.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, _leave),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _leave(number: int, _: FrameType | None) -> None:
    raise SystemExit(128 + number)
