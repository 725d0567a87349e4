"""From tensors to launches of the attention kernels: grids, constants, strides, descriptors, and what is refused."""

import contextlib
import itertools
import math
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from hypothesis import assume, given
from hypothesis import strategies as st
from triton.runtime.errors import OutOfResources

from pytest_roofline.baselines.files import read_baseline
from pytest_roofline.core.resources import registers_of
from pytest_roofline.kernel_gate.arguments import signature_of
from pytest_roofline.kernel_gate.compile import compile_for
from pytest_roofline.kernel_gate.targets import gpu_target, shared_limits
from roofline_kernels.attention import flash_attention, launches, launching, operators
from roofline_kernels.attention.ahead import Shape, architectures, compile_arguments, launch_ahead
from roofline_kernels.attention.architectures import SHARED_BYTES
from roofline_kernels.attention.configurations import (
    PASSES,
    TILES,
    Configuration,
    chosen,
    configuration,
    loaded_bytes,
    registers,
)
from roofline_kernels.attention.describing import MOST_STRIDE
from roofline_kernels.attention.interpreting import launch_interpreted
from roofline_kernels.attention.launches import Problem, Saved
from roofline_kernels.attention.launching import Launch, TileTooLarge
from roofline_kernels.attention.triton_tiles import place

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
TILES_OF_TEST = Configuration(block_m=32, block_n=64, num_warps=4, num_stages=2)
DESCRIBED = replace(TILES_OF_TEST, descriptors=True)
RESOURCES = Path(__file__).parents[2] / "baselines/resources.json"


def meta(*shape, dtype=BF16):
    return torch.empty(shape, dtype=dtype, device="meta")


@dataclass
class Tensors:
    """What the launches are made from: on the device "meta" unless a test gives tensors of its own."""

    batch: int = 2
    heads_k: int = 3
    group: int = 1
    seq_q: int = 128
    seq_k: int = 192
    head_dim: int = 64
    dtype: torch.dtype = BF16

    def __post_init__(self):
        self.heads = self.heads_k * self.group
        rows = (self.batch, self.heads, self.seq_q)
        queries, keys = (*rows, self.head_dim), (self.batch, self.heads_k, self.seq_k, self.head_dim)
        for name in ("q", "out", "d_out", "d_q"):
            setattr(self, name, meta(*queries, dtype=self.dtype))
        for name in ("k", "v", "d_k", "d_v"):
            setattr(self, name, meta(*keys, dtype=self.dtype))
        for name in ("lse", "delta"):
            setattr(self, name, meta(*rows, dtype=FP32))

    @property
    def saved(self):
        return Saved(self.q, self.k, self.v, self.d_out, self.lse, self.delta)


def launch(kernel, tensors=None, architecture="sm_90", *, shift=0, causal=False, scale=0.125, tile=None):
    """One of the four launches."""
    problem, t = Problem(architecture, shift, causal, scale, tile), tensors or Tensors()
    if kernel == "forward":
        return launches.forward(problem, t.q, t.k, t.v, t.out, t.lse)
    if kernel == "d_keys":
        return launches.d_keys(problem, t.saved, t.d_k, t.d_v)
    if kernel == "d_queries":
        return launches.d_queries(problem, t.saved, t.d_q)
    return launches.delta(t.out, t.d_out, None, t.delta, None)


def chosen_for_all(configuration):
    return chosen(**dict.fromkeys(PASSES, configuration))


@contextlib.contextmanager
def captured(monkeypatch, architecture):
    """The launches that attention makes on CPU tensors as if they were on a GPU; nothing runs."""
    made = []
    with monkeypatch.context() as patch:
        patch.setattr(operators, "architecture_of", lambda device: architecture)
        patch.setattr(Launch, "run", lambda self, device: made.append(self))
        yield made


def blank(*shape, dtype=BF16, device="cpu"):
    return torch.zeros(shape, dtype=dtype, device=device)


# Grids and flags

sizes = st.builds(
    Tensors,
    batch=st.integers(1, 3),
    heads_k=st.integers(1, 4),
    group=st.integers(1, 4),
    seq_q=st.integers(1, 600),
    seq_k=st.integers(1, 600),
    head_dim=st.integers(1, 256),
    dtype=st.sampled_from([BF16, FP16, FP32]),
)


def assume_it_fits(architecture, kernel, tensors, tile):
    """Leave out what cannot but spill, and what cannot be loaded ahead."""
    if tile is not None:
        tiles = configuration(architecture, kernel, tensors.head_dim, tensors.dtype.itemsize, tile)
        columns = 1 << max(4, (tensors.head_dim - 1).bit_length())
        needed, limit = registers(architecture, kernel, columns, tiles)
        ahead = loaded_bytes(kernel, columns, tensors.dtype.itemsize, tiles) if tiles.descriptors else 0
        assume(needed <= limit and ahead <= SHARED_BYTES.get(architecture, 0))


