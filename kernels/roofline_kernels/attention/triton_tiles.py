"""The common parts of the attention kernels: a program's block, and loading and storing of tiles of rows.

A tile is [rows, BLOCK_D]: rows of one head of a tensor [B, H, S, D]. BLOCK_D is the power of two from D up; elements
beyond D or S are read as zero and never written. Either `source` is a pointer, with the strides of the tensor in
elements, or a descriptor of blocks [1, 1, rows, BLOCK_D], whose hardware does the same by itself.
"""

import triton
import triton.language as tl


@triton.jit
def place(BLOCKS, HEADS, HEADS_FIRST: tl.constexpr):
    """Return the block, head and batch of this program in a flat grid.

    HEADS_FIRST: neighbouring programs have different heads, and later blocks come first. Under a causal mask these have
    more to do, so that no long one is left for the end. Otherwise neighbouring programs share a head and its keys.
    """
    return place_of(tl.program_id(0), tl.num_programs(0) // BLOCKS, BLOCKS, HEADS, HEADS_FIRST)


@triton.jit
def place_of(program, rounds, BLOCKS, HEADS, HEADS_FIRST: tl.constexpr):
    """Return the block, head and batch of a program by its number; `rounds` is heads times batch."""
    if HEADS_FIRST:
        block = BLOCKS - 1 - program // rounds
        head_of_all = program % rounds
    else:
        block = program % BLOCKS
        head_of_all = program // BLOCKS
    return block, head_of_all % HEADS, head_of_all // HEADS


@triton.jit
def head_of(source, batch, head, stride_b, stride_h, DESCRIPTORS: tl.constexpr):
    """Return the pointer to the first row of a head; a descriptor is returned unchanged."""
    if not DESCRIPTORS:
        # 64 bits: tensors of more than 2^31 elements are usual.
        source += tl.cast(batch, tl.int64) * stride_b + tl.cast(head, tl.int64) * stride_h
    return source


@triton.jit
def load_rows(
    source,
    batch,
    head,
    first,
    end,
    stride_s,
    stride_d,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    EVEN: tl.constexpr,
    DESCRIPTORS: tl.constexpr,
):
    """Return rows `first` … of a head, [ROWS, BLOCK_D]; zero from row `end` on, unless EVEN excludes such rows."""
    if DESCRIPTORS:
        tile = source.load([batch, head, first, 0]).reshape(ROWS, BLOCK_D)
    else:
        rows = tl.arange(0, ROWS)[:, None]
        columns = tl.arange(0, BLOCK_D)[None, :]
        pointers = (
            source + tl.cast(first, tl.int64) * stride_s + rows * stride_s + columns * stride_d
        )
        if EVEN and HEAD_DIM == BLOCK_D:
            tile = tl.load(pointers)
        elif EVEN:
            tile = tl.load(pointers, mask=columns < HEAD_DIM, other=0.0)
        elif HEAD_DIM == BLOCK_D:
            tile = tl.load(pointers, mask=rows < end - first, other=0.0)
        else:
            tile = tl.load(pointers, mask=(rows < end - first) & (columns < HEAD_DIM), other=0.0)
    return tile


@triton.jit
def store_rows(
    target,
    tile,
    first,
    end,
    stride_s,
    stride_d,
    ROWS: tl.constexpr,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    EVEN: tl.constexpr,
):
    """Write a tile to rows `first` … of a head by pointers, but nothing beyond `end` and D."""
    rows = tl.arange(0, ROWS)
    columns = tl.arange(0, BLOCK_D)
    pointers = (
        target
        + tl.cast(first, tl.int64) * stride_s
        + rows[:, None] * stride_s
        + columns[None, :] * stride_d
    )
    tile = tile.to(target.dtype.element_ty)
    if EVEN and HEAD_DIM == BLOCK_D:
        tl.store(pointers, tile)
    elif HEAD_DIM == BLOCK_D:
        tl.store(pointers, tile, mask=rows[:, None] < end - first)
    elif EVEN:
        tl.store(pointers, tile, mask=columns[None, :] < HEAD_DIM)
    else:
        tl.store(pointers, tile, mask=(rows[:, None] < end - first) & (columns[None, :] < HEAD_DIM))


@triton.jit
def load_values(source, first, end, ROWS: tl.constexpr, EVEN: tl.constexpr):
    """Return one float32 for each row of a head, [ROWS]; zero from row `end` on."""
    rows = tl.arange(0, ROWS)
    pointers = source + first + rows
    if EVEN:
        return tl.load(pointers)
    return tl.load(pointers, mask=rows < end - first, other=0.0)


@triton.jit
def seen(
    first,
    start,
    shift,
    seq_k,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    CAUSAL: tl.constexpr,
    EVEN_K: tl.constexpr,
):
    """Return for each of the queries `first` … which of the keys `start` … it sees: [BLOCK_M, BLOCK_N], bool."""
    columns = start + tl.arange(0, BLOCK_N)
    if CAUSAL:
        rows = first + tl.arange(0, BLOCK_M)
        visible = columns[None, :] <= rows[:, None] + shift
        if not EVEN_K:
            visible &= columns[None, :] < seq_k
    else:
        visible = columns[None, :] < seq_k
    return visible


@triton.jit
def key_bounds(
    first, shift, seq_k, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, CAUSAL: tl.constexpr
):
    """Return two bounds of the keys that the queries of the block `first` … see.

    Up to the first, every query sees every key, in whole tiles; from the second on, no query sees any.
    """
    if CAUSAL:
        # The first query of the block sees the fewest keys, the last one the most.
        whole = tl.minimum(tl.maximum(first + shift + 1, 0), seq_k) // BLOCK_N * BLOCK_N
        end = tl.minimum(tl.maximum(first + BLOCK_M + shift, 0), seq_k)
    else:
        whole = seq_k // BLOCK_N * BLOCK_N
        end = seq_k
    return whole, end
