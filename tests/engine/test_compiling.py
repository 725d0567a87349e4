"""Kernels compiled for GPUs that are not here: what a signature is made of, and what is read in the binary.

The texts of the tools were recorded with Triton 3.9 (cuobjdump and nvdisasm 13.1, ptxas 13.4) and shortened.
"""

import builtins
import json
import os
import subprocess
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
from pytest_roofline.core.resources import COUNTED_AMD, COUNTED_NVIDIA, JUDGED, SHOWN
from pytest_roofline.kernel_gate import amd, nvidia
from pytest_roofline.kernel_gate.arguments import signature_of
from pytest_roofline.kernel_gate.compile import compile_for, is_compiled, read
from pytest_roofline.kernel_gate.targets import canonical, gpu_target, name_of


@triton.jit
def gemm(a, b, c, k, stride, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, PRECISION: tl.constexpr = "ieee"):
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
def declared(a: tl.const, b: tl.pointer_type(tl.float32), c: tl.int64, d: tl.float32, e: tl.int1, f):
    pass


FACTOR = tl.constexpr(2)


@triton.jit
def scaled(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), 3.0 * FACTOR)


@triton.jit
def wrong(x, BLOCK: tl.constexpr):
    tl.store(x + tl.arange(0, BLOCK), no_such_name)  # noqa: F821


TENSORS = {"a": "*bf16:16", "b": "*bf16:16", "c": "*bf16:16"}
ADD = {"x": "*fp32", "y": "*fp32", "n": "i32"}
GEMM = {**TENSORS, "k": "i32:16", "stride": "i32:16", "BM": 128, "BN": 128, "BK": 64}
OPTIONS = {"num_warps": 8, "num_stages": 3, "enable_fp_fusion": True}


@pytest.fixture(scope="module", autouse=True)
def _own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_CACHE_DIR", str(tmp_path_factory.mktemp("triton")))
        # Its default changes with Triton 3.10, which 3.9 announces wherever nobody says.
        patch.setenv("TRITON_DEFAULT_FP_FUSION", "1")
        yield


def backend(target):
    return triton.compiler.make_backend(gpu_target(target))


# Targets.


def test_a_target_has_one_name_however_it_is_spelled_and_the_lanes_of_its_architecture():
    for spelled, name, lanes in (
        ("sm_90", "sm_90", 32), ("sm90", "sm_90", 32), ("SM_100", "sm_100", 32), ("sm_90a", "sm_90", 32),
        ("gfx90a", "gfx90a", 64), ("GFX942", "gfx942", 64), (" gfx1100 ", "gfx1100", 32), ("gfx950", "gfx950", 64),
    ):  # fmt: skip
        assert canonical(spelled) == name
        assert (name_of(gpu_target(name)), gpu_target(name).warp_size) == (name, lanes)
    for target in ("h100", "sm_9", "gfx", "cuda:90:32", "", None, 90, "sm_90; rm"):
        with pytest.raises(BadInput, match="expected the likes of sm_80, sm_90"):
            canonical(target)


# Signatures.


def words(target="sm_90", kernel=add, **arguments):
    return signature_of(kernel, {"x": "*fp32", "y": "*fp32", "n": "i32", **arguments}, backend(target)).text


def test_an_argument_becomes_what_a_launch_would_see():
    for given, word in (
        ("*bf16", "*bf16"),
        ("*bf16:16", "*bf16:16"),
        ("*kfp16:16", "*kfp16:16"),
        ("tensordesc<bf16[128,64]>", "tensordesc<bf16[128,64]>"),
        (torch.empty(4, dtype=torch.bfloat16, device="meta"), "*bf16:16"),
        (torch.zeros(4, dtype=torch.float8_e4m3fn), "*fp8e4nv:16"),
        (torch.zeros(5, dtype=torch.float32)[1:], "*fp32"),
        (torch.float16, "*fp16:16"),
        (None, "None"),
    ):
        assert words(x=given)["x"] == word
    for given, word in (
        ("i32:16", "i32:16"), ("i32:1", "1"), ("i64", "i64"), (7, "i32"), (1024, "i32:16"), (1, "1"), (0, "i32:16"),
        (-32, "i32:16"), (2**31, "i64:16"), (2**63, "u64:16"), (0.5, "fp32"), (True, "u1"), (None, "None"),
    ):  # fmt: skip
        assert words(n=given)["n"] == word


