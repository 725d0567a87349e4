"""Attach mode: rank 0 is the only pytest of a launch. Under `torchrun|mpirun|srun … -m pytest` it
leads the other processes.

Rank 0 first tells the other processes whether it needs them. Each of them then starts its rank as a child, so that a
crash of the rank costs one test only. Rank 0 lets them go after its report. A further round of rank 0, which is a child
process of it, inherits its connections.
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

# The reason why a test of MPI is skipped in attach mode.
NO_MPI = (
    "needs ranks that MPI itself started. In attach mode a rank is a child of a launched process, so MPI_Init "
    "fails. Pass --roofline-launcher=mpirun or srun"
)
# Seconds for a process to reply to an order.
ASK_S = 10.0
# The variable that lists the connections which a round of rank 0 has inherited.
LENT_VARIABLE = "ROOFLINE_ATTACH_LENT"
# Words of rank 0 to the other processes: stay, go on with a pytest of your own, exit.
JOIN, ALONE, BYE = "join", "on your own", "bye"
# Orders of rank 0 to the other processes: methods of `Local`, called for the rank that the process stands for.
_ORDERS = ("start_one", "trouble", "fate", "stacks_of", "tail", "kill", "wait")


class AttachedProcesses:
    """The processes of a launch, as rank 0 sees them.

    Args:
        identity: of rank 0.
        channels: to the other processes, by rank.
        hosts: their host names, by rank.
        local_ranks: their numbers on their hosts, by rank.
        borrowed: whether this process is a round that has inherited the channels.
    """

    def __init__(
        self,
        identity: Identity,
        channels: dict[int, Channel],
        hosts: dict[int, str],
        local_ranks: dict[int, int],
        *,
        borrowed: bool = False,
    ) -> None:
        """Keep the connections to the other processes.

        Rank 0 itself is added to the hosts and the local numbers.
        """
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
        # A round only borrows the channels, so it sends nothing, and leaves them open for rank 0.
        if not self._borrowed:
            # `_send` removes the channel of a process that is gone, so the loop is over a copy.
            for rank in list(self._channels):
                self._send(rank, {"do": word})
        if word != JOIN:
            for rank in list(self._channels):
                self._channels.pop(rank).close(shut=not self._borrowed)

    def ask(
        self, ranks: Sequence[int], method: str, *arguments: Any, seconds: float = ASK_S
    ) -> dict[int, Any]:
        """Return the replies of some ranks' processes to an order.

        The order is to call a method of their `Local`. The reply of a process that is gone or late
        is None.
        """
        # A round that was killed may have left a reply that nobody read, so each reply repeats the mark of its order.
        mark = secrets.token_hex(4)
        order = {"do": method, "what": arguments, "mark": mark}
        reached_ranks = [rank for rank in ranks if self._send(rank, order)]
        until_s = time.monotonic() + seconds
        no_replies = dict.fromkeys(ranks)
        return no_replies | {rank: self._reply(rank, mark, until_s) for rank in reached_ranks}

    def lend(self) -> tuple[dict[str, str], tuple[int, ...]]:
        """Return the environment variables and the open connections that a round inherits.

        With them the round, a child of this process, can lead the other processes.
        """
        entries = [
            [rank, channel.fileno(), self.hosts[rank], self.local_ranks[rank]]
            for rank, channel in self._channels.items()
        ]
        variables = {LENT_VARIABLE: json.dumps(entries)}
        descriptors = tuple(channel.fileno() for channel in self._channels.values())
        return variables, descriptors

    def _send(self, rank: int, order: dict[str, Any]) -> bool:
        """Send an order to a rank's process, and return whether that worked.

        A process that cannot be reached counts as gone.
        """
        if rank not in self._channels:
            return False
        try:
            self._channels[rank].send(order)
        except OSError:
            self._lose(rank)
            return False
        return True

    def _reply(self, rank: int, mark: str, until_s: float) -> Any:
        """Return the reply to the order with this mark; skip older replies.

        It is None if none came in time. The process then counts as gone.
        """
        try:
            while True:
                # A reply that has come already is read even if time is up.
                reply = self._channels[rank].receive(max(0.01, until_s - time.monotonic()))
                if reply["mark"] == mark:
                    return reply["done"]
        except (EOFError, OSError, BadInput):
            self._lose(rank)
            return None

    def _lose(self, rank: int) -> None:
        """Close the channel of a process that is gone, and forget it."""
        self._channels.pop(rank).close()


def inherit_processes(identity: Identity) -> AttachedProcesses | None:
    """Return the other processes of a launch.

    A round of rank 0 inherits the connections to them. A round is a child of rank 0 that repeats its tests. The result
    is None if this process is no round. The function can be called once only, since it removes the variable.
    """
    text = os.environ.pop(LENT_VARIABLE, "")
    if not text:
        return None
    channels, hosts, local_ranks = {}, {}, {}
    for rank, descriptor, host, local_rank in json.loads(text):
        # Processes that this one starts must not inherit the connection too.
        os.set_inheritable(descriptor, False)
        channels[rank] = Channel(socket.socket(fileno=descriptor))
        hosts[rank], local_ranks[rank] = host, local_rank
    return AttachedProcesses(identity, channels, hosts, local_ranks, borrowed=True)


def gather(
    identity: Identity, rendezvous: Rendezvous, timeout: float = MEET_S, bind: str = ""
) -> AttachedProcesses:
    """Return the processes of a launch, once all have connected to rank 0.

    Args:
        identity: of this process, which is rank 0.
        rendezvous: where the other processes look for rank 0's address.
        timeout: seconds for all of them to come.
        bind: the address to listen on; empty for any.

    Raises:
        RanksFailed: a process did not connect within `timeout` seconds.
    """
    until_s = time.monotonic() + timeout

    def check(missing: list[int]) -> None:
        """Raise RanksFailed if ranks are missing after the time-out."""
        if time.monotonic() > until_s:
            noun = "ranks" if len(missing) > 1 else "rank"
            raise RanksFailed(
                f"{noun} {', '.join(map(str, missing))} of {identity.size} did not connect "
                f"to rank 0 on {socket.gethostname()} within {timeout:g} s{listener.remark}. "
                f"Expected every process of this launch ({identity.launcher}) to run the same pytest. "
                "To run pytest alone, start pytest outside of the launch"
            )

    arrivals: dict[int, tuple[Channel, Any]] = {}
    listener = rendezvous.listen(bind)
    try:
        listener.gather(range(1, identity.size), identity.size, arrivals, check)
    finally:
        rendezvous.close()
        listener.close()
    channels = {rank: channel for rank, (channel, _) in arrivals.items()}
    hosts = {rank: hello["host"] for rank, (_, hello) in arrivals.items()}
    local_ranks = {rank: hello["local_rank"] for rank, (_, hello) in arrivals.items()}
    return AttachedProcesses(identity, channels, hosts, local_ranks)


class AttachPlacement:
    """Ranks as children of the processes that a launcher has started."""

    name = "attach"

    def __init__(self, attached: AttachedProcesses, local: Local | None = None) -> None:
        """Prepare to start a rank in each process of a launch.

        `local` starts rank 0 on this host.
        """
        self._attached = attached
        self._local = local or Local()
        self._ranks = range(0)
        self.bind = "127.0.0.1" if attached.on_one_host else ""

    def start(self, size: int, variables: dict[str, str]) -> None:
        """Start `size` ranks with these environment variables."""
        if size > self._attached.size:
            raise BadInput(
                f"{size} ranks are needed, but the launch has {self._attached.size}. Start a launch with {size} ranks"
            )
        self._ranks = range(size)
        common = variables | (loopback() if self._attached.on_one_host else {})
        for rank in self._ranks:
            identity = Identity(
                rank=rank,
                size=size,
                local_rank=self._attached.local_ranks[rank],
                local_size=None,
                launcher=self.name,
            )
            # The reply is empty if the rank has started, and None if its process is gone.
            reason = self._ask(rank, "start_one", rank, common | identity.environ)
            if reason != "":
                raise RanksFailed(
                    f"rank {rank} on {self._attached.hosts[rank]}: {reason or self._gone_text(rank)}"
                )

    def trouble(self) -> str:
        """Return why ranks that were started will not connect; empty while all is well.

        A rank may have ended, or the process that was to start it.
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
        """Return the last words of a rank's log."""
        return self._ask(rank, "tail", rank) or ""

    def kill(self) -> None:
        """Kill every rank, and all that it started."""
        self._local.kill()
        self._attached.ask(self._ranks[1:], "kill")
        self._ranks = range(0)

    def wait(self, seconds: float) -> bool:
        """Return whether every rank ends by itself within so many seconds."""
        until_s = time.monotonic() + seconds
        rank_0_ended = self._local.wait(seconds)
        remaining_s = max(0.0, until_s - time.monotonic())
        replies = self._attached.ask(
            self._ranks[1:], "wait", remaining_s, seconds=remaining_s + ASK_S
        )
        # Without a reply the process is gone, and its rank with it.
        if not rank_0_ended or any(reply is False for reply in replies.values()):
            return False
        self._ranks = range(0)
        return True

    def _ask(self, rank: int, method: str, *arguments: Any, seconds: float = ASK_S) -> Any:
        """Return what a method of `Local` returns in a rank's process.

        It is None where the process is gone or late.
        """
        if rank == 0:
            return getattr(self._local, method)(*arguments)
        replies = self._attached.ask([rank], method, *arguments, seconds=seconds)
        return replies[rank]

    def _gone_text(self, rank: int) -> str:
        return f"the launched process of rank {rank} has ended"


