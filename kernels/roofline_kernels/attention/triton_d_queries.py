"""FlashAttention-2, backward, in Triton: gradient of the queries; see `triton_d_keys`."""

import triton
import triton.language as tl

from .triton_tiles import head_of, key_bounds, load_rows, load_values, place, seen, store_rows


@triton.jit
def gather_queries(
    d_queries,
    queries,
    gradient,
    logs,
    sums,
    k,
    v,
    batch,
    head,
    first,
    low,
    high,
    stride_ks,
    stride_kd,
    stride_vs,
    stride_vd,
    seq_k,
    shift,
    scale_log2,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN_K: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr,
):
    """Return a block of queries' gradient [BLOCK_M, BLOCK_D] with the parts of keys `low` … `high` added."""
    WHOLE: tl.constexpr = EVEN_K or not MASKED
    for start in tl.range(low, high, BLOCK_N, warp_specialize=WARP_SPECIALIZE):
        keys = load_rows(
            k,
            batch,
            head,
            start,
            seq_k,
            stride_ks,
            stride_kd,
            BLOCK_N,
            HEAD_DIM,
            BLOCK_D,
            WHOLE,
            DESCRIPTORS,
        )
        values = load_rows(
            v,
            batch,
            head,
            start,
            seq_k,
            stride_vs,
            stride_vd,
            BLOCK_N,
            HEAD_DIM,
            BLOCK_D,
            WHOLE,
            DESCRIPTORS,
        )
        scores = tl.dot(queries, tl.trans(keys), input_precision="ieee")
        shares = tl.math.exp2(scores * scale_log2 - logs[:, None])
        if MASKED:
            visible = seen(first, start, shift, seq_k, BLOCK_M, BLOCK_N, CAUSAL, EVEN_K)
            shares = tl.where(visible, shares, 0.0)
        d_shares = tl.dot(gradient, tl.trans(values), input_precision="ieee")
        d_scores = shares * (d_shares - sums[:, None])
        d_queries = tl.dot(d_scores.to(keys.dtype), keys, d_queries, input_precision="ieee")
    return d_queries


@triton.jit
def d_queries_kernel(
    q,
    k,
    v,
    d_out,
    lse,
    delta,
    d_q,
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
    stride_dqb,
    stride_dqh,
    stride_dqs,
    stride_dqd,
    heads,
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
    """Write dQ of BLOCK_M queries of one head; grid: blocks of queries x heads x batch, flat."""
    block, head, batch = place(tl.cdiv(seq_q, BLOCK_M), heads, HEADS_FIRST)
    first = block * BLOCK_M
    head_k = head // GROUP
    row = (tl.cast(batch, tl.int64) * heads + head) * seq_q
    queries = load_rows(
        head_of(q, batch, head, stride_qb, stride_qh, DESCRIPTORS),
        batch, head, first, seq_q, stride_qs, stride_qd, BLOCK_M, HEAD_DIM, BLOCK_D, EVEN_Q, DESCRIPTORS,
    )  # fmt: skip
    gradient = load_rows(
        head_of(d_out, batch, head, stride_gb, stride_gh, DESCRIPTORS),
        batch, head, first, seq_q, stride_gs, stride_gd, BLOCK_M, HEAD_DIM, BLOCK_D, EVEN_Q, DESCRIPTORS,
    )  # fmt: skip
    logs = load_values(lse + row, first, seq_q, BLOCK_M, EVEN_Q)
    sums = load_values(delta + row, first, seq_q, BLOCK_M, EVEN_Q)
    keys = head_of(k, batch, head_k, stride_kb, stride_kh, DESCRIPTORS)
    values = head_of(v, batch, head_k, stride_vb, stride_vh, DESCRIPTORS)
    d_queries = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    whole, end = key_bounds(first, shift, seq_k, BLOCK_M, BLOCK_N, CAUSAL)
    d_queries = gather_queries(
        d_queries, queries, gradient, logs, sums, keys, values, batch, head_k, first, 0, whole, stride_ks, stride_kd,
        stride_vs, stride_vd, seq_k, shift, scale_log2, HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_N, False, CAUSAL, EVEN_K,
        DESCRIPTORS, WARP_SPECIALIZE,
    )  # fmt: skip
    if CAUSAL or not EVEN_K:
        d_queries = gather_queries(
            d_queries, queries, gradient, logs, sums, keys, values, batch, head_k, first, whole, end, stride_ks,
            stride_kd, stride_vs, stride_vd, seq_k, shift, scale_log2, HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_N, True,
            CAUSAL, EVEN_K, DESCRIPTORS, WARP_SPECIALIZE,
        )  # fmt: skip
    store_rows(
        head_of(d_q, batch, head, stride_dqb, stride_dqh, False),
        d_queries * scale, first, seq_q, stride_dqs, stride_dqd, BLOCK_M, HEAD_DIM, BLOCK_D, EVEN_Q,
    )  # fmt: skip
