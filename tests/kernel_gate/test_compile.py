"""Kernels compiled for GPUs that are not here: what a signature is made of, and what is read in the binary.

The texts of the tools were recorded with Triton 3.9 (cuobjdump and nvdisasm 13.1, ptxas 13.4) and shortened.
"""

import json
import re
import sys
import types
from itertools import product
from pathlib import Path

import pytest
import torch
import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.runtime.interpreter import InterpretedFunction
from triton.runtime.jit import create_function_from_signature
from triton.tools.tensor_descriptor import TensorDescriptor

from pytest_roofline.core.errors import BadInput, CompileFailed
from pytest_roofline.core.resources import (
    AMD_INSTRUCTIONS,
    JUDGED_FIGURES,
    NVIDIA_INSTRUCTIONS,
    REPORTED_FIGURES,
)
from pytest_roofline.kernel_gate import targets
from pytest_roofline.kernel_gate.compile import compile_for, describe, is_compiled, read, source_of
from pytest_roofline.kernel_gate.targets import canonical, gpu_target, name_of


@triton.jit
def gemm(
    a,
    b,
    c,
    k,
    stride,
    BM: tl.constexpr,
    BN: tl.constexpr,
    BK: tl.constexpr,
    PRECISION: tl.constexpr = "ieee",
):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    inner = tl.arange(0, BK)
    total = tl.zeros((BM, BN), tl.float32)
    for start in range(0, k, BK):
        left = tl.load(a + rows[:, None] * stride + (start + inner)[None, :])
        right = tl.load(b + (start + inner)[:, None] * stride + columns[None, :])
        total = tl.dot(left, right, total, input_precision=PRECISION)
    tl.store(c + rows[:, None] * stride + columns[None, :], total.to(c.dtype.element_ty))


@triton.jit
def add(x, y, n, scale=None, BLOCK: tl.constexpr = 128):
    index = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + index, tl.load(x + index, mask=index < n) + 1, mask=index < n)


@triton.jit(do_not_specialize=["n"])
def unspecialised(x, n, m: tl.int64, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK) + n + m, 1.0)


@triton.jit
def declared(
    a: tl.const, b: tl.pointer_type(tl.float32), c: tl.int64, d: tl.float32, e: tl.int1, f
):
    pass


FACTOR = tl.constexpr(2)


@triton.jit
def scaled(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 3.0 * FACTOR)


@triton.jit
def wrong(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), no_such_name)  # noqa: F821


ADD = {"x": "*fp32", "y": "*fp32", "n": "i32"}
DECLARED = {"a": "*fp32:16", "b": "*fp32:16", "c": "i64:16", "d": "fp32", "e": "u1", "f": "i32"}
UNSPECIALISED = {"x": "*fp32", "n": 1, "m": 16, "BLOCK": 64}
TENSORS = {"a": "*bf16:16", "b": "*bf16:16", "c": "*bf16:16"}
GEMM = {**TENSORS, "k": "i32:16", "stride": "i32:16", "BM": 128, "BN": 128, "BK": 64}
OPTIONS = {"num_warps": 8, "num_stages": 3, "enable_fp_fusion": True}
FUSED = {"enable_fp_fusion": True}


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        # Its default changes with Triton 3.10, which 3.9 announces wherever nobody says.
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        yield


def backend(target):
    return triton.compiler.make_backend(gpu_target(target))


def words(target="sm_90", kernel=add, **arguments):
    return describe(
        source_of(kernel, arguments if kernel is not add else ADD | arguments, backend(target))
    )


def refusal(error, call, *arguments, **named):
    with pytest.raises(error) as raised:
        call(*arguments, **named)
    return str(raised.value)


def test_a_target_has_one_name_however_it_is_spelled_and_the_lanes_of_its_architecture():
    for spelled, name, lanes in (
        ("sm_90", "sm_90", 32), ("sm90", "sm_90", 32), ("SM_100", "sm_100", 32), ("sm_90a", "sm_90", 32),
        ("gfx90a", "gfx90a", 64), ("GFX942", "gfx942", 64), (" gfx1100 ", "gfx1100", 32), ("gfx950", "gfx950", 64),
    ):  # fmt: skip
        assert canonical(spelled) == name
        assert (name_of(gpu_target(name)), gpu_target(name).warp_size) == (name, lanes)
    for target in ("h100", "sm_9", "gfx", "cuda:90:32", "", None, 90, "sm_90; rm"):
        assert "expected a target such as sm_80, sm_90" in refusal(BadInput, canonical, target)