def follow(identity: Identity, rendezvous: Rendezvous, timeout: float) -> Channel:
    """Connect to rank 0, and return the channel.

    This process of the same launch introduces itself there.
    """
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
    """Carry out the orders of rank 0 until it lets this process go.

    Return exit status 0 after an orderly end, 1 if rank 0 is gone, None if rank 0 does not need this process, so that
    pytest goes on here. `local` starts the rank of this process; None makes it.
    """
    local = local or Local()
    with _follower_signals():
        try:
            if channel.receive()["do"] == ALONE:
                return None
            # An order names a method of `Local`, and has its arguments and a mark that the reply repeats.
            while (order := channel.receive())["do"] in _ORDERS:
                method, arguments = getattr(local, order["do"]), order["what"]
                channel.send({"mark": order["mark"], "done": method(*arguments)})
            return 0 if order["do"] == BYE else 1
        except (EOFError, OSError):
            return 1
        finally:
            local.kill()
            channel.close()


@contextmanager
def _follower_signals() -> Iterator[None]:
    """Ignore Ctrl-C, and exit in order at SIGTERM.

    Rank 0 handles Ctrl-C, and then lets this process go. SIGTERM comes from the launcher. Only the
    main thread can handle signals.
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
    """Exit at a signal; Python calls this with its number and the current frame."""
    raise SystemExit(128 + number)
