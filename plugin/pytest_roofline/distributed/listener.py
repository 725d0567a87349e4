"""Where the controller listens: who knows the key comes in, and says which rank it is."""

import contextlib
import operator
import queue
import socket
import threading
from collections.abc import Callable, Collection
from typing import Any

from ..core.errors import BadInput, RanksFailed
from .channel import POLL_S, Channel, Endpoint, greet, new_key

# What ranks did, or an address that is none, says itself where it lies; our own frames do not help.
__tracebackhide__ = operator.methodcaller("errisinstance", RanksFailed)

# For the first word of whoever has connected.
HELLO_S = 10.0


class Listener:
    """Accepts connections in a thread, so that a stranger who says nothing keeps nobody waiting.

    Args:
        address: to bind to; empty is every interface.
        port: 0 takes a free one, which stays bound.
        key: that peers must know; a fresh one by default.

    Raises:
        RanksFailed: the port is taken, or the address is not this machine's.
    """

    def __init__(self, address: str, port: int = 0, key: bytes = b"") -> None:
        self._socket = server(address, port)
        self.endpoint = Endpoint(own_addresses(address), int(self._socket.getsockname()[1]), key or new_key())
        self.refused = 0
        """Connections that did not know the key, or said nothing."""
        self._accepted: queue.Queue[Channel] = queue.Queue()
        threading.Thread(target=self._accept, daemon=True, name="roofline-listener").start()

    def accept(self, timeout: float) -> Channel | None:
        """The next peer; None where none came within `timeout` seconds."""
        with contextlib.suppress(queue.Empty):
            return self._accepted.get(timeout=timeout)
        return None

    def gather(
        self,
        ranks: Collection[int],
        size: int,
        came: dict[int, tuple[Channel, Any]],
        check: Callable[[list[int]], None],
        remedy: str = "",
    ) -> None:
        """Wait until every one of some ranks has come and said who it is.

        Args:
            ranks: their numbers.
            size: of the world that each must name.
            came: gets the channel and the first message of each.
            check: called with those that are missing, again and again; raises to give up.
            remedy: where one came that does not belong here.

        Raises:
            RanksFailed: one came that does not belong here.
        """
        while len(came) < len(ranks):
            channel = self.accept(POLL_S)
            hello = None if channel is None else _first_word(channel)
            if channel is None or hello is None:
                check([rank for rank in ranks if rank not in came])
                continue
            rank = hello["rank"]
            if hello["size"] != size or rank in came or rank not in ranks:
                channel.close()
                raise RanksFailed(
                    f"a rank on {hello['host']} says that it is rank {rank} of {hello['size']}; expected ranks "
                    f"{min(ranks)} to {max(ranks)} of {size}, once each{remedy}"
                )
            came[rank] = channel, hello

    def close(self) -> None:
        """Accept nobody any more."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
        while (waiting := self.accept(0.0)) is not None:
            waiting.close()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            threading.Thread(target=self._greet, args=(connection,), daemon=True, name="roofline-greeting").start()

    def _greet(self, connection: socket.socket) -> None:
        try:
            greet(connection, self.endpoint.key)
        except OSError:
            self.refused += 1
            connection.close()
            return
        self._accepted.put(Channel(connection))


def _first_word(channel: Channel) -> dict[str, Any] | None:
    """What a peer says of itself; None, and no channel any more, where it is gone again or speaks of something else."""
    with contextlib.suppress(EOFError, OSError, BadInput):
        hello = channel.receive(HELLO_S)
        if isinstance(hello, dict) and {"rank", "size", "host"} <= hello.keys():
            return hello
    channel.close()
    return None


def server(address: str, port: int = 0) -> socket.socket:
    """A socket that listens on an address of either family; of a name, and where none is given, by IPv4 if it can be.

    Args:
        address: empty is every interface.
        port: 0 takes a free one.

    Raises:
        RanksFailed: the port is taken, or the address is not this machine's.
    """
    try:
        entries = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM) if address else ()
        family = socket.AF_INET6 if {entry[0] for entry in entries} == {socket.AF_INET6} else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=512)
    except OSError as error:
        where = f"{address or 'any address'}:{port}" if port else address or "any address"
        why = str(error.strerror).partition(" (")[0]
        raise RanksFailed(
            f"cannot listen on {where}: {why}; ranks connect there, so name an address of this machine with "
            "--roofline-address"
        ) from None


def store_server(address: str) -> Any:
    """A torch store that listens on an address (empty is every interface); its port is bound from the first moment."""
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listening = server(address)
    port = listening.getsockname()[1]
    # The store takes the socket over, and closes it at its end.
    return TCPStore(
        address or "127.0.0.1", port, None, True, wait_for_workers=False, master_listen_fd=listening.detach()
    )


def own_addresses(bound_to: str) -> tuple[str, ...]:
    """Under which names and addresses this host can be reached, to try in turn.

    Args:
        bound_to: the address that is listened on; empty is all of them.
    """
    if bound_to:
        return (bound_to,)
    name = socket.gethostname()
    found = [name, socket.getfqdn()]
    with contextlib.suppress(OSError):
        found += [str(entry[4][0]) for entry in socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)]
    # Last, since elsewhere it is another host, which then does not know the key.
    return tuple(dict.fromkeys([*found, "127.0.0.1"]))
