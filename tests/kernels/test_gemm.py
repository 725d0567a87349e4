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
WHOLE, SAMPLED, DECODE = Shape(48, 80, 128), Shape(128, 160, 128), Shape(1, 6144, 32)
SHAPES = [WHOLE, SAMPLED, DECODE]
# As large as a real product, for types that a processor multiplies fast.
LARGE = Shape(1024, 1280, 1024)


@pytest.fixture
def sampled(monkeypatch):
    """Fewer elements are checked whole than in use, so that small products are sampled as large ones are."""
    monkeypatch.setattr(gemm, "_WHOLE_ELEMENTS", 2**14)


def scales_rows():
    """Whether this torch multiplies fp8 with a scale for each row on a processor: 2.13 does, 2.11 does not yet."""
    one, scale = torch.ones(16, 16).to(torch.float8_e4m3fn), torch.ones(16, 1)
    with contextlib.suppress(RuntimeError):
        return (
            torch._scaled_mm(one, one.t(), scale, scale.t(), out_dtype=torch.bfloat16) is not None
        )
    return False


# A processor multiplies all but TF32, which it takes for float32.
MISSING = set() if scales_rows() else {"fp8_rowwise"}
MULTIPLIED = [name for name in KINDS if name not in MISSING]


def multiplied(name, shape, change=lambda operands: operands):
    """What makes a product, its operands and the result of what a change makes of them."""
    product = Gemm(KINDS[name], shape, CPU)
    operands, out = product.make()
    product.multiply(change(operands), out)
    return product, operands, out


@pytest.mark.usefixtures("sampled")
def test_a_product_is_right_and_what_was_never_multiplied_is_noticed():
    for name, shape in product_of(MULTIPLIED, SHAPES):
        product = Gemm(KINDS[name], shape, CPU)
        operands, out = product.make()
        assert not product.check(operands, out), (name, shape)
        product.multiply(operands, out)
        assert product.check(operands, out), (name, shape)


def test_a_product_of_a_real_size_is_sampled_and_right():
    product, operands, out = multiplied("bf16", LARGE)
    assert product.check(operands, out)
    out[896:1024, 1152:1280] = out[:128, :128].clone()
    assert not product.check(operands, out)


@pytest.mark.usefixtures("sampled")
def test_one_wrong_tile_and_one_wrong_element_of_a_small_product_are_noticed():
    for name in MULTIPLIED:
        product, operands, right = multiplied(name, SAMPLED)
        for row, column in [(0, 0), (96, 128)]:
            out = right.clone()
            out[row : row + 32, column : column + 32] = right[32:64, 32:64]
            assert not product.check(operands, out), (name, row, column)
        product, operands, right = multiplied(name, WHOLE)
        for column, wrong in product_of(
            [0, 37, 79], [float("nan"), float("inf"), right.abs().max() + 8]
        ):
            out = right.clone()
            out[47, column] = wrong
            assert not product.check(operands, out), (name, column, wrong)


