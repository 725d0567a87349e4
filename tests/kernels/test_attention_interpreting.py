"""Kernels interpreted and compiled in one process: twins, the language left as it was, bfloat16 as GPUs have it."""

import os

import numpy as np
import pytest
import torch
import triton
import triton.language as tl
from triton.runtime import interpreter

from pytest_roofline.kernel_gate.compile import compile_for
from roofline_kernels.attention.ahead import architectures
from roofline_kernels.attention.configurations import PASSES, TILES, configuration
from roofline_kernels.attention.interpreting import (
    COMPILED_ONLY,
    interpreted,
    launch_interpreted,
    round_to_bfloat16,
)
from roofline_kernels.attention.launches import delta_tiles
from roofline_kernels.attention.triton_d_keys import d_keys_kernel
from roofline_kernels.attention.triton_d_queries import d_queries_kernel
from roofline_kernels.attention.triton_delta import delta_kernel
from roofline_kernels.attention.triton_forward import forward_kernel


@triton.jit
def twice(value):
    return value * 2


@triton.jit
def total(source, target, N: tl.constexpr, FAIL: tl.constexpr):
    """Twice the sum, by functions of `tl` that are kernels themselves and by one of our own."""
    values = tl.load(source + tl.arange(0, N))
    summed = tl.sum(tl.maximum(values, tl.zeros_like(values)), 0)
    if FAIL:
        tl.static_assert(N == 0, "this one fails")
    tl.store(target, tl.cdiv(N, N) - 1.0 + twice(summed))


@triton.jit
def narrow(source, target, N: tl.constexpr):
    places = tl.arange(0, N)
    tl.store(target + places, tl.load(source + places).to(tl.bfloat16))


@triton.jit
def matrix_product(left, right, target, N: tl.constexpr):
    places = tl.arange(0, N)[:, None] * N + tl.arange(0, N)[None, :]
    tl.store(target + places, tl.dot(tl.load(left + places), tl.load(right + places)))


def launch_total(*, fail=False):
    target = torch.zeros(1)
    launch_interpreted(
        total, (1,), {"source": torch.arange(-8.0, 8.0), "target": target, "N": 16, "FAIL": fail}
    )
    return float(target)


@pytest.mark.usefixtures("compiler")
def test_a_twin_and_all_that_it_calls_is_interpreted_and_its_kernel_stays_compiled():
    for kernel in (forward_kernel, delta_kernel, d_keys_kernel, d_queries_kernel):
        before, twin = dict(kernel.fn.__globals__), interpreted(kernel)
        assert isinstance(twin, interpreter.InterpretedFunction)
        assert isinstance(kernel, triton.JITFunction)
        called = {
            name: value for name, value in before.items() if isinstance(value, triton.JITFunction)
        }
        assert {"load_rows", "place"} <= called.keys()
        twins = twin.fn.__globals__
        assert {name: twins[name] for name in called} == {
            name: interpreted(value) for name, value in called.items()
        }
        assert before == dict(kernel.fn.__globals__)


def test_programs_of_all_three_dimensions_run():
    @triton.jit
    def count(target):
        tl.atomic_add(target, 1)

    for grid, expected in (((3,), 3), ((2, 3), 6), ((2, 3, 4), 24)):
        target = torch.zeros(1, dtype=torch.int32)
        launch_interpreted(count, grid, {"target": target})
        assert int(target) == expected


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.4.0", reason="needs numpy 2.4: older ones let it pass"
)
def test_a_scalar_bounds_a_loop_where_triton_asks_numpy_for_an_integer_of_an_array(monkeypatch):
    @triton.jit
    def repeat(times, target):
        for _ in range(tl.load(times)):
            tl.atomic_add(target, 1)

    def as_triton_3_6_does(tensor, scope):
        scope.set_attr(tensor, "__index__", lambda scalar: int(scalar.handle.data))

    monkeypatch.setattr(interpreter, "_patch_lang_tensor", as_triton_3_6_does)
    target = torch.zeros(1, dtype=torch.int32)
    launch_interpreted(
        repeat, (1,), {"times": torch.tensor([5], dtype=torch.int32), "target": target}
    )
    assert (int(target), interpreter._patch_lang_tensor) == (5, as_triton_3_6_does)


