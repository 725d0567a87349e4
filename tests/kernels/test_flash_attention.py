"""FlashAttention in Triton's interpreter: against float64 over a cover of its choices, and at its edges."""

import itertools
import math
import os
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.profiler import ProfilerActivity, profile

from roofline_kernels.attention import flash_attention

from .. import warm
from .attention_cases import (
    CHOICES,
    FAULTS,
    Case,
    amid_nan,
    beyond,
    faulty,
    leaves_of,
    options,
    pairwise_cover,
    plain_attention,
    results,
)

# Lanes of the interpreter that end up masked must not trouble numpy either.
pytestmark = [
    pytest.mark.filterwarnings("error::RuntimeWarning"),
    pytest.mark.usefixtures("one_thread"),
]

COVER = pairwise_cover()
DTYPES = [getattr(torch, name) for name in CHOICES["dtype"]]


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def three(*shape, keys=None, dtype=torch.float32):
    """Leaves q, k, v [B, H, S, D]; `keys` is the shape of k and v where it is another."""
    shapes = (shape, keys or shape, keys or shape)
    return [
        normal(*one, dtype=dtype, seed=seed).requires_grad_() for seed, one in enumerate(shapes)
    ]


def all_seen(q, k):
    return torch.ones(q.shape[2], k.shape[2], dtype=torch.bool)


def close(found, expected, rtol=1e-5):
    torch.testing.assert_close(found.double(), expected.double(), rtol=rtol, atol=rtol)


def same(found, expected):
    """Bit by bit."""
    return all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


# Against float64


def test_results_are_as_near_to_float64_as_pytorch_is():
    # All of them by `tests/slow/test_attention_cover.py`.
    for case in [*COVER[::9], *COVER[-3:]]:
        assert {} == beyond(case, results(case, flash_attention)), case


def test_the_tolerance_notices_a_faulty_kernel_in_each_dtype():
    for fault, dtype in itertools.product(FAULTS, CHOICES["dtype"]):
        # Halves have no more bits than TF32.
        if fault != "tf32" or dtype == "float32":
            assert any(
                beyond(case, faulty(case, fault)) for case in COVER if case.dtype == dtype
            ), (fault, dtype)


@st.composite
def small_cases(draw):
    chosen = {
        name: draw(st.sampled_from(CHOICES[name]))
        for name in ("layout", "dtype", "causal", "upstream", "lse")
    }
    heads = draw(st.sampled_from(CHOICES["heads"]))
    batch = (
        2
        if chosen["layout"] == "BHSD expanded"
        else draw(st.integers(1, 2))
        if heads == (1, 1)
        else 1
    )
    lengths = draw(st.integers(0, 70)), draw(st.integers(0, 70))
    # As many programs as the smallest tiles make of the longest take seconds.
    tile = draw(st.sampled_from((None, 16, 64) if math.prod(lengths) <= 32 * 32 else (None, 64)))
    scale = draw(st.sampled_from([None, 0.3, 1.0]))
    return Case(
        draw(st.integers(16, 64)),
        lengths,
        tile=tile,
        heads=heads,
        batch=batch,
        scale=scale,
        **chosen,
    )


@settings(max_examples=8)
@given(case=small_cases())
def test_any_small_problem_is_as_near_to_float64_as_pytorch_is(case):
    assert {} == beyond(case, results(case, flash_attention))


# Edges


