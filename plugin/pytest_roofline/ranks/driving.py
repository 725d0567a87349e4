"""Ranks from their boot to the end of a task, as the controller drives them. Also the messages of
each rank during a task.
"""

import contextlib
import selectors
import socket
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..core.errors import RanksFailed
from ..processes.system import (
    ProcessId,
    is_same,
    process_space,
    stacks_at_a_signal,
    stat,
)
from .blame import How, RankEnd
from .channel import Channel, to_controller
from .listener import Listener, is_loopback
from .placement import Placement
from .tasks import Answer, Task

if TYPE_CHECKING:
    from ..core.facts import Environment
    from ..engine.log import LatestBlock
    from .facts import RankFacts

# Seconds for the answers of the other ranks after a failure.
GRACE_S = 1.0
# Seconds for the last step of a task, after every rank has returned from the function.
CLOSING_S = 5.0
# Seconds for stuck ranks to send their stacks. A rank whose interpreter is blocked cannot; a signal makes it write
# them.
ASK_S = 2.0
POLL_S = 0.02

# Takes the number of a rank and its latest block, while a task runs.
Tell = Callable[[int, "LatestBlock"], None]


@dataclass(slots=True)
class Member:
    """A rank as the controller knows it.

    Args:
        stacks_descriptor: of the file into which its process writes stacks at a signal.
        space: what the number of its process is of, from `system.process_space`.
    """

    rank: int
    channel: Channel
    host: str
    process: ProcessId
    stacks_descriptor: int
    space: str
    facts: "RankFacts | None" = None
    environment: "Environment | None" = None

    @classmethod
    def of(cls, channel: Channel, hello: dict[str, Any]) -> "Member":
        """Return the rank that sent a first message."""
        process = ProcessId(hello["pid"], hello["ticks"])
        return cls(hello["rank"], channel, hello["host"], process, hello["stacks"], hello["space"])

    @property
    def name(self) -> str:
        """Return `rank 1 (pid 4711 on node7)`."""
        return f"rank {self.rank} (pid {self.process.pid} on {self.host})"

    @property
    def is_here(self) -> bool:
        """Return whether this process can reach the rank by its number.

        It can if both processes run on the same host, and in the same container or none.
        """
        return self.space == process_space()

    @property
    def connected(self) -> bool:
        """Return whether the connection to the rank is open."""
        try:
            self.channel.poll()
        except (EOFError, OSError):
            return False
        return True

    @property
    def stopped(self) -> bool:
        """Return whether a signal has stopped the rank's process.

        For a rank out of reach it is False, since that is not known.
        """
        if not self.is_here or not is_same(self.process):
            return False
        status = stat(self.process.pid)
        # Linux: stopped by a signal, or by a debugger.
        return status is not None and status.state in ("T", "t")


@dataclass(slots=True)
class Progress:
    """The messages of every rank so far.

    Args:
        waiting: ranks that have not answered.
        until_s: when their time is over, by the monotonic clock.
        answers: of the ranks that have answered.
        lost: ranks whose connections ended, in that order.
        order: the position of each rank's last message among those of all ranks.
        closing: ranks that have returned from the function, with the number of operations that they had submitted.
    """

    waiting: set[int]
    until_s: float
    answers: dict[int, Answer] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    order: dict[int, int] = field(default_factory=dict)
    closing: dict[int, int | None] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Return whether anything went wrong, or a rank takes no part."""
        return bool(self.lost) or any(answer.status != "ok" for answer in self.answers.values())

    @property
    def skipped(self) -> dict[int, Answer]:
        """Return the ranks that cannot run the test here.

        It is empty if a rank was lost or raised, which is worse.
        """
        if self.lost or any(answer.status == "raised" for answer in self.answers.values()):
            return {}
        return {rank: answer for rank, answer in self.answers.items() if answer.status == "skipped"}

    def how(self, rank: int) -> How:
        """Return how the task ended on a rank.

        Without an answer, a rank is `closing` if it has returned from the function, else `stuck`.
        """
        if rank in self.lost:
            return "lost"
        if rank in self.waiting:
            return "closing" if rank in self.closing else "stuck"
        status = self.answers[rank].status
        # A rank that raised after it had returned from the function only noticed that ranks are out of step.
        return "closing" if status == "raised" and rank in self.closing else status

    def note(self, rank: int, message: dict[str, Any]) -> None:
        """Record a message of a rank.

        The others get less time after a failure, and after all have returned from the function. The kind `closing` says
        that the rank has returned from the function, `gone` that its connection has ended; any other is its answer.
        """
        if message["kind"] == "closing":
            self.closing[rank] = message["collectives"]
            if self.waiting <= self.closing.keys():
                self.until_s = min(self.until_s, time.monotonic() + CLOSING_S)
            return
        self.waiting.discard(rank)
        self.order[rank] = len(self.order)
        if message["kind"] == "gone":
            self.lost.append(rank)
        else:
            self.answers[rank] = message["answer"]
        if self.failed:
            self.until_s = min(self.until_s, time.monotonic() + GRACE_S)


def drive(task: Task, members: Sequence[Member], timeout_s: float, tell: Tell | None) -> Progress:
    """Have the ranks (`members`) do a task, and return how far each has come.

    Return once all have answered, once time is up, or a moment after one has failed, in which the others may still
    answer. `tell` gets what a rank reports while it measures; None drops that.
    """
    ranks = {member.rank for member in members}
    progress = Progress(waiting=ranks, until_s=time.monotonic() + timeout_s)
    for member in members:
        # The loop below notices a member that is gone, by the end of its connection.
        with contextlib.suppress(OSError):
            member.channel.send({"kind": "run", "task": task})
    with select_members(members) as selector:
        is_over = False
        while progress.waiting and not is_over:
            remaining_s = progress.until_s - time.monotonic()
            # When time is up, messages are read once more: they may have come while this process was stopped.
            is_over = remaining_s <= 0
            for key, _ in selector.select(max(0.0, remaining_s)):
                # `select_members` registers each member with its channel.
                member = key.data
                for message in read_messages(member):
                    if message["kind"] != "progress":
                        progress.note(member.rank, message)
                    elif tell is not None:
                        tell(member.rank, message["progress"])
                if member.rank not in progress.waiting:
                    selector.unregister(key.fileobj)
    return progress


@contextlib.contextmanager
def select_members(members: Iterable[Member]) -> Iterator[selectors.BaseSelector]:
    """Yield a selector over the channels of members. The members are its data."""
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.channel, selectors.EVENT_READ, member)
        yield selector


def read_messages(member: Member) -> list[Any]:
    """Return the messages of a member; `gone` after the connection's end."""
    try:
        return member.channel.poll()
    except EOFError:
        return [{"kind": "gone"}]


