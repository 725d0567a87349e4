"""Whether an attention is right: its error held against PyTorch's own in the same type, as the field does.

Source: the tests of FlashAttention (Dao-AILab/flash-attention, hopper/test_flash_attn.py): the error against a float32
reference is at most twice that of PyTorch's plain attention, plus twice what one rounding of the reference costs.
"""

import torch

from .implementations import Case
from .reference import attention
from .tiled import tiled_attention

# Rows of a tile of the reference: few enough launches, and no square of the sequence.
REFERENCE_TILE = 1024
FACTOR = 2.0


def tolerance(expected: torch.Tensor, plain: torch.Tensor) -> float:
    """The largest error that is accepted.

    Args:
        expected: the reference, float32 or float64.
        plain: PyTorch's own in the type that is checked, same shape.
    """
    own = _largest(plain.to(expected.dtype) - expected)
    dtype = plain.dtype
    rounding = _largest((expected.to(dtype) + 0.3 - 0.3).to(expected.dtype) - expected)
    return FACTOR * own + FACTOR * rounding


def right(case: Case, *, passes: str) -> bool:
    """Whether the last output and gradients of a case are right, in its last head of its last batch.

    Args:
        case: with the results of what was timed.
        passes: `forward`, `backward` or `both`: which results there are.

    Raises:
        AssertionError: naming what is wrong, its error, and what is accepted.
    """
    assert case.out is not None
    expected = _one_head(case, _finer(case.q.dtype))
    plain = _one_head(case, case.q.dtype)
    found = {"output": case.out[-1:, -1:]}
    if passes != "forward":
        found |= dict(zip(("dQ", "dK", "dV"), (g[-1:, -1:] for g in case.gradients), strict=True))
    for name, value in found.items():
        error = _largest(value.detach().to(expected[name]) - expected[name])
        accepted = tolerance(expected[name], plain[name])
        # So written that NaN is refused as well.
        assert error <= accepted, f"{name} is off by {error:.3g}; accepted is {accepted:.3g}, twice what PyTorch is off"
    return True


def _finer(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float32 else torch.float32


def _one_head(case: Case, dtype: torch.dtype) -> dict[str, torch.Tensor]:
    """Output and gradients of the last head in a type: the reference tile by tile, PyTorch's own by the formula."""
    # Metal has no double precision.
    place = torch.device("cpu") if case.q.device.type == "mps" and dtype == torch.float64 else case.q.device
    q, k, v, d_out = (tensor.detach()[-1:, -1:].to(place, dtype) for tensor in (*case.inputs, case.d_out))
    for tensor in (q, k, v):
        tensor.requires_grad_()
    if dtype != case.q.dtype:
        out, _ = tiled_attention(q, k, v, causal=case.causal, block_q=REFERENCE_TILE, block_k=REFERENCE_TILE)
    else:
        out, _ = attention(q, k, v, causal=case.causal)
    gradients = torch.autograd.grad(out, (q, k, v), d_out)
    return {"output": out.detach(), **dict(zip(("dQ", "dK", "dV"), gradients, strict=True))}


def _largest(difference: torch.Tensor) -> float:
    return float(difference.abs().max()) if difference.numel() else 0.0
