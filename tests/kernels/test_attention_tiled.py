"""The tiled attention against the plain one and PyTorch's, its gradients against differences; its memory, counted."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention
from torch.utils._python_dispatch import TorchDispatchMode

from roofline_kernels.attention.reference import attention
from roofline_kernels.attention.tiled import Tiling, tiled_attention

# Rounding of float64 over sums of at most 256 terms, with room.
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
ALIGNMENTS = ["top-left", "bottom-right"]
# Around the blocks of 64, and the pairs of FlashAttention's own tests.
LENGTHS = [(1, 1), (63, 63), (64, 64), (65, 65), (97, 97), (113, 203), (203, 113), (128, 217), (1, 100), (100, 1)]
HEADS = [(1, 1), (3, 3), (4, 2), (6, 1)]


def inputs(queries, keys, heads=(2, 2), head_dim=8, batch=2, dtype=torch.float64, seed=0):
    """q, k and v with gradients, of normal numbers: [B, H, S, D]."""
    generator = torch.Generator().manual_seed(seed)
    shapes = [(batch, heads[0], queries, head_dim)] + 2 * [(batch, heads[1], keys, head_dim)]
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_() for shape in shapes]


def results(found, tensors):
    """Both outputs and the gradients of q, k and v, where both outputs matter."""
    output, lse = found
    upstream = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    upstream_lse = torch.linspace(1, -1, lse.numel(), dtype=lse.dtype).view_as(lse)
    return (*found, *torch.autograd.grad((output, lse), tensors, (upstream, upstream_lse)))


def assert_alike(tensors, blocks=(64, 64), **mask):
    """The tiled attention gives what the plain one gives, gradients included."""
    tiled = tiled_attention(*tensors, block_q=blocks[0], block_k=blocks[1], **mask)
    for found, expected in zip(results(tiled, tensors), results(attention(*tensors, **mask), tensors), strict=True):
        torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("alignment", [None, *ALIGNMENTS])
@pytest.mark.parametrize("heads", HEADS)
@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
def test_results_and_gradients_are_the_plain_ones(queries, keys, heads, alignment):
    assert_alike(inputs(queries, keys, heads), causal=alignment is not None, alignment=alignment)


@pytest.mark.parametrize("head_dim", [1, 16, 32, 40, 59, 64, 80, 96, 111, 128, 160, 192, 224, 256])
def test_any_head_dimension(head_dim):
    assert_alike(inputs(33, 47, head_dim=head_dim, batch=1), (16, 32))


@pytest.mark.parametrize("blocks", [(1, 1), (1, 64), (64, 1), (7, 5), (16, 128), (1000, 1000)])
@pytest.mark.parametrize("alignment", [None, *ALIGNMENTS])
def test_the_size_of_tiles_changes_nothing(blocks, alignment):
    assert_alike(inputs(24, 37), blocks, causal=alignment is not None, alignment=alignment)


@settings(max_examples=50)
@given(
    queries=st.integers(0, 50),
    keys=st.integers(0, 50),
    heads=st.sampled_from(HEADS),
    head_dim=st.integers(1, 20),
    batch=st.integers(0, 2),
    alignment=st.sampled_from([None, *ALIGNMENTS]),
    blocks=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    scale=st.sampled_from([None, 0.0, 0.3, -2.0]),
    seed=st.integers(0, 1000),
)
def test_any_shape_and_tile(queries, keys, heads, head_dim, batch, alignment, blocks, scale, seed):
    tensors = inputs(queries, keys, heads, head_dim, batch, seed=seed)
    assert_alike(tensors, blocks, causal=alignment is not None, alignment=alignment, scale=scale)


@pytest.mark.parametrize(("queries", "keys"), LENGTHS)
def test_top_left_is_what_pytorch_calls_causal(queries, keys):
    tensors = inputs(queries, keys)
    expected = scaled_dot_product_attention(*tensors, is_causal=True)
    found, _ = tiled_attention(*tensors, causal=True, alignment="top-left")
    torch.testing.assert_close(found, expected, **CLOSE)


@pytest.mark.parametrize("alignment", [None, *ALIGNMENTS])
@pytest.mark.parametrize("heads", [(1, 1), (2, 1)])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 3), (2, 4)])
def test_gradients_are_finite_differences_of_both_results(queries, keys, heads, alignment):
    def both(q, k, v):
        return tiled_attention(q, k, v, causal=alignment is not None, alignment=alignment, block_q=2, block_k=2)

    assert torch.autograd.gradcheck(both, inputs(queries, keys, heads, head_dim=3, batch=1))


@pytest.mark.parametrize("causal", [False, True])
def test_single_precision_is_kept(causal):
    tensors = inputs(97, 97, (4, 2), 32, dtype=torch.float32)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    ours = results(tiled_attention(*tensors, causal=causal, block_q=32, block_k=16), tensors)
    for found, right in zip(ours, results(attention(*exact, causal=causal), exact), strict=True):
        # Sums of a hundred terms of size one, or a few: a hundred roundings of 6e-8 at worst.
        torch.testing.assert_close(found.double(), right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("causal", [False, True])
def test_errors_in_a_half_are_at_most_twice_those_of_plain_attention(dtype, causal):
    tensors = inputs(97, 97, (4, 2), 32, dtype=dtype)
    exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
    ours = results(tiled_attention(*tensors, causal=causal, block_q=32, block_k=16), tensors)
    plain = results(attention(*tensors, causal=causal), tensors)
    for found, known, right in zip(ours, plain, results(attention(*exact, causal=causal), exact), strict=True):
        # FlashAttention's rule; the last term is what the type resolves.
        rounded = right.to(found.dtype)
        resolved = (rounded + 0.3 - 0.3 - rounded).abs().max()
        assert (found - right).abs().max() <= 2 * (known - right).abs().max() + 2 * resolved


@pytest.mark.parametrize(
    ("dtype", "lse_dtype"),
    [
        (torch.float64, torch.float64),
        (torch.float32, torch.float32),
        (torch.float16, torch.float32),
        (torch.bfloat16, torch.float32),
    ],
)
def test_results_and_gradients_have_the_types_of_the_plain_ones(dtype, lse_dtype):
    tensors = inputs(4, 4, dtype=dtype)
    types = [result.dtype for result in results(tiled_attention(*tensors), tensors)]
    assert types == [dtype, lse_dtype, dtype, dtype, dtype]


@pytest.mark.parametrize(("queries", "keys", "hidden"), [(5, 3, 2), (80, 1, 79), (100, 20, 80), (4, 0, 4)])
def test_a_query_that_sees_nothing_gives_zero_and_gets_no_gradient(queries, keys, hidden):
    tensors = inputs(queries, keys)
    output, lse = tiled_attention(*tensors, causal=True, alignment="bottom-right", block_q=16, block_k=16)
    assert output[:, :, :hidden].eq(0).all()
    assert lse[:, :, :hidden].eq(-math.inf).all()
    assert lse[:, :, hidden:].isfinite().all()
    # The derivative of lse² at -inf is -inf: what nothing depends on stays 0 all the same.
    (output.sum() + lse.square().sum()).backward()
    assert tensors[0].grad[:, :, :hidden].eq(0).all()
    assert all(tensor.grad.isfinite().all() for tensor in tensors)


@pytest.mark.parametrize("causal", [False, True])
def test_without_keys_outputs_are_zero(causal):
    output, lse = tiled_attention(*inputs(3, 0), causal=causal, alignment="top-left")
    assert output.eq(0).all()
    assert lse.eq(-math.inf).all()


@pytest.mark.parametrize("keys", [0, 5])
def test_without_queries_there_is_no_output_and_no_gradient(keys):
    tensors = inputs(0, keys)
    output, lse, *gradients = results(tiled_attention(*tensors), tensors)
    assert (output.shape, lse.shape) == ((2, 2, 0, 8), (2, 2, 0))
    assert [gradient.shape for gradient in gradients] == [tensor.shape for tensor in tensors]
    assert all(gradient.eq(0).all() for gradient in gradients)


def test_scores_too_large_for_exp_still_sum_to_one():
    q, k, _ = inputs(50, 60)
    output, lse = tiled_attention(1e4 * q, 1e4 * k, torch.ones_like(k), block_q=16, block_k=16)
    torch.testing.assert_close(output, torch.ones_like(output))
    assert lse.isfinite().all()


@pytest.mark.parametrize("order", [(0, 2, 1, 3), (3, 2, 1, 0), (2, 0, 3, 1)])
def test_the_layout_in_memory_changes_nothing(order):
    def strided(tensor):
        back = [order.index(dim) for dim in range(4)]
        return tensor.detach().permute(order).contiguous().permute(back).requires_grad_()

    tensors = inputs(20, 30, (4, 2))
    others = [strided(tensor) for tensor in tensors]
    assert not others[0].is_contiguous()
    mask = {"causal": True, "alignment": "bottom-right", "block_q": 8, "block_k": 8}
    expected = results(tiled_attention(*tensors, **mask), tensors)
    for found, known in zip(results(tiled_attention(*others, **mask), others), expected, strict=True):
        torch.testing.assert_close(found, known, **CLOSE)


def test_the_gradient_of_a_sum_arrives_with_strides_of_zero():
    tensors = inputs(20, 20)
    output, _ = tiled_attention(*tensors, causal=True, block_q=8, block_k=8)
    strides = []
    output.register_hook(lambda gradient: strides.append(gradient.stride()))
    dense = torch.autograd.grad(output, tensors, torch.ones_like(output), retain_graph=True)
    output.sum().backward()
    assert strides[-1] == (0, 0, 0, 0)
    for tensor, known in zip(tensors, dense, strict=True):
        torch.testing.assert_close(tensor.grad, known, **CLOSE)


def test_gradients_are_the_same_bits_every_time():
    tensors = inputs(100, 100, (4, 2), dtype=torch.float32)
    first, *others = [results(tiled_attention(*tensors, causal=True), tensors) for _ in range(10)]
    assert all(torch.equal(found, known) for other in others for found, known in zip(other, first, strict=True))


class LargestTensor(TorchDispatchMode):
    """The elements of the largest memory that any operation made."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        made = function(*args, **(kwargs or {}))
        for tensor in made if isinstance(made, tuple | list) else (made,):
            if isinstance(tensor, torch.Tensor):
                size = tensor.untyped_storage().nbytes() // tensor.element_size()
                self.elements = max(self.elements, size)
        return made


