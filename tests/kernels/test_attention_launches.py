"""From tensors to launches of the attention kernels: grids, constants, strides, descriptors, and what is refused."""

import contextlib
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
from pytest_roofline.kernel_gate.compile import compile_for, source_of
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


def with_pitch(name, axis, pitch):
    """Tensors of which one has another stride along one axis."""
    tensors = Tensors()
    pitches = [0, 0, 64, 1]
    pitches[axis] = pitch
    setattr(tensors, name, torch.empty_strided(getattr(tensors, name).shape, pitches, dtype=BF16, device="meta"))
    return tensors


def test_rows_are_refused_where_an_offset_in_a_tile_would_pass_32_bits_and_heads_may_lie_anywhere():
    assert 255 * MOST_STRIDE < 2**31 <= 257 * MOST_STRIDE
    for (kernel, names), axis in product(STRIDED.items(), [2, 3]):
        for name, short in names.items():
            with pytest.raises(ValueError, match=rf"{short} has a stride of {MOST_STRIDE + 1} .* {MOST_STRIDE}"):
                launch(kernel, with_pitch(name, axis, MOST_STRIDE + 1))
    for axis, pitch in ((2, MOST_STRIDE), (0, 2**40), (1, 2**40)):
        assert launch("forward", with_pitch("k", axis, pitch)).arguments[f"stride_k{'bhs'[axis]}"] == pitch


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
    "float32": lambda: blank(2, 3, 64, 64, dtype=FP32),
    "transposed": lambda: transposed(2, 3, 64, 64, device="cpu"),
    "sliced": lambda: sliced(2, 3, 64, 64, device="cpu"),
    "rows of 16 bytes": lambda: blank(1, 1, 64, 8),
    "16 bytes into its storage": lambda: at_offset(8, 2, 3, 64, 64),
    "59 of 64 columns": lambda: narrow(64, 2, 3, 64, 59),
    "a tail": lambda: blank(2, 3, 65, 80),
    "one batch with an odd stride": lambda: torch.empty_strided((1, 3, 64, 64), (7, 4096, 64, 1), dtype=BF16),
    "one of each with strides of zero": lambda: torch.empty_strided((1, 1, 1, 64), (0, 0, 0, 1), dtype=BF16),
    "meta, 16 bytes in": lambda: at_offset(8, 2, 3, 64, 64, device="meta"),
}
NOT_ALLOWED = {
    "8 bytes into its storage": lambda: at_offset(4, 2, 3, 64, 64),
    "head dimension 60": lambda: blank(2, 3, 64, 60),
    "float32, head dimension 62": lambda: blank(2, 3, 64, 62, dtype=FP32),
    "the same batch twice": lambda: expanded(2, 3, 64, 64, device="cpu"),
    "the same row again and again": lambda: blank(2, 3, 1, 64).expand(2, 3, 64, 64),
    "heads 8 bytes off": lambda: torch.empty_strided((2, 3, 64, 64), (12300, 4100, 64, 1), dtype=BF16),
    "elements apart": lambda: apart(2, 3, 64, 64, device="cpu"),
    "one column with an odd stride": lambda: torch.empty_strided((2, 3, 64, 1), (24, 8, 8, 3), dtype=BF16),
    "meta, 2 bytes in": lambda: at_offset(1, 2, 3, 64, 64, device="meta"),
}


def test_where_hardware_can_all_three_come_by_descriptors_of_the_tensors_themselves():
    """CUDA's cuTensorMapEncodeTiled takes pitches that are multiples of 16 bytes, below 2^40, none of zero."""
    for kind, make in ALLOWED.items():
        tensor = make()
        arguments = described(tensor)
        assert arguments["DESCRIPTORS"] is True, kind
        described_ones = [hasattr(arguments[name], "block_shape") for name in ("q", "k", "v", "out", "lse")]
        assert described_ones == [True, True, True, False, False], kind
        found = arguments["q"]
        assert (found.base is tensor, list(found.shape)) == (True, list(tensor.shape)), kind
        pairs = zip(tensor.shape, found.strides, tensor.stride(), strict=True)
        assert all(size == 1 or told == pitch for size, told, pitch in pairs), kind
        pitches = [pitch * tensor.element_size() for pitch in found.strides[:-1]]
        assert [pitch for pitch in pitches if pitch % 16 or not 0 < pitch < 2**40] == [], kind
        assert found.strides[-1] == 1, kind


