"""The plain and the tiled attention against PyTorch's, sums written out and finite differences; tiled, its memory."""

import itertools
import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
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
    return [
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()
        for shape in shapes
    ]


def masked(alignment):
    return {"causal": alignment is not None, "alignment": alignment}


def seen(queries, keys, alignment):
    """[S_q, S_k], bool: the definition of both causal masks, entry by entry; all true without one."""
    ahead = {None: keys, "top-left": 0, "bottom-right": keys - queries}[alignment]
    return torch.tensor([[j <= i + ahead for j in range(keys)] for i in range(queries)]).reshape(
        queries, keys
    )


def results(found, tensors):
    """Both outputs and the gradients of q, k and v, where both outputs matter."""
    output, lse = found
    upstream = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
    upstream_lse = torch.linspace(1, -1, lse.numel(), dtype=lse.dtype).view_as(lse)
    return (*found, *torch.autograd.grad((output, lse), tensors, (upstream, upstream_lse)))


# The plain one


def test_the_two_alignments_are_what_pytorch_calls_causal_and_lower_right():
    # It imports torch's compiler, for which other processes that collect these tests have no use.
    from torch.nn.attention.bias import causal_lower_right

    for queries, keys in [(1, 1), (16, 16), (17, 33), (33, 17), (1, 20), (20, 1)]:
        tensors = inputs(queries, keys)
        expected = scaled_dot_product_attention(*tensors, is_causal=True)
        torch.testing.assert_close(attention(*tensors, **masked("top-left"))[0], expected, **CLOSE)
    for queries, keys in [(7, 7), (17, 33), (1, 20)]:
        tensors = [tensor.detach() for tensor in inputs(queries, keys)]
        expected = scaled_dot_product_attention(
            *tensors, attn_mask=causal_lower_right(queries, keys)
        )
        torch.testing.assert_close(
            attention(*tensors, **masked("bottom-right"))[0], expected, **CLOSE
        )


@settings(max_examples=60)
@given(
    lengths=st.tuples(st.integers(0, 40), st.integers(1, 40)),
    heads=st.sampled_from(HEADS),
    head_dim=st.integers(1, 33),
    batch=st.integers(0, 2),
    alignment=st.sampled_from([None, *ALIGNMENTS]),
)
def test_any_shape_gives_what_pytorch_gives(lengths, heads, head_dim, batch, alignment):
    tensors, mask = inputs(*lengths, heads, head_dim, batch), seen(*lengths, alignment)
    output, lse = attention(*tensors, **masked(alignment))
    expected = scaled_dot_product_attention(*tensors, attn_mask=mask, enable_gqa=True)
    # Rows that see nothing have tests of their own.
    torch.testing.assert_close(output[:, :, mask.any(1)], expected[:, :, mask.any(1)], **CLOSE)
    assert torch.equal(lse.isfinite(), mask.any(1).expand(lse.shape))


