"""Messages from rank 0 to rank 1, and back: buffers whose data tell whether every byte of the last pass arrived."""

import torch
import torch.distributed as dist

from .memcpy import fill_random

# Where in the random tile the data begin: primes, so that no two messages and no two passes are alike.
_MESSAGE_STEP, _PASS_STEP = 1_000_003, 15_485_863


class Message:
    """The buffers of a message on one of its two ranks.

    Every message and every pass has data of its own, which both ranks know without talking: so what is lost, late, or
    of another message or pass is seen.

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
        """New data for what is sent, and their complement, which no byte of them equals, where they will arrive."""
        self.passes += 1
        for buffer in self._all:
            fill_random(buffer, self._start)
        if self.incoming is not None:
            self.incoming.bitwise_not_()

    @property
    def _start(self) -> int:
        return self.number * _MESSAGE_STEP + self.passes * _PASS_STEP

    def arrived(self) -> bool:
        """Whether this rank holds every byte that was to come to it in the last pass."""
        if self.incoming is None:
            return True
        return torch.equal(self.incoming, fill_random(torch.empty_like(self.incoming), self._start))


def exchange(rank: int, message: Message) -> None:
    """The message by send and receive of the default process group, and back where it returns."""
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
    """Bytes that both ranks of a message take together, with what making and checking it takes on the way."""
    return 5 * size_bytes + 2 * (8 * 2**20 + 9)


def work_of(size_bytes: int, *, returns: bool) -> dict[str, int]:
    """What arrives in one call: the message, and once more where it comes back."""
    return {"payload_bytes": size_bytes * (1 + returns), "wire_bytes": size_bytes}