def test_empty_queries_and_keys_give_empty_results_zeros_and_minus_infinity():
    for dtype in DTYPES:
        q, k, v = three(2, 2, 0, 16, keys=(2, 1, 5, 16), dtype=dtype)
        output, lse = flash_attention(q, k, v, return_lse=True)
        assert ((2, 2, 0, 16), (2, 2, 0)) == (output.shape, lse.shape)
        (output.sum() + lse.sum()).backward()
        assert q.grad.shape == q.shape
        assert same([k.grad, v.grad], [torch.zeros_like(k), torch.zeros_like(v)])
    for causal in CHOICES["causal"]:
        q, k, v = three(1, 2, 5, 16, keys=(1, 1, 0, 16))
        output, lse = flash_attention(
            q, k, v, causal=causal is not None, alignment=causal, return_lse=True
        )
        assert same([output, lse], [torch.zeros_like(q), torch.full((1, 2, 5), -math.inf)])
        output.sum().backward()
        assert same([q.grad], [torch.zeros_like(q)])
        assert (k.shape, v.shape) == (k.grad.shape, v.grad.shape)


def test_alignment_says_which_keys_two_queries_of_four_keys_see():
    for alignment, expected in [
        ("top-left", [[1, 0, 0, 0], [1 / 2, 1 / 2, 0, 0]]),
        ("bottom-right", [[1 / 3, 1 / 3, 1 / 3, 0], [1 / 4, 1 / 4, 1 / 4, 1 / 4]]),
    ]:
        # Without scores all keys that are seen weigh the same, and the values tell which they were.
        q, k, v = torch.zeros(1, 1, 2, 16), torch.zeros(1, 1, 4, 16), torch.eye(4, 16)[None, None]
        close(
            flash_attention(q, k, v, causal=True, alignment=alignment)[0, 0, :, :4],
            torch.tensor(expected),
        )


def test_queries_that_see_no_key_give_zero_and_no_gradient():
    for dtype, tile in zip(DTYPES, (16, 64, 16), strict=True):
        # Of 40 queries the first 35 come before all 5 keys: two whole tiles of 16, and part of a third.
        q, k, v = three(1, 1, 40, 16, keys=(1, 1, 5, 16), dtype=dtype)
        output, lse = flash_attention(
            q, k, v, causal=True, alignment="bottom-right", return_lse=True, tile=tile
        )
        found = torch.autograd.grad(
            [output, lse], [q, k, v], [torch.ones_like(output), torch.ones_like(lse)]
        )
        assert not output[:, :, :35].any()
        assert lse[:, :, :35].isneginf().all()
        assert not found[0][:, :, :35].any()
        assert all(tensor.isfinite().all() for tensor in (output, lse[:, :, 35:], *found))


def test_scores_of_ten_thousand_overflow_nowhere():
    for dtype, sign, causal in [
        (*DTYPES[:1], 1, False),
        (DTYPES[1], -1, True),
        (DTYPES[2], 1, True),
    ]:
        # Keys of length 100 along one axis each: a query scores ±10,000 with one of them, 0 with the others.
        q = (100 * torch.eye(32)[None, None]).to(dtype).requires_grad_()
        k, v = (
            (sign * q.detach()).requires_grad_(),
            normal(1, 1, 32, 32, dtype=dtype).requires_grad_(),
        )
        output, lse = flash_attention(q, k, v, causal=causal, scale=1.0, return_lse=True, tile=16)
        seen = torch.ones(32, 32, dtype=torch.bool).tril() if causal else all_seen(q, k)
        expected, expected_lse = plain_attention(
            *(tensor.detach().double() for tensor in (q, k, v)), seen, 1.0
        )
        close(lse, expected_lse)
        close(output, expected, rtol=float(torch.finfo(dtype).eps))
        output.sum().backward()
        assert all(leaf.grad.isfinite().all() for leaf in (q, k, v))


def test_nan_in_a_hidden_key_stays_out_and_one_that_is_seen_is_never_hidden():
    """The mask replaces a score, it adds nothing to it; SDPA's fused back ends do the same, its math back end does not.

    Of a hidden *value* nothing is promised, here as there: 0 x NaN is NaN where a tile holds both.
    """
    for which in "qkv":
        tensors = dict(zip("qkv", three(1, 1, 40, 16), strict=True))
        clean = flash_attention(*tensors.values(), causal=True, tile=16)
        tensors[which].data[:, :, 20, 3] = math.nan
        with warnings.catch_warnings():
            # The interpreter's maximum of a row of nothing but NaN.
            warnings.filterwarnings("ignore", "All-NaN slice")
            output = flash_attention(*tensors.values(), causal=True, tile=16)
        assert output[:, :, 20].isnan().any(), which
        assert which == "q" or output[:, :, 20:].isnan().any(-1).all(), which
        assert which != "k" or same([output[:, :, :20]], [clean[:, :, :20]])


