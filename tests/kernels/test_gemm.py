"""Matrix products: the check accepts what is right within rounding, and notices what is not."""

import contextlib
from itertools import pairwise
from itertools import product as product_of

import pytest
import torch

from pytest_roofline.hardware.lookup import catalogue
from roofline_kernels import gemm
from roofline_kernels.gemm import KINDS, PROJECTIONS, Gemm, Operands, Shape

CPU = torch.device("cpu")
# One that is checked whole, and two of whose elements a part is. All are small: oneDNN multiplies fp8 with one scale by
# its reference, at 30 ns a multiplication, on processors without instructions of their own for it.
WHOLE, SAMPLED, DECODE = Shape(48, 80, 128), Shape(256, 320, 128), Shape(1, 6144, 64)
SHAPES = [WHOLE, SAMPLED, DECODE]
# As large as a real product, for types that a processor multiplies fast.
LARGE = Shape(1024, 1280, 1024)


@pytest.fixture(autouse=True)
def few_elements_are_checked_whole(monkeypatch):
    """Fewer than in use, so that small products are sampled as large ones are."""
    monkeypatch.setattr(gemm, "_WHOLE_ELEMENTS", 2**16)


def scales_rows():
    """Whether this torch multiplies fp8 with a scale for each row on a processor: 2.13 does, 2.11 does not yet."""
    one, scale = torch.ones(16, 16).to(torch.float8_e4m3fn), torch.ones(16, 1)
    with contextlib.suppress(RuntimeError):
        return torch._scaled_mm(one, one.t(), scale, scale.t(), out_dtype=torch.bfloat16) is not None
    return False


SCALES_ROWS = pytest.mark.skipif(not scales_rows(), reason="needs fp8 by rows on a CPU, which this torch does not have")
ROWWISE = pytest.param("fp8_rowwise", marks=SCALES_ROWS)
# A processor multiplies all but TF32, which it takes for float32.
NAMES = list(KINDS)
MULTIPLIED = [ROWWISE if name == "fp8_rowwise" else name for name in NAMES]


def multiplied(name, shape):
    """What made a product, its operands and its result."""
    product = Gemm(KINDS[name], shape, CPU)
    operands, out = product.make()
    product.multiply(operands, out)
    return product, operands, out


@pytest.mark.parametrize("name", MULTIPLIED)
def test_a_product_is_right_and_what_was_never_multiplied_is_noticed(name):
    for shape in SHAPES:
        product = Gemm(KINDS[name], shape, CPU)
        operands, out = product.make()
        assert not product.check(operands, out), shape
        product.multiply(operands, out)
        assert product.check(operands, out), shape


@pytest.mark.parametrize("name", ["bf16", "fp32"])
def test_a_product_of_a_real_size_is_sampled_and_right(monkeypatch, name):
    monkeypatch.undo()
    product, operands, out = multiplied(name, LARGE)
    assert product.check(operands, out)
    out[896:1024, 1152:1280] = out[:128, :128].clone()
    assert not product.check(operands, out)


@pytest.mark.parametrize("name", MULTIPLIED)
def test_one_wrong_tile_is_noticed_wherever_it_is(name):
    product, operands, right = multiplied(name, SAMPLED)
    for row, column in [(0, 0), (96, 128), (224, 288)]:
        out = right.clone()
        out[row : row + 32, column : column + 32] = right[64:96, 64:96]
        assert not product.check(operands, out), (row, column)


@pytest.mark.parametrize("name", MULTIPLIED)
def test_one_wrong_element_of_a_small_product_is_noticed(name):
    product, operands, right = multiplied(name, WHOLE)
    for column, wrong in product_of([0, 37, 79], [float("nan"), float("inf"), right.abs().max() + 8]):
        out = right.clone()
        out[47, column] = wrong
        assert not product.check(operands, out), (column, wrong)


@pytest.mark.parametrize("name", MULTIPLIED)
def test_a_transposed_operand_is_noticed(name):
    product = Gemm(KINDS[name], Shape(128, 128, 128), CPU)
    operands, out = product.make()
    product.multiply(Operands(operands.left, operands.weight.t().contiguous(), operands.scales), out)
    assert not product.check(operands, out)


