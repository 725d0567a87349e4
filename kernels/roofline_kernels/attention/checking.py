"""Whether an attention is right: its error held against PyTorch's own in the same type, as the field does.

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
# It has done so since the first cards with TF32; elsewhere, and on AMD's, it multiplies as IEEE says.
TF32_SINCE = (8, 0)
# Scores of one head, their softmax and the gradients of both: up to 4 GB in two-byte types.
LONGEST_PLAIN = 16384
NAMES = ("dQ", "dK", "dV")


def tolerance(expected: torch.Tensor, plain: torch.Tensor, factor: float = FACTOR) -> float:
    """The largest error that is accepted.

    Args:
        expected: the reference, float32 or float64.
        plain: PyTorch's own in the type that is checked, same shape.
        factor: on its error.
    """
    own = _largest(plain.to(expected.dtype) - expected)
    dtype = plain.dtype
    rounding = _largest((expected.to(dtype) + 0.3 - 0.3).to(expected.dtype) - expected)
    return factor * own + FACTOR * rounding


def float32_factor(name: str, device: torch.device) -> float:
    """How many times PyTorch's own error is accepted of an implementation's float32.

    Args:
        name: of the implementation.
        device: that it runs on.
    """
    nvidia = device.type == "cuda" and torch.version.hip is None
    split = (
        name == "sdpa_efficient"
        and nvidia
        and torch.cuda.get_device_capability(device) >= TF32_SINCE
    )
    return FACTOR_3XTF32 if split else FACTOR


def right(case: Case, *, passes: str, factor: float = FACTOR) -> bool:
    """Whether the last output and gradients of a case are right, in its last head of its last batch.

    Args:
        case: with the results of what was timed.
        passes: `forward`, `backward` or `both`: which results there are.
        factor: how many times PyTorch's own error is accepted.

    Raises:
        AssertionError: naming what is wrong, its error, and what is accepted.
    """
    assert case.out is not None
    backward = passes != "forward"
    expected = _one_head(case, _finer(case.q.dtype), backward)
    plain = _one_head(case, case.q.dtype, backward)
    found = {"output": case.out[-1:, -1:]}
    if backward:
        found |= dict(zip(NAMES, (gradient[-1:, -1:] for gradient in case.gradients), strict=True))
    for name, value in found.items():
        error = _largest(value.detach().to(expected[name]) - expected[name])
        accepted = tolerance(expected[name], plain[name], factor)
        # So written that NaN is refused as well.
        assert error <= accepted, (
            f"{name} is off by {error:.3g}; accepted is {accepted:.3g}, {factor:g} × what PyTorch is off"
        )
    return True


def _finer(dtype: torch.dtype) -> torch.dtype:
    return torch.float64 if dtype == torch.float32 else torch.float32


def _one_head(case: Case, dtype: torch.dtype, backward: bool) -> dict[str, torch.Tensor]:
    """Output, and gradients if asked for, of the last head in a type.

    In a finer type than the case's it is the reference, tile by tile; in the case's own it is PyTorch's, by the formula
    as long as that fits beside what is measured, and from there on by the back end that keeps no scores.
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
    long = q.shape[2] > LONGEST_PLAIN
    return _results(
        implementation("sdpa_efficient") if long else plain_attention, q, k, v, d_out, case.causal
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
    """Multiply float32 as IEEE has it, whatever was set for speed."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def _largest(difference: torch.Tensor) -> float:
    return float(difference.abs().max()) if difference.numel() else 0.0
