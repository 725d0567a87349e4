"""What the processes of a launch other than rank 0 do: start the rank that they stand for, and do as rank 0 says.

Every order is a dict with the key `do`, and gets one reply `{"done": …}`, but for `bye`.
"""

import contextlib
import os
import signal
import socket
import threading
from collections.abc import Iterator
from types import FrameType
from typing import Any

from .channel import Channel, connect
from .child import Child
from .identity import Identity
from .rendezvous import Board, meet

JOIN, ALONE = "join", "on your own"
# Rank 0's child listens before anybody is lent to it.
LEND_S = 20.0


def follow(identity: Identity, board: Board, timeout: float) -> Channel:
    """Meet rank 0, and say who this is.

    Raises:
        RanksFailed: rank 0 was not met within `timeout` seconds.
    """
    channel = meet(identity, board, timeout)
    introduce(channel, identity)
    return channel


def introduce(channel: Channel, identity: Identity) -> None:
    """Say who this is."""
    channel.send(
        {
            "rank": identity.rank,
            "size": identity.size,
            "local_rank": identity.local_rank,
            "host": socket.gethostname(),
            "pid": os.getpid(),
        }
    )


def supervise(channel: Channel, identity: Identity, child: Child | None = None) -> int | None:
    """Serve rank 0 to the end.

    Args:
        channel: to rank 0, from `follow`.
        identity: of this process.
        child: what is started; a rank.

    Returns:
        The exit status: 0 after rank 0 said so, 1 where it is gone. None where rank 0 has no test for these ranks, and
        this process goes on by itself.
    """
    child = child or Child()
    with _calm():
        try:
            if channel.receive()["do"] == ALONE:
                return None
            _serve(channel, identity, child)
            return 0
        except (EOFError, OSError):
            return 1
        finally:
            child.kill()
            channel.close()


def _serve(channel: Channel, identity: Identity, child: Child) -> None:
    while (order := channel.receive())["do"] != "bye":
        channel.send({"done": _do(order, identity, child)})


def _do(order: dict[str, Any], identity: Identity, child: Child) -> Any:
    match order["do"]:
        case "start":
            return _start(order["variables"], child)
        case "ended":
            return child.ended()
        case "fate":
            return child.fate()
        case "signal":
            return child.signal(order["number"])
        case "stacks":
            return child.stacks(order["files"][identity.rank])
        case "tail":
            return child.tail()
        case "wait":
            return child.wait(order["seconds"])
        case "kill":
            return child.kill()
        case "lend":
            return _serve_another(order, identity, child)
    raise ValueError(f"rank 0 says {order['do']!r}, which this version of pytest-roofline does not know")


def _start(variables: dict[str, str], child: Child) -> str:
    """Why the child could not be started; empty where it was."""
    try:
        child.start(variables)
    except OSError as error:
        return f"it could not be started: {error}"
    return ""


def _serve_another(order: dict[str, Any], identity: Identity, child: Child) -> str:
    """Serve another controller until it says bye or is gone; why it could not be reached, or empty."""
    child.kill()
    try:
        channel = connect(order["addresses"], order["port"], order["key"], LEND_S)
    except ConnectionError as error:
        return str(error)
    with contextlib.suppress(EOFError, OSError):
        introduce(channel, identity)
        _serve(channel, identity, child)
    child.kill()
    channel.close()
    return ""


@contextlib.contextmanager
def _calm() -> Iterator[None]:
    """Leave Ctrl-C to rank 0, which says bye; end on the launcher's SIGTERM with everything cleared away."""
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
