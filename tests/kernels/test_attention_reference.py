"""The plain attention against PyTorch's, against sums written out, and against finite differences of itself."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.attention.bias import causal_lower_right
from torch.nn.functional import scaled_dot_product_attention

from roofline_kernels.attention.reference import attention

# Rounding of float64 over sums of at most 256 terms, with room.
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
ALIGNMENTS = ["top-left", "bottom-right"]
LENGTHS = [(1, 1), (7, 7), (16, 16), (17, 33), (33, 17), (1, 20), (20, 1), (40, 97)]
HEADS = [(1, 1), (3, 3), (4, 2), (6, 1)]


def inputs(queries, keys, heads=(2, 2), head_dim=8, batch=2, dtype=torch.float64, seed=0):
    """q, k and v with gradients, of normal numbers: [B, H, S, D]."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, heads[0], queries, head_dim)] + 2 * [(batch, heads[1], keys, head_dim)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def seen(queries, keys, alignment):
    """[S_q, S_k], bool: the definition of both causal masks, entry by entry; all true without one."""
    ahead = {None: keys, "top-left": 0, "bottom-right": keys - queries}[alignment]
    return torch.tensor([[j <= i + ahead for j in range(keys)] for i in range(queries)]).reshape(queries, keys)


def gradients(output, tensors, upstream=None):
    upstream = (
        torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output) if upstream is None else upstream
    )
    return torch.autograd.grad(output, tensors, upstream)


def test_top_left_is_what_pytorch_calls_causal():
    for queries, keys in LENGTHS:
        tensors = inputs(queries, keys)
        expected = scaled_dot_product_attention(*tensors, is_causal=True)
        torch.testing.assert_close(attention(*tensors, causal=True, alignment="top-left")[0], expected, **CLOSE)


def test_bottom_right_is_what_pytorch_calls_lower_right():
    for queries, keys in [(7, 7), (17, 33), (1, 20)]:
        tensors = [tensor.detach() for tensor in inputs(queries, keys)]
        expected = scaled_dot_product_attention(*tensors, attn_mask=causal_lower_right(queries, keys))
        torch.testing.assert_close(attention(*tensors, causal=True, alignment="bottom-right")[0], expected, **CLOSE)


@settings(max_examples=60)
@given(
    queries=st.integers(0, 40),
    keys=st.integers(1, 40),
    heads=st.sampled_from(HEADS),
    head_dim=st.integers(1, 33),
    batch=st.integers(0, 2),
    alignment=st.sampled_from([None, *ALIGNMENTS]),
    seed=st.integers(0, 1000),
)
def test_any_shape_gives_what_pytorch_gives(queries, keys, heads, head_dim, batch, alignment, seed):
    tensors = inputs(queries, keys, heads, head_dim, batch, seed=seed)
    output, lse = attention(*tensors, causal=alignment is not None, alignment=alignment)
    mask = seen(queries, keys, alignment)
    expected = scaled_dot_product_attention(*tensors, attn_mask=mask, enable_gqa=True)
    # Rows that see nothing have tests of their own.
    torch.testing.assert_close(output[:, :, mask.any(1)], expected[:, :, mask.any(1)], **CLOSE)
    assert torch.equal(lse.isfinite(), mask.any(1).expand(lse.shape))


