"""Kernels interpreted and compiled in one process: twins, the language left as it was, bfloat16 as GPUs have it."""

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from pytest_roofline.kernel_gate.compile import compile_for
from roofline_kernels.attention.ahead import architectures
from roofline_kernels.attention.configurations import PASSES, TILES, configuration
from roofline_kernels.attention.interpreting import COMPILED_ONLY, interpreted, launch_interpreted, round_to_bfloat16
from roofline_kernels.attention.launches import delta_tiles
from roofline_kernels.attention.triton_d_keys import d_keys_kernel
from roofline_kernels.attention.triton_d_queries import d_queries_kernel
from roofline_kernels.attention.triton_delta import delta_kernel
from roofline_kernels.attention.triton_forward import forward_kernel

KERNELS = (forward_kernel, delta_kernel, d_keys_kernel, d_queries_kernel)
EVERY_KERNEL = pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.fn.__name__)


@triton.jit
def twice(value):
    return value * 2


@triton.jit
def add_twice(left, right):
    return left + twice(right)


@triton.jit
def total(source, target, N: tl.constexpr, FAIL: tl.constexpr):
    """Twice as much as the sum, by functions of `tl` that are kernels themselves and by two of our own."""
    values = tl.load(source + tl.arange(0, N))
    summed = tl.sum(tl.maximum(values, tl.zeros_like(values)), 0)
    if FAIL:
        tl.static_assert(N == 0, "this one fails")
    tl.store(target, add_twice(tl.cdiv(N, N) - 1.0, summed))


