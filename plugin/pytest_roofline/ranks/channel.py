"""The control channel: one authenticated TCP connection for each rank.

Both sides prove that they know the key before anything else is read (HMAC-SHA-256 over fresh random numbers). Messages
are plain data in frames of bounded length; the end of the connection is the end of the peer.
"""

import contextlib
import hmac
import json
import os
import secrets
import socket
import struct
import threading
import time
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from ..core.errors import BadInput
from .tasks import MOST_BYTES, decode, encode

_HELLO = b"pytest-roofline-3"
_NONCE = 32
# The largest result, with room for the message around it.
_MOST_FRAME = MOST_BYTES + 2**20
# The variable with the address of the controller and the key. It is in hexadecimal digits, which no launcher's quoting
# changes.
CONTROLLER_VARIABLE = "ROOFLINE_RANK_CONTROLLER"
# Seconds for a handshake.
HANDSHAKE_S = 5.0
POLL_S = 0.05
# Seconds without a byte of a message after which its peer counts as gone. A rank that is stopped in the middle of a
# message must not stop its controller, but a rank that waits for a core may be slow.
STALL_S = 5
# A peer whose machine is gone does not end its connection. The kernel probes it, and gives up in some 15 seconds.
_KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3))
# The kernel does not probe while data are unacknowledged, but resends them for a quarter of an hour. The controller
# gives up after these milliseconds, which are more than a peer that is only stopped may stall.
_UNANSWERED = (("TCP_USER_TIMEOUT", 25_000),)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The addresses and the key of a listening controller.

    Args:
        addresses: of its host, to try in turn.
        port: that it listens on.
        key: the secret that each side proves to know.
    """

    addresses: tuple[str, ...]
    port: int
    key: bytes

    @property
    def text(self) -> str:
        """Return the endpoint as text.

        The text has the key, so it may only go into a file or variable that nobody else can read.
        """
        return json.dumps({"addresses": self.addresses, "port": self.port, "key": self.key.hex()})

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """Return the endpoint (addresses, port and key of a listener) that a JSON text describes.

        Raise ValueError for any other text.
        """
        try:
            plain = json.loads(text)
            return cls(
                tuple(map(str, plain["addresses"])), int(plain["port"]), bytes.fromhex(plain["key"])
            )
        except (KeyError, TypeError) as error:
            raise ValueError(f"no endpoint: {error!r}") from None


def to_controller(endpoint: Endpoint) -> dict[str, str]:
    """Return the variable that leads ranks to their controller.

    It holds the key, so it must never be on a command line.
    """
    return {CONTROLLER_VARIABLE: endpoint.text.encode().hex()}


def pop_controller() -> Endpoint:
    """Return where this rank's controller listens. The variable is removed, so that nothing that a
    rank function starts can read the key.
    """
    try:
        return Endpoint.parse(bytes.fromhex(os.environ.pop(CONTROLLER_VARIABLE, "")).decode())
    except ValueError:
        raise BadInput(f"{CONTROLLER_VARIABLE} is not set; only pytest starts ranks") from None


class Channel:
    """A connection whose peer has shown that it knows the key. One thread may receive, any may send.

    With `stall_s`, a peer that moves no byte for so many seconds in the middle of a message counts as gone.
    """

    def __init__(self, connection: socket.socket, stall_s: int = 0) -> None:
        """Take over a connection after its handshake.

        The system is asked to notice a peer that is gone. A peer that moves no byte for `stall_s` seconds in the middle
        of a message counts as gone; 0 is no limit.
        """
        self._sending = threading.Lock()
        # True after a message was sent in part.
        self._is_cut_off = False
        own_address, *_ = connection.getsockname()
        peer_address, *_ = connection.getpeername()
        self.addresses = str(own_address), str(peer_address)
        """The address of this end, and that of the other end."""
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # Not every system has each of these options.
        for name, setting in (*_KEEPALIVE, *(_UNANSWERED if stall_s else ())):
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), setting)
        if stall_s:
            # A C `struct timeval`: seconds and microseconds.
            limit = struct.pack("@ll", stall_s, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        # `Connection` takes the descriptor over, and closes it at its end.
        self._connection: Connection[Any, Any] = Connection(connection.detach())

    def fileno(self) -> int:
        """Return the descriptor, for selectors."""
        return self._connection.fileno()

    def send(self, message: object) -> None:
        """Send plain data. Raise OSError if the peer is gone or takes nothing; then nothing more
        can be sent.
        """
        frame = encode(message, "a message", _MOST_FRAME)
        with self._sending:
            if self._is_cut_off:
                raise TimeoutError(
                    "the peer missed an earlier message, so the connection is unusable"
                )
            try:
                self._connection.send_bytes(frame)
            except BlockingIOError:
                # The peer waits for the other part of this message, so no later message would be understood.
                self._is_cut_off = True
                raise TimeoutError("the peer accepted no message in time") from None

    def poll(self) -> list[Any]:
        """Return every message that has arrived. Raise EOFError if the peer is gone and no message
        is left.
        """
        messages: list[Any] = []
        while self._connection.poll(0.0):
            try:
                messages.append(self._read())
            except EOFError:
                # The next call raises it again, after the caller has handled these messages.
                if messages:
                    break
                raise
        return messages

    def receive(self, timeout: float | None = None) -> Any:
        """Return the next message. Wait for so many seconds, or with None as long as it takes.
        Raise EOFError if the peer is gone.
        """
        if not self._connection.poll(timeout):
            raise TimeoutError(f"no message within {timeout or 0.0:g} s")
        return self._read()

    def close(self, *, shut: bool = True) -> None:
        """End the connection for both sides.

        Without `shut` only this process closes it, and it stays open in a process that has inherited it.
        """
        if self._connection.closed:
            return
        # `Connection` cannot shut a socket down, so this is done by another descriptor of it.
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(self.fileno())) as duplicate:
            if shut:
                duplicate.shutdown(socket.SHUT_RDWR)
        self._connection.close()

    def _read(self) -> Any:
        """Return the next message; raise EOFError if the connection has ended."""
        try:
            frame = self._connection.recv_bytes(_MOST_FRAME)
        except OSError:
            raise EOFError("the connection has ended") from None
        return decode(frame, "a message")


class Greeting:
    """The listener's side of one handshake. It never waits for the peer."""

    def __init__(self, connection: socket.socket, key: bytes) -> None:
        """Begin the handshake.

        The greeting is sent with a random number, to which the peer must prove the key.
        """
        self.connection = connection
        self.began_s = time.monotonic()
        self._key, self._nonce, self._reply = key, secrets.token_bytes(_NONCE), b""
        connection.setblocking(False)
        # Both messages of this side fit into the buffer of a new connection.
        connection.sendall(_HELLO + self._nonce)

    def read(self) -> Channel | None:
        """Read on in the handshake.

        Return the channel once the peer has proved that it knows the key. None before that. Raise OSError if the proof
        is wrong.
        """
        # The reply is the peer's random number and its proof, which are equally long.
        with contextlib.suppress(BlockingIOError):
            self._reply += _piece(self.connection, 2 * _NONCE - len(self._reply))
        if len(self._reply) < 2 * _NONCE:
            return None
        peer_nonce, proof = self._reply[:_NONCE], self._reply[_NONCE:]
        if not hmac.compare_digest(proof, _proof(self._key, b"peer", self._nonce, peer_nonce)):
            raise OSError("wrong key")
        self.connection.sendall(_proof(self._key, b"controller", peer_nonce, self._nonce))
        return Channel(self.connection, STALL_S)


