"""FlashAttention-2 in plain PyTorch: what the Triton kernels do, tile by tile, to be stepped through in a debugger.

No tensor grows with S_q times S_k: forward keeps a running maximum and a running sum for each query and remembers their
log-sum-exp; backward works the probabilities out again from it. Source: Dao, "FlashAttention-2" (2023), algorithms 1
and 2; the running sums: Milakov and Gimelshein, "Online normalizer calculation for softmax" (2018).
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.function import once_differentiable

from .masking import Alignment, causal_shift, visible_keys
from .reference import check_inputs, lse_dtype, softmax_scale


def tiled_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    alignment: Alignment | None = None,
    scale: float | None = None,
    block_q: int = 64,
    block_k: int = 64,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the results of `reference.attention`, in memory that grows with S.

    Gradients flow through both results, but not a second time.

    Tiles are multiplied and summed in float32 (float64 for float64), whatever the type of the inputs.

    Args:
        q: [B, H_q, S_q, D], any floating-point type.
        k: [B, H_k, S_k, D], where H_q is a multiple of H_k.
        v: [B, H_k, S_k, D].
        causal: whether later keys are hidden.
        alignment: which causal mask; needed where S_q is not S_k.
        scale: what scores are multiplied by; None is 1 / sqrt(D).
        block_q: queries of a tile.
        block_k: keys of a tile.

    Returns:
        The output, [B, H_q, S_q, D], in the type of q, and the natural log-sum-exp, [B, H_q, S_q], float32 (float64
        for float64).

    Raises:
        ValueError: shapes or types do not fit each other, the alignment is missing, or a tile would be empty.
    """
    check_inputs(q, k, v)
    if block_q < 1 or block_k < 1:
        raise ValueError(
            f"tiles of {block_q} queries and {block_k} keys; expected 1 or more of each"
        )
    shift = causal_shift(q.shape[2], k.shape[2], causal, alignment)
    tiling = Tiling(q.shape[2], k.shape[2], shift, softmax_scale(q, scale), block_q, block_k)
    output, lse = _Tiled.apply(q, k, v, tiling)  # type: ignore[no-untyped-call]
    return output, lse


@dataclass(frozen=True, slots=True)
class Tiling:
    """The tiles of the matrix of scores that hold a visible key.

    Args:
        seq_q: queries.
        seq_k: keys.
        shift: key j is visible to query i where j <= i + shift.
        scale: what scores are multiplied by.
        block_q: queries of a tile.
        block_k: keys of a tile.
    """

    seq_q: int
    seq_k: int
    shift: int
    scale: float
    block_q: int
    block_k: int

    def rows(self) -> Iterator[slice]:
        """Yield the queries of each row of tiles."""
        for start in range(0, self.seq_q, self.block_q):
            yield slice(start, min(start + self.block_q, self.seq_q))

    def columns(self, rows: slice) -> Iterator[slice]:
        """Yield the keys of each tile in a row, up to the last key that any of its queries sees."""
        for start in range(0, min(self.seq_k, rows.stop + self.shift), self.block_k):
            yield slice(start, min(start + self.block_k, self.seq_k))

    def scores(self, q: torch.Tensor, k: torch.Tensor, rows: slice, columns: slice) -> torch.Tensor:
        """Return the scores of one tile, [..., rows, columns], with -inf for hidden keys."""
        scores = q @ k.transpose(-2, -1) * self.scale
        # The first query sees the fewest keys. If it sees the last key of the tile, no key is hidden.
        if columns.stop - 1 <= rows.start + self.shift:
            return scores
        queries = torch.arange(rows.start, rows.stop, device=q.device)
        keys = torch.arange(columns.start, columns.stop, device=q.device)
        return scores.masked_fill(~visible_keys(queries, keys, self.shift), -math.inf)


# Both passes see q as [B, H_k, group, S_q, D] and k, v as [B, H_k, 1, S_k, D]: the query heads of a group share a key
# head by broadcasting, and nothing is copied.