def test_a_constant_is_the_same_text_in_every_process():
    assert words(BLOCK=object())["BLOCK"] == "object"
    assert words(BLOCK=add)["BLOCK"] == "add"
    assert words(BLOCK=tl.constexpr(64))["BLOCK"] == "64"
    assert words(BLOCK=tl.bfloat16)["BLOCK"] == "bf16"


def test_a_descriptor_names_its_block():
    tensor = torch.empty(256, 64, dtype=torch.bfloat16)
    assert words(x=TensorDescriptor.from_tensor(tensor, [128, 64]))["x"] == "tensordesc<bf16[128, 64]>"


def test_on_amd_a_launch_also_knows_how_far_a_pointer_reaches():
    assert words("gfx942", x=torch.float16)["x"] == "*fp16:16 within 2 GiB"
    assert words("gfx942", x=torch.empty(2**31, dtype=torch.float16, device="meta"))["x"] == "*fp16:16"


def test_a_parameter_with_a_default_may_be_left_out():
    assert words() == {"x": "*fp32", "y": "*fp32", "n": "i32", "scale": "None", "BLOCK": "128"}


def test_a_signature_is_the_one_that_a_launch_makes():
    for target, values in product(
        ("sm_90", "gfx942"),
        (
            (torch.empty(8, dtype=torch.bfloat16), torch.empty(9)[1:], 1024, None),
            (torch.empty(8, dtype=torch.int64), torch.empty(0, dtype=torch.bool), 1, 0.5),
            (torch.empty(8, dtype=torch.uint8), None, 2**40, True),
            (torch.empty(2**32, dtype=torch.float8_e5m2, device="meta"), torch.empty(4, dtype=torch.float64), 7, 16),
        ),
    ):
        assert same(add, backend(target), values), (target, values)


def same(kernel, known, values):
    bound, specialization, options = create_function_from_signature(kernel.signature, kernel.params, known)(*values)
    _, types, constants, attributes = kernel._pack_args(known, options, bound, specialization, options)
    found = signature_of(kernel, dict(zip([one.name for one in kernel.params], values, strict=False)), known)
    stated = {place: facts for place, facts in attributes.items() if facts}
    return (found.types, found.constants, found.attributes) == (types, constants, stated)


def test_what_a_kernel_says_of_its_parameters_counts_as_in_a_launch():
    tensor = torch.empty(8)
    for target, numbers in product(("sm_90", "gfx942"), ((1, 16, True, 1.5), (16, 16, 1, 1), (3, 0.5, 0, 48))):
        assert same(declared, backend(target), (tensor, tensor, *numbers)), (target, numbers)


DECLARED = {"a": "*fp32:16", "b": "*fp32:16", "c": "i64:16", "d": "fp32", "e": "u1", "f": "i32"}


def test_a_type_string_follows_what_a_kernel_says_of_its_parameters():
    found = signature_of(declared, DECLARED, backend("sm_90"))
    assert found.types == {"a": "*kfp32", "b": "*fp32", "c": "i64", "d": "fp32", "e": "u1", "f": "i32"}
    assert signature_of(declared, DECLARED | {"a": "*kfp32"}, backend("sm_90")).types["a"] == "*kfp32"


def test_a_type_string_that_no_launch_would_make_is_refused():
    for name, given, told in (
        ("b", "*bf16", "the kernel says *fp32 of it, which a launch takes; expected '*fp32'"),
        ("c", "i32", "the kernel says i64 of it, which a launch takes; expected 'i64'"),
        ("c", "i64:1", "only an integer that the kernel gives no type becomes a constant for being 1; expected 'i64'"),
        ("f", "*fp32:1", "only an integer that the kernel gives no type becomes a constant for being 1"),
        ("f", "fp32:16", "only integers and pointers are known to be divisible; expected 'fp32'"),
        ("f", "u1:16", "only integers and pointers are known to be divisible; expected 'u1'"),
    ):
        with pytest.raises(BadInput) as raised:
            signature_of(declared, DECLARED | {name: given}, backend("sm_90"))
        assert f"argument {name} is {given!r}" in str(raised.value)
        assert told in str(raised.value)


def test_a_type_string_knows_no_more_than_the_kernel_asks_for():
    with pytest.raises(BadInput, match=r"argument n is 'i32:16', and the kernel asks not to be specialised on it"):
        signature_of(unspecialised, {"x": "*fp32", "n": "i32:16", "m": 16, "BLOCK": 64}, backend("sm_90"))


