"""FlashAttention-2 in Triton behind one function: forward, backward, any layout, any head dimension up to 256."""

import math
from typing import Any, Literal, overload

import torch

from .architectures import require_triton
from .configurations import TILES
from .layouts import Layout, as_bhsd, from_bhsd, heads_of, lse_from_bhs
from .masking import Alignment, causal_shift
from .reference import check_inputs

DTYPES = (torch.float32, torch.float16, torch.bfloat16)
MOST_HEAD_DIM = 256
LN2 = math.log(2.0)


@overload
def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = ...,
    alignment: Alignment | None = ...,
    scale: float | None = ...,
    layout: Layout = ...,
    heads: int | tuple[int, int] | None = ...,
    return_lse: Literal[False] = ...,
    tile: int | None = ...,
) -> torch.Tensor: ...


@overload
def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = ...,
    alignment: Alignment | None = ...,
    scale: float | None = ...,
    layout: Layout = ...,
    heads: int | tuple[int, int] | None = ...,
    return_lse: Literal[True],
    tile: int | None = ...,
) -> tuple[torch.Tensor, torch.Tensor]: ...


def flash_attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    alignment: Alignment | None = None,
    scale: float | None = None,
    layout: Layout = "BHSD",
    heads: int | tuple[int, int] | None = None,
    return_lse: bool = False,
    tile: int | None = None,
) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
    """softmax(scale · q kᵀ + mask) v, without ever holding the scores; memory grows with S, not with S².

    Compiled on CUDA (sm_80 and newer) and ROCm; on CPU tensors the same kernels run in Triton's interpreter, which is
    for checking them and takes seconds. No input is copied; strides may be any below 2^23 elements within a head.

    Args:
        q: [B, H_q, S_q, D] in `layout`; float32, float16 or bfloat16, D up to 256.
        k: [B, H_k, S_k, D], of the same type; H_q is a multiple of H_k, and each key head serves a group of
            neighbouring query heads.
        v: [B, H_k, S_k, D].
        causal: hide later keys from earlier queries.
        alignment: where the causal diagonal starts: "top-left" (query i sees keys 0 … i, as PyTorch's `is_causal`) or
            "bottom-right" (the last query sees the last key, as FlashAttention); needed where S_q is not S_k.
        scale: of the scores; 1/√D by default.
        layout: "BHSD"; "BSHD"; "HSD" with batch and heads as one; "BS(HD)", heads side by side in the last dimension.
        heads: only for "BS(HD)": how many, or (of q, of k and v).
        return_lse: also return the log-sum-exp of the scaled and masked scores, natural logarithm, [B, H_q, S_q] (for
            "HSD" [H_q, S_q]), float32; gradients flow through it. Minus infinity where a query sees no key.
        tile: queries and keys of a tile, 16 … 256, in place of the architecture's configuration.

    Returns:
        The output in the shape and layout of q; a query that sees no key has zeros.

    Raises:
        ValueError: shapes, types, devices or options that do not go together.
        NoSuchArchitecture: the device has no matrix instructions that Triton can use.
        ImportError: there is no Triton 3.6 or newer.
        TileTooLarge: the tile needs more registers or shared memory than the architecture has.
    """
    counts = heads_of(heads, layout)
    q4 = as_bhsd("q", q, layout, counts.queries if counts else None)
    k4 = as_bhsd("k", k, layout, counts.keys if counts else None)
    v4 = as_bhsd("v", v, layout, counts.keys if counts else None)
    _check(q4, k4, v4, tile)
    shift = causal_shift(q4.shape[2], k4.shape[2], causal, alignment)
    scale = 1.0 / math.sqrt(q4.shape[3]) if scale is None else float(scale)
    require_triton()
    made = FlashAttention.apply(q4, k4, v4, shift, causal, scale, tile, return_lse)  # type: ignore[no-untyped-call]
    if not return_lse:
        return from_bhsd(made, layout)
    out, lse2 = made
    lse = torch.where(lse2 == math.inf, -math.inf, lse2 * LN2)
    return from_bhsd(out, layout), lse_from_bhs(lse, layout)


class FlashAttention(torch.autograd.Function):
    """Views [B, H, S, D] to the output, and if asked for to the log-sum-exp: base 2, infinity where no key is seen."""

    @staticmethod
    def forward(
        ctx: Any,
        q: torch.Tensor,
        k: torch.Tensor,
        v: torch.Tensor,
        shift: int,
        causal: bool,
        scale: float,
        tile: int | None,
        with_lse: bool,
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor]:
        """Output [B, H_q, S_q, D] and log-sum-exp [B, H_q, S_q]."""
        # Triton is imported, and the operators made, when the first attention is asked for.
        from .operators import flash_forward

        out, lse = flash_forward(q, k, v, shift, causal, scale, tile)
        ctx.save_for_backward(q, k, v, out, lse)
        ctx.shift, ctx.causal, ctx.scale, ctx.tile = shift, causal, scale, tile
        # What is not returned needs no gradient: autograd would make one, of zeros.
        return (out, lse) if with_lse else out

    @staticmethod
    def backward(
        ctx: Any, d_out: torch.Tensor, d_lse: torch.Tensor | None = None
    ) -> tuple[torch.Tensor | None, ...]:
        """Gradients of q, k and v, of those that want one."""
        from .operators import flash_backward

        q, k, v, out, lse = ctx.saved_tensors
        want_q, want_k, want_v = ctx.needs_input_grad[:3]
        d_q, d_k, d_v = flash_backward(
            q,
            k,
            v,
            out,
            lse,
            d_out,
            d_lse,
            ctx.shift,
            ctx.causal,
            ctx.scale,
            ctx.tile,
            want_q,
            want_k or want_v,
        )
        given = (d_q if want_q else None, d_k if want_k else None, d_v if want_v else None)
        return *given, None, None, None, None, None


def _check(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, tile: int | None) -> None:
    """Refuse what the kernels would read wrongly; q, k, v as views [B, H, S, D]."""
    check_inputs(q, k, v)
    if q.shape[3] > MOST_HEAD_DIM:
        raise ValueError(
            f"q is {list(q.shape)} as [B, H, S, D]; expected a head dimension D of 1 … {MOST_HEAD_DIM}"
        )
    if q.dtype not in DTYPES:
        raise ValueError(f"q, k and v are {q.dtype}; expected one of {', '.join(map(str, DTYPES))}")
    if tile is not None and (type(tile) is not int or tile not in TILES):
        raise ValueError(
            f"tile is {tile!r}; expected one of {', '.join(map(str, TILES))}, or None for the default"
        )