def results_of(inputs, upstream=None, **chosen):
    output = flash_attention(*inputs, **chosen)
    upstream = torch.ones_like(output) if upstream is None else upstream
    return [output, *torch.autograd.grad(output, inputs, upstream)]


def test_only_what_belongs_to_a_tensor_is_read_wherever_it_lies():
    for dtype, length in zip(DTYPES, (33, 16, 3), strict=True):
        leaves = three(1, 2, length, 24, dtype=dtype)
        sliced = [amid_nan(leaf.detach()).requires_grad_() for leaf in leaves]
        assert same(*(results_of(inputs, causal=True, tile=16) for inputs in (leaves, sliced))), (
            dtype
        )
    packed = normal(2, 20, 3, 2, 16).requires_grad_()
    found = []
    for part in (packed.unbind(2), [one.contiguous() for one in packed.unbind(2)]):
        output = flash_attention(*part, layout="BSHD", causal=True)
        found.append([output, *torch.autograd.grad(output.square().sum(), packed)])
    assert same(*found)


def test_offsets_pass_two_to_the_31():
    # Memory that is only reserved: nothing but the two ends is ever touched.
    pitch = 2**31 + 64
    roomy = torch.empty(pitch + 16 * 16, dtype=torch.float16)
    far = roomy.as_strided((2, 1, 16, 16), (pitch, 256, 16, 1))
    near = normal(2, 1, 16, 16, dtype=torch.float16)
    far.copy_(near)
    assert same(
        *(
            results_of([tensor.detach().requires_grad_() for _ in range(3)])
            for tensor in (near, far)
        )
    )


# Gradients


def test_the_log_sum_exp_alone_has_gradients():
    q, k, v = three(1, 2, 20, 16, keys=(1, 1, 33, 16))
    upstream = normal(1, 2, 20)
    lse = flash_attention(q, k, v, return_lse=True)[1]
    found = torch.autograd.grad(lse, [q, k, v], upstream, allow_unused=True)
    exact = [tensor.detach().double().requires_grad_() for tensor in (q, k, v)]
    expected = torch.autograd.grad(
        plain_attention(*exact, all_seen(q, k), 1 / 4)[1], exact[:2], upstream.double()
    )
    close(found[0], expected[0])
    close(found[1], expected[1])
    assert found[2] is None or not found[2].any()


def test_gradients_come_to_those_that_ask_and_a_gradient_of_a_gradient_is_refused():
    full = three(1, 2, 20, 16, keys=(1, 1, 33, 16))
    flash_attention(*full).square().sum().backward()
    for wanted in [(True, False, False), (False, True, False), (False, True, True)]:
        some = [leaf.detach().requires_grad_(asks) for leaf, asks in zip(full, wanted, strict=True)]
        flash_attention(*some).square().sum().backward()
        assert list(wanted) == [leaf.grad is not None for leaf in some]
        pairs = [
            (one.grad, other.grad)
            for one, other in zip(some, full, strict=True)
            if one.grad is not None
        ]
        assert all(torch.equal(one, other) for one, other in pairs), wanted
    first = torch.autograd.grad(flash_attention(*full).square().sum(), full, create_graph=True)
    with pytest.raises(RuntimeError):
        torch.autograd.grad(first[0].sum(), full)


def test_three_runs_are_the_same_bit_by_bit():
    leaves = three(1, 2, 40, 16, keys=(1, 1, 33, 16))
    runs = [results_of(leaves, causal=True, alignment="bottom-right", tile=32) for _ in range(3)]
    assert same(runs[0], runs[1])
    assert same(runs[0], runs[2])


