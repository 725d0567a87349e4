"""The buffers of a rank for a collective: their sizes, and their content before and after it."""

from dataclasses import dataclass

from .work import COLLECTIVES

# For each operation, whether its result may be in the buffer that is sent (True) or apart from it (False); the usual
# place first. torch.distributed has all_reduce, broadcast and reduce in place only, and all_to_all and a ring of sends
# out of place only.
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
    """A part of a buffer, with the data that it holds.

    Args:
        start: first element of the part.
        count: its elements.
        rank: the rank whose data it holds; None is the sum over all ranks.
        first: the element of those data with which the part begins.
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
    """Return the elements of the part that each rank sends or receives.

    They are rounded down, but at least one. For all_to_all_v it is the unit: rank i sends (i + j) mod n + 1 units to
    rank j.
    """
    elements = size_bytes // element_bytes
    if operation in _WHOLE:
        return max(1, elements)
    return max(1, elements // (ranks * (ranks + 1) // 2 if operation == "all_to_all_v" else ranks))


def actual_bytes(operation: str, size_bytes: int, element_bytes: int, ranks: int) -> int:
    """Return the size S with whole elements in every part.

    It may be a little smaller than `size_bytes`, or larger if a part would hold no element.

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
    """Return the units that a rank sends to each other rank in all_to_all_v.

    They are 1 to n, shifted by the rank, so that all ranks send equally many. A rank receives as many units from
    another as it sends to it.
    """
    return tuple((rank + other) % ranks + 1 for other in range(ranks))


def repeatable(operation: str, in_place: bool) -> bool:
    """Return whether an operation leaves the right data in its buffers after any number of calls.

    It does not if it sums in place: the sums grow with every call, up to infinities and NaN. Then only a single call on
    refilled buffers can be verified.
    """
    return not (operation in SUMMED and in_place)


def check_operation(operation: str) -> None:
    """Raise an error if there is no such collective.

    Raises:
        ValueError: the name is not one of `COLLECTIVES`.
    """
    if operation not in COLLECTIVES:
        raise ValueError(f"operation is {operation!r}; expected one of {', '.join(COLLECTIVES)}")


def layout(
    operation: str, count: int, rank: int, ranks: int, *, root: int = 0, in_place: bool
) -> Layout:
    """Return the layout of one rank's buffers.

    Args:
        operation: one of `COLLECTIVES`.
        count: elements of a part: see `part_elements`.
        rank: this rank in its group.
        ranks: ranks in the group.
        root: the rank that sends, or receives, all data, in operations that have one.
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
    """Return a part of every rank's data, one after the other, each from element `first` on."""
    return tuple(Part(rank * count, count, rank, first) for rank in range(ranks))


def _rooted(operation: str, count: int, rank: int, ranks: int, root: int, in_place: bool) -> Layout:
    """Return the layout of an operation with a root. Only the root sends or receives all data."""
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
    """Return the layout of all_to_all_v, whose parts are multiples of `unit` elements."""
    sizes = [unit * units for units in split(rank, ranks)]
    received, start = [], 0
    for other, size in enumerate(sizes):
        first = unit * sum(split(other, ranks)[:rank])
        received.append(Part(start, size, other, first=first))
        start += size
    return Layout((Part(0, sum(sizes), rank),), tuple(received), sum(sizes), sum(sizes))
