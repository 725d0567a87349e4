"""FlashAttention in Triton's interpreter: against float64 over a cover of its choices, at its edges, with faults."""

import itertools
import math
import os
import subprocess
import sys
import warnings

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_limits
from torch.profiler import ProfilerActivity, profile

from roofline_kernels.attention import flash_attention

from .attention_cases import (
    BLIND,
    CAUSAL,
    CHOICES,
    DTYPES,
    FAULTS,
    HEADS,
    LAYOUTS,
    LSE,
    SCALES,
    TILES,
    UPSTREAMS,
    Case,
    Tiled,
    affordable,
    amid_nan,
    beyond,
    lay_out,
    options,
    pairs,
    pairwise_cover,
    plain_attention,
    problem,
    reference,
    results,
)

# Lanes of the interpreter that end up masked must not trouble numpy either.
pytestmark = pytest.mark.filterwarnings("error::RuntimeWarning")

COVER = [*pairwise_cover(), *BLIND]
EVERY_DTYPE = pytest.mark.parametrize("dtype", [getattr(torch, name) for name in DTYPES], ids=DTYPES)


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Products are small here: to share one with a second thread takes longer, on a busy machine a hundred times."""
    with threadpool_limits(1):
        yield


@pytest.fixture(autouse=True, scope="module")
def nothing_left():
    """The answers of all cases are a few hundred MB, which no other test needs."""
    yield
    problem.cache_clear()
    reference.cache_clear()


def normal(*shape, dtype=torch.float32, seed=0):
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def three(*shape, keys=None, dtype=torch.float32):
    """Leaves q, k, v [B, H, S, D]; `keys` is the shape of k and v where it is another."""
    shapes = (shape, keys or shape, keys or shape)
    return [normal(*one, dtype=dtype, seed=seed).requires_grad_() for seed, one in enumerate(shapes)]


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
    for case in [*COVER[::5], *BLIND]:
        assert {} == beyond(case, results(case, flash_attention)), case


@st.composite
def small_cases(draw):
    heads, layout = draw(st.sampled_from(HEADS)), draw(st.sampled_from(LAYOUTS))
    one = heads == (1, 1)
    batch = 2 if one and layout == "BHSD expanded" else draw(st.integers(1, 2)) if one else 1
    lengths = draw(st.integers(0, 70)), draw(st.integers(0, 70))
    # As many programs as the smallest tiles make of the longest take seconds.
    tiles = TILES if math.prod(lengths) <= 32 * 32 else [tile for tile in TILES if tile != 16]
    return Case(
        head_dim=draw(st.integers(16, 64)),
        lengths=lengths,
        layout=layout,
        tile=draw(st.sampled_from(tiles)),
        dtype=draw(st.sampled_from(DTYPES)),
        causal=draw(st.sampled_from(CAUSAL)),
        heads=heads,
        upstream=draw(st.sampled_from(UPSTREAMS)),
        lse=draw(st.sampled_from(LSE)),
        scale=draw(st.sampled_from([*SCALES, 1.0])),
        batch=batch,
    )


@settings(max_examples=20)
@given(case=small_cases())
def test_any_small_problem_is_as_near_to_float64_as_pytorch_is(case):
    assert {} == beyond(case, results(case, flash_attention))


# The cover and its tolerance, which must notice what a kernel does wrong


def test_in_the_cover_every_two_choices_meet_that_may():
    met = set().union(*(pairs([getattr(case, name) for name in CHOICES]) for case in COVER))
    choices = [[(place, name, one) for one in CHOICES[name]] for place, name in enumerate(CHOICES)]
    for ones, others in itertools.combinations(choices, 2):
        for (i, name, one), (j, other_name, other) in itertools.product(ones, others):
            assert affordable({name: one, other_name: other}) == (((i, one), (j, other)) in met), (one, other)


# With at most two query heads, h // 2 and h modulo 1 are the same: the edge of grouped heads below sees it.
# Halves have no more bits than TF32.
NOTICED = [
    (fault, dtype)
    for fault in FAULTS
    for dtype in DTYPES
    if fault != "heads interleaved" and (fault, dtype) not in (("tf32", "float16"), ("tf32", "bfloat16"))
]


def test_the_cover_notices_in_each_dtype():
    for fault, dtype in NOTICED:
        noticed = any(beyond(case, Tiled(case, fault).results()) for case in COVER if case.dtype == dtype)
        assert noticed, f"{FAULTS[fault]}: within the tolerance in every {dtype} case"


# Edges


@EVERY_DTYPE
def test_empty_queries_give_empty_results_and_no_gradient_to_keys(dtype):
    q, k, v = three(2, 2, 0, 16, keys=(2, 1, 5, 16), dtype=dtype)
    output, lse = flash_attention(q, k, v, return_lse=True)
    assert ((2, 2, 0, 16), (2, 2, 0)) == (output.shape, lse.shape)
    (output.sum() + lse.sum()).backward()
    assert q.grad.shape == q.shape
    assert same([k.grad, v.grad], [torch.zeros_like(k), torch.zeros_like(v)])


@EVERY_DTYPE
@pytest.mark.parametrize("causal", CAUSAL)
def test_empty_keys_give_zero_and_a_log_sum_exp_of_minus_infinity(dtype, causal):
    q, k, v = three(1, 2, 5, 16, keys=(1, 1, 0, 16), dtype=dtype)
    output, lse = flash_attention(q, k, v, causal=causal is not None, alignment=causal, return_lse=True)
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
        output = flash_attention(q, k, v, causal=True, alignment=alignment)
        close(output[0, 0, :, :4], torch.tensor(expected))


@EVERY_DTYPE
@pytest.mark.parametrize("tile", [16, 64])
def test_queries_that_see_no_key_give_zero_and_no_gradient(dtype, tile):
    # Of 40 queries the first 35 come before all 5 keys: two whole tiles of 16, and part of a third.
    q, k, v = three(1, 1, 40, 16, keys=(1, 1, 5, 16), dtype=dtype)
    output, lse = flash_attention(q, k, v, causal=True, alignment="bottom-right", return_lse=True, tile=tile)
    found = torch.autograd.grad([output, lse], [q, k, v], [torch.ones_like(output), torch.ones_like(lse)])
    assert not output[:, :, :35].any()
    assert lse[:, :, :35].isneginf().all()
    assert not found[0][:, :, :35].any()
    assert all(tensor.isfinite().all() for tensor in (output, lse[:, :, 35:], *found))


@EVERY_DTYPE
@pytest.mark.parametrize("sign", [1, -1], ids=["positive", "negative"])
@pytest.mark.parametrize("causal", [False, True])
def test_scores_of_ten_thousand_overflow_nowhere(dtype, sign, causal):
    # Keys of length 100 along one axis each: a query scores ±10,000 with one of them, 0 with the others.
    q = (100 * torch.eye(32)[None, None]).to(dtype).requires_grad_()
    k, v = (sign * q.detach()).requires_grad_(), normal(1, 1, 32, 32, dtype=dtype).requires_grad_()
    output, lse = flash_attention(q, k, v, causal=causal, scale=1.0, return_lse=True, tile=16)
    seen = torch.ones(32, 32, dtype=torch.bool).tril() if causal else all_seen(q, k)
    expected, expected_lse = plain_attention(*(tensor.detach().double() for tensor in (q, k, v)), seen, 1.0)
    close(lse, expected_lse)
    close(output, expected, rtol=float(torch.finfo(dtype).eps))
    output.sum().backward()
    assert all(leaf.grad.isfinite().all() for leaf in (q, k, v))


def test_nan_in_a_hidden_key_stays_out_of_queries_that_do_not_see_it():
    """The mask replaces a score, it adds nothing to it; SDPA's fused back ends do the same, its math back end does not.

    Of a hidden *value* nothing is promised, here as there: 0 x NaN is NaN where a tile holds both.
    """
    q, k, v = three(1, 1, 40, 16)
    clean = flash_attention(q, k, v, causal=True, tile=16)
    k.data[:, :, 20] = math.nan
    output, lse = flash_attention(q, k, v, causal=True, tile=16, return_lse=True)
    assert same([output[:, :, :20]], [clean[:, :, :20]])
    assert lse[:, :, :20].isfinite().all()


def test_nan_that_is_seen_is_never_hidden():
    for which in ["q", "k", "v"]:
        tensors = dict(zip("qkv", three(1, 1, 40, 16), strict=True))
        tensors[which].data[:, :, 20, 3] = math.nan
        with warnings.catch_warnings():
            # The interpreter's maximum of a row of nothing but NaN.
            warnings.filterwarnings("ignore", "All-NaN slice")
            output = flash_attention(*tensors.values(), causal=True, tile=16)
        assert output[:, :, 20].isnan().any(), which
        if which != "q":
            assert output[:, :, 20:].isnan().any(-1).all(), which


@EVERY_DTYPE
@pytest.mark.parametrize("length", [3, 16, 33])
def test_what_lies_beside_a_slice_is_never_read(dtype, length):
    leaves = three(1, 2, length, 24, dtype=dtype)
    sliced = [amid_nan(leaf.detach()).requires_grad_() for leaf in leaves]
    assert all(leaf.storage_offset() and not leaf.is_contiguous() for leaf in sliced)
    found = []
    for inputs in (leaves, sliced):
        output, lse = flash_attention(*inputs, causal=True, return_lse=True, tile=16)
        upstream = normal(*output.shape, dtype=dtype, seed=9)
        found.append([output, lse, *torch.autograd.grad(output, inputs, upstream)])
    assert same(*found)


def test_packed_q_k_v_of_one_tensor_are_read_where_they_lie():
    packed = normal(2, 20, 3, 2, 16).requires_grad_()
    found = []
    for part in (packed.unbind(2), [one.contiguous() for one in packed.unbind(2)]):
        output = flash_attention(*part, layout="BSHD", causal=True)
        found.append([output, *torch.autograd.grad(output.square().sum(), packed)])
    assert same(*found)


def test_offsets_pass_two_to_the_31():
    # Memory that is only reserved: nothing but the two ends is ever touched.
    apart = 2**31 + 64
    roomy = torch.empty(apart + 16 * 16, dtype=torch.float16)
    far = roomy.as_strided((2, 1, 16, 16), (apart, 256, 16, 1))
    near = normal(2, 1, 16, 16, dtype=torch.float16)
    far.copy_(near)
    found = []
    for inputs in ([near] * 3, [far] * 3):
        leaves = [tensor.detach().requires_grad_() for tensor in inputs]
        output = flash_attention(*leaves)
        found.append([output, *torch.autograd.grad(output.square().sum(), leaves)])
    assert same(*found)


# Gradients


def test_the_log_sum_exp_alone_has_gradients():
    q, k, v = three(1, 2, 20, 16, keys=(1, 1, 33, 16))
    upstream = normal(1, 2, 20)
    lse = flash_attention(q, k, v, return_lse=True)[1]
    found = torch.autograd.grad(lse, [q, k, v], upstream, allow_unused=True)
    exact = [tensor.detach().double().requires_grad_() for tensor in (q, k, v)]
    expected = torch.autograd.grad(plain_attention(*exact, all_seen(q, k), 1 / 4)[1], exact[:2], upstream.double())
    close(found[0], expected[0])
    close(found[1], expected[1])
    assert found[2] is None or not found[2].any()


SUBSETS = [wanted for wanted in itertools.product([False, True], repeat=3) if any(wanted)]


def test_gradients_come_to_those_that_ask():
    for wanted in SUBSETS:
        full = three(1, 2, 20, 16, keys=(1, 1, 33, 16))
        some = [leaf.detach().requires_grad_(asks) for leaf, asks in zip(full, wanted, strict=True)]
        for leaves in (full, some):
            flash_attention(*leaves).square().sum().backward()
        assert list(wanted) == [leaf.grad is not None for leaf in some], wanted
        assert all(
            torch.equal(one.grad, other.grad) for one, other in zip(some, full, strict=True) if one.grad is not None
        )


def test_a_gradient_of_a_gradient_is_refused():
    leaves = three(1, 1, 5, 16)
    with pytest.raises(RuntimeError):  # noqa: PT012
        first = torch.autograd.grad(flash_attention(*leaves).square().sum(), leaves, create_graph=True)
        torch.autograd.grad(first[0].sum(), leaves)


def test_ten_runs_are_the_same_bit_by_bit():
    def run():
        leaves = three(1, 2, 40, 16, keys=(1, 1, 33, 16))
        output, lse = flash_attention(*leaves, causal=True, alignment="bottom-right", return_lse=True, tile=32)
        return output, lse, *torch.autograd.grad(output.float().square().sum(), leaves)

    first = run()
    assert all(same(run(), first) for _ in range(9))


@pytest.mark.parametrize(
    "case",
    [Case(24, (20, 33), causal="bottom-right", heads=(2, 1)), Case(16, (20, 20), "BS(HD)", heads=(2, 2))],
    ids=str,
)
def test_compiled_gives_the_same(case):
    def loss(q, k, v):
        output, lse = flash_attention(q * 2, k, v, **{**options(case), "return_lse": True})
        return output.square().sum() + lse.sum()

    found = []
    for function in (loss, torch.compile(loss, backend="aot_eager", fullgraph=True)):
        leaves = [lay_out(tensor, case.layout) for tensor in (problem(case).q, problem(case).k, problem(case).v)]
        total = function(*leaves)
        found.append([total, *torch.autograd.grad(total, leaves)])
    torch.compiler.reset()
    assert same(*found)


# Memory


def test_results_lie_in_memory_as_the_inputs_do():
    for kind in [layout for layout in LAYOUTS if "expanded" not in layout]:
        case = Case(16, (20, 20), kind, heads=(2, 2), batch=2)
        leaves = [lay_out(tensor, kind) for tensor in (problem(case).q, problem(case).k, problem(case).v)]
        output = flash_attention(*leaves, **options(case))
        found = torch.autograd.grad(output.square().sum(), leaves)
        # Which dimension comes first in memory, which next; a slice leaves its holes behind.
        order = [sorted(range(leaf.dim()), key=leaf.stride, reverse=True) for leaf in leaves]
        assert order[0] == sorted(range(output.dim()), key=output.stride, reverse=True), kind
        assert order == [sorted(range(leaf.dim()), key=leaf.stride, reverse=True) for leaf in found], kind
        assert [leaf.shape for leaf in (leaves[0], *leaves)] == [tensor.shape for tensor in (output, *found)], kind


def test_inputs_and_the_upstream_gradient_are_left_as_they_were():
    for kind in LAYOUTS:
        case = Case(24, (20, 33), kind, dtype="bfloat16", causal="top-left", batch=2)
        leaves = [lay_out(tensor, kind) for tensor in (problem(case).q, problem(case).k, problem(case).v)]
        output = flash_attention(*leaves, **options(case))
        upstream = normal(*output.shape, dtype=torch.bfloat16)
        given = (*leaves, upstream, output)
        kept, versions = [tensor.detach().clone() for tensor in given], [tensor._version for tensor in given]
        torch.autograd.grad(output, leaves, upstream)
        assert same(given, kept), kind
        assert versions == [tensor._version for tensor in given], kind


def events_of(leaves, **chosen):
    """What torch did in one forward and backward pass, inside custom operators as well."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, record_shapes=True) as recorded:
        output = flash_attention(*leaves, **chosen)
        torch.autograd.grad(output, leaves, output.new_ones(()).expand_as(output))
    return recorded.events()


