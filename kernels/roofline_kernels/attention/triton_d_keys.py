"""FlashAttention-2, backward, in Triton: gradients of keys and values.

Source: Dao, "FlashAttention-2", 2023, algorithm 2, parted in two: this kernel owns a block of keys and goes through the
queries; the other, in `triton_d_queries`, does it the other way round. So each gradient is written by one program, and
nothing is atomic. The shares of the softmax are made anew from the log-sum-exp of the forward pass.
"""

import triton
import triton.language as tl

from .triton_tiles import head_of, load_rows, load_values, place, store_rows

# Triton 3.6 heeds only the assumption, and masked loops always have a turn. 3.8 and 3.9 heed the guard, without which
# they spill at head dimension 128.
UNGUARDED = tl.constexpr(triton.__version__.startswith("3.6."))


@triton.jit
def gather_keys(
    d_keys,
    d_values,
    keys,
    values,
    q,
    d_out,
    lse,
    delta,
    batch,
    head,
    first,
    low,
    high,
    stride_qs,
    stride_qd,
    stride_gs,
    stride_gd,
    seq_q,
    shift,
    scale_log2,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
    EVEN_Q: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr,
):
    """Return a block of keys' gradients [BLOCK_N, BLOCK_D] with the parts of queries `low` … `high` added.

    Scores are transposed here: [BLOCK_N, BLOCK_M].
    """
    # Where the loop may have no turn, the way around it joins behind it with sums that no matrix instruction made, and
    # ptxas lets each instruction of the loop wait for the one before (C7515). Inside the guard it sees no such way.
    if (MASKED and UNGUARDED) or low < high:
        tl.assume(low < high)
        # Hopper's products read keys and values by an address for each 16 columns, in two registers. Taken out of the
        # loop, as what does not change in it, they fill 64 registers at 256 columns, and the kernel spills.
        for start in tl.range(
            low, high, BLOCK_M, warp_specialize=WARP_SPECIALIZE, disable_licm=DESCRIPTORS
        ):
            queries = load_rows(
                q,
                batch,
                head,
                start,
                seq_q,
                stride_qs,
                stride_qd,
                BLOCK_M,
                HEAD_DIM,
                BLOCK_D,
                EVEN_Q,
                DESCRIPTORS,
            )
            logs = load_values(lse, start, seq_q, BLOCK_M, EVEN_Q)
            scores = tl.dot(keys, tl.trans(queries), input_precision="ieee")
            shares = tl.math.exp2(scores * scale_log2 - logs[None, :])
            if MASKED:
                rows = start + tl.arange(0, BLOCK_M)
                columns = first + tl.arange(0, BLOCK_N)
                shares = tl.where(columns[:, None] <= rows[None, :] + shift, shares, 0.0)
            gradient = load_rows(
                d_out,
                batch,
                head,
                start,
                seq_q,
                stride_gs,
                stride_gd,
                BLOCK_M,
                HEAD_DIM,
                BLOCK_D,
                EVEN_Q,
                DESCRIPTORS,
            )
            d_values = tl.dot(shares.to(gradient.dtype), gradient, d_values, input_precision="ieee")
            d_shares = tl.dot(values, tl.trans(gradient), input_precision="ieee")
            sums = load_values(delta, start, seq_q, BLOCK_M, EVEN_Q)
            d_scores = shares * (d_shares - sums[None, :])
            d_keys = tl.dot(d_scores.to(queries.dtype), queries, d_keys, input_precision="ieee")
    return d_keys, d_values