anywhere = st.sampled_from([*architectures(), "interpreter"])
tiles = st.sampled_from([None, *TILES])


@given(tensors=sizes, architecture=anywhere, tile=tiles, kernel=st.sampled_from(["forward", "d_queries"]))
def test_a_program_for_each_block_of_queries_of_each_head_of_each_batch(tensors, architecture, tile, kernel):
    assume_it_fits(architecture, kernel, tensors, tile)
    made = launch(kernel, tensors, architecture, tile=tile)
    assert made.programs == -(-tensors.seq_q // made.tiles.block_m) * tensors.heads * tensors.batch


@given(tensors=sizes, architecture=anywhere, tile=tiles)
def test_a_program_for_each_block_of_keys_of_each_key_head_of_each_batch(tensors, architecture, tile):
    assume_it_fits(architecture, "d_keys", tensors, tile)
    made = launch("d_keys", tensors, architecture, tile=tile)
    assert made.programs == -(-tensors.seq_k // made.tiles.block_n) * tensors.heads_k * tensors.batch


def test_only_under_a_mask_do_neighbours_have_other_heads():
    for kernel in PASSES:
        assert [launch(kernel, causal=causal).arguments["HEADS_FIRST"] for causal in (False, True)] == [False, True]


# Strides


def transposed(*shape, dtype=BF16, device="meta"):
    batch, heads, seq, head_dim = shape
    return torch.empty(batch, seq, heads, head_dim, dtype=dtype, device=device).transpose(1, 2)


def sliced(*shape, dtype=BF16, device="meta"):
    """One of three that lie in one tensor, side by side."""
    batch, heads, seq, head_dim = shape
    packed = torch.empty(batch, seq, 3, heads, head_dim, dtype=dtype, device=device)
    return packed[:, :, 1].transpose(1, 2)


def expanded(*shape, dtype=BF16, device="meta"):
    return torch.empty(1, *shape[1:], dtype=dtype, device=device).expand(shape)


def apart(*shape, dtype=BF16, device="meta"):
    """Elements of a head do not lie side by side."""
    return torch.empty(*shape[:2], shape[3], shape[2], dtype=dtype, device=device).transpose(2, 3)


STRIDED = {
    "forward": {"q": "q", "k": "k", "v": "v", "out": "o"},
    "d_keys": {"q": "q", "k": "k", "v": "v", "d_out": "g", "d_k": "dk", "d_v": "dv"},
    "d_queries": {"q": "q", "k": "k", "v": "v", "d_out": "g", "d_q": "dq"},
    "delta": {"out": "o", "d_out": "g"},
}


def test_rows_too_far_apart_for_offsets_of_32_bits_are_refused():
    strided = [(kernel, name) for kernel, names in STRIDED.items() for name in names]
    for (kernel, name), axis in itertools.product(strided, [2, 3]):
        tensors = Tensors()
        shape = getattr(tensors, name).shape
        pitches = [0, 0, 64, 1]
        pitches[axis] = MOST_STRIDE + 1
        setattr(tensors, name, torch.empty_strided(shape, pitches, dtype=BF16, device="meta"))
        with pytest.raises(
            ValueError, match=rf"{STRIDED[kernel][name]} has a stride of {MOST_STRIDE + 1} .* {MOST_STRIDE}"
        ):
            launch(kernel, tensors)


def test_the_largest_stride_is_one_of_which_a_tile_of_256_rows_fits_into_32_bits():
    assert 255 * MOST_STRIDE < 2**31 <= 257 * MOST_STRIDE
    tensors = Tensors()
    tensors.q = torch.empty_strided(tensors.q.shape, (0, 0, MOST_STRIDE, 1), dtype=BF16, device="meta")
    assert launch("forward", tensors).arguments["stride_qs"] == MOST_STRIDE


def test_heads_may_be_as_far_apart_as_memory_has_room():
    for axis in [0, 1]:
        tensors = Tensors()
        pitches = [0, 0, 64, 1]
        pitches[axis] = 2**40
        tensors.k = torch.empty_strided(tensors.k.shape, pitches, dtype=BF16, device="meta")
        assert launch("forward", tensors).arguments[f"stride_k{'bh'[axis]}"] == 2**40, axis


# Descriptors


def described(q, k=None, v=None, *, configuration=DESCRIBED):
    """The arguments of a forward pass whose configuration wants descriptors."""
    k = q if k is None else k
    v = k if v is None else v
    t = Tensors(q.shape[0], q.shape[1], 1, q.shape[2], k.shape[2], q.shape[3], q.dtype)
    t.q, t.k, t.v = q, k, v
    with chosen_for_all(configuration):
        return launch("forward", t).arguments


def at_offset(elements, *shape, dtype=BF16, device="cpu"):
    whole = torch.zeros(math.prod(shape) + elements, dtype=dtype, device=device)
    return whole[elements:].view(shape)


def narrow(width, *shape, dtype=BF16):
    """The first columns of wider rows."""
    return blank(*shape[:3], width, dtype=dtype)[..., : shape[3]]


ALLOWED = {
    "contiguous": lambda: blank(2, 3, 64, 64),
    "float16": lambda: blank(2, 3, 64, 64, dtype=FP16),
    "float32": lambda: blank(2, 3, 64, 64, dtype=FP32),
    "transposed": lambda: transposed(2, 3, 64, 64, device="cpu"),
    "sliced": lambda: sliced(2, 3, 64, 64, device="cpu"),
    "head dimension 80": lambda: blank(2, 3, 64, 80),
    "rows of 16 bytes": lambda: blank(1, 1, 64, 8),
    "16 bytes into its storage": lambda: at_offset(8, 2, 3, 64, 64),
    "59 of 64 columns": lambda: narrow(64, 2, 3, 64, 59),
    "a tail": lambda: blank(2, 3, 65, 64),
    "one batch with an odd stride": lambda: torch.empty_strided((1, 3, 64, 64), (7, 4096, 64, 1), dtype=BF16),
    "one head with an odd stride": lambda: torch.empty_strided((2, 1, 64, 64), (4096, 13, 64, 1), dtype=BF16),
    "one row with an odd stride": lambda: torch.empty_strided((2, 3, 1, 64), (192, 64, 5, 1), dtype=BF16),
    "one of each with strides of zero": lambda: torch.empty_strided((1, 1, 1, 64), (0, 0, 0, 1), dtype=BF16),
    "meta": lambda: meta(2, 3, 64, 64),
    "meta, 16 bytes in": lambda: at_offset(8, 2, 3, 64, 64, device="meta"),
}
NOT_ALLOWED = {
    "2 bytes into its storage": lambda: at_offset(1, 2, 3, 64, 64),
    "8 bytes into its storage": lambda: at_offset(4, 2, 3, 64, 64),
    "head dimension 59": lambda: blank(2, 3, 64, 59),
    "head dimension 60": lambda: blank(2, 3, 64, 60),
    "float32, head dimension 62": lambda: blank(2, 3, 64, 62, dtype=FP32),
    "the same batch twice": lambda: expanded(2, 3, 64, 64, device="cpu"),
    "the same head thrice": lambda: blank(2, 1, 64, 64).expand(2, 3, 64, 64),
    "the same row again and again": lambda: blank(2, 3, 1, 64).expand(2, 3, 64, 64),
    "heads 8 bytes off": lambda: torch.empty_strided((2, 3, 64, 64), (12300, 4100, 64, 1), dtype=BF16),
    "a batch 2 bytes off": lambda: torch.empty_strided((2, 3, 64, 64), (12289, 4096, 64, 1), dtype=BF16),
    "elements apart": lambda: apart(2, 3, 64, 64, device="cpu"),
    "one column with an odd stride": lambda: torch.empty_strided((2, 3, 64, 1), (24, 8, 8, 3), dtype=BF16),
    "nothing but ones": lambda: blank(1).expand(2, 3, 64, 64),
    "meta, 2 bytes in": lambda: at_offset(1, 2, 3, 64, 64, device="meta"),
}


def test_where_hardware_can_all_three_come_by_descriptors():
    for kind in ALLOWED:
        arguments = described(ALLOWED[kind]())
        assert arguments["DESCRIPTORS"] is True, kind
        assert [hasattr(arguments[name], "block_shape") for name in ("q", "k", "v", "out", "lse")] == [True] * 3 + [
            False
        ] * 2


def test_where_hardware_cannot_all_three_stay_tensors():
    for kind in NOT_ALLOWED:
        tensor = NOT_ALLOWED[kind]()
        arguments = described(tensor)
        assert arguments["DESCRIPTORS"] is False, kind
        assert all(arguments[name] is tensor for name in ("q", "k", "v")), kind


def test_one_that_cannot_keeps_the_others_from_it():
    for which in range(3):
        tensors = [blank(2, 3, 64, 64) for _ in range(3)]
        tensors[which] = at_offset(1, 2, 3, 64, 64)
        arguments = described(*tensors)
        assert arguments["DESCRIPTORS"] is False, which
        assert all(arguments[name] is tensor for name, tensor in zip("qkv", tensors, strict=True)), which


def test_backward_describes_the_gradient_as_well():
    for kernel in ["d_keys", "d_queries"]:
        with chosen_for_all(DESCRIBED):
            arguments = launch(kernel).arguments
        assert arguments["DESCRIPTORS"] is True, kernel
        assert [list(arguments[name].block_shape) for name in ("q", "k", "v", "d_out")] == [
            [1, 1, rows, 64] for rows in (32, 64, 64, 32)
        ]


def test_blocks_are_rows_of_a_tile_by_the_power_of_two_from_the_head_dimension_up():
    for head_dim, block_d in [(8, 16), (64, 64), (80, 128), (256, 256)]:
        arguments = described(blank(2, 3, 70, head_dim), blank(2, 3, 90, head_dim))
        assert list(arguments["q"].block_shape) == [1, 1, DESCRIBED.block_m, block_d], (head_dim, block_d)
        assert [list(arguments[name].block_shape) for name in "kv"] == [[1, 1, DESCRIBED.block_n, block_d]] * 2


def test_a_descriptor_tells_shape_pitches_and_the_tensor_itself():
    for kind in ALLOWED:
        tensor = ALLOWED[kind]()
        found = described(tensor)["q"]
        assert found.base is tensor, kind
        assert list(found.shape) == list(tensor.shape), kind
        told = [(size, pitch) for size, pitch in zip(tensor.shape, found.strides, strict=True) if size > 1]
        assert told == [(size, pitch) for size, pitch in zip(tensor.shape, tensor.stride(), strict=True) if size > 1]


def test_pitches_are_such_as_hardware_takes():
    """CUDA's cuTensorMapEncodeTiled: multiples of 16 bytes, below 2^40, none of zero."""
    for kind in ALLOWED:
        found = described(ALLOWED[kind]())["q"]
        pitches = [pitch * found.base.element_size() for pitch in found.strides[:-1]]
        assert [pitch for pitch in pitches if pitch % 16 or not 0 < pitch < 2**40] == [], kind
        assert found.strides[-1] == 1, kind


# What attention launches


def backward_of(q, k, v, *, d_out=None, **options):
    out = flash_attention(q, k, v, **options)
    return torch.autograd.grad(out, (q, k, v), torch.zeros_like(out) if d_out is None else d_out)


def test_attention_launches_one_kernel_forward_and_three_backward(monkeypatch):
    with captured(monkeypatch, "sm_90") as made:
        backward_of(*(blank(1, 2, 64, 64).requires_grad_() for _ in range(3)))
    assert [one.kernel.fn.__name__ for one in made] == [
        "forward_kernel", "delta_kernel", "d_keys_kernel", "d_queries_kernel",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("wanted", "kernel"), [("q", "d_queries_kernel"), ("k", "d_keys_kernel"), ("v", "d_keys_kernel")]
)
def test_only_what_is_asked_for_is_launched(monkeypatch, wanted, kernel):
    inputs = {name: blank(1, 2, 64, 64) for name in "qkv"}
    inputs[wanted].requires_grad_()
    with captured(monkeypatch, "sm_90") as made:
        flash_attention(**inputs).sum().backward()
    assert [one.kernel.fn.__name__ for one in made] == ["forward_kernel", "delta_kernel", kernel]


@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "gfx942", "interpreter"])
@pytest.mark.parametrize("shape", [(0, 32), (32, 0), (0, 0)], ids=["no queries", "no keys", "nothing"])
def test_where_there_is_nothing_to_do_nothing_is_launched(monkeypatch, architecture, shape):
    seq_q, seq_k = shape
    with captured(monkeypatch, architecture) as made:
        gradients = backward_of(
            blank(1, 2, seq_q, 64).requires_grad_(),
            blank(1, 2, seq_k, 64).requires_grad_(),
            blank(1, 2, seq_k, 64).requires_grad_(),
        )
    assert made == []
    assert [float(gradient.abs().sum()) for gradient in gradients] == [0.0] * 3


