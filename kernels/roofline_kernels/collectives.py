"""The ten collectives over torch.distributed, with buffers that show every fault of an operation.

Every element of the timed buffers is compared. Data differ by position, rank and iteration (see `collective_data`), and
receive buffers hold NaN before an operation.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import torch
import torch.distributed as dist

from .collective_data import Data, poison
from .collective_layout import (
    IN_PLACE,
    SUMMED,
    check_operation,
    layout,
    part_elements,
    repeatable,
    split,
)

# Their older names warn since torch 2.13.
_all_gather = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor
_reduce_scatter = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor

# Iterations by which a refill moves the data of a set, so that they differ from those of all other sets.
_REFILL = 1_009


@dataclass(slots=True, eq=False)
class Buffers:
    """One set of a rank's buffers, flat and contiguous. In place, one is a view of the other.

    `iteration` determines the data that they hold. `sources` and `targets` are views by rank, for operations that take
    lists. `requests` are the send and the receive of a ring.
    """

    send: torch.Tensor
    receive: torch.Tensor
    iteration: int
    sources: list[torch.Tensor] = field(default_factory=list)
    targets: list[torch.Tensor] = field(default_factory=list)
    requests: list[dist.P2POp] = field(default_factory=list)


class Collective:
    """One collective on one rank, with the making, refilling and verification of its buffers.

    Every rank of the group makes such an object with the same arguments. All must make and refill equally many sets in
    the same order, since the data of a set depend on how many were made before it.

    Args:
        operation: one of `work.COLLECTIVES`.
        size_bytes: S, see `work.collective_bytes`; parts are rounded down to whole elements, see `actual_bytes`.
        dtype: float32, bfloat16 or float16.
        group: the process group, of which this process is a member.
        device: where the buffers are; the group's backend must serve it.
        in_place: whether the result lies in the buffer that is sent; see `IN_PLACE` for what there is.
        root: the rank in the group that sends, or receives, all data, in operations that have one.

    Raises:
        ValueError: no such operation, not in this place, or sums over so many ranks are not exact in this type.
    """

    def __init__(
        self,
        operation: str,
        size_bytes: int,
        dtype: torch.dtype,
        group: dist.ProcessGroup,
        device: torch.device,
        *,
        in_place: bool | None = None,
        root: int = 0,
    ) -> None:
        check_operation(operation)
        in_place = IN_PLACE[operation][0] if in_place is None else in_place
        if in_place not in IN_PLACE[operation]:
            raise ValueError(
                f"{operation} is to run {'in' if in_place else 'out of'} place; torch.distributed has it only "
                f"{'out of' if in_place else 'in'} place"
            )
        self.operation, self.in_place, self.root = operation, in_place, root
        self.group, self.device = group, device
        self.rank, self.ranks = dist.get_rank(group), dist.get_world_size(group)
        self.data = Data(dtype, device, self.ranks, summed=operation in SUMMED)
        count = part_elements(operation, size_bytes, dtype.itemsize, self.ranks)
        self.layout = layout(operation, count, self.rank, self.ranks, root=root, in_place=in_place)
        self._units = [count * units for units in split(self.rank, self.ranks)]
        self._made = 0
        self.call = self._calls()[operation]

    @property
    def as_timed(self) -> bool:
        """True if `verify` can check buffers as timing left them: see `repeatable`."""
        return repeatable(self.operation, self.in_place)

    def make(self) -> Buffers:
        """Return a new set of buffers, with data to send and NaN where the result will be."""
        plan, new = self.layout, self._empty
        if plan.window is None:
            send, receive = new(plan.send_elements), new(plan.receive_elements)
        elif plan.receive_elements >= plan.send_elements:
            receive = new(plan.receive_elements)
            send = receive[plan.window : plan.window + plan.send_elements]
        else:
            send = new(plan.send_elements)
            receive = send[plan.window : plan.window + plan.receive_elements]
        buffers = Buffers(send, receive, self._made)
        # Lists and requests are made here, once, so that making them is not timed.
        if self.operation in ("gather", "scatter") and self.rank == self.root:
            buffers.sources, buffers.targets = (
                list(send.chunk(self.ranks)),
                list(receive.chunk(self.ranks)),
            )
        if self.operation == "send_recv":
            buffers.requests = self._ring(send, receive)
        self._made += 1
        self._fill(buffers)
        return buffers

    def refill(self, buffers: Buffers) -> None:
        """Fill a set with other data to send, and with NaN where the result will be."""
        buffers.iteration += _REFILL
        self._fill(buffers)

    def verify(self, buffers: Buffers) -> bool:
        """Return whether the result is right, and the data that were sent are unchanged.

        The data that were sent are left out for an operation that overwrites them.
        """
        sent = self.layout.sent if self.layout.intact else ()
        return all(
            self._right(
                buffer[part.start : part.start + part.count],
                part.rank,
                buffers.iteration,
                part.first,
            )
            for buffer, parts in ((buffers.receive, self.layout.received), (buffers.send, sent))
            for part in parts
        )

    def _right(self, buffer: torch.Tensor, rank: int | None, iteration: int, first: int) -> bool:
        """Return whether a buffer holds a rank's data, or the sum of all ranks if `rank` is None."""
        if rank is None:
            return self.data.holds_sum(buffer, iteration, first)
        return self.data.holds(buffer, rank, iteration, first)

    def _fill(self, buffers: Buffers) -> None:
        """Poison the receive buffer, then write the data to send; in place, these overwrite a part."""
        poison(buffers.receive)
        for part in self.layout.sent:
            assert part.rank is not None
            self.data.fill(
                buffers.send[part.start : part.start + part.count],
                part.rank,
                buffers.iteration,
                part.first,
            )

    def _empty(self, elements: int) -> torch.Tensor:
        return torch.empty(elements, dtype=self.data.dtype, device=self.device)

    def _calls(self) -> dict[str, Callable[[Buffers], object]]:
        """Return each operation as `call(buffers)`, by name. It may return before its work is done."""
        group, root = self.group, dist.get_global_rank(self.group, self.root)
        return {
            "all_reduce": lambda b: dist.all_reduce(b.send, group=group),
            "all_gather": lambda b: _all_gather(b.receive, b.send, group=group),
            "reduce_scatter": lambda b: _reduce_scatter(b.receive, b.send, group=group),
            "all_to_all": lambda b: dist.all_to_all_single(b.receive, b.send, group=group),
            "all_to_all_v": lambda b: dist.all_to_all_single(
                b.receive, b.send, self._units, self._units, group=group
            ),
            "broadcast": lambda b: dist.broadcast(b.send, root, group=group),
            "reduce": lambda b: dist.reduce(b.send, root, group=group),
            "gather": lambda b: dist.gather(b.send, b.targets or None, root, group=group),
            "scatter": lambda b: dist.scatter(b.receive, b.sources or None, root, group=group),
            "send_recv": _wait_for_all,
        }

    def _ring(self, send: torch.Tensor, receive: torch.Tensor) -> list[dist.P2POp]:
        """Return the send to the next rank and the receive from the previous one."""
        after, before = (
            dist.get_global_rank(self.group, (self.rank + step) % self.ranks) for step in (1, -1)
        )
        sending = dist.P2POp(dist.isend, send, after, self.group)
        return [sending, dist.P2POp(dist.irecv, receive, before, self.group)]


def _wait_for_all(buffers: Buffers) -> None:
    """Start the ring's send and receive, and wait for both."""
    for request in dist.batch_isend_irecv(buffers.requests):
        request.wait()
