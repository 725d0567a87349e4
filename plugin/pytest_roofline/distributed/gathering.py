"""How rank 0 of a launch comes by the other processes: it posts where it is and waits for them, or borrows them."""

import contextlib
import os
import socket
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import BadInput, RanksFailed
from .attach import Attached
from .channel import Channel, Listener, listen, new_key
from .identity import Identity
from .messages import own_addresses
from .rendezvous import MEET_S, Board, FileBoard, Meeting

# Names a file, in which a round of rank 0 says where the lent supervisors shall come.
LENT_VARIABLE = "ROOFLINE_ATTACH_LENT"
HELLO_S = 5.0
POLL_S = 0.1


def gather(identity: Identity, board: Board, timeout: float = MEET_S, bind: str = "") -> Attached:
    """Post where rank 0 is, and wait until every other process of the launch has come.

    Args:
        identity: of rank 0.
        board: of the launch.
        timeout: seconds.
        bind: address to listen on; empty is all.

    Raises:
        RanksFailed: some did not come.
    """
    listener, meeting = _listen(bind, board.key)
    try:
        board.post(replace(meeting, key=b"").text if board.key else meeting.text)
        return _accept(listener, identity, timeout)
    finally:
        # All are there, or it is over: nobody reads it any more.
        board.close()
        listener.close()


def borrow(path: Path, identity: Identity, timeout: float = MEET_S) -> Attached:
    """In a round of rank 0: take over the processes that rank 0 lends. They serve at once, without `join`.

    Args:
        path: that `LENT_VARIABLE` names.
        identity: of rank 0.
        timeout: seconds.

    Raises:
        RanksFailed: some did not come.
    """
    listener, meeting = _listen("")
    board = FileBoard(path)
    try:
        board.post(meeting.text)
        return _accept(listener, identity, timeout)
    finally:
        board.close()
        listener.close()


class Lender:
    """Rank 0's side of `borrow`, for as long as one round runs.

    Args:
        attached: what to lend.
        path: that the round gets in `LENT_VARIABLE`.
    """

    def __init__(self, attached: Attached, path: Path) -> None:
        self._attached = attached
        self._path = path
        self._done = False

    @property
    def variables(self) -> dict[str, str]:
        """For the round's environment."""
        return {LENT_VARIABLE: str(self._path)}

    def poll(self) -> None:
        """Lend, once the round has said where to; to be called again and again."""
        text = FileBoard(self._path).read(0) if not self._done and self._path.exists() else None
        if text is None:
            return
        with contextlib.suppress(OSError, ValueError):
            meeting = Meeting.parse(text)
            self._done = True
            self._attached.lend(meeting)


def pop_lent() -> Path | None:
    """Where this round shall say that it wants the supervisors; None where this is no round of an attached rank 0."""
    path = os.environ.pop(LENT_VARIABLE, "")
    return Path(path) if path else None


def _listen(bind: str, known: bytes = b"") -> tuple[Listener, Meeting]:
    key = known or new_key()
    listener = listen(bind, key)
    addresses = own_addresses(bind)
    # Last, since elsewhere it is another host, which then does not know the key.
    return listener, Meeting((*addresses, *(["127.0.0.1"] if not bind else [])), listener.port, key)


def _accept(listener: Listener, identity: Identity, timeout: float) -> Attached:
    channels: dict[int, Channel] = {}
    hosts: dict[int, str] = {}
    local_ranks: dict[int, int] = {}
    until_s = time.monotonic() + timeout
    while len(channels) < identity.size - 1:
        channel = listener.accept(POLL_S)
        if channel is None:
            if time.monotonic() > until_s:
                raise RanksFailed(_missing(identity, channels, timeout))
            continue
        hello = _hello(channel)
        if hello is None:
            channel.close()
            continue
        rank = hello["rank"]
        if hello["size"] != identity.size or rank in channels or not 0 < rank < identity.size:
            raise RanksFailed(
                f"a process on {hello['host']} says that it is rank {rank} of "
                f"{hello['size']}; expected ranks 1 to {identity.size - 1} of {identity.size}, once each"
            )
        channels[rank], hosts[rank], local_ranks[rank] = channel, hello["host"], hello["local_rank"]
    return Attached(identity, channels, hosts, local_ranks)


def _hello(channel: Channel) -> dict[str, Any] | None:
    """What it says of itself; None where it is gone again or speaks of something else, of which the others tell."""
    with contextlib.suppress(EOFError, OSError, BadInput):
        hello = channel.receive(HELLO_S)
        if isinstance(hello, dict) and {"rank", "size", "local_rank", "host"} <= hello.keys():
            return hello
    return None


def _missing(identity: Identity, channels: dict[int, Channel], timeout: float) -> str:
    ranks = [str(rank) for rank in range(1, identity.size) if rank not in channels]
    return (
        f"rank{'s' * (len(ranks) > 1)} {', '.join(ranks)} of {identity.size} did not come to rank 0 on "
        f"{socket.gethostname()} within {timeout:g} s. Expected every process of this launch "
        f"({identity.launcher}) to run the same pytest; to run pytest by itself, start it outside of the launch"
    )
