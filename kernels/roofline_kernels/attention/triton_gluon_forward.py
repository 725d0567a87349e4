"""FlashAttention's forward pass for Hopper in Gluon: one warp loads, two warpgroups compute in turn.

Source: Shah et al., "FlashAttention-3", 2024, sections 3.1 and 3.2. A program takes blocks of queries, one after the
other; each warpgroup has half of a block. It asks for the scores of its next tile and for the product of its last
shares with their values, and makes the next shares while the latter is under way. The warpgroups ask in turn, so that
the softmax of one also lies under the products of the other. Tiles of keys come from the last to the first: where a
diagonal begins with a tile it crosses the first one that is taken, and no other needs a mask.
"""

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)

# Triton 3.6 knows them by longer names.
load_tile = getattr(tma, "async_load", None) or tma.async_copy_global_to_shared
store_tile = getattr(tma, "async_store", None) or tma.async_copy_shared_to_global


@gluon.jit
def work_of(
    item,
    blocks,
    rounds,
    seq_k,
    shift,
    BLOCK_M: gl.constexpr,
    BLOCK_N: gl.constexpr,
    CAUSAL: gl.constexpr,
):
    """First query of an item's block, its head among those of all batches, and the tiles of keys that the block sees.

    There is one tile at least, so that a block without keys writes its zeros as the others write their output.
    """
    if CAUSAL:
        # The later blocks see more keys, and the longest go first.
        first = (blocks - 1 - item // rounds) * BLOCK_M
        head_of_all = item % rounds
        end = gl.minimum(gl.maximum(first + BLOCK_M + shift, 1), seq_k)
    else:
        first = item % blocks * BLOCK_M
        head_of_all = item // blocks
        end = seq_k
    return first, head_of_all, (end + BLOCK_N - 1) // BLOCK_N


@gluon.jit
def load_pair_half(
    source,
    batch,
    head,
    start,
    slot,
    phase,
    pairs,
    full,
    empty,
    TILE_BYTES: gl.constexpr,
):
    """Ask for a tile of keys or of values into a slot, as soon as both warpgroups have left it."""
    mbarrier.wait(empty.index(slot), phase ^ 1)
    mbarrier.expect(full.index(slot), TILE_BYTES)
    load_tile(source, [batch, head, start, 0], full.index(slot), pairs.index(slot))


@gluon.jit
def load_all(
    q,
    k,
    v,
    queries,
    pairs,
    queries_full,
    queries_empty,
    full,
    empty,
    blocks,
    rounds,
    heads,
    seq_k,
    shift,
    GROUP: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    ROWS: gl.constexpr,
    WARPGROUPS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
):
    """Load the queries of every item, then its keys and values in pairs, from the last tile to the first."""
    BLOCK_M: gl.constexpr = ROWS * WARPGROUPS
    # Both types have two bytes.
    TILE_BYTES: gl.constexpr = 2 * BLOCK_N * HEAD_DIM
    count = 0
    turn = 0
    for item in range(gl.program_id(0), blocks * rounds, gl.num_programs(0)):
        first, head_of_all, tiles = work_of(
            item, blocks, rounds, seq_k, shift, BLOCK_M, BLOCK_N, CAUSAL
        )
        batch = head_of_all // heads
        head = head_of_all % heads
        for warpgroup in gl.static_range(WARPGROUPS):
            mbarrier.wait(queries_empty.index(warpgroup), (turn & 1) ^ 1)
            mbarrier.expect(queries_full.index(warpgroup), 2 * ROWS * HEAD_DIM)
            load_tile(
                q,
                [batch, head, first + warpgroup * ROWS, 0],
                queries_full.index(warpgroup),
                queries.index(warpgroup),
            )
        for step in range(tiles):
            start = (tiles - 1 - step) * BLOCK_N
            slot = count % STAGES * 2
            phase = (count // STAGES) & 1
            load_pair_half(
                k, batch, head // GROUP, start, slot, phase, pairs, full, empty, TILE_BYTES
            )
            load_pair_half(
                v, batch, head // GROUP, start, slot + 1, phase, pairs, full, empty, TILE_BYTES
            )
            count += 1
        turn += 1


@gluon.jit
def shares_of(
    scores,
    most,
    rows,
    columns,
    seq_k,
    shift,
    scale_log2,
    MASKED: gl.constexpr,
    CAUSAL: gl.constexpr,
    EVEN_K: gl.constexpr,
    NEGATIVE: gl.constexpr,
):
    """Of a tile of scores: 2 to each less its row's largest, what its sums so far are times now, and the largest."""
    if NEGATIVE:
        # The maximum of scaled scores is the scaled maximum only for a positive scale.
        scores = -scores
    if MASKED:
        if CAUSAL:
            visible = columns[None, :] <= rows[:, None] + shift
            if not EVEN_K:
                visible = visible & (columns[None, :] < seq_k)
        else:
            visible = columns[None, :] < seq_k
        # Scaled before it is hidden: a scale of zero times minus infinity would be no number.
        scores = gl.where(visible, scores * scale_log2, float("-inf"))
        largest = gl.maximum(most, gl.max(scores, 1))
        # A row that has seen no key yet has a maximum of minus infinity, from which nothing can be taken.
        base = gl.where(largest == float("-inf"), 0.0, largest)
        shares = gl.exp2(scores - base[:, None])
    else:
        largest = gl.maximum(most, gl.max(scores, 1) * scale_log2)
        base = largest
        shares = gl.exp2(scores * scale_log2 - base[:, None])
    return shares, gl.exp2(most - base), largest


@gluon.jit
def attend_half(
    out,
    lse,
    queries,
    pairs,
    outputs,
    queries_full,
    queries_empty,
    full,
    empty,
    turns,
    blocks,
    rounds,
    heads,
    seq_q,
    seq_k,
    shift,
    scale_log2,
    WARPGROUP: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    ROWS: gl.constexpr,
    WARPGROUPS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    EVEN_K: gl.constexpr,
    NEGATIVE: gl.constexpr,
    SHIFTED: gl.constexpr,
):
    """Output and log-sum-exp of one warpgroup's ROWS queries of every item: see `gluon_forward_kernel`."""
    BLOCK_M: gl.constexpr = ROWS * WARPGROUPS
    DTYPE: gl.constexpr = out.dtype
    OF_SCORES: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, BLOCK_N, 16])
    OF_OUTPUT: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [4, 1], [16, HEAD_DIM, 16])
    OF_WEIGHTS: gl.constexpr = gl.DotOperandLayout(0, OF_OUTPUT, 2)
    OF_OUTPUT_ROWS: gl.constexpr = gl.SliceLayout(1, OF_OUTPUT)
    OTHER: gl.constexpr = (WARPGROUP + 1) % WARPGROUPS
    block_queries = queries.index(WARPGROUP).reshape([ROWS, HEAD_DIM])
    empty_scores = gl.zeros([ROWS, BLOCK_N], gl.float32, OF_SCORES)
    rows_of_tile = gl.arange(0, ROWS, gl.SliceLayout(1, OF_SCORES))
    columns_of_tile = gl.arange(0, BLOCK_N, gl.SliceLayout(0, OF_SCORES))
    count = 0
    turn_count = 0
    turn = 0
    for item in range(gl.program_id(0), blocks * rounds, gl.num_programs(0)):
        first_of_block, head_of_all, tiles = work_of(
            item, blocks, rounds, seq_k, shift, BLOCK_M, BLOCK_N, CAUSAL
        )
        first = first_of_block + WARPGROUP * ROWS
        rows = first + rows_of_tile
        mbarrier.wait(queries_full.index(WARPGROUP), turn & 1)
        slot = count % STAGES * 2
        phase = (count // STAGES) & 1
        mbarrier.wait(full.index(slot), phase)
        keys = pairs.index(slot).reshape([BLOCK_N, HEAD_DIM]).permute((1, 0))
        product = warpgroup_mma(block_queries, keys, empty_scores, use_acc=False, is_async=True)
        scores = warpgroup_mma_wait(0, deps=[product])
        mbarrier.arrive(empty.index(slot), count=1)
        most = gl.full([ROWS], float("-inf"), gl.float32, gl.SliceLayout(1, OF_SCORES))
        columns = (tiles - 1) * BLOCK_N + columns_of_tile
        shares, keep, most = shares_of(
            scores, most, rows, columns, seq_k, shift, scale_log2, CAUSAL or not EVEN_K, CAUSAL, EVEN_K, NEGATIVE
        )  # fmt: skip
        total = gl.sum(shares, 1)
        weights = gl.convert_layout(shares.to(DTYPE), OF_WEIGHTS)
        output = gl.zeros([ROWS, HEAD_DIM], gl.float32, OF_OUTPUT)
        keys_slot = (count + 1) % STAGES * 2
        mbarrier.wait(full.index(keys_slot), ((count + 1) // STAGES) & 1, pred=tiles > 1)
        for step in range(1, tiles):
            keys_slot = (count + 1) % STAGES * 2
            values_slot = count % STAGES * 2 + 1
            mbarrier.wait(turns.index(WARPGROUP), turn_count & 1)
            turn_count += 1
            keys = pairs.index(keys_slot).reshape([BLOCK_N, HEAD_DIM]).permute((1, 0))
            product = warpgroup_mma(block_queries, keys, empty_scores, use_acc=False, is_async=True)
            mbarrier.wait(full.index(values_slot), (count // STAGES) & 1)
            values = pairs.index(values_slot).reshape([BLOCK_N, HEAD_DIM])
            under_way = warpgroup_mma(weights, values, output, is_async=True)
            mbarrier.arrive(turns.index(OTHER), count=1)
            scores = warpgroup_mma_wait(1, deps=[product])
            mbarrier.arrive(empty.index(keys_slot), count=1)
            columns = (tiles - 1 - step) * BLOCK_N + columns_of_tile
            shares, keep, most = shares_of(
                scores, most, rows, columns, seq_k, shift, scale_log2, SHIFTED, CAUSAL, True, NEGATIVE
            )  # fmt: skip
            total = total * keep + gl.sum(shares, 1)
            weights = shares.to(DTYPE)
            count += 1
            # The keys of the next step. A wait that may spin ends a block of code, and ptxas draws nothing over it;
            # without one it puts the wait for the product in front of the exponentials, which then run under none.
            next_slot = (count + 1) % STAGES * 2
            next_phase = ((count + 1) // STAGES) & 1
            mbarrier.wait(full.index(next_slot), next_phase, pred=step + 1 < tiles)
            output, weights = warpgroup_mma_wait(0, deps=[under_way, weights])
            mbarrier.arrive(empty.index(values_slot), count=1)
            weights = gl.convert_layout(weights, OF_WEIGHTS)
            output = output * gl.convert_layout(keep, OF_OUTPUT_ROWS)[:, None]
        values_slot = count % STAGES * 2 + 1
        mbarrier.wait(full.index(values_slot), (count // STAGES) & 1)
        values = pairs.index(values_slot).reshape([BLOCK_N, HEAD_DIM])
        under_way = warpgroup_mma(weights, values, output, is_async=True)
        nothing = total == 0.0
        total = gl.where(nothing, 1.0, total)
        # Under the last product.
        share = gl.convert_layout(1.0 / total, OF_OUTPUT_ROWS)
        output = warpgroup_mma_wait(0, deps=[under_way])
        mbarrier.arrive(empty.index(values_slot), count=1)
        mbarrier.arrive(queries_empty.index(WARPGROUP), count=1)
        count += 1
        # What was written of the item before.
        tma.store_wait(0)
        outputs.index(WARPGROUP).reshape([ROWS, HEAD_DIM]).store(
            (output * share[:, None]).to(DTYPE)
        )
        fence_async_shared()
        store_tile(
            out,
            [head_of_all // heads, head_of_all % heads, first, 0],
            outputs.index(WARPGROUP),
        )
        logs = gl.where(nothing, float("inf"), most + gl.log2(total))
        places = lse + gl.cast(head_of_all, gl.int64) * seq_q + rows
        gl.store(places, logs, mask=rows < seq_q)
        turn += 1
    tma.store_wait(0)


@gluon.jit
def gluon_forward_kernel(
    q,
    k,
    v,
    out,
    lse,
    blocks,
    rounds,
    heads,
    seq_q,
    seq_k,
    shift,
    scale_log2,
    GROUP: gl.constexpr,
    HEAD_DIM: gl.constexpr,
    ROWS: gl.constexpr,
    WARPGROUPS: gl.constexpr,
    BLOCK_N: gl.constexpr,
    STAGES: gl.constexpr,
    CAUSAL: gl.constexpr,
    EVEN_K: gl.constexpr,
    NEGATIVE: gl.constexpr,
    SHIFTED: gl.constexpr,
    REGISTERS: gl.constexpr,
    LOADING_REGISTERS: gl.constexpr,
):
    """Output and log-sum-exp of `blocks` blocks of ROWS x WARPGROUPS queries of each head; grid: programs, flat.

    q, out: descriptors of [B, H_q, S_q, D] by [1, 1, ROWS, D]; k, v: of [B, H_k, S_k, D] by [1, 1, BLOCK_N, D], where
    H_q = GROUP x H_k; two-byte types, D of 64 or 128. lse, `shift`, `scale_log2`, NEGATIVE, EVEN_K: as `forward_kernel`
    has them. `rounds`: heads x batch. SHIFTED: a diagonal begins within a tile of keys, and so crosses two: then every
    tile is masked. STAGES: pairs of keys and values that fit side by side. The warpgroups have so many registers a
    thread, the loading warp LOADING_REGISTERS.
    """
    queries = gl.allocate_shared_memory(q.dtype, [WARPGROUPS, 1, 1, ROWS, HEAD_DIM], q.layout)
    pairs = gl.allocate_shared_memory(k.dtype, [2 * STAGES, 1, 1, BLOCK_N, HEAD_DIM], k.layout)
    outputs = gl.allocate_shared_memory(out.dtype, [WARPGROUPS, 1, 1, ROWS, HEAD_DIM], out.layout)
    barrier: gl.constexpr = mbarrier.MBarrierLayout()
    queries_full = gl.allocate_shared_memory(gl.int64, [WARPGROUPS, 1], barrier)
    queries_empty = gl.allocate_shared_memory(gl.int64, [WARPGROUPS, 1], barrier)
    turns = gl.allocate_shared_memory(gl.int64, [WARPGROUPS, 1], barrier)
    full = gl.allocate_shared_memory(gl.int64, [2 * STAGES, 1], barrier)
    empty = gl.allocate_shared_memory(gl.int64, [2 * STAGES, 1], barrier)
    for warpgroup in gl.static_range(WARPGROUPS):
        mbarrier.init(queries_full.index(warpgroup), count=1)
        mbarrier.init(queries_empty.index(warpgroup), count=1)
        mbarrier.init(turns.index(warpgroup), count=1)
    for slot in gl.static_range(2 * STAGES):
        mbarrier.init(full.index(slot), count=1)
        mbarrier.init(empty.index(slot), count=WARPGROUPS)
    # The first warpgroup begins.
    mbarrier.arrive(turns.index(0), count=1)
    fence_async_shared()
    gl.warp_specialize(
        [
            (
                attend_half,
                (
                    out, lse, queries, pairs, outputs, queries_full, queries_empty, full, empty, turns, blocks, rounds,
                    heads, seq_q, seq_k, shift, scale_log2, 0, HEAD_DIM, ROWS, WARPGROUPS, BLOCK_N, STAGES, CAUSAL,
                    EVEN_K, NEGATIVE, SHIFTED,
                ),
            ),
            (
                attend_half,
                (
                    out, lse, queries, pairs, outputs, queries_full, queries_empty, full, empty, turns, blocks, rounds,
                    heads, seq_q, seq_k, shift, scale_log2, 1, HEAD_DIM, ROWS, WARPGROUPS, BLOCK_N, STAGES, CAUSAL,
                    EVEN_K, NEGATIVE, SHIFTED,
                ),
            ),
            (
                load_all,
                (
                    q, k, v, queries, pairs, queries_full, queries_empty, full, empty, blocks, rounds, heads, seq_k,
                    shift, GROUP, HEAD_DIM, ROWS, WARPGROUPS, BLOCK_N, STAGES, CAUSAL,
                ),
            ),
        ],
        [4, 1],
        [REGISTERS, LOADING_REGISTERS],
    )  # fmt: skip
