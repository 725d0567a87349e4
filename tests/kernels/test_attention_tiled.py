"""The tiled attention against the plain one and PyTorch's, its gradients against differences; its memory, counted."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode

from roofline_kernels.attention.reference import attention
from roofline_kernels.attention.tiled import Tiling, tiled_attention

# Rounding of float64 over sums of at most 256 terms, with room.
CLOSE = {"rtol": 1e-10, "atol": 1e-10}
ALIGNMENTS = ["top-left", "bottom-right"]
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


@pytest.mark.parametrize("alignment", [None, *ALIGNMENTS])
@pytest.mark.parametrize("heads", [(1, 1), (2, 1)])
@pytest.mark.parametrize(("queries", "keys"), [(1, 1), (3, 3), (2, 4)])
def test_gradients_are_finite_differences_of_both_results(queries, keys, heads, alignment):
    def both(q, k, v):
        return tiled_attention(q, k, v, causal=alignment is not None, alignment=alignment, block_q=2, block_k=2)

    assert torch.autograd.gradcheck(both, inputs(queries, keys, heads, head_dim=3, batch=1))


def test_single_precision_is_kept():
    for causal in [False, True]:
        tensors = inputs(97, 97, (4, 2), 32, dtype=torch.float32)
        exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
        ours = results(tiled_attention(*tensors, causal=causal, block_q=32, block_k=16), tensors)
        for found, right in zip(ours, results(attention(*exact, causal=causal), exact), strict=True):
            # Sums of a hundred terms of size one, or a few: a hundred roundings of 6e-8 at worst.
            torch.testing.assert_close(found.double(), right, rtol=1e-5, atol=1e-5)


def test_errors_in_a_half_are_at_most_twice_those_of_plain_attention():
    for dtype, causal in itertools.product([torch.float16, torch.bfloat16], [False, True]):
        tensors = inputs(97, 97, (4, 2), 32, dtype=dtype)
        exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
        ours = results(tiled_attention(*tensors, causal=causal, block_q=32, block_k=16), tensors)
        plain = results(attention(*tensors, causal=causal), tensors)
        for found, known, right in zip(ours, plain, results(attention(*exact, causal=causal), exact), strict=True):
            # FlashAttention's rule; the last term is what the type resolves.
            rounded = right.to(found.dtype)
            resolved = (rounded + 0.3 - 0.3 - rounded).abs().max()
            assert (found - right).abs().max() <= 2 * (known - right).abs().max() + 2 * resolved, (dtype, causal)


def test_a_query_that_sees_nothing_gives_zero_and_gets_no_gradient():
    for queries, keys, hidden in [(5, 3, 2), (80, 1, 79), (100, 20, 80), (4, 0, 4)]:
        tensors = inputs(queries, keys)
        output, lse = tiled_attention(*tensors, causal=True, alignment="bottom-right", block_q=16, block_k=16)
        assert output[:, :, :hidden].eq(0).all(), (queries, keys, hidden)
        assert lse[:, :, :hidden].eq(-math.inf).all(), (queries, keys, hidden)
        assert lse[:, :, hidden:].isfinite().all(), (queries, keys, hidden)
        # The derivative of lse² at -inf is -inf: what nothing depends on stays 0 all the same.
        (output.sum() + lse.square().sum()).backward()
        assert tensors[0].grad[:, :, :hidden].eq(0).all(), (queries, keys, hidden)
        assert all(tensor.grad.isfinite().all() for tensor in tensors), (queries, keys, hidden)


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


def test_no_tensor_is_larger_than_an_input_or_a_row_of_tiles():
    for sequence in [64, 256]:
        tensors = inputs(sequence, sequence, head_dim=16, batch=1)
        assert largest(tiled_attention, tensors, block_q=16, block_k=16) == 2 * sequence * 16, sequence
        # The plain one holds all scores, which this way of looking sees.
        assert largest(attention, tensors) == 2 * sequence * max(sequence, 16), sequence


def test_what_is_kept_for_the_backward_pass_grows_with_the_sequence():
    kept = []
    tensors = inputs(200, 300, head_dim=16, batch=1)
    with torch.autograd.graph.saved_tensors_hooks(lambda tensor: kept.append(tensor.numel()), lambda _: None):
        tiled_attention(*tensors)
    queries, keys = 2 * 200 * 16, 2 * 300 * 16
    assert sorted(kept) == sorted([queries, keys, keys, queries, 2 * 200])


def test_only_tiles_of_which_something_is_visible_are_computed():
    for shift, blocks in itertools.product([-9, -3, 0, 4, 20], [(4, 4), (3, 5), (20, 20)]):
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
        assert (tiles, len(computed)) == (visible, len(set(computed))), (shift, blocks)


def test_empty_tiles_are_refused():
    for blocks in [{"block_q": 0}, {"block_k": -1}]:
        with pytest.raises(ValueError, match="expected 1 or more of each"):
            tiled_attention(*inputs(4, 4), **blocks)


def test_gradients_of_gradients_are_refused():
    tensors = inputs(4, 4)
    output, _ = tiled_attention(*tensors)
    (gradient,) = torch.autograd.grad(output.square().sum(), tensors[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