# Signatures.


def test_an_argument_becomes_what_a_launch_would_see():
    for name, given, word in (
        *[("x", text, text) for text in ("*bf16", "*bf16:16", "*kfp16:16", "tensordesc<bf16[128,64]>")],
        ("x", torch.empty(4, dtype=torch.bfloat16, device="meta"), "*bf16:16"),
        ("x", torch.zeros(4, dtype=torch.float8_e4m3fn), "*fp8e4nv:16"),
        ("x", torch.zeros(5, dtype=torch.float32)[1:], "*fp32"),
        ("x", torch.float16, "*fp16:16"),
        ("x", TensorDescriptor.from_tensor(torch.empty(256, 64, dtype=torch.bfloat16), [128, 64]),
         "tensordesc<bf16[128, 64]>"),
        ("n", "i32:16", "i32:16"), ("n", "i32:1", "1"), ("n", "i64", "i64"), ("n", 7, "i32"), ("n", 1024, "i32:16"),
        ("n", 1, "1"), ("n", 0, "i32:16"), ("n", -32, "i32:16"), ("n", 2**31, "i64:16"), ("n", 2**63, "u64:16"),
        ("n", 0.5, "fp32"), ("n", True, "u1"), ("n", None, "None"),
        # A constant is the same text in every process: no addresses.
        ("BLOCK", object(), "object"), ("BLOCK", add, "add"), ("BLOCK", tl.constexpr(64), "64"),
        ("BLOCK", tl.bfloat16, "bf16"),
    ):  # fmt: skip
        assert words(**{name: given})[name] == word, (name, given)
    assert words() == {"x": "*fp32", "y": "*fp32", "n": "i32", "scale": "None", "BLOCK": "128"}
    # On AMD a launch also knows how far a pointer reaches.
    assert words("gfx942", x=torch.float16)["x"] == "*fp16:16 within 2 GiB"
    assert (
        words("gfx942", x=torch.empty(2**31, dtype=torch.float16, device="meta"))["x"] == "*fp16:16"
    )


def same(kernel, known, values):
    bound, specialization, options = create_function_from_signature(
        kernel.signature, kernel.params, known
    )(*values)
    _, types_, constants, attributes = kernel._pack_args(
        known, options, bound, specialization, options
    )
    found = source_of(
        kernel, dict(zip([one.name for one in kernel.params], values, strict=False)), known
    )
    stated = {place: facts for place, facts in attributes.items() if facts}
    return (found.signature, found.constants, found.attrs) == (types_, constants, stated)


def test_a_signature_is_the_one_that_a_launch_makes():
    tensor = torch.empty(8)
    cases = [
        (add, (torch.empty(8, dtype=torch.bfloat16), torch.empty(9)[1:], 1024, None)),
        (add, (torch.empty(8, dtype=torch.int64), torch.empty(0, dtype=torch.bool), 1, 0.5)),
        (add, (torch.empty(8, dtype=torch.uint8), None, 2**40, True)),
        (
            add,
            (
                torch.empty(2**32, dtype=torch.float8_e5m2, device="meta"),
                torch.empty(4).double(),
                7,
                16,
            ),
        ),
        # What a kernel says of its parameters counts as well.
        *[
            (declared, (tensor, tensor, *n))
            for n in ((1, 16, True, 1.5), (16, 16, 1, 1), (3, 0.5, 0, 48))
        ],
        *[(unspecialised, (tensor, n, m, 64)) for n, m in ((1, 16), (16, 1), (7, 2**40))],
    ]
    for target, (kernel, values) in product(("sm_90", "gfx942"), cases):
        assert same(kernel, backend(target), values), (target, kernel.__name__, values)


def test_a_type_string_follows_what_a_kernel_says_of_its_parameters_or_is_refused():
    types_ = {"a": "*kfp32", "b": "*fp32", "c": "i64", "d": "fp32", "e": "u1", "f": "i32"}
    assert source_of(declared, DECLARED, backend("sm_90")).signature == types_
    assert words(kernel=declared, **DECLARED | {"a": "*kfp32"})["a"] == "*kfp32"
    for name, given, expected in (
        ("b", "*bf16", "*fp32"), ("c", "i32", "i64"), ("c", "i64:1", "i64"), ("f", "*fp32:1", "*fp32"),
        ("f", "fp32:16", "fp32"), ("f", "u1:16", "u1"),
    ):  # fmt: skip
        told = refusal(BadInput, words, kernel=declared, **DECLARED | {name: given})
        assert told.startswith(f"argument {name} is {given!r}; expected {expected!r}, the type"), (
            told
        )
    told = refusal(BadInput, words, kernel=unspecialised, **UNSPECIALISED | {"n": "i32:16"})
    assert told.startswith("argument n is 'i32:16'; expected 'i32', the type that a launch"), told