def test_output_and_log_sum_exp_are_the_sums_written_out():
    for alignment in [None, *ALIGNMENTS]:
        q, k, v = (tensor.detach() for tensor in inputs(4, 6, heads=(4, 2), head_dim=3, batch=1))
        output, lse = attention(q, k, v, causal=alignment is not None, alignment=alignment, scale=0.7)
        mask = seen(4, 6, alignment)
        for head in range(4):
            for query in range(4):
                keys = [key for key in range(6) if mask[query, key]]
                weights = [math.exp(0.7 * float(q[0, head, query] @ k[0, head // 2, key])) for key in keys]
                mixed = sum(w * v[0, head // 2, key] for w, key in zip(weights, keys, strict=True)) / sum(weights)
                torch.testing.assert_close(output[0, head, query], mixed, **CLOSE)
                assert float(lse[0, head, query]) == pytest.approx(math.log(sum(weights)), abs=1e-10), alignment


@pytest.mark.parametrize("alignment", [None, *ALIGNMENTS])
@pytest.mark.parametrize("heads", [(1, 1), (2, 1)])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 3), (2, 4)])
def test_gradients_are_finite_differences_of_both_results(queries, keys, heads, alignment):
    def both(q, k, v):
        return attention(q, k, v, causal=alignment is not None, alignment=alignment)

    assert torch.autograd.gradcheck(both, inputs(queries, keys, heads, head_dim=3, batch=1))


@pytest.fixture
def eager_in_half():
    """PyTorch's eager attention as it is written: since 2.5 it computes halves in float32 unless it is told not to."""
    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    with sdpa_kernel(SDPBackend.MATH):
        yield scaled_dot_product_attention
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_a_half_is_as_precise_as_pytorchs_eager_attention(eager_in_half, dtype, causal):
    halves = inputs(64, 64, head_dim=32, dtype=dtype)
    exact = [tensor.detach().double().requires_grad_() for tensor in halves]
    eager = eager_in_half(*halves, is_causal=causal)
    output, truth = attention(*halves, causal=causal)[0], attention(*exact, causal=causal)[0]
    theirs = [eager, *gradients(eager, halves)]
    ours, expected = [output, *gradients(output, halves)], [truth, *gradients(truth, exact)]
    for found, known, right in zip(ours, theirs, expected, strict=True):
        assert (found - right).abs().max() <= 2 * (known - right).abs().max()


def test_the_output_has_the_inputs_type_and_the_log_sum_exp_at_least_single_precision():
    for dtype, lse_dtype in [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
    ]:
        output, lse = attention(*inputs(4, 4, dtype=dtype))
        assert (output.dtype, lse.dtype) == (dtype, lse_dtype), (dtype, lse_dtype)


def test_a_query_that_sees_nothing_gives_zero_and_gets_no_gradient():
    for queries, keys, hidden in [(5, 3, 2), (8, 1, 7), (4, 0, 4)]:
        tensors = inputs(queries, keys)
        output, lse = attention(*tensors, causal=True, alignment="bottom-right")
        assert output[:, :, :hidden].eq(0).all(), (queries, keys, hidden)
        assert lse[:, :, :hidden].eq(-math.inf).all(), (queries, keys, hidden)
        assert lse[:, :, hidden:].isfinite().all(), (queries, keys, hidden)
        found = torch.autograd.grad((output, lse), tensors, (torch.ones_like(output), torch.ones_like(lse)))
        assert found[0][:, :, :hidden].eq(0).all(), (queries, keys, hidden)
        assert all(gradient.isfinite().all() for gradient in found), (queries, keys, hidden)


def test_without_keys_outputs_are_zero():
    for causal in [False, True]:
        output, lse = attention(*inputs(3, 0), causal=causal, alignment="top-left")
        assert output.shape == (2, 2, 3, 8), causal
        assert output.eq(0).all(), causal
        assert lse.eq(-math.inf).all(), causal


def test_scores_too_large_for_exp_still_sum_to_one():
    q, k, _ = inputs(5, 6)
    output, lse = attention(1e4 * q, 1e4 * k, torch.ones_like(k))
    torch.testing.assert_close(output, torch.ones_like(output))
    assert lse.isfinite().all()


def test_causal_over_unlike_lengths_asks_for_the_alignment():
    with pytest.raises(ValueError, match="causal with 3 queries and 4 keys, and no alignment; expected align"):
        attention(*inputs(3, 4), causal=True)


def test_an_unknown_alignment_is_refused():
    for causal in [False, True]:
        with pytest.raises(ValueError, match="alignment 'right'; expected 'top-left' or 'bottom-right'"):
            attention(*inputs(3, 3), causal=causal, alignment="right")


def test_shapes_that_are_no_attention_are_refused():
    for shapes, told in [
        (((4, 8), (4, 8), (4, 8)), r"q \(4, 8\), k \(4, 8\), v \(4, 8\); expected q \[B, H_q, S_q, D\]"),
        (((1, 1, 4, 8), (1, 1, 4, 8), (1, 1, 5, 8)), "k and v of one shape"),
        (((2, 1, 4, 8), (1, 1, 4, 8), (1, 1, 4, 8)), "expected the same batch"),
        (((1, 1, 4, 8), (1, 1, 4, 16), (1, 1, 4, 16)), "the same head dimension"),
        (((1, 1, 4, 0), (1, 1, 4, 0), (1, 1, 4, 0)), "the same head dimension, 1 or more"),
        (((1, 3, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)), "3 query heads and 2 key heads; expected a multiple"),
        (((1, 2, 4, 8), (1, 4, 4, 8), (1, 4, 4, 8)), "2 query heads and 4 key heads"),
        (((1, 0, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)), "0 query heads"),
        (((1, 2, 4, 8), (1, 0, 4, 8), (1, 0, 4, 8)), "2 query heads and 0 key heads"),
    ]:
        with pytest.raises(ValueError, match=told):
            attention(*(torch.zeros(shape) for shape in shapes))


def test_types_that_do_not_fit_are_refused():
    for types, told in [
        (
            (torch.float32, torch.float16, torch.float16),
            "q torch.float32, k torch.float16, v torch.float16; expected one",
        ),
        ((torch.int32, torch.int32, torch.int32), "expected one floating-point type"),
    ]:
        with pytest.raises(ValueError, match=told):
            attention(*(torch.zeros(1, 1, 4, 8, dtype=dtype) for dtype in types))


def test_tensors_on_different_devices_are_refused():
    q, k, v = (torch.zeros(1, 1, 4, 8, device=device) for device in ("cpu", "meta", "meta"))
    with pytest.raises(ValueError, match="q on cpu, k on meta, v on meta; expected one device"):
        attention(q, k, v)
