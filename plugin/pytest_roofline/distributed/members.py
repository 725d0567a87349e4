"""Ranks as the controller knows them, and what it can find out about one that does not answer."""

import contextlib
import selectors
import signal
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .channel import Channel
from .placement import Placement, RemoteStacks
from .processes import SIGNAL_S, Started, is_same, process_space, signal_to, stacks_of_process

if TYPE_CHECKING:
    from ..core.facts import Environment
    from .facts import RankFacts

# For the stacks of stuck ranks, which they tell themselves; one whose interpreter is blocked, at a signal.
ASK_S = 0.5
POLL_S = 0.02


@dataclass(slots=True)
class Member:
    """A rank as the controller knows it.

    Args:
        rank: its number.
        channel: to it.
        host: that it runs on.
        pid: of its process there.
        space: what its number is of, from `processes.process_space`.
        ticks: when it started, from `processes.started`.
        stacks: the descriptor of its file of stacks.
        facts: what it said at boot.
        environment: of its device.
        backends: that can serve it.
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
    backends: tuple[str, ...] = ()

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


def stacks_of(members: Sequence[Member], placement: Placement) -> dict[int, str]:
    """The stacks of ranks that do not answer, as `faulthandler` writes them; those that could be had."""
    found = _asked(members)
    blocked = [member for member in members if member.rank not in found]
    here = [member for member in blocked if member.here]
    signalled = [member for member in here if _signalled(member, placement, signal.SIGUSR1)]
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
            with contextlib.suppress(EOFError, OSError):
                for message in member.channel.poll():
                    if message["kind"] == "stacks":
                        found[member.rank] = message["text"]
        time.sleep(POLL_S)
    return found


def _signalled(member: Member, placement: Placement, number: int) -> bool:
    return signal_to(member.process, number) or placement.signal(member.rank, number)


@contextlib.contextmanager
def listening(members: Iterable[Member]) -> Iterator[selectors.BaseSelector]:
    """A selector over the channels of members, with their numbers as data."""
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.channel, selectors.EVENT_READ, member.rank)
        yield selector
