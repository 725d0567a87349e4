"""One authenticated TCP connection a rank: the control channel between the controller and what it started.

Both sides prove that they know the key before anything else is read (HMAC-SHA-256 over fresh random numbers). Messages
are plain data in frames of bounded length; the end of the connection is the end of the peer.
"""

import contextlib
import errno
import hmac
import operator
import queue
import secrets
import select
import socket
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

from ..core.errors import BadInput, RanksFailed
from .wire import MOST_BYTES, decode, encode

# What ranks did, or an address that is none, says itself where it lies; our own frames do not help.
__tracebackhide__ = operator.methodcaller("errisinstance", RanksFailed)

_HELLO = b"pytest-roofline-1"
_NONCE = 32
_LENGTH = struct.Struct(">Q")
# A result of the largest size, with what is wrapped around it.
_MOST_FRAME = MOST_BYTES + 2**20
# Strangers that connect and say nothing are dropped after so many seconds.
HANDSHAKE_S = 5.0
RETRY_S = 0.05
# A peer whose machine is gone ends no connection by itself: the kernel asks after it, and gives up in some 15 seconds.
_KEEPALIVE = (("TCP_KEEPIDLE", 5), ("TCP_KEEPINTVL", 3), ("TCP_KEEPCNT", 3))


def new_key() -> bytes:
    """A fresh secret."""
    return secrets.token_bytes(_NONCE)


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
    def peer_address(self) -> str:
        """The address of the other end."""
        return str(self._socket.getpeername()[0])

    @property
    def own_address(self) -> str:
        """The address of this end."""
        return str(self._socket.getsockname()[0])

    def send(self, message: object, timeout: float | None = None) -> None:
        """Send plain data.

        Args:
            message: it.
            timeout: seconds in which the peer must take it; None waits for ever.

        Raises:
            OSError: the peer is gone, or took nothing in time; nothing can be sent to it any more then.
        """
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
        """Every whole message that has arrived, without waiting.

        Raises:
            EOFError: the peer is gone, and nothing of it is left to read.
            OSError: the connection was closed at this end.
        """
        gone = self._read_what_is_there()
        messages = []
        while (message := self._take()) is not None:
            messages.append(message[0])
        if gone and not messages:
            raise EOFError("the connection has ended")
        return messages

    def receive(self, timeout: float | None = None) -> Any:
        """The next message.

        Args:
            timeout: seconds; None waits for ever.

        Raises:
            EOFError: the peer is gone.
            TimeoutError: nothing came in time.
            OSError: the connection was closed at this end.
        """
        until_s = None if timeout is None else time.monotonic() + timeout
        while (message := self._take()) is None:
            left_s = None if until_s is None else max(0.0, until_s - time.monotonic())
            if not self._ready(select.POLLIN, left_s):
                raise TimeoutError(f"no message within {timeout or 0.0:g} s")
            if self._read_some(0):
                raise EOFError("the connection has ended")
        return message[0]

    def close(self) -> None:
        """End the connection."""
        with contextlib.suppress(OSError):
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


class Listener:
    """Accepts connections in a thread, so that a stranger who says nothing keeps nobody waiting.

    Args:
        address: to bind to; empty is every interface.
        key: that peers must know.
        port: 0 takes a free one, which stays bound.

    Raises:
        RanksFailed: the port is taken, or the address is not this machine's.
    """

    def __init__(self, address: str, key: bytes, port: int = 0) -> None:
        self._key = key
        self._socket = server(address, port)
        self.port = int(self._socket.getsockname()[1])
        self.refused = 0
        """Connections that did not know the key, or said nothing."""
        self._accepted: queue.Queue[Channel] = queue.Queue()
        threading.Thread(target=self._accept, daemon=True, name="roofline-listener").start()

    def accept(self, timeout: float) -> Channel | None:
        """The next peer; None where none came within `timeout` seconds."""
        with contextlib.suppress(queue.Empty):
            return self._accepted.get(timeout=timeout)
        return None

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
            connection.settimeout(HANDSHAKE_S)
            own = secrets.token_bytes(_NONCE)
            connection.sendall(_HELLO + own)
            theirs = _exactly(connection, _NONCE)
            if not hmac.compare_digest(_exactly(connection, _NONCE), _proof(self._key, b"peer", own, theirs)):
                raise OSError("wrong key")
            connection.sendall(_proof(self._key, b"controller", theirs, own))
        except OSError:
            self.refused += 1
            connection.close()
            return
        self._accepted.put(Channel(connection))


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


def listen(address: str, key: bytes, port: int = 0) -> Listener:
    """A listener for peers that know `key`; see `Listener`."""
    return Listener(address, key, port)


def connect(addresses: Sequence[str], port: int, key: bytes, timeout: float) -> Channel:
    """A connection to whoever listens, by the first of the addresses that answers.

    Args:
        addresses: names or addresses of the controller's host, tried in turn until one works.
        port: that it listens on.
        key: that both know.
        timeout: seconds until it is given up.

    Raises:
        ConnectionError: nobody who knows the key answered in time; the text has the last reason.
    """
    until_s, why = time.monotonic() + timeout, "no address was given"
    while True:
        for address in addresses:
            try:
                return Channel(_introduced(address, port, key))
            except OSError as error:
                why = f"{address}:{port}: {error}"
        if time.monotonic() > until_s:
            raise ConnectionError(f"the controller did not answer within {timeout:g} s ({why})")
        time.sleep(RETRY_S)


def _introduced(address: str, port: int, key: bytes) -> socket.socket:
    connection = socket.create_connection((address, port), timeout=HANDSHAKE_S)
    try:
        if _exactly(connection, len(_HELLO)) != _HELLO:
            raise ConnectionError("something else than this version of pytest-roofline answers there")
        theirs, own = _exactly(connection, _NONCE), secrets.token_bytes(_NONCE)
        connection.sendall(own + _proof(key, b"peer", theirs, own))
        if not hmac.compare_digest(_exactly(connection, _NONCE), _proof(key, b"controller", own, theirs)):
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
