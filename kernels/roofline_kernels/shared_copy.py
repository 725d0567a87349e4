"""Messages through memory that two processes of a host share: copied in by one, copied out by the other.

The memory has no name, so that nothing is left behind however a process ends, and /dev/shm, which containers keep at
64 MiB, sets no limit. A byte through a socket says that the memory is full, and another that it is free again; a
system call at either side also orders what was written before it.
"""

import mmap
import os
import socket
import uuid
from collections.abc import Callable

import torch

from .messages import Message

# Whoever does not come within so many seconds is gone.
PATIENCE_S = 30.0
_NAME_BYTES = 64


def supported() -> bool:
    """Whether this system has memory without a name, which is Linux."""
    return hasattr(os, "memfd_create")


class SharedMemory:
    """Memory that ranks 0 and 1 share, and the socket by which they take turns."""

    def __init__(self, memory: int, size_bytes: int, turns: socket.socket) -> None:
        self._turns = turns
        pages = mmap.mmap(memory, size_bytes)
        os.close(memory)
        self._buffer = torch.frombuffer(pages, dtype=torch.uint8)

    @classmethod
    def between(
        cls, rank: int, size_bytes: int, tell: Callable[[torch.Tensor], None]
    ) -> "SharedMemory":
        """The memory, made by rank 0 and handed to rank 1; both must ask.

        Args:
            rank: this rank's number, 0 or 1.
            size_bytes: of the memory.
            tell: gives every rank what rank 0 has in a tensor: [64], uint8, as a broadcast does.

        Raises:
            OSError: the other rank did not come.
        """
        name = torch.zeros(_NAME_BYTES, dtype=torch.uint8)
        if rank != 0:
            tell(name)
            return cls._join(bytes(name.tolist()).rstrip(b"\0"), size_bytes)
        address = f"roofline-{uuid.uuid4().hex}".encode()
        name[: len(address)] = torch.tensor(list(address), dtype=torch.uint8)
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(b"\0" + address)
            listener.listen(1)
            listener.settimeout(PATIENCE_S)
            tell(name)
            turns, _ = listener.accept()
        memory = os.memfd_create("roofline")
        os.ftruncate(memory, size_bytes)
        socket.send_fds(turns, [b"m"], [memory])
        return cls(memory, size_bytes, _patient(turns))

    @classmethod
    def _join(cls, address: bytes, size_bytes: int) -> "SharedMemory":
        turns = _patient(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        turns.connect(b"\0" + address)
        _, memories, _, _ = socket.recv_fds(turns, 1, 1)
        if not memories:
            raise ConnectionError(
                "rank 0 closed the socket before it handed the shared memory over"
            )
        return cls(memories[0], size_bytes, turns)

    def exchange(self, rank: int, message: Message) -> None:
        """The message from rank 0 to rank 1, and back where it returns."""
        if rank == 0:
            self._put(message.outgoing)
            self._await_turn()
            if message.incoming is not None:
                message.incoming.copy_(self._buffer)
        else:
            assert message.incoming is not None
            self._await_turn()
            message.incoming.copy_(self._buffer)
            if message.returns:
                self._buffer.copy_(message.outgoing)
            self._turns.send(b"t")

    def _put(self, tensor: torch.Tensor) -> None:
        self._buffer.copy_(tensor)
        self._turns.send(b"t")

    def _await_turn(self) -> None:
        if not self._turns.recv(1):
            raise ConnectionError("the other rank closed the socket of the shared memory")

    def close(self) -> None:
        """Let go of the socket; the memory goes with its last user."""
        self._turns.close()


def _patient(turns: socket.socket) -> socket.socket:
    turns.settimeout(PATIENCE_S)
    return turns
