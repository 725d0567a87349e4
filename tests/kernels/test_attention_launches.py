"""From tensors to launches of the attention kernels: grids, constants, strides, descriptors, and what is refused."""

import contextlib
import math
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
from roofline_kernels.attention.ahead import Shape, architectures, launch_ahead
from roofline_kernels.attention.architectures import SHARED_BYTES
from roofline_kernels.attention.configurations import (
    PASSES,
    TILES,
    Configuration,
    chosen,
    loaded_bytes,
    registers,
)
from roofline_kernels.attention.describing import MOST_STRIDE
from roofline_kernels.attention.interpreting import launch_interpreted
from roofline_kernels.attention.launches import Problem, Saved
from roofline_kernels.attention.launching import Launch, TileTooLarge
from roofline_kernels.attention.triton_tiles import place

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
DESCRIBED = Configuration(block_m=32, block_n=64, num_warps=4, num_stages=2, descriptors=True)
RESOURCES = Path(__file__).parents[2] / "baselines/resources.json"
SCALE = 0.125


def meta(*shape, dtype=BF16):
    return torch.empty(shape, dtype=dtype, device="meta")


def blank(*shape, dtype=BF16):
    return torch.zeros(shape, dtype=dtype)


def tensors_of(shape):
    """What the launches are made from, on the device "meta"."""
    rows = (shape.batch, shape.heads, shape.seq_q)
    queries, keys = (
        (*rows, shape.head_dim),
        (shape.batch, shape.heads_k, shape.seq_k, shape.head_dim),
    )
    found = {name: meta(*queries, dtype=shape.dtype) for name in ("q", "out", "d_out", "d_q")}
    found |= {name: meta(*keys, dtype=shape.dtype) for name in ("k", "v", "d_k", "d_v")}
    return found | {name: meta(*rows, dtype=FP32) for name in ("lse", "delta")}


def launch(kernel, t, architecture="sm_90"):
    """One of the four launches."""
    problem = Problem(architecture, 0, False, SCALE, None)
    saved = Saved(*(t[name] for name in ("q", "k", "v", "d_out", "lse", "delta")))
    return {
        "forward": lambda: launches.forward(problem, t["q"], t["k"], t["v"], t["out"], t["lse"]),
        "d_keys": lambda: launches.d_keys(problem, saved, t["d_k"], t["d_v"]),
        "d_queries": lambda: launches.d_queries(problem, saved, t["d_q"]),
        "delta": lambda: launches.delta(t["out"], t["d_out"], None, t["delta"], None),
    }[kernel]()


@contextlib.contextmanager
def captured(monkeypatch, architecture):
    """The launches that attention makes on CPU tensors as if they were on a GPU; nothing runs."""
    made = []
    with monkeypatch.context() as patch:
        patch.setattr(operators, "architecture_of", lambda device: architecture)
        patch.setattr(Launch, "run", lambda self, device: made.append(self))
        yield made


# Grids