def ends(progress: Progress, members: Sequence[Member], placement: Placement) -> list[RankEnd]:
    """Return the end of a task on every member.

    Call it before the members are killed, since it asks them for their stacks.
    """
    stuck = [member for member in members if progress.how(member.rank) == "stuck"]
    # A process that a signal has stopped cannot give its stacks.
    stopped = {member.rank for member in stuck if member.stopped}
    stacks = stacks_of([member for member in stuck if member.rank not in stopped], placement)
    # How the processes of lost ranks ended.
    fates = {rank: placement.fate(rank) for rank in progress.lost}
    # Of a rank that has not answered: neither an error nor a traceback.
    no_answer = Answer("ok")
    return [
        RankEnd(
            rank=member.rank,
            host=member.host,
            pid=member.process.pid,
            how=progress.how(member.rank),
            order=progress.order.get(member.rank, len(members)),
            text=fates.get(member.rank) or progress.answers.get(member.rank, no_answer).error,
            details=stacks.get(member.rank)
            or progress.answers.get(member.rank, no_answer).traceback,
            stopped=member.rank in stopped,
            collectives=progress.closing.get(member.rank),
        )
        for member in members
    ]


def stacks_of(members: Sequence[Member], placement: Placement) -> dict[int, str]:
    """Return the stacks of ranks that do not answer. `faulthandler` formats them; ranks
    that give none are left out.

    A rank is asked by a message first. If its interpreter is blocked, a signal makes it write its stacks into a file.
    """
    stacks = _stacks_from_threads(members)
    blocked = [member for member in members if member.rank not in stacks]
    stacks |= stacks_at_a_signal(
        {
            member.rank: (member.process, member.stacks_descriptor)
            for member in blocked
            if member.is_here
        }
    )
    return stacks | {
        member.rank: placement.stacks_of(member.rank, member.stacks_descriptor)
        for member in blocked
        if not member.is_here
    }


def _stacks_from_threads(members: Sequence[Member]) -> dict[int, str]:
    """Return the stacks that members send when asked.

    A thread of each member listens to the controller, also while its task is stuck.
    """
    stacks: dict[int, str] = {}
    for member in members:
        with contextlib.suppress(OSError):
            member.channel.send({"kind": "stacks"})
    until_s = time.monotonic() + ASK_S
    while len(stacks) < len(members) and time.monotonic() < until_s:
        for member in members:
            with contextlib.suppress(OSError):
                for message in read_messages(member):
                    if message["kind"] == "stacks":
                        stacks[member.rank] = message["text"]
        time.sleep(POLL_S)
    return stacks