class _Tiled(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tiling: Tiling
    ) -> tuple[torch.Tensor, torch.Tensor]:
        output, lse = torch.empty_like(q), q.new_empty(q.shape[:3], dtype=lse_dtype(q))
        queries, keys, values = _by_key_head(q, k), k.unsqueeze(2), v.unsqueeze(2)
        for rows in tiling.rows():
            found, found_lse = _forward_rows(queries, keys, values, tiling, rows)
            output[:, :, rows] = found.flatten(1, 2)
            lse[:, :, rows] = found_lse.flatten(1, 2)
        ctx.save_for_backward(q, k, v, output, lse)
        ctx.tiling = tiling
        return output, lse

    @staticmethod
    @once_differentiable
    def backward(
        ctx: Any, d_output: torch.Tensor, d_lse: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, None]:
        q, k, v, output, lse = ctx.saved_tensors
        # dS = P * (dP - delta). The softmax's derivative gives the first term of delta; lse's derivative is P itself.
        delta = (d_output.to(lse.dtype) * output).sum(-1) - d_lse
        hidden = lse == -math.inf
        # Rows that see nothing: exp(-inf - 0) is 0, where exp(-inf - -inf) would be NaN.
        lse, delta = lse.masked_fill(hidden, 0.0), delta.masked_fill(hidden, 0.0)

        d_q = torch.empty_like(q)
        d_k, d_v = torch.zeros_like(k, dtype=lse.dtype), torch.zeros_like(v, dtype=lse.dtype)
        q, d_output, lse, delta = (_by_key_head(tensor, k) for tensor in (q, d_output, lse, delta))
        for rows in ctx.tiling.rows():
            block = (
                q[..., rows, :],
                d_output[..., rows, :],
                lse[..., rows, None],
                delta[..., rows, None],
            )
            found = _backward_rows(
                block, k.unsqueeze(2), v.unsqueeze(2), d_k, d_v, ctx.tiling, rows
            )
            d_q[:, :, rows] = found.flatten(1, 2)
        return d_q, d_k.to(k.dtype), d_v.to(v.dtype), None


def _by_key_head(tensor: torch.Tensor, k: torch.Tensor) -> torch.Tensor:
    """Return a view of [B, H_q, ...] as [B, H_k, group, ...]."""
    grouped: torch.Tensor = tensor.unflatten(1, (k.shape[1], tensor.shape[1] // k.shape[1]))
    return grouped


def _forward_rows(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tiling: Tiling, rows: slice
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output [B, H_k, group, rows, D] and log-sum-exp, without D, of one block of queries."""
    wide = lse_dtype(q)
    q = q[..., rows, :].to(wide)
    largest, total = q.new_full(q.shape[:-1], -math.inf), q.new_zeros(q.shape[:-1])
    weighted = torch.zeros_like(q)
    for columns in tiling.columns(rows):
        scores = tiling.scores(q, k[..., columns, :].to(wide), rows, columns)
        before, largest = largest, torch.maximum(largest, scores.amax(dim=-1))
        # While a row has seen nothing its maximum is -inf, and -inf - -inf would be NaN.
        base = largest.masked_fill(largest == -math.inf, 0.0)
        weights, rescale = (scores - base[..., None]).exp(), (before - base).exp()
        total = total * rescale + weights.sum(dim=-1)
        weighted = weighted * rescale[..., None] + weights @ v[..., columns, :].to(wide)
    # A row that sees nothing: 0 / 1 as its output, and -inf + log(0) as its log-sum-exp.
    return weighted / total.masked_fill(total == 0.0, 1.0)[..., None], largest + total.log()


def _backward_rows(
    block: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    k: torch.Tensor,
    v: torch.Tensor,
    d_k: torch.Tensor,
    d_v: torch.Tensor,
    tiling: Tiling,
    rows: slice,
) -> torch.Tensor:
    """Return the gradient of one block of queries, and add its part to `d_k` and `d_v`.

    The gradient is [B, H_k, group, rows, D]. The block holds its queries, gradients of outputs, log-sum-exps and
    deltas, each [B, H_k, group, rows, D or 1].
    """
    q, d_output, lse, delta = (tensor.to(d_k.dtype) for tensor in block)
    d_q = torch.zeros_like(q)
    for columns in tiling.columns(rows):
        keys, values = k[..., columns, :].to(lse.dtype), v[..., columns, :].to(lse.dtype)
        probabilities = (tiling.scores(q, keys, rows, columns) - lse).exp()
        d_scores = probabilities * (d_output @ values.transpose(-2, -1) - delta) * tiling.scale
        d_q += d_scores @ keys
        # A key head gathers from all query heads of its group.
        d_k[:, :, columns] += (d_scores.transpose(-2, -1) @ q).sum(dim=2)
        d_v[:, :, columns] += (probabilities.transpose(-2, -1) @ d_output).sum(dim=2)
    return d_q
