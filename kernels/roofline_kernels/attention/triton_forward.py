"""FlashAttention-2, forward, in Triton: one program makes the output of a block of queries.

Source: Dao, "FlashAttention-2: Faster Attention with Better Parallelism and Work Partitioning", 2023, algorithm 1, with
powers of two in place of e (the scale has log2(e) folded in) and two loops over the keys: those that every query of the
block sees, without any mask, then those of the diagonal and the tail. Float32 is multiplied as IEEE has it, since TF32
keeps ten bits of the mantissa; for two-byte types that word says nothing.
"""

import triton
import triton.language as tl

from .triton_tiles import head_of, key_bounds, load_rows, place, place_of, seen, store_rows


@triton.jit
def shares_of(
    scores,
    most,
    first,
    start,
    seq_k,
    shift,
    scale_log2,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    MASKED: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN_K: tl.constexpr,
    THRESHOLD: tl.constexpr,
    SCALED: tl.constexpr,
):
    """Return the shares of a tile of scores, the factor for each row's earlier sums, and each row's new base.

    A share is 2 to the score less its row's base. The base is the largest score of the row so far; with a THRESHOLD it
    changes only if a score exceeds it by more than that. SCALED: the scores have been multiplied by `scale_log2`.
    """
    if MASKED:
        visible = seen(first, start, shift, seq_k, BLOCK_M, BLOCK_N, CAUSAL, EVEN_K)
        # Scaled before it is hidden: a scale of zero times minus infinity would be no number.
        scores = tl.where(visible, scores * scale_log2, float("-inf"))
    FINAL: tl.constexpr = MASKED or SCALED
    largest = tl.max(scores, 1)
    if not FINAL:
        largest = largest * scale_log2
    now_most = tl.maximum(most, largest)
    if THRESHOLD > 0:
        now_most = tl.where(now_most > most + THRESHOLD, now_most, most)
    base = now_most
    if MASKED:
        # A row that has seen no key yet has a maximum of minus infinity, from which nothing can be taken.
        base = tl.where(now_most == float("-inf"), 0.0, now_most)
    # One fused multiply-add a score where they are not scaled yet.
    above = scores - base[:, None] if FINAL else scores * scale_log2 - base[:, None]
    shares = tl.math.exp2(above)
    return shares, tl.math.exp2(most - base), now_most


@triton.jit
def rescaled(output, keep, THRESHOLD: tl.constexpr):
    """Return the running output [BLOCK_M, BLOCK_D] times `keep` [BLOCK_M].

    With a THRESHOLD, the product is left out if every factor is 1.
    """
    if THRESHOLD > 0:
        if tl.min(keep, 0) < 1.0:
            output = output * keep[:, None]
    else:
        output = output * keep[:, None]
    return output