@given(
    shape=st.builds(
        Shape,
        st.integers(1, 256),
        st.sampled_from([BF16, FP16, FP32]),
        seq_q=st.integers(1, 600),
        seq_k=st.integers(1, 600),
        heads=st.sampled_from([4, 8]),
        heads_k=st.sampled_from([1, 2, 4]),
        batch=st.integers(1, 3),
    ),
    architecture=st.sampled_from([*architectures(), "interpreter"]),
    tile=st.sampled_from([None, *TILES]),
    kernel=st.sampled_from(PASSES),
)
def test_a_program_for_each_block_of_each_head_of_each_batch(shape, architecture, tile, kernel):
    made = None
    with contextlib.suppress(TileTooLarge):
        made = launch_ahead(architecture, kernel, shape, tile=tile)
    # What must spill or cannot be loaded has a test of its own; a default is never refused.
    assume(tile is None or made is not None)
    if kernel == "d_keys":
        blocks, heads = -(-shape.seq_k // made.tiles.block_n), shape.heads_k
    else:
        blocks, heads = -(-shape.seq_q // made.tiles.block_m), shape.heads
    assert made.programs == blocks * heads * shape.batch


def test_only_under_a_mask_do_neighbours_have_other_heads():
    for kernel, causal in product(PASSES, [False, True]):
        made = launch_ahead("sm_90", kernel, Shape(64, seq_q=128, seq_k=192), causal=causal)
        assert made.arguments["HEADS_FIRST"] is causal, kernel


def test_a_persistent_grid_is_no_larger_than_the_multiprocessors():
    with chosen(forward=Configuration(128, 128, 8, 2, persistent=True)):
        many, few = (
            launch_ahead("sm_90", "forward", Shape(64, seq_q=seq, heads=2)) for seq in (16_384, 128)
        )
    assert (many.programs, few.programs) == (4, 2)


@triton.jit
def note(found, BLOCKS, HEADS, ORDER: tl.constexpr):
    block, head, batch = place(BLOCKS, HEADS, ORDER)
    at = found + tl.program_id(0) * 3
    tl.store(at, block)
    tl.store(at + 1, head)
    tl.store(at + 2, batch)


def test_each_block_of_each_head_of_each_batch_has_one_program_later_blocks_first_where_heads_are():
    for heads_first, grid in product([False, True], [(1, 1, 1), (1, 3, 2), (5, 3, 2)]):
        programs = math.prod(grid)
        table = torch.full((programs, 3), -1, dtype=torch.int32)
        arguments = {"found": table, "BLOCKS": grid[0], "HEADS": grid[1], "ORDER": heads_first}
        launch_interpreted(note, (programs,), arguments)
        found = [tuple(row) for row in table.tolist()]
        assert sorted(found) == sorted(product(*map(range, grid))), (heads_first, grid)
        order = [block for block, _, _ in found]
        assert not heads_first or order == sorted(order, reverse=True), grid


# Strides


STRIDED = {
    "forward": {"q": "q", "k": "k", "v": "v", "out": "o"},
    "d_keys": {"q": "q", "k": "k", "v": "v", "d_out": "g", "d_k": "dk", "d_v": "dv"},
    "d_queries": {"q": "q", "k": "k", "v": "v", "d_out": "g", "d_q": "dq"},
    "delta": {"out": "o", "d_out": "g"},
}


def with_pitch(name, axis, pitch):
    """Tensors of which one has another stride along one axis."""
    tensors = tensors_of(Shape(64, seq_q=128, seq_k=192, heads=3, heads_k=3, batch=2))
    pitches = [0, 0, 64, 1]
    pitches[axis] = pitch
    return tensors | {
        name: torch.empty_strided(tensors[name].shape, pitches, dtype=BF16, device="meta")
    }


def test_rows_are_refused_where_an_offset_in_a_tile_would_pass_32_bits_and_heads_may_lie_anywhere():
    assert 255 * MOST_STRIDE < 2**31 <= 257 * MOST_STRIDE
    for (kernel, names), axis in product(STRIDED.items(), [2, 3]):
        for name, short in names.items():
            with pytest.raises(
                ValueError, match=rf"{short} has a stride of {MOST_STRIDE + 1} .* {MOST_STRIDE}"
            ):
                launch(kernel, with_pitch(name, axis, MOST_STRIDE + 1))
    for axis, pitch in ((2, MOST_STRIDE), (0, 2**40), (1, 2**40)):
        assert (
            launch("forward", with_pitch("k", axis, pitch)).arguments[f"stride_k{'bhs'[axis]}"]
            == pitch
        )


# Descriptors


def described(q, k=None, v=None):
    """The arguments of a forward pass whose configuration wants descriptors."""
    k = q if k is None else k
    batch, heads, seq_q, head_dim = q.shape
    shape = Shape(
        head_dim, q.dtype, seq_q=seq_q, seq_k=k.shape[2], heads=heads, heads_k=heads, batch=batch
    )
    with chosen(forward=DESCRIBED):
        return launch(
            "forward", tensors_of(shape) | {"q": q, "k": k, "v": k if v is None else v}
        ).arguments


def at_offset(elements, device="cpu"):
    return torch.zeros(2 * 3 * 64 * 64 + elements, dtype=BF16, device=device)[elements:].view(
        2, 3, 64, 64
    )


def strided(shape, strides):
    return torch.empty_strided(shape, strides, dtype=BF16)


ALLOWED = {
    "contiguous": blank(2, 3, 64, 64),
    "float32": blank(2, 3, 64, 64, dtype=FP32),
    "transposed": blank(2, 64, 3, 64).transpose(1, 2),
    "one of three in one tensor": blank(2, 64, 3, 3, 64)[:, :, 1].transpose(1, 2),
    "rows of 16 bytes": blank(1, 1, 64, 8),
    "16 bytes into its storage": at_offset(8),
    "59 of 64 columns": blank(2, 3, 64, 64)[..., :59],
    "a tail": blank(2, 3, 65, 80),
    "one batch with an odd stride": strided((1, 3, 64, 64), (7, 4096, 64, 1)),
    "one of each with strides of zero": strided((1, 1, 1, 64), (0, 0, 0, 1)),
    "meta, 16 bytes in": at_offset(8, "meta"),
}
NOT_ALLOWED = [
    at_offset(4),
    blank(2, 3, 64, 60),
    blank(2, 3, 64, 62, dtype=FP32),
    # The same batch twice, and the same row again and again.
    blank(1, 3, 64, 64).expand(2, 3, 64, 64),
    blank(2, 3, 1, 64).expand(2, 3, 64, 64),
    # Heads 8 bytes off, elements that are not neighbours, one column with an odd stride.
    strided((2, 3, 64, 64), (12300, 4100, 64, 1)),
    blank(2, 3, 64, 64).transpose(2, 3),
    strided((2, 3, 64, 1), (24, 8, 8, 3)),
    at_offset(1, "meta"),
]


def test_where_hardware_can_all_three_come_by_descriptors_of_the_tensors_themselves():
    """CUDA's cuTensorMapEncodeTiled takes pitches that are multiples of 16 bytes, below 2^40, none of zero."""
    for kind, tensor in ALLOWED.items():
        arguments = described(tensor)
        assert arguments["DESCRIPTORS"] is True, kind
        described_ones = [
            hasattr(arguments[name], "block_shape") for name in ("q", "k", "v", "out", "lse")
        ]
        assert described_ones == [True, True, True, False, False], kind
        found = arguments["q"]
        assert (found.base is tensor, list(found.shape)) == (True, list(tensor.shape)), kind
        pairs = zip(tensor.shape, found.strides, tensor.stride(), strict=True)
        assert all(size == 1 or told == pitch for size, told, pitch in pairs), kind
        pitches = [pitch * tensor.element_size() for pitch in found.strides[:-1]]
        assert [pitch for pitch in pitches if pitch % 16 or not 0 < pitch < 2**40] == [], kind
        assert found.strides[-1] == 1, kind


def test_where_hardware_cannot_read_one_all_three_stay_tensors():
    odd = [[tensor] * 3 for tensor in NOT_ALLOWED]
    odd += [[at_offset(int(place == which)) for place in range(3)] for which in range(3)]
    for tensors in odd:
        arguments = described(*tensors)
        assert arguments["DESCRIPTORS"] is False
        assert all(arguments[name] is tensor for name, tensor in zip("qkv", tensors, strict=True))


def test_blocks_are_rows_of_a_tile_by_the_power_of_two_from_the_head_dimension_up():
    for head_dim, block_d in [(8, 16), (64, 64), (80, 128), (256, 256)]:
        arguments = described(blank(2, 3, 70, head_dim), blank(2, 3, 90, head_dim))
        found = [list(arguments[name].block_shape) for name in "qkv"]
        assert found == [[1, 1, rows, block_d] for rows in (32, 64, 64)], head_dim
    with chosen(**dict.fromkeys(PASSES, DESCRIBED)):
        for kernel in ("d_keys", "d_queries"):
            arguments = launch(
                kernel, tensors_of(Shape(64, seq_q=128, seq_k=192, heads=3, heads_k=3))
            ).arguments
            found = [list(arguments[name].block_shape) for name in ("q", "k", "v", "d_out")]
            assert found == [[1, 1, rows, 64] for rows in (32, 64, 64, 32)], kernel


# What attention launches


def backward_of(q, k, v, *, d_out=None, **options):
    out = flash_attention(q, k, v, **options)
    return torch.autograd.grad(out, (q, k, v), torch.zeros_like(out) if d_out is None else d_out)


def leaves(*shape):
    return [blank(*shape).requires_grad_() for _ in range(3)]


def test_only_what_is_asked_for_is_launched(monkeypatch):
    both = ["d_keys_kernel", "d_queries_kernel"]
    for wanted, kernels in {"qkv": both, "q": both[1:], "k": both[:1], "v": both[:1]}.items():
        inputs = {name: blank(1, 2, 64, 64).requires_grad_(name in wanted) for name in "qkv"}
        with captured(monkeypatch, "sm_90") as made:
            flash_attention(**inputs).sum().backward()
        assert [one.kernel.fn.__name__ for one in made] == [
            "forward_kernel",
            "delta_kernel",
            *kernels,
        ], wanted
    for architecture, (seq_q, seq_k) in product(
        ["sm_90", "interpreter"], [(0, 32), (32, 0), (0, 0)]
    ):
        with captured(monkeypatch, architecture) as made:
            found = backward_of(
                *(blank(1, 2, seq, 64).requires_grad_() for seq in (seq_q, seq_k, seq_k))
            )
        assert (made, [float(gradient.abs().sum()) for gradient in found]) == ([], [0.0] * 3)
    for with_lse in (False, True):
        with captured(monkeypatch, "sm_90") as made:
            found = flash_attention(*leaves(1, 2, 64, 64), return_lse=with_lse)
            sum(one.sum() for one in (found if with_lse else [found])).backward()
        assert made[1].arguments["WITH_LSE"] is with_lse


def test_results_are_written_in_the_order_in_which_queries_lie(monkeypatch):
    rows = [64 * 4 * 32, 32, 4 * 32, 1]
    for layout, shape, heads, expected in (
        ("BSHD", (2, 64, 4, 32), {}, rows),
        ("BS(HD)", (2, 64, 128), {"heads": 4}, rows),
        ("HSD", (4, 64, 32), {}, [4 * 64 * 32, 64 * 32, 32, 1]),
    ):
        with captured(monkeypatch, "sm_80") as made:
            backward_of(*leaves(*shape), layout=layout, **heads)
        forward, _, d_keys, d_queries = (one.arguments for one in made)
        for arguments, name in (
            (forward, "q"),
            (forward, "o"),
            (d_keys, "dk"),
            (d_keys, "dv"),
            (d_queries, "dq"),
        ):
            assert [arguments[f"stride_{name}{axis}"] for axis in "bhsd"] == expected, (
                layout,
                name,
            )


def test_a_gradient_is_read_where_it_is_and_written_out_once_where_its_elements_are_no_neighbours(
    monkeypatch,
):
    spread = [
        blank(1).expand(2, 2, 64, 64),
        blank(2, 2, 64, 64).transpose(2, 3),
        blank(2, 2, 64, 128)[..., ::2],
        blank(2, 2, 1, 64).expand(2, 2, 64, 64),
    ]
    dense = [
        blank(2, 2, 64, 64),
        blank(2, 64, 2, 64).transpose(1, 2),
        blank(2, 2, 128, 64)[:, :, ::2],
    ]
    for d_out in (*spread, *dense, blank(2, 2, 64, 72)[..., :64]):
        written = any(d_out is one for one in spread)
        with captured(monkeypatch, "sm_80") as made:
            backward_of(*leaves(2, 2, 64, 64), d_out=d_out)
        _, delta, *others = made
        assert delta.arguments["WRITE_DENSE"] is written
        assert [delta.arguments[f"stride_g{axis}"] for axis in "bhsd"] == list(d_out.stride())
        if written:
            copy = delta.arguments["dense"]
            assert (copy.shape, copy.dtype, copy.is_contiguous()) == (d_out.shape, BF16, True)
            assert all(one.arguments["d_out"] is copy for one in others)
            assert [others[0].arguments[f"stride_g{axis}"] for axis in "bhsd"] == list(
                copy.stride()
            )
        else:
            assert {one.arguments["d_out"].data_ptr() for one in others} == {d_out.data_ptr()}


# What is compiled ahead is what would be launched


def what_is_compiled(launch, architecture):
    """Types, constants and known facts of the arguments, as a launch there would find them; and its numbers."""
    found = source_of(
        launch.kernel,
        launch.arguments,
        triton.compiler.make_backend(gpu_target(architecture)),
    )
    numbers = {
        name: value
        for name, value in launch.arguments.items()
        if isinstance(value, bool | int | float)
    }
    return (
        launch.kernel,
        launch.tiles,
        launch.programs,
        numbers,
        found.signature,
        found.constants,
        found.attrs,
    )


SHAPES = (
    Shape(80, seq_q=100, seq_k=201, heads=4, heads_k=2, batch=2),
    Shape(64, seq_q=16, seq_k=17, heads=2, heads_k=2),
    Shape(128, FP32, seq_q=64, seq_k=96, heads=2, heads_k=1),
    Shape(256, FP16, seq_q=128, seq_k=128, heads=1, heads_k=1),
)


@pytest.mark.usefixtures("compiler")
def test_what_is_compiled_ahead_is_what_attention_would_launch(monkeypatch):
    for architecture, shape, causal in product(
        ["sm_80", "sm_120", "gfx942"], SHAPES, [False, True]
    ):
        rows = [
            (shape.heads, shape.seq_q),
            (shape.heads_k, shape.seq_k),
            (shape.heads_k, shape.seq_k),
        ]
        inputs = [
            blank(shape.batch, heads, seq, shape.head_dim, dtype=shape.dtype) for heads, seq in rows
        ]
        with captured(monkeypatch, architecture) as made:
            # A sum has one number for a gradient, as the row sums that are compiled ahead expect.
            out = flash_attention(
                *(one.requires_grad_() for one in inputs), causal=causal, alignment="bottom-right"
            )
            out.sum().backward()
        for kernel, launched in zip(("forward", "delta", "d_keys", "d_queries"), made, strict=True):
            ahead = launch_ahead(architecture, kernel, shape, causal=causal)
            assert what_is_compiled(ahead, architecture) == what_is_compiled(
                launched, architecture
            ), kernel


# Tiles that are too large


def test_a_launch_that_ends_for_want_of_memory_is_a_tile_too_large_with_both_numbers(monkeypatch):
    monkeypatch.setattr(torch.cuda, "device", lambda which: contextlib.nullcontext())
    monkeypatch.setattr(launching, "architecture_of", lambda device: "gfx942")

    def run(error):
        def launched(**arguments):
            raise error

        kernel = type("Kernel", (), {"__getitem__": lambda self, grid: launched})()
        Launch(kernel, "dK and dV", DESCRIBED, 12, {"q": 1}).run(torch.device("cuda", 1))

    for memory, counted in (
        ("shared memory", "bytes of shared memory"),
        ("tensor memory", "columns of tensor memory"),
    ):
        with pytest.raises(TileTooLarge) as refusal:
            run(OutOfResources(98_304, 65_536, memory))
        assert (refusal.value.needed, refusal.value.limit, refusal.value.memory) == (
            98_304,
            65_536,
            memory,
        )
        assert str(refusal.value) == (
            f"the dK and dV kernel with tiles of 32 queries and 64 keys needs 98,304 {counted}; gfx942 has 65,536 for "
            "a program; take a smaller tile or fewer stages"
        )
    # All else is told as it is.
    for error in (OutOfResources(2048, 1024, "threads"), RuntimeError("lost")):
        with pytest.raises(type(error)) as told:
            run(error)
        assert told.value is error


WORDS = {
    "registers": "needs {:,} registers for its accumulators and scores alone; {} has {:,} for a thread",
    "shared memory": "needs {:,} bytes of shared memory; {} has {:,} for a program",
}


def test_a_tile_that_must_spill_or_cannot_be_loaded_is_refused_before_it_is_compiled():
    # Two stages of 128 or 256 keys and values; 256 columns of two bytes each.
    loaded = [("sm_90", "d_queries", 256, 128, 2 * 2 * 128 * 256 * 2, 232_448, "shared memory")]
    loaded += [("sm_100", "forward", 256, 256, 2 * 2 * 256 * 256 * 2, 232_448, "shared memory")]
    for kernel, size in product(PASSES, [64, 128, 256]):
        needed = ((512 if kernel == "d_keys" else 256) * size + 256 * 256) // 256
        loaded.append(("sm_90", kernel, size, 256, needed, 255, "registers"))
    for architecture, kernel, size, tile, needed, limit, memory in loaded:
        with pytest.raises(TileTooLarge) as refusal:
            launch_ahead(architecture, kernel, Shape(size), tile=tile)
        assert (refusal.value.needed, refusal.value.limit, refusal.value.memory) == (
            needed,
            limit,
            memory,
        )
        assert WORDS[memory].format(needed, architecture, limit) in str(refusal.value)
    assert loaded_bytes("forward", 64, 2, Configuration(32, 128, 4, 1)) == 128 * 64 * 2
    assert loaded_bytes("d_keys", 64, 4, Configuration(32, 128, 4, 3)) == 3 * 2 * 32 * 64 * 4


def test_what_comes_by_pointers_is_left_to_the_compiler():
    # Six tiles of 32,768 bytes would not fit into 166,912; the compiler makes five of them: 163,840.
    with chosen(forward=Configuration(128, 128, 8, 3)):
        launch_ahead("sm_80", "forward", Shape(128))
    with chosen(forward=Configuration(128, 128, 8, 2, descriptors=True)):
        with pytest.raises(TileTooLarge):
            launch_ahead("sm_90", "forward", Shape(256))
        # Rows of 514 bytes, which no descriptor takes.
        rows = meta(1, 1, 128, 257)[..., :256]
        made = launches.forward(
            Problem("sm_90", 0, True, 1.0), rows, rows, rows, rows, meta(1, 1, 128, dtype=FP32)
        )
    assert made.arguments["DESCRIPTORS"] is False


def test_what_is_foreseen_of_a_kernel_is_no_more_than_the_compiler_made_of_it():
    ahead, checked = [], 0
    for entry in (
        one for one in read_baseline(RESOURCES).exact if one.parameters["kernel"] in PASSES
    ):
        kernel, case, options = entry.parameters["kernel"], entry.arguments, entry.options
        blocks, columns = (int(case["BLOCK_M"]), int(case["BLOCK_N"])), int(case["BLOCK_D"])
        told = (options["num_warps"], options["num_stages"])
        tiles = Configuration(*blocks, *told, waves_per_eu=options.get("waves_per_eu"))
        needed, limit = registers(entry.target, kernel, columns, tiles)
        assert needed <= min(limit, registers_of(entry.figures)), entry.parameters
        checked += 1
        if case["DESCRIPTORS"] == "True":
            item = 4 if entry.parameters["dtype"] == "fp32" else 2
            ahead.append(loaded_bytes(kernel, columns, item, tiles) / entry.figures["shared_bytes"])
    assert max(ahead) < 1
    assert checked > len(ahead) > 20


@pytest.mark.usefixtures("compiler")
def test_a_tile_that_is_too_large_for_the_hardware_shows_when_it_is_compiled_and_the_default_fits():
    def shared_bytes(**options):
        made = launch_ahead("sm_86", "d_queries", Shape(256), causal=False, **options)
        return compile_for(made.kernel, "sm_86", made.arguments, made.tiles.options()).figures[
            "shared_bytes"
        ]

    assert SHARED_BYTES["sm_86"] == shared_limits()["sm_86"]
    assert shared_bytes(tile=64) > shared_limits()["sm_86"] >= shared_bytes() > 0


# Ways through the loop of the forward pass


WAYS = [
    {"overlap": True},
    {"threshold": 8.0},
    # One that is passed.
    {"threshold": 0.5},
    {"persistent": True},
    {"overlap": True, "threshold": 2.0, "persistent": True},
]


def test_every_way_through_the_loop_gives_the_same_attention_and_gradients():
    shapes = [(64, 64, True), (50, 70, True), (70, 50, True), (20, 5, False), (33, 65, False)]
    for way, (seq_q, seq_k, causal) in zip(WAYS, shapes, strict=True):
        generator = torch.Generator().manual_seed(7)
        q, k, v = (torch.randn(1, 2, seq, 32, generator=generator) for seq in (seq_q, seq_k, seq_k))
        # Maxima that grow from key to key, so that rows are rescaled on the way.
        k *= torch.linspace(0.2, 6.0, seq_k)[:, None]
        inputs = [tensor.requires_grad_() for tensor in (q, k, v)]
        alignment = "bottom-right" if causal else None
        with chosen(forward=Configuration(32, 16, 4, 1, **way)):
            out, lse = flash_attention(*inputs, causal=causal, alignment=alignment, return_lse=True)
        scores = (q.double() @ k.double().transpose(2, 3)) / math.sqrt(32)
        if causal:
            scores = scores.masked_fill(
                ~torch.ones(seq_q, seq_k, dtype=torch.bool).tril(seq_k - seq_q), -math.inf
            )
        expected = scores.softmax(3).nan_to_num(0.0) @ v.double()
        torch.testing.assert_close(
            out.double(), expected, rtol=1e-5, atol=1e-5, msg=str((way, seq_q, seq_k, causal))
        )
        torch.testing.assert_close(lse.double(), scores.logsumexp(3), rtol=1e-5, atol=1e-5)
        if seq_q <= seq_k or not causal:
            found, wanted = (
                torch.autograd.grad(one.square().sum(), inputs) for one in (out, expected)
            )
            for one, other in zip(found, wanted, strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)
