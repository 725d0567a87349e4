"""The controller's end of connections, which accepts peers that know the key. Also the network
interface by which ranks reach it.
"""

import contextlib
import ipaddress
import os
import queue
import secrets
import socket
import struct
import threading
import time
from collections.abc import Callable, Collection
from multiprocessing.connection import wait
from typing import Any

from ..core.errors import BadInput, RanksFailed
from ..core.units import printable
from ..processes.system import OF_FILES, raise_file_limit, reason_of
from .channel import HANDSHAKE_S, POLL_S, Channel, Endpoint, Greeting

# Seconds for the first message of a peer that has connected.
HELLO_S = 10.0
# Handshakes at a time; a further peer waits in the system's queue.
MOST_GREETINGS = 64
# Seconds for a handshake while other peers wait for room. A peer that was too slow may connect again.
SHORT_HANDSHAKE_S = 0.25
GLOO_VARIABLE = "GLOO_SOCKET_IFNAME"
# Linux: the first IPv4 address of an interface (man 7 netdevice), in a record whose name has 16 bytes.
_SIOCGIFADDR = 0x8915
_IFREQ = struct.Struct("16s240x")
_ADDRESS = slice(20, 24)


class Listener:
    """Accepts connections in a thread, so that a silent peer does not delay others.

    Only `close` ends the thread. If a connection cannot be accepted, it waits a moment and goes on.
    """

    def __init__(self, address: str, port: int = 0, key: bytes = b"") -> None:
        """Listen on an address and a port.

        An empty address is any, port 0 a free one. Without a key, one is made.
        """
        # Each rank has a connection, which is an open file.
        raise_file_limit()
        self._socket = server(address, port)
        self._socket.setblocking(False)
        self.endpoint = Endpoint(
            own_addresses(address),
            int(self._socket.getsockname()[1]),
            key or secrets.token_bytes(32),
        )
        self._accepted: queue.Queue[Channel] = queue.Queue()
        self._greetings: dict[socket.socket, Greeting] = {}
        # Why the last connection could not be accepted, and when to accept the next one.
        self._trouble, self._resume_s = "", 0.0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True, name="roofline-listener")
        try:
            self._thread.start()
        except RuntimeError as error:
            self._socket.close()
            raise RanksFailed(
                f"cannot listen for ranks: {error}; end other processes, or raise `ulimit -u`"
            ) from None

    @property
    def remark(self) -> str:
        """Return the end of a sentence: why a connection could not be accepted.

        It is empty if all could.
        """
        return f"; a connection could not be accepted: {self._trouble}" if self._trouble else ""

    def accept(self, timeout: float) -> Channel | None:
        """Return the next peer. None if none came within `timeout` seconds."""
        with contextlib.suppress(queue.Empty):
            return self._accepted.get(timeout=timeout)
        return None

    def gather(
        self,
        ranks: Collection[int],
        size: int,
        arrivals: dict[int, tuple[Channel, Any]],
        check: Callable[[list[int]], None],
        remedy: str = "",
    ) -> None:
        """Wait until every one of these ranks has introduced itself.

        Args:
            ranks: the numbers of the ranks.
            size: the number of ranks of the launch.
            arrivals: gets the channel and the first message of each rank, also of those that came before a failure.
            check: called with the ranks that are missing; it raises to end the wait.
            remedy: the end of the error about a rank that does not belong to the launch.

        Raises:
            RanksFailed: a rank that does not belong to the launch has connected, or one came twice.
        """
        while len(arrivals) < len(ranks):
            channel = self.accept(POLL_S)
            hello = None if channel is None else _first_word(channel)
            if channel is None or hello is None:
                check([rank for rank in ranks if rank not in arrivals])
                continue
            rank = hello["rank"]
            # A rank of another launch, or of an MPI that made a world of each process, has another size.
            is_of_launch = hello["size"] == size and rank in ranks
            if not is_of_launch or rank in arrivals:
                channel.close()
                raise RanksFailed(
                    printable(
                        f"a rank on {hello['host']} says that it is rank {rank} of {hello['size']}; "
                        f"expected ranks {min(ranks)} to {max(ranks)} of {size}, once each{remedy}"
                    )
                )
            arrivals[rank] = channel, hello

    def close(self) -> None:
        """End the thread, and close peers that nobody has taken yet."""
        self._closed.set()
        with contextlib.suppress(OSError):
            # This ends the thread's wait.
            self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()
        while (waiting := self.accept(0.0)) is not None:
            waiting.close()

    def _serve(self) -> None:
        """Do the handshakes of all peers, until this listener is closed."""
        while not self._closed.is_set():
            now_s = time.monotonic()
            has_room = len(self._greetings) < MOST_GREETINGS and now_s >= self._resume_s
            self._hang_up(now_s, HANDSHAKE_S if has_room else SHORT_HANDSHAKE_S)
            # Peers in a handshake, and the listening socket if a further one may be accepted.
            sockets = [*self._greetings, self._socket] if has_room else list(self._greetings)
            for ready in wait(sockets, POLL_S):
                if ready is self._socket:
                    self._admit()
                elif isinstance(ready, socket.socket):
                    self._read(ready)
        for connection in self._greetings:
            connection.close()

    def _hang_up(self, now_s: float, limit_s: float) -> None:
        """Close the connections of peers whose handshake takes too long."""
        for connection, greeting in list(self._greetings.items()):
            if now_s - greeting.began_s > limit_s:
                del self._greetings[connection]
                connection.close()

    def _admit(self) -> None:
        """Accept one connection, and begin its handshake.

        If that fails, record why, and accept none for a moment.
        """
        try:
            connection, _ = self._socket.accept()
        except BlockingIOError:
            # The peer hung up before it was accepted.
            return
        except OSError as error:
            self._trouble, self._resume_s = reason_of(error), time.monotonic() + POLL_S
            return
        try:
            self._greetings[connection] = Greeting(connection, self.endpoint.key)
        except OSError:
            connection.close()

    def _read(self, connection: socket.socket) -> None:
        """Read a peer's reply, and keep its channel once it proves the key."""
        try:
            channel = self._greetings[connection].read()
        except OSError:
            del self._greetings[connection]
            connection.close()
            return
        if channel is not None:
            del self._greetings[connection]
            self._accepted.put(channel)


