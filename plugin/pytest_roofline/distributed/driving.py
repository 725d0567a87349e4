"""One task on its way through the ranks of a world: it goes out, answers come back, and time runs."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from .blame import How, RankEnd
from .members import Member, listening, stacks_of
from .messages import Answer, Task
from .placement import Placement

# After a failure, for what the other ranks may have to say.
GRACE_S = 1.0
# For the last step of a task, when every rank has returned from the function.
CLOSING_S = 5.0

Tell = Callable[[int, dict[str, Any]], None]


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
    channels = {member.rank: member.channel for member in members}
    for channel in channels.values():
        # One that is just gone shows as the end of its connection below.
        with contextlib.suppress(OSError):
            channel.send({"kind": "run", "task": task}, max(0.0, progress.until_s - time.monotonic()))
    with listening(members) as selector:
        while progress.waiting and (left_s := progress.until_s - time.monotonic()) > 0:
            for key, _ in selector.select(left_s):
                rank = key.data
                try:
                    messages = channels[rank].poll()
                except EOFError:
                    messages = [{"kind": "gone"}]
                for message in messages:
                    if message["kind"] != "progress":
                        progress.note(rank, message)
                    elif tell is not None:
                        tell(rank, message["progress"])
                if rank not in progress.waiting:
                    selector.unregister(key.fileobj)
    return progress


def ends(progress: Progress, members: Sequence[Member], placement: Placement) -> list[RankEnd]:
    """How a task ended on every member, as far as it can be found out; asked before they are ended."""
    stuck = [member for member in members if progress.how(member.rank) == "stuck"]
    stopped = {member.rank for member in stuck if member.stopped}
    stacks = stacks_of([member for member in stuck if member.rank not in stopped], placement)
    fates = {rank: placement.fate(rank) for rank in progress.lost}
    found = []
    for member in members:
        rank = member.rank
        answer = progress.answers.get(rank)
        found.append(
            RankEnd(
                rank,
                member.host,
                member.pid,
                progress.how(rank),
                progress.order.get(rank, len(members)),
                fates.get(rank) or (answer.error if answer is not None else ""),
                stacks.get(rank) or (answer.traceback if answer is not None else ""),
                rank in stopped,
                progress.closing.get(rank),
            )
        )
    return found