def test_arguments_must_be_those_of_the_kernel_and_of_types_that_triton_has():
    for arguments, told in (
        ({"x": "*fp32"}, "no argument for y, n; expected x, y, n, scale, BLOCK"),
        (ADD | {"BLOK": 64}, "unknown arguments: BLOK"),
    ):
        assert told in refusal(BadInput, source_of, add, arguments, backend("sm_90"))
    for given in (
        "bfloat16", "*bf15", "*bf16:8", "constexpr", "tensordesc<>", [1, 2], object(), (1, 2), torch.complex64,
        torch.zeros(2, dtype=torch.complex64),
    ):  # fmt: skip
        told = refusal(BadInput, words, x=given)
        assert re.match(r"argument x is .*expected a type such as '\*bf16'", told), told


# What the tools print.

USAGE = """
 Common:
  GLOBAL:0
 Function helper:
  REG:40 STACK:0 SHARED:0 LOCAL:0 CONSTANT[0]:592 TEXTURE:0 SURFACE:0 SAMPLER:0
 Function gemm:
  REG:107 STACK:24 SHARED:1024 LOCAL:0 CONSTANT[0]:592 TEXTURE:0 SURFACE:0 SAMPLER:0
"""


def sass(*opcodes, head=None):
    instructions = [{"predicate": "@!P0", "opcode": opcode, "operands": "R1"} for opcode in opcodes]
    return json.dumps([head or {}, [{"function-name": "gemm", "sass-instructions": instructions}]])


def test_what_nvidias_tools_print_is_read_or_is_an_error_and_never_nought():
    # Of the kernel, and not of what it calls.
    assert targets.read_usage(USAGE, "gemm") == {"registers": 107, "stack_bytes": 24}
    text = (
        "LDC.64 HGMMA.64 HGMMA.64 STL.64 LDL LDL.LU MUFU.EX2 MUFU.RCP FFMA.FTZ LDGSTS.E UTMALDG.2D"
    )
    head = {
        ".note.nv.tkinfo": {"tki_toolVersion": "Cuda compilation tools, release 13.4, V13.4.59"}
    }
    assert targets.read_instructions(sass(*text.split(), head=head), 90) == (
        {
            "spill_stores": 1, "spill_loads": 2, "matrix_instructions": 2, "instructions": 11,
            "HGMMA": 2, "MUFU.EX2": 1, "FFMA": 1, "LDGSTS": 1, "UTMALDG": 1,
            "serialized_wgmma": 0, "exposed_exponentials": 0, "narrow_lds": 0,
        },
        "13.4.59",
    )  # fmt: skip
    counts, unsigned = targets.read_instructions(
        sass("HMMA.16816.F32.BF16", "IMMA.16832", "UTCHMMA.2CTA", "HFMA2"), 100
    )
    assert (counts["matrix_instructions"], unsigned) == (3, "")
    for text in ("", "Function other:\n REG:1 STACK:0", "Function gemm:\n REGS:107"):
        assert "expected `Function gemm: REG:" in refusal(
            CompileFailed, targets.read_usage, text, "gemm"
        )
    for text in (
        "",
        "nonsense",
        "[]",
        "[{}, [{}]]",
        '[{}, [{"sass-instructions": [{}]}]]',
        "[{}, []]",
    ):
        assert "expected" in refusal(CompileFailed, targets.read_instructions, text, 90)