@pytest.mark.parametrize("layout", ["BSHD", "BS(HD)", "HSD"])
def test_results_are_written_in_the_order_in_which_queries_lie(monkeypatch, layout):
    shapes = {"BSHD": (2, 64, 4, 32), "BS(HD)": (2, 64, 128), "HSD": (4, 64, 32)}
    heads = {"heads": 4} if layout == "BS(HD)" else {}
    with captured(monkeypatch, "sm_80") as made:
        backward_of(*(blank(*shapes[layout]).requires_grad_() for _ in range(3)), layout=layout, **heads)
    forward, _, d_keys, d_queries = (one.arguments for one in made)
    expected = [4 * 64 * 32, 64 * 32, 32, 1] if layout == "HSD" else [64 * 4 * 32, 32, 4 * 32, 1]
    for arguments, name in ((forward, "q"), (forward, "o"), (d_keys, "dk"), (d_keys, "dv"), (d_queries, "dq")):
        assert [arguments[f"stride_{name}{axis}"] for axis in "bhsd"] == expected


# A gradient that is spread out in memory


def made_from(monkeypatch, d_out, head_dim=64, architecture="sm_90"):
    """The launches of a backward pass from a gradient [2, 2, 64, D]."""
    with captured(monkeypatch, architecture) as made:
        backward_of(*(blank(2, 2, 64, head_dim).requires_grad_() for _ in range(3)), d_out=d_out)
    return made[1:]


