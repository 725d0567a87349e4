"""The limits of collectives: sizes by memory, and operations and types by backend."""

import torch

from .collective_data import TILE
from .collective_layout import IN_PLACE, check_operation, layout, part_elements

# Powers of two from 1 KiB to 256 GiB, past the memory of any accelerator known, so that the memory sets the limit.
POWERS_BYTES = tuple(2**exponent for exponent in range(10, 39))
# Whole fp32 elements, but no power of two and no multiple of 16 bytes.
ODD_SIZES_BYTES = (65_548, 1_000_012, 16_777_292)
# The largest size of the published whole-program times: 150,000 MB on eight accelerators.
LARGEST_PUBLISHED_BYTES = 150_000_000_000
SIZES_BYTES = tuple(sorted((*POWERS_BYTES, *ODD_SIZES_BYTES, LARGEST_PUBLISHED_BYTES)))

# The tile, its sum and what it takes to make them, in elements of the largest type and in bytes.
_TILES_BYTES = 4 * TILE * 8
# Gloo and MPI send and receive lists of tensors by way of one more buffer of the same size.
_THROUGH_A_COPY = ("gather", "scatter", "reduce_scatter")

# ProcessGroupMPI.cpp maps these types to MPI's and has no other; it has no reduce_scatter at all.
_MPI_TYPES = (
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int16,
    torch.int32,
    torch.int64,
)


def memory_needed(
    operation: str, size_bytes: int, element_bytes: int, ranks: int, *, in_place: bool
) -> int:
    """Return the bytes that one set takes on the rank that needs most.

    They include the working memory to make and check the set.

    Args:
        operation: one of `work.COLLECTIVES`.
        size_bytes: S as asked for.
        element_bytes: bytes of one element.
        ranks: ranks in the group.
        in_place: whether the result lies in the buffer that is sent.
    """
    check_operation(operation)
    count = part_elements(operation, size_bytes, element_bytes, ranks)
    plan = layout(operation, count, 0, ranks, in_place=in_place)
    sizes = (plan.send_elements, plan.receive_elements)
    buffers = (sum(sizes) if plan.window is None else max(sizes)) * element_bytes
    copies = max(sizes) * element_bytes if operation in _THROUGH_A_COPY else 0
    return buffers + copies + _TILES_BYTES


def sizes_bytes(
    free_bytes: int, operation: str, ranks: int, element_bytes: int = 4
) -> tuple[int, ...]:
    """Return the sizes in `SIZES_BYTES` that fit a rank's memory, in ascending order.

    The result is in the operation's usual place, the first in `IN_PLACE`.

    Args:
        free_bytes: what one rank may take; ranks that share a memory share it.
        operation: one of `work.COLLECTIVES`.
        ranks: ranks in the group.
        element_bytes: bytes of one element.
    """
    place = IN_PLACE[operation][0]
    return tuple(
        size_bytes
        for size_bytes in SIZES_BYTES
        if memory_needed(operation, size_bytes, element_bytes, ranks, in_place=place) <= free_bytes
    )


def unsupported(operation: str, backend: str, dtype: torch.dtype, *, in_place: bool) -> str | None:
    """Return why torch.distributed cannot do an operation; None if it can.

    With torch 2.13 Gloo does all ten on a CPU in fp32, bf16 and fp16, in every place of `IN_PLACE`: tried. Of NCCL and
    RCCL, torch documents no gap. MPI's gaps are those of its source.

    Args:
        operation: one of `work.COLLECTIVES`.
        backend: `gloo`, `nccl` or `mpi`.
        dtype: of the elements.
        in_place: whether the result lies in the buffer that is sent.
    """
    check_operation(operation)
    if in_place not in IN_PLACE[operation]:
        return f"torch.distributed has {operation} {'out of' if in_place else 'in'} place only"
    if backend == "mpi" and operation == "reduce_scatter":
        return "needs reduce_scatter, which torch's MPI backend does not have"
    if backend == "mpi" and dtype not in _MPI_TYPES:
        return f"needs {str(dtype).removeprefix('torch.')}, which torch's MPI backend does not have"
    return None