ASSEMBLY = """\
\t.amdgcn_target "amdgpu9.42-amd-amdhsa-unknown-gfx942"
gemm:                                   ; @gemm
; %bb.0:
\ts_load_dwordx2 s[0:1], s[0:1], 0x0
\tbuffer_load_dwordx4 v[2:5], v1, s[4:7], 0 offen
\tglobal_load_dwordx4 v[2:5], v[0:1], off
\tv_mfma_f32_32x32x8_bf16 v[0:15], v[2:3], v[4:5], 0
\tv_mfma_f32_32x32x8_bf16 v[0:15], v[2:3], v[4:5], v[0:15]
\tv_pk_fma_f32 v[0:1], v[2:3], v[4:5], v[0:1]
\tv_fmac_f32_e32 v0, v1, v2
\tv_exp_f32_e32 v0, v1
\ts_endpgm
\t.amdhsa_private_segment_fixed_size 8
; Occupancy: 8
; Occupancy: 2
\t.amdgpu_metadata
---
amdhsa.kernels:
  - .agpr_count:     4
    .group_segment_fixed_size: 0
    .name:           gemm
    .private_segment_fixed_size: 8
    .sgpr_count:     26
    .sgpr_spill_count: 1
    .vgpr_count:     208
    .vgpr_spill_count: 3
"""


def test_amd_figures_come_from_metadata_comments_and_instructions():
    # Functions beside the kernel, of higher occupancy, never make it look better.
    assert targets.read_assembly(ASSEMBLY) == {
        "vgprs": 208, "agprs": 4, "sgprs": 26, "vgpr_spills": 3, "sgpr_spills": 1, "scratch_bytes": 8,
        "occupancy_waves": 2, "matrix_instructions": 2, "instructions": 9,
        "v_mfma": 2, "v_fma": 2, "v_exp": 1, "buffer_load": 1, "global_load": 1, "narrow_lds": 0,
    }  # fmt: skip
    assert "agprs" not in targets.read_assembly(ASSEMBLY.replace("- .agpr_count:     4", "-"))
    # RDNA 3 and newer: an instruction of two operations counts once, and its operations twice.
    dual = (
        "\tv_dual_fmac_f32 v0, v1, v2 :: v_dual_mul_f32 v3, v4, v5\n"
        "\tv_dual_mov_b32 v0, v1 :: v_dual_fmaak_f32 v3, v4, v5, 0x40000000\n"
        "\tv_fmamk_f32 v0, v1, 0x40000000, v2\n"
    )
    figures = targets.read_assembly(ASSEMBLY.replace("\tv_exp_f32_e32 v0, v1\n", dual))
    assert (figures["instructions"], figures["v_fma"]) == (11, 5)
    for gone in (
        ".vgpr_count",
        ".sgpr_spill_count",
        ".private_segment_fixed_size:",
        "Occupancy",
        ".amdgpu_metadata",
    ):
        assert gone.strip(".:") in refusal(
            CompileFailed, targets.read_assembly, ASSEMBLY.replace(gone, "gone")
        )
    kept = types.SimpleNamespace(asm={"hsaco": b""})
    assert "unset TRITON_STORE_BINARY_ONLY" in refusal(
        CompileFailed, targets.read_binary, kept, "gfx942"
    )


def test_the_page_names_every_figure():
    page = (Path(__file__).parents[2] / "docs/reference/kernels.md").read_text(encoding="utf-8")
    figures = {
        *JUDGED_FIGURES,
        *REPORTED_FIGURES,
        *NVIDIA_INSTRUCTIONS,
        *AMD_INSTRUCTIONS,
        "v_mfma",
    }
    assert {figure for figure in figures if f"`{figure}`" not in page} == set()


# The real thing.


def test_a_product_of_matrices_uses_the_matrix_instructions_of_its_target(monkeypatch):
    """Without line information: with it ptxas gave 104 and 106 registers to one PTX, for a comment that moved lines."""
    made, compile_one = [], triton.compile
    monkeypatch.setattr(
        triton, "compile", lambda *args, **more: made.append(compile_one(*args, **more)) or made[-1]
    )
    lines_before = triton.knobs.compilation.disable_line_info
    for target, kind, other in (
        ("sm_90", "HGMMA", "HMMA"), ("sm_100", "UTCHMMA", "HMMA"), ("sm80", "HMMA", "HGMMA"),
        ("gfx942", "v_mfma", "v_wmma"),
    ):  # fmt: skip
        found = compile_for(gemm, target, GEMM, OPTIONS)
        figures = found.figures
        assert found.target == canonical(target)
        assert figures[kind] == figures["matrix_instructions"] > 0
        assert other not in figures
        assert 32 < figures.get("vgprs", figures.get("registers")) <= 255
        # Barriers of a few bytes stand beside the tiles.
        assert 2 * 128 * 64 * 2 <= figures["shared_bytes"] <= 3 * 2 * 128 * 64 * 2 + 64
        assert {figures[name] for name in figures if "spill" in name} == {0}
        # A column is 128 accumulators of 32 bits.
        assert figures.get("tmem_columns") == (128 if target == "sm_100" else None)
        assert found.options == {**found.options, **OPTIONS}
        assert "TRITON_DISABLE_LINE_INFO" not in found.options
        assert (found.arguments["a"], found.arguments["PRECISION"]) == ("*bf16:16", "ieee")
        assert found.compiler["triton"] == triton.__version__
        # Older ones do not tell which LLVM they are made of.
        assert found.compiler.keys() - {"llvm"} == (
            {"triton"} if target == "gfx942" else {"triton", "ptxas"}
        )
        # What is compiled already says the same.
        assert is_compiled(made[-1])
        assert (read(made[-1]).figures, read(made[-1]).arguments) == (figures, found.arguments)
    assert ".loc" not in made[0].asm["ptx"]
    assert triton.knobs.compilation.disable_line_info == lines_before


