"""Matrix products: cubes, and the projections of Llama 3 8B and 70B for one token, 64 and 4096.

What arithmetic bounds is shown as FLOP/s of its type; what memory bounds on every known device as bytes, with weights
that come from memory (`cold`) or are as the call before left them (`warm`).
"""

from itertools import product

import pytest

from pytest_roofline import Work
from roofline_kernels import gemm
from roofline_kernels.gemm import CPU_CUBE, CUBES, KINDS, PROJECTIONS, TOKENS, Gemm, Shape

QUICK_CUBE = 8192
QUICK_DECODES = {("bf16", "8b-gate_up", 1, "cold"), ("bf16", "70b-down", 1, "cold")}


def _tier(quick):
    return (
        pytest.mark.roofline(tier="quick", gate=True)
        if quick
        else pytest.mark.roofline(tier="nightly")
    )


def _shape(projection, tokens):
    out_features, in_features = PROJECTIONS[projection]
    return Shape(tokens, out_features, in_features)


def _projections():
    for dtype, projection, tokens in product(KINDS, PROJECTIONS, TOKENS):
        bound = gemm.is_memory_bound(KINDS[dtype], _shape(projection, tokens))
        for weights in ("cold", "warm") if bound else (None,):
            case = (dtype, projection, tokens, weights)
            test_id = "-".join(str(one) for one in case if one is not None)
            yield pytest.param(*case, id=test_id, marks=_tier(case in QUICK_DECODES))


CUBE_CASES = [
    pytest.param(dtype, size, id=f"{dtype}-{size}", marks=_tier(size == QUICK_CUBE))
    for dtype, size in product(KINDS, CUBES)
]


def _measure(roofline, dtype, shape, cache="warm"):
    kind, device = KINDS[dtype], roofline.device
    if reason := gemm.why_not(kind, device):
        pytest.skip(reason)
    multiplied = Gemm(kind, shape, device)
    roofline.require_memory(multiplied.memory_needed)
    with gemm.arithmetic(kind, device):
        roofline.measure(
            multiplied.multiply,
            make_args=multiplied.make,
            work=Work(**gemm.work_of(kind, shape)),
            cache=cache,
            verify=multiplied.check,
            metric="traffic_GBps" if gemm.is_memory_bound(kind, shape) else kind.metric,
        )


@pytest.mark.roofline(needs="accelerator")
@pytest.mark.parametrize(("dtype", "size"), CUBE_CASES)
def test_gemm(roofline, dtype, size):
    """A square product."""
    _measure(roofline, dtype, Shape(size, size, size))


@pytest.mark.roofline(needs="accelerator")
@pytest.mark.parametrize(("dtype", "projection", "tokens", "weights"), list(_projections()))
def test_gemm_projection(roofline, dtype, projection, tokens, weights):
    """A projection of a transformer: [tokens, features] times its weights."""
    _measure(
        roofline, dtype, _shape(projection, tokens), cache="rotate" if weights == "cold" else "warm"
    )


@pytest.mark.roofline(needs="cpu", gate=True)
@pytest.mark.parametrize("dtype", ["fp32", "bf16"])
def test_gemm_cpu(roofline, dtype):
    """A small square product on a processor."""
    _measure(roofline, dtype, Shape(CPU_CUBE, CPU_CUBE, CPU_CUBE))