@triton.jit
def d_keys_kernel(
    q,
    k,
    v,
    d_out,
    lse,
    delta,
    d_k,
    d_v,
    stride_qb,
    stride_qh,
    stride_qs,
    stride_qd,
    stride_kb,
    stride_kh,
    stride_ks,
    stride_kd,
    stride_vb,
    stride_vh,
    stride_vs,
    stride_vd,
    stride_gb,
    stride_gh,
    stride_gs,
    stride_gd,
    stride_dkb,
    stride_dkh,
    stride_dks,
    stride_dkd,
    stride_dvb,
    stride_dvh,
    stride_dvs,
    stride_dvd,
    heads_k,
    seq_q,
    seq_k,
    shift,
    scale,
    scale_log2,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN_Q: tl.constexpr,
    EVEN_K: tl.constexpr,
    HEADS_FIRST: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr,
):
    """Write dK and dV of BLOCK_N keys of one head; grid: blocks of keys x key heads x batch, flat.

    A program goes through all query heads of its group, so that the sum over them needs no atomic addition.
    """
    block, head_k, batch = place(tl.cdiv(seq_k, BLOCK_N), heads_k, HEADS_FIRST)
    if HEADS_FIRST:
        # Here the earlier blocks have more to do.
        block = tl.cdiv(seq_k, BLOCK_N) - 1 - block
    first = block * BLOCK_N
    keys = load_rows(
        head_of(k, batch, head_k, stride_kb, stride_kh, DESCRIPTORS),
        batch, head_k, first, seq_k, stride_ks, stride_kd, BLOCK_N, HEAD_DIM, BLOCK_D, EVEN_K, DESCRIPTORS,
    )  # fmt: skip
    values = load_rows(
        head_of(v, batch, head_k, stride_vb, stride_vh, DESCRIPTORS),
        batch, head_k, first, seq_k, stride_vs, stride_vd, BLOCK_N, HEAD_DIM, BLOCK_D, EVEN_K, DESCRIPTORS,
    )  # fmt: skip
    d_keys = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    d_values = tl.zeros([BLOCK_N, BLOCK_D], tl.float32)
    if CAUSAL:
        # The first key of the block is seen by the most queries; from `whole` on, every query sees every key. At
        # least one tile goes under the mask, which may hide all of it or nothing.
        low = tl.minimum(tl.maximum(first - shift, 0), seq_q - 1) // BLOCK_M * BLOCK_M
        whole = (
            tl.cdiv(tl.minimum(tl.maximum(first + BLOCK_N - 1 - shift, 1), seq_q), BLOCK_M)
            * BLOCK_M
        )
    else:
        low = 0
        whole = 0
    for member in tl.range(0, GROUP, disable_licm=DESCRIPTORS):
        head = head_k * GROUP + member
        row = (tl.cast(batch, tl.int64) * heads_k * GROUP + head) * seq_q
        queries = head_of(q, batch, head, stride_qb, stride_qh, DESCRIPTORS)
        gradients = head_of(d_out, batch, head, stride_gb, stride_gh, DESCRIPTORS)
        if CAUSAL:
            d_keys, d_values = gather_keys(
                d_keys, d_values, keys, values, queries, gradients, lse + row, delta + row, batch, head, first, low,
                whole, stride_qs, stride_qd, stride_gs, stride_gd, seq_q, shift, scale_log2, HEAD_DIM, BLOCK_D,
                BLOCK_M, BLOCK_N, True, EVEN_Q, DESCRIPTORS, WARP_SPECIALIZE,
            )  # fmt: skip
        d_keys, d_values = gather_keys(
            d_keys, d_values, keys, values, queries, gradients, lse + row, delta + row, batch, head, first, whole,
            seq_q, stride_qs, stride_qd, stride_gs, stride_gd, seq_q, shift, scale_log2, HEAD_DIM, BLOCK_D, BLOCK_M,
            BLOCK_N, False, EVEN_Q, DESCRIPTORS, WARP_SPECIALIZE,
        )  # fmt: skip
    store_rows(
        head_of(d_v, batch, head_k, stride_dvb, stride_dvh, False),
        d_values, first, seq_k, stride_dvs, stride_dvd, BLOCK_N, HEAD_DIM, BLOCK_D, EVEN_K,
    )  # fmt: skip
    store_rows(
        head_of(d_k, batch, head_k, stride_dkb, stride_dkh, False),
        d_keys * scale, first, seq_k, stride_dks, stride_dkd, BLOCK_N, HEAD_DIM, BLOCK_D, EVEN_K,
    )  # fmt: skip