def test_what_fits_in_no_register_shows_as_spills():
    figures = compile_for(
        gemm, "sm_80", {**GEMM, "BN": 256}, {**OPTIONS, "num_warps": 4, "maxnreg": 96}
    ).figures
    assert min(figures["stack_bytes"], figures["spill_stores"], figures["spill_loads"]) > 0
    assert figures["registers"] <= 96


def test_a_target_that_the_disassembler_gave_up_tells_what_it_can_and_says_what_is_missing():
    found = compile_for(add, "sm_70", ADD, FUSED)
    if found.unread:
        assert found.figures.keys() == {"shared_bytes", "registers", "stack_bytes"}
        assert "nvdisasm" in found.unread
    else:
        assert found.figures["instructions"] > 0


def test_options_are_told_as_they_took_effect_with_what_else_made_another_binary(monkeypatch):
    """On a gfx950 Triton takes no other kpack than 1, whatever is asked for."""
    with pytest.warns(UserWarning, match="kpack"):
        found = compile_for(add, "gfx950", ADD, {**FUSED, "kpack": 2, "num_warps": 8})
    assert (found.options["kpack"], found.options["num_warps"]) == (1, 8)
    monkeypatch.setenv("DISABLE_LLVM_OPT", "1")
    options = {**FUSED, "ptx_options": "--warn-on-spills"}
    source = source_of(add, ADD, backend("sm_90"))
    found = read(triton.compile(source, target=gpu_target("sm_90"), options=options)).options
    assert (found["DISABLE_LLVM_OPT"], found["ptx_options"]) == ("true", "--warn-on-spills")
    assert not {"debug", "kpack", "ptx_version"} & found.keys()


def test_a_global_that_has_changed_is_refused_as_a_launch_would(monkeypatch):
    """Else Triton would keep the new binary under the name of the old one, for all processes that share its cache."""
    arguments = {"x": "*fp32", "BLOCK": 64}
    before = compile_for(scaled, "sm_90", arguments, FUSED)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[__name__], "FACTOR", tl.constexpr(8))
        for target in ("sm_90", "sm_80"):
            with pytest.raises(
                BadInput,
                match=r"global FACTOR of scaled was .*2.* and is .*8.* now; a global must not",
            ):
                compile_for(scaled, target, arguments, FUSED)
        patch.delattr(sys.modules[__name__], "FACTOR")
        assert "is gone now" in refusal(BadInput, compile_for, scaled, "sm_90", arguments, FUSED)
    assert compile_for(scaled, "sm_90", arguments, FUSED).figures == before.figures