def test_compiled_gives_the_same():
    def loss(q, k, v):
        output, lse = flash_attention(q * 2, k, v, **{**options(case), "return_lse": True})
        return output.square().sum() + lse.sum()

    case = Case(24, (20, 33), "BS(HD)", causal="bottom-right", heads=(2, 1))
    found = []
    for function in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
        leaves = leaves_of(case)
        total = function(*leaves)
        found.append([total, *torch.autograd.grad(total, leaves)])
    torch.compiler.reset()
    assert same(*found)


# Memory


def events_of(leaves, **chosen):
    """What torch did in one forward and backward pass, inside custom operators as well; and the results."""
    with profile(
        activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True
    ) as recorded:
        output = flash_attention(*leaves, **chosen)
        found = torch.autograd.grad(output, leaves, output.new_ones(()).expand_as(output))
    return recorded.events(), [output, *found]


def order_in_memory(tensor):
    """Which dimension comes first in memory, which next."""
    return sorted(range(tensor.dim()), key=tensor.stride, reverse=True)


def test_inputs_stay_where_and_as_they_are_and_results_lie_as_they_do():
    copying = {
        "aten::clone",
        "aten::contiguous",
        "aten::copy_",
        "aten::_to_copy",
        "aten::repeat_interleave",
    }
    for kind in CHOICES["layout"]:
        case = Case(16, (20, 20), kind, heads=(2, 2), batch=2, dtype="float16")
        leaves = leaves_of(case)
        before, versions = (
            [leaf.detach().clone() for leaf in leaves],
            [leaf._version for leaf in leaves],
        )
        events, found = events_of(leaves, **options(case))
        copied = [(event.name, event.input_shapes[0]) for event in events if event.name in copying]
        # The interpreter copies whole storages onto themselves, as one row of bytes.
        assert not [
            (name, shape)
            for name, shape in copied
            if len(shape) > 1 and math.prod(shape) >= leaves[0].numel()
        ]
        assert same(leaves, before), kind
        assert versions == [leaf._version for leaf in leaves], kind
        assert [leaf.shape for leaf in (leaves[0], *leaves)] == [
            tensor.shape for tensor in found
        ], kind
        if "expanded" not in kind:
            assert [order_in_memory(one) for one in (leaves[0], *leaves)] == [
                *map(order_in_memory, found)
            ], kind


def test_memory_is_linear_in_the_sequence():
    def allocated(length):
        events, _ = events_of(three(1, 1, length, 16), causal=True, tile=128)
        return [event.self_cpu_memory_usage for event in events if event.self_cpu_memory_usage > 0]

    short, long = allocated(256), allocated(512)
    # A matrix of scores would be 32 times as large as any tensor that is needed.
    assert max(long) <= 512 * 16 * 4
    assert sum(long) <= min(2.1 * sum(short), 8 * 512 * 16 * 4)


# Refusals: what was observed, what is expected


def zeros(*shape, dtype=torch.float32, device="cpu"):
    return torch.zeros(shape, dtype=dtype, device=device)