def connect(endpoint: Endpoint, timeout: float) -> Channel:
    """Return a channel to a listener, by the first address that answers.

    Raises:
        ConnectionError: no address answered within `timeout` seconds; each was tried once at least.
    """
    until_s, reason = time.monotonic() + timeout, "no address was given"
    while True:
        for address in endpoint.addresses:
            try:
                return Channel(_introduce(address, endpoint))
            except OSError as error:
                reason = f"{address}:{endpoint.port}: {error}"
        if time.monotonic() > until_s:
            raise ConnectionError(f"the controller did not answer within {timeout:g} s ({reason})")
        time.sleep(POLL_S)


def _introduce(address: str, endpoint: Endpoint) -> socket.socket:
    """Return a connection to a listener after a handshake.

    In it both sides prove that they know the key. The listener sends its greeting and a random number (nonce). This
    side answers with its own number and its proof, and the listener with its proof.
    """
    connection = socket.create_connection((address, endpoint.port), timeout=HANDSHAKE_S)
    try:
        if _read_exactly(connection, len(_HELLO)) != _HELLO:
            raise ConnectionError(
                "another program, or another version of pytest-roofline, answers at this address"
            )
        listener_nonce, nonce = _read_exactly(connection, _NONCE), secrets.token_bytes(_NONCE)
        connection.sendall(nonce + _proof(endpoint.key, b"peer", listener_nonce, nonce))
        expected = _proof(endpoint.key, b"controller", nonce, listener_nonce)
        if not hmac.compare_digest(_read_exactly(connection, _NONCE), expected):
            raise ConnectionError("the controller does not know the key")
    except BaseException:
        connection.close()
        raise
    return connection


def _proof(key: bytes, role: bytes, asking_nonce: bytes, proving_nonce: bytes) -> bytes:
    """Return the proof that the side with a role knows the key.

    The nonces are random numbers of the side that asks for the proof, and of the side that gives it.
    """
    return hmac.digest(key, role + asking_nonce + proving_nonce, "sha256")


def _read_exactly(connection: socket.socket, byte_count: int) -> bytes:
    """Return the next so many bytes; wait until all have arrived."""
    content = b""
    while len(content) < byte_count:
        content += _piece(connection, byte_count - len(content))
    return content


def _piece(connection: socket.socket, most_bytes: int) -> bytes:
    """Return the bytes that have come, at least one. Raise ConnectionError at the end."""
    content = connection.recv(most_bytes)
    if not content:
        raise ConnectionError("the connection ended during the handshake")
    return content
