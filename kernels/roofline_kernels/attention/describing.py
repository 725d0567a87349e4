"""How kernels get at tensors [B, H, S, D]: by strides always, by tensor descriptors where hardware and layout allow."""

from collections.abc import Mapping
from typing import Any

import torch

from .configurations import Configuration

# A tile's offsets are 32 bits wide: 256 rows of such a stride just fit.
MOST_STRIDE = 2**31 // 256 - 1
# Addresses and strides of what a descriptor describes are multiples of so many bytes. Source: CUDA driver API,
# cuTensorMapEncodeTiled.
DESCRIPTOR_BYTES = 16


def strides(name: str, tensor: torch.Tensor) -> dict[str, int]:
    """Return the strides of [B, H, S, D] by the kernels' names: `stride_qb` …, in elements.

    Raises:
        ValueError: rows are so far apart that the offsets within a tile would overflow.
    """
    batch, head, row, element = tensor.stride()
    _, _, rows, elements = tensor.shape
    widest = max(row if rows > 1 else 0, element if elements > 1 else 0)
    if widest > MOST_STRIDE:
        raise ValueError(
            f"{name} has a stride of {widest} elements within a head; expected at most {MOST_STRIDE}, since offsets "
            "within a tile have 32 bits"
        )
    return {
        f"stride_{name}b": batch,
        f"stride_{name}h": head,
        f"stride_{name}s": row,
        f"stride_{name}d": element,
    }


def with_descriptors(
    tiles: Configuration, arguments: dict[str, Any], names: Mapping[str, str]
) -> dict[str, Any]:
    """Return the arguments, with descriptors for tensors if the configuration uses them and all tensors allow it.

    Args:
        tiles: says whether descriptors are wanted.
        arguments: of the kernel, the tensors and BLOCK_D among them.
        names: the tensors that are loaded by rows, each with the constant that says how many: `BLOCK_M`, `BLOCK_N`.
    """
    uses_descriptors = tiles.descriptors and all(describable(arguments[name]) for name in names)
    if not uses_descriptors:
        return {**arguments, "DESCRIPTORS": False}
    descriptors = {
        name: described(arguments[name], arguments[rows], arguments["BLOCK_D"])
        for name, rows in names.items()
    }
    return {**arguments, **descriptors, "DESCRIPTORS": True}


def describable(tensor: torch.Tensor) -> bool:
    """Return whether a descriptor of [B, H, S, D] can be made: a row is dense, strides and address are aligned."""
    item = tensor.element_size()
    used = [
        stride
        for size, stride in zip(tensor.shape[:3], tensor.stride()[:3], strict=True)
        if size > 1
    ]
    aligned = all(stride > 0 and stride * item % DESCRIPTOR_BYTES == 0 for stride in used)
    return tensor.stride(3) == 1 and aligned and _address(tensor) % DESCRIPTOR_BYTES == 0


def described(tensor: torch.Tensor, rows: int, block_d: int) -> Any:
    """Return a descriptor of [B, H, S, D] with blocks [1, 1, rows, block_d]; beyond S or D it reads zero."""
    from triton.tools.tensor_descriptor import TensorDescriptor

    return TensorDescriptor(tensor, list(tensor.shape), _pitches(tensor), [1, 1, rows, block_d])


def described_swizzled(tensor: torch.Tensor, rows: int) -> Any:
    """Return a descriptor for a kernel in Gluon, with all columns of a two-byte type in swizzled order."""
    from triton.experimental.gluon.language import NVMMASharedLayout
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

    layout = NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=4)
    block = [1, 1, rows, tensor.shape[3]]
    return TensorDescriptor(tensor, list(tensor.shape), _pitches(tensor), block, layout)


def _pitches(tensor: torch.Tensor) -> list[int]:
    """Return the strides of a tensor for a descriptor."""
    # The stride of a dimension of size 1 is arbitrary and may be invalid for a descriptor, so it is replaced.
    pitches = [
        stride if size > 1 else DESCRIPTOR_BYTES
        for size, stride in zip(tensor.shape[:3], tensor.stride()[:3], strict=True)
    ]
    return [*pitches, 1]


def _address(tensor: torch.Tensor) -> int:
    """Return the address of a tensor; for a "meta" tensor, its offset in its storage."""
    return (
        int(tensor.storage_offset()) * tensor.element_size()
        if tensor.is_meta
        else tensor.data_ptr()
    )
