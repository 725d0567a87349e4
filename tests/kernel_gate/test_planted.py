"""Regressions planted in a small kernel, compiled for GPUs that are not here: each figure of loops turns red."""

import pytest
import triton
import triton.language as tl

from pytest_roofline.baselines.exact import KernelRecord, judge_exact
from pytest_roofline.core.entries import ExactEntry
from pytest_roofline.kernel_gate.compile import compile_for


@triton.jit
def product(
    a,
    b,
    c,
    k,
    stride,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    FAULT: tl.constexpr = "",
):
    rows = tl.arange(0, BM)
    columns = tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    series = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        left = tl.load(a + rows[:, None] * stride + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * stride + columns[None, :])
        total = tl.dot(left, right, total)
        if FAULT == "print":
            tl.device_print("start", start)
        if FAULT == "scale":
            total = tl.where(start > 100, total * 0.5, total)
        series += tl.exp2(series * 0.5)
    tl.store(c + rows[:, None] * stride + columns[None, :], (total + series).to(c.dtype.element_ty))


TENSORS = dict.fromkeys("abc", "*bf16:16")
ARGUMENTS = {**TENSORS, "k": "i32:16", "stride": "i32:16", "BM": 64, "BN": 32, "BK": 64}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """Compile the kernel with a fault, once each: figures, and the assembler's warning."""
    kernels = {}

    def compile_once(target, fault="", num_warps=4):
        case = target, fault, num_warps
        if case not in kernels:
            options = {"num_warps": num_warps, "num_stages": 3, "enable_fp_fusion": True}
            kernels[case] = compile_for(product, target, ARGUMENTS | {"FAULT": fault}, options)
        return kernels[case]

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        yield compile_once


LOOPS = ("serialized_wgmma", "exposed_exponentials", "narrow_lds")


def worse(before, after, figures=LOOPS):
    """Return the verdict on a kernel against another, and those of the figures that are worse."""
    entries = [ExactEntry("product", each.target, each.figures) for each in (after, before)]
    judged = judge_exact(*(KernelRecord(entry, "resources.json") for entry in entries), "")
    changes = {
        each.figure: (each.before, each.after) for each in judged.changes if each.verdict == "worse"
    }
    return judged.verdict, {name: changes[name] for name in figures if name in changes}


def test_a_print_in_a_loop_of_hopper_makes_its_products_wait_for_one_another(compiled):
    """The assembler lets no product cross a call, and so exposes each exponential as well."""
    sound, printing = compiled("sm_90"), compiled("sm_90", "print")
    products, exponentials = printing.figures["HGMMA"], printing.figures["MUFU.EX2"]
    assert (
        "REGRESSED",
        {"serialized_wgmma": (0, products), "exposed_exponentials": (0, exponentials)},
    ) == worse(sound, printing)
    assert min(products, exponentials) > 0
    assert "serialized due to" in printing.warning
    assert "(C75" in printing.warning
    assert "" == sound.warning


def test_an_accumulator_that_more_than_products_write_exposes_the_exponentials(compiled):
    sound, scaling = compiled("sm_90"), compiled("sm_90", "scale")
    exponentials = scaling.figures["MUFU.EX2"]
    assert ("REGRESSED", {"exposed_exponentials": (0, exponentials)}) == worse(sound, scaling)


def test_warps_that_transpose_by_two_bytes_at_a_time_show_as_narrow_accesses(compiled):
    """Two warps of CDNA load the right operand as its instructions take it; four turn it round in LDS."""
    sound, narrow = compiled("gfx942", num_warps=2), compiled("gfx942", num_warps=4)
    verdict, figures = worse(sound, narrow)
    assert ("REGRESSED", {"narrow_lds"}) == (verdict, figures.keys())
    assert 0 == figures["narrow_lds"][0] < figures["narrow_lds"][1]


def test_figures_of_warpgroups_are_there_where_they_say_something(compiled):
    assert {"serialized_wgmma", "exposed_exponentials"} < compiled("sm_90").figures.keys()
    for target in ("sm_80", "gfx942"):
        figures = compiled(target).figures.keys()
        assert {"narrow_lds"} == figures & set(LOOPS)