def allocated(length):
    """Bytes of each allocation in a forward and a backward pass over one head of so many rows of 16."""
    events = events_of(three(1, 1, length, 16), causal=True, tile=128)
    return [event.self_cpu_memory_usage for event in events if event.self_cpu_memory_usage > 0]


def test_memory_is_linear_in_the_sequence():
    short, long = allocated(256), allocated(512)
    # A matrix of scores would be 32 times as large as any tensor that is needed.
    assert max(long) <= 512 * 16 * 4
    assert sum(long) <= 2.1 * sum(short)
    assert sum(long) <= 8 * 512 * 16 * 4


def test_inputs_are_read_where_they_lie_and_never_copied():
    for kind in LAYOUTS:
        case = Case(16, (20, 20), kind, batch=2, dtype="float16")
        leaves = [lay_out(tensor, kind) for tensor in (problem(case).q, problem(case).k, problem(case).v)]
        events = events_of(leaves, **options(case))
        copying = {"aten::clone", "aten::contiguous", "aten::copy_", "aten::_to_copy", "aten::repeat_interleave"}
        copied = [(event.name, event.input_shapes[0]) for event in events if event.name in copying]
        # The interpreter copies whole storages onto themselves, as one row of bytes.
        assert not [(name, shape) for name, shape in copied if len(shape) > 1 and math.prod(shape) >= leaves[0].numel()]