def test_what_cannot_be_compiled_says_for_what_and_why(monkeypatch):
    told = refusal(BadInput, compile_for, gemm, "sm_90", GEMM, {"waves_per_eu": 2, "num_wraps": 8})
    assert "options has waves_per_eu, num_wraps, which the compiler for sm_90 does not know" in told
    told = refusal(
        CompileFailed, compile_for, wrong, "gfx942", {"x": "*fp32", "BLOCK": 64}, {"num_warps": 2}
    )
    assert told.startswith("wrong cannot be compiled for gfx942 (num_warps=2):")
    assert "no_such_name" in told
    tuned = triton.autotune([triton.Config({"BLOCK": 64})], key=["n"])(add)
    twice = triton.autotune([triton.Config({})], key=["n"])(
        triton.heuristics({"BLOCK": lambda _: 64})(add)
    )
    for kernel, expected in (
        (lambda x: x, "expected a function under @triton.jit or @gluon.jit"),
        ("gemm", "expected a function under @triton.jit or @gluon.jit"),
        (tuned, "this object wraps a kernel: pass its `fn`"),
        (twice, "this object wraps a kernel: pass its `fn.fn`"),
    ):
        assert expected in refusal(BadInput, compile_for, kernel, "sm_90", {})
    foreign = types.SimpleNamespace(
        metadata=types.SimpleNamespace(target=GPUTarget("xpu", "pvc", 32))
    )
    assert "compiled for pvc by Triton's back end 'xpu'; expected cuda or hip" in refusal(
        CompileFailed, read, foreign
    )
    monkeypatch.setenv("TRITON_OVERRIDE_ARCH", "sm80")
    told = refusal(CompileFailed, compile_for, add, "sm_90", ADD, FUSED)
    assert "compiled for sm_80 in place of sm_90; unset TRITON_OVERRIDE_ARCH" in told


def test_a_kernel_made_for_the_interpreter_is_compiled_all_the_same():
    interpreted = compile_for(InterpretedFunction(add.fn), "gfx942", ADD, FUSED)
    assert interpreted.figures == compile_for(add, "gfx942", ADD, FUSED).figures
    # It keeps what its decorator was given.
    wrapped = InterpretedFunction(
        unspecialised.fn, do_not_specialize=["n"], debug=None, only_interpreted=1
    )
    assert compile_for(wrapped, "sm_90", UNSPECIALISED, FUSED).arguments["n"] == "i32"


def test_a_kernel_in_gluon_is_compiled_as_a_launch_would_compile_it():
    pytest.importorskip("triton.experimental.gluon", reason="needs Triton with Gluon, found none")
    from triton.experimental.gluon import language as gl
    from triton.experimental.gluon.nvidia.hopper import TensorDescriptor as Swizzled

    from .gluon_kernels import copy_tile

    layout = gl.NVMMASharedLayout(swizzle_byte_width=128, element_bitwidth=16, rank=2)
    tensor = torch.empty(256, 64, dtype=torch.bfloat16)
    source, target = (Swizzled.from_tensor(tensor, [128, 64], layout) for _ in range(2))
    assert same(copy_tile, backend("sm_90"), (source, target))
    arguments = {"source": source, "target": target}
    figures = compile_for(copy_tile, "sm_90", arguments, FUSED).figures
    assert (1, 1) == (figures["UTMALDG"], figures["UTMASTG"])
    assert figures["shared_bytes"] >= 128 * 64 * 2


def test_a_triton_that_is_missing_broken_interpreted_or_too_old_is_called_what_it_is(
    monkeypatch, tmp_path
):
    with monkeypatch.context() as patch:
        patch.setattr(triton.language, "sum", InterpretedFunction(add.fn))
        told = refusal(BadInput, compile_for, InterpretedFunction(add.fn), "sm_90", ADD)
        assert "imported under TRITON_INTERPRET=1" in told
    (tmp_path / "triton.py").write_text("raise ImportError('libtriton.so: undefined symbol')")
    monkeypatch.syspath_prepend(tmp_path)
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "triton")
        assert "cannot be imported: libtriton.so: undefined symbol" in refusal(
            BadInput, is_compiled, add
        )
        patch.setitem(sys.modules, "triton", None)
        assert "Triton is not installed" in refusal(BadInput, is_compiled, add)
    monkeypatch.setattr(triton, "__version__", "3.5.1")
    assert "Triton is 3.5.1; expected 3.6 or newer" in refusal(BadInput, is_compiled, add)


def test_a_tool_that_is_missing_or_fails_is_named_and_quoted(monkeypatch, tmp_path):
    tool = tmp_path / "cuobjdump"
    monkeypatch.setattr(targets, "path_of", lambda _: str(tool))
    assert f"cuobjdump ({tool}) cannot be run" in refusal(
        CompileFailed, compile_for, gemm, "sm_90", GEMM, OPTIONS
    )
    tool.write_text("#!/bin/sh\necho 'cuobjdump fatal: what is this' >&2\nexit 3\n")
    tool.chmod(0o755)
    told = refusal(CompileFailed, compile_for, gemm, "sm_90", GEMM, OPTIONS)
    assert (
        "cuobjdump --dump-resource-usage ended with status 3: cuobjdump fatal: what is this" in told
    )