@triton.jit
def attend(
    output,
    most,
    total,
    q,
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
    OVERLAP: tl.constexpr,
    THRESHOLD: tl.constexpr,
):
    """Return a block's running output [BLOCK_M, BLOCK_D], maximum and sum [BLOCK_M] with keys `low` … `high` added.

    OVERLAP: the scores of the next tile are computed while those of this tile become shares. Those of the tile after
    the last are computed too, but not used. The first tile is always added, under the mask.
    """
    WHOLE: tl.constexpr = EVEN_K or not MASKED
    if OVERLAP and not MASKED:
        high = tl.maximum(high, low + BLOCK_N)
        keys = load_rows(
            k,
            batch,
            head,
            low,
            seq_k,
            stride_ks,
            stride_kd,
            BLOCK_N,
            HEAD_DIM,
            BLOCK_D,
            EVEN_K,
            DESCRIPTORS,
        )
        scores = tl.dot(q, tl.trans(keys), input_precision="ieee")
        keys = load_rows(
            k,
            batch,
            head,
            low + BLOCK_N,
            seq_k,
            stride_ks,
            stride_kd,
            BLOCK_N,
            HEAD_DIM,
            BLOCK_D,
            False,
            DESCRIPTORS,
        )
        ready = tl.dot(q, tl.trans(keys), input_precision="ieee")
        shares, keep, most = shares_of(
            scores,
            most,
            first,
            low,
            seq_k,
            shift,
            scale_log2,
            BLOCK_M,
            BLOCK_N,
            True,
            CAUSAL,
            EVEN_K,
            THRESHOLD,
            False,
        )
        total = total * keep + tl.sum(shares, 1)
        output = rescaled(output, keep, THRESHOLD)
        weights = shares.to(q.dtype)
        for start in tl.range(low + BLOCK_N, high, BLOCK_N, warp_specialize=WARP_SPECIALIZE):
            values = load_rows(
                v, batch, head, start - BLOCK_N, seq_k, stride_vs, stride_vd, BLOCK_N, HEAD_DIM, BLOCK_D, True,
                DESCRIPTORS,
            )  # fmt: skip
            output = tl.dot(weights, values, output, input_precision="ieee")
            # Away from the registers that the next scores go to, before these are asked for.
            scaled = ready * scale_log2
            keys = load_rows(
                k, batch, head, start + BLOCK_N, seq_k, stride_ks, stride_kd, BLOCK_N, HEAD_DIM, BLOCK_D, False,
                DESCRIPTORS,
            )  # fmt: skip
            ready = tl.dot(q, tl.trans(keys), input_precision="ieee")
            shares, keep, most = shares_of(
                scaled, most, first, start, seq_k, shift, scale_log2, BLOCK_M, BLOCK_N, False, CAUSAL, EVEN_K,
                THRESHOLD, True,
            )  # fmt: skip
            total = total * keep + tl.sum(shares, 1)
            output = rescaled(output, keep, THRESHOLD)
            weights = shares.to(q.dtype)
        values = load_rows(
            v,
            batch,
            head,
            high - BLOCK_N,
            seq_k,
            stride_vs,
            stride_vd,
            BLOCK_N,
            HEAD_DIM,
            BLOCK_D,
            EVEN_K,
            DESCRIPTORS,
        )
        output = tl.dot(weights, values, output, input_precision="ieee")
    else:
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
            scores = tl.dot(q, tl.trans(keys), input_precision="ieee")
            shares, keep, most = shares_of(
                scores, most, first, start, seq_k, shift, scale_log2, BLOCK_M, BLOCK_N, MASKED, CAUSAL, EVEN_K,
                THRESHOLD, False,
            )  # fmt: skip
            total = total * keep + tl.sum(shares, 1)
            output = rescaled(output, keep, THRESHOLD)
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
            output = tl.dot(shares.to(values.dtype), values, output, input_precision="ieee")
    return output, most, total


@triton.jit
def forward_block(
    block,
    head,
    batch,
    q,
    k,
    v,
    out,
    lse,
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
    stride_ob,
    stride_oh,
    stride_os,
    stride_od,
    heads,
    seq_q,
    seq_k,
    shift,
    scale_log2,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN_Q: tl.constexpr,
    EVEN_K: tl.constexpr,
    NEGATIVE: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr,
    OVERLAP: tl.constexpr,
    THRESHOLD: tl.constexpr,
):
    """Write output and log-sum-exp of BLOCK_M queries of one head: see `forward_kernel`."""
    first = block * BLOCK_M
    head_k = head // GROUP
    queries = load_rows(
        head_of(q, batch, head, stride_qb, stride_qh, DESCRIPTORS),
        batch, head, first, seq_q, stride_qs, stride_qd, BLOCK_M, HEAD_DIM, BLOCK_D, EVEN_Q, DESCRIPTORS,
    )  # fmt: skip
    if NEGATIVE:
        # The maximum of scaled scores is the scaled maximum only for a positive scale.
        queries = (-queries.to(tl.float32)).to(queries.dtype)
    keys = head_of(k, batch, head_k, stride_kb, stride_kh, DESCRIPTORS)
    values = head_of(v, batch, head_k, stride_vb, stride_vh, DESCRIPTORS)
    output = tl.zeros([BLOCK_M, BLOCK_D], tl.float32)
    most = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    whole, end = key_bounds(first, shift, seq_k, BLOCK_M, BLOCK_N, CAUSAL)
    output, most, total = attend(
        output, most, total, queries, keys, values, batch, head_k, first, 0, whole, stride_ks, stride_kd, stride_vs,
        stride_vd, seq_k, shift, scale_log2, HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_N, False, CAUSAL, EVEN_K, DESCRIPTORS,
        WARP_SPECIALIZE, OVERLAP, THRESHOLD,
    )  # fmt: skip
    if OVERLAP:
        whole = tl.maximum(whole, BLOCK_N)
    if CAUSAL or not EVEN_K:
        output, most, total = attend(
            output, most, total, queries, keys, values, batch, head_k, first, whole, end, stride_ks, stride_kd,
            stride_vs, stride_vd, seq_k, shift, scale_log2, HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_N, True, CAUSAL, EVEN_K,
            DESCRIPTORS, WARP_SPECIALIZE, OVERLAP, THRESHOLD,
        )  # fmt: skip
    nothing = total == 0.0
    total = tl.where(nothing, 1.0, total)
    store_rows(
        head_of(out, batch, head, stride_ob, stride_oh, False),
        output / total[:, None],
        first, seq_q, stride_os, stride_od, BLOCK_M, HEAD_DIM, BLOCK_D, EVEN_Q,
    )  # fmt: skip
    rows = tl.arange(0, BLOCK_M)
    places = lse + (tl.cast(batch, tl.int64) * heads + head) * seq_q + first + rows
    logs = tl.where(nothing, float("inf"), most + tl.math.log2(total))
    if EVEN_Q:
        tl.store(places, logs)
    else:
        tl.store(places, logs, mask=rows < seq_q - first)