def test_a_kernel_that_asks_not_to_be_specialised_is_not():
    found = signature_of(unspecialised, {"x": "*fp32", "n": 1, "m": 16, "BLOCK": 64}, backend("sm_90"))
    assert found.text == {"x": "*fp32", "n": "i32", "m": "i64:16", "BLOCK": "64"}


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        ({"x": "*fp32"}, "no argument for y, n; it takes x, y, n, scale, BLOCK"),
        ({"x": "*fp32", "y": "*fp32", "n": 1, "BLOK": 64}, "arguments that it does not have: BLOK"),
    ],
)
def test_arguments_must_be_those_of_the_kernel(arguments, told):
    with pytest.raises(BadInput, match=told):
        signature_of(add, arguments, backend("sm_90"))


@pytest.mark.parametrize(
    "given",
    ["bfloat16", "*bf15", "*bf16:8", "constexpr", "tensordesc<>", [1, 2],
     pytest.param(object(), id="an object"), (1, 2), torch.complex64, torch.zeros(2, dtype=torch.complex64)],
    ids=repr,
)  # fmt: skip
def test_an_argument_of_no_type_is_refused_with_examples(given):
    with pytest.raises(BadInput, match=r"argument x is .*expected a type such as '\*bf16'"):
        words(x=given)


# What the tools print.