def test_where_hardware_cannot_read_one_all_three_stay_tensors():
    odd = [[make()] * 3 for make in NOT_ALLOWED.values()]
    odd += [[at_offset(int(place == which), 2, 3, 64, 64) for place in range(3)] for which in range(3)]
    for tensors in odd:
        arguments = described(*tensors)
        assert arguments["DESCRIPTORS"] is False
        assert all(arguments[name] is tensor for name, tensor in zip("qkv", tensors, strict=True))


def test_blocks_are_rows_of_a_tile_by_the_power_of_two_from_the_head_dimension_up():
    for head_dim, block_d in [(8, 16), (64, 64), (80, 128), (256, 256)]:
        arguments = described(blank(2, 3, 70, head_dim), blank(2, 3, 90, head_dim))
        rows = {"q": DESCRIBED.block_m, "k": DESCRIBED.block_n, "v": DESCRIBED.block_n}
        assert {name: list(arguments[name].block_shape) for name in rows} == {
            name: [1, 1, count, block_d] for name, count in rows.items()
        }
    for kernel in ("d_keys", "d_queries"):
        with chosen_for_all(DESCRIBED):
            arguments = launch(kernel).arguments
        assert [list(arguments[name].block_shape) for name in ("q", "k", "v", "d_out")] == [
            [1, 1, rows, 64] for rows in (32, 64, 64, 32)
        ], kernel


# What attention launches


def backward_of(q, k, v, *, d_out=None, **options):
    out = flash_attention(q, k, v, **options)
    return torch.autograd.grad(out, (q, k, v), torch.zeros_like(out) if d_out is None else d_out)


def test_only_what_is_asked_for_is_launched(monkeypatch):
    for wanted, kernels in {
        "qkv": ["d_keys_kernel", "d_queries_kernel"],
        "q": ["d_queries_kernel"],
        "k": ["d_keys_kernel"],
        "v": ["d_keys_kernel"],
    }.items():
        inputs = {name: blank(1, 2, 64, 64).requires_grad_(name in wanted) for name in "qkv"}
        with captured(monkeypatch, "sm_90") as made:
            flash_attention(**inputs).sum().backward()
        assert [one.kernel.fn.__name__ for one in made] == ["forward_kernel", "delta_kernel", *kernels], wanted


def test_where_there_is_nothing_to_do_nothing_is_launched(monkeypatch):
    for architecture, (seq_q, seq_k) in product(["sm_90", "interpreter"], [(0, 32), (32, 0), (0, 0)]):
        with captured(monkeypatch, architecture) as made:
            gradients = backward_of(*(blank(1, 2, seq, 64).requires_grad_() for seq in (seq_q, seq_k, seq_k)))
        assert made == []
        assert [float(gradient.abs().sum()) for gradient in gradients] == [0.0] * 3


def test_results_are_written_in_the_order_in_which_queries_lie(monkeypatch):
    rows = [64 * 4 * 32, 32, 4 * 32, 1]
    for layout, shape, heads, expected in (
        ("BSHD", (2, 64, 4, 32), {}, rows),
        ("BS(HD)", (2, 64, 128), {"heads": 4}, rows),
        ("HSD", (4, 64, 32), {}, [4 * 64 * 32, 64 * 32, 32, 1]),
    ):
        with captured(monkeypatch, "sm_80") as made:
            backward_of(*(blank(*shape).requires_grad_() for _ in range(3)), layout=layout, **heads)
        forward, _, d_keys, d_queries = (one.arguments for one in made)
        for arguments, name in ((forward, "q"), (forward, "o"), (d_keys, "dk"), (d_keys, "dv"), (d_queries, "dq")):
            assert [arguments[f"stride_{name}{axis}"] for axis in "bhsd"] == expected, (layout, name)


# A gradient that is spread out in memory


def made_from(monkeypatch, d_out):
    """The launches of a backward pass from a gradient [2, 2, 64, 64]."""
    with captured(monkeypatch, "sm_80") as made:
        backward_of(*(blank(2, 2, 64, 64).requires_grad_() for _ in range(3)), d_out=d_out)
    return made[1:]