def test_output_and_log_sum_exp_are_the_sums_written_out():
    for alignment in [None, *ALIGNMENTS]:
        q, k, v = (tensor.detach() for tensor in inputs(4, 6, heads=(4, 2), head_dim=3, batch=1))
        output, lse = attention(q, k, v, **masked(alignment), scale=0.7)
        mask = seen(4, 6, alignment)
        for head, query in itertools.product(range(4), range(4)):
            keys = [key for key in range(6) if mask[query, key]]
            weights = [
                math.exp(0.7 * float(q[0, head, query] @ k[0, head // 2, key])) for key in keys
            ]
            mixed = sum(
                w * v[0, head // 2, key] for w, key in zip(weights, keys, strict=True)
            ) / sum(weights)
            torch.testing.assert_close(output[0, head, query], mixed, **CLOSE)
            assert float(lse[0, head, query]) == pytest.approx(math.log(sum(weights)), abs=1e-10), (
                alignment
            )


def test_gradients_are_finite_differences_of_both_results():
    for alignment, heads, lengths in itertools.product(
        [None, *ALIGNMENTS], [(1, 1), (2, 1)], [(3, 3), (2, 4)]
    ):
        tensors = inputs(*lengths, heads, head_dim=3, batch=1)
        for function, blocks in [(attention, {}), (tiled_attention, {"block_q": 2, "block_k": 2})]:
            chosen = masked(alignment) | blocks
            assert torch.autograd.gradcheck(
                lambda *three, f=function, c=chosen: f(*three, **c), tensors
            )


@pytest.fixture
def eager_in_half():
    """PyTorch's eager attention as it is written: since 2.5 it computes halves in float32 unless it is told not to."""
    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(True)
    with sdpa_kernel(SDPBackend.MATH):
        yield scaled_dot_product_attention
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)


def test_a_half_is_as_precise_as_pytorchs_eager_attention(eager_in_half):
    def with_gradients(output, tensors):
        upstream = torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)
        return [output, *torch.autograd.grad(output, tensors, upstream)]

    for dtype, causal in itertools.product([torch.float16, torch.bfloat16], [False, True]):
        halves = inputs(64, 64, head_dim=32, dtype=dtype)
        exact = [tensor.detach().double().requires_grad_() for tensor in halves]
        theirs = with_gradients(eager_in_half(*halves, is_causal=causal), halves)
        ours = with_gradients(attention(*halves, causal=causal)[0], halves)
        expected = with_gradients(attention(*exact, causal=causal)[0], exact)
        for found, known, right in zip(ours, theirs, expected, strict=True):
            assert (found - right).abs().max() <= 2 * (known - right).abs().max()


def test_the_output_has_the_inputs_type_and_the_log_sum_exp_at_least_single_precision():
    for dtype in [torch.float64, torch.float32, torch.float16, torch.bfloat16]:
        output, lse = attention(*inputs(4, 4, dtype=dtype))
        assert (output.dtype, lse.dtype) == (
            dtype,
            torch.float64 if dtype == torch.float64 else torch.float32,
        )


def test_a_query_that_sees_nothing_gives_zero_and_gets_no_gradient():
    blocks = {"block_q": 16, "block_k": 16}
    for function, chosen in [(attention, {}), (tiled_attention, blocks)]:
        for queries, keys, hidden in [(5, 3, 2), (80, 1, 79), (100, 20, 80), (4, 0, 4)]:
            tensors = inputs(queries, keys)
            output, lse = function(*tensors, **masked("bottom-right"), **chosen)
            assert output[:, :, :hidden].eq(0).all(), (queries, keys)
            assert lse[:, :, :hidden].eq(-math.inf).all(), (queries, keys)
            assert lse[:, :, hidden:].isfinite().all(), (queries, keys)
            # The derivative of lse² at -inf is -inf: what nothing depends on stays 0 all the same.
            (output.sum() + (lse.square() if chosen else lse).sum()).backward()
            assert tensors[0].grad[:, :, :hidden].eq(0).all(), (queries, keys)
            assert all(tensor.grad.isfinite().all() for tensor in tensors), (queries, keys)


def test_scores_too_large_for_exp_still_sum_to_one():
    q, k, _ = inputs(5, 6)
    output, lse = attention(1e4 * q, 1e4 * k, torch.ones_like(k))
    torch.testing.assert_close(output, torch.ones_like(output))
    assert lse.isfinite().all()


def zeros(*shapes, dtypes=(torch.float32,) * 3, devices=("cpu",) * 3):
    shapes = shapes or ((1, 1, 4, 8),) * 3
    return [
        torch.zeros(s, dtype=t, device=d) for s, t, d in zip(shapes, dtypes, devices, strict=True)
    ]


def test_what_is_no_attention_is_refused():
    four, half = (1, 1, 4, 8), torch.float16
    for tensors, chosen, told in [
        (
            inputs(3, 4),
            {"causal": True},
            "causal with 3 queries and 4 keys, and no alignment; expected align",
        ),
        (
            inputs(3, 3),
            {"alignment": "right"},
            "alignment 'right'; expected 'top-left' or 'bottom-right'",
        ),
        (
            zeros((4, 8), (4, 8), (4, 8)),
            {},
            r"q \(4, 8\), k \(4, 8\), v \(4, 8\); expected q \[B, H_q, S_q, D\]",
        ),
        (zeros(four, four, (1, 1, 5, 8)), {}, "k and v of one shape"),
        (zeros((2, 1, 4, 8), four, four), {}, "expected the same batch"),
        (zeros(four, (1, 1, 4, 16), (1, 1, 4, 16)), {}, "the same head dimension"),
        (zeros((1, 1, 4, 0), (1, 1, 4, 0), (1, 1, 4, 0)), {}, "the same head dimension, 1 or more"),
        (
            zeros((1, 3, 4, 8), (1, 2, 4, 8), (1, 2, 4, 8)),
            {},
            "3 query heads and 2 key heads; expected a multiple",
        ),
        (zeros((1, 2, 4, 8), (1, 0, 4, 8), (1, 0, 4, 8)), {}, "2 query heads and 0 key heads"),
        (
            zeros(dtypes=(torch.float32, half, half)),
            {},
            "q torch.float32, k torch.float16, v torch.float16; expected",
        ),
        (zeros(dtypes=(torch.int32,) * 3), {}, "expected one floating-point type"),
        (
            zeros(devices=("cpu", "meta", "meta")),
            {},
            "q on cpu, k on meta, v on meta; expected one device",
        ),
    ]:
        with pytest.raises(ValueError, match=told):
            attention(*tensors, **chosen)
    for blocks in [{"block_q": 0}, {"block_k": -1}]:
        with pytest.raises(ValueError, match="expected 1 or more of each"):
            tiled_attention(*inputs(4, 4), **blocks)


# The tiled one


@settings(max_examples=50)
@given(
    lengths=st.tuples(st.integers(0, 50), st.integers(0, 50)),
    heads=st.sampled_from(HEADS),
    head_dim=st.integers(1, 20),
    batch=st.integers(0, 2),
    alignment=st.sampled_from([None, *ALIGNMENTS]),
    blocks=st.tuples(st.integers(1, 60), st.integers(1, 60)),
    scale=st.sampled_from([None, 0.0, 0.3, -2.0]),
)
def test_any_shape_and_tile_gives_what_the_plain_attention_gives(
    lengths, heads, head_dim, batch, alignment, blocks, scale
):
    tensors, chosen = inputs(*lengths, heads, head_dim, batch), masked(alignment) | {"scale": scale}
    tiled = tiled_attention(*tensors, block_q=blocks[0], block_k=blocks[1], **chosen)
    for found, expected in zip(
        results(tiled, tensors), results(attention(*tensors, **chosen), tensors), strict=True
    ):
        torch.testing.assert_close(found, expected, **CLOSE)


def test_errors_are_at_most_twice_those_of_plain_attention():
    for dtype, causal in itertools.product(
        [torch.float32, torch.float16, torch.bfloat16], [False, True]
    ):
        tensors = inputs(97, 97, (4, 2), 32, dtype=dtype)
        exact = [tensor.detach().double().requires_grad_() for tensor in tensors]
        ours = results(tiled_attention(*tensors, causal=causal, block_q=32, block_k=16), tensors)
        plain = results(attention(*tensors, causal=causal), tensors)
        for found, known, right in zip(
            ours, plain, results(attention(*exact, causal=causal), exact), strict=True
        ):
            # FlashAttention's rule; the last term is what the type resolves.
            rounded = right.to(found.dtype)
            resolved = (rounded + 0.3 - 0.3 - rounded).abs().max()
            assert (found - right).abs().max() <= 2 * (known - right).abs().max() + 2 * resolved, (
                dtype,
                causal,
            )


def test_neither_the_layout_in_memory_nor_another_run_changes_anything():
    tensors, chosen = inputs(20, 30, (4, 2)), masked("bottom-right") | {"block_q": 8, "block_k": 8}
    first, second = (results(tiled_attention(*tensors, **chosen), tensors) for _ in range(2))
    assert all(torch.equal(one, other) for one, other in zip(first, second, strict=True))
    for order in [(0, 2, 1, 3), (3, 2, 1, 0), (2, 0, 3, 1)]:
        back = [order.index(dim) for dim in range(4)]
        others = [
            one.detach().permute(order).contiguous().permute(back).requires_grad_()
            for one in tensors
        ]
        for found, known in zip(
            results(tiled_attention(*others, **chosen), others), first, strict=True
        ):
            torch.testing.assert_close(found, known, **CLOSE)


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


def test_no_tensor_is_larger_than_an_input_or_a_row_of_tiles_and_what_is_saved_is_linear():
    for sequence in [64, 256]:
        tensors = inputs(sequence, sequence, head_dim=16, batch=1)
        for function, blocks, most in [
            (tiled_attention, {"block_q": 16, "block_k": 16}, 2 * sequence * 16),
            # The plain one has all scores at once, which this way of looking sees.
            (attention, {}, 2 * sequence * max(sequence, 16)),
        ]:
            with LargestTensor() as made:
                results(function(*tensors, causal=True, **blocks), tensors)
            assert made.elements == most, sequence
    saved = []
    tensors = inputs(200, 300, head_dim=16, batch=1)
    with torch.autograd.graph.saved_tensors_hooks(
        lambda tensor: saved.append(tensor.numel()), lambda _: None
    ):
        tiled_attention(*tensors)
    queries, keys = 2 * 200 * 16, 2 * 300 * 16
    assert sorted(saved) == sorted([queries, keys, keys, queries, 2 * 200])


def test_only_tiles_of_which_something_is_visible_are_computed():
    for shift, blocks in itertools.product([-9, 0, 4, 20], [(4, 4), (3, 5), (20, 20)]):
        tiling = Tiling(12, 20, shift, 1.0, *blocks)
        places = [
            (range(12)[rows], range(20)[tile])
            for rows in tiling.rows()
            for tile in tiling.columns(rows)
        ]
        computed = [pair for rows, columns in places for pair in itertools.product(rows, columns)]
        visible = {
            (i // blocks[0], j // blocks[1]) for i in range(12) for j in range(20) if j <= i + shift
        }
        tiles = {(i // blocks[0], j // blocks[1]) for i, j in computed}
        assert (tiles, len(computed)) == (visible, len(set(computed))), (shift, blocks)


def test_gradients_of_gradients_are_refused():
    tensors = inputs(4, 4)
    output, _ = tiled_attention(*tensors)
    (gradient,) = torch.autograd.grad(output.square().sum(), tensors[:1], create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()