SPREAD = {
    "a sum's": lambda: blank(1).expand(2, 2, 64, 64),
    "elements apart": lambda: apart(2, 2, 64, 64, device="cpu"),
    "every second": lambda: blank(2, 2, 64, 128)[..., ::2],
    "the same row again and again": lambda: blank(2, 2, 1, 64).expand(2, 2, 64, 64),
    "the same head twice": lambda: blank(2, 1, 64, 64).expand(2, 2, 64, 64),
}
SIDE_BY_SIDE = {
    "contiguous": lambda: blank(2, 2, 64, 64),
    "transposed": lambda: transposed(2, 2, 64, 64, device="cpu"),
    "every second row": lambda: blank(2, 2, 128, 64)[:, :, ::2],
    "wide rows": lambda: narrow(72, 2, 2, 64, 64),
}


@pytest.mark.parametrize("kind", SPREAD)
def test_a_gradient_whose_elements_lie_apart_or_on_each_other_is_written_out_once(monkeypatch, kind):
    d_out = SPREAD[kind]()
    delta, d_keys, d_queries = made_from(monkeypatch, d_out, architecture="sm_80")
    dense = delta.arguments["dense"]
    assert delta.arguments["WRITE_DENSE"] is True
    assert [delta.arguments[f"stride_g{axis}"] for axis in "bhsd"] == list(d_out.stride())
    assert (dense.shape, dense.dtype, dense.is_contiguous()) == (d_out.shape, BF16, True)
    for one in (d_keys, d_queries):
        assert one.arguments["d_out"] is dense
        assert [one.arguments[f"stride_g{axis}"] for axis in "bhsd"] == list(dense.stride())