def test_a_gradient_whose_elements_lie_apart_or_on_each_other_is_written_out_once(monkeypatch):
    for d_out in (
        blank(1).expand(2, 2, 64, 64),
        apart(2, 2, 64, 64, device="cpu"),
        blank(2, 2, 64, 128)[..., ::2],
        blank(2, 2, 1, 64).expand(2, 2, 64, 64),
        blank(2, 1, 64, 64).expand(2, 2, 64, 64),
    ):
        delta, d_keys, d_queries = made_from(monkeypatch, d_out)
        dense = delta.arguments["dense"]
        assert delta.arguments["WRITE_DENSE"] is True
        assert [delta.arguments[f"stride_g{axis}"] for axis in "bhsd"] == list(d_out.stride())
        assert (dense.shape, dense.dtype, dense.is_contiguous()) == (d_out.shape, BF16, True)
        for one in (d_keys, d_queries):
            assert one.arguments["d_out"] is dense
            assert [one.arguments[f"stride_g{axis}"] for axis in "bhsd"] == list(dense.stride())


def test_a_gradient_whose_elements_lie_side_by_side_is_read_where_it_is(monkeypatch):
    for d_out in (
        blank(2, 2, 64, 64),
        transposed(2, 2, 64, 64, device="cpu"),
        blank(2, 2, 128, 64)[:, :, ::2],
        narrow(72, 2, 2, 64, 64),
    ):
        made = made_from(monkeypatch, d_out)
        assert made[0].arguments["WRITE_DENSE"] is False
        assert {one.arguments["d_out"].data_ptr() for one in made} == {d_out.data_ptr()}


def test_the_gradient_of_the_log_sum_exp_is_read_where_there_is_one(monkeypatch):
    for with_lse in (False, True):
        with captured(monkeypatch, "sm_90") as made:
            found = flash_attention(*(blank(1, 2, 64, 64).requires_grad_() for _ in range(3)), return_lse=with_lse)
            (found[0].sum() + found[1].sum() if with_lse else found.sum()).backward()
        assert made[1].arguments["WITH_LSE"] is with_lse


# What is compiled ahead is what would be launched


def what_is_compiled(launch, architecture):
    """Types, constants and known facts of the arguments, as a launch there would find them."""
    backend = triton.compiler.make_backend(gpu_target(architecture))
    found = source_of(launch.kernel, compile_arguments(launch), backend)
    return found.signature, found.constants, found.attrs


def plain(launch):
    """The arguments that are numbers."""
    return {name: value for name, value in launch.arguments.items() if isinstance(value, bool | int | float)}


SHAPES = (
    Shape(64, seq_q=256, seq_k=256, heads=4, heads_k=4),
    Shape(80, seq_q=100, seq_k=201, heads=4, heads_k=2, batch=2),
    Shape(64, seq_q=16, seq_k=17, heads=2, heads_k=2),
    Shape(128, FP32, seq_q=64, seq_k=96, heads=2, heads_k=1),
    Shape(256, FP16, seq_q=128, seq_k=128, heads=1, heads_k=1),
)


def assert_same(architecture, ahead, launched):
    assert (ahead.kernel, ahead.tiles, ahead.programs) == (launched.kernel, launched.tiles, launched.programs)
    assert plain(ahead) == plain(launched)
    assert what_is_compiled(ahead, architecture) == what_is_compiled(launched, architecture)


@pytest.mark.usefixtures("compiler")
def test_what_is_compiled_ahead_is_what_attention_would_launch(monkeypatch):
    for architecture, shape, causal in product(["sm_80", "sm_120", "gfx942"], SHAPES, [False, True]):
        rows = [(shape.heads, shape.seq_q), (shape.heads_k, shape.seq_k), (shape.heads_k, shape.seq_k)]
        inputs = [blank(shape.batch, heads, seq, shape.head_dim, dtype=shape.dtype) for heads, seq in rows]
        with captured(monkeypatch, architecture) as made:
            backward_of(*(one.requires_grad_() for one in inputs), causal=causal, alignment="bottom-right")
        forward, _, d_keys, d_queries = made
        for kernel, launched in (("forward", forward), ("d_keys", d_keys), ("d_queries", d_queries)):
            assert_same(architecture, launch_ahead(architecture, kernel, shape, causal=causal), launched)


@pytest.mark.usefixtures("compiler")
def test_row_sums_are_compiled_ahead_as_the_gradient_of_a_sum_would_launch_them(monkeypatch):
    for architecture, shape in product(["sm_90", "gfx942"], SHAPES):
        q = blank(shape.batch, shape.heads, shape.seq_q, shape.head_dim, dtype=shape.dtype).requires_grad_()
        k = blank(shape.batch, shape.heads_k, shape.seq_k, shape.head_dim, dtype=shape.dtype)
        with captured(monkeypatch, architecture) as made:
            flash_attention(q, k, k).sum().backward()
        assert_same(architecture, launch_ahead(architecture, "delta", shape), made[1])