# Refusals: what was observed, what is expected


def zeros(*shape, dtype=torch.float32, device="cpu"):
    return torch.zeros(shape, dtype=dtype, device=device)


FOUR = (1, 2, 8, 16)
REFUSED = {
    "types that differ": ((zeros(*FOUR), zeros(*FOUR, dtype=torch.float16), zeros(*FOUR)), {}, "float32.*float16"),
    "a value's type that differs": ((zeros(*FOUR), zeros(*FOUR), zeros(*FOUR, dtype=torch.float16)), {}, "float16"),
    "devices that differ": ((zeros(*FOUR), zeros(*FOUR, device="meta"), zeros(*FOUR)), {}, "cpu.*meta"),
    "float64": ((zeros(*FOUR, dtype=torch.float64),) * 3, {}, "float64"),
    "integers": ((zeros(*FOUR, dtype=torch.int32),) * 3, {}, "int32"),
    "complex numbers": ((zeros(*FOUR, dtype=torch.complex64),) * 3, {}, "complex64"),
    "heads of 257": ((zeros(1, 1, 8, 257),) * 3, {}, "257"),
    "heads of 0": ((zeros(1, 1, 8, 0),) * 3, {}, "0"),
    "three query heads for two": ((zeros(1, 3, 8, 16), zeros(*FOUR), zeros(*FOUR)), {}, "3.*2"),
    "fewer query heads than key heads": ((zeros(1, 1, 8, 16), zeros(*FOUR), zeros(*FOUR)), {}, "1.*2"),
    "no alignment where it matters": (
        (zeros(*FOUR), zeros(1, 2, 9, 16), zeros(1, 2, 9, 16)),
        {"causal": True},
        "8.*9.*alignment",
    ),
    "an unknown alignment": ((zeros(*FOUR),) * 3, {"causal": True, "alignment": "centre"}, "centre.*top-left"),
    "an unknown alignment without a mask": ((zeros(*FOUR),) * 3, {"alignment": "centre"}, "centre.*top-left"),
    "an unknown layout": ((zeros(*FOUR),) * 3, {"layout": "SBHD"}, "SBHD.*BSHD"),
    "packed heads, their number unknown": ((zeros(1, 8, 32),) * 3, {"layout": "BS(HD)"}, "heads"),
    "packed heads that do not divide": ((zeros(1, 8, 32),) * 3, {"layout": "BS(HD)", "heads": 3}, "32.*3|3.*32"),
    "packed heads of which there are none": ((zeros(1, 8, 32),) * 3, {"layout": "BS(HD)", "heads": 0}, "0"),
    "heads said twice": ((zeros(*FOUR),) * 3, {"heads": 4}, "heads"),
    "a tile of 24": ((zeros(*FOUR),) * 3, {"tile": 24}, "24.*16"),
    "a tile of 512": ((zeros(*FOUR),) * 3, {"tile": 512}, "512.*256"),
    "a tile of 0": ((zeros(*FOUR),) * 3, {"tile": 0}, "0.*16"),
    "batches that differ": ((zeros(*FOUR), zeros(2, 2, 8, 16), zeros(2, 2, 8, 16)), {}, "2, 2, 8, 16"),
    "head dimensions that differ": ((zeros(*FOUR), zeros(1, 2, 8, 32), zeros(1, 2, 8, 32)), {}, "16.*32"),
    "values of another length": ((zeros(*FOUR), zeros(*FOUR), zeros(1, 2, 9, 16)), {}, "8.*9"),
    "values of other heads": ((zeros(*FOUR), zeros(*FOUR), zeros(1, 1, 8, 16)), {}, "1, 1, 8, 16"),
    "three dimensions for BHSD": ((zeros(2, 8, 16),) * 3, {}, "2, 8, 16.*4"),
    "four dimensions for HSD": ((zeros(*FOUR),) * 3, {"layout": "HSD"}, "1, 2, 8, 16.*3"),
}