USAGE = """
Resource usage:
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


def test_usage_is_that_of_the_kernel_and_not_of_what_it_calls():
    assert nvidia.read_usage(USAGE, "gemm") == {"registers": 107, "stack_bytes": 24}


@pytest.mark.parametrize("text", ["", "Function other:\n REG:1 STACK:0", "Function gemm:\n REGS:107"])
def test_usage_in_another_form_is_an_error_that_says_what_was_expected(text):
    with pytest.raises(CompileFailed, match="expected `Function gemm: REG:"):
        nvidia.read_usage(text, "gemm")


def test_instructions_are_counted_by_kind():
    text = sass(
        "LDC.64",
        "HGMMA.64",
        "HGMMA.64",
        "STL.64",
        "LDL",
        "LDL.LU",
        "MUFU.EX2",
        "MUFU.RCP",
        "FFMA.FTZ",
        "LDGSTS.E",
        "UTMALDG.2D",
    )
    counts, _ = nvidia.read_instructions(text)
    assert counts == {
        "spill_stores": 1, "spill_loads": 2, "matrix_instructions": 2, "instructions": 11,
        "HGMMA": 2, "MUFU.EX2": 1, "FFMA": 1, "LDGSTS": 1, "UTMALDG": 1,
    }  # fmt: skip


def test_matrix_instructions_of_every_generation_count():
    counts, _ = nvidia.read_instructions(sass("HMMA.16816.F32.BF16", "IMMA.16832", "UTCHMMA.2CTA", "FFMA2", "HFMA2"))
    assert counts["matrix_instructions"] == 3


def test_the_assembler_is_the_one_that_signed_the_binary():
    head = {".note.nv.tkinfo": {"tki_toolVersion": "Cuda compilation tools, release 13.4, V13.4.59"}}
    assert nvidia.read_instructions(sass("EXIT", head=head))[1] == "13.4.59"
    assert nvidia.read_instructions(sass("EXIT"))[1] == ""


@pytest.mark.parametrize(
    "text", ["", "nonsense", "[]", "[{}, [{}]]", '[{}, [{"sass-instructions": [{}]}]]', "[{}, []]"]
)
def test_a_disassembly_in_another_form_is_an_error_and_never_nought(text):
    with pytest.raises(CompileFailed, match="expected"):
        nvidia.read_instructions(text)


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
    assert amd.read_assembly(ASSEMBLY) == {
        "vgprs": 208, "agprs": 4, "sgprs": 26, "vgpr_spills": 3, "sgpr_spills": 1, "scratch_bytes": 8,
        "occupancy_waves": 2, "matrix_instructions": 2, "instructions": 9,
        "v_mfma": 2, "v_fma": 2, "v_exp": 1, "buffer_load": 1, "global_load": 1,
    }  # fmt: skip


def test_instructions_that_do_two_things_count_once_and_their_operations_twice():
    """RDNA 3 and newer."""
    text = ASSEMBLY.replace(
        "\tv_exp_f32_e32 v0, v1\n",
        "\tv_dual_fmac_f32 v0, v1, v2 :: v_dual_mul_f32 v3, v4, v5\n"
        "\tv_dual_mov_b32 v0, v1 :: v_dual_fmaak_f32 v3, v4, v5, 0x40000000\n"
        "\tv_fmamk_f32 v0, v1, 0x40000000, v2\n",
    )
    figures = amd.read_assembly(text)
    assert (figures["instructions"], figures["v_fma"]) == (11, 5)


def test_functions_beside_the_kernel_never_make_it_look_better():
    beside = ASSEMBLY.replace("; Occupancy: 2", "; Occupancy: 8\n; Occupancy: 2")
    assert amd.read_assembly(beside)["occupancy_waves"] == 2


def test_the_page_names_every_figure():
    page = (Path(__file__).parents[2] / "docs" / "compile-gate.md").read_text(encoding="utf-8")
    figures = {*JUDGED, *SHOWN, *COUNTED_NVIDIA, *COUNTED_AMD, "v_mfma"}
    assert {figure for figure in figures if f"`{figure}`" not in page} == set()


def test_a_target_without_accumulation_registers_has_no_such_figure():
    assert "agprs" not in amd.read_assembly(ASSEMBLY.replace("- .agpr_count:     4", "-"))


@pytest.mark.parametrize(
    "gone", [".vgpr_count", ".sgpr_spill_count", ".private_segment_fixed_size:", "; Occupancy: 2", ".amdgpu_metadata"]
)
def test_assembly_that_lacks_a_figure_is_an_error_that_names_it(gone):
    with pytest.raises(CompileFailed, match=gone.split(":")[0].strip("; ").lstrip(".")):
        amd.read_assembly(ASSEMBLY.replace(gone, "gone"))


# The real thing.


@pytest.mark.parametrize(
    ("target", "kind", "others"),
    [
        ("sm_90", "HGMMA", {"HMMA"}),
        ("sm_100", "UTCHMMA", {"HMMA"}),
        ("sm80", "HMMA", {"HGMMA"}),
        ("gfx942", "v_mfma", {"v_wmma"}),
    ],
)
def test_a_product_of_matrices_uses_the_matrix_instructions_of_its_target(target, kind, others):
    found = compile_for(gemm, target, GEMM, OPTIONS)
    figures = found.figures
    assert found.target == canonical(target)
    assert figures[kind] == figures["matrix_instructions"] > 0
    assert others.isdisjoint(figures)
    assert 32 < figures.get("vgprs", figures.get("registers")) <= 255
    # Barriers of a few bytes stand beside the tiles.
    assert 2 * 128 * 64 * 2 <= figures["shared_bytes"] <= 3 * 2 * 128 * 64 * 2 + 64
    assert {figures[name] for name in figures if "spill" in name} == {0}
    # A column is 128 accumulators of 32 bits.
    assert figures.get("tmem_columns") == (128 if target == "sm_100" else None)
    assert found.options == {**found.options, **OPTIONS}
    assert (found.arguments["a"], found.arguments["PRECISION"]) == ("*bf16:16", "ieee")
    assert found.compiler["triton"] == triton.__version__
    # Older ones do not tell which LLVM they are made of.
    assert found.compiler.keys() - {"llvm"} == ({"triton"} if target == "gfx942" else {"triton", "ptxas"})


def test_the_same_again_says_the_same_and_a_compiled_kernel_says_it_too():
    first = compile_for(gemm, "sm_90", GEMM, OPTIONS)
    source = signature_of(gemm, GEMM, backend("sm_90"))
    compiled = triton.compile(
        triton.compiler.ASTSource(gemm, source.types, source.constants, source.attributes),
        target=gpu_target("sm_90"),
        options=OPTIONS,
    )
    assert is_compiled(compiled)
    assert not is_compiled(gemm)
    assert read(compiled).figures == first.figures
    assert read(compiled).arguments == first.arguments


def test_a_comment_that_moves_lines_changes_nothing(monkeypatch):
    """With line information ptxas gave 104 and 106 registers to one PTX."""
    made = []
    compile_one = triton.compile
    monkeypatch.setattr(triton, "compile", lambda *args, **more: made.append(compile_one(*args, **more)) or made[-1])
    before = triton.knobs.compilation.disable_line_info
    found = compile_for(gemm, "sm_90", GEMM, OPTIONS)
    assert ".loc" not in made[0].asm["ptx"]
    assert triton.knobs.compilation.disable_line_info == before
    assert "TRITON_DISABLE_LINE_INFO" not in found.options


def test_what_fits_in_no_register_shows_as_spills():
    figures = compile_for(gemm, "sm_80", {**GEMM, "BN": 256}, {**OPTIONS, "num_warps": 4, "maxnreg": 96}).figures
    assert figures["stack_bytes"] > 0
    assert figures["spill_stores"] > 0
    assert figures["spill_loads"] > 0
    assert figures["registers"] <= 96


def test_a_target_that_the_disassembler_gave_up_tells_what_it_can_and_says_what_is_missing():
    found = compile_for(add, "sm_70", {"x": "*fp32", "y": "*fp32", "n": "i32"}, {"enable_fp_fusion": True})
    if found.unread:
        assert found.figures.keys() == {"shared_bytes", "registers", "stack_bytes"}
        assert "nvdisasm" in found.unread
    else:
        assert found.figures["instructions"] > 0


def test_options_are_told_as_they_took_effect():
    """On a gfx950 Triton takes no other kpack than 1, whatever is asked for."""
    given = {"enable_fp_fusion": True, "kpack": 2, "num_warps": 8}
    with pytest.warns(UserWarning, match="kpack"):
        found = compile_for(add, "gfx950", ADD, given)
    assert (found.options["kpack"], found.options["num_warps"]) == (1, 8)


def test_what_else_made_another_binary_is_told_too(monkeypatch):
    monkeypatch.setenv("DISABLE_LLVM_OPT", "1")
    source = signature_of(add, ADD, backend("sm_90"))
    compiled = triton.compile(
        triton.compiler.ASTSource(add, source.types, source.constants, source.attributes),
        target=gpu_target("sm_90"),
        options={"enable_fp_fusion": True, "ptx_options": "--warn-on-spills"},
    )
    options = read(compiled).options
    assert (options["DISABLE_LLVM_OPT"], options["ptx_options"]) == ("true", "--warn-on-spills")
    assert not {"debug", "kpack", "ptx_version"} & options.keys()


def test_a_global_that_has_changed_is_refused_as_a_launch_would(monkeypatch):
    """Else Triton would keep the new binary under the name of the old one, for all processes that share its cache."""
    arguments, options = {"x": "*fp32", "BLOCK": 64}, {"enable_fp_fusion": True}
    before = compile_for(scaled, "sm_90", arguments, options)
    with monkeypatch.context() as patch:
        patch.setattr(sys.modules[__name__], "FACTOR", tl.constexpr(8))
        for target in ("sm_90", "sm_80"):
            with pytest.raises(BadInput, match=r"global FACTOR of scaled was .*2.* and is .*8.* now; expected it unch"):
                compile_for(scaled, target, arguments, options)
        patch.delattr(sys.modules[__name__], "FACTOR")
        with pytest.raises(BadInput, match="is gone now"):
            compile_for(scaled, "sm_90", arguments, options)
    assert compile_for(scaled, "sm_90", arguments, options).figures == before.figures


def test_what_triton_would_ignore_is_refused():
    with pytest.raises(
        BadInput, match="options has waves_per_eu, num_wraps, which the compiler for sm_90 does not know"
    ):
        compile_for(gemm, "sm_90", GEMM, {"waves_per_eu": 2, "num_wraps": 8})


def test_a_kernel_that_does_not_compile_says_for_what_and_why():
    with pytest.raises(CompileFailed) as raised:
        compile_for(wrong, "gfx942", {"x": "*fp32", "BLOCK": 64}, {"num_warps": 2})
    text = str(raised.value)
    assert text.startswith("wrong cannot be compiled for gfx942 (num_warps=2):")
    assert "no_such_name" in text


@pytest.mark.parametrize(
    ("kernel", "told"),
    [
        (lambda x: x, "expected a function under @triton.jit"),
        (triton.autotune([triton.Config({"BLOCK": 64})], key=["n"])(add), "it wraps one: give its `fn`"),
        ("gemm", "expected a function under @triton.jit"),
    ],
)
def test_what_is_no_kernel_is_refused(kernel, told):
    with pytest.raises(BadInput, match=told):
        compile_for(kernel, "sm_90", {})


def test_what_wraps_a_kernel_twice_says_where_it_is():
    heuristics = triton.heuristics({"BLOCK": lambda _: 64})(add)
    with pytest.raises(BadInput, match=r"it wraps one: give its `fn\.fn`"):
        compile_for(triton.autotune([triton.Config({})], key=["n"])(heuristics), "sm_90", {})


def test_a_kernel_made_for_the_interpreter_is_compiled_all_the_same():
    options = {"enable_fp_fusion": True}
    interpreted = compile_for(InterpretedFunction(add.fn), "gfx942", ADD, options)
    assert interpreted.figures == compile_for(add, "gfx942", ADD, options).figures


def test_a_kernel_made_for_the_interpreter_keeps_what_its_decorator_was_given():
    wrapped = InterpretedFunction(unspecialised.fn, do_not_specialize=["n"], debug=None, only_interpreted=1)
    arguments = {"x": "*fp32", "n": 1, "m": 16, "BLOCK": 64}
    found = compile_for(wrapped, "sm_90", arguments, {"enable_fp_fusion": True})
    assert found.arguments["n"] == "i32"


def test_assembly_that_was_not_kept_is_an_error_that_names_the_variable():
    compiled = types.SimpleNamespace(asm={"hsaco": b""})
    with pytest.raises(CompileFailed, match="expected TRITON_STORE_BINARY_ONLY unset"):
        amd.read(compiled)


def test_a_kernel_of_a_back_end_that_nobody_can_read_is_refused_by_name():
    metadata = types.SimpleNamespace(target=GPUTarget("xpu", "pvc", 32))
    with pytest.raises(CompileFailed, match="compiled for pvc by Triton's back end 'xpu'; expected cuda or hip"):
        read(types.SimpleNamespace(metadata=metadata))


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ModuleNotFoundError("No module named 'triton'", name="triton"), "Triton is not installed"),
        (ModuleNotFoundError("No module named 'zlib'", name="zlib"), "cannot be imported: No module named 'zlib'"),
        (ImportError("libtriton.so: undefined symbol"), "cannot be imported: libtriton.so: undefined symbol"),
    ],
    ids=str,
)
def test_only_a_triton_that_is_missing_is_called_so(monkeypatch, error, told):
    real = builtins.__import__

    def without(name, *rest):
        if name == "triton":
            raise error
        return real(name, *rest)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(BadInput, match=told):
        is_compiled(add)


def test_a_triton_that_is_too_old_is_refused_with_the_oldest_that_is_not(monkeypatch):
    monkeypatch.setattr(triton, "__version__", "3.5.1")
    with pytest.raises(BadInput, match=r"Triton is 3\.5\.1; expected 3\.6 or newer"):
        is_compiled(add)


def test_where_triton_itself_is_interpreted_the_error_names_the_variable(tmp_path):
    (tmp_path / "kernels.py").write_text(
        "import triton\nimport triton.language as tl\n\n@triton.jit\ndef one(x):\n    tl.store(x, 1.0)\n"
    )
    program = (
        "from kernels import one\n"
        "from pytest_roofline.kernel_gate.compile import compile_for\n"
        "compile_for(one, 'sm_90', {'x': '*fp32'})\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=tmp_path, env=os.environ | {"TRITON_INTERPRET": "1"},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip
    assert "imported under TRITON_INTERPRET=1" in done.stderr.splitlines()[-1]


def test_a_tool_that_is_missing_is_an_error_that_names_it(monkeypatch):
    monkeypatch.setattr(nvidia, "_path_of", lambda tool: f"/nowhere/{tool}")
    with pytest.raises(CompileFailed, match=r"cuobjdump .*cannot be run"):
        compile_for(gemm, "sm_90", GEMM, OPTIONS)


def test_a_tool_that_fails_is_quoted(monkeypatch, tmp_path):
    tool = tmp_path / "cuobjdump"
    tool.write_text("#!/bin/sh\necho 'cuobjdump fatal: what is this' >&2\nexit 3\n")
    tool.chmod(0o755)
    monkeypatch.setattr(nvidia, "_path_of", lambda _: str(tool))
    with pytest.raises(
        CompileFailed, match="cuobjdump --dump-resource-usage ended with status 3: cuobjdump fatal: what"
    ):
        compile_for(gemm, "sm_90", GEMM, OPTIONS)


def test_an_overridden_architecture_is_not_taken_for_the_one_asked_for(monkeypatch):
    monkeypatch.setenv("TRITON_OVERRIDE_ARCH", "sm80")
    with pytest.raises(CompileFailed, match="compiled for sm_80 in place of sm_90; is TRITON_OVERRIDE_ARCH set"):
        compile_for(add, "sm_90", {"x": "*fp32", "y": "*fp32", "n": "i32"}, {"enable_fp_fusion": True})