def language():
    """All that Triton's interpreter or a launch could have changed, by where it stands."""
    spaces = [
        tl,
        tl.core,
        tl.standard,
        tl.math,
        tl.tensor,
        tl.dtype,
        tl.constexpr,
        tl.core.tensor_descriptor_base,
    ]
    spaces.append(interpreter.InterpreterBuilder)
    return {
        (space.__name__, name): value for space in spaces for name, value in vars(space).items()
    }


def test_a_launch_leaves_the_language_and_the_environment_as_they_were_after_an_exception_too():
    before, environment = language(), dict(os.environ)
    assert launch_total() == 2 * sum(range(8))
    with pytest.raises(interpreter.InterpreterError, match="this one fails"):
        launch_total(fail=True)
    after = language()
    assert [
        where for where in before.keys() | after.keys() if before.get(where) is not after.get(where)
    ] == []
    assert environment == dict(os.environ)


@pytest.mark.usefixtures("compiler")
def test_kernels_are_compiled_after_they_were_interpreted(monkeypatch, tmp_path):
    # What another process compiled before would not show it.
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    launch_total()
    types = {"source": "*fp32", "target": "*fp32", "N": 16, "FAIL": False}
    found = compile_for(total, "sm_80", types, {"num_warps": 1, "enable_fp_fusion": True})
    assert found.figures["instructions"] > 0
    assert any(tmp_path.iterdir())


def test_all_that_a_compiler_is_told_is_known_to_be_for_compilers():
    for architecture in [*architectures(), "interpreter"]:
        asked = [
            configuration(architecture, kernel, 64, 2, tile)
            for kernel in PASSES
            for tile in (None, *TILES)
        ]
        told = {name for one in [*asked, delta_tiles(64, 2)] for name in one.options()}
        assert told <= set(COMPILED_ONLY), architecture


def test_numbers_are_rounded_to_bfloat16_as_torch_does():
    # Every upper half, below, at and above the middle between two numbers, and at the ends.
    for lower in (0x0000, 0x0001, 0x7FFF, 0x8000, 0x8001, 0xFFFF):
        values = ((np.arange(2**16, dtype=np.uint32) << 16) | np.uint32(lower)).view(np.float32)
        nan = np.isnan(values)
        found = round_to_bfloat16(values)
        assert found.dtype == np.uint16, lower
        expected = torch.from_numpy(values).to(torch.bfloat16).view(torch.uint16).numpy()
        np.testing.assert_array_equal(found[~nan], expected[~nan])
        assert np.isnan((found[nan].astype(np.uint32) << 16).view(np.float32)).all(), lower


def test_a_kernel_narrows_and_multiplies_as_torch_does():
    source = torch.randn(256, generator=torch.Generator().manual_seed(0))
    source[:4] = torch.tensor([1 + 2**-8, 1 + 3 * 2**-8, torch.inf, -0.0])
    target = torch.empty(256, dtype=torch.bfloat16)
    launch_interpreted(narrow, (1,), {"source": source, "target": target, "N": 256})
    assert torch.equal(target, source.to(torch.bfloat16))
    for dtype in [torch.bfloat16, torch.float16, torch.float32]:
        # Whole numbers of which every product and sum is exact in float32.
        left, right = (
            torch.randint(-8, 9, (16, 16), generator=torch.Generator().manual_seed(seed))
            for seed in (0, 1)
        )
        product = torch.empty(16, 16)
        arguments = {"left": left.to(dtype), "right": right.to(dtype), "target": product, "N": 16}
        launch_interpreted(matrix_product, (1,), arguments)
        assert torch.equal(product, (left @ right).float()), dtype