@pytest.mark.parametrize("name", MULTIPLIED)
def test_a_slice_of_the_sum_that_was_left_out_is_noticed(name):
    for shape in SHAPES:
        product = Gemm(KINDS[name], shape, CPU)
        operands, out = product.make()
        left = operands.left.clone()
        left.view(torch.uint8)[:, -(shape.k // 16) * left.itemsize :] = 0
        product.multiply(Operands(left, operands.weight, operands.scales), out)
        assert not product.check(operands, out), shape


@pytest.mark.parametrize("missing", [0, 1])
@pytest.mark.parametrize("name", ["fp8_tensorwise", ROWWISE])
def test_a_missing_scale_is_noticed(name, missing):
    product = Gemm(KINDS[name], SAMPLED, CPU)
    operands, out = product.make()
    scales = list(operands.scales)
    # As large as its fellows are on average, so that it is only not its own.
    scales[missing] = torch.full_like(scales[missing], 1 / gemm.fp8_deviation(torch.float8_e4m3fn))
    product.multiply(Operands(operands.left, operands.weight, tuple(scales)), out)
    assert not product.check(operands, out)


def test_operands_of_too_few_digits_are_noticed():
    for name in ["bf16", "fp16", "fp32"]:
        below = {"bf16": torch.float8_e4m3fn, "fp16": torch.bfloat16, "fp32": torch.bfloat16}[name]
        product, operands, out = multiplied(name, SAMPLED)
        left, weight = (one.to(below).to(one.dtype) for one in (operands.left, operands.weight))
        product.multiply(Operands(left, weight, None), out)
        assert not product.check(operands, out), name


def test_operands_are_normal_and_never_zero_throughout():
    for name in NAMES:
        operands, _ = Gemm(KINDS[name], LARGE, CPU).make()
        unit = gemm.fp8_deviation(operands.left.dtype) if operands.scales else 1.0
        for matrix in (operands.left, operands.weight):
            values = matrix.double() / unit
            assert float(values.mean()) == pytest.approx(0, abs=0.01), name
            assert float(values.std()) == pytest.approx(1, abs=0.01), name
            assert float((values == 0).double().mean()) < 0.01, name


def test_each_set_has_other_numbers_and_each_run_the_same():
    for name in ["bf16", "fp8_rowwise"]:
        first, again = Gemm(KINDS[name], WHOLE, CPU), Gemm(KINDS[name], WHOLE, CPU)
        sets = [first.make()[0] for _ in range(3)]
        for one, other in pairwise(sets):
            assert not torch.equal(one.left.float(), other.left.float()), name
        assert torch.equal(sets[0].weight.float(), again.make()[0].weight.float()), name


def test_how_float32_is_multiplied_is_set_for_the_call_and_restored():
    for name in ["tf32", "fp32"]:
        before = torch.get_float32_matmul_precision()
        with gemm.arithmetic(KINDS[name], CPU):
            assert torch.get_float32_matmul_precision() == {"tf32": "high", "fp32": "highest"}[name], name
        assert torch.get_float32_matmul_precision() == before, name


def test_it_is_restored_after_an_error():
    before = torch.get_float32_matmul_precision()
    with contextlib.suppress(ZeroDivisionError), gemm.arithmetic(KINDS["tf32"], CPU):
        raise ZeroDivisionError
    assert torch.get_float32_matmul_precision() == before


def test_sums_of_sixteen_bits_are_in_float32_and_the_settings_restored(monkeypatch):
    # They are there without a device, too.
    matmul = torch.backends.cuda.matmul
    names = [f"allow_{name}_reduced_precision_reduction" for name in ("bf16", "fp16")]
    before = [getattr(matmul, name) for name in names]
    with gemm.arithmetic(KINDS["bf16"], torch.device("cuda")):
        assert [getattr(matmul, name) for name in names] == [False, False]
    assert [getattr(matmul, name) for name in names] == before


def test_a_processor_has_every_type_but_tf32():
    missing = {"tf32"} if scales_rows() else {"tf32", "fp8_rowwise"}
    assert missing == {name for name, kind in KINDS.items() if gemm.why_not(kind, CPU)}


def test_a_type_that_torch_refuses_is_told_with_its_reason(monkeypatch):
    def refuse(*_, **__):
        raise RuntimeError("no kernel for fp8\nand a long story")

    monkeypatch.setattr(torch, "_scaled_mm", refuse)
    assert gemm.why_not(KINDS["fp8_rowwise"], CPU) == "needs fp8_rowwise on cpu, found: no kernel for fp8"


def test_a_type_whose_products_are_wrong_is_not_there(monkeypatch):
    monkeypatch.setattr(torch, "mm", lambda left, right, out: out.zero_())
    assert gemm.why_not(KINDS["fp16"], CPU) == "needs fp16 on cpu, found that its products are wrong"


@pytest.mark.parametrize(("hip", "version", "reason"), [(None, (7, 0), "found 7.0"), (None, (8, 0), "")])
def test_a_volta_card_has_no_bf16(monkeypatch, hip, version, reason):
    monkeypatch.setattr(torch.version, "hip", hip)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: version)
    monkeypatch.setattr(gemm, "Gemm", lambda kind, shape, _: Gemm(kind, shape, CPU))
    found = gemm.why_not(KINDS["bf16"], torch.device("cuda"))
    assert found.endswith(reason)
    assert bool(found) == bool(reason)


@pytest.mark.parametrize(("architecture", "dtype"), [("gfx942:x", "e4m3fnuz"), ("gfx950", "e4m3fn")])
def test_cdna_3_has_an_e4m3_of_its_own(monkeypatch, architecture, dtype):
    properties = type("Properties", (), {"gcnArchName": architecture})
    monkeypatch.setattr(torch.version, "hip", "6.2")
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _: properties)
    assert gemm.fp8_type(torch.device("cuda")) == getattr(torch, f"float8_{dtype}")


def test_a_shape_that_memory_bounds_is_bound_by_it_on_every_product_with_a_datasheet():
    for name in NAMES:
        kind = KINDS[name]
        single = [kind.metric, kind.metric.replace("_TFLOPS", "_matrix_TFLOPS")]
        ridges = [
            1e3 * known.peaks[peak].value / known.peaks["memory_GBps"].value
            for known in catalogue().products
            for peak in single
            if peak in known.peaks and "memory_GBps" in known.peaks
        ]
        assert 0.95 * min(ridges) < kind.least_ridge <= min(ridges), name


def test_one_token_is_bound_by_memory_and_thousands_are_not():
    bound = {
        tokens: {
            gemm.is_memory_bound(KINDS[name], Shape(tokens, *PROJECTIONS[one])) for name in NAMES for one in PROJECTIONS
        }
        for tokens in (1, 4096)
    }
    assert bound == {1: {True}, 4096: {False}}


def test_memory_needed_holds_operands_and_result(monkeypatch):
    monkeypatch.undo()
    # 8192 · 8192 · 2 bytes, three times, and 256 rows of float64 twice.
    assert Gemm(KINDS["bf16"], Shape(8192, 8192, 8192), CPU).memory_needed == 3 * 8192**2 * 2 + 2 * 8 * 256 * 8192
