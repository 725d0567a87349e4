"""Messages from rank 0 to rank 1, and back, with data that show whether every byte arrived."""

import torch
import torch.distributed as dist

from .memcpy import fill_random

# Bytes of the random tile by which messages, and passes of one message, differ in their beginning. Both are prime, so
# that no two of them have the same data.
_MESSAGE_STEP, _PASS_STEP = 1_000_003, 15_485_863


class Message:
    """The buffers of a message on one of its two ranks.

    Every message and every pass has data of its own, which both ranks know without communication. So bytes that are
    lost, late, or of another message or pass are found.

    Args:
        rank: this rank's number, 0 or 1.
        size_bytes: of the message.
        device: where the buffers are.
        number: of the message; both ranks must count alike.
        returns: whether rank 1 sends it back.

    Attributes:
        outgoing: what this rank sends: [size_bytes], uint8. Rank 1 sends what it received.
        incoming: where this rank receives: [size_bytes], uint8; None on rank 0 where nothing comes back.
    """

    def __init__(
        self,
        rank: int,
        size_bytes: int,
        device: torch.device,
        number: int = 0,
        *,
        returns: bool = False,
    ) -> None:
        self.number, self.passes, self.returns = number, 0, returns
        buffers = 2 if rank == 0 and returns else 1
        self._all = [
            torch.empty(size_bytes, dtype=torch.uint8, device=device) for _ in range(buffers)
        ]
        self.outgoing = self._all[0]
        self.incoming = self._all[-1] if rank != 0 or returns else None
        self.fill()

    def fill(self) -> None:
        """Write new data to send, and where they will arrive their complement, which differs in every byte."""
        self.passes += 1
        for buffer in self._all:
            fill_random(buffer, self._start)
        if self.incoming is not None:
            self.incoming.bitwise_not_()

    @property
    def _start(self) -> int:
        """The byte of the random tile with which the data of this pass begin."""
        return self.number * _MESSAGE_STEP + self.passes * _PASS_STEP

    def arrived(self) -> bool:
        """Return whether this rank received every byte of the last pass. True if it receives none."""
        if self.incoming is None:
            return True
        return torch.equal(self.incoming, fill_random(torch.empty_like(self.incoming), self._start))


def exchange(rank: int, message: Message) -> None:
    """Exchange a message over the default process group: from rank 0 to 1, and back if it returns."""
    if rank == 0:
        dist.send(message.outgoing, 1)
        if message.incoming is not None:
            dist.recv(message.incoming, 1)
    else:
        assert message.incoming is not None
        dist.recv(message.incoming, 0)
        if message.returns:
            dist.send(message.outgoing, 0)


def memory_needed(size_bytes: int) -> int:
    """Return the bytes that both ranks take together, with the memory to make and check a message."""
    return 5 * size_bytes + 2 * (8 * 2**20 + 9)


def work_of(size_bytes: int, *, returns: bool) -> dict[str, int]:
    """Return the work of one exchange. The payload counts twice if the message returns."""
    return {"payload_bytes": size_bytes * (1 + returns), "wire_bytes": size_bytes}