def largest(function, tensors, **keywords):
    with LargestTensor() as seen:
        results(function(*tensors, causal=True, **keywords), tensors)
    return seen.elements


@pytest.mark.parametrize("sequence", [64, 256])
def test_no_tensor_is_larger_than_an_input_or_a_row_of_tiles(sequence):
    tensors = inputs(sequence, sequence, head_dim=16, batch=1)
    assert largest(tiled_attention, tensors, block_q=16, block_k=16) == 2 * sequence * 16
    # The plain one holds all scores, which this way of looking sees.
    assert largest(attention, tensors) == 2 * sequence * max(sequence, 16)


def test_what_is_kept_for_the_backward_pass_grows_with_the_sequence():
    kept = []
    tensors = inputs(200, 300, head_dim=16, batch=1)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()), lambda _: None):
        tiled_attention(*tensors)
    queries, keys = 2 * 200 * 16, 2 * 300 * 16
    assert sorted(kept) == sorted([queries, keys, keys, queries, 2 * 200])


@pytest.mark.parametrize("shift", [-9, -3, 0, 4, 20])
@pytest.mark.parametrize("blocks", [(4, 4), (3, 5), (20, 20)])
def test_only_tiles_of_which_something_is_visible_are_computed(blocks, shift):
    tiling = Tiling(12, 20, shift, 1.0, *blocks)
    computed = [
        (i, j)
        for rows in tiling.rows()
        for i in range(12)[rows]
        for tile in tiling.columns(rows)
        for j in range(20)[tile]
    ]
    visible = {(i // blocks[0], j // blocks[1]) for i in range(12) for j in range(20) if j <= i + shift}
    tiles = {(i // blocks[0], j // blocks[1]) for i, j in computed}
    assert (tiles, len(computed)) == (visible, len(set(computed)))


@pytest.mark.parametrize("blocks", [{"block_q": 0}, {"block_k": -1}])
def test_empty_tiles_are_refused(blocks):
    with pytest.raises(ValueError, match="expected 1 or more of each"):
        tiled_attention(*inputs(4, 4), **blocks)


def test_causal_over_unlike_lengths_asks_for_the_alignment():
    with pytest.raises(ValueError, match="causal with 3 queries and 4 keys, and no alignment"):
        tiled_attention(*inputs(3, 4), causal=True)


def test_shapes_that_are_no_attention_are_refused():
    with pytest.raises(ValueError, match="3 query heads and 2 key heads; expected a multiple"):
        tiled_attention(*inputs(3, 3, heads=(3, 2)))


def test_gradients_of_gradients_are_refused():
    tensors = inputs(4, 4)
    output, _ = tiled_attention(*tensors)
    (gradient,) = torch.autograd.grad(output.square().sum(), tensors[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
