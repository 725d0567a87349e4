"""The row sums that FlashAttention's backward pass needs for each query, in Triton."""

import triton
import triton.language as tl

from .triton_tiles import head_of, load_rows, load_values, place, store_rows


@triton.jit
def delta_kernel(
    out,
    d_out,
    d_lse,
    delta,
    dense,
    stride_ob,
    stride_oh,
    stride_os,
    stride_od,
    stride_gb,
    stride_gh,
    stride_gs,
    stride_gd,
    heads,
    seq_q,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    EVEN_Q: tl.constexpr,
    WITH_LSE: tl.constexpr,
    WRITE_DENSE: tl.constexpr,
):
    """Write delta [B, H_q, S_q], float32: row sums of output x its gradient, less the log-sum-exp's gradient.

    WRITE_DENSE: also write the gradient of the output to `dense` [B, H_q, S_q, D], contiguous. Otherwise the other
    kernels would load a gradient that is not dense (a sum's has strides of zero) element by element.
    """
    block, head, batch = place(tl.cdiv(seq_q, BLOCK_M), heads, False)
    first = block * BLOCK_M
    output = load_rows(
        head_of(out, batch, head, stride_ob, stride_oh, False),
        batch, head, first, seq_q, stride_os, stride_od, BLOCK_M, HEAD_DIM, BLOCK_D, EVEN_Q, False,
    )  # fmt: skip
    gradient = load_rows(
        head_of(d_out, batch, head, stride_gb, stride_gh, False),
        batch, head, first, seq_q, stride_gs, stride_gd, BLOCK_M, HEAD_DIM, BLOCK_D, EVEN_Q, False,
    )  # fmt: skip
    row = (tl.cast(batch, tl.int64) * heads + head) * seq_q
    if WRITE_DENSE:
        store_rows(
            dense + row * HEAD_DIM,
            gradient,
            first,
            seq_q,
            HEAD_DIM,
            1,
            BLOCK_M,
            HEAD_DIM,
            BLOCK_D,
            EVEN_Q,
        )
    sums = tl.sum(output.to(tl.float32) * gradient.to(tl.float32), 1)
    if WITH_LSE:
        # The gradient of a logarithm to base 2: times log2(e) it is that of the natural one.
        sums -= load_values(d_lse + row, first, seq_q, BLOCK_M, EVEN_Q) * 1.4426950408889634
    rows = tl.arange(0, BLOCK_M)
    if EVEN_Q:
        tl.store(delta + row + first + rows, sums)
    else:
        tl.store(delta + row + first + rows, sums, mask=rows < seq_q - first)
