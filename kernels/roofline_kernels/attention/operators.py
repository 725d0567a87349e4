"""Attention as operators of torch, opaque to `torch.compile`, on views [B, H, S, D]."""

import torch

from . import launches
from .architectures import architecture_of
from .launches import Problem, Saved


@torch.library.custom_op("roofline_kernels::flash_forward", mutates_args=())
def flash_forward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    shift: int,
    causal: bool,
    scale: float,
    tile: int | None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return output and log-sum-exp in base 2. The output has q's order of dimensions in memory."""
    out, lse = _outputs(q)
    if out.numel() == 0:
        return out, lse
    if k.numel() == 0:
        return out.zero_(), lse.fill_(float("inf"))
    problem = Problem(architecture_of(q.device), shift, causal, scale, tile)
    launches.forward(problem, q, k, v, out, lse).run(q.device)
    return out, lse


@flash_forward.register_fake
def _(q: torch.Tensor, *_rest: object) -> tuple[torch.Tensor, torch.Tensor]:
    return _outputs(q)


@torch.library.custom_op("roofline_kernels::flash_backward", mutates_args=())
def flash_backward(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    out: torch.Tensor,
    lse: torch.Tensor,
    d_out: torch.Tensor,
    d_lse: torch.Tensor | None,
    shift: int,
    causal: bool,
    scale: float,
    tile: int | None,
    want_q: bool,
    want_k: bool,
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return the gradients of q, k and v. Those that are not wanted are empty."""
    d_q, d_k, d_v = _gradients(q, k, v, want_q, want_k)
    if out.numel() == 0 or k.numel() == 0:
        return d_q.zero_(), d_k.zero_(), d_v.zero_()
    problem = Problem(architecture_of(q.device), shift, causal, scale, tile)
    sums = torch.empty_like(lse)
    dense = torch.empty(out.shape, dtype=out.dtype, device=out.device) if _spread(d_out) else None
    d_logs = None if d_lse is None else d_lse.contiguous()
    launches.delta(out, d_out, d_logs, sums, dense).run(q.device)
    saved = Saved(q, k, v, d_out if dense is None else dense, lse, sums)
    if want_k:
        launches.d_keys(problem, saved, d_k, d_v).run(q.device)
    if want_q:
        launches.d_queries(problem, saved, d_q).run(q.device)
    return d_q, d_k, d_v


@flash_backward.register_fake
def _(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, *rest: object
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    *_, want_q, want_k = rest
    return _gradients(q, k, v, bool(want_q), bool(want_k))


def _spread(gradient: torch.Tensor) -> bool:
    """Return whether a gradient's elements are not dense, or its rows share memory.

    The gradient of a sum or a mean is such. It is then written out once, by the kernel of the row sums, since the two
    other kernels would have to load it element by element, or could not use descriptors.
    """
    if gradient.shape[3] > 1 and gradient.stride(3) != 1:
        return True
    return any(
        stride == 0 and size > 1
        for size, stride in zip(gradient.shape, gradient.stride(), strict=True)
    )


def _outputs(q: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return empty tensors for the output and the log-sum-exp."""
    return torch.empty_like(q), torch.empty(q.shape[:3], dtype=torch.float32, device=q.device)


def _gradients(
    q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, want_q: bool, want_k: bool
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    d_q = torch.empty_like(q) if want_q else q.new_empty(0)
    d_k, d_v = (torch.empty_like(t) if want_k else t.new_empty(0) for t in (k, v))
    return d_q, d_k, d_v