@pytest.mark.parametrize("kind", SIDE_BY_SIDE)
def test_a_gradient_whose_elements_lie_side_by_side_is_read_where_it_is(monkeypatch, kind):
    d_out = SIDE_BY_SIDE[kind]()
    delta, d_keys, d_queries = made_from(monkeypatch, d_out, architecture="sm_80")
    assert delta.arguments["WRITE_DENSE"] is False
    pointers = {one.arguments["d_out"].data_ptr() for one in (delta, d_keys, d_queries)}
    assert pointers == {d_out.data_ptr()}


@pytest.mark.parametrize("with_lse", [False, True])
def test_the_gradient_of_the_log_sum_exp_is_read_where_there_is_one(monkeypatch, with_lse):
    with captured(monkeypatch, "sm_90") as made:
        found = flash_attention(*(blank(1, 2, 64, 64).requires_grad_() for _ in range(3)), return_lse=with_lse)
        (found[0].sum() + found[1].sum() if with_lse else found.sum()).backward()
    assert made[1].arguments["WITH_LSE"] is with_lse


# What is compiled ahead is what would be launched


def what_is_compiled(launch, architecture):
    """Types, constants and known facts of the arguments, as a launch there would find them."""
    backend = triton.compiler.make_backend(gpu_target(architecture))
    found = signature_of(launch.kernel, compile_arguments(launch), backend)
    return found.types, found.constants, found.attributes


def plain(launch):
    """The arguments that are numbers."""
    return {name: value for name, value in launch.arguments.items() if isinstance(value, bool | int | float)}


