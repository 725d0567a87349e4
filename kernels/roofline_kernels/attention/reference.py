"""Attention by its formula, as the reference for others: softmax(scale · Q Kᵀ + mask) V.

It holds the whole matrix of scores, so its memory grows with the square of the sequence.
Source: Vaswani et al., "Attention Is All You Need" (2017), equation 1; grouped query heads: Ainslie et al., "GQA"
(2023).
"""

import math

import torch

from .masking import Alignment, causal_shift, visible_keys


def attention(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    alignment: Alignment | None = None,
    scale: float | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return attention and the log-sum-exp of its scores; gradients flow through both.

    It computes in the type of its inputs, as PyTorch's own eager attention does; as a reference it needs float32 or
    float64 inputs. A query that sees no key gives 0, a log-sum-exp of -inf and no gradient.

    Args:
        q: [B, H_q, S_q, D], any floating-point type.
        k: [B, H_k, S_k, D], where H_q is a multiple of H_k: query head h reads key head h // (H_q / H_k).
        v: [B, H_k, S_k, D].
        causal: whether later keys are hidden.
        alignment: which causal mask; needed where S_q is not S_k, see `masking`.
        scale: what scores are multiplied by; None is 1 / sqrt(D).

    Returns:
        The output, [B, H_q, S_q, D], in the type of q, and the natural logarithm of each row's sum of exponentials,
        [B, H_q, S_q], float32 (float64 for float64).

    Raises:
        ValueError: shapes or types do not fit each other, or the alignment is missing.
    """
    scores, hidden = _scores(q, k, v, causal, alignment, scale)
    return _weighted(scores, hidden, q, v), scores.to(lse_dtype(q)).logsumexp(dim=-1)


def attention_output(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    *,
    causal: bool = False,
    alignment: Alignment | None = None,
    scale: float | None = None,
) -> torch.Tensor:
    """Return the output of attention without the log-sum-exp, as simple implementations do.

    Arguments and errors are those of `attention`.
    """
    scores, hidden = _scores(q, k, v, causal, alignment, scale)
    return _weighted(scores, hidden, q, v)


def _scores(
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    causal: bool,
    alignment: Alignment | None,
    scale: float | None,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return scaled scores [B, H_q, S_q, S_k], with -inf for hidden keys, and the mask of hidden keys.

    The mask is None if every query sees a key.
    """
    check_inputs(q, k, v)
    seq_q, seq_k = q.shape[2], k.shape[2]
    shift = causal_shift(seq_q, seq_k, causal, alignment)
    # Queries are scaled before the product. A 16-bit type would round scores twice, and float16 overflow earlier.
    scores = (q * softmax_scale(q, scale)) @ _for_each_query_head(k, q).transpose(-2, -1)
    if not causal:
        return scores, None
    hidden = ~visible_keys(
        torch.arange(seq_q, device=q.device), torch.arange(seq_k, device=q.device), shift
    )
    return scores.masked_fill(hidden, -math.inf), hidden if shift < 0 else None


def _weighted(
    scores: torch.Tensor, hidden: torch.Tensor | None, q: torch.Tensor, v: torch.Tensor
) -> torch.Tensor:
    """Return the softmax of the scores times the values; zeros for a query that sees no key."""
    weights = scores.softmax(dim=-1)
    if hidden is not None:
        # The softmax of a row without visible keys is NaN, so the mask is applied once more.
        weights = weights.masked_fill(hidden, 0.0)
    return weights @ _for_each_query_head(v, q)


def _for_each_query_head(keys: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Return keys or values repeated to the number of query heads, by groups of neighbours."""
    group = q.shape[1] // keys.shape[1]
    return keys if group == 1 else keys.repeat_interleave(group, dim=1)


def softmax_scale(q: torch.Tensor, scale: float | None) -> float:
    """Return the factor of the scores: `scale`, or 1 / sqrt(D) if it is None."""
    return 1 / math.sqrt(q.shape[-1]) if scale is None else scale


def lse_dtype(q: torch.Tensor) -> torch.dtype:
    """Return the type of the log-sum-exp, at least float32: the backward pass needs its precision."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def check_inputs(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
    """Raise an error unless q, k and v fit each other.

    Raises:
        ValueError: not [B, H, S, D], not of one batch, head dimension, type and device, or heads that do not divide.
    """
    if q.dim() != 4 or k.dim() != 4 or v.shape != k.shape:
        raise ValueError(
            f"q {tuple(q.shape)}, k {tuple(k.shape)}, v {tuple(v.shape)}; "
            "expected q [B, H_q, S_q, D] and k and v of one shape [B, H_k, S_k, D]"
        )
    if q.shape[0] != k.shape[0] or q.shape[3] != k.shape[3] or q.shape[3] == 0:
        raise ValueError(
            f"q {tuple(q.shape)}, k {tuple(k.shape)}; expected the same batch and the same head dimension, 1 or more"
        )
    if k.shape[1] == 0 or q.shape[1] == 0 or q.shape[1] % k.shape[1]:
        raise ValueError(
            f"{q.shape[1]} query heads and {k.shape[1]} key heads; expected a multiple of the key heads"
        )
    if not q.is_floating_point() or not q.dtype == k.dtype == v.dtype:
        raise ValueError(f"q {q.dtype}, k {k.dtype}, v {v.dtype}; expected one floating-point type")
    if not q.device == k.device == v.device:
        raise ValueError(f"q on {q.device}, k on {k.device}, v on {v.device}; expected one device")