@triton.jit
def narrow(source, target, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(target + places, tl.load(source + places).to(tl.bfloat16))


@triton.jit
def matrix_product(left, right, target, N: tl.constexpr):
    places = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(target + places, tl.dot(tl.load(left + places), tl.load(right + places)))


def launch_total(*, fail=False, **options):
    target = torch.zeros(1)
    arguments = {"source": torch.arange(-8.0, 8.0), "target": target, "N": 16, "FAIL": fail}
    launch_interpreted(total, (1,), arguments | options)
    return float(target)


# Twins


@pytest.mark.usefixtures("compiler")
@EVERY_KERNEL
def test_a_twin_is_interpreted_and_its_kernel_stays_compiled(kernel):
    before = dict(kernel.fn.__globals__)
    twin = interpreted(kernel)
    assert isinstance(twin, interpreter.InterpretedFunction)
    assert isinstance(kernel, triton.JITFunction)
    assert before == dict(kernel.fn.__globals__)


@pytest.mark.usefixtures("compiler")
@EVERY_KERNEL
def test_functions_that_a_twin_calls_are_twins(kernel):
    own, twins = kernel.fn.__globals__, interpreted(kernel).fn.__globals__
    called = {name: value for name, value in own.items() if isinstance(value, triton.JITFunction)}
    assert {"load_rows", "place"} <= called.keys()
    assert {name: twins[name] for name in called} == {name: interpreted(value) for name, value in called.items()}


def test_programs_of_all_three_dimensions_run():
    @triton.jit
    def count(target):
        tl.atomic_add(target, 1)

    for grid, expected in (((3,), 3), ((2, 3), 6), ((2, 3, 4), 24)):
        target = torch.zeros(1, dtype=torch.int32)
        launch_interpreted(count, grid, {"target": target})
        assert int(target) == expected


@pytest.mark.skipif(np.lib.NumpyVersion(np.__version__) < "2.4.0", reason="needs numpy 2.4: older ones let it pass")
def test_a_scalar_bounds_a_loop_where_triton_asks_numpy_for_an_integer_of_an_array(monkeypatch):
    @triton.jit
    def repeat(times, target):
        for _ in range(tl.load(times)):
            tl.atomic_add(target, 1)

    def as_triton_3_6_does(tensor, scope):
        scope.set_attr(tensor, "__index__", lambda scalar: int(scalar.handle.data))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", as_triton_3_6_does)
    target = torch.zeros(1, dtype=torch.int32)
    launch_interpreted(repeat, (1,), {"times": torch.tensor([5], dtype=torch.int32), "target": target})
    assert (int(target), interpreter._patch_lang_tensor) == (5, as_triton_3_6_does)


# The language is as it was


def language():
    """All that Triton's interpreter or a launch could have changed, by where it stands."""
    spaces = {
        "tl": tl,
        "tl.core": tl.core,
        "tl.standard": tl.standard,
        "tl.math": tl.math,
        "tl.tensor": tl.tensor,
        "tl.dtype": tl.dtype,
        "tl.constexpr": tl.constexpr,
        "descriptor": tl.core.tensor_descriptor_base,
        "builder": interpreter.InterpreterBuilder,
    }
    return {(space, name): value for space, found in spaces.items() for name, value in vars(found).items()}


def changed(before):
    after = language()
    return sorted(where for where in before.keys() | after.keys() if before.get(where) is not after.get(where))


def test_a_launch_leaves_the_language_as_it_was():
    before = language()
    launch_total()
    assert [] == changed(before)


def test_an_exception_in_a_kernel_leaves_the_language_as_it_was():
    before = language()
    with pytest.raises(interpreter.InterpreterError, match="this one fails"):
        launch_total(fail=True)
    assert [] == changed(before)
    assert launch_total() == 2 * sum(range(8))


@pytest.mark.usefixtures("compiler")
def test_kernels_are_compiled_after_they_were_interpreted(monkeypatch, tmp_path):
    # What another process compiled before would not show it.
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    launch_total()
    types = {"source": "*fp32", "target": "*fp32", "N": 16, "FAIL": False}
    found = compile_for(total, "sm_80", types, {"num_warps": 1, "enable_fp_fusion": True})
    assert found.figures["instructions"] > 0
    assert any(tmp_path.iterdir())


# Options of compiled kernels


def test_all_that_a_compiler_is_told_is_known_to_be_for_compilers():
    for architecture in [*architectures(), "interpreter"]:
        asked = [configuration(architecture, kernel, 64, 2, tile) for kernel in PASSES for tile in (None, *TILES)]
        told = {name for one in [*asked, delta_tiles(64, 2)] for name in one.options()}
        assert told <= set(COMPILED_ONLY), architecture


# bfloat16

# Below, at and above the middle between two numbers, and the ends.
LOWER_HALVES = (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF)


def as_torch_rounds(values):
    """The bit patterns that torch makes of float32."""
    return torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()


def test_every_upper_half_is_rounded_as_torch_does():
    for lower in LOWER_HALVES:
        values = ((np.arange(2**16, dtype=np.uint32) << 16) | np.uint32(lower)).view(np.float32)
        nan = np.isnan(values)
        found = round_to_bfloat16(values)
        assert found.dtype == np.uint16, lower
        np.testing.assert_array_equal(found[~nan], as_torch_rounds(values[~nan]))
        assert np.isnan((found[nan].astype(np.uint32) << 16).view(np.float32)).all(), lower


def test_ties_go_to_even_and_ends_stay_ends():
    for value, expected in [
        (1 + 2**-8, 0x3F80),
        (1 + 3 * 2**-8, 0x3F82),
        (1 + 2**-8 + 2**-23, 0x3F81),
        (-(1 + 3 * 2**-8), 0xBF82),
        (3.4028235e38, 0x7F80),
        (-3.4028235e38, 0xFF80),
        (float("inf"), 0x7F80),
        (float("-inf"), 0xFF80),
        (1e-45, 0x0000),
        (-1e-45, 0x8000),
        (9.2e-41, 0x0001),
        (-0.0, 0x8000),
    ]:
        assert [expected] == round_to_bfloat16(np.array([value], dtype=np.float32)).tolist(), (value, expected)


def test_a_kernel_narrows_as_torch_does():
    source = torch.randn(256, generator=torch.Generator().manual_seed(0))
    source[:4] = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, torch.inf, -0.0])
    target = torch.empty(256, dtype=torch.bfloat16)
    launch_interpreted(narrow, (1,), {"source": source, "target": target, "N": 256})
    assert torch.equal(target, source.to(torch.bfloat16))


def test_a_kernel_multiplies_as_torch_does():
    for dtype in [torch.bfloat16, torch.float16, torch.float32]:
        # Whole numbers of which every product and sum is exact in float32.
        left, right = (torch.randint(-8, 9, (16, 16), generator=torch.Generator().manual_seed(seed)) for seed in (0, 1))
        target = torch.empty(16, 16)
        arguments = {"left": left.to(dtype), "right": right.to(dtype), "target": target, "N": 16}
        launch_interpreted(matrix_product, (1,), arguments)
        assert torch.equal(target, (left @ right).float()), dtype
