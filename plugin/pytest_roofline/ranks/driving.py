"""Ranks come, get their devices, do one task after the other; and who did what while time ran."""

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
from .blame import How, RankEnd
from .channel import Channel, to_controller
from .listener import Listener, is_loopback
from .processes import Placement, Started, is_same, process_space, stacks_at_a_signal, stat
from .tasks import Answer, Task

if TYPE_CHECKING:
    from ..core.facts import Environment
    from ..engine.log import LatestBlock
    from .facts import RankFacts

# After a failure, for what the other ranks may have to say.
GRACE_S = 1.0
# For the last step of a task, when every rank has returned from the function.
CLOSING_S = 5.0
# For the stacks of stuck ranks, which they tell themselves; one whose interpreter is blocked, at a signal.
ASK_S = 2.0
POLL_S = 0.02

Tell = Callable[[int, "LatestBlock"], None]


@dataclass(slots=True)
class Member:
    """A rank as the controller knows it.

    Args:
        stacks: the descriptor of its file of stacks.
        space: what the number of its process is of, from `processes.process_space`.
    """

    rank: int
    channel: Channel
    host: str
    process: Started
    stacks: int
    space: str
    facts: "RankFacts | None" = None
    environment: "Environment | None" = None

    @classmethod
    def of(cls, channel: Channel, hello: dict[str, Any]) -> "Member":
        """A rank by its first message."""
        process = Started(hello["pid"], hello["ticks"])
        return cls(hello["rank"], channel, hello["host"], process, hello["stacks"], hello["space"])

    @property
    def name(self) -> str:
        """`rank 1 (pid 4711 on node7)`."""
        return f"rank {self.rank} (pid {self.process.pid} on {self.host})"

    @property
    def here(self) -> bool:
        """Whether its number means the same process to this one: it runs on this host, and in no container."""
        return self.space == process_space()

    @property
    def connected(self) -> bool:
        """Whether it is still there."""
        try:
            self.channel.poll()
        except (EOFError, OSError):
            return False
        return True

    @property
    def stopped(self) -> bool:
        """Whether a signal has stopped its process, as far as this host can tell."""
        if not self.here or not is_same(self.process):
            return False
        told = stat(self.process.pid)
        return told is not None and told.state in ("T", "t")


@dataclass(slots=True)
class Progress:
    """What was heard of every rank so far.

    Args:
        waiting: ranks that have not answered.
        until_s: when their time is over, by the monotonic clock.
        answers: of those that have.
        lost: in the order in which their connections ended.
        order: when each was heard of last, counting.
        closing: ranks that have returned from the function, with the operations that they had submitted.
    """

    waiting: set[int]
    until_s: float
    answers: dict[int, Answer] = field(default_factory=dict)
    lost: list[int] = field(default_factory=list)
    order: dict[int, int] = field(default_factory=dict)
    closing: dict[int, int | None] = field(default_factory=dict)

    @property
    def failed(self) -> bool:
        """Whether something is known to have gone wrong, or one rank does not take part."""
        return bool(self.lost) or any(answer.status != "ok" for answer in self.answers.values())

    @property
    def skipped(self) -> dict[int, Answer]:
        """The ranks that found that this cannot run here; none where anything worse happened."""
        if self.lost or any(answer.status == "raised" for answer in self.answers.values()):
            return {}
        return {rank: answer for rank, answer in self.answers.items() if answer.status == "skipped"}

    def how(self, rank: int) -> How:
        """How the task ended on a rank."""
        if rank in self.lost:
            return "lost"
        if rank in self.waiting:
            return "closing" if rank in self.closing else "stuck"
        status = self.answers[rank].status
        # One that has returned from the function only noticed that the ranks are out of step.
        return "closing" if status == "raised" and rank in self.closing else status

    def note(self, rank: int, message: dict[str, Any]) -> None:
        """Take a message of a rank in."""
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
    """Have the members do a task, until all have answered, one has failed and its grace is over, or time is up."""
    progress = Progress({member.rank for member in members}, time.monotonic() + timeout_s)
    for member in members:
        # One that is just gone shows as the end of its connection below.
        with contextlib.suppress(OSError):
            member.channel.send({"kind": "run", "task": task})
    with listening(members) as selector:
        over = False
        while progress.waiting and not over:
            left_s = progress.until_s - time.monotonic()
            # What came while this process was stopped is still there when time is up.
            over = left_s <= 0
            for key, _ in selector.select(max(0.0, left_s)):
                member = key.data
                for message in heard(member):
                    if message["kind"] != "progress":
                        progress.note(member.rank, message)
                    elif tell is not None:
                        tell(member.rank, message["progress"])
                if member.rank not in progress.waiting:
                    selector.unregister(key.fileobj)
    return progress


