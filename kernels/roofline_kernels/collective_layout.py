"""Which rank holds what before and after a collective, in elements, and how large its buffers are."""

from dataclasses import dataclass

from .work import COLLECTIVES

# Where the result of an operation is. torch.distributed has all_reduce, broadcast and reduce in place only, and no
# in-place form of all_to_all and of a ring of sends.
IN_PLACE: dict[str, tuple[bool, ...]] = {
    "all_reduce": (True,),
    "all_gather": (False, True),
    "reduce_scatter": (False, True),
    "all_to_all": (False,),
    "all_to_all_v": (False,),
    "broadcast": (True,),
    "reduce": (True,),
    "gather": (False, True),
    "scatter": (False, True),
    "send_recv": (False,),
}
SUMMED = ("all_reduce", "reduce_scatter", "reduce")
_WHOLE = ("all_reduce", "broadcast", "reduce", "send_recv")


@dataclass(frozen=True, slots=True)
class Part:
    """Some elements of a buffer and what they hold.

    Args:
        start: first element of the part.
        count: its elements.
        rank: whose data it holds; None is the sum over all ranks.
        first: which element of those data stands at the start.
    """

    start: int
    count: int
    rank: int | None
    first: int = 0


@dataclass(frozen=True, slots=True)
class Layout:
    """One rank's buffers of one collective.

    Args:
        sent: what the send buffer holds before the operation.
        received: what the receive buffer holds afterwards.
        send_elements: of the send buffer.
        receive_elements: of the receive buffer.
        window: where the smaller of both starts inside the larger; None where they are apart.
        intact: whether the send buffer still holds its data afterwards.
    """

    sent: tuple[Part, ...]
    received: tuple[Part, ...]
    send_elements: int
    receive_elements: int
    window: int | None = None
    intact: bool = True


def part_elements(operation: str, size_bytes: int, element_bytes: int, ranks: int) -> int:
    """Elements of the part that each rank sends or receives; at least one, rounded down otherwise.

    Of all_to_all_v it is the unit of which rank i sends (i + j) mod n + 1 to rank j.
    """
    elements = size_bytes // element_bytes
    if operation in _WHOLE:
        return max(1, elements)
    return max(1, elements // (ranks * (ranks + 1) // 2 if operation == "all_to_all_v" else ranks))


def actual_bytes(operation: str, size_bytes: int, element_bytes: int, ranks: int) -> int:
    """S as it really is: parts hold whole elements, at least one, so it may be a little less than was asked for.

    Args:
        operation: one of `COLLECTIVES`.
        size_bytes: S as asked for; see `work.collective_bytes`.
        element_bytes: bytes of one element.
        ranks: ranks in the group.
    """
    check_operation(operation)
    count = part_elements(operation, size_bytes, element_bytes, ranks)
    parts = {"all_to_all_v": sum(split(0, ranks))} | dict.fromkeys(_WHOLE, 1)
    return count * parts.get(operation, ranks) * element_bytes


def split(rank: int, ranks: int) -> tuple[int, ...]:
    """How many units a rank sends to each in all_to_all_v: 1 to n, shifted by the rank, so that totals are alike.

    The table is symmetric: it receives as many from each.
    """
    return tuple((rank + other) % ranks + 1 for other in range(ranks))


def repeatable(operation: str, in_place: bool) -> bool:
    """Whether buffers hold the right data however often the operation ran on them.

    Not so for sums in place: they grow with every call, and end in infinities and NaN while they are timed. There only
    what a single call makes of refilled buffers can be verified.
    """
    return not (operation in SUMMED and in_place)


def check_operation(operation: str) -> None:
    """Refuse what is no collective.

    Raises:
        ValueError: the name is not one of `COLLECTIVES`.
    """
    if operation not in COLLECTIVES:
        raise ValueError(f"operation {operation!r}; expected one of {', '.join(COLLECTIVES)}")


def layout(
    operation: str, count: int, rank: int, ranks: int, *, root: int = 0, in_place: bool
) -> Layout:
    """The buffers of one rank.

    Args:
        operation: one of `COLLECTIVES`.
        count: elements of a part: see `part_elements`.
        rank: this rank in its group.
        ranks: ranks in the group.
        root: the rank that has, or gets, everything, where there is one.
        in_place: whether the result lies in the buffer that is sent.
    """
    if operation in ("broadcast", "reduce", "gather", "scatter"):
        return _rooted(operation, count, rank, ranks, root, in_place)
    total, window = ranks * count, rank * count if in_place else None
    own, summed = Part(0, count, rank), Part(0, count, None)
    if operation == "all_reduce":
        return Layout((own,), (summed,), count, count, window=0, intact=False)
    if operation == "all_gather":
        return Layout((own,), _parts(count, ranks), count, total, window)
    if operation == "reduce_scatter":
        share = Part(0, count, None, first=rank * count)
        return Layout((Part(0, total, rank),), (share,), total, count, window, intact=not in_place)
    if operation == "all_to_all":
        return Layout(
            (Part(0, total, rank),), _parts(count, ranks, first=rank * count), total, total
        )
    if operation == "all_to_all_v":
        return _uneven(count, rank, ranks)
    return Layout((own,), (Part(0, count, (rank - 1) % ranks),), count, count)


def _parts(count: int, ranks: int, first: int = 0) -> tuple[Part, ...]:
    """A part of every rank's data, one after the other."""
    return tuple(Part(rank * count, count, rank, first) for rank in range(ranks))


def _rooted(operation: str, count: int, rank: int, ranks: int, root: int, in_place: bool) -> Layout:
    at_root, total = rank == root, ranks * count
    own, window = (Part(0, count, rank),), rank * count if in_place else None
    if operation == "reduce":
        return Layout(
            own, (Part(0, count, None),) if at_root else (), count, count, window=0, intact=False
        )
    if operation == "broadcast":
        return Layout(
            own if at_root else (), (Part(0, count, root),), count, count, window=0, intact=False
        )
    if operation == "gather":
        return (
            Layout(own, _parts(count, ranks), count, total, window)
            if at_root
            else Layout(own, (), count, 0)
        )
    share = (Part(0, count, root, first=rank * count),)
    return (
        Layout((Part(0, total, root),), share, total, count, window)
        if at_root
        else Layout((), share, 0, count)
    )


def _uneven(unit: int, rank: int, ranks: int) -> Layout:
    sizes = [unit * units for units in split(rank, ranks)]
    received, start = [], 0
    for other, size in enumerate(sizes):
        first = unit * sum(split(other, ranks)[:rank])
        received.append(Part(start, size, other, first=first))
        start += size
    return Layout((Part(0, sum(sizes), rank),), tuple(received), sum(sizes), sum(sizes))