def without_the_end_of_the_sum(operands):
    left = operands.left.clone()
    left.view(torch.uint8)[:, -(left.shape[1] // 16) * left.itemsize :] = 0
    return Operands(left, operands.weight, operands.scales)


def of_fewer_digits(operands):
    below = torch.float8_e4m3fn if operands.left.dtype == torch.bfloat16 else torch.bfloat16
    left, weight = (one.to(below).to(one.dtype) for one in (operands.left, operands.weight))
    return Operands(left, weight, operands.scales)


def without_a_scale(which):
    def change(operands):
        # As large as its fellows are on average, so that it is only not its own.
        scales = list(operands.scales)
        scales[which] = torch.full_like(scales[which], 1 / gemm.fp8_deviation(torch.float8_e4m3fn))
        return Operands(operands.left, operands.weight, tuple(scales))

    return change


@pytest.mark.usefixtures("sampled")
def test_operands_that_are_transposed_left_out_of_fewer_digits_or_without_their_scale_are_noticed():
    changes = [
        (name, shape, without_the_end_of_the_sum) for name, shape in product_of(MULTIPLIED, SHAPES)
    ]
    changes += [
        (
            name,
            Shape(64, 64, 64),
            lambda one: Operands(one.left, one.weight.t().contiguous(), one.scales),
        )
        for name in MULTIPLIED
    ]
    changes += [(name, SAMPLED, of_fewer_digits) for name in ("bf16", "fp16", "fp32")]
    scaled = [name for name in MULTIPLIED if KINDS[name].scales]
    changes += [
        (name, SAMPLED, without_a_scale(which)) for name, which in product_of(scaled, [0, 1])
    ]
    for name, shape, change in changes:
        product, operands, out = multiplied(name, shape, change)
        assert not product.check(operands, out), (name, shape, change)


def test_operands_are_normal_and_never_zero_throughout_others_in_each_set_and_the_same_in_each_run():
    for name in KINDS:
        operands, _ = Gemm(KINDS[name], LARGE, CPU).make()
        unit = gemm.fp8_deviation(operands.left.dtype) if operands.scales else 1.0
        for matrix in (operands.left, operands.weight):
            values = matrix.double() / unit
            found = (
                float(values.mean()),
                float(values.std()),
                float((values == 0).double().mean()),
            )
            assert found == pytest.approx((0, 1, 0), abs=0.01), name
    for name in ["bf16", "fp8_rowwise"]:
        first, again = Gemm(KINDS[name], WHOLE, CPU), Gemm(KINDS[name], WHOLE, CPU)
        sets = [first.make()[0] for _ in range(3)]
        assert not any(
            torch.equal(one.left.float(), other.left.float()) for one, other in pairwise(sets)
        ), name
        assert torch.equal(sets[0].weight.float(), again.make()[0].weight.float()), name


def test_how_products_are_multiplied_is_set_for_the_call_and_restored_also_after_an_error():
    before = torch.get_float32_matmul_precision()
    for name, expected in [("tf32", "high"), ("fp32", "highest")]:
        with contextlib.suppress(ZeroDivisionError), gemm.arithmetic(KINDS[name], CPU):
            assert torch.get_float32_matmul_precision() == expected, name
            raise ZeroDivisionError
        assert torch.get_float32_matmul_precision() == before, name
    # They are there without a device, too.
    matmul = torch.backends.cuda.matmul
    names = [f"allow_{name}_reduced_precision_reduction" for name in ("bf16", "fp16")]
    settings = [getattr(matmul, name) for name in names]
    with gemm.arithmetic(KINDS["bf16"], torch.device("cuda")):
        assert [getattr(matmul, name) for name in names] == [False, False]
    assert [getattr(matmul, name) for name in names] == settings


def test_a_type_that_a_device_does_not_have_is_told_with_its_reason(monkeypatch):
    assert {name for name, kind in KINDS.items() if gemm.why_not(kind, CPU)} == {"tf32"} | MISSING

    def refuse(*_, **__):
        raise RuntimeError("no kernel for fp8\nand a long story")

    monkeypatch.setattr(torch, "_scaled_mm", refuse)
    assert (
        gemm.why_not(KINDS["fp8_rowwise"], CPU)
        == "needs fp8_rowwise on cpu, found: no kernel for fp8"
    )
    multiply = torch.mm
    monkeypatch.setattr(torch, "mm", lambda left, right, out: out.zero_())
    assert (
        gemm.why_not(KINDS["fp16"], CPU) == "needs fp16 on cpu, found that its products are wrong"
    )
    # A Volta card has no bf16.
    monkeypatch.setattr(torch, "mm", multiply)
    monkeypatch.setattr(gemm, "Gemm", lambda kind, shape, _: Gemm(kind, shape, CPU))
    for version, reason in [((7, 0), "found 7.0"), ((8, 0), "")]:
        monkeypatch.setattr(torch.version, "hip", None)
        monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _, found=version: found)
        found = gemm.why_not(KINDS["bf16"], torch.device("cuda"))
        assert (found.endswith(reason), bool(found)) == (True, bool(reason))


def test_cdna_3_has_an_e4m3_of_its_own(monkeypatch):
    monkeypatch.setattr(torch.version, "hip", "6.2")
    for architecture, dtype in [
        ("gfx942:x", torch.float8_e4m3fnuz),
        ("gfx950", torch.float8_e4m3fn),
    ]:
        properties = type("Properties", (), {"gcnArchName": architecture})
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, found=properties: found)
        assert gemm.fp8_type(torch.device("cuda")) == dtype


def test_a_shape_that_memory_bounds_is_bound_by_it_on_every_product_with_a_datasheet():
    for name, kind in KINDS.items():
        single = [kind.metric, kind.metric.replace("_TFLOPS", "_matrix_TFLOPS")]
        ridges = [
            1e3 * known.peaks[peak].value / known.peaks["memory_GBps"].value
            for known, peak in product_of(catalogue().products, single)
            if peak in known.peaks and "memory_GBps" in known.peaks
        ]
        assert 0.95 * min(ridges) < kind.least_ridge <= min(ridges), name
        for projection in PROJECTIONS.values():
            bound = [gemm.is_memory_bound(kind, Shape(tokens, *projection)) for tokens in (1, 4096)]
            assert bound == [True, False], (name, projection)


def test_memory_needed_holds_operands_and_result():
    # 8192 · 8192 · 2 bytes, three times, and 256 rows of float64 twice.
    assert (
        Gemm(KINDS["bf16"], Shape(8192, 8192, 8192), CPU).memory_needed
        == 3 * 8192**2 * 2 + 2 * 8 * 256 * 8192
    )