FOUR = (1, 2, 8, 16)
EQUAL, OTHERS = zeros(*FOUR), zeros(1, 2, 9, 16)
REFUSED = [
    ((EQUAL, zeros(*FOUR, dtype=torch.float16), EQUAL), {}, "float32.*float16"),
    ((EQUAL, EQUAL, zeros(*FOUR, dtype=torch.float16)), {}, "float16"),
    ((EQUAL, zeros(*FOUR, device="meta"), EQUAL), {}, "cpu.*meta"),
    *(
        ((zeros(*FOUR, dtype=dtype),) * 3, {}, str(dtype))
        for dtype in (torch.float64, torch.int32, torch.complex64)
    ),
    ((zeros(1, 1, 8, 257),) * 3, {}, "257"),
    ((zeros(1, 1, 8, 0),) * 3, {}, "0"),
    ((zeros(1, 3, 8, 16), EQUAL, EQUAL), {}, "3.*2"),
    ((zeros(1, 1, 8, 16), EQUAL, EQUAL), {}, "1.*2"),
    ((EQUAL, OTHERS, OTHERS), {"causal": True}, "8.*9.*alignment"),
    ((EQUAL,) * 3, {"causal": True, "alignment": "centre"}, "centre.*top-left"),
    ((EQUAL,) * 3, {"alignment": "centre"}, "centre.*top-left"),
    ((EQUAL,) * 3, {"layout": "SBHD"}, "SBHD.*BSHD"),
    ((zeros(1, 8, 32),) * 3, {"layout": "BS(HD)"}, "heads"),
    ((zeros(1, 8, 32),) * 3, {"layout": "BS(HD)", "heads": 3}, "32.*3|3.*32"),
    ((zeros(1, 8, 32),) * 3, {"layout": "BS(HD)", "heads": 0}, "0"),
    ((EQUAL,) * 3, {"heads": 4}, "heads"),
    ((EQUAL,) * 3, {"tile": 24}, "24.*16"),
    ((EQUAL, zeros(2, 2, 8, 16), zeros(2, 2, 8, 16)), {}, "2, 2, 8, 16"),
    ((EQUAL, zeros(1, 2, 8, 32), zeros(1, 2, 8, 32)), {}, "16.*32"),
    ((EQUAL, EQUAL, OTHERS), {}, "8.*9"),
    ((EQUAL, EQUAL, zeros(1, 1, 8, 16)), {}, "1, 1, 8, 16"),
    ((zeros(2, 8, 16),) * 3, {}, "2, 8, 16.*4"),
    ((EQUAL,) * 3, {"layout": "HSD"}, "1, 2, 8, 16.*3"),
]


def test_refused_with_what_was_seen_and_what_is_expected():
    for tensors, chosen, observed in REFUSED:
        with pytest.raises((ValueError, TypeError), match=rf"(?s){observed}") as refusal:
            flash_attention(*tensors, **chosen)
        assert "expected" in str(refusal.value), observed


def test_heads_below_sixteen_are_right():
    for head_dim in [1, 8, 15]:
        case = Case(head_dim, (20, 33), causal="bottom-right")
        assert {} == beyond(case, results(case, flash_attention)), head_dim


# The interpreter itself


UNMENDED = """
import torch
import triton
import triton.language as tl


@triton.jit
def product(a, b, wide, out, narrowed, N: tl.constexpr):
    places = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + places, tl.dot(tl.load(a + places), tl.load(b + places)))
    tl.store(narrowed, tl.load(wide).to(tl.bfloat16))


ones, products = torch.ones(16, 16, dtype=torch.bfloat16), torch.empty(16, 16)
# Three quarters of the way from 1 to the next bfloat16.
wide, narrowed = torch.tensor([1 + 0.75 * 2**-7]), torch.empty(1, dtype=torch.bfloat16)
product[(1,)](ones, ones, wide, products, narrowed, 16)
print(float(products[0, 0]), float(narrowed))
"""


def test_triton_still_multiplies_and_narrows_bfloat16_by_its_bit_patterns(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(UNMENDED, encoding="utf-8")
    done = warm.run([program], env=os.environ | {"TRITON_INTERPRET": "1"})
    assert done.returncode == 0, done.stderr
    product, narrowed = map(float, done.stdout.split())
    mending = "roofline_kernels/attention/interpreting.py"
    assert product != 16, (
        f"Triton's interpreter multiplies bfloat16 as it should now: take mended_dot out of {mending}"
    )
    assert narrowed != 1 + 2**-7, (
        f"Triton's interpreter rounds to bfloat16 now: take mended_narrow out of {mending}"
    )