def test_descriptors_are_told_to_the_compiler_by_the_name_of_their_type():
    with chosen_for_all(DESCRIBED):
        for dtype, name in ((BF16, "bf16"), (FP16, "fp16"), (FP32, "fp32")):
            arguments = compile_arguments(launch_ahead("sm_90", "forward", Shape(64, dtype)))
            assert arguments["q"] == f"tensordesc<{name}[1, 1, 32, 64]>"
            assert arguments["k"] == arguments["v"] == f"tensordesc<{name}[1, 1, 64, 64]>"


# Tiles that are too large


@pytest.fixture
def refused(monkeypatch):
    """A launch on a gfx942 that Triton ends with an error."""
    monkeypatch.setattr(torch.cuda, "device", lambda which: contextlib.nullcontext())
    monkeypatch.setattr(launching, "architecture_of", lambda device: "gfx942")

    def run(error):
        def launched(**arguments):
            raise error

        kernel = type("Kernel", (), {"__getitem__": lambda self, grid: launched})()
        Launch(kernel, "dK and dV", TILES_OF_TEST, 12, {"q": 1}).run(torch.device("cuda", 1))

    return run


def test_too_much_memory_of_a_multiprocessor_is_a_tile_too_large_with_both_numbers(refused):
    for memory, counted in (
        ("shared memory", "bytes of shared memory"),
        ("tensor memory", "columns of tensor memory"),
    ):
        with pytest.raises(TileTooLarge) as refusal:
            refused(OutOfResources(98_304, 65_536, memory))
        assert (refusal.value.needed, refusal.value.limit, refusal.value.memory) == (98_304, 65_536, memory)
        assert str(refusal.value) == (
            f"the dK and dV kernel with tiles of 32 queries and 64 keys needs 98,304 {counted}; gfx942 has 65,536 for "
            "a program; take a smaller tile or fewer stages"
        )


def test_what_else_goes_wrong_is_told_as_it_is(refused):
    for error in (OutOfResources(2048, 1024, "threads"), RuntimeError("lost")):
        with pytest.raises(type(error)) as told:
            refused(error)
        assert told.value is error


def test_a_tile_that_must_spill_or_cannot_be_loaded_is_refused_before_it_is_compiled():
    spilled = [
        ("sm_90", kernel, size, 256, ((512 if kernel == "d_keys" else 256) * size + 256 * 256) // 256, 255, "registers")
        for kernel, size in product(PASSES, [64, 128, 256])
    ]
    # Two stages of 128 or 256 keys and values; 256 columns of two bytes each.
    loaded = [
        ("sm_90", "forward", 256, 128, 2 * 2 * 128 * 256 * 2, 232_448, "shared memory"),
        ("sm_90", "d_queries", 256, 128, 2 * 2 * 128 * 256 * 2, 232_448, "shared memory"),
        ("sm_100", "forward", 256, 256, 2 * 2 * 256 * 256 * 2, 232_448, "shared memory"),
    ]
    words = {
        "registers": "needs {:,} registers for its accumulators and scores alone; {} has {:,} for a thread",
        "shared memory": "needs {:,} bytes of shared memory; {} has {:,} for a program",
    }
    for architecture, kernel, size, tile, needed, limit, memory in (*spilled, *loaded):
        with pytest.raises(TileTooLarge) as refusal:
            launch_ahead(architecture, kernel, Shape(size), tile=tile)
        assert (refusal.value.needed, refusal.value.limit, refusal.value.memory) == (needed, limit, memory)
        assert words[memory].format(needed, architecture, limit) in str(refusal.value)


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
    for way, (seq_q, seq_k, causal) in product(
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


def test_each_block_of_each_head_of_each_batch_has_one_program_later_blocks_first_where_heads_are():
    for heads_first, grid in product([False, True], [(1, 1, 1), (4, 1, 1), (1, 3, 2), (5, 3, 2), (2, 4, 3)]):
        found = places(*grid, heads_first=heads_first)
        assert sorted(found) == sorted(product(*map(range, grid))), (heads_first, grid)
        order = [block for block, _, _ in found]
        assert not heads_first or order == sorted(order, reverse=True), grid