class Boot:
    """The start of ranks, until they fit together and have devices.

    Args:
        placement: starts the ranks.
        size: the number of ranks.
        kind: of their devices.
        address: that the controller listens on.
        seconds: the limit for the start.
        explicit: whether the user chose the kind of device.
    """

    def __init__(
        self,
        placement: Placement,
        size: int,
        kind: str,
        address: str,
        seconds: float,
        *,
        explicit: bool = True,
    ) -> None:
        """Prepare to start ranks. The class describes the arguments; the seconds count from now."""
        self.members: dict[int, Member] = {}
        self._placement, self._size, self._kind, self._address = placement, size, kind, address
        self._seconds, self._explicit = seconds, explicit
        self._until_s = time.monotonic() + seconds
        self._listener: Listener | None = None

    def run(self, store_port: int) -> None:
        """Start the ranks, and wait until they are ready. `members` has the ranks that came, also
        after a failure.
        """
        self._listener = listener = Listener(self._address)
        arrivals: dict[int, tuple[Channel, Any]] = {}
        try:
            self._placement.start(self._size, to_controller(listener.endpoint))
            listener.gather(
                range(self._size),
                self._size,
                arrivals,
                self._check,
                f". If {self._placement.name} belongs to another MPI or Slurm than the libraries of the "
                "ranks, every process is a separate world",
            )
        finally:
            self.members = {
                rank: Member.of(channel, hello) for rank, (channel, hello) in arrivals.items()
            }
            listener.close()
        join = {"kind": "join", "device": self._kind, "path": sys.path, "folder": str(Path.cwd())}
        for member in self.members.values():
            member.channel.send(join)
        self._settle_in(store_port)

    def _check(self, missing: Sequence[int]) -> None:
        """Raise RanksFailed if the launcher has failed, or time is up."""
        trouble = self._placement.trouble()
        noun = "ranks" if len(missing) > 1 else "rank"
        names = f"{noun} {', '.join(map(str, missing))} of {self._size}"
        remark = self._listener.remark if self._listener is not None else ""
        if trouble:
            cause, _, log_lines = trouble.partition("\n")
            start = (
                f"{cause} ({self._placement.name}, started on {socket.gethostname()}); {names} did "
                f"not connect{remark}"
            )
            raise RanksFailed(f"{start}\n{log_lines}".rstrip())
        if time.monotonic() > self._until_s:
            tails = "\n".join(filter(None, (self._placement.tail(rank) for rank in missing)))
            message = f"{names} did not connect within {self._seconds:g} s ({self._placement.name}){remark}"
            raise RanksFailed(f"{message}\n{tails}".rstrip())

    def _settle_in(self, store_port: int) -> None:
        """Check that ranks fit together (versions, products), and give each its device. Wait until all are ready.

        `store_port` is the port of the torch store where their process groups meet.
        """
        from .facts import assign, check, check_products, threads, versions

        messages = self._receive_from_all("facts")
        facts = [messages[rank]["facts"] for rank in sorted(messages)]
        check(facts, versions(self._kind))
        devices = assign(facts) if self._kind != "cpu" else {}
        thread_counts = threads(facts)
        for rank, member in self.members.items():
            member.facts = replace(messages[rank]["facts"], threads=thread_counts[rank])
            boot = {
                "kind": "boot",
                "device": devices.get(rank),
                "threads": thread_counts[rank],
                "store": store_port,
            }
            member.channel.send(boot | self._network())
        products = {}
        for rank, message in sorted(self._receive_from_all("ready").items()):
            member = self.members[rank]
            member.environment = message["environment"]
            # Why the rank should not measure its CPU, unless the user chose it.
            if message["unwanted"] and not self._explicit:
                raise RanksFailed(f"rank {rank} on {member.host}: {message['unwanted']}")
            products[rank] = (member.host, message["environment"].device.product)
        check_products(products)

    def _network(self) -> dict[str, Any]:
        """Return what ranks need to reach each other, as fields of a message.

        They are whether the ranks are on several hosts, and this host's address as other hosts reach it.
        """
        addresses = [member.channel.addresses for member in self.members.values()]
        outward = next(
            (address for address, peer_address in addresses if not is_loopback(peer_address)), ""
        )
        return {
            "several_hosts": len({member.host for member in self.members.values()}) > 1,
            "outward": outward,
        }

    def _receive_from_all(self, kind: str) -> dict[int, Any]:
        """Wait for one message of a kind from every rank, and return them by rank.

        Raise RanksFailed if a rank is gone or time is up.
        """
        messages: dict[int, Any] = {}
        with select_members(self.members.values()) as selector:
            while len(messages) < len(self.members):
                for key, _ in selector.select(POLL_S):
                    for message in read_messages(key.data):
                        if message["kind"] == "gone":
                            raise RanksFailed(self._lost(key.data))
                        if message["kind"] == kind:
                            messages[key.data.rank] = message
                self._check([rank for rank in self.members if rank not in messages])
        return messages

    def _lost(self, member: Member) -> str:
        """Return how a rank was lost, with the last words of its log."""
        fate = self._placement.fate(member.rank) or "the connection ended"
        text = (
            f"{member.name} was lost during its start: {fate}\n{self._placement.tail(member.rank)}"
        )
        return text.rstrip()