def test_refused_with_what_was_seen_and_what_is_expected():
    for what in REFUSED:
        tensors, chosen, observed = REFUSED[what]
        with pytest.raises((ValueError, TypeError), match=rf"(?s){observed}") as refusal:
            flash_attention(*tensors, **chosen)
        assert "expected" in str(refusal.value), what


def test_heads_below_sixteen_are_refused_or_right():
    for head_dim in [1, 8, 15]:
        case = Case(head_dim, (20, 33), causal="bottom-right")
        try:
            found = results(case, flash_attention)
        except ValueError as refusal:
            assert str(head_dim) in str(refusal)  # noqa: PT017
            assert "expected" in str(refusal)  # noqa: PT017
        else:
            assert {} == beyond(case, found), head_dim


# The interpreter itself


INTERPRETED = """
import torch
import triton
import triton.language as tl


@triton.jit
def product(a, b, out, N: tl.constexpr):
    places = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(out + places, tl.dot(tl.load(a + places), tl.load(b + places)))


@triton.jit
def narrow(wide, out):
    tl.store(out, tl.load(wide).to(tl.bfloat16))


ones, products = torch.ones(16, 16, dtype=torch.bfloat16), torch.empty(16, 16)
product[(1,)](ones, ones, products, 16)
# Three quarters of the way from 1 to the next bfloat16.
narrowed = torch.empty(1, dtype=torch.bfloat16)
narrow[(1,)](torch.tensor([1 + 0.75 * 2**-7]), narrowed)
print(float(products[0, 0]), float(narrowed))
"""
MENDING = "roofline_kernels/attention/interpreting.py"


