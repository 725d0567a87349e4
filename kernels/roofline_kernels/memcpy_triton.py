"""The Triton copy kernel; imported only where Triton is there."""

import torch
import triton
import triton.language as tl


@triton.jit
def copy_kernel(source, target, count, BLOCK: tl.constexpr):
    """Copy `count` elements, BLOCK to a program; the tail is masked."""
    # 64-bit offsets: the largest buffers pass 2^31 elements.
    offsets = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = offsets < count
    tl.store(target + offsets, tl.load(source + offsets, mask=inside), mask=inside)


def launch(source: torch.Tensor, target: torch.Tensor, block: int) -> None:
    """Copy `source` to `target`, both contiguous with the same number of bytes.

    Where size and addresses allow, elements are 8 bytes wide, so that each thread moves a full 16-byte vector.
    """
    if source.numel() % 8 == 0 and source.data_ptr() % 16 == 0 and target.data_ptr() % 16 == 0:
        source, target, block = source.view(torch.int64), target.view(torch.int64), block // 8
    count = source.numel()
    copy_kernel[(triton.cdiv(count, block),)](source, target, count, BLOCK=block, num_warps=8)
