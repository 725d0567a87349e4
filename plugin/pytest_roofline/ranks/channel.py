"""One authenticated TCP connection a rank: the control channel between the controller and what it started.

Both sides prove that they know the key before anything else is read (HMAC-SHA-256 over fresh random numbers). Messages
are plain data in frames of bounded length; the end of the connection is the end of the peer.
"""

import contextlib
import errno
import hmac
import json
import secrets
import select
import socket
import struct
import threading
import time
from dataclasses import dataclass
from typing import Any

from ..core.errors import BadInput
from .wire import MOST_BYTES, decode, encode

_HELLO = b"pytest-roofline-2"
_NONCE = 32
_LENGTH = struct.Struct(">Q")
# A result of the largest size, with what is wrapped around it.
_MOST_FRAME = MOST_BYTES + 2**20
# Strangers that connect and say nothing are dropped after so many seconds.
HANDSHAKE_S = 5.0
POLL_S = 0.05
# A peer whose machine is gone ends no connection by itself: the kernel asks after it, and gives up in some 15 seconds.
_KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3))


def new_key() -> bytes:
    """A fresh secret."""
    return secrets.token_bytes(_NONCE)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a controller listens.

    Args:
        addresses: of its host, to try in turn.
        port: that it listens on.
        key: by which both sides prove themselves.
    """

    addresses: tuple[str, ...]
    port: int
    key: bytes

    @property
    def text(self) -> str:
        """For a file or a variable that nobody else reads."""
        return json.dumps({"addresses": self.addresses, "port": self.port, "key": self.key.hex()})

    @classmethod
    def parse(cls, text: str) -> "Endpoint":
        """What `text` wrote."""
        try:
            plain = json.loads(text)
            return cls(tuple(map(str, plain["addresses"])), int(plain["port"]), bytes.fromhex(plain["key"]))
        except (KeyError, TypeError) as error:
            raise ValueError(f"no endpoint: {error!r}") from None


class Channel:
    """A connection whose peer has shown that it knows the key. One thread may receive, any may send."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self._buffer = bytearray()
        self._sending = threading.Lock()
        self._cut_off = False
        connection.settimeout(None)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in _KEEPALIVE:
            if hasattr(socket, name):
                connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)

    def fileno(self) -> int:
        """For selectors."""
        return self._socket.fileno()

    @property
    def addresses(self) -> tuple[str, str]:
        """Of this end and of the other."""
        return str(self._socket.getsockname()[0]), str(self._socket.getpeername()[0])

    def send(self, message: object, timeout: float | None = None) -> None:
        """Send plain data, within so many seconds or (None) whenever the peer takes it."""
        data = encode(message, "a message", _MOST_FRAME)
        until_s = None if timeout is None else time.monotonic() + timeout
        with self._sending:
            left = memoryview(_LENGTH.pack(len(data)) + data)
            while left:
                left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
                if self._cut_off:
                    raise TimeoutError("the peer took no message in time before, and would not know where one begins")
                if not self._ready(select.POLLOUT, left_s):
                    # The rest of a message that was begun will never come.
                    self._cut_off = True
                    raise TimeoutError(f"the peer took no message within {timeout or 0.0:g} s")
                with contextlib.suppress(BlockingIOError):
                    left = left[self._socket.send(left, socket.MSG_DONTWAIT) :]

    def _ready(self, what: int, seconds: float | None) -> bool:
        """Whether the socket is ready, or has ended, within so many seconds; any descriptor may have any number."""
        if self._socket.fileno() < 0:
            raise OSError(errno.EBADF, "the connection was closed at this end")
        poller = select.poll()
        poller.register(self._socket, what)
        return bool(poller.poll(None if seconds is None else 1e3 * seconds))

    def poll(self) -> list[Any]:
        """Every whole message that has arrived, without waiting."""
        gone = self._read_what_is_there()
        messages = []
        while (message := self._take()) is not None:
            messages.append(message[0])
        if gone and not messages:
            raise EOFError("the connection has ended")
        return messages

    def receive(self, timeout: float | None = None) -> Any:
        """The next message, within so many seconds or (None) whenever it comes."""
        until_s = None if timeout is None else time.monotonic() + timeout
        while (message := self._take()) is None:
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            if not self._ready(select.POLLIN, left_s):
                raise TimeoutError(f"no message within {timeout or 0.0:g} s")
            if self._read_some(0):
                raise EOFError("the connection has ended")
        return message[0]

    def close(self, *, shut: bool = True) -> None:
        """End the connection; or only this process's part in it, where another one has inherited it."""
        with contextlib.suppress(OSError):
            if shut:
                self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read_what_is_there(self) -> bool:
        """Fill the buffer; whether the peer is gone."""
        while self._ready(select.POLLIN, 0.0):
            if self._read_some(socket.MSG_DONTWAIT):
                return True
        return False

    def _read_some(self, flags: int) -> bool:
        try:
            data = self._socket.recv(2**20, flags)
        except BlockingIOError:
            return False
        except OSError:
            data = b""
        self._buffer += data
        return not data

    def _take(self) -> tuple[Any] | None:
        """The first message of the buffer, if it is whole."""
        if len(self._buffer) < _LENGTH.size:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer)
        if length > _MOST_FRAME:
            raise BadInput(f"a message of {length} bytes was announced; expected at most {_MOST_FRAME}")
        if len(self._buffer) < _LENGTH.size + length:
            return None
        data = bytes(self._buffer[_LENGTH.size : _LENGTH.size + length])
        del self._buffer[: _LENGTH.size + length]
        return (decode(data, "a message"),)


def greet(connection: socket.socket, key: bytes) -> None:
    """The listener's side of the handshake."""
    connection.settimeout(HANDSHAKE_S)
    own = secrets.token_bytes(_NONCE)
    connection.sendall(_HELLO + own)
    theirs = _exactly(connection, _NONCE)
    if not hmac.compare_digest(_exactly(connection, _NONCE), _proof(key, b"peer", own, theirs)):
        raise OSError("wrong key")
    connection.sendall(_proof(key, b"controller", theirs, own))


def connect(endpoint: Endpoint, timeout: float) -> Channel:
    """A connection to whoever listens, by the first of the addresses that answers."""
    until_s, why = time.monotonic() + timeout, "no address was given"
    while True:
        for address in endpoint.addresses:
            try:
                return Channel(_introduced(address, endpoint))
            except OSError as error:
                why = f"{address}:{endpoint.port}: {error}"
        if time.monotonic() > until_s:
            raise ConnectionError(f"the controller did not answer within {timeout:g} s ({why})")
        time.sleep(POLL_S)


def _introduced(address: str, endpoint: Endpoint) -> socket.socket:
    connection = socket.create_connection((address, endpoint.port), timeout=HANDSHAKE_S)
    try:
        if _exactly(connection, len(_HELLO)) != _HELLO:
            raise ConnectionError("something else than this version of pytest-roofline answers there")
        theirs, own = _exactly(connection, _NONCE), secrets.token_bytes(_NONCE)
        connection.sendall(own + _proof(endpoint.key, b"peer", theirs, own))
        if not hmac.compare_digest(_exactly(connection, _NONCE), _proof(endpoint.key, b"controller", own, theirs)):
            raise ConnectionError("it does not know the key")
    except BaseException:
        connection.close()
        raise
    return connection


def _proof(key: bytes, role: bytes, first: bytes, second: bytes) -> bytes:
    return hmac.digest(key, role + first + second, "sha256")


def _exactly(connection: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        piece = connection.recv(count - len(data))
        if not piece:
            raise ConnectionError("the connection ended during the handshake")
        data += piece
    return data
