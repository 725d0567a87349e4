"""One task on its way through the ranks of a world: it goes out, answers come back, time runs; and who did what."""

import contextlib
import selectors
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .blame import How, RankEnd
from .channel import Channel
from .messages import Answer, Task
from .placement import Placement, RemoteStacks
from .processes import SIGNAL_S, Started, is_same, process_space, signal_to, stacks_of_process

if TYPE_CHECKING:
    from ..core.facts import Environment
    from .facts import RankFacts

# After a failure, for what the other ranks may have to say.
GRACE_S = 1.0
# For the last step of a task, when every rank has returned from the function.
CLOSING_S = 5.0
# For the stacks of stuck ranks, which they tell themselves; one whose interpreter is blocked, at a signal.
ASK_S = 0.5
POLL_S = 0.02

Tell = Callable[[int, dict[str, Any]], None]


@dataclass(slots=True)
class Member:
    """A rank as the controller knows it.

    Args:
        rank: its number.
        channel: to it.
        host: that it runs on.
        pid: of its process there.
        stacks: the descriptor of its file of stacks.
        space: what its number is of, from `processes.process_space`.
        ticks: when it started, from `processes.started`.
        facts: what it said at boot.
        environment: of its device.
    """

    rank: int
    channel: Channel
    host: str
    pid: int
    stacks: int
    space: str
    ticks: int | None
    facts: "RankFacts | None" = None
    environment: "Environment | None" = None

    @property
    def here(self) -> bool:
        """Whether its number means the same process to this one: it runs on this host, and in no container."""
        return self.space == process_space()

    @property
    def process(self) -> Started:
        """Its process, for where it is `here`."""
        return Started(self.pid, self.ticks)

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
        with contextlib.suppress(OSError, IndexError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
        return False


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
        if status == "raised" and rank in self.closing:
            # It only noticed, after its own function, that the ranks are out of step.
            return "closing"
        return "raised" if status == "raised" else ("skipped" if status == "skipped" else "ok")

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
            member.channel.send({"kind": "run", "task": task}, max(0.0, progress.until_s - time.monotonic()))
    with listening(members) as selector:
        while progress.waiting and (left_s := progress.until_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
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
    nothing = Answer(0, "")
    return [
        RankEnd(
            rank=member.rank,
            host=member.host,
            pid=member.pid,
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
    here = [member for member in blocked if member.here]
    signalled = [
        member
        for member in here
        if signal_to(member.process, signal.SIGUSR1) or placement.signal(member.rank, signal.SIGUSR1)
    ]
    if signalled:
        time.sleep(SIGNAL_S)
    found |= {member.rank: stacks_of_process(member.pid, member.stacks) for member in signalled}
    if isinstance(placement, RemoteStacks):
        found |= placement.stacks({member.rank: member.stacks for member in blocked if member not in here})
    return found


def _asked(members: Sequence[Member]) -> dict[int, str]:
    """From the thread of each that listens to the controller."""
    found: dict[int, str] = {}
    for member in members:
        with contextlib.suppress(OSError):
            member.channel.send({"kind": "stacks"}, ASK_S)
    until_s = time.monotonic() + ASK_S
    while len(found) < len(members) and time.monotonic() < until_s:
        for member in members:
            with contextlib.suppress(OSError):
                for message in heard(member):
                    if message["kind"] == "stacks":
                        found[member.rank] = message["text"]
        time.sleep(POLL_S)
    return found