SHAPES = {
    "whole": Shape(64, seq_q=256, seq_k=256, heads=4, heads_k=4),
    "general": Shape(80, seq_q=100, seq_k=201, heads=4, heads_k=2, batch=2),
    "one key more": Shape(64, seq_q=16, seq_k=17, heads=2, heads_k=2),
    "float32": Shape(128, FP32, seq_q=64, seq_k=96, heads=2, heads_k=1),
    "float16": Shape(256, FP16, seq_q=128, seq_k=128, heads=1, heads_k=1),
}


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("causal", [False, True], ids=["full", "causal"])
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("architecture", ["sm_80", "sm_90", "sm_120", "gfx942"])
def test_what_is_compiled_ahead_is_what_attention_would_launch(monkeypatch, architecture, name, causal):
    shape = SHAPES[name]
    rows = [(shape.heads, shape.seq_q), (shape.heads_k, shape.seq_k), (shape.heads_k, shape.seq_k)]
    inputs = [blank(shape.batch, heads, seq, shape.head_dim, dtype=shape.dtype).requires_grad_() for heads, seq in rows]
    with captured(monkeypatch, architecture) as made:
        backward_of(*inputs, causal=causal, alignment="bottom-right")
    forward, _, d_keys, d_queries = made
    for kernel, launched in (("forward", forward), ("d_keys", d_keys), ("d_queries", d_queries)):
        ahead = launch_ahead(architecture, kernel, shape, causal=causal)
        assert ahead.kernel is launched.kernel
        assert (ahead.tiles, ahead.programs) == (launched.tiles, launched.programs)
        assert plain(ahead) == plain(launched)
        assert what_is_compiled(ahead, architecture) == what_is_compiled(launched, architecture)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", SHAPES)
@pytest.mark.parametrize("architecture", ["sm_90", "gfx942"])
def test_row_sums_are_compiled_ahead_as_the_gradient_of_a_sum_would_launch_them(monkeypatch, architecture, name):
    shape = SHAPES[name]
    q = blank(shape.batch, shape.heads, shape.seq_q, shape.head_dim, dtype=shape.dtype).requires_grad_()
    k = blank(shape.batch, shape.heads_k, shape.seq_k, shape.head_dim, dtype=shape.dtype)
    with captured(monkeypatch, architecture) as made:
        flash_attention(q, k, k).sum().backward()
    launched, ahead = made[1], launch_ahead(architecture, "delta", shape)
    assert (ahead.kernel, ahead.tiles, ahead.programs) == (launched.kernel, launched.tiles, launched.programs)
    assert plain(ahead) == plain(launched)
    assert what_is_compiled(ahead, architecture) == what_is_compiled(launched, architecture)


def test_descriptors_are_told_to_the_compiler_by_the_name_of_their_type():
    with chosen_for_all(DESCRIBED):
        for dtype, name in ((BF16, "bf16"), (FP16, "fp16"), (FP32, "fp32")):
            arguments = compile_arguments(launch_ahead("sm_90", "forward", Shape(64, dtype)))
            assert arguments["q"] == f"tensordesc<{name}[1, 1, 32, 64]>"
            assert arguments["k"] == arguments["v"] == f"tensordesc<{name}[1, 1, 64, 64]>"


# Tiles that are too large


class Refusing:
    """A kernel whose launch asks for more of something than there is."""

    def __init__(self, error):
        self.error = error

    def __getitem__(self, grid):
        self.grid = grid
        return self.launched

    def launched(self, **arguments):
        self.arguments = arguments
        raise self.error


@pytest.fixture
def on_a_gpu(monkeypatch):
    """A launch of a kernel as on the second GPU, a gfx942; `entered` has the devices that were made current."""
    entered = []

    def device(which):
        entered.append(which)
        return contextlib.nullcontext()

    monkeypatch.setattr(torch.cuda, "device", device)
    monkeypatch.setattr(launching, "architecture_of", lambda device: "gfx942")

    def run(kernel):
        Launch(kernel, "dK and dV", TILES_OF_TEST, 12, {"q": 1}).run(torch.device("cuda", 1))

    run.entered = entered
    return run


@pytest.mark.parametrize(
    ("memory", "counted"),
    [("shared memory", "bytes of shared memory"), ("tensor memory", "columns of tensor memory")],
)
def test_too_much_memory_of_a_multiprocessor_is_a_tile_too_large_with_both_numbers(on_a_gpu, memory, counted):
    with pytest.raises(TileTooLarge) as refusal:
        on_a_gpu(Refusing(OutOfResources(98_304, 65_536, memory)))
    assert (refusal.value.needed, refusal.value.limit, refusal.value.memory) == (98_304, 65_536, memory)
    assert str(refusal.value) == (
        f"the dK and dV kernel with tiles of 32 queries and 64 keys needs 98,304 {counted}; gfx942 has 65,536 for a "
        "program; take a smaller tile or fewer stages"
    )