@pytest.fixture(scope="module")
def unmended(tmp_path_factory):
    """What Triton's own interpreter makes of 16 ones times 16 ones in bfloat16, and of 1.0059 narrowed to it."""
    program = tmp_path_factory.mktemp("unmended") / "program.py"
    program.write_text(INTERPRETED, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, str(program)],
        env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [float(number) for number in done.stdout.split()]


def test_triton_still_multiplies_the_bit_patterns_of_bfloat16(unmended):
    assert unmended[0] != 16, (
        f"Triton's interpreter multiplies bfloat16 as it should now: take mended_dot out of {MENDING}"
    )


def test_triton_still_cuts_bits_off_where_it_narrows_to_bfloat16(unmended):
    assert unmended[1] != 1 + 2**-7, f"Triton's interpreter rounds to bfloat16 now: take mended_narrow out of {MENDING}"


@pytest.mark.usefixtures("compiler")
def test_other_kernels_are_compiled_as_before_after_ours_were_interpreted():
    import triton
    import triton.language as tl

    from roofline_kernels.memcpy_triton import copy_kernel

    environment, language = dict(os.environ), dict(vars(tl))
    flash_attention(*three(1, 1, 5, 16)).sum().backward()
    assert environment == dict(os.environ)
    assert language == dict(vars(tl))
    assert type(copy_kernel) is triton.JITFunction
    assert type(triton.jit(copy_kernel.fn)) is triton.JITFunction