@triton.jit
def forward_kernel(
    q,
    k,
    v,
    out,
    lse,
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
    stride_ob,
    stride_oh,
    stride_os,
    stride_od,
    heads,
    seq_q,
    seq_k,
    shift,
    scale_log2,
    GROUP: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN_Q: tl.constexpr,
    EVEN_K: tl.constexpr,
    NEGATIVE: tl.constexpr,
    HEADS_FIRST: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr,
    OVERLAP: tl.constexpr,
    THRESHOLD: tl.constexpr,
    PERSISTENT: tl.constexpr,
):
    """Write output and log-sum-exp of BLOCK_M queries of one head; grid: blocks of queries x heads x batch, flat.

    q, out: [B, H_q, S_q, D]; k, v: [B, H_k, S_k, D], H_q = GROUP x H_k. lse: [B, H_q, S_q], float32, contiguous, in
    base 2, plus infinity for a row that sees no key: so the backward pass finds a share of zero there by itself.
    `shift`: key j is visible to query i where j <= i + shift. `scale_log2`: the magnitude of scale x log2(e), whose
    sign is NEGATIVE's. EVEN_Q, EVEN_K: the sequences are multiples of the blocks.
    PERSISTENT: heads x batch, where the grid is smaller: a program then takes one block after the other, so many apart
    as there are programs, and under HEADS_FIRST the longest first; 0 where each has one.
    """
    blocks = tl.cdiv(seq_q, BLOCK_M)
    if PERSISTENT > 0:
        for item in range(tl.program_id(0), blocks * PERSISTENT, tl.num_programs(0)):
            block, head, batch = place_of(item, PERSISTENT, blocks, heads, HEADS_FIRST)
            forward_block(
                block, head, batch, q, k, v, out, lse, stride_qb, stride_qh, stride_qs, stride_qd, stride_kb, stride_kh,
                stride_ks, stride_kd, stride_vb, stride_vh, stride_vs, stride_vd, stride_ob, stride_oh, stride_os,
                stride_od, heads, seq_q, seq_k, shift, scale_log2, GROUP, HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_N, CAUSAL,
                EVEN_Q, EVEN_K, NEGATIVE, DESCRIPTORS, WARP_SPECIALIZE, OVERLAP, THRESHOLD,
            )  # fmt: skip
    else:
        block, head, batch = place(blocks, heads, HEADS_FIRST)
        forward_block(
            block, head, batch, q, k, v, out, lse, stride_qb, stride_qh, stride_qs, stride_qd, stride_kb, stride_kh,
            stride_ks, stride_kd, stride_vb, stride_vh, stride_vs, stride_vd, stride_ob, stride_oh, stride_os,
            stride_od, heads, seq_q, seq_k, shift, scale_log2, GROUP, HEAD_DIM, BLOCK_D, BLOCK_M, BLOCK_N, CAUSAL,
            EVEN_Q, EVEN_K, NEGATIVE, DESCRIPTORS, WARP_SPECIALIZE, OVERLAP, THRESHOLD,
        )  # fmt: skip