def _first_word(channel: Channel) -> dict[str, Any] | None:
    """Return the first message of a peer, which introduces it.

    It is None if the peer is gone or sends something else. Its channel is closed then.
    """
    with contextlib.suppress(EOFError, OSError, BadInput):
        hello = channel.receive(HELLO_S)
        if isinstance(hello, dict) and {"rank", "size", "host"} <= hello.keys():
            return hello
    channel.close()
    return None


def server(address: str, port: int = 0) -> socket.socket:
    """Return a socket that listens on an IPv4 or IPv6 address. A name, or no address, is IPv4
    if it can be. Port 0 lets the system choose one.
    """
    try:
        entries = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM) if address else ()
        families = {family for family, *_ in entries}
        family = socket.AF_INET6 if families == {socket.AF_INET6} else socket.AF_INET
        return socket.create_server((address, port), family=family, backlog=512)
    except OSError as error:
        where = f"{address or 'any address'}:{port}" if port else address or "any address"
        if error.errno in OF_FILES:
            raise RanksFailed(f"cannot listen on {where}: {reason_of(error)}") from None
        why = str(error.strerror).partition(" (")[0]
        raise RanksFailed(
            f"cannot listen on {where}: {why}; ranks connect to this address. Pass an address of this node "
            "with --roofline-address"
        ) from None


def store_server(address: str) -> Any:
    """Return torch's store as it listens on an address.

    The ranks' process groups meet at it. An empty address is every interface. Its port is bound from the first moment,
    so that no other process can take it.
    """
    from torch.distributed import TCPStore  # type: ignore[attr-defined]

    listening = server(address)
    _, port, *_ = listening.getsockname()
    # This is the server (True) of a store for any number of ranks (None). It takes the socket over, and closes it at
    # its end.
    return TCPStore(
        address or "127.0.0.1",
        port,
        None,
        True,
        wait_for_workers=False,
        master_listen_fd=listening.detach(),
    )


def own_addresses(bound_to: str) -> tuple[str, ...]:
    """Return the names and addresses of this host.

    A peer tries them in turn to reach it. `bound_to` is the address that this host listens on; empty for all.
    """
    if bound_to:
        return (bound_to,)
    name = socket.gethostname()
    addresses = [name, socket.getfqdn()]
    with contextlib.suppress(OSError):
        entries = socket.getaddrinfo(name, None, socket.AF_INET, socket.SOCK_STREAM)
        # The last field of an entry is an address and a port.
        addresses += [str(address) for *_, (address, *_port) in entries]
    # The loopback address comes last, since on another node it leads to that node, which does not know the key.
    return tuple(dict.fromkeys([*addresses, "127.0.0.1"]))


# Network interfaces by their addresses, since Gloo takes the name of the one that other nodes reach.


def keep_gloo_reachable(address: str, outward: str) -> None:
    """Set the network interface of Gloo, torch's back end for the host.

    By it Gloo reaches ranks of other nodes. Call it before the first process group. Without it, Gloo takes the address
    of the host's name, which on Debian is 127.0.1.1. A setting of the user stays.

    Args:
        address: of this rank, as its controller reaches it.
        outward: the address of the controller's host towards other nodes, for ranks that share that host.
    """
    if GLOO_VARIABLE in os.environ:
        return
    name = interface_of(outward if is_loopback(address) else address)
    if name is not None:
        os.environ[GLOO_VARIABLE] = name


def is_loopback(address: str) -> bool:
    """Return whether an address leads to this host only."""
    with contextlib.suppress(ValueError):
        # The name of an interface may follow a `%`.
        parsed_address = ipaddress.ip_address(address.partition("%")[0])
        # An IPv6 address may stand for an IPv4 address, as `::ffff:127.0.0.1`.
        if parsed_address.version == 6 and parsed_address.ipv4_mapped is not None:
            return parsed_address.ipv4_mapped.is_loopback
        return parsed_address.is_loopback
    return False


def interface_of(address: str) -> str | None:
    """Return the interface with an IPv4 address. None if the system does not tell, or none has it."""
    import fcntl

    with (
        contextlib.suppress(OSError),
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as connection,
    ):
        packed_address = socket.inet_aton(address)
        for _, name in socket.if_nameindex():
            # The request fails for an interface without an address.
            with contextlib.suppress(OSError):
                # The answer is a record with the interface's address at a fixed place.
                record = fcntl.ioctl(connection, _SIOCGIFADDR, _IFREQ.pack(name.encode()))
                if record[_ADDRESS] == packed_address:
                    return name
    return None