def test_a_tile_that_must_spill_is_refused_before_it_is_compiled():
    for kernel, head_dim in itertools.product(PASSES, [64, 128, 256]):
        with pytest.raises(TileTooLarge) as refusal:
            launch_ahead("sm_90", kernel, Shape(head_dim), tile=256)
        rows = 512 if kernel == "d_keys" else 256
        needed = (rows * head_dim + 256 * 256) // 256
        assert (refusal.value.needed, refusal.value.limit, refusal.value.memory) == (needed, 255, "registers")
        assert f"needs {needed:,} registers for its accumulators and scores alone; sm_90 has 255 for a thread" in str(
            refusal.value
        )


def test_a_tile_that_cannot_be_loaded_is_refused_before_it_is_compiled():
    for architecture, kernel, tile, needed, limit in [
        # Two stages of 128 keys and 128 values; 256 columns of two bytes each.
        ("sm_90", "forward", 128, 2 * 2 * 128 * 256 * 2, 232_448),
        ("sm_90", "d_queries", 128, 2 * 2 * 128 * 256 * 2, 232_448),
        ("sm_100", "forward", 256, 2 * 2 * 256 * 256 * 2, 232_448),
    ]:
        with pytest.raises(TileTooLarge) as refusal:
            launch_ahead(architecture, kernel, Shape(256), tile=tile)
        assert (refusal.value.needed, refusal.value.limit, refusal.value.memory) == (needed, limit, "shared memory")
        assert f"needs {needed:,} bytes of shared memory; {architecture} has {limit:,} for a program" in str(
            refusal.value
        )


def test_with_one_stage_a_tile_may_lie_where_another_was():
    assert loaded_bytes("forward", 64, 2, Configuration(32, 128, 4, 1)) == 128 * 64 * 2
    assert loaded_bytes("d_keys", 64, 4, Configuration(32, 128, 4, 3)) == 3 * 2 * 32 * 64 * 4


def test_what_comes_by_pointers_is_left_to_the_compiler():
    # Six tiles of 32,768 bytes would not fit into 166,912; the compiler makes five of them: 163,840.
    with chosen(forward=Configuration(128, 128, 8, 3)):
        launch_ahead("sm_80", "forward", Shape(128))
    wide = Configuration(128, 128, 8, 2, descriptors=True)
    rows = meta(1, 1, 128, 257)[..., :256]
    with chosen(forward=wide):
        with pytest.raises(TileTooLarge):
            launch_ahead("sm_90", "forward", Shape(256))
        # Rows of 514 bytes, which no descriptor takes.
        problem = Problem("sm_90", 0, True, 1.0)
        made = launches.forward(problem, rows, rows, rows, rows, meta(1, 1, 128, dtype=FP32))
    assert made.arguments["DESCRIPTORS"] is False


def test_what_is_foreseen_of_a_kernel_is_no_more_than_the_compiler_makes_of_it():
    recorded = [one for one in read_baseline(RESOURCES).exact if one.parameters["kernel"] in PASSES]
    ahead, held = [], []
    for entry in recorded:
        kernel, case, options = entry.parameters["kernel"], entry.arguments, entry.options
        waves = options.get("waves_per_eu")
        tiles = Configuration(
            int(case["BLOCK_M"]), int(case["BLOCK_N"]), options["num_warps"], options["num_stages"], waves_per_eu=waves
        )
        needed, limit = registers(entry.target, kernel, int(case["BLOCK_D"]), tiles)
        assert needed <= min(limit, registers_of(entry.figures)), entry.parameters
        held.append(needed)
        if case["DESCRIPTORS"] == "True":
            item = 4 if entry.parameters["dtype"] == "fp32" else 2
            ahead.append(loaded_bytes(kernel, int(case["BLOCK_D"]), item, tiles) / entry.figures["shared_bytes"])
    assert max(ahead) < 1
    assert len(held) > len(ahead) > 20


def test_no_configuration_that_is_shipped_is_refused_before_it_is_compiled():
    for architecture, kernel, head_dim, dtype in product(architectures(), PASSES, (64, 128, 256), (BF16, FP32)):
        launch_ahead(architecture, kernel, Shape(head_dim, dtype))


WAYS = {
    "overlap": {"overlap": True},
    "threshold": {"threshold": 8.0},
    "a threshold that is passed": {"threshold": 0.5},
    "persistent": {"persistent": True},
    "all": {"overlap": True, "threshold": 2.0, "persistent": True},
}