@contextlib.contextmanager
def listening(members: Iterable[Member]) -> Iterator[selectors.BaseSelector]:
    """A selector over the channels of members, which are its data."""
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.channel, selectors.EVENT_READ, member)
        yield selector


def heard(member: Member) -> list[Any]:
    """What a member has said; `gone` where its connection has ended."""
    try:
        return member.channel.poll()
    except EOFError:
        return [{"kind": "gone"}]


def ends(progress: Progress, members: Sequence[Member], placement: Placement) -> list[RankEnd]:
    """How a task ended on every member, as far as it can be found out; asked before they are ended."""
    stuck = [member for member in members if progress.how(member.rank) == "stuck"]
    stopped = {member.rank for member in stuck if member.stopped}
    stacks = stacks_of([member for member in stuck if member.rank not in stopped], placement)
    fates = {rank: placement.fate(rank) for rank in progress.lost}
    nothing = Answer("ok")
    return [
        RankEnd(
            rank=member.rank,
            host=member.host,
            pid=member.process.pid,
            how=progress.how(member.rank),
            order=progress.order.get(member.rank, len(members)),
            text=fates.get(member.rank) or progress.answers.get(member.rank, nothing).error,
            details=stacks.get(member.rank) or progress.answers.get(member.rank, nothing).traceback,
            stopped=member.rank in stopped,
            collectives=progress.closing.get(member.rank),
        )
        for member in members
    ]


def stacks_of(members: Sequence[Member], placement: Placement) -> dict[int, str]:
    """The stacks of ranks that do not answer, as `faulthandler` writes them; those that could be had."""
    found = _asked(members)
    blocked = [member for member in members if member.rank not in found]
    found |= stacks_at_a_signal(
        {one.rank: (one.process, one.stacks) for one in blocked if one.here}
    )
    return found | {
        one.rank: placement.stacks_of(one.rank, one.stacks) for one in blocked if not one.here
    }


def _asked(members: Sequence[Member]) -> dict[int, str]:
    """From the thread of each that listens to the controller."""
    found: dict[int, str] = {}
    for member in members:
        with contextlib.suppress(OSError):
            member.channel.send({"kind": "stacks"})
    until_s = time.monotonic() + ASK_S
    while len(found) < len(members) and time.monotonic() < until_s:
        for member in members:
            with contextlib.suppress(OSError):
                for message in heard(member):
                    if message["kind"] == "stacks":
                        found[member.rank] = message["text"]
        time.sleep(POLL_S)
    return found


