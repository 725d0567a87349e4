"""Messages through memory that two processes of a host share: copied in by one, copied out by the other.

The memory has no name, so nothing is left behind however a process ends, and the size of /dev/shm, often 64 MiB in
containers, is no limit. A byte through a socket says that the memory holds a message, and another that it is free
again. The system calls also guarantee that everything written before is visible to the other process.
"""

import mmap
import os
import socket
import uuid
from collections.abc import Callable

import torch

from .messages import Message

# Seconds to wait for the other rank before it counts as lost.
PATIENCE_S = 30.0
_NAME_BYTES = 64


def supported() -> bool:
    """Return whether this system has memory without a name. Only Linux has it."""
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
        """Return the shared memory of ranks 0 and 1. Both must call this, and rank 0 makes it.

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
        """Connect to rank 0 and receive the memory from it."""
        turns = _patient(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        turns.connect(b"\0" + address)
        _, memories, _, _ = socket.recv_fds(turns, 1, 1)
        if not memories:
            raise ConnectionError(
                "rank 0 closed the socket before it handed the shared memory over"
            )
        return cls(memories[0], size_bytes, turns)

    def exchange(self, rank: int, message: Message) -> None:
        """Exchange a message: from rank 0 to rank 1, and back if it returns."""
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
        """Copy a tensor into the memory, and give the turn to the other rank."""
        self._buffer.copy_(tensor)
        self._turns.send(b"t")

    def _await_turn(self) -> None:
        """Wait for the other rank's byte. Raise ConnectionError if it closed the socket."""
        if not self._turns.recv(1):
            raise ConnectionError("the other rank closed the socket of the shared memory")

    def close(self) -> None:
        """Close the socket. The system frees the memory with its last user."""
        self._turns.close()


def _patient(turns: socket.socket) -> socket.socket:
    """Return a socket after setting its time limit."""
    turns.settimeout(PATIENCE_S)
    return turns
