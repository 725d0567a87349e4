"""Ranks as the controller knows them, and what it can find out about one that does not answer."""

import contextlib
import os
import selectors
import signal
import socket
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .channel import Channel
from .placement import Placement

if TYPE_CHECKING:
    from ..core.facts import Environment
    from .facts import RankFacts

# For the stacks of stuck ranks: by the rank itself, and by a signal where its interpreter is blocked.
ASK_S, SIGNAL_S = 0.5, 0.2
POLL_S = 0.02


@dataclass(slots=True)
class Member:
    """A rank as the controller knows it.

    Args:
        rank: its number.
        channel: to it.
        host: that it runs on.
        pid: of its process there.
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
    facts: "RankFacts | None" = None
    environment: "Environment | None" = None
    backends: tuple[str, ...] = ()

    @property
    def here(self) -> bool:
        """Whether it runs on this host."""
        return self.host == socket.gethostname()

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
        if not self.here:
            return False
        with contextlib.suppress(OSError, IndexError):
            return Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()[0] in ("T", "t")
        return False


def stacks_of(members: Sequence[Member], placement: Placement) -> dict[int, str]:
    """The stacks of ranks that do not answer, as `faulthandler` writes them; those that could be had."""
    found = _asked(members)
    for member in members:
        if member.rank not in found and _signalled(member, placement, signal.SIGUSR1):
            time.sleep(SIGNAL_S)
            found[member.rank] = _written(member)
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
    if placement.signal(member.rank, number):
        return True
    if not member.here:
        return False
    with contextlib.suppress(OSError):
        os.kill(member.pid, number)
        return True
    return False


def _written(member: Member) -> str:
    """What a rank of this host wrote into its nameless file of stacks."""
    with contextlib.suppress(OSError):
        return Path(f"/proc/{member.pid}/fd/{member.stacks}").read_text(errors="replace")
    return ""


@contextlib.contextmanager
def listening(members: Iterable[Member]) -> Iterator[selectors.BaseSelector]:
    """A selector over the channels of members, with their numbers as data."""
    with selectors.DefaultSelector() as selector:
        for member in members:
            selector.register(member.channel, selectors.EVENT_READ, member.rank)
        yield selector