class Boot:
    """Ranks are started, come, say what they are, are found to fit together, and get their devices."""

    def __init__(
        self,
        placement: Placement,
        size: int,
        kind: str,
        address: str,
        seconds: float,
        *,
        asked: bool = True,
    ) -> None:
        self.members: dict[int, Member] = {}
        self._placement, self._size, self._kind, self._address = placement, size, kind, address
        self._seconds, self._asked = seconds, asked
        self._until_s = time.monotonic() + seconds
        self._listener: Listener | None = None

    def run(self, store_port: int) -> None:
        """Start the ranks, and wait until they are ready; `members` has those that came, also after a failure."""
        self._listener = listener = Listener(self._address)
        came: dict[int, tuple[Channel, Any]] = {}
        try:
            self._placement.start(self._size, to_controller(listener.endpoint))
            listener.gather(
                range(self._size),
                self._size,
                came,
                self._check,
                f": was it started by another MPI's or Slurm's {self._placement.name} than its libraries belong to? "
                "Then every process is a world of its own",
            )
        finally:
            self.members = {
                rank: Member.of(channel, hello) for rank, (channel, hello) in came.items()
            }
            listener.close()
        join = {"kind": "join", "device": self._kind, "path": sys.path, "folder": str(Path.cwd())}
        for member in self.members.values():
            member.channel.send(join)
        self._settle_in(store_port)

    def _check(self, missing: Sequence[int]) -> None:
        """Give up where the launcher has, or the time is over."""
        trouble = self._placement.trouble()
        names = f"rank{'s' * (len(missing) > 1)} {', '.join(map(str, missing))} of {self._size}"
        remark = self._listener.remark if self._listener is not None else ""
        if trouble:
            cause, _, words = trouble.partition("\n")
            start = f"{cause} ({self._placement.name}, started on {socket.gethostname()}); {names} did not come{remark}"
            raise RanksFailed(f"{start}\n{words}".rstrip())
        if time.monotonic() > self._until_s:
            tails = "\n".join(filter(None, (self._placement.tail(rank) for rank in missing)))
            late = (
                f"{names} did not come within {self._seconds:g} s ({self._placement.name}){remark}"
            )
            raise RanksFailed(f"{late}\n{tails}".rstrip())

    def _settle_in(self, store_port: int) -> None:
        """Check that the ranks fit together, give each its device, and wait until all are ready."""
        from .facts import assign, check, check_products, threads, versions

        told = self._each("facts")
        facts = [told[rank]["facts"] for rank in sorted(told)]
        check(facts, versions(self._kind))
        devices = assign(facts) if self._kind != "cpu" else {}
        shares = threads(facts)
        for rank, member in self.members.items():
            member.facts = replace(told[rank]["facts"], threads=shares[rank])
            boot = {
                "kind": "boot",
                "device": devices.get(rank),
                "threads": shares[rank],
                "store": store_port,
            }
            member.channel.send(boot | self._network())
        products = {}
        for rank, message in sorted(self._each("ready").items()):
            member = self.members[rank]
            member.environment = message["environment"]
            if message["unwanted"] and not self._asked:
                raise RanksFailed(f"rank {rank} on {member.host}: {message['unwanted']}")
            products[rank] = (member.host, message["environment"].device.product)
        check_products(products)

    def _network(self) -> dict[str, Any]:
        """Whether ranks must reach other nodes, and by which of its addresses those reach this one."""
        ends = [member.channel.addresses for member in self.members.values()]
        outward = next((own for own, peer in ends if not is_loopback(peer)), "")
        return {
            "several_hosts": len({one.host for one in self.members.values()}) > 1,
            "outward": outward,
        }

    def _each(self, kind: str) -> dict[int, Any]:
        """One message of a kind from every rank."""
        found: dict[int, Any] = {}
        with listening(self.members.values()) as selector:
            while len(found) < len(self.members):
                for key, _ in selector.select(POLL_S):
                    for message in heard(key.data):
                        if message["kind"] == "gone":
                            raise RanksFailed(self._lost(key.data))
                        if message["kind"] == kind:
                            found[key.data.rank] = message
                self._check([rank for rank in self.members if rank not in found])
        return found

    def _lost(self, member: Member) -> str:
        fate = self._placement.fate(member.rank) or "its connection ended"
        told = (
            f"{member.name} was lost during its boot: {fate}\n{self._placement.tail(member.rank)}"
        )
        return told.rstrip()