def test_every_way_through_the_loop_gives_the_same_attention():
    for way, (seq_q, seq_k, causal) in itertools.product(
        WAYS, [(64, 64, True), (64, 64, False), (50, 70, True), (70, 50, True), (20, 5, False), (33, 129, True)]
    ):
        generator = torch.Generator().manual_seed(7)
        q, k, v = (torch.randn(1, 3, seq, 32, generator=generator) for seq in (seq_q, seq_k, seq_k))
        # Maxima that grow from key to key, so that rows are rescaled on the way.
        k *= torch.linspace(0.2, 6.0, seq_k)[:, None]
        with chosen(forward=Configuration(32, 16, 4, 1, **WAYS[way])):
            out, lse = flash_attention(
                q, k, v, causal=causal, alignment="bottom-right" if causal else None, return_lse=True
            )
        scores = (q.double() @ k.double().transpose(2, 3)) / math.sqrt(32)
        if causal:
            scores = scores.masked_fill(~torch.ones(seq_q, seq_k, dtype=torch.bool).tril(seq_k - seq_q), -math.inf)
        expected = scores.softmax(3).nan_to_num(0.0) @ v.double()
        assert torch.allclose(out.double(), expected, rtol=1e-5, atol=1e-5), (way, seq_q, seq_k, causal)
        assert torch.allclose(lse.double(), scores.logsumexp(3), rtol=1e-5, atol=1e-5), (way, seq_q, seq_k, causal)


def test_gradients_follow_every_way_through_the_forward_pass():
    for way in WAYS:
        generator = torch.Generator().manual_seed(8)
        q, k, v = (torch.randn(1, 2, 48, 16, generator=generator).requires_grad_() for _ in range(3))
        with chosen(forward=Configuration(16, 16, 4, 1, **WAYS[way])):
            found = torch.autograd.grad(flash_attention(q, k, v, causal=True).square().sum(), (q, k, v))
        plain = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        expected = torch.autograd.grad(plain.square().sum(), (q, k, v))
        assert all(torch.allclose(one, other, rtol=1e-4, atol=1e-4) for one, other in zip(found, expected, strict=True))


def test_a_persistent_grid_is_no_larger_than_the_multiprocessors():
    with chosen(forward=Configuration(128, 128, 8, 2, persistent=True)):
        many, few = (launch_ahead("sm_90", "forward", Shape(64, seq_q=seq, heads=2)) for seq in (16_384, 128))
    assert (many.programs, few.programs) == (4, 2)


@pytest.mark.parametrize(
    "error",
    [OutOfResources(2048, 1024, "threads"), OutOfResources(70_000, 65_536, "registers"), RuntimeError("lost")],
    ids=["threads", "registers", "another error"],
)
def test_what_else_goes_wrong_is_told_as_it_is(on_a_gpu, error):
    with pytest.raises(type(error)) as told:
        on_a_gpu(Refusing(error))
    assert told.value is error


def shared_bytes(architecture, **options):
    """What the kernel of dQ asks for on an architecture at head dimension 256."""
    made = launch_ahead(architecture, "d_queries", Shape(256), causal=False, **options)
    found = compile_for(made.kernel, architecture, compile_arguments(made), made.tiles.options())
    return found.figures["shared_bytes"]


@pytest.mark.usefixtures("compiler")
def test_a_tile_that_is_too_large_for_the_hardware_shows_when_it_is_compiled_and_the_default_fits():
    assert shared_bytes("sm_86", tile=64) > shared_limits()["sm_86"] >= shared_bytes("sm_86") > 0


# The flat grid


@triton.jit
def note(found, BLOCKS, HEADS, ORDER: tl.constexpr):
    block, head, batch = place(BLOCKS, HEADS, ORDER)
    at = found + tl.program_id(0) * 3
    tl.store(at, block)
    tl.store(at + 1, head)
    tl.store(at + 2, batch)


def places(blocks, heads, batches, *, heads_first):
    """Block, head and batch of every program, in the order of the programs."""
    programs = blocks * heads * batches
    found = torch.full((programs, 3), -1, dtype=torch.int32)
    launch_interpreted(note, (programs,), {"found": found, "BLOCKS": blocks, "HEADS": heads, "ORDER": heads_first})
    return [tuple(row) for row in found.tolist()]


GRIDS = [(1, 1, 1), (4, 1, 1), (1, 3, 2), (5, 3, 2), (2, 4, 3)]


def test_each_block_of_each_head_of_each_batch_has_one_program():
    for heads_first, grid in itertools.product([False, True], GRIDS):
        found = places(*grid, heads_first=heads_first)
        assert sorted(found) == sorted(product(*map(range, grid))), (heads_first, grid)


def test_later_blocks_come_first_where_heads_do():
    for grid in GRIDS:
        order = [block for block, _, _ in places(*grid, heads_first=True)]
        assert order == sorted(order, reverse=True), grid
