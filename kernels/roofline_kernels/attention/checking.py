"""The check of an attention: its error is compared with that of PyTorch's own in the same type.

Source: the tests of FlashAttention (Dao-AILab/flash-attention, hopper/test_flash_attn.py): the error against a float32
reference is at most twice that of PyTorch's plain attention, plus twice what one rounding of the reference costs.
"""

import contextlib
from collections.abc import Iterator

import torch

from .implementations import Attention, Case, implementation
from .implementations import plain as plain_attention
from .tiled import tiled_attention

# Rows of a tile of the reference: few enough launches, and no square of the sequence.
REFERENCE_TILE = 1024
FACTOR = 2.0
# PyTorch's memory-efficient back end multiplies float32 in three products of TF32. An operand's two parts have 22 bits
# of its 24, and the product of the small parts is left out: three errors of 2^-22 a product, where IEEE's has one of
# 2^-24 (CUTLASS, examples/27_ampere_3xtf32_fast_accurate_tensorop_gemm).
FACTOR_3XTF32 = 12.0
# It does so on cards from this compute capability on. On older cards and on AMD's it multiplies float32 exactly.
TF32_SINCE = (8, 0)
# Scores of one head, their softmax and the gradients of both: up to 4 GB in two-byte types.
LONGEST_PLAIN = 16384
NAMES = ("dQ", "dK", "dV")


def tolerance(expected: torch.Tensor, plain: torch.Tensor, factor: float = FACTOR) -> float:
    """Return the largest accepted error.

    Args:
        expected: the reference, float32 or float64.
        plain: PyTorch's own in the type that is checked, same shape.
        factor: on its error.
    """
    plain_error = _largest(plain.to(expected.dtype) - expected)
    dtype = plain.dtype
    rounding = _largest((expected.to(dtype) + 0.3 - 0.3).to(expected.dtype) - expected)
    return factor * plain_error + FACTOR * rounding


def float32_factor(name: str, device: torch.device) -> float:
    """Return the accepted multiple of PyTorch's own error for an implementation in float32.

    Args:
        name: of the implementation.
        device: that it runs on.
    """
    is_nvidia = device.type == "cuda" and torch.version.hip is None
    uses_3xtf32 = (
        name == "sdpa_efficient"
        and is_nvidia
        and torch.cuda.get_device_capability(device) >= TF32_SINCE
    )
    return FACTOR_3XTF32 if uses_3xtf32 else FACTOR


def right(case: Case, *, passes: str, factor: float = FACTOR) -> bool:
    """Return True if the last output and gradients of a case are right, in the last head of the last batch.

    Args:
        case: with the results of what was timed.
        passes: `forward`, `backward` or `both`: which results there are.
        factor: how many times PyTorch's own error is accepted.

    Raises:
        AssertionError: a result is wrong, with its error and the accepted one.
    """
    assert case.out is not None
    backward = passes != "forward"
    expected = _one_head(case, _finer(case.q.dtype), backward)
    plain = _one_head(case, case.q.dtype, backward)
    results = {"output": case.out[-1:, -1:]}
    if backward:
        gradients = (gradient[-1:, -1:] for gradient in case.gradients)
        results |= dict(zip(NAMES, gradients, strict=True))
    for name, value in results.items():
        error = _largest(value.detach().to(expected[name]) - expected[name])
        accepted = tolerance(expected[name], plain[name], factor)
        # NaN fails this comparison too.
        assert error <= accepted, (
            f"{name} is off by {error:.3g}; accepted is {accepted:.3g}, {factor:g} × what PyTorch is off"
        )
    return True


def _finer(dtype: torch.dtype) -> torch.dtype:
    """Return the type of the reference: float64 for float32, else float32."""
    return torch.float64 if dtype == torch.float32 else torch.float32


def _one_head(case: Case, dtype: torch.dtype, backward: bool) -> dict[str, torch.Tensor]:
    """Return the output of the last head in a type, and with `backward` its gradients.

    In a finer type than the case's it is the reference, computed tile by tile. In the case's own type it is PyTorch's:
    by the formula, or for a long sequence by the back end that stores no scores.
    """
    # Metal has no double precision.
    place = (
        torch.device("cpu")
        if case.q.device.type == "mps" and dtype == torch.float64
        else case.q.device
    )
    q, k, v, d_out = (
        tensor.detach()[-1:, -1:].to(place, dtype) for tensor in (*case.inputs, case.d_out)
    )
    for tensor in (q, k, v):
        tensor.requires_grad_(backward)
    if dtype != case.q.dtype:
        with _ieee():
            return _results(_tiled, q, k, v, d_out, case.causal)
    is_long = q.shape[2] > LONGEST_PLAIN
    return _results(
        implementation("sdpa_efficient") if is_long else plain_attention,
        q,
        k,
        v,
        d_out,
        case.causal,
    )


def _results(
    run: Attention,
    q: torch.Tensor,
    k: torch.Tensor,
    v: torch.Tensor,
    d_out: torch.Tensor,
    causal: bool,
) -> dict[str, torch.Tensor]:
    out = run(q, k, v, causal)
    gradients = torch.autograd.grad(out, (q, k, v), d_out) if q.requires_grad else ()
    return {"output": out.detach(), **dict(zip(NAMES, gradients, strict=False))}


def _tiled(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, causal: bool) -> torch.Tensor:
    return tiled_attention(q, k, v, causal=causal, block_q=REFERENCE_TILE, block_k=REFERENCE_TILE)[
        0
    ]


@contextlib.contextmanager
def _ieee() -> Iterator[None]:
    """Multiply float32 exactly, and restore the user's setting afterwards."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _largest(difference: torch.Tensor) -> float:
    """Return the largest magnitude of a difference; 0 if it is empty."""
    return float(difference.abs().max()) if difference.numel() else 0.0
